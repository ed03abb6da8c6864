//! One client's connection, from its first byte on.

use super::Shared;
use super::answer::Answer;
use super::client::Client;
use super::forward::{self, NotPlain, Plain};
use super::gate::{Ask, Circumstances};
use super::head::{self, HEAD_LIMIT, Head, HeadFault};
use super::refusal::{Asked, Refusal};
use super::respond::Then;
use super::socks::{self, Offer, Reply, SocksFault, Wish};
use super::tunnel::{self, Dialect};
use belljar_contract::{Destination, EgressRefusal, EgressWay};
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Serves a client to its end.
pub(super) async fn serve(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = Client::new(stream);
    match timeout(shared.limits.head, client.fill()).await {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(_)) if client.buffer.first() == Some(&socks::VERSION) => socks(shared, client).await,
        Ok(Ok(_)) => http(shared, client).await,
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => client.send_away(&late(), "").await,
    }
}

fn late() -> Answer {
    Answer::new("408 Request Timeout", "belljar: the request did not come in time.\n")
}

/// Why there is no head.
enum NoHead {
    Ended,
    Late,
    Fault(HeadFault, Vec<u8>),
    Failed(io::Error),
}

/// The next head.
async fn next_head(client: &mut Client) -> Result<Head, NoHead> {
    let mut searched = 0;
    loop {
        if let Some(end) = head::end_of_head(&client.buffer, searched) {
            let bytes: Vec<u8> = client.buffer.drain(..end).collect();
            return head::parse(&bytes).map_err(|fault| NoHead::Fault(fault, bytes));
        }
        if client.buffer.len() > HEAD_LIMIT {
            return Err(NoHead::Fault(HeadFault::Large, std::mem::take(&mut client.buffer)));
        }
        // With bare line feeds the end that is looked for never comes.
        if client.buffer[searched.saturating_sub(1)..].windows(2).any(|pair| pair == b"\n\n") {
            return Err(NoHead::Fault(HeadFault::LineEnd, std::mem::take(&mut client.buffer)));
        }
        searched = client.buffer.len();
        match client.fill().await {
            Ok(0) => return Err(NoHead::Ended),
            Ok(_) => {}
            Err(error) => return Err(NoHead::Failed(error)),
        }
    }
}

async fn http(shared: &Shared, mut client: Client) -> io::Result<()> {
    let mut kept = None;
    loop {
        let head =
            match timeout(shared.limits.head, next_head(&mut client)).await.unwrap_or(Err(NoHead::Late)) {
                Ok(head) => head,
                Err(NoHead::Ended) => return Ok(()),
                Err(NoHead::Failed(error)) => return Err(error),
                Err(NoHead::Late) => return client.send_away(&late(), "").await,
                Err(NoHead::Fault(fault, bytes)) => {
                    let answer = malformed(shared, &bytes, fault);
                    return client.send_away(&answer, "").await;
                }
            };
        if head.method == "CONNECT" {
            return match connect_target(shared, &head) {
                Ok(destination) => tunnel::open(shared, client, destination, Dialect::Connect).await,
                Err(answer) => client.send_away(&answer, "CONNECT").await,
            };
        }
        let plain = match plain(shared, &head) {
            Ok(plain) => plain,
            Err(answer) => return client.send_away(&answer, &head.method).await,
        };
        match forward::serve(shared, &mut client, &mut kept, &head, plain).await {
            Ok(Then::Next) => {}
            Ok(Then::Close) => return client.leave().await,
            Ok(Then::Break) => return client.stream.set_zero_linger(),
            Err(answer) => return client.send_away(&answer, &head.method).await,
        }
        let waited = async { if client.buffer.is_empty() { client.fill().await } else { Ok(1) } };
        match timeout(shared.limits.idle_keep_alive, waited).await {
            Ok(Ok(0)) | Err(_) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Writes a refusal down and makes the answer to it.
fn refused(shared: &Shared, refusal: Refusal, circumstances: Circumstances) -> Answer {
    Answer::to(&shared.gate.refused(refusal, circumstances), &shared.gate.agent)
}

fn malformed(shared: &Shared, bytes: &[u8], fault: HeadFault) -> Answer {
    let first_line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let way = if first_line.starts_with(b"CONNECT") { EgressWay::Connect } else { EgressWay::Http };
    let reason = EgressRefusal::Malformed { what: fault.to_string() };
    let refusal = Refusal { way, asked: Asked::other(first_line), address: None, rule: None, reason };
    let mut answer = refused(shared, refusal, Circumstances::default());
    if fault == HeadFault::Large {
        answer.status = "431 Request Header Fields Too Large";
    }
    answer
}

/// A fault of a head that was read.
fn faulty(shared: &Shared, head: &Head, what: String) -> Answer {
    let way = if head.method == "CONNECT" { EgressWay::Connect } else { EgressWay::Http };
    let asked = Asked::other(head.target.as_bytes());
    let refusal =
        Refusal { way, asked, address: None, rule: None, reason: EgressRefusal::Malformed { what } };
    let method = Some(head.method.clone());
    refused(shared, refusal, Circumstances { method, ..Circumstances::default() })
}

fn no_token(shared: &Shared, way: EgressWay, asked: Asked) -> Answer {
    let refusal = Refusal { way, asked, address: None, rule: None, reason: EgressRefusal::Token };
    refused(shared, refusal, Circumstances::default())
}

/// Where a CONNECT leads, before it is decided on.
fn connect_target(shared: &Shared, head: &Head) -> Result<Destination, Answer> {
    if !shared.token.is_in(head) {
        return Err(no_token(shared, EgressWay::Connect, Asked::other(head.target.as_bytes())));
    }
    let destination = Destination::parse_authority(head.target.as_bytes())
        .map_err(|error| faulty(shared, head, error.to_string()))?;
    let framing = head.framing().map_err(|fault| faulty(shared, head, fault.to_string()))?;
    if !matches!(framing, head::Framing::Nothing | head::Framing::Length(0)) {
        return Err(faulty(shared, head, "CONNECT has no body".to_owned()));
    }
    match head.host_is(&destination, destination.port) {
        Ok(true) => Ok(destination),
        Ok(false) => {
            let ask = Ask { way: EgressWay::Connect, destination, method: None, path: None, meant: None };
            let stop = shared.gate.refuse(&ask, None, None, EgressRefusal::HostMismatch);
            Err(Answer::to(&stop, &shared.gate.agent))
        }
        Err(fault) => Err(faulty(shared, head, fault.to_string())),
    }
}

/// A plain request, before it is decided on.
fn plain(shared: &Shared, head: &Head) -> Result<Plain, Answer> {
    if !shared.token.is_in(head) {
        return Err(no_token(shared, EgressWay::Http, Asked::other(head.target.as_bytes())));
    }
    Plain::of(head).map_err(|not| match not {
        NotPlain::Fault(fault) => faulty(shared, head, fault.to_string()),
        NotPlain::Refused(ask, reason) => {
            Answer::to(&shared.gate.refuse(&ask, None, None, reason), &shared.gate.agent)
        }
    })
}

/// What SOCKS is spoken for.
enum Greeted {
    Wish(Wish),
    /// There is nothing more to say.
    Over,
}

async fn socks(shared: &Shared, mut client: Client) -> io::Result<()> {
    let wish = match timeout(shared.limits.head, greet(shared, &mut client)).await {
        Ok(Ok(Greeted::Wish(wish))) => wish,
        Ok(Ok(Greeted::Over)) | Err(_) => return client.leave().await,
        Ok(Err(error)) => return Err(error),
    };
    let (reply, refusal) = match wish {
        Wish::Connect(destination) => return tunnel::open(shared, client, destination, Dialect::Socks).await,
        Wish::Nowhere(text) => (Reply::NotAllowed, (text, "this names no destination")),
        Wish::OtherCommand => (Reply::CommandUnknown, (String::new(), "only CONNECT is spoken over SOCKS")),
        Wish::OtherAddress => (Reply::AddressUnknown, (String::new(), "the kind of address is unknown")),
    };
    let (text, what) = refusal;
    malformed_socks(shared, text, what);
    client.stream.write_all(&reply.bytes()).await?;
    client.leave().await
}

fn malformed_socks(shared: &Shared, asked: String, what: &str) {
    let reason = EgressRefusal::Malformed { what: what.to_owned() };
    let refusal =
        Refusal { way: EgressWay::Socks, asked: Asked::Other(asked), address: None, rule: None, reason };
    refused(shared, refusal, Circumstances::default());
}

/// The messages before a tunnel: who it is, and what it wants.
async fn greet(shared: &Shared, client: &mut Client) -> io::Result<Greeted> {
    let fault = |SocksFault| {
        malformed_socks(shared, String::new(), "this is not SOCKS 5");
        Greeted::Over
    };
    match client.message(socks::read_offer).await? {
        None => return Ok(Greeted::Over),
        Some(Err(error)) => return Ok(fault(error)),
        Some(Ok(Offer::Password)) => client.stream.write_all(&socks::USE_PASSWORD).await?,
        Some(Ok(Offer::Nothing)) => {
            no_token(shared, EgressWay::Socks, Asked::Other(String::new()));
            client.stream.write_all(&socks::NO_WAY).await?;
            return Ok(Greeted::Over);
        }
    }
    match client.message(socks::read_password).await? {
        None => return Ok(Greeted::Over),
        Some(Err(error)) => return Ok(fault(error)),
        Some(Ok((user, password))) if shared.token.is(&user, &password) => {
            client.stream.write_all(&socks::WELCOME).await?;
        }
        Some(Ok(_)) => {
            no_token(shared, EgressWay::Socks, Asked::Other(String::new()));
            client.stream.write_all(&socks::UNWELCOME).await?;
            return Ok(Greeted::Over);
        }
    }
    match client.message(socks::read_wish).await? {
        None => Ok(Greeted::Over),
        Some(Err(error)) => Ok(fault(error)),
        Some(Ok(wish)) => Ok(Greeted::Wish(wish)),
    }
}
