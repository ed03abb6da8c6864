//! Text in a file.

use super::{Check, Key, check};
use crate::files::content;
use crate::finding::{Finding, around, excerpt};
use crate::run::Run;
use crate::value::{OneOrMore, PathName, Text};
use belljar_contract::Pattern;
use belljar_contract::decode::table;

pub(super) const KEYS: &[Key] = &[ArtifactText::KEY];

table! {
    "`artifact_text`"
    struct ArtifactTextSpec {
        /// The file, below the workspace.
        artifact: PathName,
        /// Texts that must all be in it.
        contains: Option<OneOrMore<Text>>,
        /// Texts of which none may be in it.
        not_contains: Option<OneOrMore<Text>>,
        /// A pattern that it must match.
        matches: Option<Pattern>,
        /// A pattern that it must not match.
        not_matches: Option<Pattern>,
    }
}

check! {
    /// A file holds text. At least one of `contains`, `not_contains`, `matches` and `not_matches` is given, and each that
    /// is must hold. Of a file that is not all UTF-8, nothing can be said not to be in it. Files of up to 10 MiB are read.
    ArtifactText(Files, "artifact_text", NotNeeded): ArtifactTextSpec
}

impl Check for ArtifactText {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let ArtifactTextSpec { artifact, contains, not_contains, matches, not_matches } = &self.0;
        let (body, note) = match content(run, artifact) {
            Ok(content) => content,
            Err(finding) => return finding,
        };
        let text = String::from_utf8_lossy(body);
        let fail = |message: String| Finding::fail(message).shown(&note);
        let lacks = |message: String| run.unless_cut_short(fail(message));
        let wanted = contains.iter().flat_map(|texts| &texts.0);
        if let Some(missing) = wanted.into_iter().find(|wanted| !text.contains(&wanted.0)) {
            return lacks(format!("{artifact} does not hold {:?}", excerpt(&missing.0)));
        }
        if matches.as_ref().is_some_and(|pattern| !pattern.is_match(&text)) {
            return lacks(format!("{artifact} does not match"));
        }
        let unwanted = not_contains.iter().flat_map(|texts| &texts.0);
        if let Some(found) = unwanted.into_iter().find(|unwanted| text.contains(&unwanted.0)) {
            return fail(format!("{artifact} holds {:?}", excerpt(&found.0)));
        }
        if let Some(place) = not_matches.as_ref().and_then(|pattern| pattern.find(&text)) {
            return fail(format!("{artifact} matches")).shown(&around(&text, &place));
        }
        let negative = not_contains.is_some() || not_matches.is_some();
        if negative && std::str::from_utf8(body).is_err() {
            return Finding::unknown(format!(
                "{artifact} is not all text, so nothing can be said not to be in it"
            ));
        }
        let pass = Finding::pass(format!("{artifact} holds what it should")).shown(&note);
        if negative { run.unless_cut_short(pass) } else { pass }
    }

    fn misuse(&self) -> Option<String> {
        let ArtifactTextSpec { artifact: _, contains, not_contains, matches, not_matches } = &self.0;
        let none = contains.is_none() && not_contains.is_none() && matches.is_none() && not_matches.is_none();
        none.then(|| "one of `contains`, `not_contains`, `matches` and `not_matches` is needed".to_owned())
    }
}
