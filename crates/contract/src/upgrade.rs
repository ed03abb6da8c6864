//! What recordings do on another version of the agent.

use crate::{AbsPath, ExitCode, Outcome};
use serde::Serialize;
use serde_json::{Value, json};

/// Recordings that were replayed on another version of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpgradeReport {
    /// The version that was asked for; `None` if the sessions or the search path decide.
    pub agent: Option<String>,
    /// One for each tape, in their order.
    pub results: Vec<UpgradedTape>,
    /// What the other version sends otherwise, each difference once.
    pub moved: Vec<MovedInTapes>,
    /// The recordings that should be made again.
    pub record_again: Vec<RecordAgain>,
    /// The command lines that do so.
    pub commands: Vec<String>,
    /// How many tapes were not replayed.
    pub not_started: usize,
    /// Whether a signal ended the report.
    pub interrupted: bool,
}

/// What one recording did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpgradedTape {
    pub tape: AbsPath,
    pub scenario: Option<String>,
    pub outcome: UpgradeOutcome,
    /// What this tape adds to the exit status.
    pub exit_code: u8,
    /// The version of the agent that was recorded, and of the one that was run.
    pub recorded_on: Option<String>,
    pub replayed_on: Option<String>,
    /// The reasons for the outcome beside the checks and drifts.
    pub why: Vec<String>,
    /// The checks whose outcome is another one.
    pub checks: Vec<ChangedCheck>,
    pub drifts: Vec<UpgradeDrift>,
    /// What changed in the test itself since the recording.
    pub stale: Vec<String>,
    /// `None` if the tape was not replayed.
    pub requests: Option<UpgradeRequests>,
    /// Characters of the system prompt and the definitions of the agent's own tools, if another version sent them.
    pub fixed_prompt: Option<SizeChange>,
    /// What the other version sent otherwise.
    pub moved: Vec<Moved>,
    /// The directory of the run.
    pub run: Option<AbsPath>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeOutcome {
    SameVerdict,
    VerdictChanged,
    Drifted,
    /// No verdict, because the test changed since, or something is unknown.
    Unverified,
    NotRun,
    Interrupted,
}

impl UpgradeOutcome {
    pub const ALL: [Self; 6] = [
        Self::SameVerdict,
        Self::VerdictChanged,
        Self::Drifted,
        Self::Unverified,
        Self::NotRun,
        Self::Interrupted,
    ];

    /// The outcome for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::SameVerdict => "replays with the same verdict",
            Self::VerdictChanged => "verdict changed",
            Self::Drifted => "drifted",
            Self::Unverified => "not verified",
            Self::NotRun => "could not run",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A check whose outcome is another one on the other version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedCheck {
    pub check: String,
    pub recorded: Outcome,
    pub present: Outcome,
    /// The reason for the present outcome.
    pub message: String,
}

/// The place where a replay left its tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpgradeDrift {
    /// The kind of drift, for people.
    pub kind: String,
    /// The conversation, the request and the place in it.
    pub place: String,
    pub recorded: Option<String>,
    pub present: Option<String>,
    /// The tool call whose result it is.
    pub call: Option<String>,
}

/// The agent's requests to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UpgradeRequests {
    pub recorded: u64,
    /// Until the first drift, if there is one.
    pub present: u64,
    /// Recorded requests that came after one that was recorded later in the same conversation.
    pub reordered: u64,
    /// Recorded requests that did not come; those after a drift are not among them.
    pub absent: u64,
}

/// A size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeChange {
    pub recorded: usize,
    pub present: usize,
}

/// What a difference of the agent's own side is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MovedKind {
    ToolAdded,
    ToolRemoved,
    ToolRenamed,
    ToolChanged,
    ResultWorded,
    Parameter,
    SystemPrompt,
    Reminders,
}

impl MovedKind {
    const ALL: [Self; 8] = [
        Self::ToolAdded,
        Self::ToolRemoved,
        Self::ToolRenamed,
        Self::ToolChanged,
        Self::ResultWorded,
        Self::Parameter,
        Self::SystemPrompt,
        Self::Reminders,
    ];

    /// The kind for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::ToolAdded => "tool added",
            Self::ToolRemoved => "tool removed",
            Self::ToolRenamed => "tool renamed",
            Self::ToolChanged => "tool defined otherwise",
            Self::ResultWorded => "result worded otherwise",
            Self::Parameter => "parameter",
            Self::SystemPrompt => "characters of the system prompt",
            Self::Reminders => "characters of the reminders",
        }
    }

    /// Whether a difference is its name alone.
    #[must_use]
    pub const fn is_named(self) -> bool {
        match self {
            Self::ToolAdded | Self::ToolRemoved | Self::ToolChanged | Self::ResultWorded => true,
            Self::ToolRenamed | Self::Parameter | Self::SystemPrompt | Self::Reminders => false,
        }
    }

    /// Whether the values are sizes, which differ from tape to tape for the same reason.
    #[must_use]
    pub const fn is_size(self) -> bool {
        match self {
            Self::SystemPrompt | Self::Reminders => true,
            Self::ToolAdded
            | Self::ToolRemoved
            | Self::ToolRenamed
            | Self::ToolChanged
            | Self::ResultWorded
            | Self::Parameter => false,
        }
    }
}

/// A difference of the agent's own side.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Moved {
    pub kind: MovedKind,
    /// The tool or the parameter; empty for a size.
    pub name: String,
    /// The recorded value; `None` if there was none.
    pub recorded: Option<String>,
    pub present: Option<String>,
}

impl Moved {
    /// The difference in one line.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { kind, name, recorded, present } = self;
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let what = kind.describe();
        match kind {
            MovedKind::ToolAdded
            | MovedKind::ToolRemoved
            | MovedKind::ToolChanged
            | MovedKind::ResultWorded => format!("{what}: {name}"),
            MovedKind::ToolRenamed => format!("{what}: {} to {}", text(recorded), text(present)),
            MovedKind::Parameter => {
                format!("{what} {name}: {} when recorded, now {}", text(recorded), text(present))
            }
            MovedKind::SystemPrompt | MovedKind::Reminders => {
                format!("{what}: {} when recorded, now {}", text(recorded), text(present))
            }
        }
    }
}

/// A difference, and in how many tapes it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MovedInTapes {
    #[serde(flatten)]
    pub moved: Moved,
    pub tapes: usize,
}

/// A recording that should be made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordAgain {
    pub tape: AbsPath,
    pub why: Vec<String>,
    /// The exit status of making it again; `None` if that was not asked for.
    pub status: Option<u8>,
    /// Why it was not made again.
    pub error: Option<String>,
}

impl UpgradeReport {
    /// The exit status. What was recorded again counts as done; what was not counts with both statuses.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        let code = |status: u8| ExitCode::from_status(i32::from(status)).unwrap_or(ExitCode::Bug);
        let codes = self.results.iter().map(|tape| {
            let made = self.record_again.iter().find(|again| again.tape == tape.tape);
            match made.and_then(|again| again.status).map(code) {
                None => code(tape.exit_code),
                Some(ExitCode::Passed) => ExitCode::Passed,
                Some(status) => ExitCode::worst([code(tape.exit_code), status]),
            }
        });
        ExitCode::of_all(codes, self.interrupted)
    }

    /// How many tapes have this outcome.
    #[must_use]
    pub fn count(&self, outcome: UpgradeOutcome) -> usize {
        self.results.iter().filter(|tape| tape.outcome == outcome).count()
    }

    /// The JSON Schema of the report.
    #[must_use]
    pub fn schema() -> Value {
        let text = json!({"type": "string"});
        let maybe = json!({"type": ["string", "null"]});
        let count = json!({"type": "integer", "minimum": 0});
        let status = json!({"enum": ExitCode::ALL.map(ExitCode::code)});
        let list = |items: Value| json!({"type": "array", "items": items});
        let texts = list(text.clone());
        let outcome = json!({"enum": ["pass", "fail", "unknown", "waived"]});
        let check = object(&[
            ("check", text.clone()),
            ("recorded", outcome.clone()),
            ("present", outcome),
            ("message", text.clone()),
        ]);
        let drift = object(&[
            ("kind", text.clone()),
            ("place", text.clone()),
            ("recorded", maybe.clone()),
            ("present", maybe.clone()),
            ("call", maybe.clone()),
        ]);
        let requests = ["recorded", "present", "reordered", "absent"].map(|name| (name, count.clone()));
        let size = ["recorded", "present"].map(|name| (name, count.clone()));
        let moved = [
            ("kind", json!({"enum": MovedKind::ALL})),
            ("name", text.clone()),
            ("recorded", maybe.clone()),
            ("present", maybe.clone()),
        ];
        let in_tapes = [&moved[..], &[("tapes", count.clone())]].concat();
        let again = object(&[
            ("tape", text.clone()),
            ("why", texts.clone()),
            (
                "status",
                json!({"enum": ExitCode::ALL.map(|code| Some(code.code())).iter().chain([&None]).collect::<Vec<_>>()}),
            ),
            ("error", maybe.clone()),
        ]);
        let result = object(&[
            ("tape", text),
            ("scenario", maybe.clone()),
            ("outcome", json!({"enum": UpgradeOutcome::ALL})),
            ("exit_code", status),
            ("recorded_on", maybe.clone()),
            ("replayed_on", maybe.clone()),
            ("why", texts.clone()),
            ("checks", list(check)),
            ("drifts", list(drift)),
            ("stale", texts.clone()),
            ("requests", or_null(object(&requests))),
            ("fixed_prompt", or_null(object(&size))),
            ("moved", list(object(&moved))),
            ("run", maybe.clone()),
        ]);
        let mut out = object(&[
            ("agent", maybe),
            ("results", list(result)),
            ("moved", list(object(&in_tapes))),
            ("record_again", list(again)),
            ("commands", texts),
            ("not_started", count),
            ("interrupted", json!({"type": "boolean"})),
        ]);
        out["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        out["title"] = json!("`data` of what `belljar tape upgrade-report --json` prints");
        out
    }
}

/// An object with exactly these members.
fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": names, "properties": properties, "additionalProperties": false})
}

fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!(["object", "null"]);
    schema
}
