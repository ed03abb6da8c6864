//! Dropping what is kept, refs by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Found, Kept};
use crate::workspace::git::{LARGEST_PACKED, Packed, read_in};
use crate::workspace::overlay::apply::{
    ChangeSelection, RefusedBecause, RefusedChange, failed, place_failed,
};
use crate::workspace::overlay::discard::{Discarded, uncover, uncover_refs};
use crate::workspace::overlay::layers::{Layers, is_whiteout};
use crate::workspace::overlay::{LayersError, Overlay};
use crate::workspace::place::{Expected, Placing};
use belljar_sys::beneath::InodeKind;

impl Kept {
    /// Drops changes.
    ///
    /// # Errors
    /// When a layer cannot be opened, or, when all is dropped, emptied.
    pub fn discard(&self, selection: &ChangeSelection) -> Result<Discarded, LayersError> {
        let mut out = match selection {
            ChangeSelection::All => Discarded::default(),
            ChangeSelection::Paths(paths) => self.discard_refs(paths)?,
        };
        for (tree, overlay) in self.overlays.iter().enumerate() {
            let own = match selection {
                ChangeSelection::All => ChangeSelection::All,
                ChangeSelection::Paths(paths) => ChangeSelection::Paths(self.inner(tree, paths)),
            };
            let Discarded { discarded, refused } = overlay.discard(&own)?;
            out.discarded.extend(discarded.iter().map(|path| self.outer(tree, path)));
            let outer =
                |refused: RefusedChange| RefusedChange { path: self.outer(tree, &refused.path), ..refused };
            out.refused.extend(refused.into_iter().map(outer));
        }
        out.discarded.sort();
        out.discarded.dedup();
        Ok(out)
    }

    /// Drops what the agent did to refs that were named, also where its git keeps them together.
    fn discard_refs(&self, paths: &BTreeSet<PathBuf>) -> Result<Discarded, LayersError> {
        let (opened, mut out) = (self.open()?, Discarded::default());
        for found in opened.repositories.iter().filter(|found| found.states.knows_refs()) {
            let tree = found.repository.tree;
            let paths = self.inner(tree, paths);
            let (layers, overlay) = (&opened.layers[tree], &self.overlays[tree]);
            let packed = found.repository.git.join("packed-refs");
            let includes = |file: &Path| file.ancestors().any(|above| paths.contains(above));
            if includes(&found.repository.git) {
                let trees: Vec<PathBuf> = found.states.trees.iter().map(|tree| tree.own.clone()).collect();
                uncover_refs(overlay, layers, &found.repository.git, &trees)?;
                let files =
                    found.states.changed_by_agent().into_iter().map(|name| found.repository.file_of(name));
                out.discarded.extend(files.map(|file| self.outer(tree, &file)));
                continue;
            }
            for name in found.states.changed_by_agent() {
                let file = found.repository.file_of(name);
                let is_loose = || {
                    layers
                        .upper
                        .status(&file)
                        .is_ok_and(|found| found.is_some_and(|found| !is_whiteout(&found)))
                };
                if !includes(&file) && (!includes(&packed) || is_loose()) {
                    continue;
                }
                match drop_ref(overlay, layers, found, name)? {
                    Ok(()) => out.discarded.push(self.outer(tree, &file)),
                    Err(why) => out.refused.push(RefusedChange { path: self.outer(tree, &file), why }),
                }
            }
        }
        Ok(out)
    }
}

/// Makes the layer say of a ref what it said before the agent moved it.
pub(in crate::workspace::overlay) fn drop_ref(
    overlay: &Overlay,
    layers: &Layers,
    found: &Found,
    name: &[u8],
) -> Result<Result<(), RefusedBecause>, LayersError> {
    let repository = &found.repository;
    let file = repository.file_of(name);
    let (Some(above), Some(own)) = (file.parent(), file.file_name()) else { return Ok(Ok(())) };
    let packed = repack(overlay, layers, found, name, &file);
    if packed.is_ok() {
        uncover(overlay, layers, above, &[Path::new(own)])?;
    }
    Ok(packed)
}

fn repack(
    overlay: &Overlay,
    layers: &Layers,
    found: &Found,
    name: &[u8],
    file: &Path,
) -> Result<(), RefusedBecause> {
    let path = found.repository.git.join("packed-refs");
    let read = |tree: &crate::workspace::tree::Tree| -> Result<Option<Packed>, RefusedBecause> {
        let text = read_in(tree.root(), &path, LARGEST_PACKED).map_err(failed)?;
        text.map(|text| Packed::parse(&text).ok_or(RefusedBecause::Unseen)).transpose()
    };
    let before = layers.upper.status(&path).map_err(failed)?.filter(|found| found.kind == InodeKind::File);
    let (Some(before), Some(mut packed)) = (before, read(&layers.upper)?) else { return Ok(()) };
    // Beside a file of the user's the line says nothing, as long as it is the one that the run began with.
    let is_loose = layers.lower.status(file).map_err(failed)?.is_some_and(|now| now.kind == InodeKind::File);
    let from = match is_loose {
        true => overlay.base(&found.repository.git, None).and_then(|base| base.packed()),
        false => read(&layers.lower)?,
    };
    packed.take_over(name, from.as_ref());
    let (parent, own) = layers.upper.parent(&path).map_err(failed)?;
    Placing::new(parent, own).bytes(&packed.bytes(), &before, &Expected::Same(before)).map_err(place_failed)
}
