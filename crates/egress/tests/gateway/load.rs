//! Many concurrent requests, and many in sequence.

use std::io::Write;
use std::process::Command;
use std::sync::Barrier;

use crate::client::End;
use crate::host::{Host, STREAM_END, STREAM_HEAD, Then, chunk, events, stream};
use crate::stage::{Stage, request};

#[test]
fn a_hundred_streams_at_once() {
    const STREAMS: usize = 100;
    let all_here = Barrier::new(STREAMS);
    let host = Host::start(move |stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        // No stream continues before all have started.
        all_here.wait();
        for event in events("hello", 10, 5) {
            stream.write_all(&chunk(event.as_bytes())).unwrap();
        }
        stream.write_all(STREAM_END).unwrap();
        Then::Keep
    });
    let gateway = Stage::before(&host).start();
    std::thread::scope(|scope| {
        let ask = || {
            let response = gateway.ask(&request());
            assert_eq!((response.status, response.end), (200, End::Complete));
        };
        let clients: Vec<_> = (0..STREAMS).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    gateway.heard.finished(STREAMS);
    assert_eq!(gateway.live.totals().tokens().output, 500);
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_requests() {
    const ALONE: &str = "BELLJAR_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        // Other tests may run in this process, and use memory.
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "load::memory_does_not_grow_with_requests"]).env(ALONE, "1");
        let found = again.output().unwrap();
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(found.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let answer = stream(&"x".repeat(1000), 10, 5);
    let host = Host::always(answer);
    let gateway = Stage::before(&host).start();
    let mut body = request();
    body["messages"][0]["content"] = serde_json::json!("y".repeat(20_000));
    let mut client = gateway.client();
    let mut ask = |times: usize| (0..times).for_each(|_| assert_eq!(client.ask(&body).status, 200));
    ask(200);
    host.forget();
    gateway.heard.forget();
    let before = resident();
    for _ in 0..5 {
        ask(200);
        // Memory of the test itself does not count.
        host.forget();
        gateway.heard.forget();
    }
    let grown = resident().saturating_sub(before);
    // The bodies of a thousand requests alone are 20 MiB.
    assert!(grown < 8 * 1024, "grew by {grown} KiB");
}
