//! Results of `belljar prove` and `belljar doctor`.

use crate::ExitCode;
use serde::Serialize;
use std::borrow::Cow;

/// The observed result of a probe on the host or inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeResult {
    /// It succeeded.
    Open {
        /// How that was observed.
        how: String,
    },
    /// It succeeded, and belljar reported it.
    Reported {
        /// How that was observed.
        how: String,
    },
    Closed {
        /// How that was observed.
        how: String,
    },
    /// The probe gave no result.
    Unseen {
        /// Why there is none.
        why: String,
    },
}

impl ProbeResult {
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            ProbeResult::Open { .. } => "open",
            ProbeResult::Reported { .. } => "reported",
            ProbeResult::Closed { .. } => "closed",
            ProbeResult::Unseen { .. } => "unseen",
        }
    }

    /// How it was observed, or why the probe gave no result.
    #[must_use]
    pub fn how(&self) -> &str {
        match self {
            ProbeResult::Open { how } | ProbeResult::Reported { how } | ProbeResult::Closed { how } => how,
            ProbeResult::Unseen { why } => why,
        }
    }
}

/// The conclusion from one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Open on the host and closed inside, so the sandbox prevents it.
    Closed,
    /// It succeeded inside, and belljar reported it to the user: nothing prevents it.
    Reported,
    Open,
    /// Closed on the host already, so closed inside proves nothing.
    ProvesNothing,
    /// The probe gave no result inside.
    Unseen,
    /// Something that must work inside works.
    Works,
    /// Something that must work inside does not work.
    Broken,
    /// Open inside by design.
    Given,
}

impl Verdict {
    /// For a table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Closed => "closed",
            Verdict::Reported => "reported",
            Verdict::Open => "OPEN",
            Verdict::ProvesNothing => "proves nothing here",
            Verdict::Unseen => "NOT SEEN",
            Verdict::Works => "works",
            Verdict::Broken => "BROKEN",
            Verdict::Given => "given, on purpose",
        }
    }
}

/// One probe and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProofRow {
    pub id: String,
    /// What is attempted.
    pub what: String,
    /// The result that is required inside.
    pub expected: String,
    pub why: String,
    /// The result on the host without a sandbox.
    pub host: ProbeResult,
    pub inside: ProbeResult,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The rows, in order.
    pub rows: Vec<ProofRow>,
}

impl Proof {
    /// The number of rows with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The exit code. A row that is only reported is neither closed nor a failure. A probe without a result does not
    /// pass, and neither does a proof without any closed row.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        if self.count(Verdict::Open) + self.count(Verdict::Broken) > 0 {
            ExitCode::Failed
        } else if self.count(Verdict::Unseen) > 0 || self.count(Verdict::Closed) == 0 {
            ExitCode::Unverified
        } else {
            ExitCode::Passed
        }
    }
}

/// One check of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkup {
    pub id: Cow<'static, str>,
    pub state: CheckupState,
    /// What was observed.
    pub seen: String,
    /// What does not work without it; empty if nothing is affected.
    pub loses: String,
    /// How to fix it, one line each.
    pub fix: Vec<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckupState {
    /// As it should be.
    Good,
    /// Missing, but the default plan does not need it.
    Absent,
    /// Missing, and the default plan cannot be honoured.
    Bad,
}
