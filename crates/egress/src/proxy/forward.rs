//! Plain HTTP: one request at a time, to the host that it names and no other.
//!
//! A connection to a host is kept for the client's next request to that host. Clients do not share connections.

use super::ProxyState;
use super::body::RequestBody;
use super::client::{Client, fill};
use super::error_response::ErrorResponse;
use super::gate::{ByteCounts, EgressRequest, FinishGuard, Permit, Rejection};
use super::head::{Framing, Head, HeadFault};
use super::host_connection::{ForwardedBody, HostConnection, Unsent};
use super::respond::{AfterResponse, HOP_BY_HOP, ResponseError, send_response};
use super::tunnel::unreachable;
use crate::overrides;
use crate::resolve::dial;
use belljar_contract::{Destination, EgressRefusal, EgressWay, Port};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response};
use std::io;
use std::sync::atomic::Ordering;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::ReadHalf;
use tokio::sync::mpsc;

/// A request whose form is valid.
pub(super) struct PlainRequest {
    pub request: EgressRequest,
    pub path: String,
    pub framing: Framing,
}

/// Why a request is refused before the policy is asked.
pub(super) enum PlainError {
    Fault(HeadFault),
    Refused(Box<EgressRequest>, EgressRefusal),
}

impl From<HeadFault> for PlainError {
    fn from(fault: HeadFault) -> Self {
        Self::Fault(fault)
    }
}

impl PlainRequest {
    /// Checks a head that is not CONNECT.
    pub fn of(head: &Head) -> Result<Self, PlainError> {
        let (authority, path) = head.absolute()?;
        let framing = head.framing()?;
        let destination = Destination::parse_with_default(authority.as_bytes(), Port::HTTP)
            .map_err(|_error| HeadFault::Target)?;
        let is_host = head.host_is(&destination, Port::HTTP)?;
        let without_query = path.split('?').next().unwrap_or_default().to_owned();
        let method = Some(head.method.clone());
        let headers = head.headers.iter().map(|(name, _)| name.as_str());
        let overridden = overrides::find(headers, path.split_once('?').map(|(_, query)| query));
        let request = EgressRequest {
            way: EgressWay::Http,
            destination,
            method,
            path: Some(without_query),
            overridden,
        };
        if !is_host {
            return Err(PlainError::Refused(Box::new(request), EgressRefusal::HostMismatch));
        }
        if head.wants_upgrade() {
            return Err(PlainError::Refused(Box::new(request), EgressRefusal::Upgrade));
        }
        Ok(Self { request, path, framing })
    }
}

/// Serves one request. `kept` is the host connection of the previous request.
pub(super) async fn serve(
    shared: &ProxyState,
    client: &mut Client,
    kept: &mut Option<HostConnection>,
    head: &Head,
    plain: PlainRequest,
) -> Result<AfterResponse, ErrorResponse> {
    let PlainRequest { request, path, framing } = plain;
    let refused = |rejection: Rejection| ErrorResponse::for_rejection(&rejection, &shared.gate.agent);
    let reusable = match kept.take().filter(|upstream| upstream.destination == request.destination) {
        Some(mut upstream) => upstream.is_ready().await.then_some(upstream),
        None => None,
    };
    let (mut permit, upstream) = match reusable {
        Some(upstream) => (shared.gate.decide_again(request, upstream.address).map_err(refused)?, upstream),
        None => {
            let mut permit = shared.gate.decide(request).await.map_err(refused)?;
            let upstream = connect(shared, &mut permit).await?;
            (permit, upstream)
        }
    };
    permit.finish.address = Some(upstream.address);
    let head_size = head.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
    permit.finish.bytes.sent.fetch_add((head_size + path.len()) as u64, Ordering::Relaxed);
    let exchange = Exchange { head, path: &path, framing, permit: &mut permit };
    exchange.run(shared, client, kept, upstream).await
}

async fn connect(shared: &ProxyState, permit: &mut Permit) -> Result<HostConnection, ErrorResponse> {
    let connecting = async {
        let (stream, address) = dial(&permit.addresses, shared.limits.dial).await?;
        HostConnection::new(stream, permit.destination.clone(), address).await
    };
    connecting.await.map_err(|error| {
        permit.finish.failure = Some(format!("cannot connect: {error}"));
        unreachable(&permit.destination, &error)
    })
}

struct Exchange<'e> {
    head: &'e Head,
    path: &'e str,
    framing: Framing,
    permit: &'e mut Permit,
}

impl Exchange<'_> {
    async fn run(
        self,
        shared: &ProxyState,
        client: &mut Client,
        kept: &mut Option<HostConnection>,
        mut upstream: HostConnection,
    ) -> Result<AfterResponse, ErrorResponse> {
        let Self { head, path, framing, permit } = self;
        let Client { stream, buffer } = client;
        let (mut reader, mut writer) = stream.split();
        let mut body = RequestBody::new(framing);
        let waits = !body.is_done()
            && buffer.is_empty()
            && head.tokens("expect").iter().any(|token| token == "100-continue");
        if waits && writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
            return Ok(AfterResponse::Reset);
        }
        let (outgoing, feed) = ForwardedBody::new(framing);
        let request = request(head, path, &permit.destination, outgoing)?;
        let FinishGuard { bytes: moved, failure, .. } = &mut permit.finish;
        let feeding = send_body(&mut reader, buffer, &mut body, feed, moved);
        let answering = async {
            let idle = shared.limits.idle_tunnel;
            let response = tokio::select! {
                response = send(shared, &mut upstream, request) => response.map_err(ResponseError::Missing)?,
                () = moved.idle_for(idle) => return Err(ResponseError::Missing("no response for too long".to_owned())),
            };
            tokio::select! {
                sent = send_response(&mut writer, head, response, moved) => sent,
                () = moved.idle_for(idle) => Err(ResponseError::Interrupted("no data for too long".to_owned())),
            }
        };
        let (fed, answered) = until_answered(feeding, answering).await;
        let complete = body.is_done() && fed.is_none_or(|fed| fed.is_ok());
        match answered {
            Ok(AfterResponse::KeepAlive) if complete => {
                *kept = Some(upstream);
                Ok(AfterResponse::KeepAlive)
            }
            Ok(AfterResponse::KeepAlive | AfterResponse::Close) => Ok(AfterResponse::Close),
            Ok(AfterResponse::Reset) => Ok(AfterResponse::Reset),
            Err(ResponseError::Missing(why)) => {
                *failure = Some(why.clone());
                let text =
                    format!("belljar: {} is allowed, but did not respond: {why}.\n", permit.destination);
                Err(ErrorResponse::new("502 Bad Gateway", text))
            }
            Err(ResponseError::Interrupted(why)) => {
                *failure = Some(why);
                Ok(AfterResponse::Reset)
            }
        }
    }
}

/// Sends a request. The host may have closed a kept connection; then one new connection is made, to the same address.
async fn send(
    shared: &ProxyState,
    upstream: &mut HostConnection,
    request: Request<ForwardedBody>,
) -> Result<Response<Incoming>, String> {
    let request = match upstream.send(request).await {
        Ok(response) => return Ok(response),
        Err(Unsent::Lost(error)) => return Err(error.to_string()),
        Err(Unsent::Whole(request)) => request,
    };
    let again = async {
        let (stream, address) = dial(&[upstream.address], shared.limits.dial).await?;
        HostConnection::new(stream, upstream.destination.clone(), address).await
    };
    *upstream = again.await.map_err(|error| format!("cannot connect: {error}"))?;
    upstream.send(*request).await.map_err(|unsent| match unsent {
        Unsent::Lost(error) => error.to_string(),
        Unsent::Whole(_) => "the connection was closed".to_owned(),
    })
}

/// Sends the body while waiting for the response and relaying it; both end with the response.
async fn until_answered<F, A>(
    feeding: impl Future<Output = F>,
    answering: impl Future<Output = A>,
) -> (Option<F>, A) {
    tokio::pin!(feeding, answering);
    tokio::select! {
        fed = &mut feeding => (Some(fed), answering.await),
        answered = &mut answering => (None, answered),
    }
}

/// Builds the request for the host.
fn request(
    head: &Head,
    path: &str,
    destination: &Destination,
    body: ForwardedBody,
) -> Result<Request<ForwardedBody>, ErrorResponse> {
    let bad = || ErrorResponse::new("400 Bad Request", "belljar: the request is malformed.\n");
    let host =
        if destination.port == Port::HTTP { destination.host.to_string() } else { destination.to_string() };
    let mut request = Request::builder().method(head.method.as_str()).uri(path).header("host", host);
    let named = head.tokens("connection");
    for (name, value) in &head.headers {
        let ours = name == "host" || HOP_BY_HOP.contains(&name.as_str());
        if ours || named.contains(name) && name != "content-length" {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_error| bad())?;
        request = request.header(name, HeaderValue::from_bytes(value).map_err(|_error| bad())?);
    }
    request.body(body).map_err(|_error| bad())
}

/// Forwards the client's body.
async fn send_body(
    reader: &mut ReadHalf<'_>,
    buffer: &mut Vec<u8>,
    body: &mut RequestBody,
    feed: mpsc::Sender<io::Result<Bytes>>,
    moved: &ByteCounts,
) -> io::Result<()> {
    while !body.is_done() {
        if buffer.is_empty() && fill(reader, buffer).await? == 0 {
            // The host must see that the body is incomplete.
            feed.send(Err(io::ErrorKind::UnexpectedEof.into())).await.ok();
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = match body.take(buffer) {
            Ok(taken) => taken,
            Err(fault) => {
                feed.send(Err(io::Error::other(fault))).await.ok();
                return Err(io::Error::other(fault));
            }
        };
        let content = Bytes::copy_from_slice(&buffer[taken.content]);
        buffer.drain(..taken.used);
        if content.is_empty() {
            continue;
        }
        moved.sent.fetch_add(content.len() as u64, Ordering::Relaxed);
        if feed.send(Ok(content)).await.is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}
