//! Which version an agent's program is. It is asked once, and again when the file is another one.

use crate::doctor;
use crate::store::leftovers::{AGENT_PREFIX, Scratch};
use belljar_contract::{AbsPath, AgentVersion, AgentVersions, Digest, VersionStanding};
use belljar_record::write_atomically;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// A program's answer, and which file gave it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    file: FileMark,
    version: String,
}

/// What tells one file from another without reading it.
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

/// The version that a program says it is; none where it does not say. It is remembered below `state`.
#[must_use]
pub fn agent_version(state: &AbsPath, program: &AbsPath) -> Option<AgentVersion> {
    let mark = FileMark::of(program)?;
    let folder = state.child("agents");
    let name = Digest::of(program.to_string().as_bytes()).hex();
    let file = folder.child(&format!("{name}.json"));
    let remembered = || {
        let known = serde_json::from_slice::<Known>(&fs::read(&file).ok()?).ok()?;
        (known.file == mark).then(|| AgentVersion::parse(&known.version))
    };
    if let Some(version) = remembered() {
        return version;
    }
    // Of several that want to know, one asks; that takes an agent longer than anything else before a run. What cannot
    // be remembered is asked again.
    fs::create_dir_all(&folder).ok();
    let asking = File::create(folder.child(&format!("{name}.lock"))).ok();
    let _alone = asking.as_ref().map(File::lock);
    if let Some(version) = remembered() {
        return version;
    }
    let version = said(program)?;
    let known = Known { file: mark.clone(), version: version.to_string() };
    serde_json::to_vec(&known).ok().and_then(|text| write_atomically(&file, &text).ok());
    Some(version)
}

/// Asks it, without a word of the user's environment and in a home of its own. Nothing is remembered.
pub(crate) fn said(program: &AbsPath) -> Option<AgentVersion> {
    let home = Scratch::temporary(AGENT_PREFIX).ok()?;
    // outside: agent-version
    let mut command = Command::new(program.as_path());
    command.arg("--version").env_clear().current_dir(home.path());
    command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    AgentVersion::parse(&doctor::first_line(command)?)
}

/// What is worth knowing about a version before it is tested with; why it cannot be.
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
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| AbsPath::new(folder.path().join(name)).unwrap();
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
