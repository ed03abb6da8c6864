//! Probes: attempts at what the sandbox should prevent.
//!
//! The same binary runs inside and on the host: a probe that is closed on both proves nothing, one that is open on
//! the host and closed inside proves a restriction. "Open" means that the kernel did what was asked or that the call got
//! as far as the kernel's own reading of its (deliberately wrong) arguments.

mod attempts;
mod search;
mod speak;
mod table;
mod use_up;

use std::io::Write;

pub use belljar_contract::ProbeOutcome as Outcome;
use belljar_contract::{ProbeFinding as Finding, with_causes};

pub use table::ProbeContext;
use table::{PROBES, Probe};

/// Why the probes were not run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The name does not belong to a probe.
    #[error("unknown probe `{0}`")]
    Unknown(String),
    /// The list of attempts is missing or malformed.
    #[error("cannot read the attempts in {path}")]
    Attempts {
        /// The path of the list.
        path: String,
        /// The error of reading or parsing it.
        #[source]
        cause: std::io::Error,
    },
    /// Standard output cannot be written to.
    #[error("cannot write the findings")]
    Write(#[source] std::io::Error),
}

/// The names of all probes, in order.
pub fn probe_names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|probe| probe.name)
}

/// Runs every probe.
#[must_use]
pub fn probe_all(context: &ProbeContext) -> Vec<Finding> {
    PROBES.iter().map(|probe| run_one(probe, context)).collect()
}

/// Runs one probe by name.
#[must_use]
pub fn probe_one(name: &str, context: &ProbeContext) -> Option<Finding> {
    PROBES.iter().find(|probe| probe.name == name).map(|probe| run_one(probe, context))
}

/// Runs the named probes, or all, and prints one JSON object a line.
pub(crate) fn run(which: &Which, context: &ProbeContext) -> Result<(), ProbeError> {
    match which {
        Which::All => PROBES.iter().try_for_each(|probe| tell(&run_one(probe, context))),
        Which::Names(names) => names.iter().try_for_each(|name| {
            tell(&probe_one(name, context).ok_or_else(|| ProbeError::Unknown(name.clone()))?)
        }),
        Which::Attempts(file) => {
            let requests =
                attempts::read(file).map_err(|cause| ProbeError::Attempts { path: file.clone(), cause })?;
            requests.into_iter().try_for_each(|request| {
                let (outcome, detail) = attempts::attempt(&request.attempt, context);
                tell(&Finding { probe: request.id, outcome, detail })
            })
        }
    }
}

/// Which probes to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Which {
    /// All of the table.
    All,
    /// These of the table.
    Names(Vec<String>),
    /// The attempts that a file lists.
    Attempts(String),
}

/// Prints one line and flushes it: a probe that ends this process must not lose the findings before it.
fn tell(finding: &Finding) -> Result<(), ProbeError> {
    let line = serde_json::to_string(finding).map_err(|error| ProbeError::Write(error.into()))?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(ProbeError::Write)
}

fn run_one(probe: &Probe, context: &ProbeContext) -> Finding {
    let (outcome, detail) = (probe.attempt)(context);
    Finding { probe: probe.name.to_owned(), outcome, detail }
}

/// The outcome of an attempt, with a detail for the reader.
type Seen = (Outcome, String);

/// An answer of the kernel as a finding. `reached` are the answers that only a call that got through can bring.
fn answered<T>(answer: Result<T, belljar_sys::Errno>, reached: &[belljar_sys::Errno]) -> Seen {
    match answer {
        Ok(_) => (Outcome::Open, "done".to_owned()),
        Err(errno) if reached.contains(&errno) => (Outcome::Open, format!("reached the kernel: {errno}")),
        Err(errno) => (Outcome::Closed { errno: Some(errno.raw_os_error()) }, errno.to_string()),
    }
}

fn unsupported(why: &str) -> Seen {
    (Outcome::Unsupported, why.to_owned())
}

fn open_if(open: bool, detail: String) -> Seen {
    (if open { Outcome::Open } else { Outcome::Closed { errno: None } }, detail)
}

/// An attempt in a child of its own, because it changes or ends the process that makes it.
fn in_child(
    attempt: impl FnOnce() -> Result<(), belljar_sys::Errno>,
    reached: &[belljar_sys::Errno],
) -> Seen {
    use belljar_sys::process::{Ended, in_child};
    let ended = in_child(move || match attempt() {
        Ok(()) => 0,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
    });
    match ended {
        Ok(Ended::Exited(0)) => answered(Ok(()), reached),
        Ok(Ended::Exited(errno)) => {
            answered::<()>(Err(belljar_sys::Errno::from_raw_os_error(errno)), reached)
        }
        Ok(Ended::Killed(SIGSYS)) => (Outcome::Closed { errno: None }, "killed by SIGSYS".to_owned()),
        Ok(Ended::Killed(signal)) => unsupported(&format!("killed by signal {signal}")),
        Err(error) => unsupported(&with_causes(&error)),
    }
}

const SIGSYS: i32 = 31;
