//! Tapes: recordings of trials with their exchanges with the model, and their replay.
//!
//! [`make`] makes a tape of a trial that ran. [`ReplayModel`] answers in place of the model from a tape;
//! [`protocol::replay`] judges a tape again without running the agent.

mod agreement;
mod answers;
pub mod cassette;
mod cassette_source;
mod checked;
mod compare;
mod consistency;
mod copy;
mod facts;
mod find;
mod har;
mod inputs;
mod judged;
mod make;
mod mutate;
mod origin;
mod privacy;
pub mod protocol;
mod record;
mod recorded_agent;
mod rejudge;
mod replay;
mod scenario_files;
mod scrub;
mod show;
mod staleness;
mod to_script;
mod trees;
mod upgrade;
mod usage;
mod values;
mod varying;

pub(crate) use answers::RecordedAnswers;
pub use belljar_egress::tape::{
    AgentDifferences, Difference, Drift, DriftKind, Normaliser, Normalisers, OnDrift, Pace, Private,
    ReplayReport, ToolCall, UnknownNormaliser,
};
pub use belljar_record::tape::{SUFFIX, Tape, TapeFailure, TapeFault, TapeWriteError};
pub use belljar_verdict::StaleRule;
pub use checked::CheckedTape;
pub use compare::{CompareError, ExchangeDifference, TapeDifference, compare};
pub use consistency::contradiction;
pub(crate) use consistency::read_recording;
pub use facts::{Changed, ChangedCause, TapeFacts};
pub(crate) use facts::{plugin_digests, skill_digests};
pub(crate) use find::is_tape;
pub use find::{
    FindError, find_tapes, finds_its_scenario, is_named_tape, not_replayed, scenario_of, sharing_a_tape,
    tape_beside,
};
pub use har::har;
pub use make::{MakeError, agent_version, make};
pub use mutate::{Mutation, Mutations, NotCheckable, mutate};
pub use origin::{Given, Origins};
pub(crate) use privacy::sought;
pub use privacy::{PrivateFinding, own_names, private_findings};
pub use record::{Failing, Recorded, RecordingKept};
pub use recorded_agent::{RecordedAgentError, recorded_agent};
pub use rejudge::{Mutate, RejudgePool, Rejudged, Rejudging, rejudge, rejudge_many};
pub use replay::{ReplayError, ReplayRequest, Replayed, ReplayedAgents, Scenarios, open_cassette, replay};
pub use scrub::{ScrubError, replaceable, scrub};
pub use show::{ExchangeView, exchange_views};
pub(crate) use staleness::changed_besides_checks;
pub use staleness::{Compared, as_recorded, stale};
pub use to_script::{ScriptOfTape, to_script};
pub(crate) use trees::{lone_file, tree};
pub use upgrade::upgrade_report;
pub(crate) use values::digests_of;
pub use values::{ValueFound, ValueSearch, redacted_values};
pub use varying::{Varying, varying};

use crate::suite::Trial;
use belljar_contract::{
    AbsPath, AgentVersion, BodyRef, Event, EventRecord, Exchange, Lane, SuiteNormaliser,
    SuiteNormaliserError, TapeHead, TapeNormaliser, TapeTrees, TimeSpan, with_causes,
};
use belljar_egress::gateway::Responder;
use belljar_egress::tape::{
    ChosenParameters, KeepExchanges, Matching, Parameter, Replay, ReplaySetup, Scrub, TapeBodies,
};
use belljar_plan::Session;
use belljar_record::Redact;
use belljar_record::tape::{ExchangeLog, TapeDraft};
use scenario_files::ScenarioFiles;
use std::borrow::Cow;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Whether the exchanges with the model are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taping {
    Off,
    /// They are recorded, and compared after these normalisers.
    On(Normalisers),
}

/// A tape that answers in place of the model.
#[derive(Debug, Clone)]
pub struct ReplayModel {
    tape: Arc<Tape>,
    normalisers: Normalisers,
    /// What to do with a request that the tape does not have.
    pub on_drift: OnDrift,
    pace: Pace,
    across: AcrossVersions,
    matching: Matching,
    chosen: ChosenParameters,
}

/// What must be as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcrossVersions {
    /// The test itself. On another version of the agent, only the user's side of a request has to match.
    UserSide,
    /// Everything: the requests as a whole on any version, the plan, and the agent's version and program.
    Strict,
}

impl ReplayModel {
    /// A model that answers from this tape.
    ///
    /// # Errors
    /// If the tape was made with an unknown normaliser, or one that matches too much.
    pub fn new(
        tape: Arc<Tape>,
        on_drift: OnDrift,
        pace: Pace,
        across: AcrossVersions,
    ) -> Result<Self, TapeNormaliserError> {
        let normalisers = normalisers(&tape)?;
        Ok(Self {
            tape,
            normalisers,
            on_drift,
            pace,
            across,
            matching: Matching::Whole,
            chosen: ChosenParameters::default(),
        })
    }

    /// Decides what must match. An agent whose version is not known may be the recorded one.
    pub(crate) fn for_agent(&mut self, present: Option<AgentVersion>, trial: &Trial) {
        let recorded = self.tape.head.agent.version.as_deref().and_then(AgentVersion::parse);
        // A version that was written over would relax the comparison.
        let reported = self.tape.run().read().ok().and_then(|run| agent_version(&run));
        let recorded =
            recorded.filter(|version| reported.as_deref().and_then(AgentVersion::parse) == Some(*version));
        let is_other = matches!((recorded, present), (Some(recorded), Some(present)) if recorded != present);
        self.matching = match self.across {
            AcrossVersions::UserSide if is_other => Matching::UserSide,
            AcrossVersions::UserSide | AcrossVersions::Strict => Matching::Whole,
        };
        self.chosen = chosen(trial, &self.tape.head);
    }

    /// The time limit that the agent was told when the tape was recorded; the outer `None` if that is not known.
    pub(crate) fn time_told(&self) -> Option<Option<Duration>> {
        let time = self.tape.run().head().ok()?.plan.pointer("/limits/time")?.clone();
        if time.is_null() {
            return Some(None);
        }
        Some(Some(TimeSpan::parse(time.as_str()?).ok()?.duration()))
    }

    /// What the digests of trees on the tape cover.
    pub(crate) fn trees(&self) -> TapeTrees {
        self.tape.head.scenario.trees
    }

    /// Whether a judge was asked when the tape was recorded.
    pub(crate) fn was_judged(&self) -> bool {
        let run = self.tape.run().read();
        let is_judged = |record: &EventRecord| matches!(record.event.known(), Some(Event::Judged { .. }));
        run.is_ok_and(|run| run.events.iter().any(is_judged))
    }

    /// The answers that were given when the tape was recorded.
    pub(crate) fn answers(&self) -> RecordedAnswers {
        let read = protocol::read(&self.tape, Lane::default());
        // Without readable frames there are none; questions stay open then.
        RecordedAnswers::new(read.map(|read| read.decided).unwrap_or_default())
    }

    pub(crate) fn replay(self, scrub: Scrub, live: Option<Arc<dyn Responder>>) -> Replay {
        let Self { tape, normalisers, on_drift, pace, across: _, matching, chosen } = self;
        Replay::new(ReplaySetup {
            exchanges: tape.exchanges.clone(),
            bodies: Arc::new(Bodies(tape)),
            normalisers,
            scrub,
            matching,
            chosen,
            on_drift,
            pace,
            live,
        })
    }
}

/// The parameters of requests that the user's side chose, now or when a tape was recorded. What another session chose is
/// not known.
fn chosen(trial: &Trial, head: &TapeHead) -> ChosenParameters {
    let Session { model, thinking, thinking_display, agent_env, .. } = &trial.session;
    let other = ScenarioFiles::of(trial).session != head.scenario.session;
    let parameters = [
        (Parameter::Model, model.is_some() || other),
        // belljar asks for one, whether the session names it or not.
        (Parameter::Effort, true),
        (Parameter::Thinking, thinking.is_some() || other),
        // It changes what is shown, and versions differ in what they show by themselves.
        (Parameter::ThinkingDisplay, thinking_display.is_some()),
    ];
    let main = parameters.into_iter().filter(|(_, chosen)| *chosen).map(|(one, _)| one);
    let sub_agents = (agent_env.subagent_model.is_some() || other).then_some(Parameter::Model);
    ChosenParameters { main: main.collect(), sub_agents: sub_agents.into_iter().collect() }
}

/// Why the normalisers of a tape cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum TapeNormaliserError {
    #[error(transparent)]
    Unknown(#[from] UnknownNormaliser),
    #[error("the tape has a normaliser `{name}` of its suite that cannot be used")]
    Suite {
        name: String,
        #[source]
        cause: SuiteNormaliserError,
    },
}

/// The normalisers that a tape was made with.
fn normalisers(tape: &Tape) -> Result<Normalisers, TapeNormaliserError> {
    let exact = |name: &String| {
        let found = Normaliser::parse(name)?;
        if found.name() == name { Ok(found) } else { Err(UnknownNormaliser(name.clone())) }
    };
    let suite = |kept: &TapeNormaliser| {
        SuiteNormaliser::recorded(kept)
            .map_err(|cause| TapeNormaliserError::Suite { name: kept.name.clone(), cause })
    };
    Ok(Normalisers {
        built_in: tape.head.normalisers.iter().map(exact).collect::<Result<_, _>>()?,
        suite: tape.head.scenario.normalise.iter().map(suite).collect::<Result<_, _>>()?,
    })
}

struct Bodies<T>(T);

impl<T: Deref<Target = Tape> + Send + Sync> TapeBodies for Bodies<T> {
    fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>> {
        self.0.body(body)
    }

    fn body_from(&self, body: BodyRef, from: u64) -> io::Result<Cow<'_, [u8]>> {
        self.0.body_from(body, from)
    }

    fn shared(&self, one: BodyRef, other: BodyRef) -> u64 {
        self.0.shared(one, other)
    }
}

/// Checks, before a run, that its tape can be written where it belongs.
///
/// # Errors
/// If it cannot.
pub fn check_target(target: &AbsPath) -> Result<(), TapeWriteError> {
    TapeDraft::check(target)
}

/// Redacts the secrets of a run from bytes.
pub(crate) fn scrub_secrets(redact: Redact) -> Scrub {
    Arc::new(move |bytes: &[u8]| redact.scrub_bytes(bytes))
}

/// Writes exchanges to the run's directory.
pub(crate) struct KeptExchanges(pub ExchangeLog);

impl KeepExchanges for KeptExchanges {
    fn request(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        self.0.request(bytes).map_err(|error| with_causes(&error))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        self.0.answer(bytes).map_err(|error| with_causes(&error))
    }

    fn exchange(&mut self, exchange: &Exchange) -> Result<(), String> {
        self.0.line(exchange).map_err(|error| with_causes(&error))
    }
}
