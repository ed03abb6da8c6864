//! Names that tie the repository to one machine or one mirror.
//!
//! A registry is reached by package name through its usual client, so that a build behind a mirror needs no changes
//! here. The names are stored in parts, because this file is checked like any other.

use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// Hosts of package registries and toolchain servers, by their labels.
const HOSTS: [&[&str]; 8] = [
    &["crates", "io"],
    &["npmjs", "org"],
    &["npmjs", "com"],
    &["pypi", "org"],
    &["deb", "debian", "org"],
    &["archive", "ubuntu", "com"],
    &["static", "rust-lang", "org"],
    &["rustup", "rs"],
];

/// Directories that exist only on particular machines.
const DIRECTORIES: [&str; 2] = ["work", "root"];

/// Allowed occurrences: file, name, reason.
const MEANT: [(&str, &str, &str); 0] = [];

/// Cargo writes the name of its registry into every entry of the lock file.
const NOT_READ: [&str; 1] = ["Cargo.lock"];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    for file in repository.files()? {
        if NOT_READ.contains(&file.as_str()) {
            continue;
        }
        let content =
            fs::read(repository.path(&file)).map_err(|cause| format!("cannot read {file}: {cause}"))?;
        for (line, word) in found_in(&String::from_utf8_lossy(&content)) {
            if !MEANT.iter().any(|(at, meant, _why)| *at == file && *meant == word) {
                findings
                    .faults
                    .push(format!("{file}:{line}: `{word}` names a host or directory of one machine"));
            }
        }
    }
    Ok(findings)
}

/// Line numbers and the names found there.
fn found_in(content: &str) -> Vec<(usize, String)> {
    let hosts = HOSTS.map(|labels| labels.join("."));
    let directories = DIRECTORIES.map(|name| format!("/{name}/"));
    let mut found = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let hit_hosts = hosts.iter().filter(|host| line.contains(host.as_str()));
        let hit_directories = directories.iter().filter(|directory| names_from_the_root(line, directory));
        found.extend(hit_hosts.chain(hit_directories).map(|word| (index + 1, word.clone())));
    }
    found
}

/// Whether the directory is at the start of a path, not further inside one.
fn names_from_the_root(line: &str, directory: &str) -> bool {
    let inside_a_path = |before: char| before.is_alphanumeric() || "._-/*}~)>".contains(before);
    line.match_indices(directory).any(|(at, _)| !line[..at].ends_with(inside_a_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(content: &str) -> Vec<(usize, String)> {
        found_in(content)
    }

    #[test]
    fn a_host_is_found_anywhere() {
        let host = HOSTS[1].join(".");
        assert_eq!(words(&format!("a\n\"resolved\": \"https://registry.{host}/x\"\n")), [(2, host)]);
    }

    #[test]
    fn a_directory_is_found_at_the_start_of_a_path() {
        for directory in DIRECTORIES {
            let directory = format!("/{directory}/");
            assert_eq!(words(&format!("cd {directory}x")), [(1, directory.clone())]);
            assert_eq!(words(&format!("\"{directory}x\"")), [(1, directory.clone())]);
            assert_eq!(words(&format!("src{directory}x.rs, $HOME{directory}x, ${{a}}{directory}x")), []);
        }
    }

    #[test]
    fn other_text_passes() {
        assert_eq!(words("a work of root/cause, at the crate registry\n"), []);
    }
}
