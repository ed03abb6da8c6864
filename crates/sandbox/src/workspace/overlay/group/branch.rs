//! The agent's commits as a new branch, beside those of the user: no other ref, no index and no file is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::EntryKind;

use super::Group;
use super::refs::Writing;
use crate::workspace::git::{self, ObjectId, RefValue};
use crate::workspace::overlay::apply::{
    ApplyConsent, ApplyMode, ApplyRequest, ChangeSelection, OnConflict, RefusedBecause, RefusedChange, failed,
};
use crate::workspace::overlay::changes::{Change, ChangeKind};
use crate::workspace::overlay::discard::uncover;
use crate::workspace::overlay::kept::{Found, Kept, Opened, Part, drop_ref};
use crate::workspace::overlay::repositories::{LARGEST_LOG, Presence, TreeState, objects};
use crate::workspace::overlay::transaction::{self, Act, Step, Stopped};
use crate::workspace::overlay::{LayersError, Overlay};

/// Files of the work tree that are compared with a commit are not larger.
const LARGEST_FILE: u64 = 64 << 20;
const BRANCHES: &[u8] = b"refs/heads/";

/// A request to make a branch of the agent's commits.
#[derive(Debug, Clone)]
pub struct BranchRequest<'request> {
    /// The name of the branch, without `refs/heads/`.
    pub name: &'request [u8],
    /// The repository, by its path; `None` for the one in which both sides moved a ref, or the project's own.
    pub repository: Option<&'request Path>,
    /// The ref whose commits are meant; `None` for the one that both sides moved, or what the agent had checked out.
    pub of: Option<&'request [u8]>,
    /// What was said yes to.
    pub consent: &'request ApplyConsent,
    /// Whether anything is written.
    pub mode: ApplyMode,
}

/// The outcome of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Branched {
    /// The branch is there, or would be.
    Made(NewBranch),
    /// The branch was not made, for these reasons.
    Refused(Vec<RefusedChange>),
    /// There are several refs that could be meant, by how they are named on the command line.
    Several(Vec<PathBuf>),
    /// There are no new commits.
    NoCommits,
    /// A ref of this name, or one that excludes it, is there already.
    Taken(Vec<u8>),
}

/// A branch that holds the agent's commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBranch {
    /// The path of its repository; empty for the project's own.
    pub repository: PathBuf,
    /// The ref that led to the commits.
    pub of: Vec<u8>,
    /// The commit of the branch.
    pub commit: ObjectId,
    /// How many commits are new.
    pub count: usize,
    /// Files that are no longer kept, because the branch has them.
    pub files: Vec<PathBuf>,
}

impl Kept {
    /// Makes a branch of the agent's commits. The ref that led to them, and the index and files that they hold, are not kept
    /// any more; what is in no commit is.
    ///
    /// # Errors
    /// When a layer cannot be opened or written.
    pub fn make_branch(&self, request: &BranchRequest<'_>) -> Result<Branched, LayersError> {
        let opened = self.open()?;
        let (at, of) = match self.meant(&opened, request) {
            Ok(meant) => meant,
            Err(other) => return Ok(other),
        };
        let bases = self.overlays.iter().map(Overlay::read_bases).collect::<Result<Vec<_>, _>>()?;
        let own = ApplyRequest {
            selection: &ChangeSelection::All,
            consent: request.consent,
            on_conflict: OnConflict::Merge,
            mode: request.mode,
        };
        Group { kept: self, opened: &opened, request: &own, at, bases }.make_branch(request, &of)
    }

    /// The repository and the ref that are meant.
    fn meant(&self, opened: &Opened, request: &BranchRequest<'_>) -> Result<(usize, Vec<u8>), Branched> {
        let all = opened.repositories.iter().enumerate();
        let is_asked = |(_, found): &(usize, &Found)| match request.repository {
            Some(path) => self.path_of(found) == path,
            None => true,
        };
        let all: Vec<(usize, &Found)> = all.filter(is_asked).collect();
        let named = |found: &Found, name: &[u8]| self.label_of(found).join(OsStr::from_bytes(name));
        if let Some(of) = request.of {
            let main =
                |(_, found): &&(usize, &Found)| request.repository.is_some() || found.repository.is_main;
            let found = all.iter().find(main).ok_or(Branched::NoCommits)?;
            return Ok((found.0, of.to_vec()));
        }
        let moved = |(at, found): &(usize, &Found)| {
            let names = found.states.moved().into_iter();
            let names = names.filter(|name| found.states.after.resolve(name).is_some());
            names.map(|name| (*at, name.clone())).collect::<Vec<_>>()
        };
        let moved: Vec<(usize, Vec<u8>)> = all.iter().flat_map(moved).collect();
        match moved.as_slice() {
            [one] => return Ok(one.clone()),
            [] => {}
            several => {
                let name = |(at, name): &(usize, Vec<u8>)| named(&opened.repositories[*at], name);
                return Err(Branched::Several(several.iter().map(name).collect()));
            }
        }
        let own = all.iter().find(|(_, found)| request.repository.is_some() || found.repository.is_main);
        let (at, found) = own.ok_or(Branched::NoCommits)?;
        Ok((*at, found.repository.head_of(&found.repository.own)))
    }
}

impl Group<'_> {
    fn make_branch(&self, request: &BranchRequest<'_>, of: &[u8]) -> Result<Branched, LayersError> {
        let Found { repository, states, .. } = self.found();
        // A HEAD stands for the branch that it leads to.
        let of = match states.after.values.get(of) {
            Some(RefValue::Symbolic(branch)) => branch.clone(),
            Some(RefValue::Object(_)) | None => of.to_vec(),
        };
        let change = states.changes.refs.iter().find(|change| change.name == of && change.count > 0);
        let objects = objects(self.layers(), &repository.git, states.hash);
        let commit = states.after.resolve(&of).and_then(|id| git::commit_of(&objects, &id));
        let (Some(change), Some(commit), Presence::Both) = (change, commit, repository.presence) else {
            return Ok(Branched::NoCommits);
        };
        let name = [BRANCHES, request.name].concat();
        if let Some(other) = self.taken(&name, &of, commit) {
            return Ok(Branched::Taken(other));
        }
        let trees: Vec<&TreeState> = states.trees.iter().filter(|tree| self.is_on(tree, &of)).collect();
        let held = git::files_of(&objects, &commit);
        let files = held.as_ref().map(|held| self.held_files(&trees, held)).unwrap_or_default();
        let mut refused = self.unfit(&of, &trees, held.as_ref());
        let sorted: Vec<(usize, Change)> = self.changes_of(Part::Object);
        let sound = self.check_objects(&sorted, &mut refused);
        let steps = self.branch_steps(&name, &of, commit).unwrap_or_else(|why| {
            refused.push(RefusedChange { path: self.path_of_ref(self.found(), &name), why });
            Vec::new()
        });
        if !refused.is_empty() {
            return Ok(Branched::Refused(refused));
        }
        let outer = |path: &PathBuf| self.kept.outer(0, path);
        let made = NewBranch {
            repository: self.kept.path_of(self.found()),
            of: of.clone(),
            commit,
            count: change.count,
            files: files.iter().map(outer).collect(),
        };
        if request.mode == ApplyMode::DryRun {
            return Ok(Branched::Made(made));
        }
        if let Err(refused) = self.write_branch(&sorted, &sound, &steps)? {
            return Ok(Branched::Refused(vec![refused]));
        }
        self.drop_branched(&of, &trees, files)?;
        self.kept.drop_rest(self.at_path())?;
        Ok(Branched::Made(made))
    }

    fn at_path(&self) -> (usize, PathBuf) {
        let repository = &self.found().repository;
        (repository.tree, repository.git.clone())
    }

    /// A ref that is in the way of the branch. One that an interrupted call has made is not.
    fn taken(&self, name: &[u8], of: &[u8], commit: ObjectId) -> Option<Vec<u8>> {
        let states = &self.found().states;
        if states.now.values.get(name) == Some(&RefValue::Object(commit)) {
            return None;
        }
        let own = [name, b"/"].concat();
        let excludes = |other: &&Vec<u8>| {
            let is_below = other.starts_with(&own) || name.starts_with(&[other.as_slice(), b"/"].concat());
            is_below || other.as_slice() == name && name != of
        };
        let all = states.now.values.keys().chain(states.after.values.keys());
        let is_users = states.now.values.contains_key(name).then(|| name.to_vec());
        is_users.or_else(|| all.into_iter().find(excludes).cloned())
    }

    /// Whether the agent had this ref checked out in a work tree.
    fn is_on(&self, tree: &TreeState, of: &[u8]) -> bool {
        let head = self.found().states.after.values.get(&tree.head);
        tree.head == of || head == Some(&RefValue::Symbolic(of.to_vec()))
    }

    /// Reasons not to make the branch: commits that do not fit, or changes that would be lost.
    fn unfit(
        &self,
        of: &[u8],
        trees: &[&TreeState],
        held: Option<&BTreeMap<PathBuf, (ObjectId, u32)>>,
    ) -> Vec<RefusedChange> {
        let found = self.found();
        let path = self.kept.label_of(found).join(OsStr::from_bytes(of));
        let mut out = Vec::new();
        let change = found.states.changes.refs.iter().find(|change| change.name == of);
        let asks = |change: &&git::RefChange| !change.class.is_empty() || change.unread.is_some();
        if let Some(change) = change.filter(asks).filter(|_| !self.request.consent.to.contains(&path)) {
            let (paths, unread) = (change.class.clone(), change.unread.clone());
            out.push(RefusedChange { path, why: RefusedBecause::Carries { paths, unread } });
        }
        if let Some(missing) = found.states.missing.clone() {
            let path = self.path_of_ref(found, b"objects");
            out.push(RefusedChange { path, why: RefusedBecause::Incomplete { missing } });
        }
        let staged = trees.iter().filter_map(|tree| Some((tree.top.as_ref()?, *tree)));
        for (top, tree) in staged {
            let only = self.staged_only(tree, top, held);
            out.extend(only.into_iter().map(|path| RefusedChange { path, why: RefusedBecause::StagedOnly }));
        }
        out
    }

    /// What the agent staged and neither the commits nor the files have.
    fn staged_only(
        &self,
        tree: &TreeState,
        top: &Path,
        held: Option<&BTreeMap<PathBuf, (ObjectId, u32)>>,
    ) -> Vec<PathBuf> {
        let Ok(staged) = &tree.after.staged else { return vec![top.join("index")] };
        let hash = self.found().states.hash;
        let mut out = Vec::new();
        for ((path, _side), (_mode, id)) in staged {
            let below = PathBuf::from(OsStr::from_bytes(path));
            let id = ObjectId::new(id);
            if held.is_some_and(|held| held.get(&below).map(|(id, _)| *id) == id) {
                continue;
            }
            let was = tree
                .now
                .staged
                .as_ref()
                .is_ok_and(|now| now.values().any(|(_, other)| ObjectId::new(other) == id));
            let file = self.opened.layers[0].read(&top.join(&below), LARGEST_FILE).ok().flatten();
            if !was && file.and_then(|content| git::blob_id(&content, hash)) != id {
                out.push(top.join(below));
            }
        }
        out
    }

    /// Files of the layer that are as the commit has them.
    fn held_files(&self, trees: &[&TreeState], held: &BTreeMap<PathBuf, (ObjectId, u32)>) -> Vec<PathBuf> {
        let hash = self.found().states.hash;
        let upper = &self.opened.layers[0].upper;
        let is_held = |change: &&Change| {
            if self.opened.home(0, change) != Some((self.at, Part::Tree)) {
                return false;
            }
            let top =
                trees.iter().filter_map(|tree| tree.top.as_ref()).find(|top| change.path.starts_with(top));
            let Some(below) = top.and_then(|top| change.path.strip_prefix(top).ok()) else { return false };
            let (
                Some((id, bits)),
                ChangeKind::Added | ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged,
            ) = (held.get(below), change.kind)
            else {
                return change.kind == ChangeKind::Deleted && !held.contains_key(below);
            };
            let content = match &change.entry {
                EntryKind::Symlink(target) if *bits == 0o120_000 => {
                    Some(target.as_os_str().as_bytes().to_vec())
                }
                EntryKind::File if is_executable(upper, &change.path) == Some(*bits == 0o100_755) => {
                    git::read_in(upper.root(), &change.path, LARGEST_FILE).ok().flatten()
                }
                EntryKind::File
                | EntryKind::SetIdFile
                | EntryKind::Directory
                | EntryKind::Symlink(_)
                | EntryKind::Special(_) => None,
            };
            content.and_then(|content| git::blob_id(&content, hash)) == Some(*id)
        };
        let held = self.opened.changes[0].changes.iter().filter(is_held);
        held.map(|change| change.path.clone()).collect()
    }

    fn changes_of(&self, part: Part) -> Vec<(usize, Change)> {
        let tree = self.found().repository.tree;
        let all = self.opened.changes[tree].changes.iter();
        let own = all.filter(|change| self.opened.home(tree, change) == Some((self.at, part)));
        own.map(|change| (tree, change.clone())).collect()
    }

    /// The branch, and the log of the ref that led to its commits.
    fn branch_steps(&self, name: &[u8], of: &[u8], commit: ObjectId) -> Result<Vec<Step>, RefusedBecause> {
        let (found, layers) = (self.found(), self.layers());
        let mut writing = Writing::new(layers, found).map_err(failed)?;
        if found.states.now.values.contains_key(name) {
            return Ok(Vec::new());
        }
        writing.add(name, Some(&RefValue::Object(commit)))?;
        let log = |name: &[u8]| found.repository.git.join("logs").join(OsStr::from_bytes(name));
        let text = layers.read(&log(of), LARGEST_LOG).ok().flatten().unwrap_or_default();
        let last = text.strip_suffix(b"\n").and_then(|text| text.rsplit(|byte| *byte == b'\n').next());
        let ends = last.and_then(|line| line.split(|byte| *byte == b' ').nth(1));
        // A log that ends with something else would make git name that.
        if ends == Some(commit.hex().as_bytes()) && layers.lower.status(&log(name)).map_err(failed)?.is_none()
        {
            writing.write(log(name), text);
        }
        writing.finish()
    }

    fn write_branch(
        &self,
        objects: &[(usize, Change)],
        sound: &[super::objects::Sound],
        steps: &[Step],
    ) -> Result<Result<(), RefusedChange>, LayersError> {
        let (kept, repository) = (self.kept, &self.found().repository);
        let written = self.write_objects(objects, sound).and_then(|()| {
            let steps = self.steps(&[], steps.to_vec());
            let above = steps.iter().flat_map(|step| step.path.ancestors().skip(1).map(Path::to_owned));
            let noted = kept.overlays[repository.tree].begin_apply(above.collect());
            let why =
                |_error| RefusedChange { path: repository.git.clone(), why: failed(belljar_sys::Errno::IO) };
            noted.map_err(why)?;
            let refs = steps.iter().filter(|step| matches!(step.act, Act::Write { .. } | Act::Merge { .. }));
            let locks = refs.filter(|step| step.path.starts_with(repository.git.join("refs")));
            let locks: Vec<(usize, PathBuf)> = locks.map(super::steps::lock_of).collect();
            let done =
                transaction::carry_out(&kept.overlays, &self.opened.layers, &locks, &steps, &|| Ok(()));
            done.map_err(|Stopped { tree, path, why }| RefusedChange { path: kept.outer(tree, &path), why })
        });
        if !transaction::is_interrupted(&kept.overlays[0]) {
            kept.overlays.iter().try_for_each(Overlay::end_apply)?;
        }
        Ok(written)
    }

    /// Takes out of the layer what the branch has, and what belongs to it.
    fn drop_branched(&self, of: &[u8], trees: &[&TreeState], files: Vec<PathBuf>) -> Result<(), LayersError> {
        let found = self.found();
        let (tree, git) = (found.repository.tree, &found.repository.git);
        let (overlay, layers) = (&self.kept.overlays[tree], self.layers());
        let mut of_git = BTreeSet::from([git.join("logs").join(OsStr::from_bytes(of))]);
        for own in trees {
            of_git.extend(["index", "logs/HEAD"].map(|name| git.join(&own.own).join(name)));
        }
        let heads = trees.iter().map(|tree| tree.head.as_slice());
        for name in heads.chain([of]) {
            // A ref that cannot be dropped stays kept, and is listed as such.
            drop_ref(overlay, layers, found, name)?.ok();
        }
        overlay.discard(&ChangeSelection::Paths(of_git))?;
        if !files.is_empty() {
            self.kept.overlays[0].discard(&ChangeSelection::Paths(files.into_iter().collect()))?;
        }
        Ok(())
    }
}

impl Kept {
    /// Drops objects and notes of git of a repository of which nothing else is kept.
    fn drop_rest(&self, (tree, git): (usize, PathBuf)) -> Result<(), LayersError> {
        self.overlays.iter().try_for_each(Overlay::prune)?;
        let opened = self.open()?;
        let is_it = |found: &Found| found.repository.tree == tree && found.repository.git == git;
        let Some(at) = opened.repositories.iter().position(is_it) else { return Ok(()) };
        let mut scratch = BTreeSet::new();
        for (tree, found) in opened.changes.iter().enumerate() {
            for change in &found.changes {
                match opened.home(tree, change) {
                    Some((of, Part::Object)) if of == at => {}
                    Some((of, Part::Scratch)) if of == at => _ = scratch.insert(change.path.clone()),
                    Some((of, Part::Ref | Part::Group))
                        if of == at && change.entry == EntryKind::Directory => {}
                    Some((of, Part::Ref | Part::Group | Part::Tree)) if of == at => return Ok(()),
                    Some(_) | None => {}
                }
            }
        }
        let refs = &opened.repositories[at].states;
        if !refs.changed_by_agent().is_empty() {
            return Ok(());
        }
        uncover(&self.overlays[tree], &opened.layers[tree], &git, &[Path::new("objects")])?;
        self.overlays[tree].discard(&ChangeSelection::Paths(scratch))?;
        self.overlays.iter().try_for_each(Overlay::prune)
    }
}

fn is_executable(tree: &crate::workspace::tree::Tree, path: &Path) -> Option<bool> {
    Some(tree.status(path).ok()??.mode & 0o100 != 0)
}
