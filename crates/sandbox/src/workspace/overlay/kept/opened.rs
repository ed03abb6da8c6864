//! The layers, opened and compared, and what each change belongs to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Kept;
use crate::workspace::overlay::changes::{Change, Changes, compare};
use crate::workspace::overlay::layers::Layers;
use crate::workspace::overlay::repositories::{Presence, Repository, States};
use crate::workspace::overlay::{LayersError, Overlay};
use belljar_class::Class;

/// Files that git needs only while a command runs.
const SCRATCH: [&str; 4] = ["COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD", "gc.log"];

/// A list of the refs that git makes for others to fetch.
const DERIVED: &str = "info/refs";

/// Where git keeps what it is in the middle of. A part of it is of no use, so what needs a yes there holds the rest back.
const OPERATIONS: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];

/// A repository with kept changes, and its states.
pub(in crate::workspace::overlay) struct Found {
    pub repository: Repository,
    pub states: States,
    /// The repository whose files those of this one are, where commits of that one hold them: they are written with it.
    pub tracked_by: Option<usize>,
}

/// The layers, opened and compared.
pub(in crate::workspace::overlay) struct Opened {
    pub layers: Vec<Layers>,
    pub changes: Vec<Changes>,
    /// The repositories that were changed, the deepest first and the project's own last.
    pub repositories: Vec<Found>,
}

/// What a change is to the repository that it goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace::overlay) enum Part {
    /// A file of git that is asked for by itself.
    Alone,
    /// An object, or something beside them.
    Object,
    /// A leftover of a finished git command, which is not applied.
    Scratch,
    /// A file of refs, which are written by name.
    Ref,
    /// Another file of git that goes with the rest.
    Group,
    /// A file of the work tree that commits or the index have.
    Tree,
}

impl Kept {
    pub(in crate::workspace::overlay) fn open(&self) -> Result<Opened, LayersError> {
        // A layer that no run has begun on yet is empty.
        self.overlays.iter().try_for_each(Overlay::make_directories)?;
        let layers = self.overlays.iter().map(Overlay::open).collect::<Result<Vec<_>, _>>()?;
        let changes: Vec<Changes> = layers.iter().map(compare).collect();
        let touched = Repository::touched(&self.overlays, &layers, &changes);
        let read = |repository: Repository| {
            let states = States::read(&repository, &self.overlays, &layers)?;
            Ok(Found { repository, states, tracked_by: None })
        };
        let repositories = touched.into_iter().map(read).collect::<Result<_, LayersError>>()?;
        let mut opened = Opened { layers, changes, repositories };
        opened.find_tracked();
        Ok(opened)
    }
}

impl Opened {
    /// The innermost repository whose git directory a path lies in.
    pub(in crate::workspace::overlay) fn of_git(&self, tree: usize, path: &Path) -> Option<usize> {
        let inside = |(at, found): (usize, &Found)| {
            found.repository.below(tree, path)?;
            Some((found.repository.git.iter().count(), at))
        };
        self.repositories.iter().enumerate().filter_map(inside).max().map(|(_, at)| at)
    }

    /// The innermost work tree whose commits or index have a file.
    fn claimed(&self, tree: usize, path: &Path) -> Option<usize> {
        let of = |(at, found): (usize, &Found)| {
            // Files of a new repository are files until it is there.
            let trees = found.states.trees.iter().filter(|_| found.repository.presence != Presence::New);
            let depth = trees.filter_map(|own| {
                let top = own.top.as_ref()?;
                let below = path.strip_prefix(top).ok()?;
                let known = own.checked_out.is_some() || !self.is_of_another(at, top, path);
                (known && own.claims(below)).then(|| top.iter().count())
            });
            depth.max().map(|depth| (depth, at))
        };
        let all = self.repositories.iter().enumerate().filter(|_| tree == 0);
        all.filter_map(of).max().map(|(_, at)| at)
    }

    /// Whether a path lies in another repository that lies deeper.
    fn is_of_another(&self, own: usize, top: &Path, path: &Path) -> bool {
        let deeper = |other: &Path| other != top && other.starts_with(top) && path.starts_with(other);
        let others = self.repositories.iter().enumerate().filter(|(at, _)| *at != own);
        others.into_iter().any(|(_, found)| {
            let tops = found.states.trees.iter().filter_map(|tree| tree.top.as_ref());
            tops.chain([&found.repository.git]).any(|other| deeper(other))
        })
    }

    /// Finds repositories that are files of another, such as a bare one that tests need.
    fn find_tracked(&mut self) {
        let mut tracked = Vec::new();
        for change in &self.changes[0].changes {
            let Some(inner) = self.of_git(0, &change.path) else { continue };
            if let Some(outer) = self.claimed(0, &change.path).filter(|outer| *outer != inner) {
                tracked.push((inner, outer));
            }
        }
        for (inner, outer) in tracked {
            self.repositories[inner].tracked_by = Some(outer);
        }
    }

    /// The repository that a change goes with, and what it is there.
    pub(in crate::workspace::overlay) fn home(&self, tree: usize, change: &Change) -> Option<(usize, Part)> {
        let Some(at) = self.of_git(tree, &change.path) else {
            return self.claimed(tree, &change.path).map(|at| (at, Part::Tree));
        };
        let Found { repository, states, tracked_by } = &self.repositories[at];
        if let Some(outer) = tracked_by {
            return Some((*outer, Part::Tree));
        }
        let below = repository.below(tree, &change.path)?;
        Some((at, part(repository, states, below, change)))
    }

    /// The repositories that are written with one.
    pub(in crate::workspace::overlay) fn with(&self, at: usize) -> impl Iterator<Item = &Found> {
        let together = move |(own, found): &(usize, &Found)| *own == at || found.tracked_by == Some(at);
        self.repositories.iter().enumerate().filter(together).map(|(_, found)| found)
    }
}

fn part(repository: &Repository, states: &States, below: &Path, change: &Change) -> Part {
    let is_new = match repository.presence {
        // All of it goes, objects too.
        Presence::Gone => return Part::Group,
        Presence::New => true,
        Presence::Both => false,
    };
    if below.starts_with("objects") {
        // git asks for the directory, also where it is empty.
        return if is_new && below == Path::new("objects") { Part::Group } else { Part::Object };
    }
    let owns: Vec<&Path> = states.trees.iter().map(|tree| tree.own.as_path()).collect();
    let unfinished = owns.iter().any(|own| {
        let below = below.strip_prefix(own);
        below.is_ok_and(|below| OPERATIONS.iter().any(|directory| below.starts_with(directory)))
    });
    if states.knows_refs() && is_ref(below, &owns) {
        return Part::Ref;
    }
    let is_class = below.as_os_str().is_empty() || change.class != Class::Ordinary;
    if is_class && !unfinished && !is_new {
        return Part::Alone;
    }
    let name = below.file_name().unwrap_or_default();
    let directory = below.parent().unwrap_or(Path::new(""));
    let is_scratch = owns.contains(&directory) && SCRATCH.iter().any(|known| OsStr::new(known) == name);
    let is_scratch = is_scratch || below == Path::new(DERIVED);
    if name.as_bytes().ends_with(b".lock") || is_scratch { Part::Scratch } else { Part::Group }
}

/// Whether a file of git holds refs.
fn is_ref(below: &Path, owns: &[&Path]) -> bool {
    let of_tree = |own: &&Path| {
        below == own.join("HEAD") || below.strip_prefix(own).is_ok_and(|below| below.starts_with("refs"))
    };
    below == Path::new("packed-refs") || below.starts_with("refs") || owns.iter().any(of_tree)
}

impl Found {
    /// The ref whose log a file of the git directory is.
    pub(in crate::workspace::overlay) fn logged(&self, below: &Path) -> Option<Vec<u8>> {
        let mut trees: Vec<_> = self.states.trees.iter().collect();
        // Those of linked work trees lie below the directory of the main one.
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.own.iter().count()));
        trees.into_iter().find_map(|tree| {
            let name = below.strip_prefix(tree.own.join("logs")).ok()?;
            let is_own = name == Path::new("HEAD") || tree.own.as_os_str().is_empty();
            let whole = if is_own { name.to_owned() } else { tree.own.join(name) };
            let name = whole.as_os_str().as_bytes().to_vec();
            Some(if name == b"HEAD" { tree.head.clone() } else { name })
        })
    }
}
