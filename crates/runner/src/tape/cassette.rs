//! Cassettes of cowork-harness: they are replayed and judged by the same code as tapes.
//!
//! A cassette has no exchanges with the model, so no agent can be run from it. Facts that it does not contain are
//! unknown, and a check that needs one is neither passed nor left out.

use super::agreement::misattributed;
use super::protocol::{Again, AgainEnded, Answered, ProtocolError, ReadAgain, Said};
use crate::suite::{LoadError, Scope, Trial, scenario_alone};
use belljar_contract::{
    AbsPath, CallId, ConversationFailure, Evidence, FileKind, FileSeen, FilesSeen, Frame, GuestEnd, Inbound,
    Metrics, Observation, RunIsolation, Seen, Whole, visible,
};
use belljar_plan::{DocumentText, Fidelity, PermissionParity};
pub use belljar_record::{CASSETTE_FORMATS, Cassette, CassetteFault, CassetteFile};
use belljar_session::decider::{Chain, Parity, Scripted};
use belljar_session::{By, Echo, Harnesses, MachineConfig, StateEvents};
use belljar_verdict::{judge_contradicting, judge_unlisted};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A fact that no cassette contains.
pub const UNSAID: &str = "a cassette does not record the agent's exit status; after a result, 0 is assumed";

/// The recorded scenario, as the text of a file.
#[must_use]
pub fn scenario_text(cassette: &Cassette) -> String {
    let mut out = String::new();
    members(&cassette.scenario, 0, &mut out);
    out
}

/// The recorded scenario, for judging.
///
/// # Errors
/// All errors in it.
pub fn scenario(cassette: &Cassette, (path, name): (&AbsPath, &str)) -> Result<Trial, LoadError> {
    let bytes = scenario_text(cassette).into_bytes();
    let text = DocumentText { name: format!("{name} (scenario)"), bytes };
    scenario_alone(text, Scope::of_named(path, []))
}

/// Replays the frames of a cassette and judges them.
///
/// # Errors
/// If it contradicts itself.
pub fn replay(cassette: &Cassette, trial: &Trial) -> Result<ReadAgain, ProtocolError> {
    let greeting = greeting(cassette);
    let mut again = Again::new(config(cassette), lines(cassette, trial, greeting), guessed(trial));
    match greeting {
        Some(_) => again.begin(),
        None => again.next_message(),
    }
    // Evidence refers to the line of `events` that shows it.
    let (mut line, mut numbers) = (0, vec![0; again.seen.len()]);
    while let Some(said) = again.lines.pop_front() {
        line += u64::from(matches!(said, Said::Agent(_)));
        again.take(said);
        numbers.resize(again.seen.len(), line);
    }
    let outputs = again.machine.on_exit(GuestEnd::Code(0));
    again.carry_out(outputs);
    let AgainEnded { seen, mut end, decided } = again.finish()?;
    let conversation = match &cassette.sent {
        Some(_) => Whole::Yes,
        None => Whole::No { why: "the cassette has no `controlOut`".to_owned() },
    };
    // Without the answers, it is not known whether a question was left unanswered.
    let unknown = |failure: &ConversationFailure| matches!(failure, ConversationFailure::Unanswered { .. });
    if cassette.sent.is_none() {
        end = end.filter(|end| !end.failure.as_ref().is_some_and(unknown));
    }
    let placed = seen.into_iter().zip(numbers).map(|(what, seq)| Seen { seq, offset_ms: 0, what });
    let evidence = Evidence {
        model: belljar_contract::ModelEvidence::NotKept,
        seen: placed.collect(),
        conversation,
        end,
        egress: None,
        files: files(cassette),
        metrics: Metrics::default(),
        duration_ms: None,
        stopped_by: None,
        isolation: isolation(cassette, trial),
        claims: Vec::new(),
        lane: trial.scenario.lane,
    };
    let observations = evidence.seen.len();
    let mut judgement = trial.judge(&evidence);
    judge_unlisted(&mut judgement);
    judge_contradicting(
        &mut judgement,
        misattributed(trial, &decided)
            .or_else(|| unpaired(cassette, &evidence))
            .or_else(|| unsaid(&evidence)),
    );
    Ok(ReadAgain { judgement, evidence, observations, mismatch: None, decided })
}

/// An answer without its question, or a call without its result. A whole cassette has neither.
fn unpaired(cassette: &Cassette, evidence: &Evidence) -> Option<String> {
    let asked = |id: &&str| {
        let asks = |event: &Value| event["type"] == "control_request" && event["request_id"] == **id;
        cassette.events.iter().any(asks)
    };
    let sent = cassette.sent.iter().flatten();
    let mut answers = sent.filter_map(|frame| frame.pointer("/response/request_id").and_then(Value::as_str));
    if let Some(id) = answers.find(|id| !asked(id)) {
        return Some(format!("the answer to `{}` has no question", visible(id)));
    }
    let returned = evidence.seen.iter().filter_map(|seen| {
        let Observation::ToolReturned { call, .. } = &seen.what else { return None };
        Some(call)
    });
    let returned: BTreeSet<&CallId> = returned.collect();
    // The agent of a conversation that failed may have been stopped before a result.
    let failed = evidence.end.as_ref().is_none_or(|end| end.failure.is_some() || end.failed_results > 0);
    let open = evidence.seen.iter().find_map(|seen| {
        let Observation::ToolCalled { call, .. } = &seen.what else { return None };
        (!failed && !returned.contains(call)).then_some(call)
    });
    open.map(|call| format!("the call {call} has no result"))
}

/// Whether the whole agent ran in a container or a virtual machine. At `protocol` nothing of it did, at `hostloop` its
/// shell alone; `cowork` stands for another tier, which the cassette may name.
fn isolation(cassette: &Cassette, trial: &Trial) -> RunIsolation {
    let isolates =
        |tier: &Value| [Fidelity::Container, Fidelity::Microvm].iter().any(|one| tier == one.name());
    let is_sealed = match (trial.scenario.fidelity, &cassette.tier) {
        (Some(Fidelity::Protocol | Fidelity::Hostloop), _) | (Some(Fidelity::Cowork), None) => false,
        (_, Some(tier)) => isolates(tier),
        (Some(Fidelity::Container | Fidelity::Microvm) | None, None) => true,
    };
    match is_sealed {
        true => RunIsolation::Sealed,
        // The directories of the run are not known: any path may be its own.
        false => RunIsolation::Missing { own: vec!["/".to_owned()] },
    }
}

/// A turn that ended with a text which no message has.
fn unsaid(evidence: &Evidence) -> Option<String> {
    let said: Vec<&str> = evidence
        .seen
        .iter()
        .filter_map(|seen| {
            let (Observation::Said { by: _, text } | Observation::Noted { by: _, text }) = &seen.what else {
                return None;
            };
            Some(text.trim())
        })
        .collect();
    evidence.seen.iter().find_map(|seen| {
        let Observation::TurnEnded(turn) = &seen.what else { return None };
        let text = turn.text.as_deref().map(str::trim).filter(|text| !turn.is_error && !text.is_empty())?;
        (!said.iter().any(|one| one.contains(text)))
            .then(|| "a turn ended with a text that no message has".to_owned())
    })
}

/// The id of the handshake, if it was answered.
fn greeting(cassette: &Cassette) -> Option<&str> {
    let sent = cassette.sent.as_ref()?.iter();
    let ours = sent.filter(|frame| frame.pointer("/request/subtype") == Some(&json!("initialize")));
    let mut ids = ours.filter_map(|frame| frame["request_id"].as_str());
    ids.find(|id| {
        let replies = |event: &Value| event.pointer("/response/request_id") == Some(&json!(id));
        cassette.events.iter().any(replies)
    })
}

/// The recorder did not ask the agent for state events; if they are there, they are used.
fn config(cassette: &Cassette) -> MachineConfig {
    let has_state = cassette.events.iter().any(|event| matches!(Inbound::of(event), Ok(Inbound::State(_))));
    MachineConfig {
        state_events: if has_state { StateEvents::Expected } else { StateEvents::Absent },
        echo: Echo::Absent,
        hooks: Harnesses::built_in().background_hooks(),
        ..MachineConfig::default()
    }
}

/// A cassette does not record the decider of an answer. If the rules give the same answer, they are named as the
/// decider.
fn guessed(trial: &Trial) -> Answered {
    let scripted = Scripted::default().with(trial.rules.clone(), By::Scenario);
    let parity = match trial.session.permission_parity {
        PermissionParity::Cowork => Parity::Cowork,
        PermissionParity::Strict => Parity::Strict,
    };
    Answered::Guessed(Chain::default().then(scripted).then(parity))
}

/// The frames in one order, with each answer after its question.
fn lines(cassette: &Cassette, trial: &Trial, greeting: Option<&str>) -> VecDeque<Said> {
    let sent = cassette.sent.as_deref().unwrap_or_default();
    let prompt = json!({"type": "user", "message": {"content": trial.scenario.prompt}});
    let mut said: Vec<&Value> = sent.iter().filter(|frame| frame["type"] == "user").collect();
    if said.is_empty() {
        said.push(&prompt);
    }
    let mut out = VecDeque::new();
    for (at, frame) in said.into_iter().enumerate() {
        let uuid = format!("00000000-0000-4000-8000-{:012}", at + 1);
        let message = json!({"type": "user", "uuid": uuid, "message": {"content": message_text(frame)}});
        out.push_back(Said::Belljar(message));
    }
    for event in &cassette.events {
        let mut event = event.clone();
        let replies_to = event.pointer("/response/request_id").and_then(Value::as_str);
        if replies_to.is_some() {
            match greeting {
                // The handshake gets the id that the state machine uses.
                Some(id) if replies_to == Some(id) => event["response"]["request_id"] = json!("belljar-1"),
                // An answer to a request of the recorder, which is not on the cassette.
                _ if cassette.sent.is_none() => continue,
                _ => {}
            }
        }
        let asked = event["request_id"].as_str().filter(|_| event["type"] == "control_request");
        let reply = asked.and_then(|id| {
            sent.iter().find(|frame| frame.pointer("/response/request_id") == Some(&json!(id)))
        });
        let reply = reply.cloned();
        out.push_back(Said::Agent(Frame::from_value(event)));
        out.extend(reply.map(Said::Belljar));
    }
    out
}

/// The text of a message of the user.
fn message_text(frame: &Value) -> String {
    let content = &frame["message"]["content"];
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

fn files(cassette: &Cassette) -> Option<FilesSeen> {
    let file = |bytes, digest| FileSeen { kind: FileKind::File, bytes, digest, kept: None, body: None };
    let after: BTreeMap<String, FileSeen> = cassette
        .files
        .as_ref()?
        .iter()
        .map(|found| {
            let mut seen = file(found.bytes, found.digest);
            match found.is_link {
                // The target is not on the cassette.
                true => seen.kind = FileKind::Link { target: String::new() },
                false => seen.body.clone_from(&found.body),
            }
            (found.path.clone(), seen)
        })
        .collect();
    let mut visible = cassette.visible.clone();
    if !visible.iter().any(|root| root == crate::suite::OUTPUTS) {
        visible.push(crate::suite::OUTPUTS.to_owned());
    }
    let unread = match &cassette.before {
        Some(_) => Vec::new(),
        None => vec!["the files before the run are not on the cassette".to_owned()],
    };
    // The cassette has no lengths of these files: their digests alone tell whether they were changed.
    let before = cassette.before.iter().flatten().map(|(path, digest)| {
        let bytes = after.get(path).map_or(0, |after| after.bytes);
        (path.clone(), file(bytes, *digest))
    });
    Some(FilesSeen {
        before: before.collect(),
        after,
        visible,
        read_only: Vec::new(),
        lasting: Vec::new(),
        unread,
    })
}

/// YAML with texts quoted as in JSON.
fn members(map: &Map<String, Value>, depth: usize, out: &mut String) {
    for (name, value) in map {
        let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name = if plain { name.clone() } else { json!(name).to_string() };
        out.push_str(&format!("{}{name}:", "  ".repeat(depth)));
        below(value, depth + 1, out);
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            members(map, depth, out);
        }
        Value::Array(items) if items.iter().any(|item| item.is_object()) => {
            out.push('\n');
            for item in items {
                out.push_str(&format!("{}-", "  ".repeat(depth)));
                below(item, depth + 1, out);
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => {
            out.push_str(&format!(" {value}\n"));
        }
    }
}
