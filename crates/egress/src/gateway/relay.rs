//! Relays a response from the model's host to the agent piece by piece, and counts its tokens.
//!
//! Nothing is stored or read ahead: the agent's reading pulls each piece. When the agent closes the connection, the body
//! is dropped, and with it the request to the host.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use belljar_contract::ScrubStream;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::account::Account;
use super::answer::Broken;
use super::connect::Link;
use super::event::RequestEnd;
use super::messages_api::Meter;
use super::pool::Pool;

/// The body of a response of the live model.
pub(super) struct RelayBody {
    incoming: Incoming,
    /// Redacts the credential, should the host repeat it.
    scrubbed: ScrubStream,
    silence: Pin<Box<Sleep>>,
    silent_within: Duration,
    running: Option<Settlement>,
}

/// What is settled when the response ends.
pub(super) struct Settlement {
    pub meter: Meter,
    pub account: Account,
    pub status: u16,
    pub link: Link,
    pub pool: Arc<Pool>,
}

impl RelayBody {
    pub fn new(
        incoming: Incoming,
        scrubbed: ScrubStream,
        silent_within: Duration,
        running: Settlement,
    ) -> Self {
        let silence = Box::pin(tokio::time::sleep(silent_within));
        let mut body = Self { incoming, scrubbed, silence, silent_within, running: Some(running) };
        if body.incoming.is_end_stream() {
            body.complete();
        }
        body
    }

    fn take(&mut self, bytes: &Bytes) {
        self.silence.as_mut().reset(Instant::now() + self.silent_within);
        if let Some(running) = &mut self.running {
            running.meter.feed(bytes);
            running.account.received(bytes.len(), running.meter.input_so_far());
        }
    }

    fn complete(&mut self) {
        if let Some(Settlement { meter, account, status, link, pool }) = self.running.take() {
            account.close(RequestEnd::Complete, Some(status), &meter.reading());
            pool.give_back(link);
        }
    }

    fn end(&mut self, end: RequestEnd) {
        if let Some(Settlement { meter, account, status, link: _, pool: _ }) = self.running.take() {
            account.close(end, Some(status), &meter.reading());
        }
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        loop {
            match Pin::new(&mut this.incoming).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are dropped; the agent does not use them.
                    let Ok(bytes) = frame.into_data() else { continue };
                    this.take(&bytes);
                    let clear = this.scrubbed.lets_pass(&bytes);
                    let mut leaving = if clear { Vec::new() } else { this.scrubbed.push(&bytes) };
                    if this.incoming.is_end_stream() {
                        leaving.extend(this.scrubbed.finish());
                        this.complete();
                    }
                    let leaving = if clear { bytes } else { leaving.into() };
                    if leaving.is_empty() {
                        continue;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(leaving))));
                }
                Poll::Ready(Some(Err(error))) => {
                    this.end(RequestEnd::Failed(format!("the response was interrupted: {error}")));
                    return Poll::Ready(Some(Err(Broken::Close)));
                }
                Poll::Ready(None) => {
                    this.complete();
                    let last = this.scrubbed.finish();
                    let last = (!last.is_empty()).then(|| Ok(Frame::data(last.into())));
                    return Poll::Ready(last);
                }
                Poll::Pending => {
                    if this.running.is_some() && this.silence.as_mut().poll(context).is_ready() {
                        let silent = this.silent_within;
                        this.end(RequestEnd::Failed(format!("the model's host was silent for {silent:?}")));
                        return Poll::Ready(Some(Err(Broken::Close)));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Redacting the credential changes the length.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream() && !self.scrubbed.holds()
    }
}

impl Drop for RelayBody {
    fn drop(&mut self) {
        self.end(RequestEnd::ClientLeft);
    }
}

/// Chooses how to count the tokens of a response, by its content type.
pub(super) fn meter(headers: &hyper::HeaderMap) -> Meter {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    meter_of(value("content-type"))
}

pub(super) fn meter_of(content_type: &str) -> Meter {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/event-stream" => Meter::stream(),
        "application/json" => Meter::document(),
        _ => Meter::Uncounted,
    }
}
