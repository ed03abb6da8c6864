//! A tunnel, from the wish for one to its end.

use super::Shared;
use super::answer::{Answer, ESTABLISHED};
use super::client::Client;
use super::copy;
use super::gate::{Ask, Circumstances, Passage, Stop};
use super::intercept::{InterceptedRequest, RequestSink, Tunnel};
use super::opening::{NoOpening, Opening, Shy, look};
use super::refusal::{Asked, Refusal};
use super::socks::Reply;
use crate::log::EgressLog;
use crate::resolve::dial;
use belljar_contract::{Destination, EgressDecision, EgressRefusal, EgressVerdict, EgressWay, Host, Port};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How the client asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Connect,
    Socks,
    /// It did not ask: it connected to a door.
    Door,
}

impl Dialect {
    fn way(self) -> EgressWay {
        match self {
            Self::Connect => EgressWay::Connect,
            Self::Socks => EgressWay::Socks,
            Self::Door => EgressWay::Door,
        }
    }

    async fn grant(self, client: &mut Client) -> io::Result<()> {
        match self {
            Self::Connect => client.stream.write_all(ESTABLISHED).await,
            Self::Socks => client.stream.write_all(&Reply::Granted.bytes()).await,
            Self::Door => Ok(()),
        }
    }

    async fn send_away(self, mut client: Client, answer: &Answer, reply: Reply) -> io::Result<()> {
        match self {
            Self::Connect => client.send_away(answer, "CONNECT").await,
            Self::Socks => {
                client.stream.write_all(&reply.bytes()).await?;
                client.leave().await
            }
            // There is no language to say it in; a reset is not mistaken for an answer.
            Self::Door => client.stream.set_zero_linger(),
        }
    }
}

/// Serves the wish for a tunnel to its end. The client has shown the token.
pub(super) async fn open(
    shared: &Shared,
    mut client: Client,
    destination: Destination,
    dialect: Dialect,
) -> io::Result<()> {
    let ask = Ask { way: dialect.way(), destination, method: None, path: None, meant: None };
    let mut passage = match shared.gate.pass(ask).await {
        Ok(passage) => passage,
        Err(stop) => return refuse(shared, client, &stop, dialect).await,
    };
    if let Some(intercept) = shared.intercept.as_ref().filter(|one| one.wants(&passage.destination)) {
        dialect.grant(&mut client).await?;
        let ended = intercepted(shared, client, &mut passage, dialect, intercept.as_ref()).await;
        passage.watch.failure = ended.err().or(passage.watch.failure.take());
        return Ok(());
    }
    let upstream = match dial(&passage.addresses, shared.limits.dial).await {
        Ok((upstream, address)) => {
            passage.watch.address = Some(address);
            upstream
        }
        Err(error) => {
            passage.watch.failure = Some(format!("cannot connect: {error}"));
            let answer = unreachable(&passage.destination, &error);
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            let reply = if refused { Reply::Refused } else { Reply::Unreachable };
            drop(passage);
            return dialect.send_away(client, &answer, reply).await;
        }
    };
    dialect.grant(&mut client).await?;
    let ended = moved(shared, &mut client, upstream, &passage, dialect).await;
    passage.watch.failure = ended.err();
    Ok(())
}

/// What a client is told about a host that does not answer.
pub(super) fn unreachable(destination: &Destination, error: &io::Error) -> Answer {
    let status = match error.kind() {
        io::ErrorKind::TimedOut => "504 Gateway Timeout",
        _ => "502 Bad Gateway",
    };
    Answer::new(status, format!("belljar: {destination} is allowed, and cannot be connected to: {error}.\n"))
}

async fn refuse(shared: &Shared, client: Client, stop: &Stop, dialect: Dialect) -> io::Result<()> {
    let reply = match stop {
        Stop::Refused(refusal) if refusal.reason == EgressRefusal::Unresolved => Reply::Unreachable,
        Stop::Refused(_) => Reply::NotAllowed,
        Stop::Unlogged(_) => Reply::Failed,
    };
    dialect.send_away(client, &Answer::to(stop, &shared.gate.agent), reply).await
}

fn opening<'d>(shared: &Shared, destination: &'d Destination, ends_here: bool) -> Opening<'d> {
    match &destination.host {
        Host::Address(_) => Opening::Free,
        Host::Name(_) if shared.raw.contains(destination) => Opening::Free,
        Host::Name(name) if ends_here || destination.port == Port::HTTPS => Opening::Tls(name),
        Host::Name(name) => Opening::TlsOrElse(name),
    }
}

/// Writes down that a tunnel which was allowed did not begin as it has to.
fn not_opened(shared: &Shared, passage: &Passage, dialect: Dialect, why: NoOpening) -> Result<(), String> {
    match why {
        NoOpening::Refused(reason) => {
            let asked = Asked::Destination(passage.destination.clone());
            let refusal = Refusal { way: dialect.way(), asked, address: None, rule: None, reason };
            let within = Some(passage.watch.seq);
            match shared.gate.refused(refusal, Circumstances { within, ..Circumstances::default() }) {
                Stop::Refused(refusal) => Err(refusal.sentence()),
                Stop::Unlogged(error) => Err(error.to_string()),
            }
        }
        NoOpening::Ended => Ok(()),
        NoOpening::Failed(error) => Err(format!("the client broke off: {error}")),
    }
}

/// Moves the bytes of a tunnel.
async fn moved(
    shared: &Shared,
    client: &mut Client,
    upstream: TcpStream,
    passage: &Passage,
    dialect: Dialect,
) -> Result<(), String> {
    let Client { stream, buffer } = client;
    let opening = opening(shared, &passage.destination, false);
    let moved = &passage.watch.moved;
    let within = shared.limits.head;
    // Whatever the client waits for, it must not wait for ever.
    let idle = shared.limits.idle_tunnel;
    if let Opening::Tls(_) = opening {
        let looking = timeout(idle, look(stream, buffer, opening, within));
        match looking.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return not_opened(shared, passage, dialect, why),
            Err(_elapsed) => return Err("nothing was sent for too long".to_owned()),
        }
    }
    let stream = &*stream;
    let outward = async {
        if let Opening::TlsOrElse(_) = opening {
            match look(&mut Shy(stream), buffer, opening, within).await {
                // A client that says nothing may still want to listen.
                Ok(()) | Err(NoOpening::Ended) => {}
                Err(why) => return Err(why),
            }
        }
        let first = std::mem::take(buffer);
        copy::write_all(&upstream, &first, &moved.sent).await.map_err(NoOpening::Failed)?;
        drop(first);
        copy::one_way(stream, &upstream, &moved.sent).await.map_err(NoOpening::Failed)
    };
    let inward = async { copy::one_way(&upstream, stream, &moved.received).await.map_err(NoOpening::Failed) };
    let ended = tokio::select! {
        ended = async { tokio::try_join!(outward, inward) } => ended.map(|_| ()),
        () = moved.quiet(idle) => Err(NoOpening::Failed(io::ErrorKind::TimedOut.into())),
    };
    match ended {
        Ok(()) | Err(NoOpening::Ended) => Ok(()),
        Err(NoOpening::Failed(error)) => {
            // A tunnel that broke must not look to either side as one that ended.
            stream.set_zero_linger().ok();
            upstream.set_zero_linger().ok();
            Err(error.to_string())
        }
        Err(why @ NoOpening::Refused(_)) => not_opened(shared, passage, dialect, why),
    }
}

/// Hands a tunnel over to whoever ends its TLS.
async fn intercepted(
    shared: &Shared,
    mut client: Client,
    passage: &mut Passage,
    dialect: Dialect,
    intercept: &dyn super::intercept::Intercept,
) -> Result<(), String> {
    let opening = opening(shared, &passage.destination, true);
    let Client { stream, buffer } = &mut client;
    match timeout(shared.limits.idle_tunnel, look(stream, buffer, opening, shared.limits.head)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return not_opened(shared, passage, dialect, why),
        Err(_elapsed) => return Err("nothing was sent for too long".to_owned()),
    }
    let Some(address) = passage.addresses.first().copied() else { return Err("no address".to_owned()) };
    passage.watch.address = Some(address);
    let Client { stream, buffer } = client;
    let (reader, writer) = stream.into_split();
    let log = TunnelLog {
        log: Arc::clone(&shared.gate.log),
        destination: passage.destination.to_string(),
        within: passage.watch.seq,
    };
    let ended = intercept.serve(Tunnel {
        client: Box::new(tokio::io::join(io::Cursor::new(buffer).chain(reader), writer)),
        destination: passage.destination.clone(),
        address,
        rule: passage.rule.clone(),
        log: Arc::new(log),
    });
    let ended = ended.await;
    passage.watch.moved.sent.store(ended.sent, Ordering::Relaxed);
    passage.watch.moved.received.store(ended.received, Ordering::Relaxed);
    ended.failure.map_or(Ok(()), Err)
}

/// Takes down the requests inside one tunnel.
struct TunnelLog {
    log: Arc<EgressLog>,
    destination: String,
    within: u64,
}

impl RequestSink for TunnelLog {
    fn decided(&self, request: &InterceptedRequest) -> io::Result<()> {
        let InterceptedRequest { method, path, rule, allowed, reason, credential } = request.clone();
        let verdict = if allowed {
            EgressVerdict::Allowed
        } else {
            let what = reason.unwrap_or_else(|| "refused".to_owned());
            EgressVerdict::Denied { reason: EgressRefusal::Request { what } }
        };
        let decision = EgressDecision {
            way: EgressWay::Intercepted,
            destination: self.destination.clone(),
            addresses: Vec::new(),
            rule,
            verdict,
            method: Some(method),
            path: Some(path),
            credential,
            within: Some(self.within),
        };
        self.log.decide(decision).map(|_seq| ()).map_err(io::Error::other)
    }
}
