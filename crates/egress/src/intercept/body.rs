//! Bodies that are forwarded piece by piece.

use belljar_contract::{ScrubStream, Scrubber};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Why a body is incomplete. It is one type, so that the futures that carry it are easy to name.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the connection was interrupted")]
    Broken(#[source] hyper::Error),
    #[error("no data for {0:?}")]
    Stalled(Duration),
}

/// The body of a response.
pub(super) enum ResponseBody {
    /// Text of belljar itself.
    Text(Option<Bytes>),
    /// Forwarded unchanged.
    Passing(TimedBody),
    /// Forwarded with secrets redacted. Trailers are sent after the bytes that were held back.
    Scrubbed {
        body: TimedBody,
        stream: ScrubStream,
        scrubber: Arc<Scrubber>,
        trailers: Option<HeaderMap>,
        ended: bool,
    },
}

impl ResponseBody {
    pub fn scrubbed(body: Incoming, scrubber: &Arc<Scrubber>, stall: Duration) -> Self {
        let (stream, scrubber) = (scrubber.stream(), Arc::clone(scrubber));
        Self::Scrubbed { body: TimedBody::new(body, stall), stream, scrubber, trailers: None, ended: false }
    }
}

/// A body with a timeout between two pieces.
pub(super) struct TimedBody {
    body: Incoming,
    stall: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl TimedBody {
    pub fn new(body: Incoming, stall: Duration) -> Self {
        Self { body, stall, sleep: Box::pin(tokio::time::sleep(stall)) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.sleep.as_mut().reset(Instant::now() + self.stall);
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        self.sleep.as_mut().poll(context).map(|()| Some(Err(BodyError::Stalled(self.stall))))
    }
}

/// Redacts secrets in header values.
pub(super) fn scrub_headers(headers: &mut HeaderMap, scrubber: &Scrubber) {
    for value in headers.values_mut() {
        let Some(scrubbed) = scrubber.scrub_bytes(value.as_bytes()) else { continue };
        // The replacement is plain text and valid unless a credential has an unusual name; then the whole value is replaced.
        *value = scrubbed
            .try_into()
            .unwrap_or_else(|_invalid| hyper::header::HeaderValue::from_static("[redacted]"));
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Passing(body) => body.poll(context),
            Self::Scrubbed { body, stream, scrubber, trailers, ended } => loop {
                if *ended {
                    return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
                }
                let frame = match body.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Some(Ok(frame))) => Some(frame),
                    Poll::Ready(None) => None,
                };
                let leaves: Bytes = match frame.map(Frame::into_data) {
                    Some(Ok(bytes)) if stream.lets_pass(&bytes) => bytes,
                    Some(Ok(bytes)) => stream.push(&bytes).into(),
                    Some(Err(frame)) => {
                        if let Ok(mut found) = frame.into_trailers() {
                            scrub_headers(&mut found, scrubber);
                            *trailers = Some(found);
                        }
                        *ended = true;
                        stream.finish().into()
                    }
                    None => {
                        *ended = true;
                        stream.finish().into()
                    }
                };
                if !leaves.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(leaves))));
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Passing(body) => body.body.is_end_stream(),
            Self::Scrubbed { body, stream, trailers, ended, .. } => {
                trailers.is_none() && (*ended || body.body.is_end_stream()) && !stream.holds()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Passing(body) => body.body.size_hint(),
            Self::Scrubbed { body, .. } if body.body.is_end_stream() => SizeHint::with_exact(0),
            // A replacement may be longer or shorter than the secret.
            Self::Scrubbed { .. } => SizeHint::default(),
        }
    }
}
