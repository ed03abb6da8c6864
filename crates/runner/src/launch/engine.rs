//! Where container engines are searched for on the host.

use crate::environment::{HostEnvironment, system_program};
use crate::store::leftovers::remove_leftovers;
use belljar_sandbox::{ENGINE_VARIABLE, Engine, EnginePlaces, ServiceEnd};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The places, from the environment and the search path. No engine is started yet.
#[must_use]
pub fn engine_places(environment: &HostEnvironment) -> EnginePlaces {
    let HostEnvironment { runtime, variables, .. } = environment;
    let known = |name: &str| variables.get(OsStr::new(name)).filter(|value| !value.is_empty());
    EnginePlaces {
        named: known(ENGINE_VARIABLE).cloned(),
        user_runtime: known("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir()),
        runtime: runtime.clone(),
        service: ServiceEnd::WhenIdle,
        podman: environment.program("podman"),
        // Podman searches these directories by default.
        runc: environment
            .program("runc")
            .or_else(|| system_program(OsStr::new("/usr/local/sbin:/usr/sbin:/sbin"), "runc")),
        variables: {
            let mut variables = variables.clone();
            variables.insert("PATH".into(), environment.outside_path());
            variables.into_iter().collect()
        },
    }
}

/// Removes what an interrupted or failed build, or another interrupted command, left in the engine. If the engine does
/// not answer or refuses, `gc` tries again later.
pub fn remove_build_leftovers(environment: &HostEnvironment) {
    remove_leftovers(environment);
    let Ok(Some(engine)) = Engine::running(&engine_places(environment)) else { return };
    // Containers first: a container of an unfinished image keeps that image.
    for orphan in engine.orphans().unwrap_or_default() {
        engine.remove_orphan(&orphan).ok();
    }
    for unfinished in engine.unfinished_builds().unwrap_or_default() {
        engine.remove_unfinished(&unfinished).ok();
    }
}
