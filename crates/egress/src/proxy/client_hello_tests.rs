use super::*;
use rustls::pki_types::ServerName;
use std::sync::Arc;

const RECORD_HEADER: usize = 5;

/// The first message that rustls sends for this name.
fn hello_for(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

fn named(name: &str) -> Hello {
    Hello::Whole { server_name: Some(name.as_bytes().to_vec()) }
}

/// The same message in records of at most this many bytes.
fn cut(hello: &[u8], longest: usize) -> Vec<u8> {
    let message = &hello[RECORD_HEADER..];
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[HANDSHAKE, 3, 1], &length[..], part].concat()
    };
    message.chunks(longest).flat_map(record).collect()
}

#[test]
fn the_name_is_read_once_the_message_is_whole() {
    let hello = hello_for("allowed.test");
    assert_eq!(read(&hello), named("allowed.test"));
    for end in 0..hello.len() {
        assert_eq!(read(&hello[..end]), Hello::Partial, "{end}");
    }
    let early_data = [&hello[..], b"\x17\x03\x03\x00\x01x"].concat();
    assert_eq!(read(&early_data), named("allowed.test"), "what follows in other records is not looked at");
}

#[test]
fn many_records_are_one_message() {
    let hello = hello_for("allowed.test");
    for longest in [1, 2, 7, 64] {
        assert_eq!(read(&cut(&hello, longest)), named("allowed.test"), "{longest}");
    }
}

#[test]
fn an_absent_server_name_is_reported_as_absent() {
    assert_eq!(read(&hello_for("192.0.2.1")), Hello::Whole { server_name: None });
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in
        [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x02\x00", b"\0"]
    {
        assert_eq!(read(bytes), Hello::NotTls);
    }
}

#[test]
fn ambiguous_input_is_malformed() {
    let hello = hello_for("allowed.test");
    let change = |at: usize, to: u8| {
        let mut changed = hello.clone();
        changed[at] = to;
        changed
    };
    assert_eq!(read(&change(RECORD_HEADER, 2)), Hello::Malformed, "another message");
    let longer = [&hello[..], &[0][..]].concat();
    let mut trailing = longer.clone();
    let length = u16::try_from(hello.len() - RECORD_HEADER + 1).unwrap().to_be_bytes();
    trailing[3..5].copy_from_slice(&length);
    assert_eq!(read(&trailing), Hello::Malformed, "a byte behind the message in its record");
    let alert = [&cut(&hello, 64)[..69], b"\x15\x03\x01\x00\x02\x01\x00"].concat();
    assert_eq!(read(&alert), Hello::Malformed, "another record in the middle");
    let empty = [b"\x16\x03\x01\x00\x00", &hello[..]].concat();
    assert_eq!(read(&empty), Hello::Malformed, "an empty record");
    let endless = [b"\x16\x03\x01\x40\x00\x01\x01\x00\x01".to_vec(), vec![0; HELLO_LIMIT]].concat();
    assert_eq!(read(&endless), Hello::Malformed, "longer than any");
}

fn made(extensions: &[u8]) -> Vec<u8> {
    let number = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let mut body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    body.extend(number(extensions.len()));
    body.extend_from_slice(extensions);
    let mut message = vec![CLIENT_HELLO, 0];
    message.extend(number(body.len()));
    message.extend(body);
    [&[HANDSHAKE, 3, 1], &number(message.len())[..], &message].concat()
}

#[test]
fn one_name_and_only_one() {
    let name = |name: &[u8]| {
        [&[0, u8::try_from(name.len() + 3).unwrap(), 0, 0, u8::try_from(name.len()).unwrap()], name].concat()
    };
    let extension = |content: &[u8]| [&[0, 0, 0, u8::try_from(content.len()).unwrap()], content].concat();
    let one = extension(&name(b"a.test"));
    assert_eq!(read(&made(&one)), named("a.test"));
    let two = [one.clone(), extension(&name(b"evil.test"))].concat();
    assert_eq!(read(&made(&two)), Hello::Malformed, "two extensions");
    let list = b"\x00\x12\x00\x00\x06a.test\x00\x00\x06b.test";
    assert_eq!(read(&made(&extension(list))), Hello::Malformed, "two names");
    assert_eq!(
        read(&made(&extension(b"\x00\x09\x01\x00\x06a.test"))),
        Hello::Malformed,
        "another kind of name"
    );
    assert_eq!(read(&made(&extension(b"\x00\x03\x00\x00\x00"))), Hello::Malformed, "an empty name");
    assert_eq!(read(&made(&extension(b""))), Hello::Malformed, "as servers write it");
    assert_eq!(
        read(&made(b"\xfe\x0d\x00\x02ab")),
        Hello::Whole { server_name: None },
        "an encrypted name does not count"
    );
}

#[test]
fn fuzz_client_hello() {
    let hello = hello_for("allowed.test");
    let everyday = std::time::Duration::from_millis(400);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        assert!(!matches!(read(bytes), Hello::Whole { server_name: Some(name) } if name.is_empty()));
        // More bytes must never change a final result.
        let mut changed = hello.clone();
        for pair in bytes.chunks_exact(2) {
            let at = usize::from(pair[0]) % changed.len();
            changed[at] = pair[1];
        }
        let answer = read(&changed);
        if let Some(early) =
            (0..changed.len()).map(|end| read(&changed[..end])).find(|early| *early != Hello::Partial)
        {
            assert_eq!(early, answer);
        }
    });
}
