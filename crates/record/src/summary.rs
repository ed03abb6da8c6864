//! `summary.json`: what a run was and what came of it.

use crate::disk::write_atomically;
use crate::error::{ReadError, WriteError};
use crate::reader::RunReader;
use crate::redact::{Redact, redact_text};
use crate::writer::document;
use belljar_contract::{
    AbsPath, CheckResult, DecisionMade, RunDigests, RunSummary, RunVerdict, SUMMARY_FORMAT, Signal,
};

/// The file of a run's summary.
pub const SUMMARY: &str = "summary.json";
/// Checks with their evidence may be long.
const SUMMARY_MAX: u64 = 64 << 20;

/// Writes the summary of a run that has ended. Texts are redacted.
///
/// # Errors
/// When it cannot be written.
pub fn write_summary(
    directory: &AbsPath,
    mut summary: RunSummary,
    redact: &Redact,
) -> Result<(), WriteError> {
    redact_summary(&mut summary, redact);
    let path = directory.child(SUMMARY);
    let text = document(&summary);
    if text.len() as u64 > SUMMARY_MAX {
        return Err(WriteError::TooLarge { path, limit: SUMMARY_MAX });
    }
    write_atomically(&path, text.as_bytes()).map_err(|cause| WriteError::Write { path, cause })
}

/// Member by member, because belljar's own words must stay readable whatever the secrets are.
fn redact_summary(summary: &mut RunSummary, redact: &Redact) {
    let RunSummary {
        format: _,
        run: _,
        verb: _,
        subject,
        agent: _,
        started_at_ms: _,
        duration_ms: _,
        // The writer of `result.json` redacted it.
        status: _,
        scenario,
        digests: RunDigests { plan: _, scenario: _, skills, plugins },
        verdict,
        // belljar's own words.
        not_isolated: _,
        conversation: _,
        decisions,
        final_message,
        tools,
    } = summary;
    redact_text(subject, redact);
    for text in scenario.iter_mut().chain(final_message) {
        redact_text(text, redact);
    }
    for map in [skills, plugins] {
        *map = std::mem::take(map).into_iter().map(|(name, digest)| (redact.scrub(&name), digest)).collect();
    }
    *tools = std::mem::take(tools).into_iter().map(|(name, count)| (redact.scrub(&name), count)).collect();
    if let Some(RunVerdict { conclusion: _, exit_code: _, checks, signals }) = verdict {
        for CheckResult { place: _, check, outcome: _, message, evidence } in checks {
            redact_text(check, redact);
            redact_text(message, redact);
            evidence.iter_mut().for_each(|note| redact_text(&mut note.text, redact));
        }
        for Signal { code: _, weight: _, message } in signals {
            redact_text(message, redact);
        }
    }
    for DecisionMade { about, tool, questions, answer, chosen, by, reason } in decisions {
        redact_text(about, redact);
        redact_text(reason, redact);
        let texts = tool.iter_mut().chain(answer).chain(by).chain(questions).chain(chosen);
        texts.for_each(|text| redact_text(text, redact));
    }
}

impl RunReader<'_> {
    /// Reads `summary.json`; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, was not written by belljar or has a later format.
    pub fn summary(&self) -> Result<Option<RunSummary>, ReadError> {
        self.versioned_file(SUMMARY, SUMMARY_MAX, SUMMARY_FORMAT)
    }
}
