//! Plain HTTP: one request at a time, to the host that it names and no other.
//!
//! The connection to a host is kept for the client's next request to it. It belongs to this client's connection alone.

use super::Shared;
use super::answer::Answer;
use super::body::Body;
use super::client::{Client, fill};
use super::gate::{Ask, Moved, Passage, Stop, Watch};
use super::head::{Framing, Head, HeadFault};
use super::respond::{Ending, HOP_BY_HOP, Then, send_response};
use super::tunnel::unreachable;
use super::upstream::{Outgoing, Unsent, Upstream};
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

/// A request that was read and is not refused for its form.
pub(super) struct Plain {
    pub ask: Ask,
    pub path: String,
    pub framing: Framing,
}

/// Why a request is not one that can be decided on.
pub(super) enum NotPlain {
    Fault(HeadFault),
    Refused(Box<Ask>, EgressRefusal),
}

impl From<HeadFault> for NotPlain {
    fn from(fault: HeadFault) -> Self {
        Self::Fault(fault)
    }
}

impl Plain {
    /// Looks at a head that is not CONNECT.
    pub fn of(head: &Head) -> Result<Self, NotPlain> {
        let (authority, path) = head.absolute()?;
        let framing = head.framing()?;
        let destination = Destination::parse_with_default(authority.as_bytes(), Port::HTTP)
            .map_err(|_error| HeadFault::Target)?;
        let is_host = head.host_is(&destination, Port::HTTP)?;
        let without_query = path.split('?').next().unwrap_or_default().to_owned();
        let method = Some(head.method.clone());
        let headers = head.headers.iter().map(|(name, _)| name.as_str());
        let meant = overrides::find(headers, path.split_once('?').map(|(_, query)| query));
        let ask = Ask { way: EgressWay::Http, destination, method, path: Some(without_query), meant };
        if !is_host {
            return Err(NotPlain::Refused(Box::new(ask), EgressRefusal::HostMismatch));
        }
        if head.wants_upgrade() {
            return Err(NotPlain::Refused(Box::new(ask), EgressRefusal::Upgrade));
        }
        Ok(Self { ask, path, framing })
    }
}

/// Serves one request. `kept` is the connection of the request before.
pub(super) async fn serve(
    shared: &Shared,
    client: &mut Client,
    kept: &mut Option<Upstream>,
    head: &Head,
    plain: Plain,
) -> Result<Then, Answer> {
    let Plain { ask, path, framing } = plain;
    let refused = |stop: Stop| Answer::to(&stop, &shared.gate.agent);
    let reusable = match kept.take().filter(|upstream| upstream.destination == ask.destination) {
        Some(mut upstream) => upstream.is_ready().await.then_some(upstream),
        None => None,
    };
    let (mut passage, upstream) = match reusable {
        Some(upstream) => (shared.gate.pass_again(ask, upstream.address).map_err(refused)?, upstream),
        None => {
            let mut passage = shared.gate.pass(ask).await.map_err(refused)?;
            let upstream = connect(shared, &mut passage).await?;
            (passage, upstream)
        }
    };
    passage.watch.address = Some(upstream.address);
    let head_size = head.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
    passage.watch.moved.sent.fetch_add((head_size + path.len()) as u64, Ordering::Relaxed);
    let exchange = Exchange { head, path: &path, framing, passage: &mut passage };
    exchange.run(shared, client, kept, upstream).await
}

async fn connect(shared: &Shared, passage: &mut Passage) -> Result<Upstream, Answer> {
    let connecting = async {
        let (stream, address) = dial(&passage.addresses, shared.limits.dial).await?;
        Upstream::new(stream, passage.destination.clone(), address).await
    };
    connecting.await.map_err(|error| {
        passage.watch.failure = Some(format!("cannot connect: {error}"));
        unreachable(&passage.destination, &error)
    })
}

struct Exchange<'e> {
    head: &'e Head,
    path: &'e str,
    framing: Framing,
    passage: &'e mut Passage,
}

impl Exchange<'_> {
    async fn run(
        self,
        shared: &Shared,
        client: &mut Client,
        kept: &mut Option<Upstream>,
        mut upstream: Upstream,
    ) -> Result<Then, Answer> {
        let Self { head, path, framing, passage } = self;
        let Client { stream, buffer } = client;
        let (mut reader, mut writer) = stream.split();
        let mut body = Body::new(framing);
        let waits = !body.is_done()
            && buffer.is_empty()
            && head.words("expect").iter().any(|word| word == "100-continue");
        if waits && writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
            return Ok(Then::Break);
        }
        let (outgoing, feed) = Outgoing::new(framing);
        let request = request(head, path, &passage.destination, outgoing)?;
        let Watch { moved, failure, .. } = &mut passage.watch;
        let feeding = send_body(&mut reader, buffer, &mut body, feed, moved);
        let answering = async {
            let idle = shared.limits.idle_tunnel;
            let response = tokio::select! {
                response = ask(shared, &mut upstream, request) => response.map_err(Ending::NoAnswer)?,
                () = moved.quiet(idle) => return Err(Ending::NoAnswer("nothing came for too long".to_owned())),
            };
            tokio::select! {
                sent = send_response(&mut writer, head, response, moved) => sent,
                () = moved.quiet(idle) => Err(Ending::Broken("nothing moved for too long".to_owned())),
            }
        };
        let (fed, answered) = until_answered(feeding, answering).await;
        let complete = body.is_done() && fed.is_none_or(|fed| fed.is_ok());
        match answered {
            Ok(Then::Next) if complete => {
                *kept = Some(upstream);
                Ok(Then::Next)
            }
            Ok(Then::Next | Then::Close) => Ok(Then::Close),
            Ok(Then::Break) => Ok(Then::Break),
            Err(Ending::NoAnswer(why)) => {
                *failure = Some(why.clone());
                let text =
                    format!("belljar: {} is allowed, and did not answer: {why}.\n", passage.destination);
                Err(Answer::new("502 Bad Gateway", text))
            }
            Err(Ending::Broken(why)) => {
                *failure = Some(why);
                Ok(Then::Break)
            }
        }
    }
}

/// Sends a request. A connection that was kept may have been ended by the host; then it is made again, once, to the same
/// address.
async fn ask(
    shared: &Shared,
    upstream: &mut Upstream,
    request: Request<Outgoing>,
) -> Result<Response<Incoming>, String> {
    let request = match upstream.send(request).await {
        Ok(response) => return Ok(response),
        Err(Unsent::Lost(error)) => return Err(error.to_string()),
        Err(Unsent::Whole(request)) => request,
    };
    let again = async {
        let (stream, address) = dial(&[upstream.address], shared.limits.dial).await?;
        Upstream::new(stream, upstream.destination.clone(), address).await
    };
    *upstream = again.await.map_err(|error| format!("cannot connect: {error}"))?;
    upstream.send(*request).await.map_err(|unsent| match unsent {
        Unsent::Lost(error) => error.to_string(),
        Unsent::Whole(_) => "the connection was closed".to_owned(),
    })
}

/// Sends the body while the answer is awaited and passed on; the answer's end ends both.
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

/// The request as it goes to its host.
fn request(
    head: &Head,
    path: &str,
    destination: &Destination,
    body: Outgoing,
) -> Result<Request<Outgoing>, Answer> {
    let bad = || Answer::new("400 Bad Request", "belljar: the request was not understood.\n");
    let host =
        if destination.port == Port::HTTP { destination.host.to_string() } else { destination.to_string() };
    let mut request = Request::builder().method(head.method.as_str()).uri(path).header("host", host);
    let named = head.words("connection");
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

/// Passes the client's body on.
async fn send_body(
    reader: &mut ReadHalf<'_>,
    buffer: &mut Vec<u8>,
    body: &mut Body,
    feed: mpsc::Sender<io::Result<Bytes>>,
    moved: &Moved,
) -> io::Result<()> {
    while !body.is_done() {
        if buffer.is_empty() && fill(reader, buffer).await? == 0 {
            // Whoever gets it must see that it is not whole.
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
