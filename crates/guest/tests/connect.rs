//! `connect` against a proxy that says what the test wants.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

/// A proxy for one connection; gives the head it got.
fn proxy(serve: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        serve(connection);
        String::from_utf8(head).unwrap()
    });
    (address, thread)
}

fn connect(address: SocketAddr, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_belljar-guest"))
        .args(["connect", "git.example.org", "22", "--proxy", &address.to_string()])
        .env("BELLJAR_PROXY_TOKEN", "t0ken")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    drop(writer.join().unwrap());
    output
}

#[test]
fn bytes_go_both_ways_and_the_end_of_input_half_closes() {
    let (address, thread) = proxy(|mut connection| {
        // The first bytes of the other side come together with the head.
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\nearly ").unwrap();
        let mut all = Vec::new();
        connection.read_to_end(&mut all).unwrap();
        connection.write_all(format!("got {} bytes", all.len()).as_bytes()).unwrap();
        connection.shutdown(Shutdown::Both).unwrap();
    });
    let output = connect(address, &vec![7; 300_000]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "early got 300000 bytes");
    assert_eq!(output.status.code(), Some(0));
    let head = thread.join().unwrap();
    assert_eq!(
        head,
        "CONNECT git.example.org:22 HTTP/1.1\r\nHost: git.example.org:22\r\n\
         Proxy-Authorization: Basic YmVsbGphcjp0MGtlbg==\r\n\r\n"
    );
}

#[test]
fn a_full_duplex_stream_does_not_block() {
    let (address, thread) = proxy(|mut connection| {
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut back = connection.try_clone().unwrap();
        std::io::copy(&mut connection, &mut back).unwrap();
        back.shutdown(Shutdown::Both).unwrap();
    });
    let sent: Vec<u8> = (0..2_000_000u32).map(|number| number as u8).collect();
    let output = connect(address, &sent);
    assert!(output.stdout == sent, "{} of {} bytes", output.stdout.len(), sent.len());
    thread.join().unwrap();
}

#[test]
fn a_refusal_is_shown_with_its_reason() {
    let (address, thread) = proxy(|mut connection| {
        let body = "no rule allows git.example.org:22\nadd it to egress.allow\n";
        let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        connection.write_all(head.as_bytes()).unwrap();
    });
    let output = connect(address, b"");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "belljar-guest: git.example.org:22 refused with 403: no rule allows git.example.org:22\n\
         add it to egress.allow\n"
    );
    thread.join().unwrap();
}

#[test]
fn an_answer_that_is_not_http_is_an_error() {
    for answer in ["SSH-2.0-OpenSSH\r\n\r\n", ""] {
        let (address, thread) = proxy(move |mut connection| connection.write_all(answer.as_bytes()).unwrap());
        let output = connect(address, b"");
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(message, "belljar-guest: the proxy's answer is not valid HTTP\n");
        thread.join().unwrap();
    }
}
