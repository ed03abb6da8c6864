//! The account of one request: its reservation, its cost, and the report of its end.

use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::budget::{Budget, Reservation};
use super::event::{CountedBy, CountedTokens, GatewayEvent, GatewaySink, RequestEnd, RequestFinished};
use super::messages_api::{MessagesView, PriceTable, Priced, Reading, Speed, TokenCount, UsageTotals};
use super::money::Cost;

/// What all requests of a gateway are charged to.
pub(super) struct Accounts {
    pub prices: PriceTable,
    pub budget: Arc<Budget>,
    pub sink: Arc<dyn GatewaySink>,
    totals: Mutex<UsageTotals>,
}

/// The request that an account belongs to.
#[derive(Debug, Clone)]
pub(super) struct RequestInfo {
    pub request: u64,
    pub agent: Option<String>,
    pub since: Instant,
    pub sent_bytes: u64,
}

/// The account of a request. It is closed once, by [`Account::close`], or by dropping it when the client leaves.
pub(super) struct Account {
    accounts: Arc<Accounts>,
    info: RequestInfo,
    model: String,
    speed: Speed,
    max_tokens: u64,
    billing: Billing,
    reservation: Option<Reservation>,
    /// The part of the reservation that is due once the request was sent.
    input: Cost,
    stage: Stage,
    first_byte: Option<Instant>,
    received_bytes: u64,
    revised: bool,
}

/// Whether responses cost anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Billing {
    ByTokens,
    Free,
}

/// The reservation for a request, and the part of it that its input accounts for.
pub(super) struct Reserved {
    pub reservation: Reservation,
    pub input: Cost,
}

/// How far a request has got, which decides what is due if it ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent: nothing is due.
    Held,
    /// The request was sent and no response began. The model may have read it: its input is due.
    Sent,
    /// A response began with this status.
    Answered(u16),
}

impl Accounts {
    pub fn new(prices: PriceTable, budget: Arc<Budget>, sink: Arc<dyn GatewaySink>) -> Self {
        Self { prices, budget, sink, totals: Mutex::default() }
    }

    pub fn totals(&self) -> MutexGuard<'_, UsageTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that a request has ended. If the event cannot be kept, the start of the next request will fail.
    pub fn finished(&self, finished: RequestFinished) {
        self.sink.emit(GatewayEvent::Finished(finished)).ok();
    }
}

/// The maximum cost of a request: of its input, and in total.
pub(super) fn at_most(priced: Priced<'_>, view: &MessagesView, max_tokens: u64) -> (Cost, Cost) {
    let input = priced.input_at_most(view.input_tokens, view.cache_writes);
    (input, input.plus(priced.output_at_most(view.input_tokens, max_tokens)))
}

impl Account {
    pub fn open(
        accounts: Arc<Accounts>,
        info: RequestInfo,
        view: &MessagesView,
        billing: Billing,
        reserved: Reserved,
    ) -> Self {
        let Reserved { reservation, input } = reserved;
        Self {
            accounts,
            info,
            model: view.model.clone(),
            speed: view.speed,
            max_tokens: view.max_tokens.unwrap_or(0),
            billing,
            reservation: Some(reservation),
            input,
            stage: Stage::Held,
            first_byte: None,
            received_bytes: 0,
            revised: false,
        }
    }

    pub fn sent(&mut self) {
        self.stage = Stage::Sent;
    }

    /// Nothing of the request was sent.
    pub fn not_sent(&mut self) {
        self.stage = Stage::Held;
    }

    /// The head of the response arrived.
    pub fn answered(&mut self, status: u16) {
        self.stage = Stage::Answered(status);
    }

    /// A piece of the response arrived; `known` is the token count so far.
    pub fn received(&mut self, bytes: usize, known: Option<TokenCount>) {
        self.first_byte.get_or_insert_with(Instant::now);
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
        if let (Some(tokens), false) = (known, self.revised) {
            self.revised = true;
            self.revise(tokens);
        }
    }

    /// Reserves for the input that the model has really read, instead of the estimate from the request's size.
    fn revise(&mut self, tokens: TokenCount) {
        let Some(priced) = self.accounts.prices.find(&self.model, self.speed) else { return };
        let read = priced.cost(&TokenCount { output: 0, ..tokens });
        let most = read.plus(priced.output_at_most(tokens.all_input(), self.max_tokens));
        if let Some(reservation) = &mut self.reservation {
            reservation.revise(most);
        }
    }

    /// Closes the account: the counted tokens decide what is due.
    pub fn close(mut self, end: RequestEnd, status: Option<u16>, reading: &Reading) {
        self.settle(end, status, reading);
    }

    fn settle(&mut self, end: RequestEnd, status: Option<u16>, reading: &Reading) {
        let Some(reservation) = self.reservation.take() else { return };
        let model = reading.model.as_deref().unwrap_or(&self.model);
        let speed = reading.speed.unwrap_or(self.speed);
        let prices = &self.accounts.prices;
        let priced = prices.find(model, speed).or_else(|| prices.find(&self.model, speed));
        let good = matches!(self.stage, Stage::Answered(200..=299));
        let (tokens, due) = match (self.stage, reading.tokens) {
            (Stage::Held, _) => (None, Cost::ZERO),
            (Stage::Sent, _) => (None, self.input),
            (Stage::Answered(_), Some(count)) if good => {
                let by = if reading.is_final { CountedBy::Answer } else { CountedBy::ReceivedText };
                let cost = priced.map_or(Cost::ZERO, |priced| priced.cost(&count));
                (Some(CountedTokens { count, by }), cost)
            }
            // A response without a token count is charged as it was reserved.
            (Stage::Answered(_), None) if good => (None, reservation.amount()),
            // An error costs nothing.
            (Stage::Answered(_), _) => (None, Cost::ZERO),
        };
        reservation.settle(due);
        let cost = priced.map(|_| due);
        match tokens {
            Some(tokens) => self.accounts.totals().add(model, tokens.count, cost),
            None if good && self.billing == Billing::ByTokens => self.accounts.totals().add_uncounted(),
            None => (),
        }
        self.accounts.finished(RequestFinished {
            request: self.info.request,
            model: Some(model.to_owned()),
            agent: self.info.agent.clone(),
            status,
            end,
            tokens,
            cost,
            duration: self.info.since.elapsed(),
            first_byte: self.first_byte.map(|at| at.duration_since(self.info.since)),
            sent_bytes: self.info.sent_bytes,
            received_bytes: self.received_bytes,
        });
    }
}

impl Drop for Account {
    /// An account is dropped only when the client has left.
    fn drop(&mut self) {
        let status = match self.stage {
            Stage::Answered(status) => Some(status),
            Stage::Held | Stage::Sent => None,
        };
        self.settle(RequestEnd::ClientLeft, status, &Reading::default());
    }
}
