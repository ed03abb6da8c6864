//! Trees made from a few lines.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_sandbox::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, Change, ChangeSelection, Class, Grade, OnConflict,
    Overlay,
};
use belljar_sys::overlay;

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

/// A project with an overlay beside it.
pub struct Project {
    place: tempfile::TempDir,
}

impl Project {
    pub fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("project, with: odd\\name")).unwrap();
        Project { place }
    }

    pub fn lower(&self) -> PathBuf {
        self.place.path().join("project, with: odd\\name")
    }

    /// A directory outside the project.
    pub fn outside(&self) -> PathBuf {
        let outside = self.place.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        outside
    }

    pub fn overlay(&self) -> Overlay {
        Overlay::new(&self.lower(), &self.place.path().join("layers, of: it"))
    }

    /// Runs a script at the top of the overlay, and expects it to end well.
    pub fn edit(&self, script: impl AsRef<OsStr>) {
        let mut command = Command::new("sh");
        command.args(["-euc", "cd \"$1\"; eval \"$2\"", "sh"]).arg(self.overlay().target()).arg(script);
        self.run(command);
    }

    /// Runs a script in a sandbox that has the overlay at `/workspace`.
    pub fn edit_in_bwrap(&self, script: &str) {
        let mut command = Command::new("bwrap");
        command
            .args([
                "--unshare-all",
                "--unshare-user",
                "--disable-userns",
                "--die-with-parent",
                "--clearenv",
                "--setenv",
                "PATH",
                "/usr/bin",
            ])
            .args([
                "--ro-bind",
                "/usr",
                "/usr",
                "--symlink",
                "usr/bin",
                "/bin",
                "--symlink",
                "usr/lib",
                "/lib",
            ])
            .args(["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"])
            .arg("--bind")
            .arg(self.overlay().target())
            .args(["/workspace", "--chdir", "/workspace", "sh", "-euc", script]);
        self.run(command);
    }

    fn run(&self, mut command: Command) {
        let preparation = overlay::prepare(&mut command, vec![self.overlay().begin().unwrap()]).unwrap();
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => panic!("{error} at {:?}", preparation.failed_step()),
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // What the run mounted is not here.
        assert_eq!(fs::read_dir(self.overlay().target()).unwrap().count(), 0);
    }

    pub fn changes(&self) -> Vec<Change> {
        self.overlay().changes().unwrap().changes
    }

    /// A line for each change.
    pub fn change_lines(&self) -> Vec<String> {
        self.changes().iter().map(change_line).collect()
    }

    pub fn apply(&self, selection: &ChangeSelection, consent: &ApplyConsent) -> Applied {
        let request =
            ApplyRequest { selection, consent, on_conflict: OnConflict::Merge, mode: ApplyMode::Write };
        self.overlay().apply(&request).unwrap()
    }

    /// Applies everything, with a yes to everything.
    pub fn apply_all(&self) -> Applied {
        let to = self.changes().into_iter().map(|change| change.path).collect();
        self.apply(&ChangeSelection::All, &ApplyConsent { to, ..ApplyConsent::default() })
    }
}

/// `kind path class`.
pub fn change_line(change: &Change) -> String {
    let class = match &change.class {
        Class::Ordinary => "",
        Class::HostExecuted { grade: Grade::Guarded, .. } => " guarded",
        Class::HostExecuted { grade: Grade::Watched, .. } => " watched",
        Class::EscapingSymlink { .. } => " escaping",
        Class::Special { .. } => " special",
    };
    format!("{:?} {}{class}", change.kind, change.path.as_os_str().as_bytes().escape_ascii())
}

pub fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

pub fn yes_to(to: &[&str]) -> ApplyConsent {
    ApplyConsent { to: paths(to), ..ApplyConsent::default() }
}

/// Waits until the clock of the file system has advanced, so that later times differ.
pub fn tick() {
    let place = tempfile::tempdir().unwrap();
    let stamp = |name: &str| {
        let path = place.path().join(name);
        fs::write(&path, "").unwrap();
        fs::metadata(path).unwrap().modified().unwrap()
    };
    let first = stamp("first");
    while stamp("next") <= first {
        std::thread::yield_now();
    }
}
