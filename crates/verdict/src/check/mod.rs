//! Every check, one family to a file. A new one is a file here and its line in [`FAMILIES`].

mod artifact_json;
mod artifact_text;
mod budget;
mod compaction;
mod delete;
mod egress;
mod file;
mod gate;
mod hook;
mod host_path;
mod input_unmodified;
mod inventory;
mod mcp;
mod modifier;
mod question;
mod redundant;
mod result;
mod semantic;
mod skill;
mod subagent;
mod subagent_write;
mod task;
mod tool;
mod tool_error;
mod tool_result;
mod transcript;
mod unexpected;

use crate::finding::{Finding, RestsOn};
use crate::run::Run;
use belljar_contract::decode::{Faults, Node};
use belljar_contract::{Claim, Outcome, holds_redaction};
use serde_json::Value;

/// A check: a pure look at a run.
pub(crate) trait Check: std::fmt::Debug + Send + Sync {
    /// What the evidence says.
    fn judge(&self, run: &Run<'_>) -> Finding;

    /// The texts in which it looks for something, if one of its outcomes says that they do not hold it.
    fn search<'a>(&self, _run: &Run<'a>) -> Option<Search<'a>> {
        None
    }

    /// What is wrong with the check itself, beyond the form of its value.
    fn misuse(&self) -> Option<String> {
        None
    }

    /// What a reader must be asked before it can be judged.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// What it does to the rest of the verdict.
    fn effect(&self) -> Effect {
        Effect::None
    }
}

/// The texts that a check searches.
pub(crate) struct Search<'a> {
    /// The outcome that it has if they do not hold what it looks for.
    pub without: Outcome,
    pub texts: Vec<&'a str>,
}

impl<'a> Search<'a> {
    /// For a check that wants something to be there.
    pub(crate) fn wanted(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        Some(Self { without: Outcome::Fail, texts: texts.into_iter().collect() })
    }

    /// For a check that wants something not to be there.
    pub(crate) fn unwanted(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        Some(Self { without: Outcome::Pass, texts: texts.into_iter().collect() })
    }

    /// The finding, or unknown if it says that something is not in texts from which values were redacted.
    pub(crate) fn unless_redacted(&self, finding: Finding) -> Finding {
        let redacted = || self.texts.iter().find(|text| holds_redaction(text.as_bytes()));
        match (finding.outcome == self.without).then(redacted).flatten() {
            Some(text) => {
                Finding::unknown(format!("{}, but a value was redacted there", finding.message)).shown(text)
            }
            None => finding,
        }
    }
}

/// What a check does to the rest of the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// A failure of the agent is what the author wants to see.
    ExpectsError,
    /// A signal does not count.
    Softens(Softened),
    /// Without a sandbox these checks do not count.
    WaivesIsolation(Vec<&'static str>),
}

/// A signal that the author lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Softened {
    PermissiveAutoAllow,
    Stall,
    OutputsDelete,
    DeleteIn(Vec<String>),
    MissingCapability,
    /// Something that belljar does not hold against a run in the first place.
    Nothing,
}

/// A key of an item, with all that is known about it.
pub(crate) struct Key {
    pub name: &'static str,
    pub group: Group,
    /// Which of its findings rest on a sandbox.
    pub isolation: Isolation,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
    /// The JSON Schema of its value.
    pub schema: fn() -> Value,
    /// The check of a value; `None` after a fault.
    pub decode: fn(&Node, &mut Faults<'_>) -> Option<Box<dyn Check>>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}

/// Which findings of a check rest on the sandbox of the run. Each check decides it; without a sandbox such a finding is
/// unknown. The text says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// belljar itself saw what the finding is about.
    NotNeeded,
    /// A pass says that something did not happen, and it may have happened where belljar does not look. A failure was seen.
    ForPass(&'static str),
    /// A failure says that something did not happen. A pass was seen.
    ForFail(&'static str),
    /// Neither says anything, but for what a finding itself calls seen.
    Needed(&'static str),
}

impl Isolation {
    /// Why such a finding says nothing without a sandbox; `None` if it does, or if it is unknown for another reason.
    pub(crate) const fn missing(self, found: &Finding) -> Option<&'static str> {
        let rests = match (found.rests_on, found.outcome) {
            (RestsOn::Seen, _) => false,
            (RestsOn::Sandbox, _) => true,
            (RestsOn::Key, Outcome::Pass) => matches!(self, Self::ForPass(_) | Self::Needed(_)),
            (RestsOn::Key, Outcome::Fail) => matches!(self, Self::ForFail(_) | Self::Needed(_)),
            (RestsOn::Key, Outcome::Unknown | Outcome::Waived) => false,
        };
        if rests { self.reason() } else { None }
    }

    /// Why any of its findings may say nothing without a sandbox.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::NotNeeded => None,
            Self::ForPass(why) | Self::ForFail(why) | Self::Needed(why) => Some(why),
        }
    }
}

/// What keys are about, in the order of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Outcome,
    Tools,
    Files,
    Questions,
    SubAgents,
    Skills,
    Tasks,
    Hooks,
    Budgets,
    Egress,
    Modifiers,
}

impl Group {
    pub(crate) const ALL: [Self; 11] = [
        Self::Outcome,
        Self::Tools,
        Self::Files,
        Self::Questions,
        Self::SubAgents,
        Self::Skills,
        Self::Tasks,
        Self::Hooks,
        Self::Budgets,
        Self::Egress,
        Self::Modifiers,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Outcome => "Outcome and words",
            Self::Tools => "Tools",
            Self::Files => "Files",
            Self::Questions => "Questions to the user",
            Self::SubAgents => "Sub-agents",
            Self::Skills => "Skills",
            Self::Tasks => "Tasks",
            Self::Hooks => "Hooks",
            Self::Budgets => "Budgets",
            Self::Egress => "Egress",
            Self::Modifiers => "What may pass",
        }
    }
}

/// Makes a check from its documentation, its key, what it needs of the sandbox, and the type of its value.
macro_rules! check {
    (
        $(#[doc = $doc:literal])+
        $name:ident($group:ident, $key:literal, $isolation:ident $(($why:literal))?): $value:ty
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug)]
        struct $name($value);

        impl $name {
            const KEY: $crate::check::Key = $crate::check::Key {
                name: $key,
                group: $crate::check::Group::$group,
                isolation: $crate::check::Isolation::$isolation $(($why))?,
                doc: &[$($doc),+],
                schema: <$value as ::belljar_contract::decode::Decode>::schema,
                decode: |node, faults| {
                    let check =
                        $name(faults.whole(|faults| ::belljar_contract::decode::Decode::decode(node, faults))?);
                    match $crate::check::Check::misuse(&check) {
                        Some(why) => faults.invalid(node, ::belljar_contract::decode::Fault::new(why)),
                        None => Some(Box::new(check)),
                    }
                },
            };
        }
    };
}

use check;

pub(crate) const FAMILIES: &[&[Key]] = &[
    result::KEYS,
    transcript::KEYS,
    host_path::KEYS,
    compaction::KEYS,
    semantic::KEYS,
    tool::KEYS,
    inventory::KEYS,
    tool_result::KEYS,
    tool_error::KEYS,
    redundant::KEYS,
    mcp::KEYS,
    file::KEYS,
    artifact_json::KEYS,
    artifact_text::KEYS,
    unexpected::KEYS,
    input_unmodified::KEYS,
    delete::KEYS,
    question::KEYS,
    gate::KEYS,
    subagent::KEYS,
    subagent_write::KEYS,
    skill::KEYS,
    task::KEYS,
    hook::KEYS,
    budget::KEYS,
    egress::KEYS,
    modifier::KEYS,
];

/// Every key, in the order of the reference.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
