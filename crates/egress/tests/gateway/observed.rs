//! Observing an exchange from the request to the last chunk.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use belljar_egress::gateway::{AnswerEnd, GatewayRequest, Observe, ObserveAnswer, Observed};
use hyper::body::Bytes;
use hyper::{HeaderMap, StatusCode};

use crate::host::{Host, Then, events, stream};
use crate::stage::{REAL_KEY, Stage, request};

#[derive(Default)]
struct Tape(Mutex<Vec<Exchange>>);

#[derive(Debug, Default)]
struct Exchange {
    request: String,
    status: u16,
    chunks: Vec<(String, Option<Instant>)>,
    end: Option<AnswerEnd>,
}

struct Recorder(Arc<Tape>);

struct Recording {
    tape: Arc<Tape>,
    exchange: Exchange,
}

impl Observe for Recorder {
    fn asked(&self, asked: &GatewayRequest) -> Box<dyn ObserveAnswer> {
        let exchange = Exchange { request: format!("{asked:?}"), ..Exchange::default() };
        Box::new(Recording { tape: Arc::clone(&self.0), exchange })
    }
}

impl ObserveAnswer for Recording {
    fn head(&mut self, status: StatusCode, _: &HeaderMap, _: Instant) {
        self.exchange.status = status.as_u16();
    }

    fn chunk(&mut self, bytes: &Bytes, at: Instant) {
        self.exchange.chunks.push((String::from_utf8(bytes.to_vec()).unwrap(), Some(at)));
    }

    fn ended(mut self: Box<Self>, end: AnswerEnd, _: Instant) {
        self.exchange.end = Some(end);
        self.tape.0.lock().unwrap().push(self.exchange);
    }
}

fn recorded(host: &Host) -> Exchange {
    let tape = Arc::new(Tape::default());
    let recorder = Arc::new(Recorder(Arc::clone(&tape)));
    let gateway = Stage::before(host).start_as(|live| Arc::new(Observed::new(Arc::new(live), recorder)));
    gateway.ask(&request());
    gateway.heard.finished(1);
    drop(gateway);
    tape.0.lock().unwrap().pop().unwrap()
}

#[test]
fn a_whole_exchange_is_seen_with_its_times_and_without_the_key() {
    let exchange = recorded(&Host::always(stream("hello", 1, 1)));
    assert_eq!((exchange.status, exchange.end), (200, Some(AnswerEnd::Complete)));
    let text: String = exchange.chunks.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(text, events("hello", 1, 1).concat());
    assert!(exchange.chunks.is_sorted_by_key(|(_, at)| *at));
    assert!(exchange.request.contains("claude-opus-4-8") && !exchange.request.contains(REAL_KEY));
}

#[test]
fn a_broken_one_is_seen_as_broken() {
    let whole = stream("hello", 1, 1);
    let half = whole[..whole.len() - 10].to_vec();
    let host = Host::start(move |stream, _| {
        std::io::Write::write_all(stream, &half).unwrap();
        Then::Close
    });
    assert_eq!(recorded(&host).end, Some(AnswerEnd::Broken));
}
