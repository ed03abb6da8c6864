//! Observes exchanges request by request and chunk by chunk, with the time of each. Tapes are recorded this way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{HeaderMap, StatusCode};

use super::answer::{AnswerBody, AnswerFuture, Broken, GatewayRequest, Responder};

pub trait Observe: Send + Sync {
    /// Called before a request is answered. Its credentials are placeholders; the agent has no others.
    fn asked(&self, asked: &GatewayRequest) -> Box<dyn ObserveAnswer>;
}

/// Observes one response. If it is dropped without [`ObserveAnswer::ended`], the response was not delivered completely.
pub trait ObserveAnswer: Send {
    fn head(&mut self, status: StatusCode, headers: &HeaderMap, at: Instant);
    /// A piece of the body, as it is sent to the client.
    fn chunk(&mut self, bytes: &Bytes, at: Instant);
    fn ended(self: Box<Self>, end: AnswerEnd, at: Instant);
}

/// Ignores a response.
pub(crate) struct Unobserved;

impl ObserveAnswer for Unobserved {
    fn head(&mut self, _status: StatusCode, _headers: &HeaderMap, _at: Instant) {}
    fn chunk(&mut self, _bytes: &Bytes, _at: Instant) {}
    fn ended(self: Box<Self>, _end: AnswerEnd, _at: Instant) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEnd {
    Complete,
    Broken,
}

/// A backend with an observer.
pub struct Observed {
    inner: Arc<dyn Responder>,
    observer: Arc<dyn Observe>,
}

impl Observed {
    pub fn new(inner: Arc<dyn Responder>, observer: Arc<dyn Observe>) -> Self {
        Self { inner, observer }
    }
}

impl Responder for Observed {
    fn answer(&self, asked: GatewayRequest) -> AnswerFuture {
        let mut watcher = self.observer.asked(&asked);
        let answering = self.inner.answer(asked);
        Box::pin(async move {
            let response = answering.await?;
            watcher.head(response.status(), response.headers(), Instant::now());
            Ok(response.map(|inner| WatchedBody { inner, watcher: Some(watcher) }.boxed_unsync()))
        })
    }
}

struct WatchedBody {
    inner: AnswerBody,
    watcher: Option<Box<dyn ObserveAnswer>>,
}

impl WatchedBody {
    fn end(&mut self, end: AnswerEnd) {
        if let Some(watcher) = self.watcher.take() {
            watcher.ended(end, Instant::now());
        }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        match &polled {
            Poll::Pending => (),
            Poll::Ready(None) => this.end(AnswerEnd::Complete),
            Poll::Ready(Some(Err(_))) => this.end(AnswerEnd::Broken),
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(bytes), Some(watcher)) = (frame.data_ref(), &mut this.watcher) {
                    watcher.chunk(bytes, Instant::now());
                }
                // hyper does not poll a body of known length again once it has returned everything.
                if this.inner.is_end_stream() {
                    this.end(AnswerEnd::Complete);
                }
            }
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
