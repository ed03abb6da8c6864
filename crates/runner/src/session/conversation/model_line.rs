//! The connection from a decider to the run's own model, live or replayed. It is established once the egress services
//! run.

use belljar_egress::gateway::OwnReply;
use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sends requests to the run's model.
#[derive(Debug)]
pub struct ModelLine(UnboundedSender<ModelCall>);

/// The other end of a [`ModelLine`].
#[derive(Debug)]
pub struct ModelCalls(pub(crate) UnboundedReceiver<ModelCall>);

/// A request and where its answer goes.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub request: Value,
    pub reply: Sender<Result<OwnReply, String>>,
}

impl ModelLine {
    /// Makes a connected pair.
    #[must_use]
    pub fn new() -> (Self, ModelCalls) {
        let (sender, calls) = unbounded_channel();
        (Self(sender), ModelCalls(calls))
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// If there is no answer in time; a line for the user.
    pub fn ask(&self, request: Value, within: Duration) -> Result<OwnReply, String> {
        let gone = || "the model's gateway has ended".to_owned();
        let (reply, answer) = channel();
        self.0.send(ModelCall { request, reply }).map_err(|_gone| gone())?;
        match answer.recv_timeout(within) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the model did not answer in {} s", within.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}
