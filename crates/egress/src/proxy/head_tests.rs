use super::*;

fn head(text: &str) -> Result<Head, HeadFault> {
    parse(text.as_bytes())
}

fn with(header: &str) -> Result<Head, HeadFault> {
    head(&format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{header}\r\n\r\n"))
}

#[test]
fn an_ordinary_head() {
    let head = head("GET http://A.test:81/x?y HTTP/1.1\r\nHost:  a.test:81 \r\nAccept: */*\r\n\r\n").unwrap();
    assert_eq!((head.method.as_str(), head.version), ("GET", Version::Http11));
    assert_eq!(head.absolute(), Ok(("A.test:81", "/x?y".to_owned())));
    assert_eq!(head.framing(), Ok(Framing::Nothing));
    let destination = Destination::parse_authority(b"a.test:81").unwrap();
    assert_eq!(head.host_is(&destination, Port::HTTP), Ok(true));
    assert!(head.keeps_alive() && !head.wants_upgrade());
}

#[test]
fn heads_with_more_than_one_reading() {
    for (bytes, fault) in [
        (&b"GET http://a.test/ HTTP/1.1\nHost: a.test\n\n"[..], HeadFault::LineEnd),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n", HeadFault::LineEnd),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\rX: y\r\n\r\n", HeadFault::LineEnd),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\r\n\r\n", HeadFault::LineEnd),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/1.1\r\n Host: a.test\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/1.1\r\nHost : a.test\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/1.1\r\nHost\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/1.1\r\nX: a\0b\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/1.1\r\nX\0: a\r\n\r\n", HeadFault::Syntax),
        (b"GET  http://a.test/ HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/  HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ b HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/\r\n\r\n", HeadFault::Syntax),
        (b"GET http://a.test/ HTTP/2.0\r\n\r\n", HeadFault::Syntax),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HeadFault::Syntax),
        (b"G\0T http://a.test/ HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"\r\nGET http://a.test/ HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"CONNECT evil.test\0.allowed.test:80 HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"CONNECT evil.test\x7f:80 HTTP/1.1\r\n\r\n", HeadFault::Syntax),
        (b"\x16\x03\x01\x00\x05\x01\x00\r\n\r\n", HeadFault::Syntax),
    ] {
        assert_eq!(parse(bytes), Err(fault), "{:?}", String::from_utf8_lossy(bytes));
    }
    let umlaut = parse("GET http://b\u{fc}cher.test/ HTTP/1.1\r\n\r\n".as_bytes());
    assert!(matches!(umlaut, Err(HeadFault::Target | HeadFault::Syntax)), "{umlaut:?}");
}

#[test]
fn one_way_to_tell_the_end_of_the_body() {
    let framing = |header: &str| with(header).unwrap().framing();
    assert_eq!(framing("Content-Length: 12"), Ok(Framing::Length(12)));
    assert_eq!(framing("Transfer-Encoding: Chunked"), Ok(Framing::Chunked));
    for header in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding:",
    ] {
        let framing = with(header).and_then(|head| head.framing());
        assert!(matches!(framing, Err(HeadFault::Framing | HeadFault::Syntax)), "{header:?} {framing:?}");
    }
    let old = head("POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert_eq!(old.framing(), Err(HeadFault::Framing));
}

#[test]
fn targets() {
    let absolute = |target: &str| {
        let head = head(&format!("GET {target} HTTP/1.1\r\n\r\n")).unwrap();
        head.absolute().map(|(authority, path)| format!("{authority} {path}"))
    };
    assert_eq!(absolute("http://a.test").as_deref(), Ok("a.test /"));
    assert_eq!(absolute("HTTP://a.test?q").as_deref(), Ok("a.test /?q"));
    assert_eq!(absolute("http://a.test@evil.test/").as_deref(), Ok("a.test@evil.test /"));
    assert_eq!(absolute("/path"), Err(HeadFault::OriginForm));
    assert_eq!(absolute("*"), Err(HeadFault::OriginForm));
    assert_eq!(absolute("https://a.test/"), Err(HeadFault::Scheme));
    assert_eq!(absolute("ftp://a.test/"), Err(HeadFault::Scheme));
    assert_eq!(absolute("http://a.test/#x"), Err(HeadFault::Target));
    assert_eq!(absolute("a.test"), Err(HeadFault::Target));
}

#[test]
fn one_host_that_is_the_target() {
    let destination = Destination::parse_authority(b"a.test:80").unwrap();
    let host = |headers: &str| {
        let head = head(&format!("GET http://a.test/ HTTP/1.1\r\n{headers}\r\n")).unwrap();
        head.host_is(&destination, Port::HTTP)
    };
    assert_eq!(host("Host: A.test\r\n"), Ok(true));
    assert_eq!(host("Host: a.test.:80\r\n"), Ok(true));
    for other in ["b.test", "a.test:81", "a.test, b.test", "", "x@a.test", "a.test b.test"] {
        assert_eq!(host(&format!("Host: {other}\r\n")), Ok(false), "{other:?}");
    }
    assert_eq!(host(""), Err(HeadFault::Host));
    assert_eq!(host("Host: a.test\r\nHost: a.test\r\n"), Err(HeadFault::Host));
}

#[test]
fn upgrades_are_refused() {
    for header in ["Upgrade: websocket", "Connection: keep-alive, Upgrade", "HTTP2-Settings: AAMAAABk"] {
        assert!(with(header).unwrap().wants_upgrade(), "{header}");
    }
}

#[test]
fn limits() {
    let many =
        |count: usize| head(&format!("GET http://a.test/ HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count)));
    assert!(many(HEADERS_LIMIT).is_ok());
    assert_eq!(many(HEADERS_LIMIT + 1), Err(HeadFault::Large));
    assert_eq!(with(&format!("X: {}", "y".repeat(HEAD_LIMIT))), Err(HeadFault::Large));
}

#[test]
fn fuzz_http_head() {
    const PIECES: [&str; 30] = [
        "GET ",
        "CONNECT ",
        "http://a.test/",
        "a.test:443",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        "\r\n\r\n",
        "Host: a.test",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: close, x",
        ": ",
        " ",
        "\t",
        "\0",
        "@",
        "#",
        "://",
        "/",
        "*",
        "Upgrade: h2c",
        "\u{fc}",
        ",",
        "HTTP/2",
        "https",
        "X",
        "GET http://a.test/ HTTP/1.1\r\n",
    ];
    let everyday = std::time::Duration::from_millis(400);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        one_reading(bytes);
        let made: String =
            bytes.iter().take(12).map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect();
        one_reading(made.as_bytes());
        one_reading(format!("GET http://a.test/ HTTP/1.1\r\n{made}\r\n\r\n").as_bytes());
    });
}

/// Writes the parsed head in its canonical form, which must parse to the same head.
fn one_reading(bytes: &[u8]) {
    let Ok(head) = parse(bytes) else { return };
    head.framing().ok();
    head.absolute().ok();
    let minor = match head.version {
        Version::Http10 => 0,
        Version::Http11 => 1,
    };
    let mut again = format!("{} {} HTTP/1.{minor}\r\n", head.method, head.target).into_bytes();
    for (name, value) in &head.headers {
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        again.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    again.extend(b"\r\n");
    if again.len() <= HEAD_LIMIT {
        assert_eq!(parse(&again).as_ref(), Ok(&head));
    }
    assert_eq!(end_of_head(&again, 0), Some(again.len()), "one head, and nothing behind it");
}
