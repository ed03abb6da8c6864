//! Trees made from a few lines.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub fn superuser() -> bool {
    belljar_sys::beneath::is_superuser()
}

/// A file with the directories above it.
pub fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Everything below, with kind, permissions and content: equal lists are equal trees.
pub fn listing(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            let found = fs::symlink_metadata(entry.path()).unwrap();
            let name = path.as_os_str().as_bytes().escape_ascii().to_string();
            let permissions = found.permissions().mode() & 0o7777;
            out.push(if found.is_symlink() {
                format!("{name} -> {}", fs::read_link(entry.path()).unwrap().display())
            } else if found.is_dir() {
                pending.push(path);
                format!("{name}/ {permissions:o}")
            } else if found.is_file() {
                format!("{name} {permissions:o} {}", fs::read(entry.path()).unwrap().escape_ascii())
            } else {
                format!("{name} special")
            });
        }
    }
    out.sort();
    out
}
