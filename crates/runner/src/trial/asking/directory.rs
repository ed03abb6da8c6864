//! A folder where questions are laid and answers are left, one after the other: `req-1.json`, `resp-1.json`.

use crate::talk::{Outside, Pending};
use belljar_contract::{AbsPath, with_causes};
use belljar_record::write_atomically;
use belljar_session::Answer;
use belljar_session::decider::ExternalRequest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The file that says that no more questions will come.
pub const GATES_DONE: &str = "done.json";
/// A reply or a question has at most this many bytes.
const LONGEST: u64 = 1 << 20;

/// Why a folder cannot be used for questions.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Questions of another run lie in it.
    #[error("`{path}` holds `{found}` of another run")]
    Used { path: AbsPath, found: String },
    /// It cannot be made, read or watched.
    #[error("cannot use `{path}` for questions")]
    Use {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// Lays questions into a folder and waits there for answers.
#[derive(Debug)]
pub struct DirectoryDecider {
    directory: AbsPath,
    changes: OwnedFd,
    patience: Duration,
    asked: u64,
}

impl DirectoryDecider {
    /// Takes a folder, which is made when absent. Each answer may take this long.
    ///
    /// # Errors
    /// When questions or answers lie in it already, or it cannot be used.
    pub fn new(directory: AbsPath, patience: Duration) -> Result<Self, DirectoryError> {
        let failed = |cause| DirectoryError::Use { path: directory.clone(), cause };
        crate::runtime::make_private(&directory).map_err(failed)?;
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
                return Err(format!("nobody left `{path}` in {} s", self.patience.as_secs()));
            }
        }
    }
}

impl Outside for DirectoryDecider {
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
            return Err(format!("no program is asked about {}", pending.question.about()));
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
        // Whoever follows the folder learns that nothing more will come; if not, there is nobody to tell.
        write_atomically(&self.directory.child(GATES_DONE), b"{\"done\":true}\n").ok();
    }
}

/// A question that lies in a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenGate {
    pub number: u64,
    /// As it was laid.
    pub request: Map<String, Value>,
}

/// Follows the questions of a folder.
#[derive(Debug)]
pub struct Gates {
    directory: AbsPath,
    changes: OwnedFd,
    told: u64,
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// There is no such question.
    #[error("there is no open question {number} in `{directory}`")]
    Absent { number: u64, directory: AbsPath },
    /// It is not a question of belljar's.
    #[error("`{path}` is no question")]
    Foreign { path: AbsPath },
    /// The answer names something that was not asked.
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
    /// Follows a folder.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn new(directory: AbsPath) -> Result<Self, DirectoryError> {
        match watch(&directory) {
            Ok(changes) => Ok(Self { directory, changes, told: 0 }),
            Err(cause) => Err(DirectoryError::Use { path: directory, cause }),
        }
    }

    /// Questions that were laid since the last call and are open.
    pub fn open(&mut self) -> Vec<OpenGate> {
        let mut out = Vec::new();
        loop {
            let number = self.told + 1;
            let open = read_gate(&self.directory, number);
            let done = self.directory.child(&format!("req-{number}.json.done")).as_path().exists();
            match open {
                Some(request) => out.push(OpenGate { number, request }),
                None if done => {}
                None => return out,
            }
            self.told = number;
        }
    }

    /// Whether no more will come.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.directory.child(GATES_DONE).as_path().exists()
    }

    /// Waits for the folder to change.
    ///
    /// # Errors
    /// When it cannot be watched any more.
    pub fn wait(&self) -> std::io::Result<()> {
        await_change(&self.changes, Instant::now() + Duration::from_secs(3600)).map(|_changed| ())
    }
}

/// Leaves an answer: labels for a single question, or pairs of a question and a label.
///
/// # Errors
/// When there is no such question, or the answer does not name what was asked.
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
            [word] if word == "allow" || word == "deny" => reply["behavior"] = json!(word),
            _ => return Err(GateError::Unfit("a permission is answered with `allow` or `deny`".to_owned())),
        },
        Some("elicit") => match choose {
            [word] if word == "decline" || word == "cancel" => reply["action"] = json!(word),
            _ => return Err(GateError::Unfit("this is answered with `decline` or `cancel`".to_owned())),
        },
        Some("dialog") => match choose {
            [word] if word == "cancelled" => reply["behavior"] = json!("cancelled"),
            [word] => {
                reply["behavior"] = json!("ok");
                reply["choice"] = json!(word);
            }
            _ => return Err(GateError::Unfit("a dialog is answered with one word".to_owned())),
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
            return Err(GateError::Unfit(format!("{question:?} was not asked; asked was {texts:?}")));
        };
        out.insert((*text).to_owned(), json!(label));
    }
    if let Some(open) = texts.iter().find(|text| !out.contains_key(**text)) {
        return Err(GateError::Unfit(format!("{open:?} has no answer")));
    }
    Ok(Value::Object(out))
}

fn read_gate(directory: &AbsPath, number: u64) -> Option<Map<String, Value>> {
    let text = small_text(&directory.child(&format!("req-{number}.json")))?;
    match serde_json::from_str(&text).ok()? {
        Value::Object(request) => Some(request),
        _ => None,
    }
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

/// Waits until something changed; whether it did before the deadline.
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
    // Which file it was does not matter: the folder is looked at again.
    rustix::io::read(changes, &mut buffer).ok();
    Ok(true)
}
