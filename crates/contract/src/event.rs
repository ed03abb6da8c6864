//! The events of a run, named in the past tense and in one order.
//!
//! The set of events is small and closed. The output of a command is not an event; it is kept in files next to the
//! log. What an agent says in its protocol is an event. No event contains a value of the environment or an argument
//! of the command, because both may be secret.
//!
//! [`EVENT_FORMAT`] rises when an event changes its meaning or loses a member. A new event does not raise it: a
//! reader that does not know the event keeps it as it is ([`Logged::Unread`]), shows the rest, and knows that it did
//! not understand everything. Refusing the whole run would give less.

use crate::{
    AbsPath, AgentName, BackendKind, ClaimAnswer, ConversationEnd, Digest, GuestAct, GuestEnd, GuestLandlock,
    JudgeUsage, Observation, OpenNeed, OsText, Purpose, RunId, RunName, RunStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the stored form of [`Event`]. Readers refuse a larger one.
pub const EVENT_FORMAT: u32 = 1;

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The first event of every run.
    RunStarted {
        run: RunId,
        /// The name that commands accept while it runs.
        name: RunName,
        agent: AgentName,
        plan: Digest,
        backend: BackendKind,
        purpose: Purpose,
        belljar: String,
        /// Milliseconds since 1970; all other times are relative to it.
        started_at_ms: u64,
    },
    /// The sandbox was complete; the command had not been started.
    Sealed {
        /// What Landlock enforced in addition.
        landlock: GuestLandlock,
    },
    /// The run has no sandbox; nothing enforces these needs.
    Unsealed {
        open: Vec<OpenNeed>,
    },
    /// A signal to belljar ended the run.
    Interrupted {
        signal: i32,
    },
    /// The command started.
    CommandStarted {
        /// Its first argument only; the others may be secret.
        argv0: OsText,
    },
    /// A limit was put in force.
    LimitSet {
        limit: LimitKind,
        /// In the manifest's notation.
        value: String,
        /// The mechanism that enforced it.
        mechanism: String,
    },
    /// A limit was reached.
    LimitReached {
        limit: LimitKind,
    },
    /// A signal that belljar received was passed on to the command.
    SignalForwarded {
        signal: i32,
    },
    /// A file was created in the project that the host would execute later.
    HostExecutedCreated {
        /// Its path on the host.
        path: AbsPath,
        /// What would execute it, and when.
        why: String,
    },
    /// The guard prevented a file that the host would execute later from being created, written, moved or linked.
    HostExecutedHeld {
        /// Its path on the host.
        path: AbsPath,
        act: GuestAct,
        /// What would execute it, and when.
        why: String,
    },
    /// The user was asked whether to allow such an attempt.
    HostExecutedAsked {
        /// Its path on the host.
        path: AbsPath,
        act: GuestAct,
        /// What would execute it, and when.
        why: String,
    },
    /// Such a question was answered or became void.
    HostExecutedAnswered {
        /// Its path on the host.
        path: AbsPath,
        act: GuestAct,
        answer: HeldAnswer,
    },
    /// How the run changed the project.
    WorkspaceChanged {
        /// The number of new files.
        created: u64,
        /// The number of files with different content.
        changed: u64,
        /// The number of deleted files.
        removed: u64,
    },
    /// The files of the workspace, before and after the run, were listed next to the log.
    FilesListed {
        /// The digest of the listing.
        listing: Digest,
    },
    /// The egress log was closed.
    EgressLogged {
        /// The chain of its last line, so that the log cannot be replaced by another.
        head: Digest,
    },
    /// The record of the frames was closed.
    FramesLogged {
        /// The chain of its last line, so that the record cannot be replaced by another.
        head: Digest,
    },
    /// The model log was closed.
    ModelLogged {
        /// The chain of its last line, so that the log cannot be replaced by another.
        head: Digest,
    },
    /// Something was observed in the conversation with the agent.
    Seen {
        what: Box<Observation>,
    },
    /// The conversation with the agent ended.
    ConversationEnded {
        end: Box<ConversationEnd>,
    },
    CommandEnded {
        end: GuestEnd,
    },
    /// A model judged the claims of the scenario, after the agent had ended.
    Judged {
        answers: Vec<ClaimAnswer>,
        usage: JudgeUsage,
    },
    /// A message for the user.
    Notice {
        text: String,
    },
    /// Something that was made for the run could not be removed.
    CleanupFailed {
        /// What could not be removed.
        what: String,
        /// The error of the removal.
        why: String,
    },
    /// The last event of every run that ended in order.
    RunEnded {
        status: RunStatus,
        /// How long it took.
        duration_ms: u64,
    },
}

/// The answer to a question about a file that the host would execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldAnswer {
    /// The attempt was refused.
    No,
    /// This attempt was allowed.
    Once,
    /// The file may be changed until the run ends.
    Run,
    /// The file may be changed in every run of the project.
    Always,
    /// The caller or the run ended without an answer; the attempt was refused.
    Unanswered,
}

impl HeldAnswer {
    /// Whether the answer allowed the attempt.
    #[must_use]
    pub const fn is_yes(self) -> bool {
        match self {
            HeldAnswer::Once | HeldAnswer::Run | HeldAnswer::Always => true,
            HeldAnswer::No | HeldAnswer::Unanswered => false,
        }
    }
}

/// A resource that a run is limited in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    Memory,
    Pids,
    Cpu,
    /// Elapsed time.
    Time,
    Cost,
    /// All file systems in memory together.
    Tmpfs,
}

/// An event as stored in a log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Its number, counted from 0 without gaps.
    pub seq: u64,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    pub event: Logged,
}

/// An event that was read from a log.
#[derive(Debug, Clone, PartialEq)]
pub enum Logged {
    /// An event that this version knows.
    Known(Event),
    /// An event that this version does not know, as it is in the log. A check that would need it has no result.
    Unread(Value),
}

impl Logged {
    /// Parses an event; a value that is not a known event is kept.
    #[must_use]
    pub fn from_json(value: Value) -> Self {
        match Event::deserialize(&value) {
            Ok(event) => Logged::Known(event),
            Err(_unknown) => Logged::Unread(value),
        }
    }

    /// The event; `None` if this version does not know it.
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
    fn an_unknown_event_is_kept() {
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
