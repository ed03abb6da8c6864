//! Signals: properties of a run that are judged although no check asks for them.

use crate::check::Softened;
use crate::files::{deleted, lies_in, outputs};
use crate::finding::excerpt;
use crate::run::{Origin, OwnError, Run, Who, died};
use belljar_contract::{
    ConversationFailure, Deadline, EgressLogState, LimitKind, ModelEvidence, Observation, RunIsolation,
    Signal, SignalWeight, Whole,
};

/// A signal, for the reference.
pub(crate) struct About {
    pub code: &'static str,
    pub weight: SignalWeight,
    pub doc: &'static str,
}

const fn about(code: &'static str, weight: SignalWeight, doc: &'static str) -> About {
    About { code, weight, doc }
}

pub(crate) const INTERRUPTED: &str = "interrupted";
pub(crate) const BUDGET: &str = "budget_reached";
pub(crate) const LIMIT: &str = "limit_reached";
pub(crate) const AGENT: &str = "result_error";
pub(crate) const UNANSWERED: &str = "unanswered";
pub(crate) const TRANSPORT: &str = "transport_error";
pub(crate) const FORGED: &str = "frames_differ";
pub(crate) const UNCOMPARED: &str = "model_log_incomplete";
pub(crate) const USAGE: &str = "usage_limit";
pub(crate) const STALE: &str = "stale_recording";
pub(crate) const CONTRADICTING: &str = "recording_contradicts";
pub(crate) const NOT_ISOLATED: &str = "not_isolated";
pub(crate) const RECORD: &str = "record_changed";

pub(crate) const SCRIPT: &str = "script_exhausted";

/// The signal of a tool that ran although it is denied.
pub const DENIED: &str = "denied_tool_ran";

/// The signals of a conversation whose frames are not vouched for.
pub const UNVOUCHED: [&str; 2] = [FORGED, UNCOMPARED];

/// Every signal.
pub(crate) const SIGNALS: &[About] = &[
    about(
        INTERRUPTED,
        SignalWeight::Unknown,
        "A signal to belljar ended the run before the agent had finished, or before its claims were judged. Ends with its own status.",
    ),
    about(
        BUDGET,
        SignalWeight::Fail,
        "A limit of the run ended it: time, money, steps, memory. Ends with its own status.",
    ),
    about(
        AGENT,
        SignalWeight::Fail,
        "The conversation failed, and no `result: error` expects that. Ends with its own status.",
    ),
    about(
        UNANSWERED,
        SignalWeight::Fail,
        "A question was left without an answer, and the run was ended for it.",
    ),
    about(
        TRANSPORT,
        SignalWeight::Fail,
        "The last turn failed because the network did. Never what `result: error` means.",
    ),
    about(
        SCRIPT,
        SignalWeight::Unknown,
        "The last turn failed because the script had no answer for it. Never what `result: error` means, and not the agent's failure. What the agent would have done next is unknown.",
    ),
    about(
        USAGE,
        SignalWeight::Fail,
        "The last turn failed because the account reached a usage limit. Never what `result: error` means.",
    ),
    about(
        LIMIT,
        SignalWeight::Warn,
        "A limit on memory, processes or file systems in memory was reached, and the agent went on. The checks decide; a check that fails may have failed for this.",
    ),
    about(
        "permissive_auto_allow",
        SignalWeight::Fail,
        "A tool that no rule names was allowed all the same. `allow_permissive_auto_allow` lets it pass.",
    ),
    about(
        DENIED,
        SignalWeight::Fail,
        "A tool ran without a question, although a rule, `--deny-tool` or `permission_parity: strict` denies it: the agent's own defaults, a skill or a hook allowed it.",
    ),
    about(
        "outputs_delete",
        SignalWeight::Fail,
        "A file that lay in the outputs is gone. `allow_outputs_delete` lets it pass.",
    ),
    about(
        "stalled",
        SignalWeight::Fail,
        "The agent's last words are a question, and it did nothing since it last asked the user. `allow_stall` lets it pass.",
    ),
    about(
        "conversation_incomplete",
        SignalWeight::Unknown,
        "The conversation was not seen whole, or not understood: lines that could not be read, things that are not as the protocol has them.",
    ),
    about(
        FORGED,
        SignalWeight::Unknown,
        "The agent's frames claim something that the gateway did not serve. Every check is unknown then.",
    ),
    about(
        UNCOMPARED,
        SignalWeight::Unknown,
        "The log of the model or the record of the frames is missing, cut off or changed, so that they cannot be compared.",
    ),
    about(
        CONTRADICTING,
        SignalWeight::Unknown,
        "A part of a tape is missing, or contradicts another part, so that they cannot all be what was recorded.",
    ),
    about(
        STALE,
        SignalWeight::Unknown,
        "The scenario, its session, a skill, a plugin, an upload, a directory or a project is not the one that was recorded. `belljar replay --allow-stale` lets it pass.",
    ),
    about(
        RECORD,
        SignalWeight::Unknown,
        "A file of the run's directory is not as it was when the run ended, or that cannot be verified. Every check is unknown then. Found by `judge` only.",
    ),
    about(
        "egress_log_changed",
        SignalWeight::Unknown,
        "The egress log is not the one that was written during the run. What else was changed is not known either.",
    ),
    about(
        "egress_log_incomplete",
        SignalWeight::Warn,
        "There is an egress log, and it is cut off or of a newer version. Checks that look at it are unknown.",
    ),
    about(
        "files_unseen",
        SignalWeight::Unknown,
        "The files were not looked at, or not all of them, so that a deletion could not be seen. `allow_outputs_delete` lets it pass.",
    ),
    about(
        "missing_capability",
        SignalWeight::Unknown,
        "`requires_capabilities` names something, and images are not examined. `allow_missing_capability` lets it pass.",
    ),
    about(
        "lane_differs",
        SignalWeight::Unknown,
        "The run was made for another lane than the checks were read for.",
    ),
    about(
        "forbidden_delete",
        SignalWeight::Fail,
        "A file that lay in a connected directory of the mode `rw` is gone; `rwd` allows that. `allow_delete_in` lets it pass.",
    ),
    about(
        "mount_delete",
        SignalWeight::Warn,
        "A file that lay in a connected directory of the mode `rwd` is gone. `allow_delete_in` lets it pass.",
    ),
    about(
        "non_deterministic",
        SignalWeight::Warn,
        "A question was answered by a person, a program or by position; another run may be answered otherwise.",
    ),
    about(
        "ended_with_question",
        SignalWeight::Warn,
        "The agent's last words are a question, though it did something before.",
    ),
    about(
        "unknown_frames",
        SignalWeight::Warn,
        "The agent said things of a kind that this belljar does not know; newer agents say more.",
    ),
    about(
        NOT_ISOLATED,
        SignalWeight::Warn,
        "The run had no sandbox (`fidelity: protocol`, the backend `host`). Checks that rest on one are unknown, or waived by `allow_without_isolation`.",
    ),
    about("sub_agents_running", SignalWeight::Warn, "A sub-agent was not seen to end."),
];

/// What the network says when it fails.
const TRANSPORT_WORDS: [&str; 4] = ["connection closed", "econnreset", "socket hang up", "fetch failed"];

/// The agent's words for a limit that it keeps itself.
const BUDGET_WORDS: [&str; 3] = ["error_max_turns", "error_max_budget_usd", "budget_exhausted"];

/// Deciders whose answer may be another one next time. What is not known here is one of them.
const REPRODUCIBLE: [&str; 5] = ["scenario", "policy", "command-line", "parity", "belljar"];

/// What the author lets pass or asks for.
#[derive(Debug, Default)]
pub(crate) struct Leniency {
    pub softened: Vec<Softened>,
    pub expects_error: bool,
}

impl Leniency {
    pub(crate) fn softens(&self, what: &Softened) -> bool {
        self.softened.contains(what)
    }

    fn deletion_in(&self, directory: &str) -> bool {
        let name = directory.rsplit('/').next().unwrap_or(directory);
        self.softened.iter().any(|softened| match softened {
            Softened::DeleteIn(names) => names.iter().any(|given| given == name || given == directory),
            Softened::PermissiveAutoAllow
            | Softened::Stall
            | Softened::OutputsDelete
            | Softened::MissingCapability
            | Softened::Nothing => false,
        })
    }
}

/// Every signal of a run.
pub(crate) fn signals(run: &Run<'_>, leniency: &Leniency) -> Vec<Signal> {
    let mut out = Signals(Vec::new());
    isolation(run, &mut out);
    ending(run, leniency, &mut out);
    completeness(run, &mut out);
    answers(run, leniency, &mut out);
    deletions(run, leniency, &mut out);
    last_words(run, leniency, &mut out);
    curiosities(run, &mut out);
    out.0
}

pub(crate) struct Signals(pub Vec<Signal>);

impl Signals {
    /// Adds a signal; its weight is that of the table.
    pub(crate) fn add(&mut self, code: &str, message: impl Into<String>) {
        let weight =
            SIGNALS.iter().find(|about| about.code == code).map_or(SignalWeight::Fail, |about| about.weight);
        self.0.push(Signal { code: code.to_owned(), weight, message: message.into() });
    }
}

fn isolation(run: &Run<'_>, out: &mut Signals) {
    match run.evidence.isolation {
        RunIsolation::Sealed => {}
        RunIsolation::Missing { own: _ } => out.add(
            NOT_ISOLATED,
            "the run had no sandbox: it could reach every file and host that you can, connections that did not use the proxy \
             were not seen, and processes that left its group may still run",
        ),
    }
}

/// How the run and the conversation ended.
fn ending(run: &Run<'_>, leniency: &Leniency, out: &mut Signals) {
    if run.evidence.conversation == Whole::Interrupted {
        // The agent was ended in the middle of it: how it ended says nothing about the agent.
        out.add(INTERRUPTED, "a signal to belljar ended the run before the agent had finished");
        return;
    }
    if run.evidence.conversation == Whole::JudgeInterrupted {
        out.add(INTERRUPTED, "a signal to belljar ended the judge of the claims; the agent had finished");
    }
    if let Some(limit) = run.evidence.stopped_by {
        let went_on = run.evidence.end.as_ref().is_some_and(|end| !died(end.failure.as_ref()));
        match limit {
            LimitKind::Memory | LimitKind::Pids | LimitKind::Cpu | LimitKind::Tmpfs if went_on => {
                out.add(LIMIT, format!("the {} limit was reached during the run", limit.describe()));
            }
            LimitKind::Memory
            | LimitKind::Pids
            | LimitKind::Cpu
            | LimitKind::Tmpfs
            | LimitKind::Time
            | LimitKind::Cost => out.add(BUDGET, format!("a limit ended the run: {}", limit.describe())),
        }
    }
    let open = run.evidence.seen.iter().find_map(|seen| {
        let Observation::Unanswered { notes, .. } = &seen.what else { return None };
        Some(notes.join("; "))
    });
    if let Some(notes) = open {
        // The agent was ended in the middle of it: how it ended says nothing about the agent.
        out.add(UNANSWERED, format!("a question was left without an answer {}", excerpt(&notes)).trim_end());
        return;
    }
    let Some(end) = &run.evidence.end else { return };
    let Some(failure) = &end.failure else { return };
    if matches!(failure, ConversationFailure::Deadline { deadline: Deadline::Run }) {
        out.add(BUDGET, failure.to_string());
        return;
    }
    match run.own_error() {
        Some(OwnError::Script) => return out.add(SCRIPT, excerpt(&failure.to_string())),
        Some(OwnError::Gateway) => return out.add(AGENT, excerpt(&failure.to_string())),
        None => {}
    }
    if let ConversationFailure::ResultIsError { subtype, text, api_error_status } = failure {
        let said = text.as_deref().unwrap_or_default().to_lowercase();
        if *api_error_status == Some(429) {
            out.add(USAGE, excerpt(&failure.to_string()));
            return;
        }
        if TRANSPORT_WORDS.iter().any(|word| said.contains(word)) {
            out.add(TRANSPORT, excerpt(&failure.to_string()));
            return;
        }
        let reason = end.last.as_ref().and_then(|last| last.terminal_reason.as_deref());
        let limited = BUDGET_WORDS.contains(&subtype.as_str())
            || reason.is_some_and(|reason| BUDGET_WORDS.contains(&reason));
        if limited && !leniency.expects_error {
            out.add(BUDGET, excerpt(&failure.to_string()));
            return;
        }
    }
    if !leniency.expects_error {
        out.add(AGENT, excerpt(&failure.to_string()));
    }
}

fn completeness(run: &Run<'_>, out: &mut Signals) {
    if let Err(gap) = run.recorded() {
        out.add("conversation_incomplete", gap);
    }
    if let Some(first) = run.differences.first() {
        let more = if run.differences.len() > 1 { " (and more)" } else { "" };
        out.add(FORGED, format!("{first}{more}"));
    }
    if let ModelEvidence::Broken { why } = &run.evidence.model {
        out.add(UNCOMPARED, why.as_str());
    }
    let Some(log) = &run.evidence.egress else { return };
    match &log.state {
        // Whether that says anything is decided by each check.
        EgressLogState::Complete | EgressLogState::Unenforced | EgressLogState::Absent => {}
        EgressLogState::Edited { .. } => out.add("egress_log_changed", log.state.describe()),
        EgressLogState::Truncated | EgressLogState::Newer { .. } => {
            out.add("egress_log_incomplete", log.state.describe());
        }
    }
}

fn answers(run: &Run<'_>, leniency: &Leniency, out: &mut Signals) {
    let mut allowed = Vec::new();
    let mut loose = Vec::new();
    for seen in &run.evidence.seen {
        let Observation::Answered { request, answer, chosen: _, by, reason: _ } = &seen.what else {
            continue;
        };
        // Strict parity denies unnamed tools, which is not a fault of the run.
        if by == "parity" && !answer.starts_with("deny") {
            let tool = run.evidence.seen.iter().find_map(|seen| {
                let Observation::Asked { request: of, tool, .. } = &seen.what else { return None };
                tool.as_deref().filter(|_| of == request)
            });
            allowed.push(tool.unwrap_or("a tool"));
        }
        if !REPRODUCIBLE.contains(&by.as_str()) {
            loose.push(by.as_str());
        }
    }
    if !allowed.is_empty() && !leniency.softens(&Softened::PermissiveAutoAllow) {
        let message = format!("no rule names these tools, and they were allowed: {}", distinct(&allowed));
        out.add("permissive_auto_allow", message);
    }
    if !loose.is_empty() {
        out.add(
            "non_deterministic",
            match loose.len() {
                1 => format!("a question or permission was answered by {}", distinct(&loose)),
                count => format!("{count} questions or permissions were answered by {}", distinct(&loose)),
            },
        );
    }
}

fn distinct(words: &[&str]) -> String {
    let set: std::collections::BTreeSet<&str> = words.iter().copied().collect();
    excerpt(&set.into_iter().collect::<Vec<_>>().join(", "))
}

fn deletions(run: &Run<'_>, leniency: &Leniency, out: &mut Signals) {
    let lenient = leniency.softens(&Softened::OutputsDelete);
    let Some(files) = &run.evidence.files else {
        if !lenient {
            out.add("files_unseen", "the files were not looked at");
        }
        return;
    };
    let (own, connected) = outputs(files);
    let kept = |directories: Vec<String>| -> Vec<String> {
        directories.into_iter().filter(|directory| !leniency.deletion_in(directory)).collect()
    };
    let gone = deleted(files, &kept(own));
    if !gone.is_empty() && !lenient {
        out.add("outputs_delete", format!("gone from the outputs: {}", excerpt(&gone.join(", "))));
    }
    let gone = deleted(files, &kept(connected));
    let gone = gone.into_iter().filter(|path| !lies_in(path, &outputs(files).0));
    let (forbidden, gone): (Vec<String>, Vec<String>) = gone.partition(|path| lies_in(path, &files.lasting));
    if !forbidden.is_empty() {
        out.add(
            "forbidden_delete",
            format!("gone from directories of mode `rw`: {}", excerpt(&forbidden.join(", "))),
        );
    }
    if !gone.is_empty() {
        out.add("mount_delete", format!("gone from connected directories: {}", excerpt(&gone.join(", "))));
    }
    if let (Some(first), false) = (files.unread.first(), lenient) {
        out.add("files_unseen", format!("not every file could be looked at: {}", excerpt(first)));
    }
}

/// A conversation that ends with a question waits for a user who is not there.
fn last_words(run: &Run<'_>, leniency: &Leniency, out: &mut Signals) {
    if run.not_stopped().is_err() {
        return;
    }
    let Some((_, last)) = run.said(Who::Agent).last() else { return };
    if !last.trim_end().ends_with('?') {
        return;
    }
    let own = || run.calls().iter().filter(|call| call.origin != Origin::SubAgent);
    let asked = own().filter(|call| call.tool == "AskUserQuestion").map(|call| call.seq).next_back();
    let worked = own().any(|call| asked.is_none_or(|asked| call.seq > asked));
    if worked {
        out.add("ended_with_question", excerpt(last));
    } else if !leniency.softens(&Softened::Stall) {
        out.add("stalled", excerpt(last));
    }
}

fn curiosities(run: &Run<'_>, out: &mut Signals) {
    let unknown: Vec<&str> = run
        .evidence
        .seen
        .iter()
        .filter_map(|seen| {
            let Observation::UnknownFrame { frame } = &seen.what else { return None };
            Some(frame.as_str())
        })
        .collect();
    if !unknown.is_empty() {
        out.add("unknown_frames", format!("{} of {}", unknown.len(), distinct(&unknown)));
    }
    let running = run.evidence.end.as_ref().map_or(0, |end| end.running_sub_agents);
    if running > 0 {
        out.add("sub_agents_running", format!("{running} sub-agents were not seen to end"));
    }
}
