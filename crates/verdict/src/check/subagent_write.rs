//! Files that sub-agents wrote.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::{Origin, Run};
use crate::value::{Text, ToolGlob};
use belljar_contract::decode::table;

pub(super) const KEYS: &[Key] = &[FileWrite::KEY];

/// Tools that write a file.
const WRITERS: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];

table! {
    "`subagent_file_write`"
    struct FileWriteSpec {
        /// The path, as the sub-agent wrote it.
        path: Option<Text>,
        /// How the path ends.
        path_suffix: Option<Text>,
        /// The tool; any that writes files when absent.
        tool: Option<ToolGlob>,
    }
}

check! {
    /// A sub-agent wrote a file by a tool, and the call came back without an error. The path is the one of the call, taken
    /// as it is written there. One of `path` and `path_suffix` is given.
    FileWrite(SubAgents, "subagent_file_write", NotNeeded): FileWriteSpec
}

impl Check for FileWrite {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let FileWriteSpec { path, path_suffix, tool } = &self.0;
        let mut failed = None;
        for call in run.calls().iter().filter(|call| call.origin == Origin::SubAgent) {
            let writes = match tool {
                Some(tool) => tool.fits(call.tool),
                None => WRITERS.contains(&call.tool),
            };
            let written = ["file_path", "notebook_path", "path"].iter().find_map(|key| call.text(key));
            let fits = written.is_some_and(|written| match (path, path_suffix) {
                (Some(path), _) => written == path.0,
                (None, Some(suffix)) => written.ends_with(&suffix.0),
                (None, None) => false,
            });
            match call.back {
                Some(back) if writes && fits && !back.is_error => {
                    return Finding::pass("a sub-agent wrote the file")
                        .seen(call.seq, &call.line())
                        .seen(back.seq, back.text);
                }
                Some(back) if writes && fits => failed = Some((back.seq, back.text)),
                Some(_) | None => {}
            }
        }
        let finding = run.fails_if_whole("no sub-agent wrote the file");
        failed.into_iter().fold(finding, |finding, (seq, text)| finding.seen(seq, text))
    }

    fn misuse(&self) -> Option<String> {
        let one = self.0.path.is_some() != self.0.path_suffix.is_some();
        (!one).then(|| "one of `path` and `path_suffix` is needed, not both".to_owned())
    }
}
