//! Judging recordings again by reading their conversations. No agent runs.

use super::cassette;
use super::cassette_source;
use super::consistency::{differs, misattributed_unless, wrongly_answered};
use super::protocol::{self, ReadAgain};
use super::replay::{ReplayError, Scenarios, open_cassette, sentences};
use super::{Changed, Mutations, mutate};
use crate::environment::HostEnvironment;
use crate::suite::{EndSignals, SuiteError, Trial, load_scenario_alone};
use belljar_contract::{AbsPath, ExitCode, Wishes};
use belljar_verdict::{StaleRule, judge_contradicting, judge_stale};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most conversations that are in memory at once.
const AT_ONCE: usize = 64;

/// Whether recorded results are changed one at a time, to find changes that no check notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutate {
    Yes,
    No,
}

/// How recordings are judged again.
#[derive(Clone, Copy)]
pub struct Rejudging<'a> {
    pub mutate: Mutate,
    /// Whether a recording may be green although its scenario or skills changed since.
    pub stale: StaleRule,
    /// Decides whether files beyond a suite may be read, to find out whether they changed.
    pub permit: &'a (dyn Fn(&Wishes) -> bool + Sync),
}

/// A recorded conversation that was replayed from its frames and judged again.
pub struct Rejudged {
    pub trial: Arc<Trial>,
    pub found: ReadAgain,
    /// The format of the cassette, if it was one.
    pub cassette: Option<u64>,
    /// The mutations, if they were requested and everything passes.
    pub mutations: Option<Mutations>,
    /// The files that changed since the tape was recorded.
    pub changed: Vec<Changed>,
    asked: Mutate,
    path: AbsPath,
}

/// Reads a tape, or a cassette of another tool, and judges it again.
///
/// # Errors
/// If it cannot be read, or its scenario is not valid.
pub fn rejudge(
    path: &AbsPath,
    environment: &HostEnvironment,
    scenarios: &Scenarios,
    how: Rejudging<'_>,
) -> Result<Rejudged, ReplayError> {
    let (trial, mut found, cassette, changed) = if path.as_path().is_file() {
        let cassette = open_cassette(path, environment)?;
        let trial = Arc::new(cassette::scenario(&cassette, (path, &environment.shown(path)))?);
        let found = cassette::replay(&cassette, &trial).map_err(ReplayError::CassetteProtocol)?;
        let changed = cassette_source::changed(&cassette, (path, &trial), environment);
        (trial, found, Some(cassette.format), changed)
    } else {
        // The files that the scenario names are not needed to judge it.
        let load = |file: &AbsPath| Ok::<_, ReplayError>(load_scenario_alone(environment, file)?);
        let (tape, trial) = scenarios.open(path, environment, load)?;
        let tape = Arc::new(tape);
        let mut found = protocol::replay(&tape, &trial)?;
        let present = scenarios.present((&trial, &tape.head), environment, how);
        let changed = present.as_ref().map(|present| present.changed_since(&tape.head)).unwrap_or_default();
        let wrong = match present.is_some_and(|present| present.is_known()) {
            // The scenario was compared already: it is not read again for each of its tapes.
            true => misattributed_unless(&changed, &trial, &found.decided),
            false => wrongly_answered(&tape, &trial, &found.decided),
        };
        // Nothing ran that could have drifted.
        let wrong = wrong.or_else(|| found.mismatch.as_ref().map(differs));
        judge_contradicting(&mut found.judgement, wrong);
        (trial, found, None, changed)
    };
    judge_stale(&mut found.judgement, sentences(&changed), how.stale);
    let asked = how.mutate;
    let mut out = Rejudged { trial, found, cassette, mutations: None, changed, asked, path: path.clone() };
    // If a check fails already, an unnoticed change proves nothing.
    if asked == Mutate::Yes && out.exit() == ExitCode::Passed {
        out.mutations = Some(mutate(&out.found.evidence, &out.trial.checks));
    }
    Ok(out)
}

impl Rejudged {
    /// A conversation with an unnoticed change has failed.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self.mutations.as_ref().map(|mutations| (mutations.tried, mutations.unnoticed.len())) {
            None => self.found.judgement.conclusion.exit(),
            Some((0, _)) => ExitCode::Unverified,
            Some((_, 0)) => ExitCode::Passed,
            Some(_) => ExitCode::Failed,
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let Self { trial, found, cassette, mutations, changed, asked, path } = self;
        let mut value = json!({
            "tape": path,
            "scenario": trial.scenario.name,
            "lane": "protocol",
            "conclusion": found.judgement.conclusion,
            "exit_code": self.exit().code(),
            "checks": found.judgement.checks,
            "signals": found.judgement.signals,
            "observations": found.observations,
            "mismatch": found.mismatch,
            "changed": changed,
        });
        if *asked == Mutate::Yes {
            value["mutations"] = json!(mutations);
        }
        if let Some(format) = cassette {
            value["format"] = json!(format);
            value["notes"] = json!([cassette::UNSAID]);
        }
        value
    }
}

/// Judges many recordings again, on all processors; `each` receives them in their order. Returns how many were left when
/// a signal arrived.
///
/// # Errors
/// If signals cannot be handled.
pub fn rejudge_many(
    paths: &[AbsPath],
    environment: &HostEnvironment,
    scenarios: &Scenarios,
    how: Rejudging<'_>,
    each: &mut dyn FnMut(&AbsPath, Result<Rejudged, ReplayError>),
) -> Result<Option<usize>, SuiteError> {
    let signals = EndSignals::take()?;
    for (number, some) in paths.chunks(AT_ONCE).enumerate() {
        if signals.arrived()? {
            return Ok(Some(paths.len() - number * AT_ONCE));
        }
        let read = on_all_processors(some, |path| rejudge(path, environment, scenarios, how));
        some.iter().zip(read).for_each(|(path, read)| each(path, read));
    }
    Ok(signals.arrived()?.then_some(0))
}

fn on_all_processors<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(workers).max(1));
        let begun: Vec<_> =
            parts.map(|some| scope.spawn(move || some.iter().map(work).collect::<Vec<R>>())).collect();
        let end = |worker: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        begun.into_iter().flat_map(end).collect()
    })
}
