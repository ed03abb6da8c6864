//! What the gateway adds to a streamed response: the same request directly to a host on loopback that responds at once,
//! and through the gateway to the same host. Called by `scripts/bench-gateway`; exits with 1 if the target is missed.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for measuring, not a library")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use belljar_contract::{Secret, Usd};
use belljar_egress::gateway::{
    AddressScope, FrontLimits, GatewayEvent, GatewaySink, Listen, Live, LiveSetup, PriceTable, ProviderTools,
    Upstream, UpstreamTimes, find_credential, serve,
};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use belljar_testkit::model_access::model_access;
use serde_json::json;

/// The target for the median.
const TARGET: Duration = Duration::from_millis(1);

const WARM_UP: usize = 50;
const ROUNDS: usize = 500;

/// Bytes of a request of the agent's usual size.
const REQUEST_TEXT: usize = 80_000;

/// Pieces of the answer.
const DELTAS: usize = 50;

struct Deaf;

impl GatewaySink for Deaf {
    fn emit(&self, _: GatewayEvent) -> io::Result<()> {
        Ok(())
    }
}

/// A stream as the API writes it, one chunk for each event.
fn answer() -> Vec<u8> {
    let mut events = vec![json!({"type": "message_start", "message": {"model": "claude-opus-4-8",
        "usage": {"input_tokens": 100, "output_tokens": 1}}})];
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "some words "}});
    events.extend(std::iter::repeat_n(delta, DELTAS));
    events.push(json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 100}}));
    events.push(json!({"type": "message_stop"}));
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for event in events {
        let text = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        bytes.extend(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes());
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn request() -> Vec<u8> {
    let body = json!({
        "model": "claude-opus-4-8", "max_tokens": 1000, "stream": true,
        "messages": [{"role": "user", "content": "x".repeat(REQUEST_TEXT)}],
    })
    .to_string();
    format!("POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// A host that responds as soon as it has a request.
fn host() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer: Arc<[u8]> = answer().into();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            std::thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut bytes = Vec::new();
                let mut buffer = vec![0; 256 * 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    bytes.extend_from_slice(&buffer[..read]);
                    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
                        continue;
                    };
                    // The head differs between the two; the body is the larger part and the same.
                    if bytes.len() - end > REQUEST_TEXT && bytes.ends_with(b"}") {
                        bytes.clear();
                        stream.write_all(&answer).unwrap();
                    }
                }
            });
        }
    });
    address
}

fn gateway(host: SocketAddr) -> SocketAddr {
    let live = Live::new(LiveSetup {
        upstream: Upstream::parse(&format!("http://{host}"), AddressScope::Private).unwrap(),
        resolver: Arc::new(belljar_egress::resolve::SystemResolver::new(std::time::Duration::from_secs(10))),
        tls: TlsClient::new(&ExtraRoots::default()).unwrap(),
        credential: find_credential(
            &Arc::new(model_access()),
            |_place| Some(Secret::new("sk-bench")),
            SystemTime::now(),
        ),
        cap: Some(Usd::new(1_000_000.0).unwrap()),
        prices: PriceTable::built_in(),
        provider_tools: ProviderTools::default(),
        times: UpstreamTimes::default(),
        sink: Arc::new(Deaf),
    });
    let (bound, address) = Listen::loopback().open().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let entered = runtime.enter();
        let listener = bound.listener().unwrap();
        drop(entered);
        runtime.block_on(serve(listener, Arc::new(live), FrontLimits::default()));
    });
    address.tcp().unwrap()
}

/// Sends the request and reads the response to its end.
fn once(stream: &mut TcpStream, request: &[u8]) -> Duration {
    let began = Instant::now();
    stream.write_all(request).unwrap();
    let mut buffer = vec![0; 256 * 1024];
    let mut tail = Vec::new();
    while !tail.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the connection ended");
        tail.extend_from_slice(&buffer[..read]);
    }
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let host = host();
    let request = request();
    let mut straight = TcpStream::connect(host).unwrap();
    let mut through = TcpStream::connect(gateway(host)).unwrap();
    for stream in [&mut straight, &mut through] {
        stream.set_nodelay(true).unwrap();
    }
    let (mut direct, mut relayed) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + ROUNDS {
        let pair = (once(&mut straight, &request), once(&mut through, &request));
        if round >= WARM_UP {
            direct.push(pair.0);
            relayed.push(pair.1);
        }
    }
    let (direct, relayed) = (median(direct), median(relayed));
    let added = relayed.saturating_sub(direct);
    println!(
        "{}",
        json!({
            "direct_us": direct.as_micros(), "gateway_us": relayed.as_micros(), "added_us": added.as_micros(),
            "target_us": TARGET.as_micros(), "rounds": ROUNDS, "request_bytes": request.len(), "events": DELTAS + 3,
        })
    );
    if added < TARGET { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
