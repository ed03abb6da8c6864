//! Branches that a work tree has in use. git neither moves nor deletes them, because the index and the files of that work tree
//! would stay behind, and its next commit would take the new commits back.

use std::path::{Component, Path, PathBuf};

use super::Group;
use crate::workspace::git::{GitFiles, ObjectId, RefValue, Refs};
use crate::workspace::overlay::apply::{BranchUse, RefusedBecause, RefusedChange};
use crate::workspace::overlay::kept::Found;
use crate::workspace::overlay::repositories::{
    InProject, InSandbox, LARGEST_LOG, Presence, Repository, TreeState,
};

/// More than the state of a rebase of many branches.
const LARGEST_STATE: u64 = 1 << 20;
/// As many symbolic refs as git follows.
const LONGEST_CHAIN: usize = 5;

/// A branch that a work tree has in use.
#[derive(PartialEq, Eq)]
struct InUse {
    /// The git directory of the work tree, below the shared one.
    own: PathBuf,
    /// The whole name; `None` where it cannot be read, so that it may be any.
    name: Option<Vec<u8>>,
    how: BranchUse,
}

impl InUse {
    fn is(&self, name: &[u8]) -> bool {
        self.name.as_ref().is_none_or(|own| own == name)
    }
}

impl Group<'_> {
    /// Branches that would move or go while a work tree has them in use whose index and files are not written with them.
    pub(super) fn in_use(&self, found: &Found) -> Vec<RefusedChange> {
        let Found { repository, states, .. } = found;
        if repository.presence != Presence::Both {
            return Vec::new();
        }
        let layers = &self.opened.layers[repository.tree];
        let (project, seen) =
            (InProject { layers, shared: &repository.git }, InSandbox { layers, shared: &repository.git });
        let is_bare = repository.is_bare(&self.kept.overlays, &self.opened.layers);
        let inside = all(&seen, &states.after, repository, is_bare);
        let written = states.written();
        let mut out: Vec<RefusedChange> = Vec::new();
        for one in all(&project, &states.now, repository, is_bare) {
            let tree = states.trees.iter().find(|tree| tree.own == one.own);
            let goes_along = tree.is_some_and(|tree| match one.how {
                BranchUse::CheckedOut => self.goes_along(found, tree),
                // The agent finished it, or gave it up.
                BranchUse::Rebased | BranchUse::Bisected => tree.top.is_some() && !inside.contains(&one),
            });
            for (name, _) in written.iter().filter(|(name, _)| name.starts_with(b"refs/") && one.is(name)) {
                let path = self.path_of_ref(found, name);
                if !goes_along && !out.iter().any(|known| known.path == path) {
                    let place = self.place_of(repository, &one.own);
                    let why = RefusedBecause::InUse { name: name.to_vec(), place, how: one.how };
                    out.push(RefusedChange { path, why });
                }
            }
        }
        out
    }

    /// Whether the agent's HEAD, index and files of a work tree are written, so that they fit the branch.
    fn goes_along(&self, found: &Found, tree: &TreeState) -> bool {
        let Found { repository, states, .. } = found;
        let base = states.base.as_ref().unwrap_or(&states.now);
        let [base, now, after] = [base, &states.now, &states.after].map(|refs| refs.values.get(&tree.head));
        let is_written = states.written().iter().any(|(name, _)| **name == tree.head);
        tree.top.is_some()
            && (base == now || is_written)
            && !(base == after && self.moved_from_elsewhere(repository, found, tree))
    }

    /// Whether the agent moved a branch from another work tree than this one, which has it checked out: neither the index nor
    /// the log of its HEAD knows.
    fn moved_from_elsewhere(&self, repository: &Repository, found: &Found, tree: &TreeState) -> bool {
        let layers = &self.opened.layers[repository.tree];
        let files = InSandbox { layers, shared: &repository.git };
        let log = files.read(&tree.own.join("logs/HEAD"), LARGEST_LOG).ok().flatten().unwrap_or_default();
        let last = log.trim_ascii_end().split(|byte| *byte == b'\n').next_back();
        let last = last.and_then(|line| ObjectId::parse(line.split(|byte| *byte == b' ').nth(1)?));
        let has_other_files = tree.checked_out.as_ref().is_none_or(|paths| !paths.is_empty());
        let index = tree.base.as_ref().unwrap_or(&tree.now);
        has_other_files
            && index.says_the_same(&tree.after)
            && last.is_none_or(|last| found.states.after.resolve(&tree.head) != Some(last))
    }

    /// Where the files of a work tree are, from the project.
    fn place_of(&self, repository: &Repository, own: &Path) -> PathBuf {
        let overlays = &self.kept.overlays;
        match repository.work_tree(overlays, &self.opened.layers, own) {
            Some(place) => relative(&place, &overlays[0].lower),
            None => self.kept.outer(repository.tree, &repository.git.join(own)),
        }
    }
}

/// The branches that the work trees of a repository have in use.
fn all(files: &dyn GitFiles, refs: &Refs, repository: &Repository, is_bare: bool) -> Vec<InUse> {
    let mut out = Vec::new();
    for own in &refs.tops {
        let mut add = |name: Option<Vec<u8>>, how| out.push(InUse { own: own.clone(), name, how });
        let mut name = repository.head_of(own);
        for _ in 0..LONGEST_CHAIN {
            let Some(RefValue::Symbolic(target)) = refs.values.get(&name) else { break };
            name.clone_from(target);
            // The HEAD of a bare repository is the branch that a clone checks out.
            if !(is_bare && own.as_os_str().is_empty()) {
                add(Some(name.clone()), BranchUse::CheckedOut);
            }
        }
        let states = [
            ("rebase-merge/head-name", BranchUse::Rebased),
            ("rebase-apply/head-name", BranchUse::Rebased),
            ("rebase-merge/update-refs", BranchUse::Rebased),
            ("BISECT_START", BranchUse::Bisected),
        ];
        for (file, how) in states {
            match files.read(&own.join(file), LARGEST_STATE) {
                Ok(text) => {
                    let text = text.unwrap_or_default();
                    // Objects, and the words for no branch, are the names of no ref.
                    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                    lines.filter(|line| !line.is_empty()).for_each(|line| add(Some(whole(line)), how));
                }
                Err(_cause) => add(None, how),
            }
        }
    }
    out
}

/// A bisection notes the short name.
fn whole(name: &[u8]) -> Vec<u8> {
    if name.starts_with(b"refs/") { name.to_vec() } else { [b"refs/heads/", name].concat() }
}

/// A path as a user in the project would type it: `../w` for a neighbour.
fn relative(place: &Path, project: &Path) -> PathBuf {
    let shared = place.components().zip(project.components()).take_while(|(one, other)| one == other).count();
    // Nothing but the root is shared.
    if shared <= 1 {
        return place.to_owned();
    }
    let up = project.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(place.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_is_named_from_the_project() {
        let from = |place: &str| relative(Path::new(place), Path::new("/home/u/project"));
        assert_eq!(from("/home/u/w"), Path::new("../w"));
        assert_eq!(from("/home/u/project/w"), Path::new("w"));
        assert_eq!(from("/home/u/project"), Path::new(""));
        assert_eq!(from("/srv/w"), Path::new("/srv/w"));
    }
}
