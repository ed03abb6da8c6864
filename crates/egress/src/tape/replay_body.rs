//! Sends a recorded response again, piece by piece.

use super::replay::Pace;
use super::stream::{self, Change, Changed};
use crate::gateway::{AnswerBody, Broken};
use belljar_contract::{ExchangeAnswer, ExchangeDelivery, ExchangeEnd};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The longest delay before a cut that is kept when responses are sent as fast as possible, in milliseconds.
const LONGEST_SILENCE: u64 = 250;

/// Builds the response. `change` replaces the recorded ids by those of this run.
pub(super) fn answer(
    recorded: &ExchangeAnswer,
    body: Vec<u8>,
    wanted: Wanted,
    change: Change<'_>,
) -> Response<AnswerBody> {
    let ExchangeAnswer { status, headers, chunks, end, ended_ms, body: _ } = recorded;
    let (mut body, mut chunks) = match stream::change(&body, chunks, change) {
        Some(Changed { body, chunks }) => (body, chunks),
        None => (body, chunks.clone()),
    };
    // A client that repeats the request in the other delivery mode gets the same content in that mode.
    let streamed =
        headers.iter().any(|(name, value)| name == "content-type" && value.contains("event-stream"));
    let turned = match (wanted.delivery, streamed) {
        (ExchangeDelivery::Whole, true) => stream::document(&body).map(|body| (body, "application/json")),
        (ExchangeDelivery::Stream, false) => stream::events(&body).map(|body| (body, "text/event-stream")),
        (ExchangeDelivery::Whole, false) | (ExchangeDelivery::Stream, true) => None,
    };
    let turned = turned.filter(|_| *end == ExchangeEnd::Complete);
    let kind = turned.as_ref().map(|(_, kind)| *kind);
    if let Some((other, _)) = turned {
        chunks = vec![(*ended_ms, other.len() as u64)];
        body = other;
    }
    let whole = streamed == kind.is_some();
    let served = ReplayBody {
        pieces: pieces(body, &chunks).into_iter(),
        length: (whole && *end == ExchangeEnd::Complete)
            .then(|| chunks.iter().map(|(_, length)| length).sum()),
        began: Instant::now(),
        pace: wanted.pace,
        silence: None,
        last_silence: ended_ms.saturating_sub(chunks.last().map_or(0, |(ms, _)| *ms)).min(LONGEST_SILENCE),
        broken: match end {
            ExchangeEnd::Complete => None,
            // The client left during the recording. The replay must not end the response as if it were complete.
            ExchangeEnd::Broken | ExchangeEnd::Left => Some(Broken::Close),
        },
    };
    let mut response = Response::new(served.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in headers {
        let pair = (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value));
        if let (Ok(name), Ok(value)) = pair {
            response.headers_mut().append(name, value);
        }
    }
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub delivery: ExchangeDelivery,
    pub pace: Pace,
}

fn pieces(body: Vec<u8>, chunks: &[(u64, u64)]) -> Vec<(u64, Bytes)> {
    let mut rest = Bytes::from(body);
    let piece = |(ms, length): &(u64, u64)| {
        let length = usize::try_from(*length).unwrap_or(usize::MAX).min(rest.len());
        (*ms, rest.split_to(length))
    };
    chunks.iter().map(piece).collect()
}

struct ReplayBody {
    pieces: std::vec::IntoIter<(u64, Bytes)>,
    length: Option<u64>,
    began: Instant,
    pace: Pace,
    silence: Option<Pin<Box<Sleep>>>,
    /// Milliseconds between the last piece and a cut. What the client does with the pieces depends on it.
    last_silence: u64,
    broken: Option<Broken>,
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let (Pace::AsRecorded, None, Some((ms, _))) =
            (this.pace, &this.silence, this.pieces.as_slice().first())
        {
            let at = this.began + Duration::from_millis(*ms);
            this.silence = Some(Box::pin(tokio::time::sleep_until(at)));
        }
        if this.broken.is_some() && this.last_silence > 0 && this.pieces.len() == 0 {
            let length = Duration::from_millis(std::mem::take(&mut this.last_silence));
            this.silence = Some(Box::pin(tokio::time::sleep(length)));
        }
        if let Some(silence) = &mut this.silence {
            ready!(silence.as_mut().poll(context));
            this.silence = None;
        }
        match (this.pieces.next(), this.broken) {
            (Some((_, piece)), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, None) => Poll::Ready(None),
            (None, Some(broken)) => Poll::Ready(Some(Err(broken))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.pieces.len() == 0
    }
}
