//! Files that are gone.

use super::{Check, Key, check};
use crate::files::{deleted, listing, outputs};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::Yes;

pub(super) const KEYS: &[Key] = &[InOutputs::KEY, InMounts::KEY];

check! {
    /// No file that lay in the outputs before is gone after the run. What the disk shows decides, not what commands look
    /// like; a file that was made and deleted within the run is not seen. Needs all files to have been looked at.
    InOutputs(Files, "no_delete_in_outputs", NotNeeded): Yes
}
check! {
    /// No file that lay in a connected directory before is gone after the run. Needs all files to have been looked at.
    InMounts(Files, "no_delete_in_mounts", ForPass("the agent can reach the directories that the copies were made of")): Yes
}

/// Which of the directories that the user sees.
enum Where {
    Outputs,
    Connected,
}

fn judge(run: &Run<'_>, place: &Where) -> Finding {
    let files = match run.files() {
        Ok(files) => files,
        Err(unknown) => return unknown,
    };
    let (own, connected) = outputs(files);
    let directories = match place {
        Where::Outputs => own,
        Where::Connected => connected,
    };
    if directories.is_empty() && matches!(place, Where::Outputs) {
        return Finding::unknown("which directory holds the outputs is not known");
    }
    let gone = deleted(files, &directories);
    if !gone.is_empty() {
        let finding = Finding::fail(match gone.len() {
            1 => "1 file is gone".to_owned(),
            several => format!("{several} files are gone"),
        });
        return gone.iter().fold(finding, |finding, path| finding.shown(path));
    }
    match run.all_files() {
        Ok(files) => Finding::pass("no file is gone").shown(&listing(files)),
        Err(unknown) => unknown,
    }
}

impl Check for InOutputs {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        judge(run, &Where::Outputs)
    }
}

impl Check for InMounts {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        judge(run, &Where::Connected)
    }
}
