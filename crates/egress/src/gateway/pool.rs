//! Reuses connections: one HTTP/2 connection for several requests at once, or a few idle HTTP/1.1 connections.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};

use super::connect::{ConnectError, Dialler, History, Link};
use super::upstream::Scheme;
use crate::tls::ChosenProtocol;

/// The most idle connections that are kept.
const MAX_WAITING: usize = 16;

/// How long a connection that just carried a request may take to be ready for the next.
const READY_WITHIN: Duration = Duration::from_millis(100);

pub(super) struct Pool {
    dialler: Dialler,
    idle_within: Duration,
    kept: Mutex<IdleLinks>,
    /// Held while the first connection is made over TLS: if it is HTTP/2, it carries all other requests too.
    first: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct IdleLinks {
    shared: Option<Link>,
    waiting: Vec<(Link, Instant)>,
    protocol: Option<ChosenProtocol>,
}

pub(super) struct UpstreamRequest {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// Nothing of the request was sent.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// At least a part of the request was sent.
    #[error("{0}")]
    Broken(hyper::Error),
    /// The request could not be built.
    #[error("{0}")]
    Form(hyper::http::Error),
}

impl Pool {
    pub fn new(dialler: Dialler, idle_within: Duration) -> Self {
        Self { dialler, idle_within, kept: Mutex::default(), first: tokio::sync::Mutex::default() }
    }

    /// Sends a request. A request is repeated in one case only: a reused connection was closed without a byte of a response,
    /// because the host had already given it up.
    pub async fn send(&self, outgoing: &UpstreamRequest) -> Result<(Response<Incoming>, Link), SendError> {
        let mut link = self.take().await?;
        let before = link.read_bytes();
        let error = match link.send(self.request(outgoing, &link)?).await {
            Ok(response) => return Ok((response, link)),
            Err(error) => error,
        };
        if link.history == History::New || link.read_bytes() != before {
            return Err(SendError::Broken(error));
        }
        self.forget(&link);
        let mut link = self.dialler.connect().await?;
        match link.send(self.request(outgoing, &link)?).await {
            Ok(response) => {
                self.keep_shared(&link);
                Ok((response, link))
            }
            Err(error) => Err(SendError::Broken(error)),
        }
    }

    /// Takes back a connection whose response was read to its end.
    pub fn give_back(&self, mut link: Link) {
        if link.protocol() == ChosenProtocol::Http2 || link.is_closed() {
            return;
        }
        link.history = History::Used;
        let mut kept = self.kept();
        if kept.waiting.len() < MAX_WAITING {
            kept.waiting.push((link, Instant::now()));
        }
    }

    async fn take(&self) -> Result<Link, ConnectError> {
        while let Some(mut link) = self.kept_link() {
            if link.protocol() == ChosenProtocol::Http2 {
                return Ok(link);
            }
            if let Ok(Ok(())) = tokio::time::timeout(READY_WITHIN, link.ready()).await {
                return Ok(link);
            }
        }
        let may_be_shared = {
            let kept = self.kept();
            self.dialler.upstream.scheme == Scheme::Https && kept.protocol != Some(ChosenProtocol::Http1)
        };
        if !may_be_shared {
            return self.dialler.connect().await;
        }
        let _first = self.first.lock().await;
        if let Some(link) = self.kept_link() {
            return Ok(link);
        }
        let link = self.dialler.connect().await?;
        self.keep_shared(&link);
        Ok(link)
    }

    fn kept_link(&self) -> Option<Link> {
        let mut kept = self.kept();
        kept.shared = kept.shared.take().filter(|link| !link.is_closed());
        if let Some(link) = kept.shared.as_ref().and_then(Link::share) {
            return Some(link);
        }
        let fresh = |since: &Instant| since.elapsed() < self.idle_within;
        kept.waiting.retain(|(link, since)| !link.is_closed() && fresh(since));
        kept.waiting.pop().map(|(link, _)| link)
    }

    fn keep_shared(&self, link: &Link) {
        let mut kept = self.kept();
        kept.protocol = Some(link.protocol());
        if let Some(shared) = link.share() {
            kept.shared = Some(shared);
        }
    }

    /// Drops a shared connection that failed.
    fn forget(&self, link: &Link) {
        if link.protocol() == ChosenProtocol::Http2 {
            self.kept().shared = None;
        }
    }

    fn request(&self, outgoing: &UpstreamRequest, link: &Link) -> Result<Request<Full<Bytes>>, SendError> {
        let UpstreamRequest { path, headers, body } = outgoing;
        let authority = &self.dialler.upstream.authority;
        let builder = Request::builder().method(Method::POST);
        let builder = match link.protocol() {
            ChosenProtocol::Http1 => builder.uri(path.as_str()),
            ChosenProtocol::Http2 => builder.uri(format!("https://{authority}{path}")),
        };
        let mut request = builder.body(Full::new(body.clone())).map_err(SendError::Form)?;
        *request.headers_mut() = headers.clone();
        if link.protocol() == ChosenProtocol::Http1 {
            let host = HeaderValue::from_str(authority).map_err(|invalid| SendError::Form(invalid.into()))?;
            request.headers_mut().insert(HOST, host);
        }
        Ok(request)
    }

    /// A panic elsewhere cannot leave the lists half changed: each change is a single push, take or retain.
    fn kept(&self) -> MutexGuard<'_, IdleLinks> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
