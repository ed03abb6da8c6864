//! A client that sends exactly the bytes of a test.

use crate::world::TOKEN;
use base64::Engine as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub fn connection(proxy: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The header with the token.
pub fn token() -> String {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("belljar:{TOKEN}"));
    format!("Proxy-Authorization: Basic {pair}\r\n")
}

/// Sends bytes and reads until the connection ends or breaks.
pub fn say(proxy: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connection(proxy);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).ok();
    rest(&mut stream)
}

pub fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok();
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads up to the empty line after a head.
pub fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// The status of a response; 0 if there is none.
pub fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Asks for a tunnel; returns the head of the response and the stream.
pub fn connect(proxy: SocketAddr, authority: &str) -> (String, TcpStream) {
    let mut stream = connection(proxy);
    stream
        .write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token()).as_bytes())
        .unwrap();
    (head(&mut stream), stream)
}

/// An open tunnel.
pub fn tunnel(proxy: SocketAddr, authority: &str) -> TcpStream {
    let (answer, stream) = connect(proxy, authority);
    assert_eq!(status(&answer), 200, "{answer}");
    stream
}

/// A plain request with its token.
pub fn get(url: &str, host: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{}Connection: close\r\n\r\n", token())
}

/// The reply code to a SOCKS request, and the stream.
pub fn socks(proxy: SocketAddr, request: &[u8]) -> (u8, TcpStream) {
    let mut stream = connection(proxy);
    stream.write_all(&[5, 1, 2]).unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).unwrap();
    assert_eq!(two, [5, 2]);
    let token = [&[1, 7][..], b"belljar", &[u8::try_from(TOKEN.len()).unwrap()], TOKEN.as_bytes()].concat();
    stream.write_all(&token).unwrap();
    stream.read_exact(&mut two).unwrap();
    assert_eq!(two, [1, 0]);
    stream.write_all(request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    (reply[1], stream)
}

/// The bytes that ask for a tunnel to a name.
pub fn socks_name(name: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, u8::try_from(name.len()).unwrap()], name, &port.to_be_bytes()].concat()
}

/// The bytes that ask for a tunnel to an address.
pub fn socks_address(address: [u8; 4], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 1], &address[..], &port.to_be_bytes()].concat()
}
