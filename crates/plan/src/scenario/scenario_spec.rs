//! The keys of a scenario. One definition: decoding, hints and the JSON Schema come from it.

use super::data::AnyList;
use super::hosts::WrittenHost;
use super::words::{Capability, Fidelity, LocalExecution, OnUnanswered};
use crate::manifest::{Line, PathText};
use belljar_contract::decode::{At, Decode, Fault, Faults, Kind, Node, Scalar, table};
use belljar_contract::{HostPattern, HostTarget, Lane, PatternPort};
use serde_json::{Value, json};
use std::time::Duration;

table! {
    /// A scenario: a prompt, the answers to the agent's questions, and checks.
    "a scenario"
    pub struct ScenarioSpec {
        /// Name of the scenario; the file name without its extension when absent.
        name: Option<At<Line>>,
        /// Which facts of the emulated platform count; only `latest`.
        baseline: Option<At<Line>>,
        /// The session file, relative to this one; `(inline)` for a session without anything.
        session: Option<At<SessionReference>>,
        /// How the agent is isolated from this machine.
        fidelity: Option<At<Fidelity>>,
        /// Where the scenario runs; only `local`.
        execution: Option<At<LocalExecution>>,
        /// How results reach the user: `local` as files, `remote` only as handed over by the agent.
        lane: Option<At<Lane>>,
        /// The prompt, sent to the agent unchanged; `/name` at its beginning calls a skill.
        prompt: At<PromptText>,
        /// Time limit for the whole run, in milliseconds.
        timeout_ms: Option<At<Milliseconds>>,
        /// Rules that answer the agent's questions; the first that matches decides.
        answers: Option<AnyList>,
        /// What happens to a question that no rule answers; `fail` when absent.
        on_unanswered: Option<At<OnUnanswered>>,
        /// Hosts that must have been refused.
        expect_denied: Vec<At<DeniedHost>>,
        /// Checks of the run.
        assert: Option<AnyList>,
        /// The skills that this scenario is about; all when absent. The session must have them.
        skills: Vec<At<Line>>,
        /// Capabilities that the image must have. Images are not examined: the run is unverified unless
        /// `allow_missing_capability` lets that pass.
        requires_capabilities: Vec<At<Capability>>,
        /// Whether the agent may write to a connected directory itself. Taken with a warning: it works on a copy.
        allow_host_writes: Option<At<bool>>,
    }
}

/// A text that is not blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText(pub String);

impl Scalar for PromptText {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        let crate::manifest::Text(text) = crate::manifest::Text::parse(text)?;
        if text.trim().is_empty() {
            return Err(Fault::new("expected a prompt, found an empty one"));
        }
        Ok(Self(text))
    }
    fn pattern() -> Option<&'static str> {
        Some("[^ \\t\\r\\n]")
    }
}

/// Where the session is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionReference {
    /// `(inline)`: no file, everything has its default.
    Inline,
    File(PathText),
}

impl Scalar for SessionReference {
    const EXPECTED: &'static str = "the path of a session file";
    fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "(inline)" => Ok(Self::Inline),
            path => PathText::parse(path).map(Self::File),
        }
    }
}

/// A span of time above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub Duration);

impl Milliseconds {
    /// Thirty days, in milliseconds.
    const MAX: u64 = 30 * 24 * 3600 * 1000;
}

impl Decode for Milliseconds {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let number = match node.kind {
            Kind::Integer(number) => Some(number),
            // `1e5` is a whole number too.
            #[expect(clippy::cast_possible_truncation, reason = "the range is looked at first")]
            Kind::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => Some(number as i64),
            Kind::Float(_) => None,
            Kind::Null
            | Kind::String(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => return faults.mismatch(node, "a number of milliseconds"),
        };
        let fits = number.and_then(|n| u64::try_from(n).ok()).filter(|n| (1..=Self::MAX).contains(n));
        if fits.is_none() {
            let message = format!("expected a whole number of milliseconds between 1 and {}", Self::MAX);
            faults.push("invalid-value", &node.span, Fault::new(message));
        }
        fits.map(|n| Self(Duration::from_millis(n)))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 1, "maximum": Self::MAX})
    }
}

/// A host, or `*.domain` for the names below it.
#[derive(Debug, Clone)]
pub struct DeniedHost(pub Node);

impl Decode for DeniedHost {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let WrittenHost(HostPattern { target, port }) = WrittenHost::decode(node, faults)?;
        let fault = match (target, port) {
            (HostTarget::Range(_), _) => {
                Fault::new("expected a host, found a range of addresses").help("name the hosts")
            }
            (HostTarget::Exact(_) | HostTarget::AnyUnder(_) | HostTarget::Address(_), port) => match port {
                PatternPort::Unwritten => return Some(Self(node.clone())),
                PatternPort::Written(_) => Fault::new("expected a host, found a port behind it")
                    .help("leave the port out; a host counts as refused whatever the port"),
            },
        };
        faults.invalid(node, fault)
    }

    fn schema() -> Value {
        WrittenHost::schema()
    }
}
