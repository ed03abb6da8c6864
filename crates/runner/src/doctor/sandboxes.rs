//! Sandboxes of each backend, built for the check.

use super::programs::output;
use super::{good, missing};
use crate::agents::program_on_path;
use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use crate::launch::interpreter::interpreter;
use crate::store::leftovers::{MARK, mark};
use belljar_contract::{AbsPath, BackendKind, Checkup, CheckupState, ImageName, with_causes};
use belljar_sandbox::{ENGINE_VARIABLE, Engine, EnginePlaces, ServiceEnd, wanted_of_images};
use belljar_session::Harnesses;
use std::path::Path;
use std::process::Command;

pub(super) fn sandbox(environment: &HostEnvironment, own: &AbsPath, scratch: Option<&Path>) -> Checkup {
    let loses = "no command can run in a sandbox";
    let variables = Vec::new();
    let subject = SandboxCheck {
        id: "a sandbox",
        backend: BackendKind::Bwrap,
        variables,
        state: CheckupState::Bad,
        loses,
    };
    tried(environment, own, scratch, &subject)
}

/// Tests the engine with a container that has the flags of a real run. A plan may not need it.
pub(super) fn containers(environment: &HostEnvironment, own: &AbsPath, scratch: Option<&Path>) -> Checkup {
    let id = "containers";
    let loses = "`backend = \"container\"` is refused";
    let engine = Engine::find(&places_of_its_own(environment, scratch));
    let named = engine.and_then(|engine| Ok((engine.version()?, engine.socket().as_os_str().to_owned())));
    let (version, socket) = match named {
        Ok(found) => found,
        Err(error) => {
            let fix = error.hint().into_iter().collect();
            return missing(id, CheckupState::Absent, with_causes(&error), loses, fix);
        }
    };
    let subject = SandboxCheck {
        id,
        backend: BackendKind::Container,
        variables: vec![(ENGINE_VARIABLE, socket)],
        state: CheckupState::Absent,
        loses,
    };
    let built = tried(environment, own, scratch, &subject);
    match built.state {
        CheckupState::Good => good(id, format!("{version}; built and sealed one")),
        CheckupState::Absent | CheckupState::Bad => {
            Checkup { seen: format!("{version}: {}", built.seen), ..built }
        }
    }
}

/// What an image of the user lacks for an agent. No program of it runs.
pub(super) fn image_checkup(
    environment: &HostEnvironment,
    image: &ImageName,
    scratch: Option<&Path>,
) -> Checkup {
    let id = "image";
    let profile = Harnesses::built_in().usual().profile();
    let agent = program_on_path(environment, profile).ok().flatten();
    let agent = agent.map(|agent| interpreter(agent.path.as_path()));
    let wanted = wanted_of_images(&agent.unwrap_or_default());
    let lacks = Engine::find(&places_of_its_own(environment, scratch))
        .and_then(|engine| engine.image_lacks(image, &wanted));
    match lacks {
        Ok(lacks) if lacks.is_empty() => good(id, format!("`{image}` has what an agent needs")),
        Ok(lacks) => {
            let what: Vec<&str> = lacks.iter().map(|want| want.what.as_str()).collect();
            let loses: Vec<&str> = lacks.iter().map(|want| want.loses.as_str()).collect();
            let seen = format!("`{image}` has no {}", what.join(", no "));
            let fix = vec!["use an image that has it, or add it to this one".to_owned()];
            missing(id, CheckupState::Absent, seen, &loses.join("; "), fix)
        }
        Err(error) => {
            let loses = "agents that name it do not start";
            missing(id, CheckupState::Absent, with_causes(&error), loses, error.hint().into_iter().collect())
        }
    }
}

/// The places of engines; a service that is started for the check leaves no file in belljar's own directories. Podman's own are
/// the user's: it keeps the first ones that it is given, for every later call.
fn places_of_its_own(environment: &HostEnvironment, scratch: Option<&Path>) -> EnginePlaces {
    let mut places = engine_places(environment);
    if let Some(scratch) = scratch.and_then(|path| AbsPath::new(path.join("run")).ok()) {
        places.runtime = scratch;
        places.service = ServiceEnd::WithCaller;
    }
    places
}

/// The kind of sandbox to test, and the consequence of a failure.
struct SandboxCheck<'a> {
    id: &'static str,
    backend: BackendKind,
    variables: Vec<(&'a str, std::ffi::OsString)>,
    state: CheckupState,
    loses: &'a str,
}

/// Builds a sandbox with the flags of a real run, with an empty home and project.
fn tried(
    environment: &HostEnvironment,
    own: &AbsPath,
    scratch: Option<&Path>,
    subject: &SandboxCheck<'_>,
) -> Checkup {
    let SandboxCheck { id, backend, variables, state, loses } = subject;
    let (id, state) = (*id, *state);
    let place = scratch.map(|path| (path.join("home"), path.join("home/project")));
    let made = place.as_ref().is_some_and(|(_, project)| std::fs::create_dir_all(project).is_ok());
    let Some((home, project)) = place.filter(|_| made) else {
        return missing(
            id,
            state,
            "no temporary directory to build it in",
            "",
            vec!["df -h /tmp".to_owned()],
        );
    };
    let path = environment.outside_path();
    // outside: doctor-sandbox
    let mut command = Command::new(own.as_path());
    command
        .args(["exec", "--backend", backend.name(), "--", "true"])
        .current_dir(project)
        .env_clear()
        .env("HOME", home)
        .env("PATH", path)
        .env(MARK, mark());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    match output(command) {
        Some((true, _, _)) => good(id, "built and sealed one, with the flags of a real run"),
        Some((false, _, stderr)) => {
            let strip = |line: &str, prefix: &str| line.trim().strip_prefix(prefix).map(str::to_owned);
            let causes: Vec<String> = stderr
                .lines()
                .filter_map(|line| strip(line, "error: ").or_else(|| strip(line, "caused by: ")))
                .collect();
            let fix = stderr.lines().filter_map(|line| strip(line, "hint: ")).collect();
            missing(id, state, causes.join(": "), loses, fix)
        }
        None => missing(id, state, "it took too long, or could not be tested", loses, Vec::new()),
    }
}
