//! Writes what a run was and what came of it, and seals the record.

use crate::launch::RunSubject;
use crate::store::kept_run::conversation;
use crate::store::seal::seal_run;
use belljar_contract::{
    AbsPath, AskedQuestion, ConversationSource, DecisionMade, Digest, Event, Observation, OpenNeed, Run,
    RunDigests, RunSummary, RunVerdict, Seen, Speaker, ToolCount,
};
use belljar_record::{ReadError, Redact, RunReader, WriteError, write_summary};
use std::collections::BTreeMap;

/// Why a run has no summary or no manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConcludeError {
    #[error("cannot read the record of the run")]
    Read(#[from] ReadError),
    #[error("cannot seal the record of the run")]
    Write(#[from] WriteError),
}

/// A run whose record is concluded.
pub(crate) struct Concluding<'a> {
    pub directory: &'a AbsPath,
    pub subject: &'a RunSubject,
    pub verdict: Option<RunVerdict>,
    pub redact: &'a Redact,
    /// belljar's state directory, which has the key.
    pub state: &'a AbsPath,
}

impl Concluding<'_> {
    /// Writes the summary and the manifest. A run without an end gets neither.
    pub fn conclude(self) -> Result<(), ConcludeError> {
        let run = RunReader::new(self.directory.clone()).read()?;
        self.conclude_read(&run)
    }

    /// The same for a run that was read already.
    pub fn conclude_read(self, run: &Run) -> Result<(), ConcludeError> {
        let Self { directory, subject, verdict, redact, state } = self;
        let Some(result) = &run.result else { return Ok(()) };
        let (source, transcript) = conversation(directory, run);
        let seen = match source {
            ConversationSource::Frames => observed(run),
            ConversationSource::Transcript | ConversationSource::None => {
                transcript.iter().map(|Seen { what, .. }| what).collect()
            }
        };
        let head = &run.head;
        let scenario = subject.scenario.as_ref();
        let not_isolated = not_isolated(run);
        let summary = RunSummary {
            format: RunSummary::format_of(&not_isolated),
            run: head.id.clone(),
            verb: subject.verb,
            subject: scenario.map_or_else(|| head.agent.to_string(), |used| used.name.clone()),
            agent: head.agent.clone(),
            started_at_ms: head.started_at_ms,
            duration_ms: result.duration_ms,
            status: result.status.clone(),
            scenario: scenario.and_then(|used| Some(used.file.as_ref()?.to_string())),
            digests: RunDigests {
                plan: head.plan_digest,
                scenario: scenario
                    .filter(|used| used.file.is_some() && redact.scrub_bytes(&used.text).is_none())
                    .map(|used| Digest::of(&used.text)),
                skills: scenario.map(|used| used.skills.clone()).unwrap_or_default(),
                plugins: scenario.map(|used| used.plugins.clone()).unwrap_or_default(),
            },
            verdict,
            not_isolated,
            conversation: source,
            decisions: decisions(&seen),
            final_message: final_message(&seen),
            tools: tools(&seen),
        };
        write_summary(directory, summary, redact)?;
        Ok(seal_run(directory, &head.id, state)?)
    }
}

/// What nothing enforced, if the run had no sandbox.
pub(crate) fn not_isolated(run: &Run) -> Vec<OpenNeed> {
    let open = run.events.iter().find_map(|record| {
        let Some(Event::Unsealed { open }) = record.event.known() else { return None };
        Some(open.clone())
    });
    open.unwrap_or_default()
}

pub(crate) fn observed(run: &Run) -> Vec<&Observation> {
    let seen = run.events.iter().filter_map(|record| {
        let Some(Event::Seen { what }) = record.event.known() else { return None };
        Some(&**what)
    });
    seen.collect()
}

pub(crate) fn tools(seen: &[&Observation]) -> BTreeMap<String, ToolCount> {
    let mut out: BTreeMap<String, ToolCount> = BTreeMap::new();
    for what in seen {
        if let Observation::ToolCalled { tool, .. } = what {
            out.entry(tool.clone()).or_default().calls += 1;
        } else if let Observation::ToolReturned { tool: Some(tool), is_error: true, .. } = what {
            out.entry(tool.clone()).or_default().errors += 1;
        }
    }
    out
}

pub(crate) fn final_message(seen: &[&Observation]) -> Option<String> {
    let mut text = seen.iter().rev().find_map(|what| {
        let Observation::Said { by: Speaker::Main, text } = what else { return None };
        Some(text.clone())
    })?;
    if text.len() > RunSummary::MESSAGE_MAX {
        text.truncate(text.floor_char_boundary(RunSummary::MESSAGE_MAX));
        text.push('…');
    }
    Some(text)
}

/// Every request of the agent that was answered, or left without an answer.
pub(crate) fn decisions(seen: &[&Observation]) -> Vec<DecisionMade> {
    let texts = |list: &[AskedQuestion]| list.iter().map(|asked| asked.question.clone()).collect();
    let mut asked = BTreeMap::new();
    let mut out = Vec::new();
    for what in seen {
        if let Observation::Asked { request, about, tool, questions, .. } = what {
            asked.insert(request, (about, tool, questions));
        }
        let (request, answer, chosen, by, reason) =
            if let Observation::Answered { request, answer, chosen, by, reason } = what {
                (request, Some(answer.clone()), chosen.clone(), Some(by.clone()), reason.clone())
            } else if let Observation::Unanswered { request, notes, paste: _ } = what {
                (request, None, Vec::new(), None, notes.join("; "))
            } else {
                continue;
            };
        let found = asked.get(request);
        out.push(DecisionMade {
            about: found.map(|(about, ..)| (*about).clone()).unwrap_or_default(),
            tool: found.and_then(|(_, tool, _)| (*tool).clone()),
            questions: found.map(|(.., questions)| texts(questions)).unwrap_or_default(),
            answer,
            chosen,
            by,
            reason,
        });
    }
    out
}
