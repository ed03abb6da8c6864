//! A scenario from a kept run: its prompt, its answers, and checks that the run itself passes.

use super::session_of_run::session_of_run;
use super::{Scaffold, relative};
use crate::environment::HostEnvironment;
use crate::store::kept_run::{KeptRun, KeptRunError};
use crate::suite::judge_again::LONGEST;
use belljar_contract::decode::{Faults, Node, plain};
use belljar_contract::{AbsPath, Evidence, Lane, Observation, Outcome, Pattern, SkillWay, Speaker};
use belljar_plan::{DocumentText, parse_document};
use belljar_record::{RunReader, SCENARIO};
use belljar_session::decider::{given_answers_by, yaml_quoted as quoted};
use belljar_verdict::parse_checks;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The most checks of one kind; more of them say nothing.
const MOST: usize = 10;

/// Why no scenario can be made of a run.
#[derive(Debug, thiserror::Error)]
pub enum FromRunError {
    #[error(transparent)]
    Read(#[from] KeptRunError),
    #[error("the run in `{directory}` has no prompt that belljar sent")]
    NoPrompt { directory: AbsPath },
    /// The scenario would send what stands for the secret.
    #[error("the prompt of the run in `{directory}` contains a secret, which was not kept")]
    Redacted { directory: AbsPath },
    #[error("the session `{path}` is not a file")]
    NoSession { path: AbsPath },
    #[error("the record in `{directory}` cannot be relied on: {why}")]
    Doubtful { directory: AbsPath, why: String },
}

/// The scenario of a run, to be written to `out`; by default `NAME-from-run.yaml` in the working directory. `session` is
/// the session that it names.
///
/// # Errors
/// If the run cannot be read or relied on, or has no prompt.
pub fn scaffold_from_run(
    environment: &HostEnvironment,
    directory: AbsPath,
    out: Option<AbsPath>,
    session: Option<&AbsPath>,
) -> Result<Scaffold, FromRunError> {
    let kept = KeptRun::open(directory, environment, Lane::Local)?;
    if let Some(why) = kept.doubts().first() {
        return Err(FromRunError::Doubtful { directory: kept.directory, why: why.clone() });
    }
    let evidence = kept.shown();
    let prompt = evidence.seen.iter().find_map(|seen| {
        let Observation::MessageSent { text, .. } = &seen.what else { return None };
        Some(text.clone())
    });
    let Some(prompt) = prompt else { return Err(FromRunError::NoPrompt { directory: kept.directory }) };
    let sent = evidence.seen.iter().filter(|seen| matches!(seen.what, Observation::MessageSent { .. }));
    let further = sent.count() - 1;
    if is_redacted(&prompt) {
        return Err(FromRunError::Redacted { directory: kept.directory });
    }
    let mut notes = Vec::new();
    if further > 0 {
        notes.push(format!("a scenario has one prompt; {further} further messages of the run are left out"));
    }
    let own = own_scenario(&kept, &mut notes);
    let name = kept.subject();
    let out =
        out.unwrap_or_else(|| environment.directory.child(&format!("{}-from-run.yaml", file_name(&name))));
    let place = out.parent().unwrap_or_else(|| out.clone());
    if let Some(path) = session.filter(|path| !path.as_path().is_file()) {
        return Err(FromRunError::NoSession { path: path.clone() });
    }
    let (session, file) = match session {
        Some(path) => (Some(relative(&place, path)), None),
        None => {
            session_of_run(&kept, own.get("session").and_then(Value::as_str), (&out, environment), &mut notes)
        }
    };
    if session.is_none()
        && evidence.seen.iter().any(|seen| matches!(seen.what, Observation::SkillActivated { .. }))
    {
        notes.push("the run used a skill; name a session that has it with --session".to_owned());
    }
    let text =
        Text { name: &name, run: kept.run.head.id.to_string(), prompt: &prompt, session: session.as_deref() };
    let text = text.written(&own, &evidence, &mut notes);
    Ok(Scaffold { files: std::iter::once((out, text)).chain(file).collect(), notes })
}

/// The scenario that the run was made with, as data; empty where it had none or a secret was replaced in it.
fn own_scenario(kept: &KeptRun, notes: &mut Vec<String>) -> Map<String, Value> {
    let bytes = RunReader::new(kept.directory.clone()).file(SCENARIO, LONGEST).ok().flatten();
    let Some(bytes) = bytes else { return Map::new() };
    if is_redacted(&String::from_utf8_lossy(&bytes)) {
        notes.push(
            "the scenario of the run contains a secret, so its answers and settings are left out".to_owned(),
        );
        return Map::new();
    }
    let text = DocumentText { name: SCENARIO.to_owned(), bytes: bytes.into_owned() };
    match parse_document(text).map(|document| document.root().to_value()) {
        Ok(Value::Object(members)) => members,
        Ok(_) | Err(_) => Map::new(),
    }
}

pub(super) fn is_redacted(text: &str) -> bool {
    belljar_contract::holds_redaction(text.as_bytes())
}

/// A name as part of a file name.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let text: String = name.chars().map(plain).take(60).collect();
    let text = text.trim_matches('-').to_owned();
    if text.is_empty() { "scenario".to_owned() } else { text }
}

struct Text<'a> {
    name: &'a str,
    run: String,
    prompt: &'a str,
    session: Option<&'a str>,
}

impl Text<'_> {
    fn written(&self, own: &Map<String, Value>, evidence: &Evidence, notes: &mut Vec<String>) -> String {
        let mut text = format!("# Made from the run {}. Edit what is too strict.\n", plain(&self.run));
        text.push_str(&format!("name: {}\n", quoted(&format!("{} from a run", plain(self.name)))));
        if let Some(session) = self.session {
            text.push_str(&format!("session: {}\n", quoted(session)));
        }
        text.push_str(&format!("prompt: {}\n", quoted(self.prompt)));
        let written = ["name", "session", "prompt", "answers", "assert", "expect_denied"];
        for (key, value) in own.iter().filter(|(key, _)| !written.contains(&key.as_str())) {
            text.push_str(&format!("{key}: {}\n", flow(value)));
        }
        text.push_str(&answers(own, evidence, notes));
        let checks = checks(own, evidence, notes);
        if checks.is_empty() {
            notes.push("no check holds for the run, so `assert` is empty; write what must hold".to_owned());
            text.push_str("\nassert: []\n");
        } else {
            text.push_str("\n# What the run did; each of these holds for it.\nassert:\n");
            checks.iter().for_each(|check| text.push_str(&format!("  - {}\n", block(check))));
        }
        if let Some(last) = last_words(evidence) {
            text.push_str(&format!(
                "  # The last message began with these words:\n  # - transcript_contains: {last}\n"
            ));
        }
        text
    }
}

/// The answers that others gave than the scenario, then its own: a rule of the command line comes before them in a run, and
/// what a rule of the scenario matches is left to no other.
fn answers(own: &Map<String, Value>, evidence: &Evidence, notes: &mut Vec<String>) -> String {
    let mut text = String::new();
    let given = given_answers_by(evidence.seen.iter().map(|seen| &seen.what), |by| by != "scenario");
    for rule in given.rules {
        rule.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    notes.extend(given.notes);
    for rule in own.get("answers").and_then(Value::as_array).into_iter().flatten() {
        text.push_str(&format!("  - {}\n", flow(rule)));
    }
    if text.is_empty() { text } else { format!("answers:\n{text}") }
}

/// Checks that the run passes. A note names each host of `expect_denied` that is none of them.
fn checks(own: &Map<String, Value>, evidence: &Evidence, notes: &mut Vec<String>) -> Vec<Value> {
    let stays = |check: &Value| !is_redacted(&check.to_string()) && holds(check, evidence);
    let mut denied = Vec::new();
    for host in own.get("expect_denied").and_then(Value::as_array).into_iter().flatten() {
        let check = json!({"egress_denied": host});
        if stays(&check) {
            denied.push(check);
        } else {
            let host = plain(host.as_str().unwrap_or_default());
            notes.push(format!("`expect_denied: {host}` does not hold for the run and is left out"));
        }
    }
    let (mut skills, mut tools) = (BTreeSet::new(), BTreeSet::new());
    for seen in &evidence.seen {
        if let Observation::SkillActivated { skill, way, .. } = &seen.what
            && *way != SkillWay::Message
        {
            skills.insert(skill.as_str());
        } else if let Observation::ToolCalled { by: Speaker::Main, tool, .. } = &seen.what {
            tools.insert(tool.as_str());
        }
    }
    let files = evidence.files.iter().flat_map(|files| {
        let new = files.after.keys().filter(|path| !files.before.contains_key(*path));
        let below = |path: &str, directory: &String| {
            path.strip_prefix(directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        new.filter(move |path| files.visible.iter().any(|directory| below(path, directory)))
    });
    let exact = |name: &str| format!("^{}$", Pattern::quoted(name));
    let skills = skills.into_iter().map(|skill| json!({"skill_triggered": exact(skill)}));
    let tools = tools.into_iter().map(|tool| json!({"tool_called": tool}));
    let files = files.map(|path| json!({"file_exists": path}));
    std::iter::once(json!({"result": "success"}))
        .chain(skills.take(MOST))
        .chain(tools.take(MOST))
        .chain(files.take(MOST))
        .filter(stays)
        .chain(denied)
        .collect()
}

fn holds(check: &Value, evidence: &Evidence) -> bool {
    let node = Node::of_value(check);
    let mut faults = Faults::new(0, "");
    let checks = parse_checks(std::slice::from_ref(&node), &[], Lane::Local, &mut faults);
    checks.is_some_and(|checks| {
        let judged = checks.judge(evidence).checks;
        !judged.is_empty() && judged.iter().all(|one| one.outcome == Outcome::Pass)
    })
}

/// The beginning of the last message, quoted.
fn last_words(evidence: &Evidence) -> Option<String> {
    let last = evidence.seen.iter().rev().find_map(|seen| {
        let Observation::Said { by: Speaker::Main, text } = &seen.what else { return None };
        Some(text)
    })?;
    let words: Vec<&str> = last.split_whitespace().take(6).collect();
    let text = plain(&words.join(" "));
    (!text.is_empty() && !is_redacted(last)).then(|| quoted(&text))
}

/// A check as `key: value`.
fn block(check: &Value) -> String {
    let members = check.as_object().into_iter().flatten();
    members.map(|(key, value)| format!("{key}: {}", flow(value))).collect::<Vec<_>>().join(", ")
}

/// Data in YAML's flow style.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let one = |(key, value): (&String, &Value)| format!("{}: {}", quoted(key), flow(value));
            format!("{{{}}}", members.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_style_is_read_back_as_the_same_data() {
        let value = json!({"when_question": "a: \"b\" #c", "choose": ["x, y", "- z"], "n": 1.5, "none": null, "": true});
        let text =
            DocumentText { name: "a.yaml".to_owned(), bytes: format!("- {}\n", flow(&value)).into_bytes() };
        assert_eq!(parse_document(text).unwrap().root().to_value(), json!([value]));
    }

    #[test]
    fn a_name_becomes_part_of_a_file_name() {
        for (name, file) in [("hello", "hello"), ("../../etc/passwd", "etc-passwd"), ("日本", "scenario")] {
            assert_eq!(file_name(name), file);
        }
    }
}
