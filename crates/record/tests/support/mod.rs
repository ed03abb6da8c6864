//! A run with fixed data, for tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use belljar_contract::{
    AbsPath, AgentName, BackendKind, Digest, EVENT_FORMAT, Event, GuestEnd, GuestLandlock, GuestRestriction,
    InstanceKey, LimitKind, Metrics, OsText, Purpose, RUN_FORMAT, RunHead, RunId, RunName, RunStatus,
};
use belljar_record::Redact;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// 2024-02-29 12:34:56 UTC.
pub const STARTED_MS: u64 = 1_709_210_096_000;

pub fn abs(path: &Path) -> AbsPath {
    AbsPath::new(path).unwrap()
}

pub fn head(id: u32) -> RunHead {
    let root = AbsPath::new("/home/ann/project").unwrap();
    RunHead {
        format: RUN_FORMAT,
        event_format: EVENT_FORMAT,
        id: RunId::new(id),
        name: RunName::new("reviewer-2").unwrap(),
        agent: AgentName::new("reviewer").unwrap(),
        instance: InstanceKey::of(&root),
        backend: BackendKind::Bwrap,
        purpose: Purpose::Session,
        started_at_ms: STARTED_MS,
        versions: BTreeMap::from([
            ("belljar".to_owned(), "0.1.0".to_owned()),
            ("bwrap".to_owned(), "0.8.0".to_owned()),
        ]),
        host: BTreeMap::from([("kernel".to_owned(), json!("6.1.0")), ("cgroup".to_owned(), json!(2))]),
        plan_digest: Digest::of(b"plan"),
        plan: json!({"format": 1, "agent": "reviewer", "argv": ["agent", "--flag"]}),
    }
}

/// One event of every kind except the first and the last, which the writer adds.
pub fn events() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let abs = |path: &[u8]| {
        let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
        AbsPath::new(path).unwrap()
    };
    vec![
        Event::LimitSet { limit: LimitKind::Memory, value: text("4G"), mechanism: text("cgroup v2") },
        Event::Sealed {
            landlock: GuestLandlock {
                abi: 3,
                files: GuestRestriction::Standing,
                signals: GuestRestriction::Missing,
                abstract_sockets: GuestRestriction::NotAsked,
            },
        },
        Event::CommandStarted { argv0: OsText::try_from("/opt/agent/bin/agent").unwrap() },
        Event::Notice { text: text("a \"quoted\"\nnotice, é") },
        Event::SignalForwarded { signal: 2 },
        Event::LimitReached { limit: LimitKind::Pids },
        Event::CommandEnded { end: GuestEnd::Code(3) },
        Event::CommandEnded { end: GuestEnd::Signal(9) },
        Event::HostExecutedCreated { path: abs(b"/home/ann/project/.envrc"), why: text("direnv reads it") },
        Event::HostExecutedCreated { path: abs(b"/p/\xff/.git/hooks/x"), why: text("git runs it") },
        Event::WorkspaceChanged { created: 1, changed: 2, removed: 0 },
        Event::CleanupFailed { what: text("the cgroup"), why: text("it is busy") },
    ]
}

pub fn metrics() -> Metrics {
    Metrics {
        input_tokens: Some(1200),
        output_tokens: Some(340),
        cost_micros_usd: Some(25_000),
        cpu_ms: None,
        peak_memory_bytes: Some(1 << 20),
        usage: None,
    }
}

pub fn status() -> RunStatus {
    RunStatus::Exited { code: 3 }
}

/// A redactor without secrets.
pub fn nothing() -> Redact {
    std::sync::Arc::new(belljar_contract::Scrubber::nothing())
}
