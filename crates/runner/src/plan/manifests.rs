//! Finds manifests and reads them, up to a maximum size.

use crate::plan::planned::PlanningError;
use belljar_contract::AbsPath;
use belljar_plan::{LayerText, ManifestLayer, ProjectFacts, SIZE_LIMIT};
use belljar_sys::regular::open_regular;
use std::fs;
use std::io::Read;

/// The name of a manifest, in a project and in the user's configuration.
pub const MANIFEST_NAME: &str = "belljar.toml";

/// The paths of manifests, in rising order of precedence: the user's file, then the project's. The latter may lie in
/// any directory from the project's root down to the working directory; the nearest one is used.
pub(crate) fn places(config: &AbsPath, project: &ProjectFacts) -> Vec<(ManifestLayer, AbsPath)> {
    let mut out = vec![(ManifestLayer::User, config.child(MANIFEST_NAME))];
    let mut directory = Some(project.directory.clone());
    while let Some(current) = directory {
        if !current.is_within(&project.root) {
            break;
        }
        out.push((ManifestLayer::Project, current.child(MANIFEST_NAME)));
        directory = current.parent();
    }
    out
}

/// Reads the manifests that exist; at most one of the project.
pub(crate) fn read(
    places: &[(ManifestLayer, AbsPath)],
    shown: impl Fn(&AbsPath) -> String,
) -> Result<Vec<LayerText>, PlanningError> {
    let mut out: Vec<LayerText> = Vec::new();
    let root = places.last().and_then(|(_, path)| path.parent());
    for (layer, path) in places {
        if out.iter().any(|text| text.layer == ManifestLayer::Project) {
            break;
        }
        if *layer == ManifestLayer::Project {
            stays(path, root.as_ref())?;
        }
        if let Some(bytes) = read_bounded(path)? {
            let directory = path.parent().unwrap_or_else(|| path.clone());
            out.push(LayerText { layer: *layer, name: shown(path), directory, bytes });
        }
    }
    Ok(out)
}

/// Refuses a manifest of the project that is a link out of it: an error message quotes lines, and the project may not
/// be trusted.
fn stays(path: &AbsPath, root: Option<&AbsPath>) -> Result<(), PlanningError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
    if is_link && !root.is_some_and(|root| real.starts_with(root)) {
        let cause = std::io::Error::other("it is a link that leads out of the project");
        return Err(PlanningError::Read { path: path.clone(), cause });
    }
    Ok(())
}

/// The bytes of a file, cut just above the maximum size; `None` if there is no such file.
pub(crate) fn read_bounded(path: &AbsPath) -> Result<Option<Vec<u8>>, PlanningError> {
    let failed = |cause| PlanningError::Read { path: path.clone(), cause };
    let file = match open_regular(path.as_path()) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A dangling link is a mistake; it does not mean that there is no manifest.
            return match fs::symlink_metadata(path) {
                Ok(_) => {
                    let cause = "it is a symbolic link to something that does not exist";
                    Err(failed(std::io::Error::other(cause)))
                }
                Err(_) => Ok(None),
            };
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    let limit = SIZE_LIMIT as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}
