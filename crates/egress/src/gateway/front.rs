//! The HTTP server in front of every backend: limits, deadlines and framing.
//!
//! HTTP/1.1 only. A response has a length or is chunked. A body that is delimited by the end of the connection is never
//! sent: over a unix socket the agent may take the end of the connection for the end of the message too early.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::answer::{AnswerBody, BodyFault, Broken, GatewayRequest, HangUp, Responder, Retry, error_answer};
use super::listen::Listener;
use super::transport::{ClientStream, CutSignal, Transport};

/// Pause after a failed accept. The usual cause is a lack of file descriptors, which an immediate retry would hit again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The most that is allocated before a body arrives: more than a request of an agent usually has.
const ANNOUNCED_AND_RESERVED: usize = 1 << 20;

/// Limits and timeouts for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontLimits {
    /// Concurrent connections; further ones wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's head; at least 8192.
    pub head_bytes: usize,
    /// Bytes of one request's body. The API has the same limit.
    pub body_bytes: usize,
    /// Bytes of the bodies of all current requests.
    pub all_bodies_bytes: u32,
    /// How long a connection may wait for a request, and a request for the end of its head.
    pub head_within: Duration,
    /// How long a body may take to arrive.
    pub body_within: Duration,
    /// How long a request may take from its head to the end of the response.
    pub request_within: Duration,
    /// How long a client may read nothing of the response.
    pub stalled_within: Duration,
}

impl Default for FrontLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_bytes: 64 * 1024,
            body_bytes: 32 * 1024 * 1024,
            all_bodies_bytes: 256 * 1024 * 1024,
            head_within: Duration::from_secs(600),
            body_within: Duration::from_secs(60),
            request_within: Duration::from_secs(3600),
            stalled_within: Duration::from_secs(300),
        }
    }
}

/// Accepts connections until the future is dropped. Dropping it also ends the connections.
pub async fn serve(listener: Listener, answer: Arc<dyn Responder>, limits: FrontLimits) {
    let front = Arc::new(Front { answer, limits, room: room_for_bodies(&limits) });
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                connections.spawn(Arc::clone(&front).connection(stream));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
        if connections.len() >= limits.connections {
            connections.join_next().await;
        }
    }
}

fn room_for_bodies(limits: &FrontLimits) -> Arc<Semaphore> {
    let bytes = usize::try_from(limits.all_bodies_bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    Arc::new(Semaphore::new(bytes))
}

/// State that all connections share.
struct Front {
    answer: Arc<dyn Responder>,
    limits: FrontLimits,
    /// One permit for each byte of a body.
    room: Arc<Semaphore>,
}

impl Front {
    /// Serves one connection to its end. An error concerns the client or the backend, and is not reported here.
    async fn connection(self: Arc<Self>, stream: ClientStream) {
        let cut = Arc::new(CutSignal::default());
        let patience = self.limits.stalled_within;
        let transport = TokioIo::new(Transport::new(stream, Arc::clone(&cut), patience));
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_within)
            .max_buf_size(self.limits.head_bytes.max(8192));
        let service = service_fn(move |request| Arc::clone(&self).request(request, Arc::clone(&cut)));
        server.serve_connection(transport, service).await.ok();
    }

    async fn request(
        self: Arc<Self>,
        request: Request<Incoming>,
        cut: Arc<CutSignal>,
    ) -> Result<Response<FrontBody>, HangUp> {
        let deadline = Instant::now() + self.limits.request_within;
        let version = request.version();
        let (head, body) = request.into_parts();
        let (body, room) = match tokio::time::timeout(self.limits.body_within, self.read(body)).await {
            Ok((body, room)) => (body, room),
            Err(_late) => (Err(BodyFault::Late), None),
        };
        let asked = GatewayRequest { method: head.method, uri: head.uri, headers: head.headers, body };
        let answered = if version == Version::HTTP_11 {
            tokio::time::timeout_at(deadline, self.answer.answer(asked)).await
        } else {
            Ok(Ok(wrong_version()))
        };
        let response = match answered {
            Ok(answered) => answered?,
            Err(_late) => self.late(),
        };
        let deadline = Box::pin(tokio::time::sleep_until(deadline));
        Ok(response.map(|inner| FrontBody { inner, cut, broken: false, deadline, _room: room }))
    }

    /// Reads a body within the limits.
    async fn read(&self, mut body: Incoming) -> (Result<Bytes, BodyFault>, Option<OwnedSemaphorePermit>) {
        let limit = self.limits.body_bytes;
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > limit {
            return (Err(BodyFault::TooLarge { limit }), None);
        }
        let mut room: Option<OwnedSemaphorePermit> = None;
        // The announced length may be wrong.
        let mut bytes = Vec::with_capacity(announced.min(ANNOUNCED_AND_RESERVED));
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return (Err(BodyFault::Broken), None) };
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len() + piece.len() > limit {
                return (Err(BodyFault::TooLarge { limit }), None);
            }
            let wanted = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&self.room).try_acquire_many_owned(wanted) else {
                return (Err(BodyFault::NoRoom), None);
            };
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            bytes.extend_from_slice(&piece);
        }
        (Ok(Bytes::from(bytes)), room)
    }

    fn late(&self) -> Response<AnswerBody> {
        let message = format!("no answer came within {:?}", self.limits.request_within);
        error_answer(StatusCode::GATEWAY_TIMEOUT, "timeout_error", &message, Retry::Never)
    }
}

fn wrong_version() -> Response<AnswerBody> {
    let message = "only HTTP/1.1 is served";
    error_answer(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "invalid_request_error", message, Retry::Never)
}

/// The body of a response on its way to the client.
struct FrontBody {
    inner: AnswerBody,
    cut: Arc<CutSignal>,
    /// The connection is to be cut. The inner body must not be polled again: after an error it may report a normal end.
    broken: bool,
    deadline: Pin<Box<Sleep>>,
    /// The request's body may live as long as the response.
    _room: Option<OwnedSemaphorePermit>,
}

impl Body for FrontBody {
    type Data = Bytes;
    type Error = HangUp;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HangUp>>> {
        let this = self.get_mut();
        if this.broken {
            return Poll::Pending;
        }
        let end = if this.deadline.as_mut().poll(context).is_ready() {
            Broken::Close
        } else {
            match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(Some(Err(end))) => end,
            }
        };
        this.cut.request(end);
        this.broken = true;
        // The next flush cuts the connection. hyper may have polled the body after its last flush, so it has to be polled
        // once more.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// Fails once and then reports a normal end, as an upstream body does whose connection broke.
    struct FailsThenEnds(bool);

    impl Body for FailsThenEnds {
        type Data = Bytes;
        type Error = Broken;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
            let failed = std::mem::replace(&mut self.0, true);
            Poll::Ready(if failed { None } else { Some(Err(Broken::Close)) })
        }
    }

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_broken_body_never_ends_normally_and_is_polled_until_the_flush() {
        let mut body = FrontBody {
            inner: FailsThenEnds(false).boxed_unsync(),
            cut: Arc::default(),
            broken: false,
            deadline: Box::pin(tokio::time::sleep(Duration::from_secs(60))),
            _room: None,
        };
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&wakes));
        for _ in 0..3 {
            assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "without a wake the flush may never come");
    }
}
