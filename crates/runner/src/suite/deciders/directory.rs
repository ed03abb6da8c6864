//! A decider that writes questions to a directory and reads answers from it: `req-1.json`, `resp-1.json`.

use crate::session::conversation::{ExternalDecider, Pending};
use belljar_contract::{AbsPath, AskedOption, AskedQuestion, with_causes};
use belljar_record::write_atomically;
use belljar_session::Answer;
use belljar_session::decider::{ExternalRequest, LabelReading, choose as choose_label};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The file that marks the end of the questions.
pub const GATES_DONE: &str = "done.json";
/// The longest question or reply, in bytes.
const LONGEST: u64 = 1 << 20;

/// Why a directory cannot be used for questions.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory contains questions of another run.
    #[error("`{path}` contains `{found}` of another run; name an empty directory")]
    Used { path: AbsPath, found: String },
    /// The directory cannot be created, read or watched.
    #[error("cannot use `{path}` for questions")]
    Use {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// Writes questions to a directory and waits for answers in it.
#[derive(Debug)]
pub struct DirectoryDecider {
    directory: AbsPath,
    changes: OwnedFd,
    patience: Duration,
    asked: u64,
}

impl DirectoryDecider {
    /// Opens a directory, which is created if it is missing. Each answer may take this long.
    ///
    /// # Errors
    /// If it contains questions or answers already, or cannot be used.
    pub fn new(directory: AbsPath, patience: Duration) -> Result<Self, DirectoryError> {
        let failed = |cause| DirectoryError::Use { path: directory.clone(), cause };
        crate::store::runtime::make_private(&directory).map_err(failed)?;
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("req-") || name.starts_with("resp-") {
                return Err(DirectoryError::Used { path: directory.clone(), found: name });
            }
        }
        match fs::remove_file(directory.child(GATES_DONE)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed(cause)),
        }
        let changes = watch(&directory).map_err(failed)?;
        Ok(Self { directory, changes, patience, asked: 0 })
    }

    fn await_answer(&self, name: &str) -> Result<String, String> {
        let path = self.directory.child(name);
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(text) = small_text(&path) {
                return Ok(text);
            }
            if !await_change(&self.changes, deadline).map_err(|error| error.to_string())? {
                return Err(format!("no answer appeared in `{path}` within {} s", self.patience.as_secs()));
            }
        }
    }
}

impl ExternalDecider for DirectoryDecider {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        self.asked += 1;
        let id = format!("{}-{}", pending.run, self.asked);
        let request = ExternalRequest {
            id: &id,
            run: &pending.run,
            transcript: &pending.transcript,
            question: &pending.question,
        };
        let Some(line) = request.to_line() else {
            return Err(format!("a directory cannot answer {}", pending.question.about()));
        };
        let laid = self.directory.child(&format!("req-{}.json", self.asked));
        let failed = |error: std::io::Error| format!("cannot write `{laid}`: {error}");
        write_atomically(&laid, format!("{line}\n").as_bytes()).map_err(failed)?;
        let reply = self.await_answer(&format!("resp-{}.json", self.asked))?;
        let answer = request.read_reply(reply.trim()).map_err(|error| with_causes(&error))?;
        fs::rename(&laid, self.directory.child(&format!("req-{}.json.done", self.asked))).map_err(failed)?;
        Ok(answer.0)
    }
}

impl Drop for DirectoryDecider {
    fn drop(&mut self) {
        // Readers of the directory see that no more questions follow; a failure cannot be reported to them.
        write_atomically(&self.directory.child(GATES_DONE), b"{\"done\":true}\n").ok();
    }
}

/// An open question in a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenGate {
    pub number: u64,
    pub request: Map<String, Value>,
}

/// Follows the questions in a directory.
#[derive(Debug)]
pub struct Gates {
    directory: AbsPath,
    changes: OwnedFd,
    last_seen: u64,
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("there is no open question {number} in `{directory}`")]
    Absent { number: u64, directory: AbsPath },
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
        cause: std::io::Error,
    },
}

impl Gates {
    /// Follows a directory.
    ///
    /// # Errors
    /// If it cannot be watched.
    pub fn new(directory: AbsPath) -> Result<Self, DirectoryError> {
        match watch(&directory) {
            Ok(changes) => Ok(Self { directory, changes, last_seen: 0 }),
            Err(cause) => Err(DirectoryError::Use { path: directory, cause }),
        }
    }

    /// Open questions that were written since the last call.
    pub fn open(&mut self) -> Vec<OpenGate> {
        let mut out = Vec::new();
        loop {
            let number = self.last_seen + 1;
            let open = read_gate(&self.directory, number);
            let done = self.directory.child(&format!("req-{number}.json.done")).as_path().exists();
            match open {
                Some(request) => out.push(OpenGate { number, request }),
                None if done => {}
                None => return out,
            }
            self.last_seen = number;
        }
    }

    /// Whether no more questions follow.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.directory.child(GATES_DONE).as_path().exists()
    }

    /// Waits until the directory changes.
    ///
    /// # Errors
    /// If it cannot be watched any more.
    pub fn wait(&self) -> std::io::Result<()> {
        await_change(&self.changes, Instant::now() + Duration::from_secs(3600)).map(|_changed| ())
    }
}

/// Writes an answer: labels for a single question, or pairs of a question and a label.
///
/// # Errors
/// If there is no such question, or the answer does not match it.
pub fn leave_answer(
    directory: &AbsPath,
    number: u64,
    choose: &[String],
    answers: &[(String, String)],
) -> Result<AbsPath, GateError> {
    let Some(request) = read_gate(directory, number) else {
        return Err(GateError::Absent { number, directory: directory.clone() });
    };
    let foreign = || GateError::Foreign { path: directory.child(&format!("req-{number}.json")) };
    let id = request.get("id").and_then(Value::as_str).ok_or_else(foreign)?;
    let mut reply = json!({"id": id});
    match request.get("kind").and_then(Value::as_str) {
        Some("question") => reply["answers"] = question_answers(&request, choose, answers)?,
        Some("permission") => match choose {
            [value] if value == "allow" || value == "deny" => reply["behavior"] = json!(value),
            _ => {
                return Err(GateError::Unfit(
                    "expected `allow` or `deny`, because the question is a permission".to_owned(),
                ));
            }
        },
        Some("elicit") => match choose {
            [value] if value == "decline" || value == "cancel" => reply["action"] = json!(value),
            _ => return Err(GateError::Unfit("expected `decline` or `cancel`".to_owned())),
        },
        Some("dialog") => match choose {
            [value] if value == "cancelled" => reply["behavior"] = json!("cancelled"),
            [value] => {
                reply["behavior"] = json!("ok");
                reply["choice"] = json!(value);
            }
            _ => {
                return Err(GateError::Unfit(
                    "expected exactly one value, because the question is a dialog".to_owned(),
                ));
            }
        },
        Some(_) | None => return Err(foreign()),
    }
    let path = directory.child(&format!("resp-{number}.json"));
    match write_atomically(&path, format!("{reply}\n").as_bytes()) {
        Ok(()) => Ok(path),
        Err(cause) => Err(GateError::Write { path, cause }),
    }
}

fn question_answers(
    request: &Map<String, Value>,
    choose: &[String],
    answers: &[(String, String)],
) -> Result<Value, GateError> {
    let questions = request.get("questions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = questions.iter().filter_map(|asked| asked["question"].as_str()).collect();
    let mut out = Map::new();
    match (texts.as_slice(), choose) {
        (_, []) => {}
        ([only], labels) => {
            let multi = questions.first().and_then(|asked| asked["multiSelect"].as_bool()).unwrap_or(false);
            let value = match labels {
                [label] if !multi => json!(label),
                labels => json!(labels),
            };
            out.insert((*only).to_owned(), value);
        }
        (several, _) => {
            return Err(GateError::Unfit(format!(
                "{} questions were asked; answer each with `--answer \"question=label\"`",
                several.len()
            )));
        }
    }
    for (question, label) in answers {
        let Some(text) = texts.iter().find(|text| *text == question) else {
            return Err(GateError::Unfit(format!("{question:?} was not asked; the questions are {texts:?}")));
        };
        out.insert((*text).to_owned(), json!(label));
    }
    for asked in questions {
        fits(asked, &out)?;
    }
    if let Some(open) = texts.iter().find(|text| !out.contains_key(**text)) {
        return Err(GateError::Unfit(format!("{open:?} has no answer")));
    }
    Ok(Value::Object(out))
}

/// A label that the question does not have would end the run, so it is not written.
fn fits(asked: &Value, answers: &Map<String, Value>) -> Result<(), GateError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let options = asked["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let option = |option: &Value| AskedOption { label: text(&option["label"]), description: String::new() };
    let asked = AskedQuestion {
        question: text(&asked["question"]),
        header: String::new(),
        options: options.iter().map(option).collect(),
        multi_select: asked["multiSelect"].as_bool().unwrap_or(false),
    };
    let wanted: Vec<String> = match answers.get(&asked.question) {
        Some(Value::Array(labels)) => labels.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(label) => label.as_str().map(str::to_owned).into_iter().collect(),
        None => return Ok(()),
    };
    choose_label(&asked, &wanted, LabelReading::External)
        .map(drop)
        .map_err(|error| GateError::Unfit(error.to_string()))
}

fn read_gate(directory: &AbsPath, number: u64) -> Option<Map<String, Value>> {
    let text = small_text(&directory.child(&format!("req-{number}.json")))?;
    let Value::Object(request) = serde_json::from_str(&text).ok()? else { return None };
    Some(request)
}

fn small_text(path: &AbsPath) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn watch(directory: &AbsPath) -> std::io::Result<OwnedFd> {
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let wanted =
        inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::ONLYDIR;
    inotify::add_watch(&changes, directory.as_path(), wanted)?;
    Ok(changes)
}

/// Waits for a change. Returns whether there was one before the deadline.
fn await_change(changes: &OwnedFd, deadline: Instant) -> std::io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(std::io::Error::other)?;
    let descriptor = changes.as_fd();
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) => return Ok(false),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut buffer = [0; 4096];
    // The content of the event does not matter: the directory is read again.
    rustix::io::read(changes, &mut buffer).ok();
    Ok(true)
}
