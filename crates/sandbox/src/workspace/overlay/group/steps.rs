//! The steps in which a group is written, and the locks that are held meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use belljar_class::EntryKind;
use belljar_sys::beneath::{InodeKind, Status};

use super::{Group, Member};
use crate::workspace::overlay::changes::ChangeKind;
use crate::workspace::overlay::kept::Found;
use crate::workspace::overlay::transaction::{Act, Step};

impl Group<'_> {
    /// The locks that git takes for what is going to be written.
    pub(super) fn locks(&self, members: &[Member], refs: &[Step]) -> Vec<(usize, PathBuf)> {
        let mut paths: Vec<(usize, PathBuf)> = Vec::new();
        for Found { repository, states, .. } in self.opened.with(self.at) {
            for tree in &states.trees {
                let own = repository.git.join(&tree.own);
                // Of other work trees only what changes is locked.
                let is_own = tree.own == repository.own;
                let changes = |path: &PathBuf| members.iter().any(|member| member.change.path == *path);
                let names = ["index", "HEAD"].map(|name| own.join(name));
                let names = names.into_iter().filter(|path| is_own || changes(path));
                paths.extend(names.map(|path| (repository.tree, path)));
            }
            for Member { tree, change, .. } in members.iter().filter(|member| member.tree == repository.tree)
            {
                let Some(below) = repository.below(*tree, &change.path) else { continue };
                let is_name = below.starts_with("refs")
                    || below == Path::new("packed-refs")
                    || below.ends_with("reftable/tables.list");
                if is_name && change.entry != EntryKind::Directory {
                    paths.push((*tree, change.path.clone()));
                }
            }
        }
        let is_file = |step: &&Step| !matches!(step.act, Act::MakeDirectory | Act::RemoveDirectory);
        paths.extend(refs.iter().filter(is_file).map(|step| (step.tree, step.path.clone())));
        paths.sort();
        paths.dedup();
        paths.into_iter().map(|(tree, path)| lock(tree, &path)).collect()
    }

    /// The steps of a group, in order: what goes, directories, files, and the names of git last.
    pub(super) fn steps(&self, members: &[Member], refs: Vec<Step>) -> Vec<Step> {
        let (mut gone, mut made, mut placed) = (Vec::new(), Vec::new(), Vec::new());
        for member in members {
            step_of(member, (&mut gone, &mut made, &mut placed));
        }
        for step in refs {
            match &step.act {
                Act::Delete { .. } | Act::RemoveDirectory => gone.push(step),
                Act::MakeDirectory => made.push(step),
                Act::Place { .. } | Act::Merge { .. } | Act::Write { .. } => placed.push(step),
            }
        }
        self.make_parents(&placed, &mut made);
        gone.sort_by(|one, other| other.path.cmp(&one.path));
        made.sort_by(|one, other| one.path.cmp(&other.path));
        made.dedup_by(|one, other| (one.tree, &one.path) == (other.tree, &other.path));
        placed.sort_by_key(|step| self.rank(step));
        gone.into_iter().chain(made).chain(placed).collect()
    }

    /// Adds the directories that files need and the project has not, or not any more.
    fn make_parents(&self, placed: &[Step], made: &mut Vec<Step>) {
        let mut known: BTreeSet<(usize, PathBuf)> =
            made.iter().map(|step| (step.tree, step.path.clone())).collect();
        for Step { tree, path, .. } in placed {
            for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                let now = self.opened.layers[*tree].lower.status(above);
                let is_there = matches!(now, Ok(Some(now)) if now.kind == InodeKind::Directory || now.kind == InodeKind::Symlink);
                if is_there || !known.insert((*tree, above.to_owned())) {
                    break;
                }
                let path = above.to_owned();
                made.push(Step { tree: *tree, path, act: Act::MakeDirectory, forced: false });
            }
        }
    }

    fn rank(&self, step: &Step) -> u8 {
        let rank = |Found { repository, states, .. }: &Found| {
            let below = repository.below(step.tree, &step.path)?;
            let is = |name: &str| states.trees.iter().any(|tree| below == tree.own.join(name));
            Some(match below {
                _ if is("HEAD") => 4,
                below if below.starts_with("refs") || below.ends_with("reftable/tables.list") => 3,
                _ if is("index") => 2,
                _ => 1,
            })
        };
        self.opened.with(self.at).filter_map(rank).max().unwrap_or(0)
    }
}

/// The lock that git takes for the file of a step.
pub(super) fn lock_of(step: &Step) -> (usize, PathBuf) {
    lock(step.tree, &step.path)
}

fn lock(tree: usize, path: &Path) -> (usize, PathBuf) {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    (tree, PathBuf::from(name))
}

/// Adds the steps of a member to those that remove, make directories, and put files in their places.
fn step_of(member: &Member, (gone, made, placed): (&mut Vec<Step>, &mut Vec<Step>, &mut Vec<Step>)) {
    let is_directory =
        |status: &Option<Status>| status.is_some_and(|status| status.kind == InodeKind::Directory);
    let Member { tree, change, before, forced, merged, along: _ } = member;
    let step = |act: Act| Step { tree: *tree, path: change.path.clone(), act, forced: *forced };
    if let (Some(merged), Some(before)) = (merged, before) {
        placed.push(step(Act::Merge { before: *before, merged: merged.clone() }));
        return;
    }
    let now_directory = change.entry == EntryKind::Directory;
    match (change.kind, before) {
        (ChangeKind::Deleted, Some(_)) if is_directory(before) => gone.push(step(Act::RemoveDirectory)),
        (ChangeKind::Deleted, Some(before)) => gone.push(step(Act::Delete { before: *before })),
        (ChangeKind::Deleted, None) => {}
        (_, Some(old)) if now_directory && old.kind != InodeKind::Directory => {
            gone.push(step(Act::Delete { before: *old }));
            made.push(step(Act::MakeDirectory));
        }
        (_, None) if now_directory => made.push(step(Act::MakeDirectory)),
        // Only its permissions are others; they are of no use to git.
        (_, Some(_)) if now_directory => {}
        (_, Some(_)) if is_directory(before) => {
            gone.push(step(Act::RemoveDirectory));
            placed.push(step(Act::Place { before: None }));
        }
        (_, before) => placed.push(step(Act::Place { before: *before })),
    }
}
