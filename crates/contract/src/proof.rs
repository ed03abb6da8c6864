//! What was proved about the walls, and what this machine can build them with.

use crate::ExitCode;
use serde::Serialize;

/// What was seen of a probe on one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// It went through.
    Open {
        /// How that was seen.
        how: String,
    },
    /// It went through, and belljar reported it.
    Reported {
        /// How that was seen.
        how: String,
    },
    /// It did not.
    Closed {
        /// How that was seen.
        how: String,
    },
    /// Nothing was seen.
    Unseen {
        /// Why not.
        why: String,
    },
}

impl Sight {
    /// One word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Sight::Open { .. } => "open",
            Sight::Reported { .. } => "reported",
            Sight::Closed { .. } => "closed",
            Sight::Unseen { .. } => "unseen",
        }
    }

    /// How it was seen, or why not.
    #[must_use]
    pub fn how(&self) -> &str {
        match self {
            Sight::Open { how } | Sight::Reported { how } | Sight::Closed { how } => how,
            Sight::Unseen { why } => why,
        }
    }
}

/// What a row comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Open on the host, closed inside: there is a wall.
    Closed,
    /// It happened, and belljar reported it to the user: nothing prevents it.
    Reported,
    /// Open inside.
    Open,
    /// Closed on the bare host already, so being closed inside shows no wall.
    ProvesNothing,
    /// Nothing was seen inside.
    Unseen,
    /// What must work inside works.
    Works,
    /// What must work inside does not.
    Broken,
    /// Open inside on purpose.
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

/// One probe and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProofRow {
    /// Its name.
    pub id: String,
    /// What is tried.
    pub what: String,
    /// What must be seen inside.
    pub expected: String,
    /// Why it matters.
    pub why: String,
    /// On the bare host.
    pub host: Sight,
    /// Inside.
    pub inside: Sight,
    /// What it comes to.
    pub verdict: Verdict,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The rows, in order.
    pub rows: Vec<ProofRow>,
}

impl Proof {
    /// How many rows came to this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The status that goes with it. What is only reported is neither closed nor a failure. Not having seen is not a pass, and neither is having shown no wall at all.
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

/// One thing that `doctor` looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// Its name.
    pub id: &'static str,
    /// How it is.
    pub state: CheckupState,
    /// What was seen.
    pub seen: String,
    /// What is lost without it; empty where nothing is.
    pub loses: String,
    /// What to do, a line each.
    pub fix: Vec<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckupState {
    /// As it should be.
    Good,
    /// Not there, and a plan can do without.
    Absent,
    /// Not there, and the default plan cannot be honoured.
    Bad,
}
