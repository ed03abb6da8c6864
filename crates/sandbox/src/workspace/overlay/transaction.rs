//! Changes that are written together or not at all: a commit with its refs, its index and its files.
//!
//! First everything is made beside its place; a full disk stops it there, and nothing shows. Then a journal is written that
//! names every step, and names change places, which takes no room. What was in a place stays beside it until all steps are
//! done. If one fails, or the process ends, the steps are undone: at once, or by the next command that looks at the changes.
//! Once the journal says that all is done, the rest is tidying up.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Onto, Status};

use super::apply::{RefusedBecause, failed, place_failed};
use super::layers::Layers;
use super::merging::Merged;
use super::{LayersError, Overlay};
use crate::workspace::place::{Content, Filling, Placing};
use crate::workspace::removal::{absent_is_fine, opened};

const JOURNAL: &str = "group";
const HEAD: &[u8] = b"belljar group 1";

/// What is done at a path.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// A file or link goes.
    Delete { before: Status },
    /// A directory goes, if nothing is in it.
    RemoveDirectory,
    /// A directory is made.
    MakeDirectory { like: Status },
    /// What the upper layer has takes the place of this.
    Place { before: Option<Status> },
    /// What was made of both versions takes the place of the project's.
    Merge { before: Status, merged: Merged },
}

/// A step; steps are done in order.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub tree: usize,
    pub path: PathBuf,
    pub act: Act,
    /// Whether what is in the place is known to have changed since the run began.
    pub forced: bool,
}

/// How far a group got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Locking,
    Committing,
    Done,
}

impl State {
    fn word(self) -> &'static [u8] {
        match self {
            State::Locking => b"locking",
            State::Committing => b"committing",
            State::Done => b"done",
        }
    }
}

/// A step as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Noted {
    tree: usize,
    /// `d`elete, `r`emove a directory, `m`ake one, `n`ew, e`x`change, `l`ock; a capital where the user's change goes.
    act: u8,
    /// The name beside the place.
    beside: OsString,
    /// The inode of what was made; 0 where nothing was.
    made: u64,
    path: PathBuf,
}

struct Journal {
    state: State,
    steps: Vec<Noted>,
}

impl Journal {
    fn bytes(&self) -> Vec<u8> {
        let mut out = [HEAD, self.state.word()].join(&0);
        for Noted { tree, act, beside, made, path } in &self.steps {
            out.extend(format!("\0{tree} {} {made}\0", char::from(*act)).as_bytes());
            out.extend(beside.as_bytes());
            out.push(0);
            out.extend(path.as_os_str().as_bytes());
        }
        out.extend(b"\0\0");
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| OsString::from(OsStr::from_bytes(bytes));
        let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
        (parts.next()? == HEAD).then_some(())?;
        let word = parts.next()?;
        let state = [State::Locking, State::Committing, State::Done]
            .into_iter()
            .find(|state| state.word() == word)?;
        let mut steps = Vec::new();
        while let Some(head) = parts.next() {
            let mut words = std::str::from_utf8(head).ok()?.split(' ');
            let tree = words.next()?.parse().ok()?;
            let act = *words.next()?.as_bytes().first()?;
            let made = words.next()?.parse().ok()?;
            steps.push(Noted {
                tree,
                act,
                made,
                beside: text(parts.next()?),
                path: text(parts.next()?).into(),
            });
        }
        Some(Journal { state, steps })
    }

    fn read(overlays: &[Overlay]) -> Option<Self> {
        Self::parse(&fs::read(overlays.first()?.directory.join(JOURNAL)).ok()?)
    }

    fn write(&self, overlays: &[Overlay]) -> Result<(), RefusedBecause> {
        let path = overlays[0].directory.join(JOURNAL);
        super::replace(&path, &self.bytes()).map_err(|error| failed(belljar_sys::fds::errno_of(&error)))
    }

    fn remove(overlays: &[Overlay]) {
        fs::remove_file(overlays[0].directory.join(JOURNAL)).ok();
    }
}

/// What stopped a group.
pub(super) struct Stopped {
    /// Where.
    pub tree: usize,
    pub path: PathBuf,
    pub why: RefusedBecause,
}

/// Does all steps or none. `locks` are made as git makes them, and removed afterwards.
pub(super) fn carry_out(
    overlays: &[Overlay],
    layers: &[Layers],
    locks: &[(usize, PathBuf)],
    steps: &[Step],
    check: &dyn Fn() -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let stopped = |tree: usize, path: &Path| {
        let path = path.to_owned();
        move |why| Stopped { tree, path, why }
    };
    let lock = |(tree, path): &(usize, PathBuf)| Noted {
        tree: *tree,
        act: b'l',
        beside: OsString::new(),
        made: 0,
        path: path.clone(),
    };
    let mut journal = Journal { state: State::Locking, steps: locks.iter().map(lock).collect() };
    journal.write(overlays).map_err(stopped(0, Path::new("")))?;
    let mut taken = 0;
    let outcome = (|| {
        for (tree, path) in locks {
            take_lock(&layers[*tree], path).map_err(stopped(*tree, path))?;
            taken += 1;
        }
        // What was looked at before the locks may have changed since.
        check()?;
        for step in steps {
            let noted = stage(layers, step).map_err(stopped(step.tree, &step.path))?;
            journal.steps.push(noted);
        }
        journal.state = State::Committing;
        journal.write(overlays).map_err(stopped(0, Path::new("")))?;
        let noted = journal.steps[locks.len()..].to_vec();
        for (step, noted) in steps.iter().zip(&noted) {
            commit(layers, step, noted).map_err(stopped(step.tree, &step.path))?;
        }
        journal.state = State::Done;
        journal.write(overlays).map_err(stopped(0, Path::new("")))
    })();
    match outcome {
        Ok(()) => {
            finish(layers, &journal.steps);
            Journal::remove(overlays);
            Ok(())
        }
        Err(stopped) => {
            // Locks of somebody else are not ours to remove.
            let (locks, staged) = journal.steps.split_at(locks.len());
            let own: Vec<Noted> = locks[..taken].iter().chain(staged).cloned().collect();
            undo(overlays, layers, &own);
            Journal::remove(overlays);
            Err(stopped)
        }
    }
}

/// Finishes or undoes a group that was interrupted.
pub(super) fn recover(overlays: &[Overlay]) -> Result<(), LayersError> {
    let Some(journal) = Journal::read(overlays) else {
        if let Some(first) = overlays.first() {
            // One that is not whole was not begun with.
            fs::remove_file(first.directory.join(JOURNAL)).ok();
        }
        return Ok(());
    };
    let layers = overlays.iter().map(Overlay::open).collect::<Result<Vec<_>, _>>()?;
    match journal.state {
        State::Locking | State::Committing => undo(overlays, &layers, &journal.steps),
        State::Done => finish(&layers, &journal.steps),
    }
    Journal::remove(overlays);
    Ok(())
}

/// Whether a group was interrupted.
pub(super) fn is_interrupted(overlay: &Overlay) -> bool {
    overlay.directory.join(JOURNAL).exists()
}

/// What our locks hold, so that they are told from git's.
const SIGNATURE: &[u8] = b"belljar apply\n";

fn take_lock(layers: &Layers, path: &Path) -> Result<(), RefusedBecause> {
    let (parent, name) = match layers.lower.parent(path) {
        // Where there is no directory there is nothing to lock.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        answer => answer.map_err(failed)?,
    };
    // Whole before it has its name, so that one that is left behind is known for ours.
    let fresh = Placing::fresh_name().map_err(place_failed)?;
    let mut file = opened(&parent, || parent.create(&fresh, 0o600)).map_err(failed)?;
    let written = file.write_all(SIGNATURE).map_err(|error| belljar_sys::fds::errno_of(&error));
    let named =
        written.and_then(|()| opened(&parent, || parent.rename(&fresh, &parent, name, Onto::Nothing)));
    match named {
        Ok(()) => Ok(()),
        Err(cause) => {
            opened(&parent, || absent_is_fine(parent.remove(&fresh))).map_err(failed)?;
            Err(if cause == Errno::EXIST { RefusedBecause::Locked } else { failed(cause) })
        }
    }
}

fn release_lock(layers: &Layers, path: &Path) {
    let Ok((parent, name)) = layers.lower.parent(path) else { return };
    let Ok(file) = parent.file(name) else { return };
    let mut found = Vec::new();
    let read = std::io::Read::read_to_end(&mut std::io::Read::take(file, 64), &mut found);
    if read.is_ok() && found == SIGNATURE {
        opened(&parent, || absent_is_fine(parent.remove(name))).ok();
    }
}

fn stage(layers: &[Layers], step: &Step) -> Result<Noted, RefusedBecause> {
    let Step { tree, path, act, forced } = step;
    let own = &layers[*tree];
    let note = |act: u8, beside: OsString, made: u64| Noted {
        tree: *tree,
        act: if *forced { act.to_ascii_uppercase() } else { act },
        beside,
        made,
        path: path.clone(),
    };
    match act {
        Act::Delete { before } => Ok(note(b'd', Placing::aside(before).map_err(place_failed)?, 0)),
        Act::RemoveDirectory => Ok(note(b'r', OsString::new(), 0)),
        Act::MakeDirectory { .. } => Ok(note(b'm', OsString::new(), 0)),
        Act::Place { before } => {
            let (upper, name) = own.upper.parent(path).map_err(failed)?;
            let like = upper.status(name).map_err(failed)?;
            // Made beside the nearest directory that is there: its own may be made by an earlier step.
            let (parent, place) = staging(own, path)?;
            let placing = Placing::new(parent, place);
            let staged = if like.kind == belljar_sys::beneath::Kind::Symlink {
                let target = upper.link_target(name).map_err(failed)?;
                placing.stage(&Content::Link(&target), &like, before.as_ref())
            } else {
                let file = upper.file(name).map_err(failed)?;
                placing.stage(&Content::File(Filling::Like(&file)), &like, before.as_ref())
            };
            let (beside, made) = staged.map_err(place_failed)?;
            Ok(note(if before.is_some() { b'x' } else { b'n' }, beside, made))
        }
        Act::Merge { before, merged: Merged { content, mode } } => {
            let (parent, place) = staging(own, path)?;
            let like = Status { mode: *mode, ..*before };
            let content = Content::File(Filling::New(content));
            let staged = Placing::new(parent, place).stage(&content, &like, Some(before));
            let (beside, made) = staged.map_err(place_failed)?;
            // What the user changed is still changed when it is put back.
            Ok(note(b'X', beside, made))
        }
    }
}

/// The directory in which something is made: its own, or the nearest above it that is there.
fn staging<'path>(layers: &Layers, path: &'path Path) -> Result<(Directory, &'path OsStr), RefusedBecause> {
    let name = path.file_name().ok_or(RefusedBecause::NotBelow)?;
    for above in path.ancestors().skip(1) {
        match layers.lower.root().passage(above) {
            Ok(directory) => return Ok((directory, name)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(cause) => return Err(failed(cause)),
        }
    }
    Err(RefusedBecause::NotBelow)
}

fn commit(layers: &[Layers], step: &Step, noted: &Noted) -> Result<(), RefusedBecause> {
    let Step { tree, path, act, forced: _ } = step;
    let own = &layers[*tree];
    let (parent, name) = own.lower.parent(path).map_err(failed)?;
    match act {
        Act::Delete { before } => {
            Placing::new(parent, name).move_aside(&noted.beside, before).map_err(place_failed)
        }
        Act::RemoveDirectory => Placing::new(parent, name).remove_directory().map_err(place_failed),
        Act::MakeDirectory { .. } => match Placing::new(parent, name).make_directory() {
            // The user has one, too.
            Err(crate::workspace::place::PlaceError::NotAsExpected) => Ok(()),
            answer => answer.map_err(place_failed),
        },
        Act::Merge { before, merged: _ } => {
            Placing::new(parent, name).exchange(&noted.beside, Some(before)).map_err(place_failed)
        }
        Act::Place { before } => {
            let (beside_parent, _) = locate(own, noted).ok_or(RefusedBecause::NotBelow)?;
            let here = own.lower.parent(path).map_err(failed)?.0;
            let same = beside_parent.own_status().map_err(failed)?.identity
                == here.own_status().map_err(failed)?.identity;
            if !same {
                // It was made further up, because this directory was not there yet.
                opened(&here, || beside_parent.rename(&noted.beside, &here, &noted.beside, Onto::Nothing))
                    .map_err(failed)?;
            }
            Placing::new(parent, name).exchange(&noted.beside, before.as_ref()).map_err(place_failed)
        }
    }
}

/// The directory that holds the name beside a place: the place's own, or one above it.
fn locate(layers: &Layers, noted: &Noted) -> Option<(Directory, Status)> {
    noted.path.ancestors().skip(1).find_map(|above| {
        let directory = layers.lower.root().passage(above).ok()?;
        let status = directory.status_if_present(&noted.beside).ok()??;
        Some((directory, status))
    })
}

/// Undoes steps, the last first. What somebody changed meanwhile stays as it is. To come back to its place changes the time
/// of a file, so it is noted as unchanged, if it was.
fn undo(overlays: &[Overlay], layers: &[Layers], steps: &[Noted]) {
    let mut restored = Vec::new();
    for noted in steps.iter().rev() {
        let Some(own) = layers.get(noted.tree) else { continue };
        let place = own.lower.parent(&noted.path).ok();
        let now = place.as_ref().and_then(|(parent, name)| parent.status_if_present(name).ok().flatten());
        let is_ours = now.is_some_and(|now| noted.made != 0 && now.identity.inode == noted.made);
        // What cannot be undone is found under its name by the next look.
        match (noted.act.to_ascii_lowercase(), place) {
            (b'l', _) => release_lock(own, &noted.path),
            (b'm', Some((parent, name))) => {
                opened(&parent, || absent_is_fine(parent.remove_directory(name))).ok();
            }
            (b'r', Some((parent, name))) => {
                opened(&parent, || parent.make_directory(name, 0o755)).ok();
            }
            (b'd', Some((parent, name))) => {
                let back = opened(&parent, || parent.rename(&noted.beside, &parent, name, Onto::Nothing));
                restored.extend(back.is_ok().then_some(noted));
            }
            (b'n', Some((parent, name))) if is_ours => {
                opened(&parent, || absent_is_fine(parent.remove(name))).ok();
            }
            (b'x', Some((parent, name))) if is_ours => {
                let back = opened(&parent, || parent.rename(&noted.beside, &parent, name, Onto::Exchange));
                if back.is_ok() {
                    opened(&parent, || absent_is_fine(parent.remove(&noted.beside))).ok();
                    restored.push(noted);
                }
            }
            (_, _) => {
                // Not in its place yet.
                if let Some((directory, status)) = locate(own, noted)
                    && noted.made != 0
                    && status.identity.inode == noted.made
                {
                    opened(&directory, || absent_is_fine(directory.remove(&noted.beside))).ok();
                }
            }
        }
    }
    note_restored(overlays, layers, &restored);
}

fn note_restored(overlays: &[Overlay], layers: &[Layers], restored: &[&Noted]) {
    for (tree, (overlay, layers)) in overlays.iter().zip(layers).enumerate() {
        let own = restored.iter().filter(|noted| noted.tree == tree && noted.act.is_ascii_lowercase());
        let now = |noted: &&Noted| {
            let status = layers.lower.status(&noted.path).ok()??;
            Some((noted.path.clone(), status))
        };
        // Without the note it is asked about, and nothing is lost.
        overlay.note_restored(own.filter_map(now).collect()).ok();
    }
}

/// Removes what was in the places, and what the layers have of it.
fn finish(layers: &[Layers], steps: &[Noted]) {
    use super::discard::{forget, forget_deletion};
    for noted in steps {
        let Some(own) = layers.get(noted.tree) else { continue };
        if noted.act == b'l' {
            continue;
        }
        if let (b'd' | b'x', Ok((parent, _))) =
            (noted.act.to_ascii_lowercase(), own.lower.parent(&noted.path))
            && let Ok(Some(status)) = parent.status_if_present(&noted.beside)
            && (noted.made == 0 || status.identity.inode != noted.made)
        {
            opened(&parent, || absent_is_fine(parent.remove(&noted.beside))).ok();
        }
    }
    // The deepest first, so that directories are empty when their turn comes.
    let mut all: Vec<&Noted> = steps.iter().filter(|noted| noted.act != b'l').collect();
    all.sort_by(|one, other| other.path.cmp(&one.path));
    for noted in all {
        let Some(own) = layers.get(noted.tree) else { continue };
        match noted.act.to_ascii_lowercase() {
            b'd' | b'r' => forget_deletion(own, &noted.path).ok(),
            _ => forget(own, &noted.path).ok(),
        };
    }
    for noted in steps.iter().filter(|noted| noted.act == b'l') {
        if let Some(own) = layers.get(noted.tree) {
            release_lock(own, &noted.path);
        }
    }
}

/// Gives directories that were made their permissions.
pub(super) fn finish_directories(layers: &[Layers], steps: &[Step]) {
    for step in steps.iter().rev() {
        if let Act::MakeDirectory { like } = &step.act
            && let Ok((parent, name)) = layers[step.tree].lower.parent(&step.path)
        {
            Placing::new(parent, name).finish_directory(like).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_whole_or_not_at_all() {
        let step = |act, path: &str| Noted {
            tree: 1,
            act,
            beside: ".belljar-unfinished-1.1.1.1".into(),
            made: 7,
            path: path.into(),
        };
        let journal =
            Journal { state: State::Committing, steps: vec![step(b'x', "a b\nc"), step(b'l', "d")] };
        let bytes = journal.bytes();
        let read = Journal::parse(&bytes).unwrap();
        assert_eq!((read.state, &read.steps), (State::Committing, &journal.steps));
        for end in 0..bytes.len() {
            assert!(Journal::parse(&bytes[..end]).is_none(), "{end}");
        }
    }

    /// A project with two files, and a layer that changes both.
    fn ground() -> (tempfile::TempDir, Vec<Overlay>, Vec<Layers>, Vec<Step>) {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("project")).unwrap();
        let overlays = vec![Overlay::new(&at("project"), &at("layers"))];
        overlays[0].make_directories().unwrap();
        for name in ["a.txt", "b.txt"] {
            fs::write(at("project").join(name), "the user's\n").unwrap();
            fs::write(at("layers/upper").join(name), "the agent's\n").unwrap();
        }
        let layers = vec![overlays[0].open().unwrap()];
        let step = |name: &str| {
            let before = layers[0].lower.status(Path::new(name)).unwrap();
            Step { tree: 0, path: name.into(), act: Act::Place { before }, forced: false }
        };
        let steps = vec![step("a.txt"), step("b.txt")];
        (place, overlays, layers, steps)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// An editor saves one of the files after it was looked at: the other is put back as it was.
    #[test]
    fn a_file_that_is_saved_meanwhile_undoes_the_rest() {
        let (place, overlays, layers, steps) = ground();
        let project = place.path().join("project");
        let save = || {
            fs::write(project.join("new"), "saved meanwhile\n").unwrap();
            fs::rename(project.join("new"), project.join("b.txt")).unwrap();
            Ok(())
        };
        let locks = [(0, PathBuf::from("index.lock"))];
        let stopped = carry_out(&overlays, &layers, &locks, &steps, &save).err().unwrap();
        assert_eq!((stopped.path.as_path(), stopped.why), (Path::new("b.txt"), RefusedBecause::ChangedSince));
        assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "the user's\n");
        assert_eq!(fs::read_to_string(project.join("b.txt")).unwrap(), "saved meanwhile\n");
        assert_eq!(names(&project), ["a.txt", "b.txt"]);
        assert_eq!(
            names(&place.path().join("layers/upper")),
            ["a.txt", "b.txt"],
            "nothing of the agent's is lost"
        );
        assert!(!place.path().join("layers").join(JOURNAL).exists());
    }

    /// What was made of both versions is undone like the rest, and the user's version is not taken for unchanged afterwards.
    #[test]
    fn a_merged_file_is_undone_as_one_that_the_user_changed() {
        let (place, overlays, layers, mut steps) = ground();
        let project = place.path().join("project");
        let before = layers[0].lower.status(Path::new("a.txt")).unwrap().unwrap();
        let merged = Merged { content: b"both\n".to_vec(), mode: 0o640 };
        steps[0] = Step { act: Act::Merge { before, merged }, ..steps[0].clone() };
        let save = || {
            fs::write(project.join("new"), "saved meanwhile\n").unwrap();
            fs::rename(project.join("new"), project.join("b.txt")).unwrap();
            Ok(())
        };
        assert!(carry_out(&overlays, &layers, &[], &steps, &save).is_err());
        assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "the user's\n");
        assert!(!place.path().join("layers/restored").exists());
        assert_eq!(names(&project), ["a.txt", "b.txt"]);

        let before = layers[0].lower.status(Path::new("b.txt")).unwrap();
        steps[1] = Step { act: Act::Place { before }, ..steps[1].clone() };
        assert!(carry_out(&overlays, &layers, &[], &steps, &|| Ok(())).is_ok());
        assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "both\n");
        assert_eq!(layers[0].lower.status(Path::new("a.txt")).unwrap().unwrap().mode, 0o640);
        assert_eq!(names(&place.path().join("layers/upper")), Vec::<String>::new());
    }

    /// While a group is written, git can neither commit nor stage anything, and says so.
    #[test]
    fn git_waits_for_a_group() {
        belljar_testkit::require!(Git);
        let (place, overlays, layers, steps) = ground();
        let project = place.path().join("project");
        let git = |words: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.args(["-c", "user.name=U", "-c", "user.email=u@x"]).args(words).current_dir(&project);
            command
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .output()
                .unwrap()
        };
        assert!(git(&["init", "-q"]).status.success() && git(&["add", "."]).status.success());
        let busy = || {
            let refused = git(&["commit", "-qm", "meanwhile"]);
            assert!(!refused.status.success());
            assert!(String::from_utf8_lossy(&refused.stderr).contains("index.lock"), "{refused:?}");
            Ok(())
        };
        let locks = [".git/index.lock", ".git/HEAD.lock"].map(|path| (0, PathBuf::from(path)));
        assert!(carry_out(&overlays, &layers, &locks, &steps, &busy).is_ok());
        assert_eq!(fs::read_to_string(project.join("b.txt")).unwrap(), "the agent's\n");
        assert!(git(&["commit", "-qm", "after"]).status.success(), "the locks are gone");
        assert_eq!(names(&place.path().join("layers/upper")), Vec::<String>::new());
    }
}
