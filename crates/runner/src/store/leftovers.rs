//! Files, control groups and processes that belljar creates outside its own directories. They are named after the
//! process that created them, and are found when that process has ended.
//!
//! Only names of the exact form are considered, and only entries that belong to this user; links are not followed. If
//! the creator still runs, the entry is not touched.

use crate::agents::store::{UNFINISHED_PREFIX, agents_directory};
use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use belljar_contract::AbsPath;
use belljar_record::remove_tree;
use belljar_sandbox::{Engine, ServiceEnd};
use belljar_sys::birth::{Birth, Standing};
use belljar_sys::cgroup::{FoundLeaf, Leaf, PROBE_PREFIX};
use belljar_sys::process;
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The prefix of the directories of `prove` in belljar's own directory.
pub(crate) const SCENE_PREFIX: &str = "scene-";
/// The prefix of everything that `prove` creates elsewhere.
pub(crate) const PROVE_PREFIX: &str = "belljar-prove-";
/// The prefix of the directories of `doctor`.
pub(crate) const DOCTOR_PREFIX: &str = "belljar-doctor-";
/// The prefix of the directories in which an overlay is tried.
pub(crate) const OVERLAY_PREFIX: &str = ".belljar-overlay-";
/// The prefix of the home directories in which an agent reports its version.
pub(crate) const AGENT_PREFIX: &str = "belljar-agent-";
/// The variable that marks the processes of `prove` and `doctor`.
pub(crate) const MARK: &str = "BELLJAR_KEPT_BY";

/// The directories for temporary files; the user's own choice comes first.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// A name from another pid namespace does not identify its creator; after this long it counts as abandoned.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// Larger than the environment of any process of belljar.
const ENVIRONMENT: u64 = 64 << 10;

/// The keeper of this process, if there is one.
static KEEPER: OnceLock<Birth> = OnceLock::new();
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Marks all processes that are started from now on as those of this keeper.
pub(crate) fn keep_as(birth: Birth) {
    // The first call counts: a keeper has one worker.
    KEEPER.set(birth).ok();
}

/// The value of [`MARK`] for processes that this one starts.
pub(crate) fn mark() -> String {
    let own = || Birth::own().map(|birth| birth.to_string());
    KEEPER.get().map_or_else(|| own().unwrap_or_default(), ToString::to_string)
}

/// A name, without its prefix, that is unique on this machine.
pub(crate) fn unique() -> io::Result<String> {
    Ok(format!("{}.{}", Birth::own()?, NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The process that created an entry of this name.
fn maker(name: &OsStr, prefix: &str) -> Option<Birth> {
    let (birth, number) = name.to_str()?.strip_prefix(prefix)?.rsplit_once('.')?;
    let plain = (1..=9).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    Birth::parse(birth).filter(|_| plain)
}

/// Whether a name with this prefix has the exact form that belljar uses.
pub(crate) fn is_ours(name: &OsStr, prefix: &str) -> bool {
    maker(name, prefix).is_some()
}

/// A directory for the user alone that is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `parent`.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        let path = parent.join(format!("{prefix}{}", unique()?));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Creates one in the directory for temporary files.
    pub fn temporary(prefix: &str) -> io::Result<Self> {
        Self::make(&std::env::temp_dir(), prefix)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A remainder is found by its name later.
        remove_tree(&self.0).ok();
    }
}

/// An entry whose creator has ended.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A file, a link or a directory.
    Path(AbsPath),
    /// A control group that limits no process.
    Group(AbsPath, FoundLeaf),
    Process(AbsPath, Marked),
}

impl Leftover {
    pub fn path(&self) -> &AbsPath {
        match self {
            Leftover::Path(path) | Leftover::Group(path, _) | Leftover::Process(path, _) => path,
        }
    }

    /// Ends or removes it.
    pub fn remove(self) -> io::Result<()> {
        match self {
            Leftover::Path(path) => remove(path.as_path()),
            Leftover::Group(_, found) => found.adopt().remove().map_err(io::Error::other),
            Leftover::Process(_, marked) => {
                marked.end();
                Ok(())
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        // A control group is removed with `rmdir`; its entries are not real files.
        Ok(found) if found.is_dir() => fs::remove_dir(path).or_else(|_full| remove_tree(path)),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Some(parent) = path.parent().filter(|parent| parent.ends_with("prove")) {
        // Removed with the last scene; one in use is not empty, and stays.
        fs::remove_dir(parent).ok();
    }
    match removed {
        // Another sweep removed it first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// Everything that an interrupted command left.
pub(crate) fn find(environment: &HostEnvironment, now: SystemTime) -> Vec<Leftover> {
    let HostEnvironment { data, home, .. } = environment;
    let mut out: Vec<Leftover> = marked(|birth| birth.standing() == Standing::Ended)
        .into_iter()
        .filter_map(|marked| Some(Leftover::Process(AbsPath::new(marked.path()).ok()?, marked)))
        .collect();
    let mut places = vec![
        (data.child("prove").as_path().to_owned(), vec![SCENE_PREFIX]),
        (agents_directory(data).as_path().to_owned(), vec![UNFINISHED_PREFIX]),
    ];
    let mut temporary = vec![std::env::temp_dir()];
    temporary.extend(TEMPORARY.iter().map(PathBuf::from));
    temporary.dedup();
    let prefixes = || vec![PROVE_PREFIX, DOCTOR_PREFIX, AGENT_PREFIX];
    places.extend(temporary.into_iter().map(|path| (path, prefixes())));
    // An overlay is tried in the lowest existing directory of these.
    let above = data.as_path().ancestors().take_while(|path| path.starts_with(home)).map(Path::to_owned);
    let own =
        std::iter::once(data.as_path().to_owned()).chain(data.parent().map(|path| path.as_path().to_owned()));
    let mut overlays: Vec<PathBuf> = own.chain(above).collect();
    overlays.sort();
    overlays.dedup();
    places.extend(overlays.into_iter().map(|path| (path, vec![OVERLAY_PREFIX])));
    places.push((control_group(), vec![PROVE_PREFIX]));
    let mut paths: Vec<AbsPath> =
        places.iter().flat_map(|(place, prefixes)| orphans(place, prefixes, now)).collect();
    paths.sort();
    paths.dedup();
    out.extend(paths.into_iter().map(Leftover::Path));
    // A machine without control groups has none left.
    for found in Leaf::existing(PROBE_PREFIX).into_iter().flatten() {
        let maker = found.name().strip_prefix(PROBE_PREFIX).and_then(Birth::parse);
        let path = found.path().and_then(|path| AbsPath::new(path).ok());
        if let (Some(Standing::Ended), Some(path)) = (maker.map(|birth| birth.standing()), path) {
            out.push(Leftover::Group(path, found));
        }
    }
    out
}

/// A path for a top-level group, where this user may be able to create one.
pub(crate) fn control_group() -> PathBuf {
    let candidates = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    candidates.iter().map(PathBuf::from).find(|path| path.is_dir()).unwrap_or_else(|| "/sys/fs/cgroup".into())
}

/// The entries of a directory whose creators have ended.
pub(crate) fn orphans(place: &Path, prefixes: &[&str], now: SystemTime) -> Vec<AbsPath> {
    // A missing directory counts as empty.
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let user = rustix::process::geteuid().as_raw();
    let is_orphan = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let maker = prefixes.iter().find_map(|prefix| maker(&name, prefix));
        let (Some(maker), Ok(found)) = (maker, entry.path().symlink_metadata()) else { return false };
        let age = found.modified().ok().and_then(|time| now.duration_since(time).ok());
        found.uid() == user
            && match maker.standing() {
                Standing::Runs => false,
                Standing::Ended => true,
                Standing::Elsewhere => age.is_some_and(|age| age > FORGOTTEN),
            }
    };
    entries.filter(is_orphan).filter_map(|entry| AbsPath::new(entry.path()).ok()).collect()
}

/// Removes everything of this user that an interrupted command left. If an entry cannot be removed, `gc` reports it
/// later.
pub fn remove_leftovers(environment: &HostEnvironment) {
    let found = find(environment, SystemTime::now());
    let engine = used_engine(&found).then(|| own_engine(environment)).flatten();
    for leftover in found {
        leftover.remove().ok();
    }
    if let Some((engine, _run)) = engine {
        for orphan in engine.orphans().unwrap_or_default() {
            engine.remove_orphan(&orphan).ok();
        }
    }
}

/// Whether an interrupted command had started its own engine, which may have created containers.
pub(crate) fn used_engine(found: &[Leftover]) -> bool {
    let used =
        |path: &AbsPath| ["engine", "run/engine"].iter().any(|name| path.child(name).as_path().is_dir());
    found.iter().any(|leftover| matches!(leftover, Leftover::Path(path) if used(path)))
}

/// The engine that would be used; a podman service that is started for it ends with this thread.
pub(crate) fn own_engine(environment: &HostEnvironment) -> Option<(Engine, Scratch)> {
    let run = Scratch::temporary(DOCTOR_PREFIX).ok()?;
    let mut places = engine_places(environment);
    places.runtime = AbsPath::new(run.path()).ok()?;
    places.service = ServiceEnd::WithCaller;
    Some((Engine::find(&places).ok()?, run))
}

/// A process with the mark of a keeper.
#[derive(Debug)]
pub(crate) struct Marked {
    pid: Pid,
    process: OwnedFd,
}

impl Marked {
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid.as_raw_pid()))
    }

    pub fn end(&self) {
        // A process that has ended already receives no signal.
        process::signal_open(self.process.as_fd(), Signal::KILL).ok();
    }
}

/// The processes whose mark matches.
pub(crate) fn marked(of: impl Fn(&Birth) -> bool) -> Vec<Marked> {
    let own = rustix::process::getpid();
    let has = |pid: Pid| mark_of(pid).is_some_and(|birth| of(&birth));
    let open = |pid: Pid| {
        let process = process::open(pid).ok()?;
        // Checked again after opening: the number may have been reused.
        has(pid).then_some(Marked { pid, process })
    };
    processes().filter(|pid| *pid != own && has(*pid)).filter_map(open).collect()
}

fn mark_of(pid: Pid) -> Option<Birth> {
    use std::io::Read;
    let file = fs::File::open(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    let mut text = Vec::new();
    file.take(ENVIRONMENT).read_to_end(&mut text).ok()?;
    let wanted = format!("{MARK}=");
    let value = text.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(wanted.as_bytes()))?;
    Birth::parse(std::str::from_utf8(value).ok()?)
}

/// The other running processes of a session.
pub(crate) fn in_session(leader: Pid) -> Vec<Pid> {
    const SESSION: usize = 2;
    processes().filter(|pid| *pid != leader && stands(*pid, SESSION) == Some(leader)).collect()
}

/// The running children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    const PARENT: usize = 0;
    processes().filter(|pid| stands(*pid, PARENT) == Some(parent)).collect()
}

/// A field of a running process's `stat` that names another process. After the name, which may contain any character,
/// and the state follow parent, group and session.
fn stands(pid: Pid, field: usize) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let mut fields = stat.rsplit_once(')').map(|(_, after)| after).unwrap_or_default().split_whitespace();
    let state = fields.next()?;
    let number = fields.nth(field)?.parse().ok()?;
    (state != "Z").then(|| Pid::from_raw(number)).flatten()
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: &OsStr| std::str::from_utf8(name.as_bytes()).ok()?.parse().ok();
    entries.filter_map(move |entry| Pid::from_raw(number(&entry.file_name())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_names_of_the_exact_form_whose_maker_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let own = Birth::own().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = own
            .to_string()
            .replace(&format!(".{}.", base36(std::process::id())), &format!(".{}.", base36(child.id())));
        child.wait().unwrap();
        let make = |name: String| fs::create_dir(place.path().join(name)).unwrap();
        make(format!("belljar-doctor-{gone}.0"));
        make(format!("belljar-doctor-{own}.0"));
        make(format!("belljar-doctor-{gone}"));
        make(format!("belljar-doctor-{gone}.x"));
        make(format!("belljar-other-{gone}.0"));
        make("belljar-doctor-1.2.3.0".to_owned());
        std::os::unix::fs::symlink("/", place.path().join(format!("belljar-doctor-{gone}.7"))).unwrap();
        let mut found = orphans(place.path(), &[DOCTOR_PREFIX], SystemTime::now());
        found.sort();
        let names: Vec<String> =
            found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, [format!("belljar-doctor-{gone}.0"), format!("belljar-doctor-{gone}.7")]);
        for path in &found {
            remove(path.as_path()).unwrap();
        }
        assert!(orphans(place.path(), &[DOCTOR_PREFIX], SystemTime::now()).is_empty());
        assert!(Path::new("/tmp").exists(), "a link is removed, not followed");
    }

    fn base36(mut number: u32) -> String {
        let mut digits = String::new();
        while number > 0 {
            digits.insert(0, char::from_digit(number % 36, 36).unwrap());
            number /= 36;
        }
        digits
    }

    #[test]
    fn a_directory_is_removed_with_its_value() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(place.path(), DOCTOR_PREFIX).unwrap();
        fs::write(scratch.path().join("file"), "x").unwrap();
        assert!(is_ours(scratch.path().file_name().unwrap(), DOCTOR_PREFIX));
        drop(scratch);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
