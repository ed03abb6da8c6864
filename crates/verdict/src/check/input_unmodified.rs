//! Files that must stay as they were.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, count};
use crate::run::Run;
use crate::value::{OneOrMore, PathGlob};

pub(super) const KEYS: &[Key] = &[Unmodified::KEY];

check! {
    /// Every file that existed before the run and matches one of these paths exists after it with the same content. Paths
    /// that match nothing fail. `*` and `?` stay within a part, `**` is any number of parts.
    Unmodified(Files, "input_unmodified", ForPass("the agent can reach the files that the copies were made of")): OneOrMore<PathGlob>
}

impl Check for Unmodified {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let files = match run.files() {
            Ok(files) => files,
            Err(unknown) => return unknown,
        };
        let mut same = 0;
        let mut unread = None;
        for (path, before) in &files.before {
            if !self.0.0.iter().any(|glob| glob.fits(path)) {
                continue;
            }
            let fail = |what: &str| Finding::fail(format!("`{path}` {what}")).shown(path);
            let Some(after) = files.after.get(path) else {
                // What could not be looked at may still be there.
                match run.all_files() {
                    Ok(_) => return fail("is gone"),
                    Err(unknown) => return unknown,
                }
            };
            match (before.digest, after.digest) {
                _ if before.kind != after.kind => return fail("is another kind of file"),
                _ if before.bytes != after.bytes => return fail("has another length"),
                (Some(before), Some(after)) if before != after => return fail("has another content"),
                (Some(_), Some(_)) => same += 1,
                (None, _) | (_, None) => unread = Some(path),
            }
        }
        if let Err(unknown) = run.all_files() {
            return unknown;
        }
        match (unread, same) {
            (Some(path), _) => Finding::unknown(format!("`{path}` was not read, so a change cannot be seen")),
            (None, 0) => Finding::fail("no file that existed before matches")
                .shown(&format!("{} before", count(files.before.len(), "file"))),
            (None, 1) => Finding::pass("1 file is as it was").shown("digests before and after"),
            (None, same) => {
                Finding::pass(format!("{same} files are as they were")).shown("digests before and after")
            }
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        let files = run.evidence.files.as_ref()?;
        Search::unwanted(files.before.keys().map(String::as_str))
    }
}
