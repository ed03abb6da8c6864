//! A tunnel, from the client's request for it to its end.

use super::ProxyState;
use super::client::Client;
use super::copy;
use super::error_response::{ESTABLISHED, ErrorResponse};
use super::first_bytes::{FirstBytes, NotStarted, SharedReader, check};
use super::gate::{EgressRequest, Permit, Rejection, RequestDetails};
use super::intercept::{InterceptedRequest, RequestSink, Tunnel};
use super::refusal::{ProxyRefusal, RefusedTarget};
use super::socks::SocksReply;
use crate::log::EgressLog;
use crate::resolve::dial;
use belljar_contract::{Destination, EgressDecision, EgressRefusal, EgressVerdict, EgressWay, Host, Port};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The protocol in which the client asked for the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TunnelProtocol {
    Connect,
    Socks,
    /// The client used no proxy protocol: it connected to a synthetic address.
    Transparent,
}

impl TunnelProtocol {
    fn way(self) -> EgressWay {
        match self {
            Self::Connect => EgressWay::Connect,
            Self::Socks => EgressWay::Socks,
            Self::Transparent => EgressWay::Transparent,
        }
    }

    async fn accept(self, client: &mut Client) -> io::Result<()> {
        match self {
            Self::Connect => client.stream.write_all(ESTABLISHED).await,
            Self::Socks => client.stream.write_all(&SocksReply::Granted.bytes()).await,
            Self::Transparent => Ok(()),
        }
    }

    async fn reject(self, mut client: Client, response: &ErrorResponse, reply: SocksReply) -> io::Result<()> {
        match self {
            Self::Connect => client.reject(response, "CONNECT").await,
            Self::Socks => {
                client.stream.write_all(&reply.bytes()).await?;
                client.leave().await
            }
            // No protocol could carry an error message here, and a reset cannot be mistaken for a response.
            Self::Transparent => client.stream.set_zero_linger(),
        }
    }
}

/// Serves a request for a tunnel to its end. The client has sent the token.
pub(super) async fn open(
    shared: &ProxyState,
    mut client: Client,
    destination: Destination,
    protocol: TunnelProtocol,
) -> io::Result<()> {
    let request =
        EgressRequest { way: protocol.way(), destination, method: None, path: None, overridden: None };
    let mut permit = match shared.gate.decide(request).await {
        Ok(permit) => permit,
        Err(rejection) => return refuse(shared, client, &rejection, protocol).await,
    };
    if let Some(intercept) = shared.intercept.as_ref().filter(|one| one.wants(&permit.destination)) {
        protocol.accept(&mut client).await?;
        let ended = hand_over(shared, client, &mut permit, protocol, intercept.as_ref()).await;
        permit.finish.failure = ended.err().or(permit.finish.failure.take());
        return Ok(());
    }
    let upstream = match dial(&permit.addresses, shared.limits.dial).await {
        Ok((upstream, address)) => {
            permit.finish.address = Some(address);
            upstream
        }
        Err(error) => {
            permit.finish.failure = Some(format!("cannot connect: {error}"));
            let response = unreachable(&permit.destination, &error);
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            let reply = if refused { SocksReply::Refused } else { SocksReply::Unreachable };
            drop(permit);
            return protocol.reject(client, &response, reply).await;
        }
    };
    protocol.accept(&mut client).await?;
    let ended = relay(shared, &mut client, upstream, &permit, protocol).await;
    permit.finish.failure = ended.err();
    Ok(())
}

/// The response for a host that cannot be connected to.
pub(super) fn unreachable(destination: &Destination, error: &io::Error) -> ErrorResponse {
    let is_late = error.kind() == io::ErrorKind::TimedOut;
    let status = if is_late { "504 Gateway Timeout" } else { "502 Bad Gateway" };
    ErrorResponse::new(
        status,
        format!("belljar: {destination} is allowed, but the connection failed: {error}.\n"),
    )
}

async fn refuse(
    shared: &ProxyState,
    client: Client,
    rejection: &Rejection,
    protocol: TunnelProtocol,
) -> io::Result<()> {
    let reply = match rejection {
        Rejection::Refused(refusal) if refusal.reason == EgressRefusal::Unresolved => SocksReply::Unreachable,
        Rejection::Refused(_) => SocksReply::NotAllowed,
        Rejection::Unlogged(_) => SocksReply::Failed,
    };
    protocol.reject(client, &ErrorResponse::for_rejection(rejection, &shared.gate.agent), reply).await
}

fn required_start<'d>(
    shared: &ProxyState,
    destination: &'d Destination,
    intercepted: bool,
) -> FirstBytes<'d> {
    match &destination.host {
        Host::Address(_) => FirstBytes::Any,
        Host::Name(_) if shared.raw.contains(destination) => FirstBytes::Any,
        Host::Name(name) if intercepted || destination.port == Port::HTTPS => FirstBytes::Tls(name),
        Host::Name(name) => FirstBytes::TlsOrOther(name),
    }
}

/// Logs that an allowed tunnel did not start with the required bytes.
fn log_not_started(
    shared: &ProxyState,
    permit: &Permit,
    protocol: TunnelProtocol,
    why: NotStarted,
) -> Result<(), String> {
    match why {
        NotStarted::Refused(reason) => {
            let target = RefusedTarget::Destination(permit.destination.clone());
            let refusal = ProxyRefusal { way: protocol.way(), target, address: None, rule: None, reason };
            let within = Some(permit.finish.seq);
            match shared.gate.refused(refusal, RequestDetails { within, ..RequestDetails::default() }) {
                Rejection::Refused(refusal) => Err(refusal.sentence()),
                Rejection::Unlogged(error) => Err(error.to_string()),
            }
        }
        NotStarted::Ended => Ok(()),
        NotStarted::Failed(error) => Err(format!("the client's connection failed: {error}")),
    }
}

/// Copies the bytes of a tunnel in both directions.
async fn relay(
    shared: &ProxyState,
    client: &mut Client,
    upstream: TcpStream,
    permit: &Permit,
    protocol: TunnelProtocol,
) -> Result<(), String> {
    let Client { stream, buffer } = client;
    let start = required_start(shared, &permit.destination, false);
    let bytes = &permit.finish.bytes;
    let within = shared.limits.head;
    // No client may hold its place for ever, whatever it waits for.
    let idle = shared.limits.idle_tunnel;
    if let FirstBytes::Tls(_) = start {
        let checking = timeout(idle, check(stream, buffer, start, within));
        match checking.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return log_not_started(shared, permit, protocol, why),
            Err(_elapsed) => return Err("no data for too long".to_owned()),
        }
    }
    let stream = &*stream;
    let sending = async {
        if let FirstBytes::TlsOrOther(_) = start {
            match check(&mut SharedReader(stream), buffer, start, within).await {
                // A client that sends nothing may still want to read.
                Ok(()) | Err(NotStarted::Ended) => {}
                Err(why) => return Err(why),
            }
        }
        let first = std::mem::take(buffer);
        copy::write_all(&upstream, &first, &bytes.sent).await.map_err(NotStarted::Failed)?;
        drop(first);
        copy::one_way(stream, &upstream, &bytes.sent).await.map_err(NotStarted::Failed)
    };
    let receiving =
        async { copy::one_way(&upstream, stream, &bytes.received).await.map_err(NotStarted::Failed) };
    let ended = tokio::select! {
        ended = async { tokio::try_join!(sending, receiving) } => ended.map(|_| ()),
        () = bytes.idle_for(idle) => Err(NotStarted::Failed(io::ErrorKind::TimedOut.into())),
    };
    match ended {
        Ok(()) | Err(NotStarted::Ended) => Ok(()),
        Err(NotStarted::Failed(error)) => {
            // A reset tells both sides that the tunnel broke instead of ending in order.
            stream.set_zero_linger().ok();
            upstream.set_zero_linger().ok();
            Err(error.to_string())
        }
        Err(why @ NotStarted::Refused(_)) => log_not_started(shared, permit, protocol, why),
    }
}

/// Hands a tunnel over to TLS interception.
async fn hand_over(
    shared: &ProxyState,
    mut client: Client,
    permit: &mut Permit,
    protocol: TunnelProtocol,
    intercept: &dyn super::intercept::Intercept,
) -> Result<(), String> {
    let start = required_start(shared, &permit.destination, true);
    let Client { stream, buffer } = &mut client;
    match timeout(shared.limits.idle_tunnel, check(stream, buffer, start, shared.limits.head)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return log_not_started(shared, permit, protocol, why),
        Err(_elapsed) => return Err("no data for too long".to_owned()),
    }
    let Some(address) = permit.addresses.first().copied() else { return Err("no address".to_owned()) };
    permit.finish.address = Some(address);
    let Client { stream, buffer } = client;
    let (reader, writer) = stream.into_split();
    let log = TunnelLog {
        log: Arc::clone(&shared.gate.log),
        destination: permit.destination.to_string(),
        within: permit.finish.seq,
    };
    let ended = intercept.serve(Tunnel {
        client: Box::new(tokio::io::join(io::Cursor::new(buffer).chain(reader), writer)),
        destination: permit.destination.clone(),
        address,
        rule: permit.rule.clone(),
        log: Arc::new(log),
    });
    let ended = ended.await;
    permit.finish.bytes.sent.store(ended.sent, Ordering::Relaxed);
    permit.finish.bytes.received.store(ended.received, Ordering::Relaxed);
    ended.failure.map_or(Ok(()), Err)
}

/// Logs the requests inside one tunnel.
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
