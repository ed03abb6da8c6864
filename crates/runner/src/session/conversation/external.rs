//! Deciders and users that take time to answer. Each runs in its own thread; their messages arrive in one mailbox,
//! which can be polled together with all other descriptors.

use super::{ModelCalls, Then};
use belljar_contract::RequestId;
use belljar_session::decider::ExternalRequest;
use belljar_session::{Answer, Question};
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// The time that a decider which cannot be stopped has to finish after the run.
const EXIT_TIME: Duration = Duration::from_secs(1);
/// The time that a stopped decider has to end what it started: longer than it gives its processes.
const STOP_TIME: Duration = Duration::from_secs(5);

/// A question that waits for an external decider.
#[derive(Debug, Clone)]
pub struct Pending {
    pub request: RequestId,
    pub question: Question,
    pub run: String,
    /// The name of the scenario, if there is one.
    pub scenario: Option<String>,
    /// The end of the conversation so far.
    pub transcript: String,
}

impl Pending {
    /// The question as a program receives it.
    pub(crate) fn external<'a>(&'a self, id: &'a str) -> ExternalRequest<'a> {
        let Self { request: _, question, run, scenario, transcript } = self;
        ExternalRequest { id, run, scenario: scenario.as_deref(), transcript, question }
    }
}

/// A decider that may take time, such as a program, a model or a person. It receives one question at a time.
pub trait ExternalDecider: Send {
    /// Answers a question. An error ends the run.
    ///
    /// # Errors
    /// A line for the user that says why there is no answer.
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String>;

    /// The decider's own requests to the run's model, if it makes any. Taken once, before the first question.
    fn model_calls(&mut self) -> Option<ModelCalls> {
        None
    }

    /// Stops the decider, even while it works on a question: for a run that ends early.
    fn stopper(&self) -> Option<Stopper> {
        None
    }
}

/// Stops an external decider.
pub type Stopper = Box<dyn Fn() + Send>;

/// Messages of a person, one each time the agent is idle. The function waits for the next message; `None` is the end.
pub struct Spoken(pub Box<dyn FnMut() -> Option<String> + Send>);

/// A message that arrived in the mailbox.
pub(crate) enum Incoming {
    Answer { request: RequestId, answer: Result<Answer, String> },
    Message(String),
    End,
}

/// Receives the messages of all external threads.
pub(crate) struct Mailbox {
    heard: Receiver<Incoming>,
    /// Has one byte to read for each message.
    wakeup: OwnedFd,
    /// Keeps the stream open when no thread holds its other end: a closed stream would be readable forever.
    _wakeup_writer: std::sync::Arc<OwnedFd>,
    questions: Option<Sender<Pending>>,
    turns: Option<Sender<()>>,
    message_requested: bool,
    withdrawn: Vec<RequestId>,
    stopper: Option<Stopper>,
    gone: Option<Receiver<Infallible>>,
}

/// The sending end of a mailbox.
#[derive(Clone)]
struct MailboxSender {
    heard: Sender<Incoming>,
    wakeup: std::sync::Arc<OwnedFd>,
}

impl MailboxSender {
    /// Returns whether the mailbox still exists.
    fn put(&self, heard: Incoming) -> bool {
        let sent = self.heard.send(heard).is_ok();
        sent && rustix::io::write(&*self.wakeup, &[0]).is_ok()
    }
}

impl Mailbox {
    pub fn new(outside: Option<Box<dyn ExternalDecider>>, then: Then) -> std::io::Result<Self> {
        let (sender, heard) = channel();
        let (wakeup, writer) = super::streams::open(super::streams::Ours::Read)?;
        let post = MailboxSender { heard: sender, wakeup: std::sync::Arc::new(writer) };
        let writer = std::sync::Arc::clone(&post.wakeup);
        let stopper = outside.as_ref().and_then(|outside| outside.stopper());
        let (questions, gone) = outside.map(|outside| answering(outside, post.clone())).transpose()?.unzip();
        let turns = match then {
            Then::End => None,
            Then::Listen(spoken) => Some(listening(spoken, post)?),
        };
        Ok(Self {
            heard,
            wakeup,
            _wakeup_writer: writer,
            questions,
            turns,
            message_requested: false,
            withdrawn: Vec::new(),
            stopper,
            gone,
        })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Whether messages of a person follow the prepared ones.
    pub fn listens(&self) -> bool {
        self.turns.is_some()
    }

    /// Whether a message of a person was requested and has not arrived yet.
    pub fn is_ready(&self) -> bool {
        self.message_requested
    }

    /// Requests the next message of the person.
    pub fn ready(&mut self) {
        if let (Some(turns), false) = (&self.turns, self.message_requested) {
            self.message_requested = turns.send(()).is_ok();
        }
    }

    /// Passes a question to the external decider.
    ///
    /// # Errors
    /// If there is no decider, or, with a text, if it ended unexpectedly.
    pub fn ask(&mut self, pending: Pending) -> Result<(), Option<String>> {
        let Some(questions) = &self.questions else { return Err(None) };
        questions.send(pending).map_err(|_gone| Some("the decider has ended".to_owned()))
    }

    /// Ignores the answer to this request when it arrives.
    pub fn withdraw(&mut self, request: &RequestId) {
        self.withdrawn.push(request.clone());
    }

    pub fn next(&mut self) -> Option<Incoming> {
        loop {
            let heard = self.heard.try_recv().ok()?;
            let mut byte = [0];
            // One byte for each message; an error means that it was already read.
            rustix::io::read(&self.wakeup, &mut byte).ok();
            match heard {
                Incoming::Answer { request, .. } if self.withdrawn.contains(&request) => {}
                Incoming::Message(text) => {
                    self.message_requested = false;
                    return Some(Incoming::Message(text));
                }
                other @ (Incoming::Answer { .. } | Incoming::End) => return Some(other),
            }
        }
    }
}

impl Drop for Mailbox {
    /// Ends the decider, and waits a moment so that it can report its end.
    fn drop(&mut self) {
        self.questions = None;
        if let Some(stopper) = &self.stopper {
            stopper();
        }
        if let Some(gone) = &self.gone {
            // No message is ever sent here: this returns when the sender is dropped, or at the timeout.
            gone.recv_timeout(if self.stopper.is_some() { STOP_TIME } else { EXIT_TIME }).ok();
        }
    }
}

/// Starts the thread of a decider; returns the sender for questions, and a receiver that closes when the decider has
/// ended.
fn answering(
    mut outside: Box<dyn ExternalDecider>,
    post: MailboxSender,
) -> std::io::Result<(Sender<Pending>, Receiver<Infallible>)> {
    let (sender, questions) = channel::<Pending>();
    let (here, gone) = channel::<Infallible>();
    thread::Builder::new().name("decider".to_owned()).spawn(move || {
        for pending in questions {
            let answer = outside.decide(&pending);
            if !post.put(Incoming::Answer { request: pending.request, answer }) {
                break;
            }
        }
        drop(outside);
        drop(here);
    })?;
    Ok((sender, gone))
}

fn listening(mut spoken: Spoken, post: MailboxSender) -> std::io::Result<Sender<()>> {
    let (sender, turns) = channel::<()>();
    thread::Builder::new().name("listener".to_owned()).spawn(move || {
        for () in turns {
            let heard = (spoken.0)().map_or(Incoming::End, Incoming::Message);
            let ends = matches!(heard, Incoming::End);
            if !post.put(heard) || ends {
                return;
            }
        }
    })?;
    Ok(sender)
}
