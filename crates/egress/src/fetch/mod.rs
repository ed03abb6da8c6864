//! Fetches a file for belljar itself, such as a version of an agent. Nothing of a sandbox takes part.
//!
//! The server is one that the user configured, or one that such a server names. A response is bounded in size, and a
//! server that stops sending is given up. A credential goes to the server that it is for: not to the target of a redirect
//! on another server, and not unencrypted, except to this machine.

mod connect;
mod error;
mod proxied;
mod url;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use belljar_contract::Secret;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::resolve::SystemResolver;
use crate::tls::TlsClient;
use connect::{Connected, Credentials};
pub use error::FetchError;
pub use proxied::{ProxyExceptions, UserProxy};
pub use url::{FetchScheme, FetchUrl, UrlError};

/// Limit for the head of a response.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_REDIRECTS: usize = 5;

/// How long a server may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchTimes {
    /// To be connected to, with TLS.
    pub connect: Duration,
    /// Until the next bytes.
    pub silence: Duration,
}

/// The way to the network.
pub struct Fetcher {
    tls: TlsClient,
    resolver: Arc<SystemResolver>,
    proxy: Option<UserProxy>,
    exceptions: ProxyExceptions,
    times: FetchTimes,
}

/// A file to fetch.
pub struct Fetch<'a> {
    pub url: &'a FetchUrl,
    pub accept: &'static str,
    /// Returns the value of `Authorization` for a URL.
    pub credential: &'a dyn Fn(&FetchUrl) -> Option<Secret>,
    /// The largest size that is accepted.
    pub limit: u64,
}

/// Some bytes of a file, in order.
#[derive(Debug)]
pub struct ReceivedBytes<'a> {
    pub bytes: &'a [u8],
    /// The size of the file, if the server said it.
    pub total: Option<u64>,
}

impl Fetcher {
    #[must_use]
    pub fn new(
        tls: TlsClient,
        proxy: Option<UserProxy>,
        exceptions: ProxyExceptions,
        times: FetchTimes,
    ) -> Self {
        let resolver = Arc::new(SystemResolver::new(times.connect));
        Self { tls, resolver, proxy, exceptions, times }
    }

    /// Fetches a file and hands its bytes to `keep` as they arrive.
    ///
    /// # Errors
    /// See [`FetchError`]. The bytes so far are incomplete then.
    pub async fn get(
        &self,
        fetch: &Fetch<'_>,
        keep: &mut dyn FnMut(ReceivedBytes<'_>) -> io::Result<()>,
    ) -> Result<(), FetchError> {
        let mut url = fetch.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let credential = (fetch.credential)(&url).filter(|_| url.same_server(fetch.url));
            let response = self.send(&url, fetch.accept, credential).await?;
            match next(&url, &response)? {
                Some(to) => url = to,
                None => return self.receive(&url, fetch.limit, response, keep).await,
            }
        }
        Err(FetchError::Redirects { url: Box::new(fetch.url.clone()) })
    }

    async fn send(
        &self,
        url: &FetchUrl,
        accept: &'static str,
        credential: Option<Secret>,
    ) -> Result<Response<Incoming>, FetchError> {
        let Connected { stream, credentials } = self.connect(url).await?;
        let host = || url.destination().clone();
        let failed = |cause| FetchError::Http { host: host(), cause };
        let mut client = http1::Builder::new();
        client.max_buf_size(MAX_HEAD_BYTES);
        let (mut sender, connection) =
            client.handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(failed)?;
        // An error also reaches the request that waits for a response.
        tokio::spawn(async move { connection.await.ok() });
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = url.target().parse().map_err(|_invalid| FetchError::Location {
            url: Box::new(url.clone()),
            cause: Some(UrlError::Form),
        })?;
        let headers = request.headers_mut();
        if let Ok(authority) = HeaderValue::from_str(&url.authority()) {
            headers.insert(header::HOST, authority);
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("belljar"));
        if credentials == Credentials::MaySend
            && let Some(mut value) =
                credential.and_then(|secret| HeaderValue::from_bytes(secret.expose()).ok())
        {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let silence = self.times.silence;
        let answered = tokio::time::timeout(silence, sender.send_request(request)).await;
        answered.map_err(|_late| FetchError::Silent { host: host(), silence })?.map_err(failed)
    }

    async fn receive(
        &self,
        url: &FetchUrl,
        limit: u64,
        response: Response<Incoming>,
        keep: &mut dyn FnMut(ReceivedBytes<'_>) -> io::Result<()>,
    ) -> Result<(), FetchError> {
        let total = check(url, limit, &response)?;
        let mut body = response.into_body();
        let mut got: u64 = 0;
        let silence = self.times.silence;
        loop {
            let frame = tokio::time::timeout(silence, body.frame()).await;
            let frame =
                frame.map_err(|_late| FetchError::Silent { host: url.destination().clone(), silence })?;
            let Some(frame) = frame else { return Ok(()) };
            let frame = frame.map_err(|cause| FetchError::Broken { url: Box::new(url.clone()), cause })?;
            let Some(bytes) = frame.data_ref() else { continue };
            got = got.saturating_add(bytes.len() as u64);
            if got > limit {
                return Err(FetchError::TooLarge { url: Box::new(url.clone()), limit });
            }
            keep(ReceivedBytes { bytes, total }).map_err(FetchError::Kept)?;
        }
    }
}

/// The target, if the response is a redirect.
fn next(url: &FetchUrl, response: &Response<Incoming>) -> Result<Option<FetchUrl>, FetchError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location =
        location.ok_or_else(|| FetchError::Location { url: Box::new(url.clone()), cause: None })?;
    let to = url
        .join(location)
        .map_err(|cause| FetchError::Location { url: Box::new(url.clone()), cause: Some(cause) })?;
    if url.scheme() == FetchScheme::Https && to.scheme() == FetchScheme::Http {
        return Err(FetchError::Downgrade { url: Box::new(url.clone()), to: Box::new(to) });
    }
    Ok(Some(to))
}

/// The announced size of a response that can be used.
fn check(url: &FetchUrl, limit: u64, response: &Response<Incoming>) -> Result<Option<u64>, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status { url: Box::new(url.clone()), status: response.status().as_u16() });
    }
    let headers = response.headers();
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(FetchError::Encoding { url: Box::new(url.clone()) });
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > limit) {
        return Err(FetchError::TooLarge { url: Box::new(url.clone()), limit });
    }
    Ok(length)
}
