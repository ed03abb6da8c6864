//! Whether files are there.

use super::{Check, Key, Search, check};
use crate::files::{Place, astray, gone, lies_in, listing, look};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::PathName;

pub(super) const KEYS: &[Key] = &[Exists::KEY, Absent::KEY, Visible::KEY];

check! {
    /// A file is at this path below the workspace, after the run; a directory counts where something lies in it. A link is
    /// followed below the workspace only: one that leads out fails.
    Exists(Files, "file_exists", NotNeeded): PathName
}
check! {
    /// Nothing is at this path below the workspace, after the run. Needs all files to have been looked at. Refused in the
    /// remote lane, where files of the workspace are not what is delivered.
    Absent(Files, "file_absent", NotNeeded): PathName
}
check! {
    /// A file is at this path after the run, and it lies where the user sees it: in the outputs or in a connected
    /// directory. Refused in the remote lane, where only what is handed over is delivered.
    Visible(Files, "user_visible_artifact", NotNeeded): PathName
}

/// The names of the files after the run.
fn paths<'a>(run: &Run<'a>) -> impl Iterator<Item = &'a str> {
    run.evidence.files.iter().flat_map(|files| files.after.keys().map(String::as_str))
}

impl Check for Exists {
    fn judge(&self, run: &Run<'_>) -> Finding {
        exists(run, &self.0)
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(paths(run))
    }
}

fn exists(run: &Run<'_>, path: &PathName) -> Finding {
    let files = match run.files() {
        Ok(files) => files,
        Err(unknown) => return unknown,
    };
    match look(&files.after, path.as_str()) {
        Place::Nothing => gone(run, format!("{path} is not there")),
        place @ (Place::File(..) | Place::Directory(_) | Place::Special(_) | Place::Astray { .. }) => {
            astray(path, &place)
        }
    }
}

impl Check for Absent {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let files = match run.files() {
            Ok(files) => files,
            Err(unknown) => return unknown,
        };
        let path = &self.0;
        match (look(&files.after, path.as_str()), run.all_files()) {
            (Place::Nothing, Ok(files)) => {
                Finding::pass(format!("{path} is not there")).shown(&listing(files))
            }
            (Place::Nothing, Err(unknown)) => unknown,
            (Place::File(found, _) | Place::Directory(found) | Place::Special(found), _) => {
                Finding::fail(format!("{path} is there")).shown(&found)
            }
            (Place::Astray { link, target }, _) => {
                Finding::fail(format!("{path} is there, as a link")).shown(&format!("{link} -> {target}"))
            }
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(paths(run))
    }
}

impl Check for Visible {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let path = &self.0;
        let files = match run.files() {
            Ok(files) => files,
            Err(unknown) => return unknown,
        };
        // The real location decides, not the path of a link that leads there.
        match look(&files.after, path.as_str()) {
            Place::File(found, _) | Place::Directory(found) if !lies_in(&found, &files.visible) => {
                let directories = files.visible.join(", ");
                let finding = Finding::fail(format!("{path} is there, but not where the user sees it"))
                    .shown(&format!("{found}; the user sees {directories}"));
                run.unless_cut_short(finding)
            }
            Place::File(..)
            | Place::Directory(_)
            | Place::Nothing
            | Place::Special(_)
            | Place::Astray { .. } => exists(run, path),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(paths(run))
    }
}
