//! `ProxyCommand` for ssh: a tunnel through the proxy.

mod answer;
mod tunnel;

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

pub use answer::{ProxyAnswer, parse_proxy_answer};

/// The variable that holds the token of the run.
const TOKEN_VARIABLE: &str = "BELLJAR_PROXY_TOKEN";
/// The variable that holds the address of the proxy, for command lines that do not name it.
const PROXY_VARIABLE: &str = "BELLJAR_PROXY";
const USER: &str = "belljar";
/// The longest answer head that is read.
const HEAD_MAX: usize = 16 * 1024;
/// The longest explanation that is shown.
const EXPLANATION_MAX: usize = 4 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

/// The host to reach, and the proxy to reach it through.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// A name or an address.
    pub host: String,
    /// The port on that host.
    pub port: u16,
    /// The proxy; `None` takes it from the environment.
    pub proxy: Option<SocketAddr>,
}

/// Why the tunnel failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither the command line nor the environment names a proxy.
    #[error("no proxy: give --proxy or set {PROXY_VARIABLE}")]
    NoProxy,
    /// The host has characters that would change the request.
    #[error("invalid host `{0}`")]
    Host(String),
    /// The connection to the proxy failed.
    #[error("cannot reach the proxy at {address}")]
    Reach {
        /// The proxy's address.
        address: SocketAddr,
        /// The error of the connection.
        #[source]
        cause: std::io::Error,
    },
    /// The connection ended before the answer was complete.
    #[error("the proxy closed the connection before it answered")]
    Conversation(#[source] std::io::Error),
    /// The answer is not HTTP, or its head is too long.
    #[error("the proxy's answer is not valid HTTP")]
    Answer,
    /// The proxy refused the connection.
    #[error("{target} refused with {status}: {explanation}")]
    Refused {
        /// Host and port.
        target: String,
        /// The status code of the refusal.
        status: u16,
        /// The proxy's explanation, shortened and without control characters.
        explanation: String,
    },
    /// Copying between the streams and the proxy failed.
    #[error("the tunnel failed")]
    Tunnel(#[source] std::io::Error),
}

/// Opens the tunnel and moves bytes until the other end closes.
pub(crate) fn run(request: &ConnectRequest) -> Result<(), ConnectError> {
    let target = authority(&request.host, request.port)?;
    let address = request.proxy.or_else(proxy_from_environment).ok_or(ConnectError::NoProxy)?;
    let mut proxy = TcpStream::connect(address).map_err(|cause| ConnectError::Reach { address, cause })?;
    proxy.set_read_timeout(Some(PATIENCE)).map_err(ConnectError::Conversation)?;
    let token = std::env::var(TOKEN_VARIABLE).ok();
    proxy.write_all(&connect_head(&target, token.as_deref())).map_err(ConnectError::Conversation)?;
    let (head, rest) = read_head(&mut proxy)?;
    let answer = parse_proxy_answer(&head).ok_or(ConnectError::Answer)?;
    if answer.status != 200 {
        let explanation = read_explanation(&mut proxy, rest, answer);
        return Err(ConnectError::Refused { target, status: answer.status, explanation });
    }
    proxy.set_read_timeout(None).map_err(ConnectError::Conversation)?;
    tunnel::run(&proxy, rest).map_err(ConnectError::Tunnel)
}

fn proxy_from_environment() -> Option<SocketAddr> {
    std::env::var(PROXY_VARIABLE).ok()?.parse().ok()
}

/// `host:port` as it stands in the request. Only what names and addresses are made of gets there.
fn authority(host: &str, port: u16) -> Result<String, ConnectError> {
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]:{port}"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(plain) {
        return Err(ConnectError::Host(host.escape_debug().to_string()));
    }
    Ok(format!("{host}:{port}"))
}

fn connect_head(target: &str, token: Option<&str>) -> Vec<u8> {
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(token) = token {
        let credentials = base64(format!("{USER}:{token}").as_bytes());
        head.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The head up to and with the empty line, and what came after it.
fn read_head(proxy: &mut impl Read) -> Result<(Vec<u8>, Vec<u8>), ConnectError> {
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = received.split_off(end + 4);
            return Ok((received, rest));
        }
        if received.len() > HEAD_MAX {
            return Err(ConnectError::Answer);
        }
        match proxy.read(&mut chunk).map_err(ConnectError::Conversation)? {
            0 => return Err(ConnectError::Answer),
            count => received.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
    }
}

fn read_explanation(proxy: &mut impl Read, mut body: Vec<u8>, answer: ProxyAnswer) -> String {
    let wanted = answer.length.unwrap_or(EXPLANATION_MAX).min(EXPLANATION_MAX);
    let missing = wanted.saturating_sub(body.len()) as u64;
    // If the connection ends early, the part that came is shown.
    proxy.take(missing).read_to_end(&mut body).ok();
    body.truncate(wanted);
    let text = String::from_utf8_lossy(&body);
    let harmless = |character: char| character == '\n' || !character.is_control();
    text.chars().filter(|character| harmless(*character)).collect::<String>().trim().to_owned()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (position, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = DIGITS.get((bits >> shift & 63) as usize).copied().unwrap_or(b'=');
            text.push(if position <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_known_texts() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("belljar:t", "YmVsbGphcjp0")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn only_hosts_reach_the_request() {
        assert_eq!(authority("git.example.org", 22).unwrap(), "git.example.org:22");
        assert_eq!(authority("::1", 22).unwrap(), "[::1]:22");
        assert_eq!(authority("[::1]", 22).unwrap(), "[::1]:22");
        for host in ["", "a b", "a\r\nX: y", "a\0b", "a/b", "u@h", "a:1", "b\u{fc}cher", &"a".repeat(256)] {
            assert!(authority(host, 22).is_err(), "{host:?}");
        }
    }

    #[test]
    fn the_token_is_in_the_head_only_if_there_is_one() {
        assert_eq!(connect_head("h:1", None), b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n");
        let head = String::from_utf8(connect_head("h:1", Some("t"))).unwrap();
        assert!(head.contains("Proxy-Authorization: Basic YmVsbGphcjp0\r\n"), "{head}");
    }

    #[test]
    fn an_endless_head_is_given_up() {
        assert!(matches!(read_head(&mut std::io::repeat(b'a')), Err(ConnectError::Answer)));
    }

    #[test]
    fn an_explanation_is_shortened_and_cleaned() {
        let answer = ProxyAnswer { status: 403, length: None };
        let shown = read_explanation(&mut &b"no \x1b[31mrule\r\nallow it"[..], Vec::new(), answer);
        assert_eq!(shown, "no [31mrule\nallow it");
        let shown = read_explanation(&mut std::io::repeat(b'x'), Vec::new(), answer);
        assert_eq!(shown.len(), EXPLANATION_MAX);
    }
}
