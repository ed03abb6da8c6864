//! Reasons not to write a group, found before any of its files is looked at.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Group;
use crate::workspace::git::{Index, Refs};
use crate::workspace::overlay::apply::{Applied, OnConflict, RefusedBecause, RefusedChange};
use crate::workspace::overlay::kept::{Found, Sorted};
use crate::workspace::overlay::repositories::{InProject, Presence, TreeState};
use crate::workspace::overlay::transaction::Stopped;

impl Group<'_> {
    /// All reasons that are known by now.
    pub(super) fn judge(&self, sorted: &Sorted, held: &BTreeSet<usize>, out: &Applied) -> Vec<RefusedChange> {
        let mut refused = Vec::new();
        for found in self.opened.with(self.at) {
            match found.repository.presence {
                Presence::Gone => refused.extend(self.deleted(found)),
                Presence::Both | Presence::New => refused.extend(self.unconsented(found)),
            }
            refused.extend(self.moved(found));
            refused.extend(self.excluded(found));
            refused.extend(self.in_use(found));
            refused.extend(self.elsewhere(found, sorted));
        }
        refused.extend(self.needs_others(held));
        refused.extend(self.needs_files(out));
        refused
    }

    /// The file of a ref, as it is called in a message.
    pub(super) fn path_of_ref(&self, found: &Found, name: &[u8]) -> PathBuf {
        match found.repository.is_main {
            true => self.kept.outer(found.repository.tree, &found.repository.file_of(name)),
            false => self.kept.label_of(found).join(OsStr::from_bytes(name)),
        }
    }

    /// Whether the user said to write the agent's ref, whatever their own is.
    fn is_taken(&self, found: &Found, name: &[u8]) -> bool {
        let file = self.kept.outer(found.repository.tree, &found.repository.file_of(name));
        self.request.on_conflict_at(&file) == OnConflict::Overwrite
    }

    /// Refs that both sides moved and that the user did not choose to overwrite, and commits with missing objects.
    fn moved(&self, found: &Found) -> Vec<RefusedChange> {
        let moved = found.states.moved().into_iter().filter(|name| !self.is_taken(found, name));
        let moved = moved.map(|name| RefusedChange {
            path: self.path_of_ref(found, name),
            why: RefusedBecause::Moved { name: name.clone() },
        });
        let missing = found.states.missing.clone().map(|missing| RefusedChange {
            path: self.path_of_ref(found, b"objects"),
            why: RefusedBecause::Incomplete { missing },
        });
        moved.chain(missing).collect()
    }

    /// Refs that cannot be there beside one of the user's: `a` and `a/b`.
    fn excluded(&self, found: &Found) -> Vec<RefusedChange> {
        let wanted = &found.states.wanted.values;
        let mut out = Vec::new();
        for (name, _) in found.states.written().into_iter().filter(|(_, value)| value.is_some()) {
            let above = (0..name.len()).filter(|at| name[*at] == b'/').map(|at| &name[..at]);
            let above = above.filter(|above| wanted.contains_key(*above)).map(<[u8]>::to_vec);
            let start = [name.as_slice(), b"/"].concat();
            let below = wanted.range(start.clone()..).map(|(name, _)| name.clone());
            let below = below.take_while(|name| name.starts_with(&start));
            out.extend(above.chain(below).next().map(|other| RefusedChange {
                path: self.path_of_ref(found, name),
                why: RefusedBecause::Moved { name: other },
            }));
        }
        out
    }

    /// An index, or files of commits, of a branch that the user has left: they would be changes to another one.
    fn elsewhere(&self, found: &Found, sorted: &Sorted) -> Vec<RefusedChange> {
        let Found { repository, states, .. } = found;
        let mut out = Vec::new();
        for tree in &states.trees {
            let Some(head) = states.left_behind(&tree.head) else { continue };
            let index = repository.git.join(&tree.own).join("index");
            let is_of_head = sorted.group.iter().any(|(at, change)| {
                let in_tree = || tree.top.as_ref().is_some_and(|top| change.path.starts_with(top));
                let is_file = *at == 0 && self.opened.of_git(*at, &change.path).is_none() && in_tree();
                is_file || *at == repository.tree && change.path == index
            });
            if is_of_head {
                let why = RefusedBecause::Elsewhere { head: head.clone() };
                out.push(RefusedChange { path: self.path_of_ref(found, &tree.head), why });
            }
        }
        out
    }

    /// A whole repository that goes, with all its commits.
    fn deleted(&self, found: &Found) -> Option<RefusedChange> {
        let path = self.kept.outer(found.repository.tree, &found.repository.git);
        let label = self.kept.label_of(found);
        let named = if found.repository.is_main { path } else { label };
        let said = self.request.consent.to.contains(&named);
        (!said).then_some(RefusedChange { path: named, why: RefusedBecause::DeletesRepository })
    }

    /// Refs, and the index, that would bring files that this machine executes, or lose commits, without consent.
    fn unconsented(&self, found: &Found) -> Vec<RefusedChange> {
        let (label, changes) = (self.kept.label_of(found), &found.states.changes);
        let consent = &self.request.consent.to;
        let mut out = Vec::new();
        for change in changes.refs.iter().filter(|change| change.needs_consent()) {
            let path = label.join(OsStr::from_bytes(&change.name));
            if consent.contains(&path) {
                continue;
            }
            if !change.class.is_empty() || change.unread.is_some() {
                let (paths, unread) = (change.class.clone(), change.unread.clone());
                out.push(RefusedChange {
                    path: path.clone(),
                    why: RefusedBecause::Carries { paths, unread },
                });
            }
            if change.lost > 0 && !self.is_taken(found, &change.name) {
                out.push(RefusedChange { path, why: RefusedBecause::LosesCommits { count: change.lost } });
            }
        }
        let refs = label.join("refs");
        if let Some(why) = changes.unread_refs.as_ref().filter(|_| !consent.contains(&refs)) {
            let why = RefusedBecause::Carries { paths: Vec::new(), unread: Some(why.clone()) };
            out.push(RefusedChange { path: refs, why });
        }
        let index = label.join("index");
        let asked = |path: &Path| consent.contains(path) || consent.contains(&index);
        let paths: Vec<_> = changes.staged_class.iter().filter(|one| !asked(&one.path)).cloned().collect();
        let unread = changes.unread_index.clone();
        if !paths.is_empty() || unread.is_some() && !consent.contains(&index) {
            out.push(RefusedChange { path: index, why: RefusedBecause::Carries { paths, unread } });
        }
        out
    }

    /// Commits of other repositories that those of this one name, and that are not written.
    fn needs_others(&self, held: &BTreeSet<usize>) -> Vec<RefusedChange> {
        let mut out = Vec::new();
        for other in held.iter().map(|at| &self.opened.repositories[*at]) {
            let Some(top) = &other.repository.top else { continue };
            let names = self.found().states.trees.iter().any(|tree| {
                let below = tree.top.as_ref().and_then(|own| top.strip_prefix(own).ok());
                below.is_some_and(|below| !below.as_os_str().is_empty() && tree.claims(below))
            });
            if names {
                let why = RefusedBecause::NeedsRepository { path: self.kept.path_of(other) };
                out.push(RefusedChange { path: top.clone(), why });
            }
        }
        out
    }

    /// Files of the commits of a new repository are written by themselves, and must be there first.
    fn needs_files(&self, out: &Applied) -> Option<RefusedChange> {
        let Found { repository, states, .. } = self.found();
        let top = repository.top.as_ref().filter(|_| repository.presence == Presence::New)?;
        let applied: BTreeSet<&Path> = out.applied.iter().map(PathBuf::as_path).collect();
        let missing = self.opened.changes[0].changes.iter().find(|change| {
            let below = change.path.strip_prefix(top).ok();
            let claims = |below: &Path| states.trees.iter().any(|tree| tree.claims(below));
            let is_file = self.opened.of_git(0, &change.path).is_none();
            is_file && below.is_some_and(claims) && !applied.contains(change.path.as_path())
        })?;
        let why = RefusedBecause::NeedsParent { parent: missing.path.clone() };
        Some(RefusedChange { path: self.kept.label_of(self.found()).join("HEAD"), why })
    }

    /// Whether the refs and the indexes are still those that were looked at.
    pub(super) fn unchanged(&self) -> Result<(), Stopped> {
        for found in self.opened.with(self.at) {
            let Found { repository, states, .. } = found;
            let layers = &self.opened.layers[repository.tree];
            let files = InProject { layers, shared: &repository.git };
            let stopped = |path: PathBuf| Stopped {
                tree: repository.tree,
                path: repository.git.join(path),
                why: RefusedBecause::ChangedSince,
            };
            if Refs::read(&files, &repository.own) != states.now {
                return Err(stopped(PathBuf::from("refs")));
            }
            // A bisection that begins changes no ref.
            if let Some(RefusedChange { why, .. }) = self.in_use(found).into_iter().next() {
                return Err(Stopped { why, ..stopped(PathBuf::from("refs")) });
            }
            let hash = states.hash;
            let is_changed = |tree: &&TreeState| {
                let now = Index::read(&files, &tree.own, hash);
                // git writes it anew for a mere `git status`.
                now != tree.now && !now.says_the_same(&tree.now)
            };
            let changed = states.trees.iter().find(is_changed);
            if let Some(tree) = changed {
                return Err(stopped(tree.own.join("index")));
            }
        }
        Ok(())
    }
}
