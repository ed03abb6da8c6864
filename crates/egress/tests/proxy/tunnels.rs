//! Tunnels deliver every byte in both directions, up to the end of each direction.

use crate::ask::{connect, rest, socks, socks_name, status, tunnel};
use crate::peers::{ALLOWED, Peer};
use crate::plain::proxy_for;
use crate::world::{Setup, is_end};
use belljar_contract::EgressRow;
use belljar_egress::proxy::ProxyLimits;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// Bytes whose values show their position.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn echo(stream: TcpStream) {
    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
    std::io::copy(&mut from, &mut to).ok();
    to.shutdown(Shutdown::Write).ok();
}

#[test]
fn everything_arrives_small_and_large() {
    let peer = Peer::start(ALLOWED, echo);
    let (proxy, authority) = proxy_for(&peer);
    for length in [0, 1, 1000, 5_000_000] {
        let sent = pattern(length);
        let mut stream = tunnel(proxy.address, &authority);
        let mut writer = stream.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent, "{length}: {} bytes came back", got.len());
    }
    let (_, _, reading) = proxy.finish();
    let ends: Vec<(u64, u64)> = reading
        .rows
        .iter()
        .filter_map(|row| match row {
            EgressRow::Finished { end, .. } => Some((end.sent, end.received)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(0, 0), (1, 1), (1000, 1000), (5_000_000, 5_000_000)]);
}

#[test]
fn each_direction_ends_by_itself() {
    // The host answers only after the client has ended.
    let peer = Peer::start(ALLOWED, |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).unwrap();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = tunnel(proxy.address, &authority);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "5 bytes");
    // The host has sent everything and still reads.
    let (notify, heard) = mpsc::channel();
    let peer = Peer::start(ALLOWED, move |mut stream| {
        stream.write_all(b"banner").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        notify.send(all).unwrap();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = tunnel(proxy.address, &authority);
    assert_eq!(rest(&mut stream), "banner");
    stream.write_all(b"still here").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(heard.recv().unwrap(), "still here");
}

#[test]
fn a_host_may_speak_first() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.write_all(b"SSH-2.0-host\r\n").unwrap();
        let mut line = [0; 3];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&line).unwrap();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = tunnel(proxy.address, &authority);
    let mut banner = [0; 14];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-host\r\n");
    stream.write_all(b"abc").unwrap();
    assert_eq!(rest(&mut stream), "abc");
    // The same for a client that sends nothing at all.
    let mut stream = tunnel(proxy.address, &authority);
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut stream).starts_with("SSH-2.0-host"));
}

#[test]
fn the_same_over_socks() {
    let peer = Peer::start(ALLOWED, echo);
    let (proxy, _) = proxy_for(&peer);
    let (code, mut stream) = socks(proxy.address, &socks_name(b"allowed.test", peer.address.port()));
    assert_eq!(code, 0);
    stream.write_all(&pattern(700_000)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == pattern(700_000));
}

#[test]
fn bytes_that_came_with_the_request_are_part_of_the_tunnel() {
    let peer = Peer::start(ALLOWED, echo);
    let (proxy, authority) = proxy_for(&peer);
    let request = format!("CONNECT {authority} HTTP/1.1\r\n{}\r\nearly", crate::ask::token());
    let answer = crate::ask::say(proxy.address, request.as_bytes());
    assert!(answer.ends_with("\r\n\r\nearly"), "{answer}");
}

#[test]
fn a_host_that_breaks_off_breaks_the_tunnel() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.write_all(b"half").unwrap();
        let mut four = [0; 4];
        stream.read_exact(&mut four).unwrap();
        // Closing a socket with unread bytes resets the connection.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = tunnel(proxy.address, &authority);
    stream.write_all(b"four").unwrap();
    let mut all = Vec::new();
    let ended = stream.read_to_end(&mut all);
    assert!(ended.is_err(), "a reset is passed on as one: {ended:?}");
    let rows = proxy.wait_for_rows(|rows| rows.iter().any(is_end));
    assert!(
        rows.iter().any(|row| matches!(row, EgressRow::Finished { end, .. } if end.failure.is_some())),
        "{rows:?}"
    );
}

#[test]
fn a_host_that_is_not_there() {
    let gone = std::net::TcpListener::bind((ALLOWED, 0)).unwrap().local_addr().unwrap().port();
    let rules = [format!("allowed.test:{gone}"), format!("{ALLOWED}:{gone}")];
    let proxy = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED).start();
    let (answer, mut stream) = connect(proxy.address, &format!("allowed.test:{gone}"));
    assert_eq!(status(&answer), 502, "{answer}");
    assert!(rest(&mut stream).contains("is allowed, but the connection failed"));
    assert_eq!(socks(proxy.address, &socks_name(b"allowed.test", gone)).0, 5);
    assert_eq!(socks(proxy.address, &socks_name(b"allowed.test", 1)).0, 2);
}

#[test]
fn an_idle_tunnel_ends() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.read_exact(&mut [0; 1]).ok();
    });
    let port = peer.address.port();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let mut setup = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    setup.limits = ProxyLimits { idle_tunnel: Duration::from_millis(100), ..ProxyLimits::default() };
    let proxy = setup.start();
    let mut stream = tunnel(proxy.address, &format!("allowed.test:{port}"));
    assert_eq!(rest(&mut stream), "");
    proxy.wait_for_rows(|rows| rows.iter().any(is_end));
}

#[test]
fn a_host_that_does_not_read_slows_only_its_client() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let stalled = Peer::start(ALLOWED, move |stream| {
        wait.lock().unwrap().recv().ok();
        drop(stream);
    });
    let (proxy, authority) = proxy_for(&stalled);
    let mut stream = tunnel(proxy.address, &authority);
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let piece = vec![0; 1 << 20];
    let taken = (0..200).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(taken < 100, "{taken} MiB were taken for a host that reads nothing");
    let (answer, _) = connect(proxy.address, "evil.test:80");
    assert_eq!(status(&answer), 403, "the proxy goes on");
    release.send(()).unwrap();
}

#[test]
fn two_thousand_tunnels_at_once() {
    const COUNT: usize = 2000;
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    assert!(
        limits.maximum.is_none_or(|most| most > 9000),
        "2,000 tunnels need 8,000 descriptors in one process"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind((ALLOWED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let proxy = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED).start();
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
    });
    let authority = format!("allowed.test:{port}");
    let mut tunnels: Vec<TcpStream> = (0..COUNT).map(|_| tunnel(proxy.address, &authority)).collect();
    for round in 0..2_u8 {
        for (number, stream) in tunnels.iter_mut().enumerate() {
            stream.write_all(format!("{round} {number:04}").as_bytes()).unwrap();
        }
        for (number, stream) in tunnels.iter_mut().enumerate() {
            let mut got = [0; 6];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(got, format!("{round} {number:04}").as_bytes());
        }
    }
    drop(tunnels);
    proxy.wait_for_rows(|rows| rows.iter().filter(|row| is_end(row)).count() == COUNT);
    let (summary, closed, _) = proxy.finish();
    assert_eq!((summary.allowed, closed.allowed), (2000, 2000));
}
