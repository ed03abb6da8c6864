//! Counts the tokens of answers that no provider bills: those of a script or a tape.

use super::answer::GatewayRequest;
use super::messages_api::{Meter, PriceTable, Speed, UsageTotals};
use super::observe::{AnswerEnd, Observe, ObserveAnswer, Unobserved};
use super::relay::{meter, meter_of};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, StatusCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The usage that answers report, with the price that it would have.
#[derive(Clone)]
pub struct UsageTally {
    shared: Arc<TallyState>,
}

struct TallyState {
    prices: PriceTable,
    totals: Mutex<UsageTotals>,
}

impl UsageTally {
    #[must_use]
    pub fn new(prices: PriceTable) -> Self {
        Self { shared: Arc::new(TallyState { prices, totals: Mutex::default() }) }
    }

    /// Counts a recorded answer as it was counted when it was given.
    pub fn count(&self, content_type: &str, body: &[u8]) {
        let shared = Arc::clone(&self.shared);
        let mut counted = CountedAnswer { shared, answered: true, meter: meter_of(content_type) };
        counted.meter.feed(body);
    }

    /// The totals so far.
    #[must_use]
    pub fn totals(&self) -> UsageTotals {
        self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observe for UsageTally {
    fn asked(&self, asked: &GatewayRequest) -> Box<dyn ObserveAnswer> {
        if asked.method != Method::POST || !asked.uri.path().ends_with("/v1/messages") {
            return Box::new(Unobserved);
        }
        let shared = Arc::clone(&self.shared);
        Box::new(CountedAnswer { shared, answered: false, meter: Meter::Uncounted })
    }
}

/// An answer on its way. It is counted when it is dropped, however it ended.
struct CountedAnswer {
    shared: Arc<TallyState>,
    /// Whether it is an answer of the model, and not an error.
    answered: bool,
    meter: Meter,
}

impl ObserveAnswer for CountedAnswer {
    fn head(&mut self, status: StatusCode, headers: &HeaderMap, _at: Instant) {
        self.answered = status.is_success();
        self.meter = meter(headers);
    }

    fn chunk(&mut self, bytes: &Bytes, _at: Instant) {
        self.meter.feed(bytes);
    }

    fn ended(self: Box<Self>, _end: AnswerEnd, _at: Instant) {}
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        if !self.answered {
            return;
        }
        let reading = self.meter.reading();
        let mut totals = self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tokens) = reading.tokens else { return totals.add_uncounted() };
        let model = reading.model.unwrap_or_default();
        let priced = self.shared.prices.find(&model, reading.speed.unwrap_or(Speed::Standard));
        totals.add(&model, tokens, priced.map(|priced| priced.cost(&tokens)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages_api::CHEAP_MODEL;
    use super::*;

    #[test]
    fn answers_are_counted_and_one_without_usage_is_noted() {
        let tally = UsageTally::new(PriceTable::built_in());
        let post = |path: &str| GatewayRequest {
            method: Method::POST,
            uri: path.parse().unwrap(),
            headers: HeaderMap::new(),
            body: Ok(Bytes::new()),
        };
        let answer = |path: &str, status: u16, body: &str| {
            let mut seen = tally.asked(&post(path));
            let json =
                HeaderMap::from_iter([(hyper::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
            seen.head(StatusCode::from_u16(status).unwrap(), &json, Instant::now());
            seen.chunk(&Bytes::copy_from_slice(body.as_bytes()), Instant::now());
            seen.ended(AnswerEnd::Complete, Instant::now());
        };
        let body = r#"{"type":"message","model":"MODEL","content":[],"usage":{"input_tokens":7,"output_tokens":3,"cache_read_input_tokens":90}}"#.replace("MODEL", CHEAP_MODEL);
        answer("/v1/messages", 200, &body);
        answer("/v1/messages", 529, &body);
        answer("/v1/messages/count_tokens", 200, &body);
        let totals = tally.totals();
        assert_eq!((totals.tokens().input, totals.tokens().output, totals.tokens().cache_read), (7, 3, 90));
        assert!(totals.uncounted == 0 && totals.cost().micros() > 0);
        answer("/v1/messages", 200, "{}");
        assert_eq!(tally.totals().uncounted, 1);
    }
}
