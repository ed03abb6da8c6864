//! The JSON Schemas of the files that people write, and of what `--json` prints.

use serde_json::Value;

/// A kind of document with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaKind {
    Manifest,
    Scenario,
    Session,
    AnswerPolicy,
    /// The answers of a scripted model.
    Script,
    /// What `--json` prints.
    Output,
    /// The `data` of what `tape upgrade-report --json` prints.
    UpgradeReport,
}

impl SchemaKind {
    pub const ALL: [Self; 7] = [
        Self::Manifest,
        Self::Scenario,
        Self::Session,
        Self::AnswerPolicy,
        Self::Script,
        Self::Output,
        Self::UpgradeReport,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Scenario => "scenario",
            Self::Session => "session",
            Self::AnswerPolicy => "answer-policy",
            Self::Script => "script",
            Self::Output => "output",
            Self::UpgradeReport => "upgrade-report",
        }
    }

    #[must_use]
    pub fn schema(self) -> Value {
        match self {
            Self::Manifest => belljar_plan::json_schema(),
            Self::Scenario => belljar_plan::scenario_schema(
                &belljar_verdict::schema(),
                &belljar_session::decider::rule_schema(),
            ),
            Self::Session => belljar_plan::session_schema(),
            Self::AnswerPolicy => belljar_session::decider::policy_schema(),
            Self::Script => belljar_egress::script::script_schema(),
            Self::Output => belljar_contract::Envelope::schema(),
            Self::UpgradeReport => belljar_contract::UpgradeReport::schema(),
        }
    }
}
