//! One client connection, from its first byte on.

use super::ProxyState;
use super::client::Client;
use super::error_response::ErrorResponse;
use super::forward::{self, PlainError, PlainRequest};
use super::gate::{EgressRequest, RequestDetails};
use super::head::{self, HEAD_LIMIT, Head, HeadFault};
use super::refusal::{ProxyRefusal, RefusedTarget};
use super::respond::AfterResponse;
use super::socks::{self, AuthOffer, SocksFault, SocksReply, SocksRequest};
use super::tunnel::{self, TunnelProtocol};
use belljar_contract::{Destination, EgressRefusal, EgressWay};
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(super) async fn serve(shared: &ProxyState, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = Client::new(stream);
    match timeout(shared.limits.head, client.fill()).await {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(_)) if client.buffer.first() == Some(&socks::VERSION) => socks(shared, client).await,
        Ok(Ok(_)) => http(shared, client).await,
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => client.reject(&timed_out(), "").await,
    }
}

fn timed_out() -> ErrorResponse {
    ErrorResponse::new("408 Request Timeout", "belljar: the request was not received in time.\n")
}

/// Why no request head could be read.
enum NoHead {
    Ended,
    TimedOut,
    Invalid(HeadFault, Vec<u8>),
    Failed(io::Error),
}

/// Reads the next request head.
async fn next_head(client: &mut Client) -> Result<Head, NoHead> {
    let mut searched = 0;
    loop {
        if let Some(end) = head::end_of_head(&client.buffer, searched) {
            let bytes: Vec<u8> = client.buffer.drain(..end).collect();
            return head::parse(&bytes).map_err(|fault| NoHead::Invalid(fault, bytes));
        }
        if client.buffer.len() > HEAD_LIMIT {
            return Err(NoHead::Invalid(HeadFault::Large, std::mem::take(&mut client.buffer)));
        }
        // Lines that end in a bare line feed never form the empty line that ends a head.
        if client.buffer[searched.saturating_sub(1)..].windows(2).any(|pair| pair == b"\n\n") {
            return Err(NoHead::Invalid(HeadFault::LineEnd, std::mem::take(&mut client.buffer)));
        }
        searched = client.buffer.len();
        match client.fill().await {
            Ok(0) => return Err(NoHead::Ended),
            Ok(_) => {}
            Err(error) => return Err(NoHead::Failed(error)),
        }
    }
}

async fn http(shared: &ProxyState, mut client: Client) -> io::Result<()> {
    let mut kept = None;
    loop {
        let head = match timeout(shared.limits.head, next_head(&mut client))
            .await
            .unwrap_or(Err(NoHead::TimedOut))
        {
            Ok(head) => head,
            Err(NoHead::Ended) => return Ok(()),
            Err(NoHead::Failed(error)) => return Err(error),
            Err(NoHead::TimedOut) => return client.reject(&timed_out(), "").await,
            Err(NoHead::Invalid(fault, bytes)) => {
                let answer = malformed(shared, &bytes, fault);
                return client.reject(&answer, "").await;
            }
        };
        if head.method == "CONNECT" {
            return match connect_target(shared, &head) {
                Ok(destination) => tunnel::open(shared, client, destination, TunnelProtocol::Connect).await,
                Err(answer) => client.reject(&answer, "CONNECT").await,
            };
        }
        let plain = match plain(shared, &head) {
            Ok(plain) => plain,
            Err(answer) => return client.reject(&answer, &head.method).await,
        };
        match forward::serve(shared, &mut client, &mut kept, &head, plain).await {
            Ok(AfterResponse::KeepAlive) => {}
            Ok(AfterResponse::Close) => return client.leave().await,
            Ok(AfterResponse::Reset) => return client.stream.set_zero_linger(),
            Err(answer) => return client.reject(&answer, &head.method).await,
        }
        let waited = async { if client.buffer.is_empty() { client.fill().await } else { Ok(1) } };
        match timeout(shared.limits.idle_keep_alive, waited).await {
            Ok(Ok(0)) | Err(_) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Logs a refusal and builds the response to it.
fn refused(shared: &ProxyState, refusal: ProxyRefusal, details: RequestDetails) -> ErrorResponse {
    ErrorResponse::for_rejection(&shared.gate.refused(refusal, details), &shared.gate.agent)
}

fn malformed(shared: &ProxyState, bytes: &[u8], fault: HeadFault) -> ErrorResponse {
    let first_line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let way = if first_line.starts_with(b"CONNECT") { EgressWay::Connect } else { EgressWay::Http };
    let reason = EgressRefusal::Malformed { what: fault.to_string() };
    let refusal =
        ProxyRefusal { way, target: RefusedTarget::other(first_line), address: None, rule: None, reason };
    let mut answer = refused(shared, refusal, RequestDetails::default());
    if fault == HeadFault::Large {
        answer.status = "431 Request Header Fields Too Large";
    }
    answer
}

/// The response to a head that could be parsed but is invalid.
fn invalid_head(shared: &ProxyState, head: &Head, what: String) -> ErrorResponse {
    let way = if head.method == "CONNECT" { EgressWay::Connect } else { EgressWay::Http };
    let target = RefusedTarget::other(head.target.as_bytes());
    let refusal =
        ProxyRefusal { way, target, address: None, rule: None, reason: EgressRefusal::Malformed { what } };
    let method = Some(head.method.clone());
    refused(shared, refusal, RequestDetails { method, ..RequestDetails::default() })
}

fn no_token(shared: &ProxyState, way: EgressWay, target: RefusedTarget) -> ErrorResponse {
    let refusal = ProxyRefusal { way, target, address: None, rule: None, reason: EgressRefusal::Token };
    refused(shared, refusal, RequestDetails::default())
}

/// The destination of a CONNECT request, before it is decided on.
fn connect_target(shared: &ProxyState, head: &Head) -> Result<Destination, ErrorResponse> {
    if !shared.token.is_in(head) {
        return Err(no_token(shared, EgressWay::Connect, RefusedTarget::other(head.target.as_bytes())));
    }
    let destination = Destination::parse_authority(head.target.as_bytes())
        .map_err(|error| invalid_head(shared, head, error.to_string()))?;
    let framing = head.framing().map_err(|fault| invalid_head(shared, head, fault.to_string()))?;
    if !matches!(framing, head::Framing::Nothing | head::Framing::Length(0)) {
        return Err(invalid_head(shared, head, "a CONNECT request must not have a body".to_owned()));
    }
    match head.host_is(&destination, destination.port) {
        Ok(true) => Ok(destination),
        Ok(false) => {
            let request = EgressRequest {
                way: EgressWay::Connect,
                destination,
                method: None,
                path: None,
                overridden: None,
            };
            let rejection = shared.gate.refuse(&request, None, None, EgressRefusal::HostMismatch);
            Err(ErrorResponse::for_rejection(&rejection, &shared.gate.agent))
        }
        Err(fault) => Err(invalid_head(shared, head, fault.to_string())),
    }
}

/// Checks a plain request before it is decided on.
fn plain(shared: &ProxyState, head: &Head) -> Result<PlainRequest, ErrorResponse> {
    if !shared.token.is_in(head) {
        return Err(no_token(shared, EgressWay::Http, RefusedTarget::other(head.target.as_bytes())));
    }
    PlainRequest::of(head).map_err(|not| match not {
        PlainError::Fault(fault) => invalid_head(shared, head, fault.to_string()),
        PlainError::Refused(request, reason) => ErrorResponse::for_rejection(
            &shared.gate.refuse(&request, None, None, reason),
            &shared.gate.agent,
        ),
    })
}

/// The outcome of the SOCKS messages before a tunnel.
enum SocksOutcome {
    Request(SocksRequest),
    /// The connection is finished.
    Done,
}

async fn socks(shared: &ProxyState, mut client: Client) -> io::Result<()> {
    let request = match timeout(shared.limits.head, negotiate(shared, &mut client)).await {
        Ok(Ok(SocksOutcome::Request(request))) => request,
        Ok(Ok(SocksOutcome::Done)) | Err(_) => return client.leave().await,
        Ok(Err(error)) => return Err(error),
    };
    let (reply, refusal) = match request {
        SocksRequest::Connect(destination) => {
            return tunnel::open(shared, client, destination, TunnelProtocol::Socks).await;
        }
        SocksRequest::Invalid(text) => (SocksReply::NotAllowed, (text, "the destination is invalid")),
        SocksRequest::UnsupportedCommand => {
            (SocksReply::CommandUnknown, (String::new(), "the only supported SOCKS command is CONNECT"))
        }
        SocksRequest::UnknownAddressType => {
            (SocksReply::AddressUnknown, (String::new(), "the address type is unknown"))
        }
    };
    let (text, what) = refusal;
    malformed_socks(shared, text, what);
    client.stream.write_all(&reply.bytes()).await?;
    client.leave().await
}

fn malformed_socks(shared: &ProxyState, target: String, what: &str) {
    let reason = EgressRefusal::Malformed { what: what.to_owned() };
    let refusal = ProxyRefusal {
        way: EgressWay::Socks,
        target: RefusedTarget::Other(target),
        address: None,
        rule: None,
        reason,
    };
    refused(shared, refusal, RequestDetails::default());
}

/// Authenticates a SOCKS client and reads its request.
async fn negotiate(shared: &ProxyState, client: &mut Client) -> io::Result<SocksOutcome> {
    let fault = |SocksFault| {
        malformed_socks(shared, String::new(), "this is not SOCKS 5");
        SocksOutcome::Done
    };
    match client.message(socks::read_greeting).await? {
        None => return Ok(SocksOutcome::Done),
        Some(Err(error)) => return Ok(fault(error)),
        Some(Ok(AuthOffer::Password)) => client.stream.write_all(&socks::USE_PASSWORD).await?,
        Some(Ok(AuthOffer::Nothing)) => {
            no_token(shared, EgressWay::Socks, RefusedTarget::Other(String::new()));
            client.stream.write_all(&socks::NO_ACCEPTABLE_METHOD).await?;
            return Ok(SocksOutcome::Done);
        }
    }
    match client.message(socks::read_password).await? {
        None => return Ok(SocksOutcome::Done),
        Some(Err(error)) => return Ok(fault(error)),
        Some(Ok((user, password))) if shared.token.is(&user, &password) => {
            client.stream.write_all(&socks::AUTHENTICATED).await?;
        }
        Some(Ok(_)) => {
            no_token(shared, EgressWay::Socks, RefusedTarget::Other(String::new()));
            client.stream.write_all(&socks::AUTHENTICATION_FAILED).await?;
            return Ok(SocksOutcome::Done);
        }
    }
    match client.message(socks::read_request).await? {
        None => Ok(SocksOutcome::Done),
        Some(Err(error)) => Ok(fault(error)),
        Some(Ok(request)) => Ok(SocksOutcome::Request(request)),
    }
}
