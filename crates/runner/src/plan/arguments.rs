//! The agent's arguments that options of the command line stand for.

use crate::plan::planned::Planned;
use belljar_contract::{HarnessProfile, HomeMode, OsText};

/// The flags of an agent that belljar uses, or looks for among its arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct HarnessFlags {
    /// Flags whose value names the conversation.
    named: Vec<String>,
    /// Flags that mean the newest conversation.
    newest: Vec<String>,
    /// What stands before a message that the agent answers before it ends.
    one_message: Vec<String>,
}

/// A conversation that the agent goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Continued {
    Newest,
    /// The one with this id.
    Named(String),
}

/// What the command line says to the agent.
#[derive(Debug, Clone, Default)]
pub struct AgentWords {
    pub continued: Option<Continued>,
    /// A message that the agent answers before it ends.
    pub message: Option<String>,
    /// Arguments as they are.
    pub further: Vec<OsText>,
}

/// Why the agent cannot be started with these words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WordsError {
    #[error("{harness} has no flag {purpose}")]
    NoFlag { harness: String, purpose: &'static str },
    #[error("there is no conversation to go on with: `home = \"clean\"` keeps none")]
    NothingKept,
    #[error("the arguments behind `--` name a conversation too")]
    TwoConversations,
}

impl HarnessFlags {
    pub(crate) fn of(profile: &HarnessProfile) -> Self {
        Self {
            named: profile.session_flags.clone(),
            newest: profile.newest_session_flags.clone(),
            one_message: profile.one_message.clone(),
        }
    }

    /// The conversation that arguments ask to continue.
    pub(crate) fn continued(&self, arguments: &[OsText]) -> Option<String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        for (at, argument) in arguments.iter().enumerate() {
            if self.newest.contains(argument) {
                return Some("newest".to_owned());
            }
            for flag in &self.named {
                if argument == flag {
                    return arguments.get(at + 1).cloned();
                }
                if let Some(id) = argument.strip_prefix(flag.as_str()).and_then(|rest| rest.strip_prefix('='))
                {
                    return Some(id.to_owned());
                }
            }
        }
        None
    }
}

impl Planned {
    /// The arguments for the agent. They take the place of the manifest's prompt.
    ///
    /// # Errors
    /// If the agent has no such flag, or the words contradict each other or the plan.
    pub fn arguments(&self, words: &AgentWords) -> Result<Vec<OsText>, WordsError> {
        let AgentWords { continued, message, further } = words;
        let plan = &self.compiled.plan;
        let HarnessFlags { named, newest, one_message } = &self.flags;
        let missing = |purpose| WordsError::NoFlag { harness: plan.harness.clone(), purpose };
        let mut out = Vec::new();
        if let Some(continued) = continued {
            if plan.home == HomeMode::Clean {
                return Err(WordsError::NothingKept);
            }
            if self.flags.continued(further).is_some() {
                return Err(WordsError::TwoConversations);
            }
            let (flags, id) = match continued {
                Continued::Newest => (newest, None),
                Continued::Named(id) => (named, Some(id.clone())),
            };
            out.push(flags.first().cloned().ok_or_else(|| missing("that continues a conversation"))?);
            out.extend(id);
        }
        if let Some(message) = message {
            if one_message.is_empty() {
                return Err(missing("for a single message"));
            }
            out.extend(one_message.iter().chain([message]).cloned());
        }
        // Neither the command line nor a profile can contain a NUL.
        let own = out.into_iter().filter_map(|word| OsText::new(word).ok());
        Ok(own.chain(further.iter().cloned()).collect())
    }
}
