//! Finds out what a scenario would not notice: changes recorded results one at a time and judges them again. No agent
//! runs.

use belljar_contract::{
    Conclusion, Digest, Evidence, FileSeen, FilesSeen, Judgement, Observation, Outcome, SkillWay,
};
use belljar_verdict::Checks;
use serde::Serialize;
use serde_json::Value;
use std::ops::Range;

/// The most changes to one file, answer or result.
const EACH: usize = 10;
/// The most changes in total.
const ALL: usize = 50;
/// The replacement for a text.
const CHANGED: &str = "(changed)";
/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// A change to a recorded result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mutation {
    /// The changed file, result of a script, or answer.
    pub what: String,
    /// The position in it.
    pub place: String,
    pub from: String,
    pub to: String,
}

/// The result of all changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mutations {
    pub tried: usize,
    /// The changes that no check noticed.
    pub unnoticed: Vec<Mutation>,
    /// What no check could notice, or what was not tried.
    pub not_checkable: Vec<NotCheckable>,
}

/// A recorded result that was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotCheckable {
    pub what: String,
    pub why: String,
}

/// Changes recorded results one at a time and judges them again.
#[must_use]
pub fn mutate(evidence: &Evidence, checks: &Checks) -> Mutations {
    let mut not_checkable = Vec::new();
    let mut leave = |what: String, why: &str| not_checkable.push(NotCheckable { what, why: why.to_owned() });
    let mut groups: Vec<Vec<Change>> = Vec::new();
    for (path, file) in evidence.files.iter().flat_map(made) {
        match file.body.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => {
                let change =
                    |edit: Edit| edit.of(path.clone(), text, |edit| MutationKind::File(path.clone(), edit));
                let places = in_text(text);
                if places.len() > EACH {
                    leave(path.clone(), &format!("{EACH} of its {} places were changed", places.len()));
                }
                groups.push(spread(&places, change));
            }
            Some(Err(_)) => leave(path.clone(), "it is not text"),
            None => leave(path.clone(), "its content was not kept"),
        }
    }
    for (at, seen) in evidence.seen.iter().enumerate() {
        let label = |what: &str| format!("{what}, event {}", seen.seq);
        match &seen.what {
            Observation::ToolReturned { call, text, .. } if is_of_a_script(evidence, call.as_str()) => {
                let change = |edit: Edit| {
                    edit.of(label("the result of a script"), text, |edit| MutationKind::Returned(at, edit))
                };
                let places = in_lines(text);
                if places.len() > EACH {
                    leave(
                        label("the result of a script"),
                        &format!("{EACH} of its {} lines were changed", places.len()),
                    );
                }
                groups.push(spread(&places, change));
            }
            Observation::Answered { chosen, .. } if !chosen.is_empty() => {
                let numbers: Vec<usize> = (0..chosen.len()).collect();
                let change = |which: usize| Change {
                    shown: Mutation {
                        what: label("the answer"),
                        place: format!("question {}", which + 1),
                        from: short(&chosen[which]),
                        to: CHANGED.to_owned(),
                    },
                    kind: MutationKind::Chosen(at, which),
                };
                groups.push(spread(&numbers, change));
            }
            Observation::Answered { answer, .. } if answer.starts_with("deny") => {
                leave(label("the decision"), "what a denied tool would have done is not known");
            }
            Observation::Answered { answer, .. } if answer == "allow" => {
                let (what, from) = (label("the decision"), answer.clone());
                let shown = Mutation { what, place: String::new(), from, to: "deny".to_owned() };
                groups.push(vec![Change { shown, kind: MutationKind::Denied(at) }]);
            }
            Observation::Ready { .. }
            | Observation::ConversationBegan { .. }
            | Observation::MessageSent { .. }
            | Observation::MessageTaken { .. }
            | Observation::StateChanged { .. }
            | Observation::Said { .. }
            | Observation::Noted { .. }
            | Observation::Thought { .. }
            | Observation::ToolCalled { .. }
            | Observation::ToolReturned { .. }
            | Observation::SubAgentStarted { .. }
            | Observation::SubAgentEnded { .. }
            | Observation::SkillActivated { .. }
            | Observation::SkillLoaded { .. }
            | Observation::Compacted
            | Observation::Asked { .. }
            | Observation::Answered { .. }
            | Observation::HookRan { .. }
            | Observation::CallRefused { .. }
            | Observation::Retried { .. }
            | Observation::Unanswered { .. }
            | Observation::Withdrawn { .. }
            | Observation::RequestSettled { .. }
            | Observation::TurnEnded(_)
            | Observation::AfterResult { .. }
            | Observation::UnknownFrame { .. }
            | Observation::Flawed(_) => {}
        }
    }
    let planned: usize = groups.iter().map(Vec::len).sum();
    if planned > ALL {
        leave(format!("{} further changes", planned - ALL), &format!("at most {ALL} are tried"));
    }
    let mut out = Mutations { not_checkable, ..Mutations::default() };
    // In turn, so that a large file does not displace the others.
    let rounds = (0..EACH).flat_map(|round| groups.iter().filter_map(move |group| group.get(round)));
    for change in rounds.take(ALL) {
        out.tried += 1;
        if !is_noticed(&checks.judge(&change.kind.carried_out(evidence))) {
            out.unnoticed.push(change.shown.clone());
        }
    }
    out
}

fn is_noticed(judgement: &Judgement) -> bool {
    judgement.conclusion != Conclusion::Passed
        || judgement.checks.iter().any(|check| match check.outcome {
            Outcome::Fail | Outcome::Unknown => true,
            Outcome::Pass | Outcome::Waived => false,
        })
}

/// The files that the agent created or changed.
fn made(files: &FilesSeen) -> impl Iterator<Item = (&String, &FileSeen)> {
    files.after.iter().filter(|(path, file)| {
        let before = files.before.get(*path);
        before.is_none_or(|before| before.digest.is_some() && before.digest != file.digest)
    })
}

/// Whether a call ran a script of a skill.
fn is_of_a_script(evidence: &Evidence, id: &str) -> bool {
    evidence.seen.iter().any(|seen| {
        let Observation::SkillActivated { way: SkillWay::Script, call: Some(call), .. } = &seen.what else {
            return false;
        };
        call.as_str() == id
    })
}

/// As many items as allowed, evenly spread.
fn spread<T: Clone>(all: &[T], change: impl Fn(T) -> Change) -> Vec<Change> {
    let most = all.len().min(EACH);
    (0..most).map(|number| change(all[number * all.len() / most].clone())).collect()
}

/// A change, with its description.
struct Change {
    shown: Mutation,
    kind: MutationKind,
}

enum MutationKind {
    File(String, Edit),
    Returned(usize, Edit),
    Chosen(usize, usize),
    Denied(usize),
}

impl MutationKind {
    fn carried_out(&self, evidence: &Evidence) -> Evidence {
        let mut out = evidence.clone();
        match self {
            Self::File(path, edit) => {
                let file = out.files.as_mut().and_then(|files| files.after.get_mut(path));
                if let Some(file) = file
                    && let Some(body) = &mut file.body
                {
                    *body = edit.carried_out(&String::from_utf8_lossy(body)).into_bytes();
                    file.bytes = body.len() as u64;
                    file.digest = Some(Digest::of(body));
                }
            }
            Self::Returned(at, edit) => {
                if let Observation::ToolReturned { text, .. } = &mut out.seen[*at].what {
                    *text = edit.carried_out(text);
                }
            }
            Self::Chosen(at, which) => {
                let mut from = String::new();
                if let Observation::Answered { chosen, .. } = &mut out.seen[*at].what {
                    from = std::mem::replace(&mut chosen[*which], CHANGED.to_owned());
                }
                // The model receives the answer as the result of its call.
                if let Some((text, _)) = returned(&mut out, *at) {
                    *text = text.replace(&from, CHANGED);
                }
            }
            Self::Denied(at) => {
                if let Observation::Answered { answer, .. } = &mut out.seen[*at].what {
                    "deny".clone_into(answer);
                }
                if let Some((text, is_error)) = returned(&mut out, *at) {
                    (*text, *is_error) = ("denied".to_owned(), true);
                }
            }
        }
        out
    }
}

/// The result of the call that an answer was about.
fn returned(evidence: &mut Evidence, answer: usize) -> Option<(&mut String, &mut bool)> {
    let Observation::Answered { request, .. } = &evidence.seen[answer].what else { return None };
    let call = evidence.seen.iter().find_map(|seen| {
        let Observation::Asked { request: asked, call, .. } = &seen.what else { return None };
        call.clone().filter(|_| asked == request)
    })?;
    evidence.seen.iter_mut().find_map(|seen| {
        let Observation::ToolReturned { call: of, text, is_error, .. } = &mut seen.what else { return None };
        (*of == call).then_some((text, is_error))
    })
}

/// A range of a text and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    place: String,
    at: Range<usize>,
    to: String,
}

impl Edit {
    fn of(self, what: String, text: &str, kind: impl Fn(Self) -> MutationKind) -> Change {
        let (place, from, to) = (self.place.clone(), short(&text[self.at.clone()]), short(&self.to));
        Change { shown: Mutation { what, place, from, to }, kind: kind(self) }
    }

    fn carried_out(&self, text: &str) -> String {
        format!("{}{}{}", &text[..self.at.start], self.to, &text[self.at.end..])
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The values of a JSON document, or the lines of any other text.
fn in_text(text: &str) -> Vec<Edit> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_) | Value::Array(_)) => in_json(text),
        Ok(_) | Err(_) => in_lines(text),
    }
}

fn in_lines(text: &str) -> Vec<Edit> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').enumerate().map(move |(number, line)| {
        let at = start..start + line.trim_end_matches(['\n', '\r']).len();
        start += line.len();
        (number, at)
    });
    let filled = lines.filter(|(_, at)| !text[at.clone()].trim().is_empty());
    let edit = |(number, at): (usize, Range<usize>)| {
        let to = if &text[at.clone()] == CHANGED { "(changed again)" } else { CHANGED };
        Edit { place: format!("line {}", number + 1), at, to: to.to_owned() }
    };
    filled.map(edit).collect()
}

/// The scalar values of a JSON document with their positions: the rest of the text stays unchanged.
fn in_json(text: &str) -> Vec<Edit> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    // The current path: the name or number of each level, and the number of the next item of a list.
    let mut levels: Vec<(String, Option<usize>)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'{' => levels.push((String::new(), None)),
            b'[' => levels.push(("0".to_owned(), Some(0))),
            b'}' | b']' => drop(levels.pop()),
            b',' => {
                if let Some((name, Some(number))) = levels.last_mut() {
                    *number += 1;
                    *name = number.to_string();
                }
            }
            b'"' => {
                at += 1;
                while bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let token = start..at + 1;
                let is_name = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                match (is_name, levels.last_mut()) {
                    (true, Some((name, _))) => {
                        *name = serde_json::from_str(&text[token]).unwrap_or_default();
                    }
                    _ => out.extend(edit(text, token, &levels)),
                }
            }
            b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => {
                let length = bytes[at..].iter().position(|byte| b",]} \n\r\t".contains(byte));
                at = length.map_or(bytes.len(), |length| at + length) - 1;
                out.extend(edit(text, start..at + 1, &levels));
            }
        }
        at += 1;
    }
    out
}

/// A different value of the same type.
fn edit(text: &str, at: Range<usize>, levels: &[(String, Option<usize>)]) -> Option<Edit> {
    let place = levels.iter().map(|(name, _)| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
    let to = match serde_json::from_str::<Value>(&text[at.clone()]).ok()? {
        Value::Bool(value) => Value::from(!value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::from(number.wrapping_add(1)),
            (None, number) => Value::from(number? / 2.0 + 1.0),
        },
        Value::String(value) if value == CHANGED => Value::from("(changed again)"),
        Value::String(_) | Value::Null => Value::from(CHANGED),
        Value::Array(_) | Value::Object(_) => return None,
    };
    Some(Edit { place: place.collect(), at, to: to.to_string() })
}

#[cfg(test)]
#[path = "mutate_tests.rs"]
mod tests;
