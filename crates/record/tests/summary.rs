//! The summary of a run is stored with a version, and secrets are not in it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{
    AgentName, CheckResult, Conclusion, ConversationSource, DecisionMade, Digest, EvidenceNote, Need,
    OpenNeed, Outcome, RunDigests, RunId, RunStatus, RunSummary, RunVerb, RunVerdict, Scrubber, Secret,
    Signal, SignalWeight, ToolCount,
};
use belljar_record::{RunReader, SUMMARY, write_summary};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{STARTED_MS, abs, nothing};

/// A summary with this text in every free member.
fn summary(text: &str) -> RunSummary {
    let text = || text.to_owned();
    RunSummary {
        format: 1,
        run: RunId::new(7),
        verb: RunVerb::Test,
        subject: text(),
        agent: AgentName::new("under-test").unwrap(),
        started_at_ms: STARTED_MS,
        duration_ms: 1200,
        status: RunStatus::Exited { code: 0 },
        scenario: Some(text()),
        digests: RunDigests {
            plan: Digest::of(b"plan"),
            scenario: Some(Digest::of(b"scenario")),
            skills: BTreeMap::from([(text(), Digest::of(b"skill"))]),
            plugins: BTreeMap::from([(text(), Digest::of(b"plugin"))]),
        },
        verdict: Some(RunVerdict {
            conclusion: Conclusion::Failed,
            exit_code: 1,
            checks: vec![CheckResult {
                place: "assert[0]".to_owned(),
                check: text(),
                outcome: Outcome::Fail,
                message: text(),
                evidence: vec![EvidenceNote { seq: Some(3), text: text() }],
            }],
            signals: vec![Signal { code: "stalled".to_owned(), weight: SignalWeight::Warn, message: text() }],
        }),
        not_isolated: Vec::new(),
        conversation: ConversationSource::Frames,
        decisions: vec![DecisionMade {
            about: text(),
            tool: Some(text()),
            questions: vec![text()],
            answer: Some(text()),
            chosen: vec![text()],
            by: Some(text()),
            reason: text(),
        }],
        final_message: Some(text()),
        tools: BTreeMap::from([(text(), ToolCount { calls: 2, errors: 1 })]),
    }
}

fn museum() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/summary-v1")
}

#[test]
fn v1_is_read_and_written_byte_for_byte() {
    let kept = RunReader::new(abs(&museum())).summary().unwrap();
    assert_eq!(kept, Some(summary("a text")));
    let base = tempfile::tempdir().unwrap();
    write_summary(&abs(base.path()), summary("a text"), &nothing()).unwrap();
    let (old, now) = (museum().join(SUMMARY), base.path().join(SUMMARY));
    assert_eq!(fs::read_to_string(now).unwrap(), fs::read_to_string(old).unwrap(), "raise the format");
}

/// An older belljar says that it does not know this version; it does not take the file for a foreign one.
#[test]
fn what_was_not_isolated_raises_the_format() {
    let open = vec![OpenNeed { need: Need::Files, why: "every file of yours can be read".to_owned() }];
    let mut unsealed = summary("a text");
    (unsealed.format, unsealed.not_isolated) = (RunSummary::format_of(&open), open);
    if let Some(verdict) = &mut unsealed.verdict {
        verdict.checks[0].outcome = Outcome::Waived;
    }
    assert_eq!((unsealed.format, RunSummary::format_of(&[])), (2, 1));
    let base = tempfile::tempdir().unwrap();
    write_summary(&abs(base.path()), unsealed.clone(), &nothing()).unwrap();
    assert_eq!(RunReader::new(abs(base.path())).summary().unwrap(), Some(unsealed));
}

#[test]
fn a_secret_is_in_no_member() {
    // The second one is also a word of belljar's own.
    let secrets = [("T", Secret::new("zq93-secret-value")), ("W", Secret::new("conclusion"))];
    let redact = Arc::new(Scrubber::new(secrets.iter().map(|(name, one)| (*name, one))).0);
    let base = tempfile::tempdir().unwrap();
    write_summary(&abs(base.path()), summary("a zq93-secret-value"), &redact).unwrap();
    let text = fs::read_to_string(base.path().join(SUMMARY)).unwrap();
    assert!(!text.contains("zq93"), "{text}");
    assert_eq!(text.matches("a [redacted:T]").count(), 17, "{text}");
    let read = RunReader::new(abs(base.path())).summary().unwrap();
    assert_eq!(read, Some(summary("a [redacted:T]")), "it stays readable");
}

#[test]
fn a_later_format_and_a_foreign_file_are_refused() {
    let old = fs::read_to_string(museum().join(SUMMARY)).unwrap();
    for (text, message) in [
        (old.replace("\"format\": 1", "\"format\": 3"), "has format 3; this belljar reads up to 2"),
        (old.replace("\"verb\": \"test\"", "\"verb\": \"dance\""), "was not written by belljar"),
        (old[..old.len() / 2].to_owned(), "was not written by belljar"),
    ] {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join(SUMMARY), text).unwrap();
        let error = RunReader::new(abs(base.path())).summary().unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(SUMMARY), "{error}");
    }
    let base = tempfile::tempdir().unwrap();
    assert_eq!(RunReader::new(abs(base.path())).summary().unwrap(), None);
}
