//! Proves the isolation: runs every probe first on the bare host, then inside a sandbox that `belljar exec` builds for
//! a made-up user in a made-up project.

mod leaks;
mod observation;
mod outside;
mod scene;
mod stage;
mod stranger;
mod table;

pub use leaks::{LeakRow, LeakVerdict, Leaks, leaks};

use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use crate::launch::guest_program::UnpackError;
use crate::store::leftovers::{PROVE_PREFIX, SCENE_PREFIX, Scratch};
use belljar_contract::{AbsPath, BackendKind, ProbeResult, Proof, ProofRow, WorkspaceMode};
use belljar_sandbox::{Engine, EngineError, ServiceEnd};
use belljar_session::Harnesses;
use belljar_sys::process::Prepare;
use outside::HostServices;
use scene::{Agents, SYSTEM_PATH, Scene};
use stage::StageRun;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use table::{ProbeKind, ProbeStage, Row};

/// Why the probes could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The made-up user could not be created.
    #[error("cannot prepare the probes in `{}`", path.display())]
    Scene {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// The backend cannot build a sandbox here.
    #[error("the backend {} cannot build a sandbox on this machine", .backend.name())]
    Backend {
        backend: BackendKind,
        /// The error lines of `exec`.
        messages: Vec<String>,
    },
    #[error("the backend container cannot build a sandbox on this machine")]
    Engine(#[source] EngineError),
    /// The guest, which runs the probes, cannot be unpacked.
    #[error(transparent)]
    Guest(#[from] UnpackError),
    /// A row of the table of probes is not valid; a bug in belljar.
    #[error("a row of the table of probes is not valid")]
    Table(#[source] serde_json::Error),
    /// The table of probes is not valid; a bug in belljar.
    #[error("the table of probes is not valid")]
    File(#[source] toml::de::Error),
}

/// The configuration of a proof.
#[derive(Debug, Clone, Copy)]
pub struct ProveRequest<'a> {
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    pub own: &'a AbsPath,
    /// The backend to prove.
    pub backend: BackendKind,
    /// The workspace mode; the default of this machine if it is not given.
    pub workspace: Option<WorkspaceMode>,
}

/// The result of a proof, and the flags that it is about.
#[derive(Debug)]
pub struct Proved {
    pub proof: Proof,
    /// The lowered launch, as `plan --lowered --json` prints it.
    pub lowered: serde_json::Value,
    /// The version of the engine that made the containers.
    pub engine: Option<String>,
}

/// The side that a probe runs on.
enum Side<'a> {
    Host {
        guest: &'a AbsPath,
    },
    Inside {
        own: &'a AbsPath,
        guest: AbsPath,
        path: OsString,
        isolated: bool,
        backend: BackendKind,
        /// The engine that makes the containers, if the backend needs one: the made-up user has none.
        engine: Option<OsString>,
    },
}

/// Runs all probes on both sides.
///
/// # Errors
/// If the probes cannot be prepared, or the backend cannot build a sandbox.
pub fn prove(request: ProveRequest<'_>) -> Result<Proved, ProveError> {
    let ProveRequest { environment, own, backend, workspace } = request;
    let rows = table::rows().map_err(ProveError::File)?;
    let place = ProveDirectory::make(environment)?;
    let guest = place.guest(environment)?;
    let path = environment.outside_path();
    let rust = scene::toolchain(&path);
    let (inside_root, host_root) = (place.side("i")?, place.side("h")?);
    // Both before anything that starts threads.
    let (inside_out, host_out) = (place.outside("o")?, place.outside("p")?);
    let profile = Harnesses::built_in().usual().profile();
    let agents = Agents { profile, backend, workspace, rust: &rust };
    let inside_scene = Scene::build(&inside_root, "inside", &agents, inside_out)?;
    let host_scene = Scene::build(&host_root, "host", &agents, host_out)?;
    plant_keys(&[&host_scene, &inside_scene]);
    // In a temporary directory, because the path of a socket must be short.
    let run = Scratch::temporary(PROVE_PREFIX)
        .map_err(|cause| ProveError::Scene { path: std::env::temp_dir(), cause })?;
    let engine = engine(environment, backend, &run)?;
    let _held = engine.as_ref().map(Engine::hold);
    let inside = Side::Inside {
        own,
        guest: belljar_sandbox::guest_path(backend, &guest),
        path,
        isolated: backend.isolates(),
        backend,
        engine: engine.as_ref().map(|engine| engine.socket().as_os_str().to_owned()),
    };
    // The backend first: if it cannot build a sandbox, there is nothing to compare.
    let seen_inside = all_stages(&inside, &inside_scene, &rows)?;
    if let Some(lines) = seen_inside.refused {
        return Err(ProveError::Backend { backend, messages: lines });
    }
    let seen_outside = all_stages(&Side::Host { guest: &guest }, &host_scene, &rows)?;
    let lowered = lowered(&inside, &inside_scene);
    let row = |row: &Row| {
        let absent = || ProbeResult::Unseen { why: "it was not run".to_owned() };
        let host = seen_outside.observations.get(&row.id).cloned().unwrap_or_else(absent);
        let inside = seen_inside.observations.get(&row.id).cloned().unwrap_or_else(absent);
        ProofRow {
            id: row.id.clone(),
            what: inside_scene.text(&row.what, row),
            expected: row.expected(),
            why: row.why.clone(),
            verdict: observation::judge(row.kind, &host, &inside),
            host,
            inside,
        }
    };
    let engine = engine.and_then(|engine| engine.version().ok());
    Ok(Proved { proof: Proof { rows: rows.iter().map(row).collect() }, lowered, engine })
}

/// The user's engine, if the backend needs one. A podman service that is started for it runs in `run`, and ends with
/// this.
fn engine(
    environment: &HostEnvironment,
    backend: BackendKind,
    run: &Scratch,
) -> Result<Option<Engine>, ProveError> {
    if !backend.needs_engine() {
        return Ok(None);
    }
    let mut places = engine_places(environment);
    if let Ok(path) = AbsPath::new(run.path()) {
        places.runtime = path;
        places.service = ServiceEnd::WithCaller;
    }
    Engine::find(&places).map(Some).map_err(ProveError::Engine)
}

/// Puts a key into a fresh session keyring of this process, which all its children inherit.
fn plant_keys(scenes: &[&Scene]) {
    // A kernel without keyrings has no key to find; the rows then prove nothing.
    if belljar_sys::keyring::join_fresh().is_err() {
        return;
    }
    for scene in scenes {
        let Ok(name) = std::ffi::CString::new(scene.key.as_str()) else { continue };
        let added = belljar_sys::raw::try_key_add(&name, b"secret");
        added.and_then(belljar_sys::raw::try_key_possessors_only).ok();
    }
}

struct AllObservations {
    observations: BTreeMap<String, ProbeResult>,
    /// The error lines of belljar, if it could not build a sandbox.
    refused: Option<Vec<String>>,
}

fn all_stages(side: &Side<'_>, scene: &Scene, rows: &[Row]) -> Result<AllObservations, ProveError> {
    let mut seen = AllObservations { observations: BTreeMap::new(), refused: None };
    for stage in ProbeStage::ALL {
        let (able, unable): (Vec<&Row>, Vec<&Row>) =
            rows.iter().filter(|row| row.stage == stage).partition(|row| missing(row, scene).is_none());
        for row in unable {
            let why = missing(row, scene).unwrap_or_default();
            seen.observations.insert(row.id.clone(), ProbeResult::Unseen { why });
        }
        // Controls first, because other probes may break what they need.
        let mut able = able;
        able.sort_by_key(|row| row.kind != ProbeKind::Control);
        let watched: Vec<_> = able.iter().map(|row| observation::watched(row, scene)).collect();
        let before: Vec<_> = watched
            .iter()
            .map(|path| observation::snapshot(path.as_deref().unwrap_or(Path::new(""))))
            .collect();
        let run = match stage {
            ProbeStage::Killed => killed(side, scene, &able)?,
            ProbeStage::Stranger if matches!(side, Side::Inside { .. }) => stage::tried(side, scene, &able)?,
            ProbeStage::Idle
            | ProbeStage::Plain
            | ProbeStage::Directory
            | ProbeStage::Terminal
            | ProbeStage::Egress
            | ProbeStage::Unbuilt
            | ProbeStage::Misspelt
            | ProbeStage::Widened
            | ProbeStage::Filled
            | ProbeStage::Crowded
            | ProbeStage::Stranger => stage::run(side, scene, &able, stage)?,
        };
        if stage == ProbeStage::Idle && run.findings.is_empty() && matches!(side, Side::Inside { .. }) {
            seen.refused = Some(run.stderr.lines().map(str::to_owned).collect());
            return Ok(seen);
        }
        for ((row, before), path) in able.iter().zip(&before).zip(&watched) {
            seen.observations.insert(row.id.clone(), observation::observe(row, scene, before, &run));
            if let Some(path) = path.as_deref().filter(|path| !path.starts_with(&scene.home)) {
                tidy(path, before);
            }
        }
    }
    Ok(seen)
}

/// The findings of the stage in which the supervisor is killed come from the host alone.
fn killed(side: &Side<'_>, scene: &Scene, rows: &[&Row]) -> Result<StageRun, ProveError> {
    let mut findings = BTreeMap::new();
    for row in rows {
        if stage::kill_supervisor(side, scene, row)? {
            let finding = belljar_contract::ProbeFinding {
                probe: row.id.clone(),
                outcome: belljar_contract::ProbeOutcome::Open,
                detail: "the process existed".to_owned(),
            };
            findings.insert(row.id.clone(), finding);
        }
    }
    Ok(StageRun { findings, status: None, stderr: "the process never existed".to_owned() })
}

/// Why a row cannot be run on this machine.
fn missing(row: &Row, scene: &Scene) -> Option<String> {
    if let (ProbeStage::Egress, Err(why)) = (row.stage, &scene.outside) {
        return Some(why.clone());
    }
    let program = scene.text(row.needs.as_deref()?, row);
    let here = if program.contains('/') {
        Path::new(&program).is_file()
    } else {
        belljar_sys::spawn::find(program.as_bytes(), SYSTEM_PATH.as_bytes()).is_ok()
    };
    (!here).then(|| format!("`{program}` is not installed, or not on the system's PATH"))
}

/// Removes the file that a probe created outside the made-up home.
fn tidy(path: &Path, before: &observation::Snapshot) {
    if *before == observation::snapshot(Path::new("")) && path.symlink_metadata().is_ok() {
        // Either a file or a directory; if neither can be removed, the probe did not create it.
        std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).ok();
    }
}

fn lowered(side: &Side<'_>, scene: &Scene) -> serde_json::Value {
    let Side::Inside { own, path, .. } = side else { return serde_json::Value::Null };
    // outside: prove-belljar
    let mut command = std::process::Command::new(own.as_path());
    command.args(["plan", "prove", "--lowered", "--json"]).current_dir(&scene.project);
    let output = command.env_clear().envs(scene.environment(path)).dies_with_spawner().output();
    // Without it the proof is still valid, and the report shows that the flags are missing.
    let value =
        output.ok().and_then(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).ok());
    value.map_or(serde_json::Value::Null, |mut value| value["data"].take())
}

/// The directory of all scenes. Removed at the end, with a name that a sweep finds.
struct ProveDirectory(Scratch);

impl Drop for ProveDirectory {
    fn drop(&mut self) {
        // The parent is removed with the last scene; one in use is not empty, and stays.
        let parent = self.0.path().parent().map(Path::to_owned);
        belljar_record::remove_tree(self.0.path()).ok();
        parent.filter(|parent| parent.ends_with("prove")).map(std::fs::remove_dir);
    }
}

impl ProveDirectory {
    fn make(environment: &HostEnvironment) -> Result<Self, ProveError> {
        // In the user's own data directory: a mount that hides the made-up home there also hides the real one.
        let preferred = environment.data.child("prove");
        let usable = scene::is_plain(&preferred) && std::fs::create_dir_all(&preferred).is_ok();
        let (parent, prefix) = match usable {
            true => (preferred.as_path().to_owned(), SCENE_PREFIX),
            false => (std::env::temp_dir(), PROVE_PREFIX),
        };
        let failed = |cause| ProveError::Scene { path: parent.clone(), cause };
        Scratch::make(&parent, prefix).map(ProveDirectory).map_err(failed)
    }

    /// The guest, unpacked here: a proof leaves no file behind.
    fn guest(&self, environment: &HostEnvironment) -> Result<AbsPath, ProveError> {
        let path = self.0.path();
        let failed = |cause| ProveError::Scene { path: path.to_owned(), cause };
        let here = AbsPath::new(path).map_err(|error| failed(std::io::Error::other(error)))?;
        let program = environment.guest.below(&here);
        program.unpack()?;
        Ok(program.path().clone())
    }

    /// A made-up internet; the inner error says why this machine does not permit one.
    fn outside(&self, name: &str) -> Result<Result<HostServices, String>, ProveError> {
        Ok(HostServices::make(&self.side(name)?)?.map_err(|error| error.to_string()))
    }

    fn side(&self, name: &str) -> Result<PathBuf, ProveError> {
        let path = self.0.path().join(name);
        std::fs::create_dir(&path).map_err(|cause| ProveError::Scene { path: path.clone(), cause })?;
        // The prober compares with paths that have no links.
        path.canonicalize().map_err(|cause| ProveError::Scene { path, cause })
    }
}
