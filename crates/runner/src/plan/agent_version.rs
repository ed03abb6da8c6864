//! The version of an agent's program. The program is asked once, and again when its file changed.

use crate::doctor;
use crate::store::leftovers::{AGENT_PREFIX, Scratch};
use belljar_contract::{AbsPath, AgentVersion, AgentVersions, Digest, VersionStanding};
use belljar_record::write_atomically;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// What was found out about a program, and the file that it was found out from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    file: FileMark,
    /// Its version or its digest.
    value: String,
}

/// Identifies a file and its state without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMark {
    path: AbsPath,
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileMark {
    fn of(path: &AbsPath) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            path: path.clone(),
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// The version that a program reports, if it reports one. The answer is cached below `state`.
#[must_use]
pub fn agent_version(state: &AbsPath, program: &AbsPath) -> Option<AgentVersion> {
    // Only one of several concurrent callers starts the program, which takes longer than anything else before a run.
    AgentVersion::parse(&known((state, "version"), program, || Some(said(program)?.to_string()))?)
}

/// The digest of a program. It is read once, and again when its file changed.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn program_digest(state: &AbsPath, program: &AbsPath) -> io::Result<Digest> {
    let mut failed = None;
    let read = || File::open(program).and_then(|mut file| Digest::of_reader(&mut file));
    let text = known((state, "digest"), program, || {
        read().map_err(|error| failed = Some(error)).ok().map(|digest| digest.to_string())
    });
    let digest = text.as_deref().and_then(Digest::parse);
    digest.ok_or_else(|| failed.unwrap_or_else(|| io::ErrorKind::InvalidData.into()))
}

/// What is cached about a program, or what `ask` gives. If the answer cannot be cached, it is asked again the next time.
fn known(
    (state, what): (&AbsPath, &str),
    program: &AbsPath,
    ask: impl FnOnce() -> Option<String>,
) -> Option<String> {
    let mark = FileMark::of(program)?;
    let directory = state.child("agents");
    let name = format!("{}.{what}", Digest::of(program.to_string().as_bytes()).hex());
    let file = directory.child(&format!("{name}.json"));
    let remembered = || {
        let known = serde_json::from_slice::<Known>(&fs::read(&file).ok()?).ok()?;
        (known.file == mark).then_some(known.value)
    };
    if let Some(value) = remembered() {
        return Some(value);
    }
    fs::create_dir_all(&directory).ok();
    let asking = File::create(directory.child(&format!("{name}.lock"))).ok();
    let _alone = asking.as_ref().map(File::lock);
    if let Some(value) = remembered() {
        return Some(value);
    }
    let value = ask()?;
    let known = Known { file: mark.clone(), value: value.clone() };
    serde_json::to_vec(&known).ok().and_then(|text| write_atomically(&file, &text).ok());
    Some(value)
}

/// Starts the program with `--version`, with an empty environment and a home directory of its own. The answer is not
/// cached.
pub(crate) fn said(program: &AbsPath) -> Option<AgentVersion> {
    let home = Scratch::temporary(AGENT_PREFIX).ok()?;
    // outside: agent-version
    let mut command = Command::new(program.as_path());
    command.arg("--version").env_clear().current_dir(home.path());
    command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    AgentVersion::parse(&doctor::first_line(command)?)
}

/// A warning about a version that a test is to run with, or the reason why it cannot be used.
pub(crate) fn worth_knowing(
    program: &str,
    version: Option<AgentVersion>,
    versions: &AgentVersions,
) -> Result<Option<String>, String> {
    let Some(version) = version else {
        return Ok(
            (!versions.tested.is_empty()).then(|| format!("`{program}` does not say which version it is"))
        );
    };
    let tested = versions.tested_text();
    match versions.standing(version) {
        VersionStanding::Tested | VersionStanding::Untested => Ok(None),
        VersionStanding::Newer => Ok(Some(format!(
            "{program} {version} is newer than what this belljar was tested with ({tested}): a failure may come from that"
        ))),
        VersionStanding::TooOld { lacks } => {
            Err(format!("{program} {version} is too old: it lacks {}; tested are {tested}", lacks.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn of_several_that_want_to_know_one_asks_and_another_file_is_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let below = |name: &str| AbsPath::new(directory.path().join(name)).unwrap();
        let (state, program, asked) = (below("state"), below("agent"), below("asked"));
        let says = |version: &str| {
            let script = format!("#!/bin/sh\necho x >>'{asked}'\nsleep 0.1\necho '{version} (An Agent)'\n");
            fs::write(below("new"), script).unwrap();
            fs::set_permissions(below("new"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(below("new"), &program).unwrap();
        };
        let times = || fs::read_to_string(&asked).unwrap().lines().count();
        says("2.1.3");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(agent_version(&state, &program), AgentVersion::parse("2.1.3")));
            }
        });
        assert_eq!(times(), 1);
        says("2.1.4");
        assert_eq!(agent_version(&state, &program), AgentVersion::parse("2.1.4"));
        assert_eq!(times(), 2);
    }
}
