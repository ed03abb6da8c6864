//! Judging recordings again by reading their conversations. No agent runs.

use super::cassette;
use super::cassette_source;
use super::consistency::{differs, misattributed_unless, wrongly_answered};
use super::protocol::{self, ReadAgain};
use super::replay::{ReplayError, Scenarios, open_cassette, sentences};
use super::staleness::strictly;
use super::{AcrossVersions, Changed, Mutations, Origins, mutate};
use crate::environment::HostEnvironment;
use crate::suite::{EndSignals, SuiteEnd, SuiteError, Trial, at_once, load_scenario_alone};
use belljar_contract::{AbsPath, Conclusion, ExitCode, Observation, TapeNormaliser, Wishes};
use belljar_verdict::{StaleRule, judge_contradicting, judge_stale};
use serde_json::{Value, json};
use std::num::NonZero;
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
    /// Whether the plan and the agent must be the recorded ones as well.
    pub across: AcrossVersions,
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
    /// The normalisers of the suite, with what they changed when the tape was recorded.
    pub normalise: Vec<TapeNormaliser>,
    /// Who answered and judged.
    pub origins: Origins,
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
    let (trial, mut found, cassette, changed, normalise) = if path.as_path().is_file() {
        let cassette = open_cassette(path, environment)?;
        let trial = Arc::new(cassette::scenario(&cassette, (path, &environment.shown(path)))?);
        let found = cassette::replay(&cassette, &trial).map_err(ReplayError::CassetteProtocol)?;
        let mut changed = cassette_source::changed(&cassette, (path, &trial), environment);
        changed.extend((how.across == AcrossVersions::Strict).then(cassette_source::without_digests));
        (trial, found, Some(cassette.format), changed, Vec::new())
    } else {
        // The files that the scenario names are not needed to judge it.
        let load = |file: &AbsPath| Ok::<_, ReplayError>(load_scenario_alone(environment, file)?);
        let (tape, trial) = scenarios.open(path, environment, load)?;
        let tape = Arc::new(tape);
        let mut found = protocol::replay(&tape, &trial)?;
        let present = scenarios.present((&trial, &tape.head), environment, how);
        let mut changed = present.changed_since(&tape.head);
        let wrong = match present.is_known() {
            // The scenario was compared already: it is not read again for each of its tapes.
            true => misattributed_unless(&changed, &trial, &found.decided),
            false => wrongly_answered(&tape, &trial, &found.decided),
        };
        // Nothing ran that could have drifted.
        let wrong = wrong.or_else(|| found.mismatch.as_ref().map(differs));
        judge_contradicting(&mut found.judgement, wrong);
        if let (AcrossVersions::Strict, Some(file)) = (how.across, &trial.file) {
            let more = strictly(file, &tape.head, environment, &|wishes| (how.permit)(wishes));
            let more = more.into_iter().filter(|one| !changed.contains(one)).collect::<Vec<_>>();
            changed.extend(more);
        }
        (trial, found, None, changed, tape.head.scenario.normalise.clone())
    };
    judge_stale(&mut found.judgement, sentences(&changed, how.across), how.stale);
    let asked = how.mutate;
    let seen: Vec<&Observation> = found.evidence.seen.iter().map(|seen| &seen.what).collect();
    let origins = Origins::of_tape(&seen, &found.evidence.claims);
    let path = path.clone();
    let mut out =
        Rejudged { trial, found, cassette, mutations: None, changed, normalise, origins, asked, path };
    // If a check fails already, an unnoticed change proves nothing.
    if asked == Mutate::Yes && out.exit() == ExitCode::Passed {
        out.mutations = Some(mutate(&out.found.evidence, &out.trial.checks));
    }
    Ok(out)
}

impl Rejudged {
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        self.conclusion().exit()
    }

    /// A conversation with an unnoticed change has failed.
    fn conclusion(&self) -> Conclusion {
        match self.mutations.as_ref().map(|mutations| (mutations.tried, mutations.unnoticed.len())) {
            None => self.found.judgement.conclusion,
            Some((0, _)) => Conclusion::Unverified,
            Some((_, 0)) => Conclusion::Passed,
            Some(_) => Conclusion::Failed,
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let Self { trial, found, cassette, mutations, changed, normalise, origins, asked, path } = self;
        let mut value = json!({
            "tape": path,
            "scenario": trial.scenario.name,
            "lane": "protocol",
            "conclusion": self.conclusion(),
            "exit_code": self.exit().code(),
            "checks": found.judgement.checks,
            "signals": found.judgement.signals,
            "observations": found.observations,
            "mismatch": found.mismatch,
            "changed": changed,
            "normalisers": normalise,
            "decisions": origins.decisions,
            "answered_by": origins.answered_by,
            "judged_by": origins.judged_by,
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

/// How many recordings are judged at once.
#[derive(Debug, Clone, Copy)]
pub struct RejudgePool {
    /// The number of threads; twice the processors if `None`.
    pub at_once: Option<NonZero<usize>>,
    /// Whether one that does not pass prevents the remaining ones from being read.
    pub fail_fast: bool,
}

/// Judges many recordings again; `each` receives them in their order and decides with what code one ended.
///
/// # Errors
/// If signals cannot be handled.
pub fn rejudge_many(
    paths: &[AbsPath],
    (environment, scenarios): (&HostEnvironment, &Scenarios),
    how: Rejudging<'_>,
    pool: RejudgePool,
    each: &mut dyn FnMut(&AbsPath, Result<Rejudged, ReplayError>) -> ExitCode,
) -> Result<SuiteEnd, SuiteError> {
    let signals = EndSignals::take()?;
    let threads = at_once(pool.at_once).min(AT_ONCE);
    let (mut left, mut open) = (paths, true);
    loop {
        let interrupted = signals.arrived()?;
        if left.is_empty() || interrupted || !open {
            return Ok(SuiteEnd { not_started: left.len(), interrupted });
        }
        let (some, rest) = left.split_at(left.len().min(if pool.fail_fast { threads } else { AT_ONCE }));
        let read = in_threads(threads, some, |path| rejudge(path, environment, scenarios, how));
        for (path, read) in some.iter().zip(read) {
            open &= each(path, read) == ExitCode::Passed || !pool.fail_fast;
        }
        left = rest;
    }
}

fn in_threads<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(threads).max(1));
        let begun: Vec<_> =
            parts.map(|some| scope.spawn(move || some.iter().map(work).collect::<Vec<R>>())).collect();
        let end = |worker: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        begun.into_iter().flat_map(end).collect()
    })
}
