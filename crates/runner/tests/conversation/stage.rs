//! A stage for a conversation with the real agent: a plain process with pipes and the state machine, or in the sandbox,
//! run by belljar.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use belljar_contract::{ConversationEnd, GuestEnd, MessageId, Observation, UserMessage};
use belljar_egress::script::{Listen, Script, ScriptedModel, Transcript};
use belljar_session::{
    Answer, AnswerValue, By, Command, Decoder, Item, Machine, MachineConfig, Output, Question, encode,
};
use tempfile::TempDir;

use crate::recording::Recording;
use crate::sealed;

/// A conversation takes about two seconds on an idle machine.
const DEADLINE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As an ordinary process, which shows what the agent itself does.
    Bare,
    /// In the sandbox, which shows that it does the same there.
    Sealed,
}

/// The project and the home directory of one run, removed afterwards.
pub struct Stage {
    directory: TempDir,
    pub agent: PathBuf,
    pub place: Place,
    /// The number of messages so far. A continued conversation ignores a message whose id it has seen.
    said: Cell<u64>,
}

/// Called for each question; `None` leaves it open.
pub type Decide = Box<dyn FnMut(&Question) -> Option<AnswerValue>>;
/// Called for each observation; the returned commands are executed at once.
pub type React = Box<dyn FnMut(&Observation) -> Vec<Command>>;

/// The messages of a scene, and the functions that answer and react.
pub struct Play<'a> {
    pub name: &'a str,
    pub script: Script,
    pub config: MachineConfig,
    pub flags: &'a [&'a str],
    /// Messages, each sent when the agent is idle.
    pub messages: &'a [&'a str],
    pub decide: Decide,
    pub react: React,
}

pub struct Seen {
    pub observations: Vec<Observation>,
    pub questions: Vec<Question>,
    pub ending: ConversationEnd,
    pub transcript: Transcript,
    pub stderr: String,
}

impl Stage {
    pub fn new(agent: PathBuf, place: Place) -> Self {
        let stage = Self { directory: tempfile::tempdir().unwrap(), agent, place, said: Cell::new(0) };
        for name in ["project", "home", "tmp"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    /// The project, as the test sees it.
    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// A path in the project, as the agent sees it.
    pub fn inside(&self, name: &str) -> PathBuf {
        match self.place {
            Place::Bare => self.project().join(name),
            Place::Sealed => Path::new("/workspace").join(name),
        }
    }

    /// Runs the scene until the process has ended.
    pub fn play(&self, play: Play<'_>) -> Seen {
        match self.place {
            Place::Bare => self.play_bare(play),
            Place::Sealed => sealed::play(self, play),
        }
    }

    /// The complete environment of the agent: no configuration of the machine reaches it.
    fn environment(&self, model: &ScriptedModel) -> Vec<(&'static str, OsString)> {
        vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.path("home").into()),
            ("CLAUDE_CONFIG_DIR", self.path("home/config").into()),
            ("TMPDIR", self.path("tmp").into()),
            ("CLAUDE_CODE_TMPDIR", self.path("tmp").into()),
            ("ANTHROPIC_API_KEY", "sk-placeholder".into()),
            ("ANTHROPIC_BASE_URL", model.base_url().into()),
            ("ANTHROPIC_UNIX_SOCKET", model.socket_path().unwrap().into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1".into()),
            ("CLAUDE_CODE_DISABLE_BUNDLED_SKILLS", "1".into()),
            ("CLAUDE_CODE_MAX_RETRIES", "1".into()),
            ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1".into()),
        ]
    }

    fn start(&self, model: &ScriptedModel, flags: &[&str]) -> Child {
        Process::new(&self.agent)
            .args(["-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"])
            .args(["--permission-prompt-tool", "stdio", "--replay-user-messages"])
            .args(["--setting-sources", "project", "--strict-mcp-config", "--model", "claude-opus-4-8"])
            .args(flags)
            .current_dir(self.project())
            .env_clear()
            .envs(self.environment(model))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn play_bare(&self, play: Play<'_>) -> Seen {
        let model = ScriptedModel::start(play.script.clone(), Listen::unix(self.path("model.sock"))).unwrap();
        let mut child = self.start(&model, play.flags);
        let stdout = pieces(child.stdout.take().unwrap());
        let stderr = pieces(child.stderr.take().unwrap());
        let messages = play.messages.iter().map(|text| (*text).to_owned()).collect();
        let mut talk = Talk {
            input: child.stdin.take(),
            machine: Machine::new(play.config),
            messages,
            said: self.said.get(),
            decide: play.decide,
            react: play.react,
            child,
            observations: Vec::new(),
            questions: Vec::new(),
            ending: None,
            record: Recording::new(play.name, self.directory.path()),
        };
        talk.run(&stdout);
        let stderr = String::from_utf8_lossy(&stderr.iter().flatten().collect::<Vec<u8>>()).into_owned();
        let ending = talk.ending.take().unwrap();
        self.said.set(talk.said);
        talk.record.finish();
        Seen {
            observations: std::mem::take(&mut talk.observations),
            questions: std::mem::take(&mut talk.questions),
            ending,
            transcript: model.finish(),
            stderr,
        }
    }
}

/// A message with its own id; the agent expects a UUID.
pub fn message(number: u64, text: &str) -> UserMessage {
    let id = MessageId::new(format!("00000000-0000-4000-8000-{number:012}")).unwrap();
    UserMessage { id, text: text.to_owned() }
}

struct Talk {
    input: Option<std::process::ChildStdin>,
    machine: Machine,
    messages: VecDeque<String>,
    said: u64,
    decide: Decide,
    react: React,
    child: Child,
    observations: Vec<Observation>,
    questions: Vec<Question>,
    ending: Option<ConversationEnd>,
    record: Recording,
}

impl Talk {
    fn run(&mut self, stdout: &Receiver<Vec<u8>>) {
        let until = Instant::now() + DEADLINE;
        let begun = self.machine.on_command(Command::Begin);
        self.carry_out(begun);
        self.next_message();
        let mut decoder = Decoder::default();
        loop {
            match stdout.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => decoder.push(&bytes).into_iter().for_each(|item| self.take(item)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the conversation did not end; seen: {:#?}", self.observations)
                }
            }
        }
        if let Some(item) = decoder.finish() {
            self.take(item);
        }
        let status = self.child.wait().unwrap();
        self.record.line("exit", &serde_json::json!({"code": status.code(), "signal": status.signal()}));
        let exit = exit(status);
        let ended = self.machine.on_exit(exit);
        self.carry_out(ended);
    }

    fn take(&mut self, item: Item) {
        let outputs = match item {
            Item::Frame(frame) => {
                self.record.line("in", &frame.raw);
                self.machine.on_frame(frame.body)
            }
            Item::Noise { line, why } => panic!("{why}: {}", String::from_utf8_lossy(&line)),
            Item::Oversized { .. } | Item::CutOff { .. } => self.machine.on_unread("cut"),
        };
        self.carry_out(outputs);
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(frame) => {
                    self.record.line("out", &frame.to_json());
                    // The agent may have ended; its exit is reported separately.
                    self.input.as_mut().unwrap().write_all(&encode(&frame)).ok();
                }
                Output::Ask { request, question } => {
                    self.questions.push(question.clone());
                    if let Some(value) = (self.decide)(&question) {
                        let answer =
                            Answer { value, by: By::Person, reason: "the test says so".into(), grant: None };
                        self.command(Command::Answer { request, answer });
                    }
                }
                Output::Observe(seen) => {
                    let commands = (self.react)(&seen);
                    self.observations.push(seen);
                    commands.into_iter().for_each(|command| self.command(command));
                }
                Output::Idle => self.next_message(),
                Output::CloseInput => self.input = None,
                Output::Terminate => self.child.kill().unwrap(),
                Output::Withdrawn { .. } => {}
                Output::Dropped(dropped) => panic!("{dropped}"),
                Output::Ended(ending) => self.ending = Some(ending),
            }
        }
    }

    fn command(&mut self, command: Command) {
        let outputs = self.machine.on_command(command);
        self.carry_out(outputs);
    }

    fn next_message(&mut self) {
        match self.messages.pop_front() {
            Some(text) => {
                self.said += 1;
                self.command(Command::Say(message(self.said, &text)));
            }
            None => self.command(Command::EndInput),
        }
    }
}

impl Drop for Talk {
    /// A failed test must not leave an agent behind.
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn exit(status: ExitStatus) -> GuestEnd {
    status.code().map_or_else(|| GuestEnd::Signal(status.signal().unwrap()), GuestEnd::Code)
}

/// The output of a pipe as it arrives.
fn pieces(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
