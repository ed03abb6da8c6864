//! Tapes: recordings of trials with their exchanges with the model, and their replay.
//!
//! [`make`] makes a tape of a trial that ran. [`ReplayModel`] answers in place of the model from a tape;
//! [`protocol::replay`] judges a tape again without running the agent.

pub mod cassette;
mod compare;
mod consistency;
mod copy;
mod facts;
mod find;
mod har;
mod make;
mod mutate;
mod privacy;
pub mod protocol;
mod replay;
mod scrub;
mod show;
mod staleness;
mod values;

pub use belljar_egress::tape::{
    Difference, Drift, DriftKind, Normaliser, OnDrift, Pace, Private, ReplayReport, ToolCall,
    UnknownNormaliser,
};
pub use belljar_record::tape::{SUFFIX, Tape, TapeFailure, TapeFault, TapeWriteError};
pub use compare::{CompareError, ExchangeDifference, TapeDifference, compare};
pub use consistency::contradiction;
pub(crate) use facts::tree as directory_digest;
pub use facts::{Changed, TapeFacts};
pub use find::{FindError, find_tapes, finds_its_scenario, scenario_of, tape_beside};
pub use har::har;
pub use make::{MakeError, agent_version, make, scenario_changes};
pub use mutate::{Mutation, Mutations, mutate};
pub(crate) use privacy::sought;
pub use privacy::{PrivateFinding, own_names, private_findings};
pub use replay::{
    Mutate, Rejudged, ReplayError, ReplayRequest, Replayed, Scenarios, check_closed_network, open_cassette,
    rejudge, rejudge_many, replay,
};
pub use scrub::{ScrubError, replaceable, scrub};
pub use show::{ExchangeView, exchange_views};
pub use staleness::stale;
pub(crate) use values::digests_of;
pub use values::{ValueFound, ValueSearch, redacted_values};

use belljar_contract::{BodyRef, Exchange, with_causes};
use belljar_egress::gateway::Answer;
use belljar_egress::tape::{KeepExchanges, Replay, ReplaySetup, Scrub, TapeBodies};
use belljar_record::Redact;
use belljar_record::tape::ExchangeLog;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// Whether the exchanges with the model are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taping {
    Off,
    /// They are recorded, and compared after these normalisers.
    On(Vec<Normaliser>),
}

/// A tape that answers in place of the model.
#[derive(Debug, Clone)]
pub struct ReplayModel {
    tape: Arc<Tape>,
    normalisers: Vec<Normaliser>,
    /// What to do with a request that the tape does not have.
    pub on_drift: OnDrift,
    pace: Pace,
}

impl ReplayModel {
    /// A model that answers from this tape.
    ///
    /// # Errors
    /// If the tape was made with an unknown normaliser.
    pub fn new(tape: Arc<Tape>, on_drift: OnDrift, pace: Pace) -> Result<Self, UnknownNormaliser> {
        let normalisers = normalisers(&tape)?;
        Ok(Self { tape, normalisers, on_drift, pace })
    }

    pub(crate) fn replay(self, scrub: Scrub, live: Option<Arc<dyn Answer>>) -> Replay {
        let Self { tape, normalisers, on_drift, pace } = self;
        Replay::new(ReplaySetup {
            exchanges: tape.exchanges.clone(),
            bodies: Arc::new(Bodies(tape)),
            normalisers,
            scrub,
            on_drift,
            pace,
            live,
        })
    }
}

/// The normalisers that a tape was made with.
fn normalisers(tape: &Tape) -> Result<Vec<Normaliser>, UnknownNormaliser> {
    let exact = |name: &String| {
        let found = Normaliser::parse(name)?;
        if found.name() == name { Ok(found) } else { Err(UnknownNormaliser(name.clone())) }
    };
    tape.head.normalisers.iter().map(exact).collect()
}

struct Bodies(Arc<Tape>);

impl TapeBodies for Bodies {
    fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>> {
        self.0.body(body)
    }
}

/// Redacts the secrets of a run from bytes.
pub(crate) fn scrub_secrets(redact: Redact) -> Scrub {
    Arc::new(move |bytes: &[u8]| redact.scrub_bytes(bytes))
}

/// Writes exchanges to the run's directory.
pub(crate) struct KeptExchanges(pub ExchangeLog);

impl KeepExchanges for KeptExchanges {
    fn body(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        self.0.body(bytes).map_err(|error| with_causes(&error))
    }

    fn exchange(&mut self, exchange: &Exchange) -> Result<(), String> {
        self.0.line(exchange).map_err(|error| with_causes(&error))
    }
}
