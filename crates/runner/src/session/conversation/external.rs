//! Those who take time: someone who answers, someone who speaks. Each has a thread; what they say comes through one
//! mailbox, which can be waited for together with everything else.

use super::{ModelCalls, Then};
use belljar_contract::RequestId;
use belljar_session::{Answer, Question};
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// For the last words of the one who answers.
const FAREWELL: Duration = Duration::from_secs(1);

/// A question that waits for someone outside.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its id.
    pub request: RequestId,
    /// The question.
    pub question: Question,
    /// The run.
    pub run: String,
    /// The end of what was said so far.
    pub transcript: String,
}

/// Someone who answers and may take time for it. One question at a time.
pub trait ExternalDecider: Send {
    /// The answer, or why there is none; without one the run ends.
    ///
    /// # Errors
    /// In a line for people.
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String>;

    /// Questions of its own to the run's model, where it has any. Taken once, before the first question.
    fn model_calls(&mut self) -> Option<ModelCalls> {
        None
    }

    /// What ends the one who answers, also while a question waits: for a run that is over before that.
    fn stopper(&self) -> Option<Stopper> {
        None
    }
}

/// Ends someone who answers.
pub type Stopper = Box<dyn Fn() + Send>;

/// Messages of a person, one each time the agent is idle. The function waits for the next; none is the end.
pub struct Spoken(pub Box<dyn FnMut() -> Option<String> + Send>);

/// What came in.
pub(super) enum Incoming {
    Answer { request: RequestId, answer: Result<Answer, String> },
    Message(String),
    End,
}

/// Where everything that takes time arrives.
pub(super) struct Mailbox {
    heard: Receiver<Incoming>,
    /// Readable as often as something was sent.
    bell: OwnedFd,
    /// Keeps the bell from being hung up, which would ring without end, when nobody is there to ring it.
    _ring: std::sync::Arc<OwnedFd>,
    questions: Option<Sender<Pending>>,
    turns: Option<Sender<()>>,
    waits_for_words: bool,
    withdrawn: Vec<RequestId>,
    stopper: Option<Stopper>,
    gone: Option<Receiver<Infallible>>,
}

/// The ringing end of a mailbox.
#[derive(Clone)]
struct Postbox {
    heard: Sender<Incoming>,
    bell: std::sync::Arc<OwnedFd>,
}

impl Postbox {
    /// Whether anyone still listens.
    fn put(&self, heard: Incoming) -> bool {
        let sent = self.heard.send(heard).is_ok();
        sent && rustix::io::write(&*self.bell, &[0]).is_ok()
    }
}

impl Mailbox {
    pub fn new(outside: Option<Box<dyn ExternalDecider>>, then: Then) -> std::io::Result<Self> {
        let (sender, heard) = channel();
        let (bell, ring) = super::streams::open(super::streams::Ours::Read)?;
        let post = Postbox { heard: sender, bell: std::sync::Arc::new(ring) };
        let ring = std::sync::Arc::clone(&post.bell);
        let stopper = outside.as_ref().and_then(|outside| outside.stopper());
        let (questions, gone) = outside.map(|outside| answering(outside, post.clone())).transpose()?.unzip();
        let turns = match then {
            Then::End => None,
            Then::Listen(spoken) => Some(listening(spoken, post)?),
        };
        Ok(Self {
            heard,
            bell,
            _ring: ring,
            questions,
            turns,
            waits_for_words: false,
            withdrawn: Vec::new(),
            stopper,
            gone,
        })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether someone goes on speaking when the messages are used up.
    pub fn listens(&self) -> bool {
        self.turns.is_some()
    }

    /// Whether it is their turn.
    pub fn is_ready(&self) -> bool {
        self.waits_for_words
    }

    /// It is their turn.
    pub fn ready(&mut self) {
        if let (Some(turns), false) = (&self.turns, self.waits_for_words) {
            self.waits_for_words = turns.send(()).is_ok();
        }
    }

    /// Passes a question on.
    ///
    /// # Errors
    /// When there is nobody, with a word about it where it is a surprise.
    pub fn ask(&mut self, pending: Pending) -> Result<(), Option<String>> {
        let Some(questions) = &self.questions else { return Err(None) };
        questions.send(pending).map_err(|_gone| Some("the one who answers is gone".to_owned()))
    }

    /// The answer to this is no longer wanted.
    pub fn withdraw(&mut self, request: &RequestId) {
        self.withdrawn.push(request.clone());
    }

    pub fn next(&mut self) -> Option<Incoming> {
        loop {
            let heard = self.heard.try_recv().ok()?;
            let mut rung = [0];
            // One ring for each; a bell that has none left has told already.
            rustix::io::read(&self.bell, &mut rung).ok();
            match heard {
                Incoming::Answer { request, .. } if self.withdrawn.contains(&request) => {}
                Incoming::Message(text) => {
                    self.waits_for_words = false;
                    return Some(Incoming::Message(text));
                }
                other => return Some(other),
            }
        }
    }
}

impl Drop for Mailbox {
    /// Whoever answers is told that nothing more comes, and has a moment to tell others.
    fn drop(&mut self) {
        self.questions = None;
        if let Some(stopper) = &self.stopper {
            stopper();
        }
        if let Some(gone) = &self.gone {
            // Nothing is ever sent: it returns when the other end is dropped, or when the moment is over.
            gone.recv_timeout(FAREWELL).ok();
        }
    }
}

/// Where questions go, and what is closed when the one who answers is gone.
fn answering(
    mut outside: Box<dyn ExternalDecider>,
    post: Postbox,
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

fn listening(mut spoken: Spoken, post: Postbox) -> std::io::Result<Sender<()>> {
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
