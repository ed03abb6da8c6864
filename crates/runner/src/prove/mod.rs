//! Showing that the walls hold: every probe first on the bare host, then inside a sandbox that `belljar exec`
//! builds for a made-up user in a made-up project.

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
use belljar_contract::{AbsPath, BackendKind, Proof, ProofRow, Sight, WorkspaceMode};
use belljar_sandbox::{Engine, EngineError, ServiceEnd};
use belljar_sys::process::Prepare;
use outside::HostServices;
use scene::{Agents, SYSTEM_PATH, Scene};
use stage::StageRun;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use table::{ProbeKind, ProbeStage, Row};

/// Why nothing was proved.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The made-up user could not be made.
    #[error("cannot prepare the probes in `{}`", path.display())]
    Scene {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The backend builds nothing here; in belljar's own words.
    #[error("the backend {} builds no sandbox on this machine", .backend.name())]
    Backend {
        /// Which.
        backend: BackendKind,
        /// What `exec` said, a line each.
        words: Vec<String>,
    },
    /// There is no engine.
    #[error("the backend container builds no sandbox on this machine")]
    Engine(#[source] EngineError),
    /// The program that does the probing is not there.
    #[error(transparent)]
    Guest(#[from] UnpackError),
    /// The table of probes is broken; a fault of belljar.
    #[error("the table of probes is broken")]
    Table(#[source] serde_json::Error),
    /// The same, in its file.
    #[error("the table of probes cannot be read")]
    File(#[source] toml::de::Error),
}

/// What `prove` works with.
#[derive(Debug, Clone, Copy)]
pub struct ProveRequest<'a> {
    /// The user's side of the world.
    pub environment: &'a HostEnvironment,
    /// belljar's own program.
    pub own: &'a AbsPath,
    /// The backend to prove.
    pub backend: BackendKind,
    /// Where changes of the project go; the default of this machine where it is not given.
    pub workspace: Option<WorkspaceMode>,
}

/// What was proved, and on which flags.
#[derive(Debug)]
pub struct Proved {
    /// The rows.
    pub proof: Proof,
    /// The lowered launch, as `plan --lowered --json` prints it.
    pub lowered: serde_json::Value,
    /// The engine that made the containers, in its own words.
    pub engine: Option<String>,
}

/// Where a probe runs.
enum Side<'a> {
    Host {
        guest: &'a AbsPath,
    },
    Inside {
        own: &'a AbsPath,
        guest: AbsPath,
        path: OsString,
        walls: bool,
        backend: BackendKind,
        /// The engine that makes the containers, where the backend needs one: the made-up user has none.
        engine: Option<OsString>,
    },
}

/// Tries everything, twice.
///
/// # Errors
/// When the probes cannot be prepared, or the backend builds nothing.
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
    let agents = Agents { backend, workspace, rust: &rust };
    let inside_scene = Scene::build(&inside_root, "inside", &agents, inside_out)?;
    let host_scene = Scene::build(&host_root, "host", &agents, host_out)?;
    plant_keys(&[&host_scene, &inside_scene]);
    // Where files for a while are put: the path of a socket is short.
    let run = Scratch::temporary(PROVE_PREFIX)
        .map_err(|cause| ProveError::Scene { path: std::env::temp_dir(), cause })?;
    let engine = engine(environment, backend, &run)?;
    let _held = engine.as_ref().map(Engine::hold);
    let inside = Side::Inside {
        own,
        guest: belljar_sandbox::guest_path(backend, &guest),
        path,
        walls: backend != BackendKind::Host,
        backend,
        engine: engine.as_ref().map(|engine| engine.socket().as_os_str().to_owned()),
    };
    // The backend first: where it builds nothing, there is nothing to compare with.
    let seen_inside = all_stages(&inside, &inside_scene, &rows)?;
    if let Some(words) = seen_inside.refused {
        return Err(ProveError::Backend { backend, words });
    }
    let seen_outside = all_stages(&Side::Host { guest: &guest }, &host_scene, &rows)?;
    let lowered = lowered(&inside, &inside_scene);
    let row = |row: &Row| {
        let absent = || Sight::Unseen { why: "it was not tried".to_owned() };
        let host = seen_outside.sights.get(&row.id).cloned().unwrap_or_else(absent);
        let inside = seen_inside.sights.get(&row.id).cloned().unwrap_or_else(absent);
        ProofRow {
            id: row.id.clone(),
            what: row.what.clone(),
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

/// The user's engine, if the backend needs one. A podman that is started for it serves in `run`, and ends with this.
fn engine(
    environment: &HostEnvironment,
    backend: BackendKind,
    run: &Scratch,
) -> Result<Option<Engine>, ProveError> {
    if backend != BackendKind::Container {
        return Ok(None);
    }
    let mut places = engine_places(environment);
    if let Ok(path) = AbsPath::new(run.path()) {
        places.runtime = path;
        places.service = ServiceEnd::WithCaller;
    }
    Engine::find(&places).map(Some).map_err(ProveError::Engine)
}

/// A key in a fresh session keyring of this process, which all its children inherit.
fn plant_keys(scenes: &[&Scene]) {
    // A kernel without keys has none to find; the rows then prove nothing.
    if belljar_sys::keyring::join_fresh().is_err() {
        return;
    }
    for scene in scenes {
        let Ok(name) = std::ffi::CString::new(scene.key.as_str()) else { continue };
        let added = belljar_sys::raw::try_key_add(&name, b"secret");
        added.and_then(belljar_sys::raw::try_key_possessors_only).ok();
    }
}

struct AllSights {
    sights: BTreeMap<String, Sight>,
    /// What belljar said, if it built nothing at all.
    refused: Option<Vec<String>>,
}

fn all_stages(side: &Side<'_>, scene: &Scene, rows: &[Row]) -> Result<AllSights, ProveError> {
    let mut seen = AllSights { sights: BTreeMap::new(), refused: None };
    for stage in ProbeStage::ALL {
        let (able, unable): (Vec<&Row>, Vec<&Row>) =
            rows.iter().filter(|row| row.stage == stage).partition(|row| missing(row, scene).is_none());
        for row in unable {
            let why = missing(row, scene).unwrap_or_default();
            seen.sights.insert(row.id.clone(), Sight::Unseen { why });
        }
        // Controls first: what the others break is not for them to suffer from.
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
            seen.sights.insert(row.id.clone(), observation::sight(row, scene, before, &run));
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
                detail: "the process was there".to_owned(),
            };
            findings.insert(row.id.clone(), finding);
        }
    }
    Ok(StageRun { findings, status: None, stderr: "the process was never there".to_owned() })
}

/// Why a row cannot be tried on this machine.
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
    (!here).then(|| format!("`{program}` is not here, or not on the system's path"))
}

/// Removes what a probe planted outside the made-up home.
fn tidy(path: &Path, before: &observation::Snapshot) {
    if *before == observation::snapshot(Path::new("")) && path.symlink_metadata().is_ok() {
        // Whichever of the two it is; what cannot be removed was not planted by us.
        std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).ok();
    }
}

fn lowered(side: &Side<'_>, scene: &Scene) -> serde_json::Value {
    let Side::Inside { own, path, .. } = side else { return serde_json::Value::Null };
    // outside: prove-belljar
    let mut command = std::process::Command::new(own.as_path());
    command.args(["plan", "prove", "--lowered", "--json"]).current_dir(&scene.project);
    let output = command.env_clear().envs(scene.environment(path)).dies_with_spawner().output();
    // Without it the proof stands all the same; the reader sees that the flags are missing.
    let value =
        output.ok().and_then(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).ok());
    value.map_or(serde_json::Value::Null, |mut value| value["data"].take())
}

/// The directory of all scenes. Removed at the end, named so that a sweep finds it.
struct ProveDirectory(Scratch);

impl Drop for ProveDirectory {
    fn drop(&mut self) {
        // Its parent goes with the last scene; one that is in use is not empty, and stays.
        let parent = self.0.path().parent().map(Path::to_owned);
        belljar_record::remove_tree(self.0.path()).ok();
        parent.filter(|parent| parent.ends_with("prove")).map(std::fs::remove_dir);
    }
}

impl ProveDirectory {
    fn make(environment: &HostEnvironment) -> Result<Self, ProveError> {
        // Where the user's own data lies: what hides the made-up home there hides the real one.
        let preferred = environment.data.child("prove");
        let usable = scene::is_plain(&preferred) && std::fs::create_dir_all(&preferred).is_ok();
        let (parent, prefix) = match usable {
            true => (preferred.as_path().to_owned(), SCENE_PREFIX),
            false => (std::env::temp_dir(), PROVE_PREFIX),
        };
        let failed = |cause| ProveError::Scene { path: parent.clone(), cause };
        Scratch::make(&parent, prefix).map(ProveDirectory).map_err(failed)
    }

    /// The prober, unpacked here: a proof leaves nothing behind.
    fn guest(&self, environment: &HostEnvironment) -> Result<AbsPath, ProveError> {
        let path = self.0.path();
        let failed = |cause| ProveError::Scene { path: path.to_owned(), cause };
        let here = AbsPath::new(path).map_err(|error| failed(std::io::Error::other(error)))?;
        let program = environment.guest.below(&here);
        program.unpack()?;
        Ok(program.path().clone())
    }

    /// An internet of one's own; in words where this machine grants none.
    fn outside(&self, name: &str) -> Result<Result<HostServices, String>, ProveError> {
        Ok(HostServices::make(&self.side(name)?)?.map_err(|error| error.to_string()))
    }

    fn side(&self, name: &str) -> Result<PathBuf, ProveError> {
        let path = self.0.path().join(name);
        std::fs::create_dir(&path).map_err(|cause| ProveError::Scene { path: path.clone(), cause })?;
        // The prober compares with paths that it sees without links.
        path.canonicalize().map_err(|cause| ProveError::Scene { path, cause })
    }
}
