//! Refs, written by name: the user's own storage of them is changed as little as possible, wherever the agent's git kept them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{InodeKind, Status};

use super::Group;
use crate::workspace::git::{LARGEST_PACKED, Packed, RefValue, read_in};
use crate::workspace::overlay::apply::{RefusedBecause, RefusedChange, failed};
use crate::workspace::overlay::kept::Found;
use crate::workspace::overlay::layers::Layers;
use crate::workspace::overlay::merging::Merged;
use crate::workspace::overlay::transaction::{Act, Step};

impl Group<'_> {
    /// The steps that make the refs what they become; none where they are written as files.
    pub(super) fn ref_steps(&self, refused: &mut Vec<RefusedChange>) -> Vec<Step> {
        let found = self.found();
        if !found.states.knows_refs() {
            return Vec::new();
        }
        let mut writing = match Writing::new(self.layers(), found) {
            Ok(writing) => writing,
            Err(cause) => {
                refused.push(RefusedChange { path: self.path_of_ref(found, b"HEAD"), why: failed(cause) });
                return Vec::new();
            }
        };
        for (name, wanted) in found.states.written() {
            if let Err(why) = writing.add(name, wanted) {
                refused.push(RefusedChange { path: self.path_of_ref(found, name), why });
            }
        }
        match writing.finish() {
            Ok(steps) => steps,
            Err(why) => {
                refused.push(RefusedChange { path: self.path_of_ref(found, b"packed-refs"), why });
                Vec::new()
            }
        }
    }
}

pub(super) struct Writing<'layers> {
    layers: &'layers Layers,
    found: &'layers Found,
    /// What new files are like.
    like: Status,
    /// The user's packed refs, and the file that holds them.
    packed: Option<(Packed, Status)>,
    /// Those that are deleted.
    unpacked: Vec<Vec<u8>>,
    steps: BTreeMap<(PathBuf, u8), Step>,
}

impl<'layers> Writing<'layers> {
    pub(super) fn new(layers: &'layers Layers, found: &'layers Found) -> Result<Self, Errno> {
        let git = &found.repository.git;
        let like = layers.lower.status(&git.join("HEAD"))?.filter(|head| head.kind == InodeKind::File);
        let like = like.ok_or(Errno::NOENT)?;
        let path = git.join("packed-refs");
        let packed = match (layers.lower.status(&path)?, read_in(layers.lower.root(), &path, LARGEST_PACKED)?)
        {
            (Some(status), Some(text)) => Some((Packed::parse(&text).ok_or(Errno::INVAL)?, status)),
            (_, _) => None,
        };
        Ok(Writing { layers, found, like, packed, unpacked: Vec::new(), steps: BTreeMap::new() })
    }

    fn push(&mut self, path: PathBuf, order: u8, act: Act) {
        let tree = self.found.repository.tree;
        self.steps.insert((path.clone(), order), Step { tree, path, act, forced: true });
    }

    /// Adds a file where nothing is.
    pub(super) fn write(&mut self, path: PathBuf, content: Vec<u8>) {
        let like = self.like;
        self.push(path, 1, Act::Write { content, like });
    }

    /// Adds what makes a ref this, or deletes it.
    pub(super) fn add(&mut self, name: &[u8], wanted: Option<&RefValue>) -> Result<(), RefusedBecause> {
        let path = self.found.repository.file_of(name);
        let before = self.layers.lower.status(&path).map_err(failed)?;
        match (wanted, before) {
            (Some(value), Some(before)) if before.kind == InodeKind::File => {
                let merged = Merged { content: value.line(), mode: before.mode };
                self.push(path, 1, Act::Merge { before, merged });
            }
            (Some(value), before) => {
                match before {
                    Some(before) if before.kind == InodeKind::Directory => self.clear(&path)?,
                    Some(_) => return Err(RefusedBecause::ChangedSince),
                    None => {}
                }
                self.write(path, value.line());
            }
            (None, Some(before)) if before.kind == InodeKind::File => {
                self.push(path, 0, Act::Delete { before })
            }
            (None, _) => {}
        }
        if wanted.is_none() && self.packed.as_ref().is_some_and(|(packed, _)| packed.contains(name)) {
            self.unpacked.push(name.to_vec());
        }
        Ok(())
    }

    /// Directories that git left behind when it deleted refs go; anything else in them stops it.
    fn clear(&mut self, path: &Path) -> Result<(), RefusedBecause> {
        let mut pending = vec![path.to_owned()];
        while let Some(directory) = pending.pop() {
            let found = self.layers.lower.root().directory(&directory).map_err(failed)?;
            let mut files = Vec::new();
            let read = found.entries(|name, kind| {
                let entries = if kind == InodeKind::Directory { &mut pending } else { &mut files };
                entries.push(directory.join(name));
            });
            read.map_err(failed)?;
            if files.iter().any(|file| !self.steps.contains_key(&(file.clone(), 0)) && !self.goes(file)) {
                return Err(RefusedBecause::ChangedSince);
            }
            self.push(directory, 0, Act::RemoveDirectory);
        }
        Ok(())
    }

    /// Whether a file is that of a ref which is deleted.
    fn goes(&self, file: &Path) -> bool {
        let written = self.found.states.written();
        written.iter().any(|(name, value)| value.is_none() && self.found.repository.file_of(name) == file)
    }

    pub(super) fn finish(mut self) -> Result<Vec<Step>, RefusedBecause> {
        if let Some((mut packed, before)) = self.packed.take().filter(|_| !self.unpacked.is_empty()) {
            packed.retain(|name| !self.unpacked.iter().any(|gone| gone == name));
            let merged = Merged { content: packed.bytes(), mode: before.mode };
            let path = self.found.repository.git.join("packed-refs");
            self.push(path, 1, Act::Merge { before, merged });
        }
        Ok(self.steps.into_values().collect())
    }
}
