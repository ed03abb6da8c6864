//! Tapes: trials whose exchanges with the model are kept, and trials that get them again.
//!
//! [`make`] makes a tape of a trial that took place. [`ReplayModel`] stands in the model's place with the answers of one;
//! [`protocol::replay`] judges one again without running anything.

pub mod cassette;
mod compare;
mod copy;
mod facts;
mod find;
mod har;
mod make;
mod mutate;
mod privacy;
pub mod protocol;
mod scrub;
mod show;
mod standing;
mod values;
mod vouch;

pub use belljar_egress::tape::{
    Difference, Drift, DriftKind, Normaliser, OnDrift, Pace, Private, ReplayReport, ToolCall,
    UnknownNormaliser,
};
pub use belljar_record::tape::{SUFFIX, Tape, TapeFailure, TapeFault, TapeWriteError};
pub use compare::{CompareError, ExchangeDifference, TapeDifference, compare};
pub use facts::{Changed, TapeFacts};
pub use find::{FindError, find_tapes, finds_its_scenario, scenario_of, tape_beside};
pub use har::har;
pub use make::{MakeError, agent_version, make, scenario_changes};
pub use mutate::{Mutation, Mutations, mutate};
pub(crate) use privacy::sought;
pub use privacy::{PrivateFinding, own_names, private_findings};
pub use scrub::{ScrubError, replaceable, scrub};
pub use show::{ExchangeView, exchange_views};
pub use standing::stale;
pub(crate) use values::digests_of;
pub use values::{ValueFound, ValueSearch, redacted_values};
pub use vouch::contradiction;

use belljar_contract::{BodyRef, Exchange, with_causes};
use belljar_egress::gateway::Answer;
use belljar_egress::tape::{KeepExchanges, Replay, ReplaySetup, Scrub, TapeBodies};
use belljar_record::Redact;
use belljar_record::tape::ExchangeLog;
use std::io;
use std::sync::Arc;

/// Whether the exchanges with the model are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taping {
    /// They are not.
    Off,
    /// They are, and are compared after these have made them alike.
    On(Vec<Normaliser>),
}

/// A tape in the model's place.
#[derive(Debug, Clone)]
pub struct ReplayModel {
    tape: Arc<Tape>,
    normalisers: Vec<Normaliser>,
    /// What becomes of a request that the tape does not have.
    pub on_drift: OnDrift,
    pace: Pace,
}

impl ReplayModel {
    /// Answers from this tape.
    ///
    /// # Errors
    /// When the tape was made with a normaliser that is not known here.
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
    fn body(&self, body: BodyRef) -> io::Result<Vec<u8>> {
        self.0.body(body)
    }
}

/// Takes the secrets of a run out of bytes.
pub(crate) fn scrub_secrets(redact: Redact) -> Scrub {
    Arc::new(move |bytes: &[u8]| redact.scrub_bytes(bytes))
}

/// Exchanges go to the run's folder.
pub(crate) struct KeptExchanges(pub ExchangeLog);

impl KeepExchanges for KeptExchanges {
    fn body(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        self.0.body(bytes).map_err(|error| with_causes(&error))
    }

    fn exchange(&mut self, exchange: &Exchange) -> Result<(), String> {
        self.0.line(exchange).map_err(|error| with_causes(&error))
    }
}
