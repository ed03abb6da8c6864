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

/// Allowed occurrences: the file, the name as in the lists above, and the reason. A directory that every Linux machine
/// has may be what the code is about.
const MEANT: [(&str, &str, &str); 2] = [
    ("crates/egress/src/tape/private.rs", "root", "a tape must not contain the home directory of root"),
    (
        "crates/runner/src/agents/settings.rs",
        concat!("npmjs", ".", "org"),
        "the registry of users who configured none; npm has it built in, and belljar installs agents without npm",
    ),
];

/// Cargo writes the name of its registry into every entry of the lock file.
const NOT_READ: [&str; 1] = ["Cargo.lock"];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut files = Vec::new();
    for file in repository.files()? {
        if NOT_READ.contains(&file.as_str()) {
            continue;
        }
        let content =
            fs::read(repository.path(&file)).map_err(|cause| format!("cannot read {file}: {cause}"))?;
        files.push((file, String::from_utf8_lossy(&content).into_owned()));
    }
    Ok(judge(&files))
}

/// Judges files, each with its content.
fn judge(files: &[(String, String)]) -> Findings {
    let mut findings = Findings::default();
    let mut used = [false; MEANT.len()];
    for (file, content) in files {
        for (line, word) in found_in(content) {
            let name = word.trim_matches('/');
            match MEANT.iter().position(|(at, meant, _why)| at == file && *meant == name) {
                Some(at) => used[at] = true,
                None => findings.faults.push(format!(
                    "{file}:{line}: `{word}` names a host or directory of one machine; write the text without it, or \
                     add it to MEANT in xtask/src/words.rs with the reason"
                )),
            }
        }
    }
    let unused = MEANT.iter().zip(used).filter(|(_, used)| !used);
    findings.faults.extend(unused.map(|((file, name, _why), _)| {
        format!("{file} does not name `{name}`; remove it from MEANT in xtask/src/words.rs")
    }));
    findings
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
    fn a_name_that_is_meant_passes_in_its_file_alone() {
        let line = |name: &str| format!("\"/{name}/a\"\n");
        let meant: Vec<_> = MEANT.iter().map(|(at, name, _why)| ((*at).to_owned(), line(name))).collect();
        assert_eq!(judge(&meant), Findings::default());
        let all: String = MEANT.iter().map(|(_, name, _why)| line(name)).collect();
        let elsewhere: Vec<_> = meant.iter().cloned().chain([("crates/a.rs".to_owned(), all)]).collect();
        let faults = judge(&elsewhere).faults;
        assert!(faults.len() == MEANT.len() && faults[0].starts_with("crates/a.rs:1: "), "{faults:?}");
    }

    #[test]
    fn an_entry_without_its_name_is_removed() {
        let faults = judge(&[]).faults;
        assert!(faults.len() == MEANT.len() && faults[0].starts_with(MEANT[0].0), "{faults:?}");
    }

    #[test]
    fn other_text_passes() {
        assert_eq!(words("a work of root/cause, at the crate registry\n"), []);
    }
}
