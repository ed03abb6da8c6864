//! A response body in frames, with pauses between them and possibly without a proper end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;

use crate::gateway::Broken;

/// The body of a scripted response.
pub(super) struct FramedBody {
    frames: std::vec::IntoIter<Bytes>,
    framing: BodyLength,
    pause: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    ending: BodyEnd,
}

/// How the client learns where the body ends.
enum BodyLength {
    Length(u64),
    Chunked,
}

/// What happens after the last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Complete,
    Break(Broken),
}

impl FramedBody {
    /// A document with a `content-length`.
    pub fn whole(document: Bytes) -> Self {
        let length = document.len() as u64;
        Self::new(vec![document], BodyLength::Length(length), Duration::ZERO, BodyEnd::Complete)
    }

    /// Events in chunked transfer, one chunk each.
    pub fn stream(events: Vec<Bytes>, pause: Duration, ending: BodyEnd) -> Self {
        Self::new(events, BodyLength::Chunked, pause, ending)
    }

    fn new(frames: Vec<Bytes>, framing: BodyLength, pause: Duration, ending: BodyEnd) -> Self {
        Self { frames: frames.into_iter(), framing, pause, silence: None, ending }
    }
}

impl Body for FramedBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let Some(silence) = &mut this.silence {
            ready!(silence.as_mut().poll(context));
            this.silence = None;
        }
        if let Some(frame) = this.frames.next() {
            if !this.pause.is_zero() && this.frames.len() > 0 {
                this.silence = Some(Box::pin(tokio::time::sleep(this.pause)));
            }
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        match this.ending {
            BodyEnd::Complete => Poll::Ready(None),
            BodyEnd::Break(broken) => Poll::Ready(Some(Err(broken))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            BodyLength::Length(length) => SizeHint::with_exact(length),
            BodyLength::Chunked => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ending == BodyEnd::Complete && self.frames.len() == 0
    }
}
