//! A run that is read again: its record, the conversation, and whether its files are as they were.

use crate::environment::HostEnvironment;
use crate::store::journal::{AGENT_USED, SCENARIO_NAME, VERB};
use crate::store::seal::Seals;
use crate::suite::evidence;
use crate::tape::protocol::ProtocolError;
use crate::tape::{Tape, TapeFailure, is_tape, read_recording};
use belljar_contract::{
    AbsPath, AgentUsed, Completeness, Conclusion, ConversationSource, Event, Evidence, ExitCode, Harness,
    Lane, Logged, ModelEvidence, Run, RunHead, RunId, RunStatus, RunSummary, RunVerb, RunVerdict, Seen,
    Signal, SignalWeight, TapeHead, TranscriptEntry, Whole,
};
use belljar_record::{ReadError, RecordChange, RunReader, is_running};
use belljar_session::Harnesses;
use serde_json::Value;
use std::sync::Arc;

/// The prefix of the agent's transcripts among the artifacts.
pub(crate) const TRANSCRIPT: &str = "transcript-";
/// Transcripts that were kept have at most this size; redaction can make them longer.
const TRANSCRIPT_MAX: u64 = 128 << 20;

/// A run that was read from its directory.
#[derive(Debug)]
pub struct KeptRun {
    pub directory: AbsPath,
    pub run: Run,
    /// As it was recorded; see [`KeptRun::shown`] for what the agent recorded itself.
    pub evidence: Evidence,
    pub source: ConversationSource,
    /// What the run was, as it said when it ended.
    pub summary: Option<RunSummary>,
    /// Files that are not as they were when the run ended.
    pub changes: Vec<RecordChange>,
    pub is_running: bool,
    /// What the tape was recorded from, if it is one.
    pub(crate) tape: Option<TapeHead>,
    transcript: Vec<Seen>,
    /// Why the parts of a tape do not agree with each other.
    contradiction: Option<String>,
}

/// Why a run or a tape cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeptRunError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Tape(#[from] TapeFailure),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The run cannot be read because files of it changed.
    #[error("the record of the run in `{directory}` cannot be read: {}", list(.changes))]
    Changed { directory: AbsPath, changes: Vec<RecordChange> },
}

fn list(changes: &[RecordChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl KeptRunError {
    #[must_use]
    pub const fn exit(&self) -> ExitCode {
        match self {
            Self::Changed { .. } => ExitCode::Unverified,
            Self::Read(_) | Self::Tape(_) | Self::Protocol(_) => ExitCode::Invalid,
        }
    }

    /// The error about a run that cannot be read, if files of it changed.
    pub(crate) fn changed(directory: &AbsPath, environment: &HostEnvironment) -> Option<Self> {
        let reader = RunReader::new(directory.clone());
        let of_summary = || Some(reader.summary().ok()??.run);
        let run = reader.head().ok().map(|head| head.id).or_else(of_summary)?;
        if is_running(directory) {
            return None;
        }
        let changes = Seals::new(&environment.state).check(directory, &run).ok()?;
        (!changes.is_empty()).then(|| Self::Changed { directory: directory.clone(), changes })
    }
}

impl KeptRun {
    /// Reads a run, or the run on a tape. A changed or incomplete run is not an error: it says so.
    ///
    /// # Errors
    /// If it is not a run, or cannot be read; if a tape is damaged.
    pub fn open(directory: AbsPath, environment: &HostEnvironment, lane: Lane) -> Result<Self, KeptRunError> {
        if is_tape(&directory) {
            return Self::of_tape(directory, lane);
        }
        // A run that ends meanwhile is then complete, and said to be running: never the other way.
        let is_running = is_running(&directory);
        let (run, evidence) = evidence(&directory, lane).map_err(|error| {
            KeptRunError::changed(&directory, environment).unwrap_or_else(|| error.into())
        })?;
        let changes = match is_running {
            true => Vec::new(),
            false => Seals::new(&environment.state).check(&directory, &run.head.id)?,
        };
        // One that was changed so that it cannot be read is among the changes.
        let summary = RunReader::new(directory.clone()).summary().ok().flatten();
        let (source, transcript) = conversation(&directory, &run);
        Ok(Self {
            directory,
            run,
            evidence,
            source,
            summary,
            changes,
            is_running,
            tape: None,
            transcript,
            contradiction: None,
        })
    }

    /// A tape has no seal; it has digests of its own, and its parts are compared with each other.
    fn of_tape(directory: AbsPath, lane: Lane) -> Result<Self, KeptRunError> {
        let tape = Arc::new(Tape::open(&directory)?);
        let run = tape.run().read()?;
        let (evidence, contradiction) = read_recording(&tape, lane)?;
        Ok(Self {
            directory,
            run,
            evidence,
            source: ConversationSource::Frames,
            summary: None,
            changes: Vec::new(),
            is_running: false,
            tape: Some(tape.head.clone()),
            transcript: Vec::new(),
            contradiction,
        })
    }

    #[must_use]
    pub fn verb(&self) -> Option<RunVerb> {
        verb(&self.run.head)
    }

    /// The program of the agent, if the record says it. A command of `exec` or `shell` starts none.
    #[must_use]
    pub fn agent(&self) -> Option<AgentUsed> {
        agent_used(&self.run.head)
    }

    /// The name of the scenario, or of the agent.
    #[must_use]
    pub fn subject(&self) -> String {
        self.tape.as_ref().map_or_else(|| subject(&self.run.head), |tape| tape.scenario.name.clone())
    }

    /// Whether it is the run on a tape.
    #[must_use]
    pub const fn is_taped(&self) -> bool {
        self.tape.is_some()
    }

    /// The evidence to show: where belljar did not hold the conversation itself, with the agent's transcript.
    #[must_use]
    pub fn shown(&self) -> Evidence {
        let mut shown = self.evidence.clone();
        if self.source == ConversationSource::Frames {
            return shown;
        }
        shown.seen.clone_from(&self.transcript);
        shown.model = ModelEvidence::NotKept;
        if self.run.completeness == Completeness::Complete {
            shown.conversation = Whole::Yes;
        }
        shown
    }

    /// Whether the log has a listing of files that cannot be used.
    #[must_use]
    pub fn lost_files(&self) -> bool {
        let listed = |event: &Event| matches!(event, Event::FilesListed { .. });
        let mut known = self.run.events.iter().filter_map(|record| record.event.known());
        self.evidence.files.is_none() && known.any(listed)
    }

    /// Why the record cannot be relied on, a line each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        if self.is_running {
            return vec!["the run is still going on".to_owned()];
        }
        let changes = self.changes.iter().map(ToString::to_string);
        let own = [self.of_another_run(), self.not_started(), self.not_judged(), self.contradiction.clone()];
        changes.chain(own.into_iter().flatten()).collect()
    }

    /// A directory is named after its run, and its seal names the run of its files.
    fn of_another_run(&self) -> Option<String> {
        let (_, id) = self.directory.file_name()?.to_str()?.rsplit_once('-')?;
        let (named, found) = (RunId::parse(id)?, &self.run.head.id);
        (named != *found).then(|| {
            format!("the directory is that of the run {named}, and its files are those of the run {found}")
        })
    }

    fn not_started(&self) -> Option<String> {
        match &self.run.result.as_ref()?.status {
            RunStatus::NotStarted { why } => Some(format!("the run was not started: {why}")),
            RunStatus::Exited { .. }
            | RunStatus::Killed { .. }
            | RunStatus::LimitReached { .. }
            | RunStatus::Stopped => None,
        }
    }

    fn not_judged(&self) -> Option<String> {
        let signals = &self.summary.as_ref()?.verdict.as_ref()?.signals;
        let found = signals.iter().find(|signal| signal.code == NOT_JUDGED)?;
        Some(format!("the run was not judged: {}", found.message))
    }
}

/// The code of the signal that says why a run was not judged.
const NOT_JUDGED: &str = "not_judged";

/// The verdict on a run that belljar could not judge because it failed itself.
pub(crate) fn not_judged(exit: ExitCode, why: &str) -> RunVerdict {
    let signal =
        Signal { code: NOT_JUDGED.to_owned(), weight: SignalWeight::Unknown, message: why.to_owned() };
    RunVerdict {
        conclusion: Conclusion::Unverified,
        exit_code: exit.code(),
        checks: Vec::new(),
        signals: vec![signal],
    }
}

/// The verb that a record names; older records name none.
pub(crate) fn verb(head: &RunHead) -> Option<RunVerb> {
    head.host.get(VERB).and_then(Value::as_str).and_then(RunVerb::parse)
}

/// The program of the agent; older records do not say where it came from.
pub(crate) fn agent_used(head: &RunHead) -> Option<AgentUsed> {
    head.host.get(AGENT_USED).and_then(|value| serde_json::from_value(value.clone()).ok())
}

/// The name of the scenario, or of the agent.
pub(crate) fn subject(head: &RunHead) -> String {
    let scenario = head.host.get(SCENARIO_NAME).and_then(Value::as_str);
    scenario.map_or_else(|| head.agent.to_string(), str::to_owned)
}

/// Where the conversation of a run is known from, and the agent's transcript if it is from there.
pub(crate) fn conversation(directory: &AbsPath, run: &Run) -> (ConversationSource, Vec<Seen>) {
    let of_belljar =
        |event: &Logged| matches!(event, Logged::Known(Event::Seen { .. } | Event::ConversationEnded { .. }));
    if verb(&run.head).is_some_and(RunVerb::is_trial)
        || run.events.iter().any(|record| of_belljar(&record.event))
    {
        return (ConversationSource::Frames, Vec::new());
    }
    let seen = transcript(directory, run);
    match seen.is_empty() {
        true => (ConversationSource::None, seen),
        false => (ConversationSource::Transcript, seen),
    }
}

/// The part of the agent's transcripts that belongs to the run: a conversation that was resumed has earlier parts.
fn transcript(directory: &AbsPath, run: &Run) -> Vec<Seen> {
    let started = run.head.started_at_ms;
    let harness = harness(&run.head);
    let reader = RunReader::new(directory.clone());
    let mut entries: Vec<TranscriptEntry> = Vec::new();
    for name in transcripts(directory) {
        let bytes = reader.file(&format!("artifacts/{name}"), TRANSCRIPT_MAX).ok().flatten();
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        entries.extend(harness.transcript(&text));
    }
    entries.retain(|entry| entry.at_ms.is_none_or(|at| at >= started));
    // The sort is stable: what has no time of its own stays behind what it followed.
    let mut last = 0;
    let mut timed: Vec<(u64, TranscriptEntry)> = entries
        .into_iter()
        .map(|entry| {
            last = entry.at_ms.unwrap_or(last);
            (last, entry)
        })
        .collect();
    timed.sort_by_key(|(at, _)| *at);
    let seen = |(index, (at, entry)): (usize, (u64, TranscriptEntry))| Seen {
        seq: index as u64,
        offset_ms: at.saturating_sub(started),
        what: entry.what,
    };
    timed.into_iter().enumerate().map(seen).collect()
}

fn transcripts(directory: &AbsPath) -> Vec<String> {
    let entries = std::fs::read_dir(directory.child("artifacts")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(TRANSCRIPT)).collect();
    names.sort();
    names
}

/// The kind of agent that ran.
fn harness(head: &RunHead) -> &'static dyn Harness {
    let name = head.plan.get("harness").and_then(Value::as_str);
    let built_in = Harnesses::built_in();
    let known = built_in.list().into_iter().find(|harness| Some(harness.profile().name.as_str()) == name);
    known.unwrap_or_else(|| built_in.usual())
}
