//! What a run says about itself, in the past tense and in one order.
//!
//! The words are few and closed. What the command printed is not an event: it belongs to files beside the log; what an
//! agent said in its protocol is. No event holds a value of the environment or an argument of the command, because both
//! may be secret.
//!
//! [`EVENT_FORMAT`] rises when a word changes its meaning or loses a member. A new word does not raise it: a reader
//! that does not know the word keeps it as it stands ([`Logged::Unread`]), shows the rest, and can tell that there is
//! something it did not understand, which is more than refusing the whole run would give.

use crate::{
    AbsPath, AgentName, BackendKind, ConversationEnd, Digest, GuestAct, GuestEnd, GuestLandlock, Observation,
    OsText, Purpose, RunId, RunName, RunStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the stored form of [`Event`]. Readers refuse a larger one.
pub const EVENT_FORMAT: u32 = 1;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The first event of every run.
    RunStarted {
        /// The run.
        run: RunId,
        /// How people call it while it runs.
        name: RunName,
        /// The agent.
        agent: AgentName,
        /// The digest of the plan.
        plan: Digest,
        /// What built the walls.
        backend: BackendKind,
        /// What the sandbox was for.
        purpose: Purpose,
        /// The version of belljar.
        belljar: String,
        /// Milliseconds since 1970; every other time is an offset to it.
        started_at_ms: u64,
    },
    /// Every wall stood; the command had not been started.
    Sealed {
        /// What Landlock added.
        landlock: GuestLandlock,
    },
    /// The command ran.
    CommandStarted {
        /// Its first word only; the others may be secret.
        argv0: OsText,
    },
    /// A limit was put in force.
    LimitSet {
        /// Of what.
        limit: LimitKind,
        /// As the manifest writes it.
        value: String,
        /// What enforced it.
        mechanism: String,
    },
    /// A limit was reached.
    LimitReached {
        /// Of what.
        limit: LimitKind,
    },
    /// A signal that came to belljar was passed on to the command.
    SignalForwarded {
        /// Its number.
        signal: i32,
    },
    /// A file was made in the project that the host would execute later.
    HostExecutedCreated {
        /// The file, on the host.
        path: AbsPath,
        /// Who would execute it, and when.
        why: String,
    },
    /// Something was kept from being made, written, moved or linked, because the host would execute it later.
    HostExecutedHeld {
        /// The file, on the host.
        path: AbsPath,
        /// What was tried.
        act: GuestAct,
        /// Who would execute it, and when.
        why: String,
    },
    /// The user was asked whether such an attempt may succeed.
    HostExecutedAsked {
        /// The file, on the host.
        path: AbsPath,
        /// What was tried.
        act: GuestAct,
        /// Who would execute it, and when.
        why: String,
    },
    /// The question was settled.
    HostExecutedAnswered {
        /// The file, on the host.
        path: AbsPath,
        /// What was tried.
        act: GuestAct,
        /// How.
        answer: HeldAnswer,
    },
    /// What became of the project.
    WorkspaceChanged {
        /// Files that were not there before.
        created: u64,
        /// Files with another content.
        changed: u64,
        /// Files that are gone.
        removed: u64,
    },
    /// The files of the workspace, before and after, are listed beside the log.
    FilesListed {
        /// The digest of the listing.
        listing: Digest,
    },
    /// The log of the ways out was closed.
    EgressLogged {
        /// The chain of its last line, so that another log cannot take its place.
        head: Digest,
    },
    /// The record of the frames is closed.
    FramesLogged {
        /// The chain of its last line, so that another record cannot take its place.
        head: Digest,
    },
    /// The log of the model is closed.
    ModelLogged {
        /// The chain of its last line, so that another log cannot take its place.
        head: Digest,
    },
    /// Something was seen of the conversation with the agent.
    Seen {
        /// What.
        what: Box<Observation>,
    },
    /// The conversation with the agent ended.
    ConversationEnded {
        /// How.
        end: Box<ConversationEnd>,
    },
    /// The command ended.
    CommandEnded {
        /// How.
        end: GuestEnd,
    },
    /// Something a person should read.
    Notice {
        /// The text.
        text: String,
    },
    /// Something made for the run could not be taken away.
    CleanupFailed {
        /// What.
        what: String,
        /// Why not.
        why: String,
    },
    /// The last event of every run that ended in order.
    RunEnded {
        /// How.
        status: RunStatus,
        /// How long it took.
        duration_ms: u64,
    },
}

/// How a question about a file that the host would execute was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldAnswer {
    /// The attempt failed.
    No,
    /// This attempt succeeded.
    Once,
    /// The file may be changed until the run ends.
    Run,
    /// The file may be changed in every run of the project.
    Always,
    /// Nobody answered before the caller or the run ended; the attempt failed.
    Unanswered,
}

impl HeldAnswer {
    /// Whether the attempt was allowed.
    #[must_use]
    pub const fn is_yes(self) -> bool {
        match self {
            HeldAnswer::Once | HeldAnswer::Run | HeldAnswer::Always => true,
            HeldAnswer::No | HeldAnswer::Unanswered => false,
        }
    }
}

/// What a run may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Memory, swap included.
    Memory,
    /// Processes and threads.
    Pids,
    /// Processors.
    Cpu,
    /// Wall clock.
    Time,
    /// Money.
    Cost,
    /// All file systems in memory together.
    Tmpfs,
}

/// An event as a log holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Its number, from 0 without a gap.
    pub seq: u64,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    /// What happened.
    pub event: Logged,
}

/// An event that was read back.
#[derive(Debug, Clone, PartialEq)]
pub enum Logged {
    /// One that this version knows.
    Known(Event),
    /// One that it does not know, as it stands in the log. A verdict that would need it cannot be reached.
    Unread(Value),
}

impl Logged {
    /// Reads an event; what is not one is kept.
    #[must_use]
    pub fn from_json(value: Value) -> Self {
        match Event::deserialize(&value) {
            Ok(event) => Logged::Known(event),
            Err(_unknown) => Logged::Unread(value),
        }
    }

    /// The event, where it is known.
    #[must_use]
    pub fn known(&self) -> Option<&Event> {
        match self {
            Logged::Known(event) => Some(event),
            Logged::Unread(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_a_flat_object_with_its_kind() {
        let event = Event::LimitSet {
            limit: LimitKind::Memory,
            value: "4G".to_owned(),
            mechanism: "cgroup v2".to_owned(),
        };
        let value = json!({"kind": "limit_set", "limit": "memory", "value": "4G", "mechanism": "cgroup v2"});
        assert_eq!(json!(event), value);
        assert_eq!(Logged::from_json(value), Logged::Known(event));
    }

    #[test]
    fn names_that_are_not_utf8_survive() {
        use std::os::unix::ffi::OsStrExt;
        let path = AbsPath::new(std::ffi::OsStr::from_bytes(b"/p/\xff\n")).unwrap();
        let event = Event::HostExecutedCreated { path, why: "git runs it".to_owned() };
        assert_eq!(Logged::from_json(json!(event)), Logged::Known(event));
        let event = Event::CommandStarted { argv0: OsText::new(b"\xfe".to_vec()).unwrap() };
        assert_eq!(Logged::from_json(json!(event)), Logged::Known(event));
    }

    #[test]
    fn what_is_not_known_is_kept_as_it_stands() {
        for value in [
            json!({"kind": "moon_phase_seen", "phase": 3}),
            json!({"kind": "notice", "text": "a", "more": 1}),
            json!({"kind": "limit_reached", "limit": "patience"}),
            json!(7),
        ] {
            assert_eq!(Logged::from_json(value.clone()), Logged::Unread(value));
        }
    }
}
