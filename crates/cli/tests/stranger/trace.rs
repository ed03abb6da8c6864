//! Reads what strace wrote, one file per thread, and tells processes outside the sandbox from those inside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The system calls of one run of belljar.
pub struct Trace {
    threads: BTreeMap<u32, String>,
}

/// What processes outside the sandbox did.
#[derive(Debug, Default)]
pub struct Outside {
    /// Files and directories they opened, by their real paths.
    pub opened: BTreeSet<PathBuf>,
    /// Paths they created, wrote to, renamed, linked or removed.
    pub changed: BTreeSet<PathBuf>,
    /// Programs they executed.
    pub executed: BTreeSet<PathBuf>,
    /// Working directories of programs other than belljar.
    pub directories: BTreeSet<PathBuf>,
    /// Network addresses they sent to.
    pub sent: Vec<String>,
}

impl Trace {
    /// Options for strace: follow everything, resolve descriptors to paths, one file per thread.
    pub fn options(prefix: &Path) -> Vec<String> {
        let calls = "trace=%file,%process,connect,sendto,sendmsg,sendmmsg,ftruncate";
        let fixed = ["-ff", "-y", "-s", "4096", "-e", "signal=none", "-e", calls, "-o"];
        fixed.iter().map(ToString::to_string).chain([prefix.display().to_string()]).collect()
    }

    pub fn read(prefix: &Path) -> Self {
        let name = format!("{}.", prefix.file_name().unwrap().to_str().unwrap());
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(prefix.parent().unwrap()).unwrap().map(Result::unwrap) {
            if let Some(id) = entry.file_name().to_str().unwrap().strip_prefix(&name) {
                let bytes = fs::read(entry.path()).unwrap();
                threads.insert(id.parse().unwrap(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Self { threads }
    }

    /// Threads outside, each with the program that it begins in: reached from the first process without passing through
    /// bubblewrap. Ids inside are those of another namespace and reach nothing here.
    fn outside(&self) -> Vec<(PathBuf, &str)> {
        let is_first = |text: &str| {
            text.lines().next().is_some_and(|line| line.starts_with("execve(\"/usr/bin/setpriv\""))
        };
        let (first, _) =
            self.threads.iter().find(|(_, text)| is_first(text)).expect("strace saw the first program");
        let (mut pending, mut seen, mut out) = (vec![(*first, PathBuf::new())], BTreeSet::new(), Vec::new());
        while let Some((id, begins_in)) = pending.pop() {
            let Some(text) = self.threads.get(&id) else { continue };
            if !seen.insert(id) || text.lines().any(is_bubblewrap) {
                continue;
            }
            let mut program = begins_in.clone();
            for line in text.lines().filter(|line| succeeded(line)) {
                if line.starts_with("execve") {
                    program = PathBuf::from(&quoted(line)[0]);
                } else if starts_with_any(line, &["clone", "fork", "vfork"]) {
                    let child = line.rsplit_once(" = ").and_then(|(_, id)| id.trim().parse::<u32>().ok());
                    pending.extend(child.map(|child| (child, program.clone())));
                }
            }
            out.push((begins_in, text.as_str()));
        }
        out
    }

    pub fn look(&self) -> Outside {
        let mut found = Outside::default();
        for (mut program, text) in self.outside() {
            for line in text.lines().filter(|line| succeeded(line)) {
                if line.starts_with("execve") {
                    program = PathBuf::from(&quoted(line)[0]);
                    found.executed.insert(program.clone());
                } else if program.file_name().is_some_and(|name| name != "belljar" && name != "setpriv") {
                    found.directories.extend(working_directory(line));
                }
                if program.file_name().is_none_or(|name| name == "setpriv") {
                    continue;
                }
                if line.starts_with("open") {
                    let path = returned_path(line);
                    let writes =
                        ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| line.contains(flag));
                    if writes { found.changed.extend(path) } else { found.opened.extend(path) }
                } else if starts_with_any(line, &CHANGES) {
                    found.changed.extend(named_paths(line));
                } else if starts_with_any(line, &["connect(", "sendto(", "sendmsg(", "sendmmsg("])
                    && line.contains("AF_INET")
                {
                    found.sent.push(line.to_owned());
                }
            }
        }
        found
    }
}

const CHANGES: [&str; 10] =
    ["mkdir", "rename", "link", "symlink", "unlink", "rmdir", "mknod", "truncate", "chmod", "utime"];

fn is_bubblewrap(line: &str) -> bool {
    line.starts_with("execve(") && succeeded(line) && quoted(line)[0].ends_with("/bwrap")
}

fn starts_with_any(line: &str, names: &[&str]) -> bool {
    names.iter().any(|name| line.starts_with(name))
}

fn succeeded(line: &str) -> bool {
    line.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('-') && !result.starts_with('?'))
}

/// `openat(…) = 3</real/path>`
fn returned_path(line: &str) -> Option<PathBuf> {
    let (_, result) = line.rsplit_once(" = ")?;
    let path = result.split_once('<')?.1.strip_suffix('>')?;
    Some(PathBuf::from(path.trim_end_matches("(deleted)").trim_end_matches(' ')))
}

/// `AT_FDCWD</real/path>`
fn working_directory(line: &str) -> Option<PathBuf> {
    Some(PathBuf::from(line.split_once("AT_FDCWD<")?.1.split_once('>')?.0))
}

fn quoted(line: &str) -> Vec<String> {
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Every path of a call: a name is relative to the descriptor before it.
fn named_paths(line: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut directory = PathBuf::new();
    let arguments = line.rsplit_once(" = ").map_or(line, |(call, _)| call);
    for (index, part) in arguments.split('"').enumerate() {
        if index % 2 == 1 {
            out.push(directory.join(part));
        } else if let Some((_, rest)) = part.rsplit_once('<')
            && let Some((path, _)) = rest.split_once('>')
        {
            directory = PathBuf::from(path);
        }
    }
    if arguments.starts_with("symlink") {
        // The first word is the text of the link, not a path.
        out.remove(0);
    }
    out
}
