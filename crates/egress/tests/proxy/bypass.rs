//! Attempts to get around the rules. Each one succeeds with a proxy without rules, and is refused here.

use crate::ask::{connect, get, head, rest, say, socks, socks_address, socks_name, status, token};
use crate::naive;
use crate::peers::{ALLOWED, EVIL, Hosts};
use crate::world::{Names, Proxy, Setup};
use belljar_contract::{EgressRefusal, EgressRow, EgressVerdict};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

struct Stage {
    hosts: Hosts,
    proxy: Proxy,
    naive: SocketAddr,
}

impl Stage {
    /// `allowed.test`, everything below it, and the address of the one host that is allowed.
    fn new() -> Self {
        let hosts = Hosts::start();
        let port = hosts.port;
        let names = |names: &Names| {
            names.add("allowed.test", &[&[ALLOWED]]);
            names.add("evil.test", &[&[EVIL]]);
            names.add("evilallowed.test", &[&[EVIL]]);
            names.add("xn--evl-zqa.test", &[&[EVIL]]);
            names.add("rebind.allowed.test", &[&[EVIL]]);
            names.add("private.allowed.test", &[&["192.168.0.9"]]);
            names.add("link.allowed.test", &[&["169.254.7.7"]]);
            names.add("metadata.allowed.test", &[&["169.254.169.254"]]);
            names.add("mapped.allowed.test", &[&["::ffff:127.0.0.66"]]);
            names.add("zero.allowed.test", &[&["0.0.0.0"]]);
        };
        let allow =
            [format!("allowed.test:{port}"), format!("*.allowed.test:{port}"), format!("{ALLOWED}:{port}")];
        let setup = Setup::allowing(&allow.each_ref().map(String::as_str));
        names(&setup.names);
        let forgiving = Arc::new(Names::default());
        names(&forgiving);
        Self { hosts, proxy: setup.start(), naive: naive::start(forgiving) }
    }

    /// The responses of both proxies to these bytes.
    fn say(&self, bytes: &[u8]) -> (String, String) {
        (say(self.naive, bytes), say(self.proxy.address, bytes))
    }

    /// Succeeds with the naive proxy; is refused here with this status and without a connection to the host.
    fn closed(&self, bytes: &[u8], wanted: &[u16]) {
        let shown = String::from_utf8_lossy(bytes).replace(&token(), "");
        let before = self.hosts.evil.count();
        let naive = say(self.naive, bytes);
        assert!(naive.contains("LEAK"), "the probe does not fire: {shown:?} {naive:?}");
        let through_naive = self.hosts.evil.count();
        let answer = say(self.proxy.address, bytes);
        assert!(!answer.contains("LEAK"), "{shown:?} {answer:?}");
        assert!(wanted.contains(&status(&answer)), "{shown:?} {answer:?}");
        assert_eq!(self.hosts.evil.count(), through_naive, "{shown:?}: the host was connected to");
        assert!(through_naive >= before);
    }

    fn tunnel_closed(&self, authority: &[u8], wanted: &[u16]) {
        let get = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        self.closed(
            &[b"CONNECT ", authority, b" HTTP/1.1\r\n", token().as_bytes(), b"\r\n", get].concat(),
            wanted,
        );
    }
}

#[test]
fn allowed_destinations_are_reachable() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    let (naive, answer) =
        stage.say(get(&format!("http://allowed.test:{port}/"), &format!("allowed.test:{port}")).as_bytes());
    assert!(naive.contains("WELCOME") && answer.contains("WELCOME"), "{answer}");
    let (answer, mut tunnel) = connect(stage.proxy.address, &format!("Sub.Allowed.test.:{port}"));
    assert_eq!(status(&answer), 502, "allowed, and without an address: {answer}");
    drop(tunnel);
    (_, tunnel) = connect(stage.proxy.address, &format!("ALLOWED.test.:{port}"));
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").unwrap();
    tunnel.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(rest(&mut tunnel).contains("WELCOME"));
}

#[test]
fn tunnels_to_destinations_without_a_rule() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    for host in ["evil.test", "EVIL.TEST", "evil.test.", "evilallowed.test", "xn--evl-zqa.test", EVIL] {
        stage.tunnel_closed(format!("{host}:{port}").as_bytes(), &[403]);
    }
    assert!(
        !stage.proxy.names.asked().iter().any(|name| name.contains("evil")),
        "a refused name was resolved"
    );
}

#[test]
fn this_machine_in_all_its_spellings() {
    let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = here.local_addr().unwrap().port();
    let _leak = crate::peers::Peer::on(here, |stream| {
        crate::peers::http(stream, "LEAK", &std::sync::Mutex::default())
    });
    let stage = Stage::new();
    for (host, wanted) in [
        ("127.0.0.1", 403),
        ("localhost", 403),
        ("0.0.0.0", 403),
        ("[::ffff:127.0.0.1]", 403),
        ("127.1", 400),
        ("2130706433", 400),
        ("0x7f000001", 400),
        ("0x7f.1", 400),
        ("0177.0.0.1", 400),
        ("127.0.0.1.", 400),
        ("127%2e0%2e0%2e1", 400),
    ] {
        stage.tunnel_closed(format!("{host}:{port}").as_bytes(), &[wanted]);
    }
}

#[test]
fn bytes_that_are_read_in_two_ways() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    stage.tunnel_closed(format!("evil.test\0.allowed.test:{port}").as_bytes(), &[400]);
    stage.tunnel_closed(format!("evil.test%00.allowed.test:{port}").as_bytes(), &[400]);
    stage.tunnel_closed(format!("allowed.test:{port}@evil.test:{port}").as_bytes(), &[400]);
    stage.tunnel_closed(format!("evil%2etest:{port}").as_bytes(), &[400]);
    let url = |url: &str| {
        format!(
            "GET http://{url}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\n{}Connection: close\r\n\r\n",
            token()
        )
    };
    stage.closed(url(&format!("allowed.test@evil.test:{port}")).as_bytes(), &[400, 403]);
    stage.closed(url(&format!("evil.test\0.allowed.test:{port}")).as_bytes(), &[400]);
}

#[test]
fn names_that_lead_inside() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    for name in ["rebind", "private", "link", "metadata", "mapped"] {
        let authority = format!("{name}.allowed.test:{port}");
        stage.tunnel_closed(authority.as_bytes(), &[403]);
        stage.closed(get(&format!("http://{authority}/"), &authority).as_bytes(), &[403]);
    }
    let (answer, _) = connect(stage.proxy.address, &format!("zero.allowed.test:{port}"));
    assert_eq!(status(&answer), 403);
}

#[test]
fn other_ports_of_an_allowed_host() {
    let other = std::net::TcpListener::bind((ALLOWED, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let _leak = crate::peers::Peer::on(other, |stream| {
        crate::peers::http(stream, "LEAK", &std::sync::Mutex::default())
    });
    let stage = Stage::new();
    stage.tunnel_closed(format!("allowed.test:{port}").as_bytes(), &[403]);
    stage.tunnel_closed(format!("{ALLOWED}:{port}").as_bytes(), &[403]);
    for port in [22, 25, 443] {
        let (answer, _) = connect(stage.proxy.address, &format!("allowed.test:{port}"));
        assert_eq!(status(&answer), 403);
    }
}

#[test]
fn plain_requests_obey_the_same_rules() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    let (evil, allowed) = (format!("evil.test:{port}"), format!("allowed.test:{port}"));
    stage.closed(get(&format!("http://{evil}/"), &evil).as_bytes(), &[403]);
    stage.closed(get(&format!("http://{evil}/"), &allowed).as_bytes(), &[400, 403]);
    // The target is only a path, and `Host` names the destination.
    stage.closed(get("/", &evil).as_bytes(), &[400, 403]);
}

#[test]
fn a_host_header_that_names_another() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    for host in
        [format!("evil.test:{port}"), "allowed.test".to_owned(), format!("allowed.test:{port}, evil.test")]
    {
        let (naive, answer) = stage.say(get(&format!("http://allowed.test:{port}/"), &host).as_bytes());
        assert!(naive.contains("WELCOME"), "what is trusted elsewhere: {naive}");
        assert_eq!(status(&answer), 403, "{host}: {answer}");
    }
    let heads = stage.hosts.got().len();
    let two = format!(
        "GET http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\nHost: evil.test\r\n{}\r\n",
        token()
    );
    assert_eq!(status(&say(stage.proxy.address, two.as_bytes())), 400);
    let tunnel = format!("CONNECT allowed.test:{port} HTTP/1.1\r\nHost: evil.test:{port}\r\n{}\r\n", token());
    assert_eq!(status(&say(stage.proxy.address, tunnel.as_bytes())), 403);
    assert_eq!(stage.hosts.got().len(), heads);
}

#[test]
fn socks_obeys_the_same_rules() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    let there: [u8; 4] = [127, 0, 0, 66];
    for request in [
        socks_name(b"evil.test", port),
        socks_name(b"evil.test\0.allowed.test", port),
        socks_name(b"evil.test.", port),
        socks_name(b"127.0.0.66", port),
        socks_name(b"rebind.allowed.test", port),
        socks_name(b"0x7f000042", port),
        socks_address(there, port),
    ] {
        let through = |proxy: SocketAddr| {
            let (code, mut stream) = socks(proxy, &request);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").ok();
            stream.shutdown(std::net::Shutdown::Write).ok();
            (code, rest(&mut stream))
        };
        let (_, naive) = through(stage.naive);
        assert!(naive.contains("LEAK"), "the probe does not fire: {request:?}");
        let before = stage.hosts.evil.count();
        let (code, answer) = through(stage.proxy.address);
        assert_eq!((code, answer.as_str()), (2, ""), "{request:?}");
        assert_eq!(stage.hosts.evil.count(), before);
    }
    let (code, mut stream) = socks(stage.proxy.address, &socks_name(b"allowed.test", port));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(code, 0);
    assert!(rest(&mut stream).contains("WELCOME"));
}

#[test]
fn socks_has_no_other_commands() {
    let stage = Stage::new();
    for (request, code) in [
        (vec![5, 2, 0, 1, 127, 0, 0, 10, 0, 80], 7),
        (vec![5, 3, 0, 1, 0, 0, 0, 0, 0, 0], 7),
        (vec![5, 1, 0, 9, 0, 0], 8),
    ] {
        assert_eq!(socks(stage.proxy.address, &request).0, code);
    }
}

#[test]
fn a_client_without_the_token_is_refused() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    let wrong = "Proxy-Authorization: Basic YmVsbGphcjp3cm9uZw==\r\n";
    for authorization in ["", wrong, "Authorization: Basic YmVsbGphcjp0MGtlbg==\r\n"] {
        for request in [
            format!("CONNECT allowed.test:{port} HTTP/1.1\r\n{authorization}\r\nGET / HTTP/1.1\r\n\r\n"),
            format!(
                "GET http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\n{authorization}\r\n"
            ),
        ] {
            let (naive, answer) = stage.say(request.as_bytes());
            assert!(naive.contains("WELCOME"), "{naive}");
            assert_eq!(status(&answer), 407, "{answer}");
            assert!(answer.contains("Proxy-Authenticate: Basic"), "{answer}");
        }
    }
    let mut stream = crate::ask::connection(stage.proxy.address);
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).unwrap();
    assert_eq!(two, [5, 0xff]);
    let mut stream = crate::ask::connection(stage.proxy.address);
    stream.write_all(b"\x05\x01\x02\x01\x07belljar\x05wrong").unwrap();
    stream.read_exact(&mut two).unwrap();
    stream.read_exact(&mut two).unwrap();
    assert_eq!((two, rest(&mut stream).len()), ([1, 1], 0));
    assert!(stage.proxy.names.asked().is_empty(), "nothing was resolved for a stranger");
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    let flip: &[&[&str]] = &[&[ALLOWED], &[EVIL]];
    stage.proxy.names.add("flip.allowed.test", flip);
    let forgiving = Arc::new(Names::default());
    forgiving.add("flip.allowed.test", flip);
    let naive = naive::start(Arc::clone(&forgiving));
    let authority = format!("flip.allowed.test:{port}");
    let request = get(&format!("http://{authority}/"), &authority);
    assert!(say(naive, request.as_bytes()).contains("LEAK"), "looked up twice, it leads elsewhere");
    assert!(say(stage.proxy.address, request.as_bytes()).contains("WELCOME"));
    assert_eq!(stage.proxy.names.asked(), ["flip.allowed.test"]);
    // The next connection asks the resolver again, and is refused.
    assert_eq!(status(&say(stage.proxy.address, request.as_bytes())), 403);
    let (answer, _) = connect(stage.proxy.address, &authority);
    assert_eq!(status(&answer), 403);
}

#[test]
fn of_several_addresses_only_the_open_ones_are_dialled() {
    let stage = Stage::new();
    let port = stage.hosts.port;
    stage.proxy.names.add("mixed.allowed.test", &[&["10.0.0.1", EVIL, ALLOWED]]);
    let authority = format!("mixed.allowed.test:{port}");
    assert!(
        say(stage.proxy.address, get(&format!("http://{authority}/"), &authority).as_bytes())
            .contains("WELCOME")
    );
    assert_eq!(stage.hosts.evil.count(), 0);
    let rows = stage.proxy.rows();
    let decided = rows.iter().find_map(|row| match row {
        EgressRow::Decided { decision, .. } => Some(decision),
        _ => None,
    });
    assert_eq!(decided.unwrap().addresses, [ALLOWED.parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn a_connection_does_not_become_something_else() {
    let stage = Stage::new();
    let authority = format!("allowed.test:{}", stage.hosts.port);
    for upgrade in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
        "Upgrade: websocket\r\n",
    ] {
        let request =
            format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}{upgrade}\r\n", token());
        let (naive, answer) = stage.say(request.as_bytes());
        assert!(naive.contains("WELCOME"));
        assert_eq!(status(&answer), 403, "{answer}");
    }
    assert_eq!(stage.hosts.allowed.count(), 3, "only the naive proxy connected");
}

#[test]
fn a_refusal_names_the_change_that_would_allow_it() {
    let stage = Stage::new();
    let (answer, mut stream) = connect(stage.proxy.address, "evil.test:80");
    assert!(answer.contains("x-belljar-rule: not-allowed\r\n"), "{answer}");
    assert!(answer.contains("Content-Type: text/plain"), "{answer}");
    let body = rest(&mut stream);
    assert_eq!(
        body,
        "belljar: evil.test:80 is not allowed: no rule allows it.\n\
         To allow it, add \"evil.test:80\" to [agents.reviewer.egress] allow in belljar.toml.\n"
    );
    let refusals = stage.proxy.refusals.lock().unwrap().clone();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].reason, EgressRefusal::NotAllowed);
    let denied = stage.proxy.rows().iter().any(|row| {
        matches!(row, EgressRow::Decided { decision, .. }
            if decision.destination == "evil.test:80" && decision.verdict == EgressVerdict::Denied { reason: EgressRefusal::NotAllowed })
    });
    assert!(denied);
}

#[test]
fn a_deny_rule_wins_over_an_allow_rule() {
    let hosts = Hosts::start();
    let port = hosts.port;
    let mut setup = Setup::allowing(&[]).name("bad.allowed.test", ALLOWED).name("good.allowed.test", ALLOWED);
    setup.allow = vec![format!("*.allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    setup.deny = vec!["bad.allowed.test".to_owned()];
    let proxy = setup.start();
    let (answer, _) = connect(proxy.address, &format!("bad.allowed.test:{port}"));
    assert_eq!(status(&answer), 403);
    assert!(answer.contains("x-belljar-rule: deny-1\r\n"), "{answer}");
    let (answer, _) = connect(proxy.address, &format!("good.allowed.test:{port}"));
    assert_eq!(status(&answer), 200);
}

#[test]
fn without_rules_nothing_is_reachable() {
    let hosts = Hosts::start();
    let proxy = Setup::default().name("allowed.test", ALLOWED).start();
    let authority = format!("allowed.test:{}", hosts.port);
    let (answer, _) = connect(proxy.address, &authority);
    assert_eq!(status(&answer), 403);
    assert_eq!(status(&say(proxy.address, get(&format!("http://{authority}/"), &authority).as_bytes())), 403);
    assert_eq!(socks(proxy.address, &socks_name(b"allowed.test", hosts.port)).0, 2);
    assert!(proxy.names.asked().is_empty());
}

#[test]
fn a_head_is_answered_without_a_body() {
    let stage = Stage::new();
    let mut stream = crate::ask::connection(stage.proxy.address);
    stream
        .write_all(
            format!("HEAD http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n{}\r\n", token()).as_bytes(),
        )
        .unwrap();
    assert_eq!(status(&head(&mut stream)), 403);
    assert_eq!(rest(&mut stream), "");
}
