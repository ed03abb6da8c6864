//! Objects, which are added and never deleted: they mean nothing until a ref leads to them, and each must hold what its name
//! says.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::EntryKind;
use belljar_sys::Errno;

use super::Group;
use crate::workspace::git::{self, Addition};
use crate::workspace::overlay::apply::{RefusedBecause, RefusedChange, failed};
use crate::workspace::overlay::changes::{Change, ChangeKind};
use crate::workspace::overlay::kept::Found;
use crate::workspace::overlay::layers::Layers;
use crate::workspace::place::{Expected, PlaceError, Placing};

pub(super) type Sound = Addition;

impl Group<'_> {
    /// Checks which additions to the objects are sound.
    pub(super) fn check_objects(
        &self,
        objects: &[(usize, Change)],
        refused: &mut Vec<RefusedChange>,
    ) -> Vec<Sound> {
        let Found { repository, states, .. } = self.found();
        let top = repository.git.join("objects");
        let upper = self.layers().upper.root().directory(&top).ok();
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
                let path = self.kept.outer(*tree, &change.path);
                refused.push(RefusedChange { path, why: RefusedBecause::Unsound });
            }
            out.push(addition);
        }
        out
    }

    /// Adds objects. One that the project has is left alone; nothing is deleted, because the user's own commits may need it.
    pub(super) fn write_objects(
        &self,
        objects: &[(usize, Change)],
        sound: &[Sound],
    ) -> Result<(), RefusedChange> {
        if objects.is_empty() {
            return Ok(());
        }
        let repository = &self.found().repository;
        let (layers, overlay) = (self.layers(), &self.kept.overlays[repository.tree]);
        let above = |change: &Change| change.path.parent().map(Path::to_owned).unwrap_or_default();
        let fault = |path: &Path, cause| RefusedChange {
            path: self.kept.outer(repository.tree, path),
            why: failed(cause),
        };
        let noted = overlay.begin_apply(objects.iter().map(|(_, change)| above(change)).collect());
        noted.map_err(|_error| fault(&repository.git, Errno::IO))?;
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
        layers.lower.root().sync_file_system().map_err(|cause| fault(&repository.git, cause))?;
        Ok(())
    }
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
