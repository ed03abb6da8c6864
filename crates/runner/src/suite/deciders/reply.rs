//! Writes an answer to a question in a directory. An answer that the run would refuse is not written.

use super::directory::{AskingState, is_of_a_decider};
use super::gates::{GateName, read_gate};
use belljar_contract::{AbsPath, AskedOption, AskedQuestion};
use belljar_session::decider::{LabelReading, choose as choose_label};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::io;

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The directory is not one of a decider.
    #[error("`{directory}` has no questions of a decider")]
    NoDecider { directory: AbsPath },
    #[error("question {name} is not open in `{directory}`")]
    Absent { name: GateName, directory: AbsPath },
    #[error("question {name} in `{directory}` is answered already")]
    Answered { name: GateName, directory: AbsPath },
    #[error("the run that asked question {name} has ended")]
    Ended { name: GateName },
    /// The file is not a question of belljar.
    #[error("`{path}` is not a question")]
    Foreign { path: AbsPath },
    /// The answer does not match the question.
    #[error("{0}")]
    Unfit(String),
    /// The answer cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

/// An answer as the user gives it.
#[derive(Debug, Clone, Copy, Default)]
pub struct GateReply<'a> {
    /// Labels for a single question.
    pub choose: &'a [String],
    /// Questions with a label each: `QUESTION=LABEL`.
    pub answers: &'a [String],
    /// Free text for a single question, or the message of a denial.
    pub say: Option<&'a str>,
}

/// Writes an answer to an open question.
///
/// # Errors
/// If the question is not open, or the answer does not match it.
pub fn leave_answer(
    directory: &AbsPath,
    name: &GateName,
    reply: GateReply<'_>,
) -> Result<AbsPath, GateError> {
    let place = name.place(directory);
    let is_directory = place.as_path().symlink_metadata().is_ok_and(|found| found.is_dir());
    if name.run.is_some() && !is_directory || !is_of_a_decider(&place) {
        return Err(GateError::NoDecider { directory: place });
    }
    let answered = || GateError::Answered { name: name.clone(), directory: directory.clone() };
    let exists = |file: String| place.child(&file).as_path().symlink_metadata().is_ok();
    let number = name.number;
    if exists(format!("req-{number}.json.done")) || exists(format!("resp-{number}.json")) {
        return Err(answered());
    }
    if AskingState::of(&place) != AskingState::Asking {
        return Err(GateError::Ended { name: name.clone() });
    }
    if !exists(format!("req-{number}.json")) {
        return Err(GateError::Absent { name: name.clone(), directory: directory.clone() });
    }
    let foreign = || GateError::Foreign { path: place.child(&format!("req-{number}.json")) };
    let request = read_gate(&place, number).ok_or_else(foreign)?;
    let id = request.get("id").and_then(Value::as_str).ok_or_else(foreign)?;
    let answer = match request.get("kind").and_then(Value::as_str) {
        Some("question") => json!({"answers": question_answers(&request, reply)?}),
        Some("permission") => permission(reply)?,
        Some("elicit") => match only(reply)? {
            value @ ("decline" | "cancel") => json!({"action": value}),
            _ => return Err(unfit("expected `decline` or `cancel`")),
        },
        Some("dialog") => match only(reply)? {
            "cancelled" => json!({"behavior": "cancelled"}),
            value => json!({"behavior": "ok", "choice": value}),
        },
        Some(_) | None => return Err(foreign()),
    };
    let mut line = json!({"id": id});
    if let (Value::Object(line), Value::Object(answer)) = (&mut line, answer) {
        line.extend(answer);
    }
    let path = place.child(&format!("resp-{number}.json"));
    match write_once(&path, format!("{line}\n").as_bytes()) {
        Ok(()) => Ok(path),
        Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => Err(answered()),
        Err(cause) => Err(GateError::Write { path, cause }),
    }
}

/// Writes a whole file, unless it exists: of two answers at once one is refused.
fn write_once(path: &AbsPath, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = tempfile::Builder::new().prefix(".resp-").tempfile_in(directory)?;
    io::Write::write_all(&mut file, content)?;
    renameat_with(CWD, file.path(), CWD, path.as_path(), RenameFlags::NOREPLACE)?;
    Ok(())
}

fn unfit(why: &str) -> GateError {
    GateError::Unfit(why.to_owned())
}

fn permission(reply: GateReply<'_>) -> Result<Value, GateError> {
    let expected = || unfit("expected `allow` or `deny`, because the question is a permission");
    let GateReply { choose: [value], answers: [], say } = reply else { return Err(expected()) };
    match (value.as_str(), say) {
        ("allow", None) => Ok(json!({"behavior": "allow"})),
        ("allow", Some(_)) => Err(unfit("only a denial has a message")),
        ("deny", None) => Ok(json!({"behavior": "deny"})),
        ("deny", Some(text)) if text.trim().is_empty() => Err(unfit("the message must not be empty")),
        ("deny", Some(text)) => Ok(json!({"behavior": "deny", "message": text})),
        _ => Err(expected()),
    }
}

/// The only value, for questions that have no labels.
fn only(reply: GateReply<'_>) -> Result<&str, GateError> {
    match reply {
        GateReply { choose: [value], answers: [], say: None } => Ok(value),
        GateReply { .. } => Err(unfit("expected exactly one value, with `--choose`")),
    }
}

fn question_answers(
    request: &Map<String, Value>,
    GateReply { choose, answers, say }: GateReply<'_>,
) -> Result<Value, GateError> {
    let asked = request.get("questions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let questions: Vec<AskedQuestion> = asked.iter().map(question).collect();
    let texts: Vec<&str> = questions.iter().map(|asked| asked.question.as_str()).collect();
    let mut labels: Vec<Vec<String>> = vec![Vec::new(); texts.len()];
    if !choose.is_empty() || say.is_some() {
        let [only] = labels.as_mut_slice() else {
            let count = texts.len();
            return Err(GateError::Unfit(format!(
                "{count} questions were asked; answer each with `--answer \"question=label\"`"
            )));
        };
        only.extend(choose.iter().cloned());
    }
    for answer in answers {
        // The text of the question decides where the label begins: both may contain `=`.
        let label = |text: &&str| answer.strip_prefix(*text).and_then(|rest| rest.strip_prefix('='));
        let found = texts.iter().enumerate().find_map(|(at, text)| Some((at, label(text)?)));
        match (found, answer.rsplit_once('=')) {
            (Some((at, label)), _) => labels[at].push(label.trim().to_owned()),
            (None, Some((text, _))) => {
                return Err(GateError::Unfit(format!("{text:?} was not asked; the questions are {texts:?}")));
            }
            (None, None) => {
                return Err(GateError::Unfit(format!("`{answer}` has no `=` between question and label")));
            }
        }
    }
    let mut out = Map::new();
    for (asked, labels) in questions.iter().zip(labels) {
        out.insert(asked.question.clone(), one_answer(asked, labels, say)?);
    }
    Ok(Value::Object(out))
}

/// A label that the question does not have would end the run, so it is not written.
fn one_answer(asked: &AskedQuestion, labels: Vec<String>, say: Option<&str>) -> Result<Value, GateError> {
    match (say, labels.as_slice()) {
        (Some(_), [_, ..]) => Err(unfit("either a label or free text answers a question, not both")),
        (Some(text), []) if text.trim().is_empty() => Err(unfit("the text must not be empty")),
        (Some(text), []) => Ok(json!({"text": text})),
        (None, []) => Err(GateError::Unfit(format!("{:?} has no answer", asked.question))),
        (None, given) => {
            choose_label(asked, given, LabelReading::External)
                .map_err(|error| GateError::Unfit(error.to_string()))?;
            Ok(match given {
                [label] if !asked.multi_select => json!(label),
                labels => json!(labels),
            })
        }
    }
}

fn question(asked: &Value) -> AskedQuestion {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let options = asked["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let option = |option: &Value| AskedOption { label: text(&option["label"]), description: String::new() };
    AskedQuestion {
        question: text(&asked["question"]),
        header: String::new(),
        options: options.iter().map(option).collect(),
        multi_select: asked["multiSelect"].as_bool().unwrap_or(false),
    }
}
