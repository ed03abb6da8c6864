//! What git wrote, which is written together or not at all.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Kind, Status};

use super::apply::{
    Applied, ApplyMode, ApplyRequest, Consent, OnConflict, Refused, RefusedBecause, emptied, failed, removes,
};
use super::changes::{Change, ChangeKind};
use super::discard::{forget, forget_deletion};
use super::kept::{Kept, Opened, Sorted};
use super::layers::Layers;
use super::merging::{Merged, Merging};
use super::repository::States;
use super::starts::Bases;
use super::transaction::{self, Act, Step, Stopped};
use super::{LayersError, Overlay};
use crate::workspace::git::{self, Addition};
use crate::workspace::place::{Expected, PlaceError, Placing};
use crate::workspace::tree::Tree;
use belljar_class::{Class, EntryKind, classify_in};

/// A change of a group that may be written, and what is in its place.
struct Member {
    tree: usize,
    change: Change,
    before: Option<Status>,
    /// Whether the user changed it, too.
    forced: bool,
    /// What is written instead of the agent's version.
    merged: Option<Merged>,
}

impl Opened {
    /// The path of a file of git below its directory.
    fn of_git<'path>(&self, tree: usize, path: &'path Path) -> Option<&'path Path> {
        let place = self.place.as_ref().filter(|place| place.tree == tree)?;
        path.strip_prefix(&place.shared).ok()
    }

    fn is_reflog(&self, tree: usize, path: &Path) -> bool {
        let Some((below, place)) = self.of_git(tree, path).zip(self.place.as_ref()) else { return false };
        below.starts_with("logs") || below.starts_with(place.own.join("logs"))
    }

    /// Whether the ref of this reflog is still there, so that its lines are not the agent's to drop. The log of stashes is a
    /// list from which git itself drops.
    fn keeps_its_log(&self, path: &Path) -> bool {
        let Some((place, states)) = self.place.as_ref().zip(self.states.as_ref()) else { return false };
        let Ok(below) = path.strip_prefix(&place.shared) else { return false };
        let own = below.strip_prefix(place.own.join("logs"));
        let name = own.or_else(|_shared| below.strip_prefix("logs")).unwrap_or(below);
        name != Path::new("refs/stash") && states.after.values.contains_key(name.as_os_str().as_bytes())
    }

    /// Whether it holds refs, and all that they say is known.
    fn is_known_ref(&self, tree: usize, path: &Path) -> bool {
        let Some((below, place)) = self.of_git(tree, path).zip(self.place.as_ref()) else { return false };
        let is_ref =
            below.starts_with("refs") || below == Path::new("packed-refs") || below == place.own.join("HEAD");
        is_ref && self.states.as_ref().is_some_and(States::knows_refs)
    }
}

impl Kept {
    pub(super) fn apply_group(
        &self,
        opened: &Opened,
        request: &ApplyRequest<'_>,
        Sorted { group, objects, scratch }: Sorted,
        out: &mut Applied,
    ) -> Result<(), LayersError> {
        let bases = self.overlays.iter().map(Overlay::read_bases).collect::<Result<Vec<_>, _>>()?;
        let (mut members, mut refused) = (Vec::new(), self.unconsented(opened, request));
        let trees = self.overlays.iter().zip(opened.layers.iter().zip(&bases));
        let merging: Vec<Merging<'_>> =
            trees.map(|(overlay, (layers, bases))| Merging::new(overlay, layers, bases)).collect();
        refused.extend(self.moved(opened, request));
        refused.extend(self.elsewhere(opened, &group));
        for (tree, change) in group {
            match self.member(opened, (&bases[tree], &merging[tree]), request, tree, &change) {
                Ok((before, merged)) => {
                    let forced = before.is_some_and(|now| bases[tree].changed(&change, &now));
                    members.push(Member { tree, change, before, forced, merged });
                }
                Err(why) => refused.push(Refused { path: self.outer(tree, &change.path), why }),
            }
        }
        let (replaced, stay): (Vec<Member>, Vec<Member>) =
            directories_that_stay(opened, &mut members, &out.applied)
                .into_iter()
                .partition(|member| member.change.kind == ChangeKind::TypeChanged);
        let stays = |member: &Member| Refused {
            path: self.outer(member.tree, &member.change.path),
            why: RefusedBecause::ChangedSince,
        };
        refused.extend(replaced.iter().map(stays));
        let sound = self.check_objects(opened, &objects, &mut refused);
        let locks = self.locks(opened, &members);
        if request.mode == ApplyMode::DryRun {
            let held = locks.iter().filter(|(tree, path)| {
                opened.layers[*tree].lower.status(path).is_ok_and(|found| found.is_some())
            });
            refused.extend(
                held.map(|(tree, path)| Refused {
                    path: self.outer(*tree, path),
                    why: RefusedBecause::Locked,
                }),
            );
        }
        let names: Vec<PathBuf> =
            members.iter().map(|member| self.outer(member.tree, &member.change.path)).collect();
        let merged: Vec<PathBuf> = members
            .iter()
            .filter(|member| member.merged.is_some() && !opened.is_reflog(member.tree, &member.change.path))
            .map(|member| self.outer(member.tree, &member.change.path))
            .collect();
        let held_back = |out: &mut Applied, refused: Vec<Refused>| {
            let files = names.len() + refused.len();
            out.refused.extend(refused);
            let path = opened.place.as_ref().map(|place| self.outer(place.tree, &place.shared));
            let why = RefusedBecause::HeldBack { files };
            out.refused.push(Refused { path: path.unwrap_or_default(), why });
        };
        if !refused.is_empty() {
            held_back(out, refused);
            return Ok(());
        }
        out.refused.extend(stay.iter().map(stays));
        if request.mode == ApplyMode::DryRun {
            out.applied.extend(names);
            out.merged.extend(merged);
            out.repository = true;
            return Ok(());
        }
        if let Err(refused) = self.write_objects(opened, &objects, &sound) {
            held_back(out, vec![refused]);
            return self.overlays.iter().try_for_each(Overlay::end_apply);
        }
        let steps = steps(opened, &members);
        for (tree, overlay) in self.overlays.iter().enumerate() {
            let own = steps.iter().filter(|step| step.tree == tree);
            let above = own.flat_map(|step| step.path.ancestors().skip(1).map(Path::to_owned));
            overlay.begin_apply(above.collect())?;
        }
        let check = || self.unchanged(opened);
        match transaction::carry_out(&self.overlays, &opened.layers, &locks, &steps, &check) {
            Ok(()) => {
                // Only now: until a ref leads to them, git may delete objects that it does not know.
                for (tree, change) in scratch.iter().chain(objects.iter().rev()) {
                    drop_change(&opened.layers[*tree], change);
                }
                let (stay, gone): (Vec<&Member>, Vec<&Member>) =
                    members.iter().partition(|member| is_still_there(opened, member));
                let outer = |member: &Member| self.outer(member.tree, &member.change.path);
                let why = RefusedBecause::ChangedSince;
                out.refused
                    .extend(stay.into_iter().map(|member| Refused { path: outer(member), why: why.clone() }));
                out.applied.extend(gone.into_iter().map(outer));
                out.merged.extend(merged);
                out.repository = true;
            }
            Err(Stopped { tree, path, why }) => {
                held_back(out, vec![Refused { path: self.outer(tree, &path), why }]);
                if transaction::is_interrupted(&self.overlays[0]) {
                    // Not all of it could be undone; the note tells where to look.
                    return Ok(());
                }
            }
        }
        self.overlays.iter().try_for_each(Overlay::end_apply)
    }

    /// Refs that the user moved as well, and that nobody said to write over; and commits of which something is missing.
    fn moved(&self, opened: &Opened, request: &ApplyRequest<'_>) -> Vec<Refused> {
        let (Some(place), Some(states)) = (&opened.place, &opened.states) else { return Vec::new() };
        let path = |name: &[u8]| {
            let name = Path::new(OsStr::from_bytes(name));
            let below = if name == Path::new("HEAD") { place.own.join(name) } else { name.to_owned() };
            self.outer(place.tree, &place.shared.join(below))
        };
        let moved = states.moved().map(|name| (path(name), name));
        let moved = moved.filter(|(path, _)| request.on_conflict_at(path) != OnConflict::Overwrite);
        let moved =
            moved.map(|(path, name)| Refused { path, why: RefusedBecause::Moved { name: name.clone() } });
        let missing = states.missing.clone().map(|missing| Refused {
            path: self.outer(place.tree, &place.shared.join("objects")),
            why: RefusedBecause::Incomplete { missing },
        });
        moved.chain(missing).collect()
    }

    /// An index, or files of commits, of a branch that the user has left: they would be changes to another one.
    fn elsewhere(&self, opened: &Opened, group: &[(usize, Change)]) -> Option<Refused> {
        let place = opened.place.as_ref()?;
        let head = opened.states.as_ref()?.left_behind()?.clone();
        let index = place.shared.join(&place.own).join("index");
        let is_of_head = |(tree, change): &(usize, Change)| {
            opened.of_git(*tree, &change.path).is_none() || *tree == place.tree && change.path == index
        };
        let path = self.outer(place.tree, &place.shared.join(&place.own).join("HEAD"));
        group.iter().any(is_of_head).then_some(Refused { path, why: RefusedBecause::Elsewhere { head } })
    }

    /// Refs, and the index, that would bring what this machine executes, and that nobody said yes to.
    fn unconsented(&self, opened: &Opened, request: &ApplyRequest<'_>) -> Vec<Refused> {
        let Some(states) = &opened.states else { return Vec::new() };
        let consent = &request.consent.to;
        let mut out = Vec::new();
        for change in states.changes.refs.iter().filter(|change| change.needs_consent()) {
            let path = PathBuf::from(OsStr::from_bytes(&change.name));
            if !consent.contains(&path) {
                let why =
                    RefusedBecause::Carries { paths: change.class.clone(), unread: change.unread.clone() };
                out.push(Refused { path, why });
            }
        }
        let asked = |path: &Path| consent.contains(path) || consent.contains(Path::new("index"));
        if let Some(why) = &states.changes.unread_refs
            && !consent.contains(Path::new("refs"))
        {
            let why = RefusedBecause::Carries { paths: Vec::new(), unread: Some(why.clone()) };
            out.push(Refused { path: PathBuf::from("refs"), why });
        }
        let unread = states.changes.unread_index.clone();
        let paths: Vec<_> =
            states.changes.staged_class.iter().filter(|one| !asked(&one.path)).cloned().collect();
        if !paths.is_empty() || unread.is_some() && !consent.contains(Path::new("index")) {
            let why = RefusedBecause::Carries { paths, unread };
            out.push(Refused { path: PathBuf::from("index"), why });
        }
        out
    }

    /// Whether a member may be written, what is in its place, and what was made of both where the user changed it.
    ///
    /// Refs and index do not merge, so a change of the user's to a file that a commit names is one to the work tree alone. It
    /// stays that, on top of the agent's commit, as after `git pull --autostash`: the index has the agent's blob.
    fn member(
        &self,
        opened: &Opened,
        (bases, merging): (&Bases, &Merging<'_>),
        request: &ApplyRequest<'_>,
        tree: usize,
        change: &Change,
    ) -> Result<(Option<Status>, Option<Merged>), RefusedBecause> {
        let consent = self.own_consent(tree, request.consent);
        if matches!(change.class, Class::Special { .. }) {
            return Err(RefusedBecause::Special);
        }
        if !consent.covers(change) {
            return Err(RefusedBecause::NeedsConsent { class: change.class.clone() });
        }
        let layers = &opened.layers[tree];
        if let EntryKind::Symlink(_) = change.entry {
            self.still_inside(layers, change, &consent)?;
        }
        let before = layers.lower.status(&change.path).map_err(failed)?;
        if let Some(now) = before.filter(|now| now.kind == Kind::File)
            && opened.is_reflog(tree, &change.path)
            && (bases.changed(change, &now) || opened.keeps_its_log(&change.path))
        {
            return Ok((before, Some(joined(layers, change, &now)?)));
        }
        let on_conflict = request.on_conflict_at(&self.outer(tree, &change.path));
        let now = match (on_conflict, before) {
            (OnConflict::Overwrite, before) => return Ok((before, None)),
            // Refs are compared by what they say, wherever git keeps them.
            (OnConflict::Merge | OnConflict::Markers, before) if opened.is_known_ref(tree, &change.path) => {
                return Ok((before, None));
            }
            (OnConflict::Merge | OnConflict::Markers, None) => {
                let deleted = merging.is_deleted(change) && !self.means_the_same(opened, tree, &change.path);
                return if deleted { Err(RefusedBecause::ChangedSince) } else { Ok((None, None)) };
            }
            (OnConflict::Merge | OnConflict::Markers, Some(now)) => now,
        };
        let moved = bases.moved(&layers.lower, change).map_err(failed)?;
        let as_wanted = !moved && !bases.changed(change, &now)
            || self.means_the_same(opened, tree, &change.path)
            || is_what_is_wanted(layers, change);
        if moved && !as_wanted {
            return Err(RefusedBecause::ChangedSince);
        }
        let merged = if as_wanted { None } else { Some(merging.merge(change, &now, on_conflict)?) };
        Ok((before, merged))
    }

    /// A link may lead out by what is in the project alone.
    fn still_inside(
        &self,
        layers: &Layers,
        change: &Change,
        consent: &Consent,
    ) -> Result<(), RefusedBecause> {
        let root = layers.lower.root().directory(Path::new("")).map_err(failed)?;
        match classify_in(&change.path, &change.entry, &Tree::new(root)) {
            class @ Class::EscapingSymlink { .. } if !consent.to.contains(&change.path) => {
                Err(RefusedBecause::NeedsConsent { class })
            }
            Class::EscapingSymlink { .. }
            | Class::Ordinary
            | Class::HostExecuted { .. }
            | Class::Special { .. } => Ok(()),
        }
    }

    /// Whether a file of git that was written anew still says what it said when the run began.
    fn means_the_same(&self, opened: &Opened, tree: usize, path: &Path) -> bool {
        let (Some(place), Some(states)) = (&opened.place, &opened.states) else { return false };
        let Some(below) = path.strip_prefix(&place.shared).ok().filter(|_| place.tree == tree) else {
            return false;
        };
        let Some((base, base_index)) = &states.base else { return false };
        let now = &states.now;
        let same =
            |name: &[u8]| base.values.contains_key(name) && base.values.get(name) == now.values.get(name);
        if below == place.own.join("index") {
            return base_index.is_ok() && *base_index == states.now_index;
        }
        if below == place.own.join("HEAD") {
            return same(b"HEAD");
        }
        if below == Path::new("packed-refs") {
            return base.unread.is_none() && now.unread.is_none() && base.values == now.values;
        }
        below.starts_with("refs") && same(below.as_os_str().as_bytes())
    }

    /// Whether the names and the index are still those that were looked at.
    fn unchanged(&self, opened: &Opened) -> Result<(), Stopped> {
        let (Some(place), Some(states)) = (&opened.place, &opened.states) else { return Ok(()) };
        let layers = &opened.layers[place.tree];
        let stopped = |path: &str| Stopped {
            tree: place.tree,
            path: place.shared.join(path),
            why: RefusedBecause::ChangedSince,
        };
        let lower = layers.lower.root().directory(&place.shared);
        let lower = lower.map_err(|cause| Stopped { why: failed(cause), ..stopped("") })?;
        let files = git::PlainFiles(&lower);
        if git::Refs::read(&files, &place.own) != states.now {
            return Err(stopped("refs"));
        }
        if git::staged(&files, &place.own, states.hash) != states.now_index {
            return Err(stopped("index"));
        }
        Ok(())
    }

    /// What of the additions to the objects is sound.
    fn check_objects(
        &self,
        opened: &Opened,
        objects: &[(usize, Change)],
        refused: &mut Vec<Refused>,
    ) -> Vec<Addition> {
        let (Some(place), Some(states)) = (&opened.place, &opened.states) else { return Vec::new() };
        let top = place.shared.join("objects");
        let upper = opened.layers[place.tree].upper.root().directory(&top).ok();
        let mut packs: HashMap<PathBuf, Addition> = HashMap::new();
        let left_for_loose = Cell::new(git::MOST_PACKED);
        let mut out = Vec::new();
        for (tree, change) in objects {
            let below = change.path.strip_prefix(&top).unwrap_or(Path::new(""));
            let is_file = matches!(change.entry, EntryKind::File);
            let addition = match (&upper, change.kind) {
                (Some(upper), ChangeKind::Added) if is_file => {
                    let check = || git::addition(upper, below, states.hash, &left_for_loose);
                    // An index and its pack are one, and are looked through once.
                    match below.extension().map(OsStrExt::as_bytes) {
                        Some(b"pack" | b"idx") => {
                            *packs.entry(below.with_extension("")).or_insert_with(check)
                        }
                        Some(_) => Addition::Derived,
                        None => check(),
                    }
                }
                (_, _) => Addition::Derived,
            };
            if addition == Addition::Unsound {
                let path = self.outer(*tree, &change.path);
                refused.push(Refused { path, why: RefusedBecause::Unsound });
            }
            out.push(addition);
        }
        out
    }

    /// Adds objects. One that the project has is left alone; nothing is deleted, because the user's own commits may need it.
    fn write_objects(
        &self,
        opened: &Opened,
        objects: &[(usize, Change)],
        sound: &[Addition],
    ) -> Result<(), Refused> {
        let Some(place) = &opened.place else { return Ok(()) };
        let layers = &opened.layers[place.tree];
        let overlay = &self.overlays[place.tree];
        let above = |change: &Change| change.path.parent().map(Path::to_owned).unwrap_or_default();
        let fault = |path: &Path, cause| Refused { path: self.outer(place.tree, path), why: failed(cause) };
        let noted = overlay.begin_apply(objects.iter().map(|(_, change)| above(change)).collect());
        noted.map_err(|_error| fault(&place.shared, Errno::IO))?;
        // An index is written after its pack, so that git never finds it alone.
        let last = |change: &Change| change.path.extension() == Some(OsStr::new("idx"));
        let (indexes, others): (Vec<_>, Vec<_>) =
            objects.iter().zip(sound).partition(|((_, change), _)| last(change));
        for ((_, change), addition) in others.into_iter().chain(indexes) {
            let path = &change.path;
            if *addition == Addition::Sound {
                let (upper, name) = layers.upper.parent(path).map_err(|cause| fault(path, cause))?;
                let like = upper.status(name).map_err(|cause| fault(path, cause))?;
                let file = upper.file(name).map_err(|cause| fault(path, cause))?;
                let parent = path.parent().unwrap_or(Path::new(""));
                make_directories(layers, parent).map_err(|cause| fault(parent, cause))?;
                let (lower, name) = layers.lower.parent(path).map_err(|cause| fault(path, cause))?;
                match Placing::new(lower, name).file(&file, &like, &Expected::Nothing) {
                    Ok(()) | Err(PlaceError::NotAsExpected) => {}
                    Err(PlaceError::Refused(cause)) => return Err(fault(path, cause)),
                }
                // git deletes objects that are old and that no ref leads to, as it is with these until the refs are written.
                // Of those that it has, another user's cannot be touched, and need not: they were there before.
                let (lower, name) = layers.lower.parent(path).map_err(|cause| fault(path, cause))?;
                lower.set_modified(name, None).ok();
            }
        }
        // On the disk before the layer loses them.
        layers.lower.root().sync_file_system().map_err(|cause| fault(&place.shared, cause))?;
        Ok(())
    }

    /// The locks that git takes for what is going to be written.
    fn locks(&self, opened: &Opened, members: &[Member]) -> Vec<(usize, PathBuf)> {
        let Some(place) = &opened.place else { return Vec::new() };
        let own = place.shared.join(&place.own);
        let mut paths = vec![own.join("index"), own.join("HEAD")];
        for Member { tree, change, .. } in members.iter().filter(|member| member.tree == place.tree) {
            let Ok(below) = change.path.strip_prefix(&place.shared) else { continue };
            let is_name = below.starts_with("refs")
                || below == Path::new("packed-refs")
                || below.ends_with("reftable/tables.list");
            if *tree == place.tree && is_name && change.entry != EntryKind::Directory {
                paths.push(change.path.clone());
            }
        }
        let lock = |path: PathBuf| {
            let mut name = path.into_os_string();
            name.push(".lock");
            (place.tree, PathBuf::from(name))
        };
        paths.into_iter().map(lock).collect()
    }
}

/// More than a reflog grows to.
const LARGEST_LOG: u64 = 64 << 20;

/// The user's reflog with the agent's new lines at its end: nothing that the user did is dropped from it.
fn joined(layers: &Layers, change: &Change, now: &Status) -> Result<Merged, RefusedBecause> {
    let read = |tree: &Tree| git::read_in(tree.root(), &change.path, LARGEST_LOG).map_err(failed);
    let mut content = read(&layers.lower)?.ok_or(RefusedBecause::ChangedSince)?;
    if change.kind != ChangeKind::Deleted {
        let theirs = read(&layers.upper)?.ok_or(RefusedBecause::ChangedSince)?;
        let lines: Vec<&[u8]> = theirs.split_inclusive(|byte| *byte == b'\n').collect();
        let known: HashSet<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        // git may have dropped old lines on either side, so that the beginnings need not be the same.
        let first = lines.iter().rposition(|line| known.contains(line)).map_or(0, |last| last + 1);
        let new = lines[first..].concat();
        content.extend(new);
    }
    Ok(Merged { content, mode: now.mode })
}

/// Whether the project already has what the layer has.
fn is_what_is_wanted(layers: &Layers, change: &Change) -> bool {
    let read = |tree: &Tree| {
        let (parent, name) = tree.parent(&change.path).ok()?;
        (parent.status(name).ok()?.kind == Kind::File).then_some(())?;
        git::read_in(tree.root(), &change.path, 16 << 20).ok()?
    };
    change.kind == ChangeKind::Modified
        && read(&layers.lower).is_some_and(|now| Some(now) == read(&layers.upper))
}

fn make_directories(layers: &Layers, path: &Path) -> Result<(), Errno> {
    let mut at = PathBuf::new();
    for name in path.iter() {
        let above = layers.lower.root().passage(&at)?;
        at.push(name);
        match above.make_directory(name, 0o777 & !0o022) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Takes a change out of the layer that is not going to be written.
fn drop_change(layers: &Layers, change: &Change) {
    // What stays is shown again.
    match change.kind {
        ChangeKind::Deleted => forget_deletion(layers, &change.path).ok(),
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => {
            forget(layers, &change.path).ok()
        }
    };
}

/// Takes those directories out of a group that are to go, or to become something else, and hold what does not go.
fn directories_that_stay(opened: &Opened, members: &mut Vec<Member>, applied: &[PathBuf]) -> Vec<Member> {
    let goes = |member: &Member| removes(member.change.kind);
    let mut going: Vec<BTreeSet<PathBuf>> = vec![BTreeSet::new(); opened.layers.len()];
    // What is in no commit is written first, and is still there in a dry run.
    going[0].extend(applied.iter().cloned());
    for member in members.iter().filter(|member| goes(member)) {
        going[member.tree].insert(member.change.path.clone());
    }
    // What is in a directory comes before it.
    members.sort_by(|one, other| other.change.path.cmp(&one.change.path));
    let stay = members.extract_if(.., |member| {
        let Member { tree, change, before, .. } = member;
        let before = before.as_ref().filter(|_| removes(change.kind));
        // What cannot be read is not known to be empty.
        let stays = !emptied(&opened.layers[*tree], &change.path, before, &going[*tree]).unwrap_or(false);
        if stays {
            going[*tree].remove(&change.path);
        }
        stays
    });
    let stay = stay.collect();
    members.reverse();
    stay
}

/// Whether a directory that was to go holds something of the user's.
fn is_still_there(opened: &Opened, Member { tree, change, .. }: &Member) -> bool {
    let now = || opened.layers[*tree].lower.status(&change.path).ok().flatten();
    change.kind == ChangeKind::Deleted && now().is_some_and(|now| now.kind == Kind::Directory)
}

/// The steps of a group, in order: what goes, directories, files, and the names of git last.
fn steps(opened: &Opened, members: &[Member]) -> Vec<Step> {
    let is_directory = |status: &Option<Status>| status.is_some_and(|status| status.kind == Kind::Directory);
    let step = |member: &Member, act: Act| Step {
        tree: member.tree,
        path: member.change.path.clone(),
        act,
        forced: member.forced,
    };
    let (mut gone, mut made, mut placed) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let Member { change, before, tree: _, forced: _, merged } = member;
        if let (Some(merged), Some(before)) = (merged, before) {
            placed.push(step(member, Act::Merge { before: *before, merged: merged.clone() }));
            continue;
        }
        let now_directory = change.entry == EntryKind::Directory;
        match (change.kind, before) {
            (ChangeKind::Deleted, Some(_)) if is_directory(before) => {
                gone.push(step(member, Act::RemoveDirectory));
            }
            (ChangeKind::Deleted, Some(before)) => gone.push(step(member, Act::Delete { before: *before })),
            (ChangeKind::Deleted, None) => {}
            (_, Some(old)) if now_directory && old.kind != Kind::Directory => {
                gone.push(step(member, Act::Delete { before: *old }));
                made.push(step(member, Act::MakeDirectory));
            }
            (_, None) if now_directory => {
                made.push(step(member, Act::MakeDirectory));
            }
            // Only its permissions are others; they are of no use to git.
            (_, Some(_)) if now_directory => {}
            (_, Some(_)) if is_directory(before) => {
                gone.push(step(member, Act::RemoveDirectory));
                placed.push(step(member, Act::Place { before: None }));
            }
            (_, before) => placed.push(step(member, Act::Place { before: *before })),
        }
    }
    gone.sort_by(|one, other| other.path.cmp(&one.path));
    made.sort_by(|one, other| one.path.cmp(&other.path));
    let rank = |step: &Step| {
        let Some(place) = opened.place.as_ref().filter(|place| place.tree == step.tree) else { return 0 };
        let Ok(below) = step.path.strip_prefix(&place.shared) else { return 0 };
        match below {
            below if below == place.own.join("HEAD") => 4,
            below if below.starts_with("refs") || below.ends_with("reftable/tables.list") => 3,
            below if below == place.own.join("index") => 2,
            _ => 1,
        }
    };
    placed.sort_by_key(rank);
    gone.into_iter().chain(made).chain(placed).collect()
}
