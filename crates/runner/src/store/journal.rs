//! Records a run: claims its name while it runs, and writes its directory.

use crate::environment::HostEnvironment;
use crate::launch::{RunSubject, Spent};
use crate::plan::planned::Planned;
use crate::store::names::{ClaimedName, NameClaimError, NameWish, RunNames, fresh_run_id};
use crate::store::runtime::{RuntimeDirectory, RuntimeError};
use belljar_contract::{
    AbsPath, AgentName, EVENT_FORMAT, Event, FilesSeen, GuestEnd, GuestUsage, LimitKind, MODEL_LOG_FORMAT,
    Metrics, ModelUsage, MountSource, Plan, RUN_FORMAT, RunHead, RunId, RunName, RunStatus, RunVerb,
};
use belljar_egress::model_log::ModelLog;
use belljar_egress::tape::{Normalisers, Recorder};
use belljar_record::tape::{ExchangeLog, TapeLimits, TapeWriteError};
use belljar_record::{AgentStderr, FrameLog, Redact, RunStore, RunWriter, WriteError, redact_value};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The key in a run's versions that says that the conversation has a model log.
pub(crate) const MODEL_LOG: &str = "model_log";

/// Keys among a run's facts: the verb that started it, and the name of its scenario.
pub(crate) const VERB: &str = "verb";
/// The program of the agent, and where it came from.
pub(crate) const AGENT_USED: &str = "agent";
pub(crate) const SCENARIO_NAME: &str = "scenario";

/// Why a run cannot be recorded; it is not started then.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot create the runtime directory of the run")]
    Runtime(#[from] RuntimeError),
    #[error("cannot claim a name for the run")]
    Name(#[from] NameClaimError),
    #[error("cannot record the run")]
    Write(#[from] WriteError),
    #[error("cannot record the run's exchanges with the model")]
    Tape(#[from] TapeWriteError),
}

/// A run that is being recorded. A write error does not change how the run ends; it is reported at the end.
pub(crate) struct Journal {
    writer: RunWriter,
    id: RunId,
    redact: Redact,
    began: Instant,
    name: ClaimedName,
    first_error: Option<WriteError>,
    /// Whether an event could not be recorded.
    hole: bool,
    used: Used,
}

impl Journal {
    /// Claims a name and creates the directory.
    pub fn open(
        planned: &Planned,
        environment: &HostEnvironment,
        (pinned, subject): (Option<&RunName>, &RunSubject),
        redact: Redact,
    ) -> Result<Self, JournalError> {
        let plan = &planned.compiled.plan;
        let runtime = RuntimeDirectory::open(&environment.runtime)?;
        let wished = wished_name(subject, &plan.agent, &redact);
        let name = RunNames::new(&runtime)
            .claim(pinned.map_or(NameWish::Numbered(&wished), NameWish::Pinned), std::process::id())?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let versions = BTreeMap::from([
            ("belljar".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            (MODEL_LOG.to_owned(), MODEL_LOG_FORMAT.to_string()),
        ]);
        let mut host = BTreeMap::from([
            ("project".to_owned(), json!(plan.workspace.source)),
            ("agent_program".to_owned(), json!(planned.program_found())),
            (VERB.to_owned(), json!(subject.verb)),
        ]);
        match subject.verb {
            // They start a command, not the agent.
            RunVerb::Exec | RunVerb::Shell => {}
            RunVerb::Run
            | RunVerb::Skill
            | RunVerb::Chat
            | RunVerb::Test
            | RunVerb::Record
            | RunVerb::Replay => {
                host.insert(AGENT_USED.to_owned(), json!(planned.agent));
            }
        }
        if let Some(scenario) = &subject.scenario {
            host.insert(SCENARIO_NAME.to_owned(), json!(scenario.name));
        }
        let head = RunHead {
            format: RUN_FORMAT,
            event_format: EVENT_FORMAT,
            id: fresh_run_id(),
            name: name.name().clone(),
            agent: plan.agent.clone(),
            instance: plan.instance.key.clone(),
            backend: plan.backend,
            purpose: plan.purpose,
            started_at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            versions,
            host,
            plan_digest: plan.digest(),
            plan: json!(plan),
        };
        let writer = RunStore::new(&environment.state).create(&head, Arc::clone(&redact))?;
        if let Some(scenario) = &subject.scenario {
            writer.keep_scenario(&scenario.text)?;
            scenario.session.as_ref().map(|text| writer.keep_session(text)).transpose()?;
        }
        Ok(Self {
            writer,
            id: head.id,
            redact,
            began: Instant::now(),
            name,
            first_error: None,
            hole: false,
            used: Used::ByChildren,
        })
    }

    pub fn name(&self) -> &str {
        self.name.name().as_str()
    }

    /// The name of the run's directory, which ends with its id.
    pub fn directory_name(&self) -> Option<String> {
        self.writer.directory().file_name().map(|name| name.to_string_lossy().into_owned())
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// When the run began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The log for the frames of a conversation.
    pub fn frames(&self) -> Result<FrameLog, JournalError> {
        Ok(self.writer.frames()?)
    }

    /// The file for the agent's standard error.
    pub fn agent_stderr(&self) -> Result<AgentStderr, JournalError> {
        Ok(self.writer.agent_stderr()?)
    }

    /// The file of the egress log, and the scrubber for it.
    pub fn egress_log(&self) -> Result<(File, Redact), JournalError> {
        Ok((self.writer.egress_log()?, Arc::clone(&self.redact)))
    }

    /// Begins the model log.
    pub fn model_log(&self) -> Result<ModelLog, JournalError> {
        let redact = Arc::clone(&self.redact);
        let redact = Arc::new(move |value: &mut serde_json::Value| redact_value(value, &redact));
        Ok(ModelLog::open(self.writer.model_log()?, self.id.clone(), self.began, redact))
    }

    /// Records the exchanges with the model in the run's directory.
    pub fn recorder(
        &self,
        normalisers: Normalisers,
        sought: BTreeMap<String, &'static str>,
    ) -> Result<Recorder, JournalError> {
        let log = ExchangeLog::create(self.writer.directory().child("tape"), TapeLimits::default())?;
        let keep = Box::new(crate::tape::KeptExchanges(log));
        let scrub = crate::tape::scrub_secrets(Arc::clone(&self.redact));
        Ok(Recorder::new(keep, scrub, normalisers, sought))
    }

    pub fn emit(&mut self, event: &Event) {
        let written = self.writer.emit(self.elapsed_ms(), event);
        self.hole |= written.is_err();
        self.first_error = self.first_error.take().or(written.err());
    }

    /// Stores a text in the run's directory.
    pub fn keep(&mut self, name: &str, parts: &[&str]) {
        let written = self.writer.keep(name, parts);
        self.first_error = self.first_error.take().or(written.err());
    }

    /// Stores the listing of the workspace's files, and the files that are new or changed.
    pub fn keep_files(&mut self, files: FilesSeen) {
        match self.writer.keep_files(files) {
            Ok(listing) => self.emit(&Event::FilesListed { listing }),
            Err(error) => self.first_error = self.first_error.take().or(Some(error)),
        }
    }

    /// Stores the conversations that the run wrote to the project's state, redacted.
    pub fn keep_transcripts(&mut self, plan: &Plan) {
        let since = SystemTime::now() - self.began.elapsed();
        let kept = plan.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::InstanceDirectory(path) => Some(path.as_path()),
            MountSource::System
            | MountSource::Image
            | MountSource::SyntheticEtc
            | MountSource::Proc
            | MountSource::Devices
            | MountSource::Temporary
            | MountSource::AgentProgram
            | MountSource::Workspace
            | MountSource::Host(_)
            | MountSource::InstanceFile(_) => None,
        });
        for path in kept.flat_map(|directory| written_since(directory, since, DEPTH)) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            // A file that is not UTF-8 is not a conversation.
            if let Ok(text) = std::fs::read_to_string(&path) {
                self.keep(&format!("transcript-{name}"), &[&text]);
            }
        }
    }

    /// Sets the resources that the command used, if it is not a child of this process; `None` if they are not known.
    pub fn used(&mut self, used: Option<GuestUsage>) {
        self.used = Used::Inside(used);
    }

    /// Records the end of the run; returns its directory, and the first error of writing.
    pub fn finish(
        self,
        status: RunStatus,
        spent: Option<Spent>,
        usage: Option<ModelUsage>,
    ) -> (AbsPath, Option<WriteError>) {
        let duration = self.elapsed_ms();
        let Self { writer, first_error, hole, used, .. } = self;
        let directory = writer.directory().clone();
        if hole {
            // Without an end, the record cannot be judged as if it were complete.
            return (directory, first_error);
        }
        let used = match used {
            Used::ByChildren => Some(of_children()),
            Used::Inside(used) => used,
        };
        let metrics = Metrics {
            input_tokens: spent.map(|spent| spent.input_tokens),
            output_tokens: spent.map(|spent| spent.output_tokens),
            cost_micros_usd: spent.map(|spent| spent.cost_micros),
            cpu_ms: used.map(|used| used.cpu_ms),
            peak_memory_bytes: used.map(|used| used.peak_memory_bytes),
            usage,
        };
        let ended = writer.finish(duration, status, metrics);
        (directory, first_error.or(ended.err()))
    }
}

/// The longest part of a scenario's name in the name of a run.
const NAME_MAX: usize = 40;

/// The name that a run asks for: that of its scenario, or that of the agent.
fn wished_name(subject: &RunSubject, agent: &AgentName, redact: &Redact) -> AgentName {
    let RunSubject { verb, scenario } = subject;
    let text = match (scenario, verb) {
        (Some(scenario), _) => slug(&redact.scrub(&scenario.name)),
        (None, RunVerb::Exec | RunVerb::Shell) => format!("{}-{verb}", slug(agent.as_str())),
        (
            None,
            RunVerb::Run | RunVerb::Skill | RunVerb::Chat | RunVerb::Test | RunVerb::Record | RunVerb::Replay,
        ) => return agent.clone(),
    };
    AgentName::new(text).unwrap_or_else(|_| agent.clone())
}

/// A text as a name of letters, digits and `-`.
fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() == NAME_MAX {
            break;
        }
    }
    match out.trim_end_matches('-') {
        "" => "scenario".to_owned(),
        slug => slug.to_owned(),
    }
}

/// The source of the figures about used resources.
#[derive(Debug, Clone, Copy)]
enum Used {
    /// The kernel, for the children of this process.
    ByChildren,
    /// The guest, if it reported them.
    Inside(Option<GuestUsage>),
}

fn of_children() -> GuestUsage {
    let usage = belljar_sys::process::usage_of_children();
    GuestUsage {
        cpu_ms: u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
        peak_memory_bytes: usage.peak_memory,
    }
}

/// Conversations lie a few directories deep.
const DEPTH: u32 = 4;
/// Larger than any conversation that is worth storing a second time.
const TRANSCRIPT_LIMIT: u64 = 64 << 20;

/// Files in JSON Lines format that were written since then; links are not followed.
fn written_since(directory: &Path, since: SystemTime, depth: u32) -> Vec<PathBuf> {
    // A missing directory holds no conversation.
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut out = Vec::new();
    for entry in entries.flatten() {
        let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
        if kind.is_dir() && depth > 0 {
            out.extend(written_since(&path, since, depth - 1));
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "jsonl") {
            let fresh = entry.metadata().is_ok_and(|found| {
                found.len() <= TRANSCRIPT_LIMIT && found.modified().is_ok_and(|modified| modified >= since)
            });
            out.extend(fresh.then_some(path));
        }
    }
    out
}

/// Events for the limits that are in force.
pub(crate) fn limit_events(launch: &belljar_contract::Launch) -> Vec<Event> {
    let belljar_contract::Limits { memory, pids, cpu, time, cost_usd, tmpfs, unlimited: _ } = &launch.limits;
    let mechanism = |need| {
        let control = launch.controls.iter().find(|control| control.need == need);
        control.map(|control| control.mechanism.clone()).unwrap_or_default()
    };
    use belljar_contract::Need;
    let rows = [
        (LimitKind::Memory, Need::Memory, memory.map(|v| v.to_string())),
        (LimitKind::Pids, Need::Pids, pids.map(|v| v.to_string())),
        (LimitKind::Cpu, Need::Cpu, cpu.map(|v| v.to_string())),
        (LimitKind::Time, Need::Time, time.map(|v| v.to_string())),
        (LimitKind::Cost, Need::Cost, cost_usd.map(|v| v.to_string())),
        (LimitKind::Tmpfs, Need::Tmpfs, tmpfs.map(|v| v.to_string())),
    ];
    let declared = rows.into_iter().filter_map(|(limit, need, value)| {
        Some(Event::LimitSet { limit, value: value?, mechanism: mechanism(need) })
    });
    // The time limit applies to some runs only, and is recorded with its clock.
    let others = launch.defaults.iter().filter(|default| default.limit != LimitKind::Time);
    let defaults = others.map(|default| match &default.mechanism {
        Ok(how) => Event::LimitSet {
            limit: default.limit,
            value: default.value.clone(),
            mechanism: format!("{how} (default)"),
        },
        Err(why) => Event::Notice {
            text: format!("the default {} limit is not enforced: {why}", default.limit.describe()),
        },
    });
    declared.chain(defaults).collect()
}

/// How a run ended, for its record.
pub(crate) fn status(end: GuestEnd) -> RunStatus {
    match end {
        GuestEnd::Code(code) => RunStatus::Exited { code },
        GuestEnd::Signal(signal) => RunStatus::Killed { signal },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ScenarioUsed;
    use belljar_contract::{Scrubber, Secret};

    #[test]
    fn a_run_is_named_after_what_it_is_for() {
        let secret = Secret::new("zq93-secret-value");
        let redact: Redact = Arc::new(Scrubber::new([("T", &secret)]).0);
        let agent = AgentName::new("Reviewer_1").unwrap();
        let name = |subject| wished_name(&subject, &agent, &redact).to_string();
        let scenario = |name: &str| RunSubject {
            verb: RunVerb::Test,
            scenario: Some(ScenarioUsed {
                name: name.to_owned(),
                file: None,
                text: Vec::new(),
                session: None,
                skills: BTreeMap::new(),
                plugins: BTreeMap::new(),
            }),
        };
        assert_eq!(name(RunSubject::of(RunVerb::Run)), "Reviewer_1");
        assert_eq!(name(RunSubject::of(RunVerb::Exec)), "reviewer-1-exec");
        assert_eq!(name(scenario("Writes *the* notes, in German!")), "writes-the-notes-in-german");
        assert_eq!(name(scenario("../../etc/passwd")), "etc-passwd");
        assert_eq!(name(scenario("日本")), "scenario");
        assert_eq!(name(scenario(&"ab ".repeat(100))).len(), 40);
        assert_eq!(name(scenario("about zq93-secret-value")), "about-redacted-t");
    }
}
