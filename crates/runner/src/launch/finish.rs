//! After the sandbox has ended: examines the project, keeps findings, closes the record.

use super::error::RunError;
use super::limits;
use super::live::Ended;
use super::prepare::Record;
use super::report::{CommandOutcome, Report, Spent};
use crate::changes::KeptSummary;
use crate::egress::EgressEnd;
use crate::session::supervise::Ending;
use crate::store::findings;
use crate::store::journal::Journal;
use crate::store::summary::Concluding;
use belljar_contract::{
    Destination, Event, Finding, GuestEnd, HeldBack, LimitKind, ModelUsage, ReachedLimit, RunStatus,
    with_causes,
};
use belljar_egress::gateway::{TokenCount, UsageTotals};

/// Closes the record of a run and makes its report.
///
/// # Errors
/// The failure of the launch, after everything that the run left is recorded.
pub(super) fn finish(ended: Ended, mut record: Record<'_>) -> Result<Report, RunError> {
    let Ended { outcome, egress, reached, held } = ended;
    let plan = &record.planned.compiled.plan;
    let sealed = plan.backend.isolates();
    if let Some(journal) = &mut record.journal {
        journal.keep_transcripts(plan);
        if let Some(files) = record.files.take() {
            journal.keep_files(files.end());
        }
    }
    let Examined { dropped_files, findings, kept, mut record_errors } = examine(&mut record, held);
    if let Some(journal) = &mut record.journal {
        dropped_files.iter().for_each(|finding| journal.emit(&findings::event(finding)));
    }
    let EgressEnd {
        mut denied,
        gateway_errors,
        judge_errors,
        needed,
        usage,
        counted,
        cost_micros,
        transcript,
        taped,
        replayed,
        model_head: _in_the_journal,
        egress_head: _in_the_journal_too,
        failures,
    } = egress;
    let Record {
        planned: _,
        environment,
        subject,
        journal,
        redact,
        value_digests,
        // What these three found is in the journal and in `Examined`.
        project: _,
        layer: _,
        files: _,
        session,
    } = record;
    record_errors.extend(failures);
    denied.iter_mut().for_each(|one| one.redact(&redact));
    if !sealed {
        // The proxy refused it, and nothing kept the program from connecting without the proxy.
        denied.iter_mut().for_each(|one| one.sentence.push_str(" (not enforced)"));
    }
    let spent = usage.map(|usage| spent(&usage, cost_micros.unwrap_or(0)));
    let mut unrecorded = None;
    let directory = journal.map(|mut journal| {
        for refused in &denied {
            journal.emit(&Event::Notice { text: refused.sentence.clone() });
        }
        let (directory, failed) =
            journal.finish(status(&outcome, &reached), spent, counted.as_ref().and_then(model_usage));
        unrecorded = failed.map(|error| redact.scrub(&error.to_string()));
        record_errors.extend(unrecorded.iter().map(|why| format!("the record is not complete: {why}")));
        // A conversation is judged first.
        if !(subject.verb.is_trial() && matches!(outcome, Ok(CommandOutcome::Ended(_)))) {
            let state = &environment.state;
            let (directory, subject, redact) = (&directory, &subject, &redact);
            let concluding = Concluding { directory, subject, verdict: None, redact, state };
            record_errors.extend(concluding.conclude().err().map(|error| with_causes(&error)));
        }
        directory
    });
    drop(session);
    let record_errors = record_errors.iter().map(|text| redact.scrub(text)).collect();
    let of_agent = gateway_errors.into_iter().map(|error| (error.to_string(), error.fix()));
    let of_judge =
        judge_errors.into_iter().map(|error| (format!("the judge was not asked: {error}"), error.fix()));
    let warnings = of_agent.chain(of_judge).map(|(what, fix)| (redact.scrub(&what), fix));
    // A host whose name contains a secret is not proposed for a manifest.
    let holds = |to: &Destination| redact.scrub_bytes(to.to_string().as_bytes()).is_some();
    let needed = needed.into_iter().filter(|to| !holds(to)).collect();
    Ok(Report {
        outcome: outcome?,
        directory,
        unrecorded,
        record_errors,
        planted: dropped_files,
        findings,
        kept,
        denied,
        needed,
        warnings: warnings.collect(),
        spent,
        transcript,
        taped,
        replayed,
        values: value_digests,
        redact,
        reached,
    })
}

/// What the run left in the project, and the changes that are kept beside it.
struct Examined {
    dropped_files: Vec<Finding>,
    findings: Option<String>,
    kept: Option<KeptSummary>,
    record_errors: Vec<String>,
}

fn examine(record: &mut Record<'_>, held: Vec<HeldBack>) -> Examined {
    let plan = &record.planned.compiled.plan;
    let (mut dropped_files, mut record_errors) = std::mem::take(&mut record.project).end();
    let mut kept = None;
    match record.layer.take().map(|layer| crate::changes::look_at(record.planned, layer)) {
        None => {}
        Some(Ok((summary, carried))) => {
            kept = summary;
            dropped_files.extend(carried);
        }
        Some(Err(error)) => {
            record_errors.push(format!("the changes are kept, but cannot be examined: {error}"));
        }
    }
    // Programs in the sandbox chose the names, so they are stored and shown redacted.
    let mut dropped_files: Vec<_> = dropped_files
        .into_iter()
        .map(|finding| findings::redacted(finding, &plan.workspace.source, &record.redact))
        .collect();
    let run = record.journal.as_ref().and_then(Journal::directory_name);
    let findings =
        findings::keep(record.environment, (plan, run), &mut dropped_files, held).unwrap_or_else(|error| {
            record_errors.push(format!("cannot keep the findings: {error}"));
            None
        });
    Examined { dropped_files, findings, kept, record_errors }
}

fn status(outcome: &Result<CommandOutcome, RunError>, reached: &[ReachedLimit]) -> RunStatus {
    match outcome {
        Ok(CommandOutcome::Ended(Ending::Own(end))) => limits::status(*end, reached),
        Ok(CommandOutcome::Ended(Ending::TimeLimit(_))) => RunStatus::LimitReached { limit: LimitKind::Time },
        Ok(CommandOutcome::Ended(Ending::Stopped(_) | Ending::Dismissed)) => RunStatus::Stopped,
        Ok(CommandOutcome::Ended(Ending::Lost | Ending::Unguarded)) => {
            limits::status(GuestEnd::Signal(rustix::process::Signal::KILL.as_raw()), reached)
        }
        Ok(CommandOutcome::NotExecuted { what, .. }) => {
            RunStatus::NotStarted { why: format!("`{what}` cannot be executed") }
        }
        Err(error) => RunStatus::NotStarted { why: error.to_string() },
    }
}

/// The usage that the answers report, if every answer reports some.
pub(crate) fn model_usage(totals: &UsageTotals) -> Option<ModelUsage> {
    let tokens = totals.tokens();
    let priced = totals.models.values().all(|model| model.unpriced == 0);
    (totals.uncounted == 0).then(|| ModelUsage {
        input_tokens: tokens.input,
        cached_tokens: tokens.cache_read.saturating_add(tokens.cache_creation),
        output_tokens: tokens.output,
        cost_micros_usd: priced.then(|| totals.cost().micros()),
    })
}

fn spent(usage: &UsageTotals, cost_micros: u64) -> Spent {
    let tokens = |count: &TokenCount| (count.input + count.cache_read + count.cache_creation, count.output);
    let sums = usage.models.values().map(|model| tokens(&model.tokens));
    let (input_tokens, output_tokens) =
        sums.fold((0, 0), |(read, written), (more, much)| (read + more, written + much));
    Spent { input_tokens, output_tokens, cost_micros }
}
