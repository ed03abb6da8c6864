//! Resource limits: those that a manifest declares, and the defaults.

use crate::{ByteSize, Cpus, LimitKind, TimeSpan, Usd};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// The default limit of processes and threads.
pub const DEFAULT_PIDS: u32 = 4096;
/// The default time limit of a scenario, if neither the scenario nor the command line has one.
pub const SCENARIO_TIME: TimeSpan = TimeSpan::hours(1);
/// The default time limit of `run` without a terminal.
pub const UNATTENDED_TIME: TimeSpan = TimeSpan::hours(12);
/// By default, all file systems in memory together may use one part in this many of the machine's memory …
const TMPFS_PARTS: u64 = 2;
/// … and at most this many bytes.
const TMPFS_MOST: u64 = 32 << 30;

/// The limits of a run. `None` means that no limit was declared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub memory: Option<ByteSize>,
    pub pids: Option<u32>,
    pub cpu: Option<Cpus>,
    /// Elapsed time.
    pub time: Option<TimeSpan>,
    /// Money; the gateway enforces it.
    pub cost_usd: Option<Usd>,
    /// All file systems in memory together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmpfs: Option<ByteSize>,
    /// Limits whose default the manifest switched off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlimited: Vec<LimitKind>,
}

impl Limits {
    /// The size in bytes for all file systems in memory together on a machine with this much memory; `None` without a
    /// limit.
    #[must_use]
    pub fn tmpfs_bytes(&self, memory: u64) -> Option<u64> {
        match self.tmpfs {
            Some(declared) => Some(declared.bytes()),
            None if self.unlimited.contains(&LimitKind::Tmpfs) => None,
            None => {
                let most = self.memory.map_or(TMPFS_MOST, ByteSize::bytes).min(TMPFS_MOST);
                Some((memory / TMPFS_PARTS).min(most))
            }
        }
    }

    /// The default process limit, if it applies.
    #[must_use]
    pub fn default_pids(&self) -> Option<u32> {
        (self.pids.is_none() && !self.unlimited.contains(&LimitKind::Pids)).then_some(DEFAULT_PIDS)
    }

    /// The time limit; `default` applies if none is declared.
    #[must_use]
    pub fn time_or(&self, default: Option<TimeSpan>) -> Option<TimeSpan> {
        self.time.or_else(|| default.filter(|_| !self.unlimited.contains(&LimitKind::Time)))
    }
}

/// A limit that applies, or should apply, by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultLimit {
    pub limit: LimitKind,
    pub value: String,
    /// The mechanism that enforces it, or why this machine cannot enforce it.
    pub mechanism: Result<&'static str, String>,
}

impl Serialize for DefaultLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (enforced, how) = match &self.mechanism {
            Ok(mechanism) => (true, (*mechanism).to_owned()),
            Err(why) => (false, why.clone()),
        };
        serde_json::json!({"limit": self.limit, "value": self.value, "enforced": enforced, "how": how})
            .serialize(serializer)
    }
}

/// A limit that a run reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachedLimit {
    pub limit: LimitKind,
    /// The value of the limit, if known.
    pub value: Option<String>,
}

impl LimitKind {
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            LimitKind::Memory => "memory",
            LimitKind::Pids => "pids",
            LimitKind::Cpu => "cpu",
            LimitKind::Time => "time",
            LimitKind::Cost => "cost_usd",
            LimitKind::Tmpfs => "tmpfs",
        }
    }

    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            LimitKind::Memory => "memory",
            LimitKind::Pids => "process",
            LimitKind::Cpu => "processor",
            LimitKind::Time => "time",
            LimitKind::Cost => "cost",
            LimitKind::Tmpfs => "tmpfs",
        }
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} limit", self.limit.describe())?;
        if let Some(value) = &self.value {
            write!(f, " of {value}")?;
        }
        match self.limit {
            LimitKind::Time => f.write_str(" was reached (limits.time, timeout_ms or --timeout)"),
            LimitKind::Memory | LimitKind::Pids | LimitKind::Cpu | LimitKind::Cost | LimitKind::Tmpfs => {
                write!(f, " was reached (limits.{})", self.limit.key())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_file_systems_have_half_of_memory_and_never_more_than_is_declared() {
        let gib = |count: u64| count << 30;
        let none = Limits::default();
        assert_eq!(none.tmpfs_bytes(gib(8)), Some(gib(4)));
        assert_eq!(none.tmpfs_bytes(gib(512)), Some(TMPFS_MOST));
        let memory = Limits { memory: ByteSize::parse("1G").ok(), ..Limits::default() };
        assert_eq!(memory.tmpfs_bytes(gib(8)), Some(gib(1)));
        let declared = Limits { tmpfs: ByteSize::parse("6G").ok(), ..memory };
        assert_eq!(declared.tmpfs_bytes(gib(8)), Some(gib(6)));
        let away = Limits { unlimited: vec![LimitKind::Tmpfs], ..Limits::default() };
        assert_eq!(away.tmpfs_bytes(gib(8)), None);
    }

    #[test]
    fn a_declared_limit_replaces_the_default() {
        assert_eq!(Limits::default().default_pids(), Some(DEFAULT_PIDS));
        assert_eq!(Limits { pids: Some(7), ..Limits::default() }.default_pids(), None);
        let away = Limits { unlimited: vec![LimitKind::Pids, LimitKind::Time], ..Limits::default() };
        assert_eq!((away.default_pids(), away.time_or(Some(SCENARIO_TIME))), (None, None));
        let short = Limits { time: TimeSpan::parse("5s").ok(), ..Limits::default() };
        assert_eq!(short.time_or(Some(SCENARIO_TIME)), short.time);
        assert_eq!(Limits::default().time_or(Some(SCENARIO_TIME)), Some(SCENARIO_TIME));
    }

    #[test]
    fn a_reached_limit_names_its_key() {
        let reached = ReachedLimit { limit: LimitKind::Memory, value: Some("4G".to_owned()) };
        assert_eq!(reached.to_string(), "the memory limit of 4G was reached (limits.memory)");
    }
}
