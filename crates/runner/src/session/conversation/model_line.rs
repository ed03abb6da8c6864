//! The line from one who answers to the run's own model, whatever plays it. It is connected once the way out is served.

use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Asks the run's model.
#[derive(Debug)]
pub struct ModelLine(UnboundedSender<ModelCall>);

/// The other end of a [`ModelLine`].
#[derive(Debug)]
pub struct ModelCalls(pub(crate) UnboundedReceiver<ModelCall>);

/// A request and where its answer goes.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub request: Value,
    pub reply: Sender<Result<String, String>>,
}

impl ModelLine {
    /// A line and its other end.
    #[must_use]
    pub fn new() -> (Self, ModelCalls) {
        let (sender, calls) = unbounded_channel();
        (Self(sender), ModelCalls(calls))
    }

    /// Asks, and waits for the text of the answer.
    ///
    /// # Errors
    /// When there is none in time, in a line for people.
    pub fn ask(&self, request: Value, within: Duration) -> Result<String, String> {
        let gone = || "the model is not there any more".to_owned();
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
