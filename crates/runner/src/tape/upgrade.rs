//! What replays on another version of the agent say about their recordings.

use super::replay::Scenarios;
use super::{
    AcrossVersions, AgentDifferences, Changed, Drift, Mutate, Rejudging, ReplayReport, ReplayedAgents, Tape,
    rejudge,
};
use crate::environment::HostEnvironment;
use crate::suite::{JobResult, SuiteEnd, SuiteOutcome};
use belljar_contract::{
    AbsPath, ChangedCheck, CheckResult, Conclusion, ExitCode, Judgement, Moved, MovedInTapes, MovedKind,
    Outcome, RecordAgain, ScenarioResult, SignalWeight, SizeChange, UpgradeDrift, UpgradeOutcome,
    UpgradeReport, UpgradeRequests, UpgradedTape, Wishes, with_causes,
};
use belljar_verdict::StaleRule;
use serde_json::{Value, from_value};
use std::collections::BTreeMap;

/// Reads what the replays of these tapes found. `permit` decides whether files beyond a suite may be read.
#[must_use]
pub fn upgrade_report(
    (tapes, outcome): (&[AbsPath], &SuiteOutcome),
    agent: Option<String>,
    environment: &HostEnvironment,
    permit: &(dyn Fn(&Wishes) -> bool + Sync),
) -> UpgradeReport {
    let scenarios = Scenarios::default();
    let how =
        Rejudging { mutate: Mutate::No, stale: StaleRule::Allowed, across: AcrossVersions::UserSide, permit };
    let recorded = |tape: &AbsPath| {
        let read = rejudge(tape, environment, &scenarios, how);
        read.map(|read| read.found.judgement).map_err(|error| with_causes(&error))
    };
    let SuiteOutcome { jobs, end: SuiteEnd { not_started, interrupted } } = outcome;
    // Those after a stop are absent.
    let replayed = tapes.iter().zip(jobs);
    let results: Vec<UpgradedTape> = replayed.map(|(tape, job)| upgraded(tape, job, &recorded)).collect();
    let moved = in_tapes(&results);
    let record_again = results.iter().filter_map(record_again).collect();
    let (not_started, interrupted) = (*not_started, *interrupted);
    UpgradeReport { agent, results, moved, record_again, commands: Vec::new(), not_started, interrupted }
}

/// The verdict of a recording as it is judged now, or why there is none.
type RecordedVerdict<'a> = &'a dyn Fn(&AbsPath) -> Result<Judgement, String>;

/// Reads what the replay of one tape found.
fn upgraded(tape: &AbsPath, job: &JobResult, recorded: RecordedVerdict<'_>) -> UpgradedTape {
    let JobResult { exit, row, run } = job;
    let ran = run.as_ref().and_then(|run| Some((run, run.conclusion?)));
    let Some((run, conclusion)) = ran else { return not_run(tape, *exit, row) };
    let report: ReplayReport = from_value(row["replay"].clone()).unwrap_or_default();
    let agents: ReplayedAgents = from_value(row["agents"].clone()).unwrap_or_default();
    let changed: Vec<Changed> = from_value(row["changed"].clone()).unwrap_or_default();
    let stale: Vec<String> =
        changed.iter().filter(|one| one.is_of_the_test()).map(Changed::sentence).collect();
    let Verdict { outcome, checks, why } = match verdict(run, conclusion, &|| recorded(tape)) {
        // The verdict is that of another test.
        Verdict { outcome: UpgradeOutcome::SameVerdict, checks, why: _ } if !stale.is_empty() => {
            Verdict { outcome: UpgradeOutcome::Unverified, checks, why: stale.clone() }
        }
        other => other,
    };
    let drifts = report.drifts.len() as u64 + report.more_drifts;
    let requests = UpgradeRequests {
        recorded: report.exchanges,
        present: report.exact + drifts,
        reordered: report.reordered,
        absent: if drifts == 0 { report.unconsumed.len() as u64 } else { 0 },
    };
    let fixed = report.agent.fixed_prompt;
    UpgradedTape {
        scenario: Some(run.scenario.clone()),
        outcome,
        exit_code: status(outcome, *exit).code(),
        recorded_on: agents.recorded,
        replayed_on: agents.present,
        why,
        checks,
        drifts: drifts_of(&report),
        stale,
        requests: Some(requests),
        fixed_prompt: fixed.map(|(recorded, present)| SizeChange { recorded, present }),
        moved: moved(&report.agent),
        run: run.directory.clone(),
        tape: tape.clone(),
    }
}

/// A tape without a run: the row says why.
fn not_run(tape: &AbsPath, exit: ExitCode, row: &Value) -> UpgradedTape {
    let head = Tape::open(tape).ok().map(|tape| tape.head);
    UpgradedTape {
        scenario: head.as_ref().map(|head| head.scenario.name.clone()),
        outcome: if exit == ExitCode::Interrupted {
            UpgradeOutcome::Interrupted
        } else {
            UpgradeOutcome::NotRun
        },
        exit_code: exit.code(),
        recorded_on: head.and_then(|head| head.agent.version),
        replayed_on: None,
        why: row["error"].as_str().map(|why| why.trim().to_owned()).into_iter().collect(),
        checks: Vec::new(),
        drifts: Vec::new(),
        stale: Vec::new(),
        requests: None,
        fixed_prompt: None,
        moved: Vec::new(),
        run: None,
        tape: tape.clone(),
    }
}

/// A verdict, compared with that of the recording.
struct Verdict {
    outcome: UpgradeOutcome,
    checks: Vec<ChangedCheck>,
    why: Vec<String>,
}

fn verdict(
    run: &ScenarioResult,
    conclusion: Conclusion,
    recorded: &dyn Fn() -> Result<Judgement, String>,
) -> Verdict {
    let signals = || run.weighty_signals().map(|signal| format!("{}: {}", signal.code, signal.message));
    let plain = |outcome, why| Verdict { outcome, checks: Vec::new(), why };
    match conclusion {
        Conclusion::Drifted => return plain(UpgradeOutcome::Drifted, Vec::new()),
        Conclusion::Interrupted => return plain(UpgradeOutcome::Interrupted, Vec::new()),
        Conclusion::Passed
        | Conclusion::Failed
        | Conclusion::Unverified
        | Conclusion::AgentFailed
        | Conclusion::BudgetReached => {}
    }
    let recorded = match recorded() {
        Ok(recorded) => recorded,
        Err(why) => {
            let why = format!("the verdict of the recording is not known: {why}");
            return plain(UpgradeOutcome::Unverified, vec![why]);
        }
    };
    let checks = changed_checks(&recorded.checks, &run.checks);
    let same = recorded.conclusion == conclusion && failing(&recorded.signals) == failing(&run.signals);
    // Without a run less is known than with one.
    let same = same || (recorded.conclusion, conclusion) == (Conclusion::Unverified, Conclusion::Passed);
    let outcome = match (checks.is_empty(), conclusion) {
        (false, _) => UpgradeOutcome::VerdictChanged,
        (true, Conclusion::Unverified) => UpgradeOutcome::Unverified,
        (true, _) if same && became_unknown(&recorded.checks, &run.checks) => UpgradeOutcome::Unverified,
        (true, _) if same => UpgradeOutcome::SameVerdict,
        (true, _) => UpgradeOutcome::VerdictChanged,
    };
    let unknown = run.unmet_checks().map(|check| format!("{}: {}", check.check, check.message));
    let why = match outcome {
        UpgradeOutcome::Unverified => signals().chain(unknown).collect(),
        UpgradeOutcome::VerdictChanged => {
            let words = |conclusion: Conclusion| conclusion.exit().meaning();
            let (before, now) = (words(recorded.conclusion), words(conclusion));
            let other = (before != now).then(|| format!("when recorded: {before}; now: {now}"));
            other.into_iter().chain(signals()).collect()
        }
        UpgradeOutcome::SameVerdict
        | UpgradeOutcome::Drifted
        | UpgradeOutcome::NotRun
        | UpgradeOutcome::Interrupted => Vec::new(),
    };
    Verdict { outcome, checks, why }
}

/// The codes of the signals by which a run fails.
fn failing(signals: &[belljar_contract::Signal]) -> Vec<&str> {
    let fails = signals.iter().filter(|signal| signal.weight == SignalWeight::Fail);
    fails.map(|signal| signal.code.as_str()).collect()
}

/// Whether a check is unknown now that was not.
fn became_unknown(recorded: &[CheckResult], present: &[CheckResult]) -> bool {
    let was_known =
        |place: &str| recorded.iter().any(|check| check.place == place && check.outcome != Outcome::Unknown);
    present.iter().any(|check| check.outcome == Outcome::Unknown && was_known(&check.place))
}

/// Checks that fail now and did not, or do not any more.
fn changed_checks(recorded: &[CheckResult], present: &[CheckResult]) -> Vec<ChangedCheck> {
    let before: BTreeMap<&str, Outcome> =
        recorded.iter().map(|check| (check.place.as_str(), check.outcome)).collect();
    let changed = |check: &CheckResult| {
        let CheckResult { place, check, outcome: present, message, evidence: _ } = check;
        let (recorded, present) = (*before.get(place.as_str())?, *present);
        let differs = match (recorded, present) {
            (Outcome::Pass | Outcome::Unknown | Outcome::Waived, Outcome::Fail)
            | (Outcome::Fail, Outcome::Pass | Outcome::Waived) => true,
            (Outcome::Fail, Outcome::Fail | Outcome::Unknown)
            | (
                Outcome::Pass | Outcome::Unknown | Outcome::Waived,
                Outcome::Pass | Outcome::Unknown | Outcome::Waived,
            ) => false,
        };
        differs.then(|| ChangedCheck { check: check.clone(), recorded, present, message: message.clone() })
    };
    present.iter().filter_map(changed).collect()
}

/// What a tape adds to the exit status. A recording of a failure that fails again is as it was.
const fn status(outcome: UpgradeOutcome, exit: ExitCode) -> ExitCode {
    match outcome {
        UpgradeOutcome::SameVerdict => ExitCode::Passed,
        UpgradeOutcome::VerdictChanged => ExitCode::Failed,
        UpgradeOutcome::Drifted => ExitCode::Drifted,
        UpgradeOutcome::Unverified => ExitCode::Unverified,
        UpgradeOutcome::NotRun => exit,
        UpgradeOutcome::Interrupted => ExitCode::Interrupted,
    }
}

fn drifts_of(report: &ReplayReport) -> Vec<UpgradeDrift> {
    if report.drifts.is_empty() {
        let absent = report.unconsumed.iter().map(|left| UpgradeDrift {
            kind: "exchange that was not asked for".to_owned(),
            place: format!("{}, exchange {}", left.conversation, left.exchange),
            recorded: None,
            present: None,
            call: None,
        });
        return absent.collect();
    }
    report.drifts.iter().flat_map(drift_places).collect()
}

/// One for each difference of a drift; one if it has none.
fn drift_places(drift: &Drift) -> Vec<UpgradeDrift> {
    let kind = drift.kind.describe().to_owned();
    let place = format!("{}, request {}", drift.conversation, drift.request);
    if drift.differences.is_empty() {
        return vec![UpgradeDrift { kind, place, recorded: None, present: None, call: None }];
    }
    let one = |difference: &super::Difference| UpgradeDrift {
        kind: kind.clone(),
        place: format!("{place}, {}", difference.pointer),
        recorded: difference.recorded.clone(),
        present: difference.present.clone(),
        call: difference.call.as_ref().map(|call| format!("{} {}", call.name, call.input)),
    };
    drift.differences.iter().map(one).collect()
}

fn moved(agent: &AgentDifferences) -> Vec<Moved> {
    let AgentDifferences {
        tools_added,
        tools_removed,
        tools_renamed,
        tools_changed,
        results_worded,
        parameters,
        system_prompt,
        reminders,
        fixed_prompt: _,
    } = agent;
    let mut out = Vec::new();
    for (kind, names) in [
        (MovedKind::ToolAdded, tools_added),
        (MovedKind::ToolRemoved, tools_removed),
        (MovedKind::ToolChanged, tools_changed),
        (MovedKind::ResultWorded, results_worded),
    ] {
        let named = |name: &String| Moved { kind, name: name.clone(), recorded: None, present: None };
        out.extend(names.iter().map(named));
    }
    let renamed = tools_renamed
        .iter()
        .map(|(before, now)| (MovedKind::ToolRenamed, before, Some(before.clone()), Some(now.clone())));
    let parameters = parameters
        .iter()
        .map(|(name, (before, now))| (MovedKind::Parameter, name, before.clone(), now.clone()));
    out.extend(renamed.chain(parameters).map(|(kind, name, recorded, present)| Moved {
        kind,
        name: name.clone(),
        recorded,
        present,
    }));
    for (kind, size) in [(MovedKind::SystemPrompt, system_prompt), (MovedKind::Reminders, reminders)] {
        out.extend(size.map(|(before, now)| Moved {
            kind,
            name: String::new(),
            recorded: Some(before.to_string()),
            present: Some(now.to_string()),
        }));
    }
    out.sort();
    out
}

/// Each difference once. Sizes differ from tape to tape; those of the first are given.
fn in_tapes(results: &[UpgradedTape]) -> Vec<MovedInTapes> {
    let mut out: Vec<MovedInTapes> = Vec::new();
    for moved in results.iter().flat_map(|tape| &tape.moved) {
        let same = |known: &&mut MovedInTapes| {
            known.moved == *moved || (moved.kind.is_size() && known.moved.kind == moved.kind)
        };
        match out.iter_mut().find(same) {
            Some(known) => known.tapes += 1,
            None => out.push(MovedInTapes { moved: moved.clone(), tapes: 1 }),
        }
    }
    out.sort_by(|left, right| left.moved.cmp(&right.moved));
    out
}

/// Why a recording should be made again, if it should.
fn record_again(tape: &UpgradedTape) -> Option<RecordAgain> {
    let word = match tape.outcome {
        UpgradeOutcome::SameVerdict | UpgradeOutcome::NotRun | UpgradeOutcome::Interrupted => None,
        UpgradeOutcome::VerdictChanged => Some("its verdict changed"),
        UpgradeOutcome::Drifted => Some("it drifted"),
        UpgradeOutcome::Unverified if tape.stale.is_empty() => Some("it is not verified"),
        UpgradeOutcome::Unverified => None,
    };
    let stale = tape.stale.iter().map(|sentence| format!("it is stale: {sentence}"));
    let why: Vec<String> = word.map(str::to_owned).into_iter().chain(stale).collect();
    let again = RecordAgain { tape: tape.tape.clone(), why, status: None, error: None };
    (!again.why.is_empty()).then_some(again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{ErrorText, Signal};

    fn judged(conclusion: Conclusion, outcomes: &[Outcome]) -> Judgement {
        let check = |(number, outcome): (usize, &Outcome)| CheckResult {
            place: format!("assert[{number}]"),
            check: format!("check {number}"),
            outcome: *outcome,
            message: "so it is".to_owned(),
            evidence: Vec::new(),
        };
        let checks = outcomes.iter().enumerate().map(check).collect();
        Judgement { conclusion, checks, signals: Vec::new() }
    }

    fn compared(recorded: Judgement, present: Judgement) -> (UpgradeOutcome, usize) {
        let Judgement { conclusion, checks, signals } = present;
        let not_run = ScenarioResult::not_run("a", ExitCode::Passed, ErrorText::default());
        let run = ScenarioResult { checks, signals, error: None, ..not_run };
        let found = verdict(&run, conclusion, &|| Ok(recorded.clone()));
        (found.outcome, found.checks.len())
    }

    #[test]
    fn a_verdict_is_the_same_if_it_was_reached_in_the_same_way() {
        use Conclusion::{AgentFailed, Drifted, Failed, Passed, Unverified};
        use Outcome::{Fail, Pass, Unknown, Waived};
        use UpgradeOutcome::{SameVerdict, VerdictChanged};
        for (recorded, present, expected) in [
            ((Passed, &[Pass][..]), (Passed, &[Pass][..]), (SameVerdict, 0)),
            ((Passed, &[Pass, Pass]), (Failed, &[Pass, Fail]), (VerdictChanged, 1)),
            ((Failed, &[Fail, Pass]), (Failed, &[Fail, Pass]), (SameVerdict, 0)),
            // Another failure is not the same one.
            ((Failed, &[Fail, Pass]), (Failed, &[Pass, Fail]), (VerdictChanged, 2)),
            ((Failed, &[Fail]), (Passed, &[Pass]), (VerdictChanged, 1)),
            ((Passed, &[Pass]), (AgentFailed, &[Pass]), (VerdictChanged, 0)),
            ((AgentFailed, &[Pass]), (AgentFailed, &[Pass]), (SameVerdict, 0)),
            // A recording that is read shows less than a run.
            ((Unverified, &[Unknown]), (Passed, &[Pass]), (SameVerdict, 0)),
            ((Unverified, &[Unknown]), (Failed, &[Fail]), (VerdictChanged, 1)),
            ((Passed, &[Waived]), (Passed, &[Pass]), (SameVerdict, 0)),
            // What is not known is no verdict.
            ((Passed, &[Pass]), (Unverified, &[Unknown]), (UpgradeOutcome::Unverified, 0)),
            ((Unverified, &[Unknown]), (Unverified, &[Unknown]), (UpgradeOutcome::Unverified, 0)),
            ((Failed, &[Fail, Pass]), (Failed, &[Fail, Unknown]), (UpgradeOutcome::Unverified, 0)),
            ((Failed, &[Fail, Unknown]), (Failed, &[Fail, Unknown]), (SameVerdict, 0)),
            ((Passed, &[Pass]), (Drifted, &[Unknown]), (UpgradeOutcome::Drifted, 0)),
        ] {
            let found = compared(judged(recorded.0, recorded.1), judged(present.0, present.1));
            assert_eq!(found, expected, "{recorded:?} {present:?}");
        }
    }

    #[test]
    fn another_reason_to_fail_is_another_verdict_and_an_unread_recording_has_none() {
        let with = |code: &str| {
            let message = "it was".to_owned();
            let signal = Signal { code: code.to_owned(), weight: SignalWeight::Fail, message };
            Judgement { signals: vec![signal], ..judged(Conclusion::Failed, &[Outcome::Pass]) }
        };
        assert_eq!(compared(with("a"), with("a")).0, UpgradeOutcome::SameVerdict);
        assert_eq!(compared(with("a"), with("b")).0, UpgradeOutcome::VerdictChanged);
        let run = ScenarioResult::not_run("a", ExitCode::Passed, ErrorText::default());
        let found = verdict(&run, Conclusion::Passed, &|| Err("it is torn".to_owned()));
        assert_eq!(found.outcome, UpgradeOutcome::Unverified);
        assert!(found.why[0].ends_with("it is torn"), "{:?}", found.why);
    }
}
