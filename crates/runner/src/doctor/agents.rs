//! The programs of the known agents.

use super::{good, missing};
use crate::agents::{AgentStore, FoundProgram, program_on_path};
use crate::environment::HostEnvironment;
use crate::plan::agent_version;
use belljar_contract::{
    AgentVersion, Checkup, CheckupState, Harness, HarnessProfile, VersionStanding, with_causes,
};
use belljar_session::Harnesses;

pub(super) fn checkups(environment: &HostEnvironment) -> Vec<Checkup> {
    let profiles = Harnesses::built_in().list().into_iter().map(Harness::profile);
    profiles.flat_map(|profile| of_agent(environment, profile)).collect()
}

/// The program on the search path, and the versions that belljar keeps.
fn of_agent(environment: &HostEnvironment, profile: &HarnessProfile) -> Vec<Checkup> {
    let kept = KeptVersions::find(environment, profile);
    let found = on_path(environment, profile, &kept);
    std::iter::once(found).chain(kept.checkup(profile)).collect()
}

/// The versions of an agent that belljar keeps.
struct KeptVersions {
    /// Each with its standing.
    versions: Vec<String>,
    /// What is wrong with others.
    damaged: Vec<String>,
}

impl KeptVersions {
    fn find(environment: &HostEnvironment, profile: &HarnessProfile) -> Self {
        let HarnessProfile { name, program, versions, .. } = profile;
        let (mut kept, mut damaged) = (Vec::new(), Vec::new());
        match AgentStore::new(&environment.data).list((name, program)) {
            Ok(list) => list.into_iter().for_each(|one| match one {
                Ok(found) => {
                    let text = found.description.version.to_string();
                    let standing = AgentVersion::parse(&text).map(|version| versions.standing(version));
                    kept.push(format!("{text} ({})", standing.as_ref().map_or("not tested", word)));
                }
                Err(error) => damaged.push(with_causes(&error)),
            }),
            Err(error) => damaged.push(with_causes(&error)),
        }
        Self { versions: kept, damaged }
    }

    fn checkup(&self, profile: &HarnessProfile) -> Option<Checkup> {
        let id = format!("kept {}", profile.name);
        let listed = self.versions.join(", ");
        match (self.versions.is_empty(), self.damaged.as_slice()) {
            (true, []) => None,
            (false, []) => Some(good(id, listed)),
            (_, damaged) => Some(missing(
                id,
                CheckupState::Absent,
                [self.versions.as_slice(), damaged].concat().join("; "),
                "a damaged version is not started",
                vec!["remove its directory, then `belljar agent install` it again".to_owned()],
            )),
        }
    }
}

const fn word(standing: &VersionStanding) -> &'static str {
    match standing {
        VersionStanding::Tested => "tested",
        VersionStanding::Untested => "not tested",
        VersionStanding::Newer => "newer than what was tested",
        VersionStanding::TooOld { .. } => "too old for tests",
    }
}

fn on_path(environment: &HostEnvironment, profile: &HarnessProfile, kept: &KeptVersions) -> Checkup {
    let HarnessProfile { name, program, install, versions, .. } = profile;
    let id = format!("agent {name}");
    let found = match program_on_path(environment, profile) {
        Ok(found) => found,
        Err(error) => {
            let loses =
                "`run` does not start it; `exec` and `shell` work, and so does a version that belljar keeps";
            return missing(id, CheckupState::Bad, error.to_string(), loses, error.hints());
        }
    };
    let Some(FoundProgram { path, behind }) = found else {
        let seen = format!("`{program}` is not on PATH");
        return match kept.versions.is_empty() {
            true => missing(
                id,
                CheckupState::Bad,
                format!("{seen}, and belljar keeps no version"),
                "`run` has nothing to start; `exec` and `shell` work",
                vec![format!("belljar agent install {name}"), format!("or: {install}")],
            ),
            false => missing(
                id,
                CheckupState::Absent,
                seen,
                "a run starts only a version that is named, with `--agent` or in a file",
                vec![install.clone()],
            ),
        };
    };
    let shown = behind.map_or_else(|| path.to_string(), |behind| format!("{path} ({behind})"));
    if environment.is_of_the_project(&path) {
        return good(id, format!("a file of the project, whose version is not asked outside, {shown}"));
    }
    let Some(version) = agent_version::said(&path) else {
        return good(id, format!("does not print its version, {shown}"));
    };
    let tested = versions.tested_text();
    match versions.standing(version) {
        VersionStanding::Tested => good(id, format!("{version}, tested, {shown}")),
        VersionStanding::Untested => {
            good(id, format!("{version}, not tested (tested versions: {tested}), {shown}"))
        }
        VersionStanding::Newer => {
            good(id, format!("{version}, newer than what was tested ({tested}), {shown}"))
        }
        VersionStanding::TooOld { lacks } => missing(
            id,
            CheckupState::Absent,
            format!("{version} is too old, {shown}"),
            &format!("it cannot be tested with; it lacks {}", lacks.join("; ")),
            vec![install.clone()],
        ),
    }
}
