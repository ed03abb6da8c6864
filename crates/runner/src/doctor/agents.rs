//! The programs of the known agents.

use super::{good, missing};
use crate::environment::HostEnvironment;
use crate::plan::agent_version;
use belljar_contract::{Checkup, CheckupState, Harness, HarnessProfile, VersionStanding};
use belljar_session::Harnesses;

pub(super) fn checkups(environment: &HostEnvironment) -> Vec<Checkup> {
    let profiles = Harnesses::built_in().list().into_iter().map(Harness::profile);
    profiles.map(|profile| checkup(environment, profile)).collect()
}

fn checkup(environment: &HostEnvironment, profile: &HarnessProfile) -> Checkup {
    let HarnessProfile { name, program, install, versions, .. } = profile;
    let id = format!("agent {name}");
    let Some(path) = environment.program_inside(program) else {
        return missing(
            id,
            CheckupState::Bad,
            format!("`{program}` is not on PATH"),
            "`run` has nothing to start; `exec` and `shell` work",
            vec![install.clone()],
        );
    };
    if environment.is_of_the_project(&path) {
        return good(id, format!("a file of the project, whose version is not asked outside, {path}"));
    }
    let Some(version) = agent_version::said(&path) else {
        return good(id, format!("does not print its version, {path}"));
    };
    let tested = versions.tested_text();
    match versions.standing(version) {
        VersionStanding::Tested => good(id, format!("{version}, tested, {path}")),
        VersionStanding::Untested => {
            good(id, format!("{version}, not tested (tested versions: {tested}), {path}"))
        }
        VersionStanding::Newer => {
            good(id, format!("{version}, newer than what was tested ({tested}), {path}"))
        }
        VersionStanding::TooOld { lacks } => missing(
            id,
            CheckupState::Absent,
            format!("{version} is too old, {path}"),
            &format!("it cannot be tested with; it lacks {}", lacks.join("; ")),
            vec![install.clone()],
        ),
    }
}
