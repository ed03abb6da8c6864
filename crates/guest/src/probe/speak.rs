//! Speaking to hosts, directly and through the proxy that the environment names.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::attempts::{CONNECT_TIME, contains, outcome_of};
use super::{Outcome, Seen, unsupported};

/// Longer than any host of a probe takes to answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: usize = 64 << 10;
/// The user of the proxy.
const USER: &str = "belljar";

pub(super) fn look_up(name: &str) -> Seen {
    match (name, 80).to_socket_addrs() {
        Ok(mut found) => match found.next() {
            Some(address) => (Outcome::Open, format!("it is {}", address.ip())),
            None => (Outcome::Closed { errno: None }, "it has no address".to_owned()),
        },
        Err(error) => (Outcome::Closed { errno: None }, error.to_string()),
    }
}

pub(super) fn speak(to: &str, say: &[String], holds: &str) -> Seen {
    let found = to.to_socket_addrs().and_then(|mut found| found.next().ok_or(io::ErrorKind::NotFound.into()));
    heard(found.and_then(|at| exchange(at, say)), holds)
}

pub(super) fn to_proxy(say: &[String], holds: &str) -> Seen {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(at), Some(token)) = (variable("BELLJAR_PROXY"), variable("BELLJAR_PROXY_TOKEN")) else {
        return unsupported("the environment names no proxy");
    };
    let header = format!("Proxy-Authorization: Basic {}\r\n", base64(&format!("{USER}:{token}")));
    let length = |text: &str| char::from_u32(u32::try_from(text.len()).unwrap_or(0)).unwrap_or('\0');
    let login = format!("\u{1}{}{USER}{}{token}", length(USER), length(&token));
    let say: Vec<String> =
        say.iter().map(|text| text.replace("{token}", &header).replace("{login}", &login)).collect();
    heard(at.parse().map_err(io::Error::other).and_then(|at: SocketAddr| exchange(at, &say)), holds)
}

fn heard(answer: io::Result<Vec<u8>>, holds: &str) -> Seen {
    match answer {
        Ok(bytes) if contains(&bytes, holds.as_bytes()) => (Outcome::Open, "the host answered".to_owned()),
        Ok(bytes) => {
            let first: String = String::from_utf8_lossy(&bytes)
                .chars()
                .take_while(|one| !one.is_control())
                .take(80)
                .collect();
            (Outcome::Closed { errno: None }, format!("answered: {first:?}"))
        }
        Err(error) => outcome_of(Err(error)),
    }
}

/// Says one text after the other, as long as the answers are such that one goes on, and gives all that came back.
fn exchange(at: SocketAddr, say: &[String]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_TIME)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let mut all = Vec::new();
    let mut part = vec![0; ANSWER_LIMIT];
    for (number, text) in say.iter().enumerate() {
        stream.write_all(text.as_bytes())?;
        if number + 1 == say.len() {
            break;
        }
        let count = stream.read(&mut part)?;
        let answer = part.get(..count).unwrap_or_default();
        all.extend_from_slice(answer);
        if count == 0 || (answer.starts_with(b"HTTP/1") && !answer.starts_with(b"HTTP/1.1 200")) {
            return Ok(all);
        }
    }
    while all.len() < ANSWER_LIMIT {
        // The host closed or reset the connection; the answer is what came before.
        let Ok(count @ 1..) = stream.read(&mut part) else { break };
        all.extend_from_slice(part.get(..count).unwrap_or_default());
    }
    Ok(all)
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS.get((bits >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'=');
            out.push(if at > group.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_as_others_write_it() {
        for (text, wanted) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("a:b\u{1}?", "YTpiAT8=")]
        {
            assert_eq!(base64(text), wanted);
        }
    }
}
