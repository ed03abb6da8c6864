//! Frames that ssh would not send.

use crate::stage::{Broker, Stage};
use belljar_egress::ssh::{HeldKeys, SshLimits};
use belljar_testkit::require;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const FAILURE: [u8; 5] = [0, 0, 0, 1, 5];

fn start(stage: &Stage, limits: SshLimits) -> (HeldKeys, Broker) {
    let host_key = stage.host("forge", &["-t", "ed25519"]);
    stage.key("id", &["-t", "ed25519"]);
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let broker = stage.broker_with(held.grants.clone(), limits);
    (held, broker)
}

fn connect(broker: &Broker) -> UnixStream {
    let stream = UnixStream::connect(&broker.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn ask(stream: &mut UnixStream, body: &[u8]) -> Vec<u8> {
    stream.write_all(&string(body)).unwrap();
    answer(stream)
}

fn answer(stream: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    [length.to_vec(), body].concat()
}

/// Closing a connection with unread bytes resets it.
fn is_closed(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_is_refused_and_the_connection_goes_on() {
    require!(Sshd);
    let stage = Stage::new();
    let (held, broker) = start(&stage, SshLimits::default());
    let mut stream = connect(&broker);
    let key = string(held.grants[0].key.blob());
    let sign = [&[13][..], &key, &string(b"anything"), &[0; 4]].concat();
    let bodies: [(&[u8], &str); 8] = [
        (b"", "other refused: the request is malformed"),
        (&[0xff], "other refused: the agent request 255 is not allowed inside the sandbox"),
        (&[11, 0], "other refused: the request is malformed"),
        (&[13, 0, 0, 0, 9, 1], "other refused: the request is malformed"),
        (&[1], "other refused: the agent request 1 is not allowed inside the sandbox"),
        (
            &[27, 0, 0, 0, 2, b'a', 0x1b],
            "other refused: the extension `a\\u{1b}` is not allowed inside the sandbox",
        ),
        (&sign, "sign refused: the data to sign is neither a login nor a message"),
        (&[&sign[..], &[0]].concat(), "other refused: the request is malformed"),
    ];
    for (body, reported) in bodies {
        assert_eq!(ask(&mut stream, body), FAILURE);
        assert_eq!(broker.reported().last().unwrap(), &format!("- {reported}"));
    }
    assert_eq!(ask(&mut stream, &[11])[4..9], [12, 0, 0, 0, 1], "one key, after all that");
    assert_eq!(broker.end().1.refusals, 8);
}

/// The login of a session that a host signed, sent on another connection.
#[test]
fn a_login_on_a_connection_that_is_not_bound() {
    require!(Sshd);
    let stage = Stage::new();
    let (held, broker) = start(&stage, SshLimits::default());
    let key = held.grants[0].key.blob();
    let login = |session: &[u8]| {
        let words = [string(stage.me().as_bytes()), string(b"ssh-connection"), string(b"publickey")].concat();
        let data = [string(session), vec![50], words, vec![1], string(b"ssh-ed25519"), string(key)].concat();
        [vec![13], string(key), string(&data), vec![0; 4]].concat()
    };
    let mut stream = connect(&broker);
    assert_eq!(ask(&mut stream, &login(&[7; 32])), FAILURE);
    assert!(broker.reported()[0].starts_with("- sign refused: the connection is not bound to a host"));
    let host_key = held.grants[0].host_keys[0].public().blob();
    let signature = string(&[string(b"ssh-ed25519"), string(&[0; 64])].concat());
    let bind = [
        vec![27],
        string(b"session-bind@openssh.com"),
        string(host_key),
        string(&[7; 32]),
        signature,
        vec![0],
    ]
    .concat();
    assert_eq!(ask(&mut stream, &bind), FAILURE);
    assert_eq!(broker.reported()[1], "- bind refused: the host's signature of the session is invalid");
    assert_eq!(ask(&mut stream, &login(&[7; 32])), FAILURE);
    assert_eq!(broker.end().1.signatures, 0);
}

#[test]
fn a_frame_that_is_too_long_ends_the_connection() {
    require!(Sshd);
    let stage = Stage::new();
    let (_held, broker) = start(&stage, SshLimits::default());
    let mut stream = connect(&broker);
    let longest = vec![0xfe; 256 * 1024];
    assert_eq!(ask(&mut stream, &longest), FAILURE, "the longest is read");
    for length in [256 * 1024 + 1, u32::MAX] {
        let mut stream = connect(&broker);
        stream.write_all(&length.to_be_bytes()).unwrap();
        assert_eq!(answer(&mut stream), FAILURE);
        assert!(is_closed(&mut stream));
        assert_eq!(
            broker.reported().last().unwrap(),
            &format!("- other refused: a frame of {length} bytes is too long")
        );
    }
}

#[test]
fn incomplete_and_endless_frames() {
    require!(Sshd);
    let stage = Stage::new();
    let limits = SshLimits {
        idle: Duration::from_millis(300),
        frame: Duration::from_millis(300),
        ..SshLimits::default()
    };
    let (_held, broker) = start(&stage, limits);
    for begun in [&b""[..], &[0], &[0, 0, 0, 9], &[0, 0, 0, 9, 11]] {
        let mut slow = connect(&broker);
        slow.write_all(begun).unwrap();
        assert!(is_closed(&mut slow), "given up, {begun:?}");
        let mut short = connect(&broker);
        short.write_all(begun).unwrap();
        short.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_closed(&mut short));
    }
    assert_eq!(ask(&mut connect(&broker), &[11])[4], 12, "it serves on");
}

#[test]
fn connections_are_limited() {
    require!(Sshd);
    let stage = Stage::new();
    let limits = SshLimits { connections: 2, ..SshLimits::default() };
    let (_held, broker) = start(&stage, limits);
    let (mut first, mut second, mut third) = (connect(&broker), connect(&broker), connect(&broker));
    for stream in [&mut first, &mut second] {
        assert_eq!(ask(stream, &[11])[4], 12);
    }
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    third.write_all(&string(&[11])).unwrap();
    assert!(third.read(&mut [0]).is_err(), "it waits");
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(answer(&mut third)[4], 12, "its turn");
    drop((second, third));
    assert_eq!(broker.end().1.connections, 3);
}

#[test]
fn refusals_past_the_limit_are_counted() {
    require!(Sshd);
    let stage = Stage::new();
    let limits = SshLimits { reported_refusals_per_minute: 3, ..SshLimits::default() };
    let (_held, broker) = start(&stage, limits);
    let mut stream = connect(&broker);
    for _ in 0..5 {
        assert_eq!(ask(&mut stream, &[19]), FAILURE);
    }
    let (reported, summary) = broker.end();
    assert_eq!((reported.len(), summary.refusals, summary.unreported), (3, 5, 2));
}
