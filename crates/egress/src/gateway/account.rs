//! The account of one request: what was claimed for it, what it cost, and the word that it is over.

use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::budget::{Budget, Claim};
use super::event::{CountedBy, CountedTokens, GatewayEvent, GatewaySink, RequestEnd, RequestFinished};
use super::messages::MessagesView;
use super::money::Cost;
use super::prices::{PriceTable, Priced, Speed};
use super::usage::{Reading, TokenCount, UsageTotals};

/// What all requests of a gateway are charged to.
pub(super) struct Books {
    pub prices: PriceTable,
    pub budget: Arc<Budget>,
    pub sink: Arc<dyn GatewaySink>,
    totals: Mutex<UsageTotals>,
}

/// Who asked, and when.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub request: u64,
    pub agent: Option<String>,
    pub since: Instant,
    pub sent_bytes: u64,
}

/// The account of a request that costs money. It ends once: by [`Account::close`], or as left by the client.
pub(super) struct Account {
    books: Arc<Books>,
    asker: Asker,
    model: String,
    speed: Speed,
    max_tokens: u64,
    billing: Billing,
    claim: Option<Claim>,
    /// The part of the claim that is due once the request was sent.
    input: Cost,
    stage: Stage,
    first_byte: Option<Instant>,
    received_bytes: u64,
    revised: bool,
}

/// Whether answers cost anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Billing {
    ByTokens,
    Free,
}

/// What was set aside for a request: all of it, and the part that its input makes.
pub(super) struct Aside {
    pub claim: Claim,
    pub input: Cost,
}

/// How far a request has come, which decides what is due if it ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent: nothing is due.
    Held,
    /// It was sent, and no answer began. The model may have read it: its input is due.
    Sent,
    /// An answer began with this status.
    Answered(u16),
}

impl Books {
    pub fn new(prices: PriceTable, budget: Arc<Budget>, sink: Arc<dyn GatewaySink>) -> Self {
        Self { prices, budget, sink, totals: Mutex::default() }
    }

    pub fn totals(&self) -> MutexGuard<'_, UsageTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word that a request is over. Nobody can be told that it could not be kept; the next start will fail too.
    pub fn finished(&self, finished: RequestFinished) {
        self.sink.emit(GatewayEvent::Finished(finished)).ok();
    }
}

/// The most that a request can cost: its input, and all of it.
pub(super) fn at_most(priced: Priced<'_>, view: &MessagesView, max_tokens: u64) -> (Cost, Cost) {
    let input = priced.input_at_most(view.input_tokens, view.cache_writes);
    (input, input.plus(priced.output_at_most(view.input_tokens, max_tokens)))
}

impl Account {
    pub fn open(
        books: Arc<Books>,
        asker: Asker,
        view: &MessagesView,
        billing: Billing,
        aside: Aside,
    ) -> Self {
        let Aside { claim, input } = aside;
        Self {
            books,
            asker,
            model: view.model.clone(),
            speed: view.speed,
            max_tokens: view.max_tokens.unwrap_or(0),
            billing,
            claim: Some(claim),
            input,
            stage: Stage::Held,
            first_byte: None,
            received_bytes: 0,
            revised: false,
        }
    }

    /// The request is on its way.
    pub fn sent(&mut self) {
        self.stage = Stage::Sent;
    }

    /// Nothing of it was sent after all.
    pub fn not_sent(&mut self) {
        self.stage = Stage::Held;
    }

    /// The head of its answer came.
    pub fn answered(&mut self, status: u16) {
        self.stage = Stage::Answered(status);
    }

    /// A piece of its answer came; `known` is what it has told of its tokens.
    pub fn received(&mut self, bytes: usize, known: Option<TokenCount>) {
        self.first_byte.get_or_insert_with(Instant::now);
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
        if let (Some(tokens), false) = (known, self.revised) {
            self.revised = true;
            self.revise(tokens);
        }
    }

    /// Claims with the input that the model has really read instead of the one that its size suggested.
    fn revise(&mut self, tokens: TokenCount) {
        let Some(priced) = self.books.prices.find(&self.model, self.speed) else { return };
        let read = priced.cost(&TokenCount { output: 0, ..tokens });
        let most = read.plus(priced.output_at_most(tokens.all_input(), self.max_tokens));
        if let Some(claim) = &mut self.claim {
            claim.revise(most);
        }
    }

    /// Ends the account: what was read of the answer decides what is due.
    pub fn close(mut self, end: RequestEnd, status: Option<u16>, reading: &Reading) {
        self.settle(end, status, reading);
    }

    fn settle(&mut self, end: RequestEnd, status: Option<u16>, reading: &Reading) {
        let Some(claim) = self.claim.take() else { return };
        let model = reading.model.as_deref().unwrap_or(&self.model);
        let speed = reading.speed.unwrap_or(self.speed);
        let prices = &self.books.prices;
        let priced = prices.find(model, speed).or_else(|| prices.find(&self.model, speed));
        let good = matches!(self.stage, Stage::Answered(200..=299));
        let (tokens, due) = match (self.stage, reading.tokens) {
            (Stage::Held, _) => (None, Cost::ZERO),
            (Stage::Sent, _) => (None, self.input),
            (Stage::Answered(_), Some(count)) if good => {
                let by = if reading.is_final { CountedBy::Answer } else { CountedBy::TextThatCame };
                let cost = priced.map_or(Cost::ZERO, |priced| priced.cost(&count));
                (Some(CountedTokens { count, by }), cost)
            }
            // An answer that does not tell is charged as it was claimed.
            (Stage::Answered(_), None) if good => (None, claim.amount()),
            // A refusal costs nothing.
            (Stage::Answered(_), _) => (None, Cost::ZERO),
        };
        claim.settle(due);
        let cost = priced.map(|_| due);
        match tokens {
            Some(tokens) => self.books.totals().add(model, tokens.count, cost),
            None if good && self.billing == Billing::ByTokens => self.books.totals().add_uncounted(),
            None => (),
        }
        self.books.finished(RequestFinished {
            request: self.asker.request,
            model: Some(model.to_owned()),
            agent: self.asker.agent.clone(),
            status,
            end,
            tokens,
            cost,
            duration: self.asker.since.elapsed(),
            first_byte: self.first_byte.map(|at| at.duration_since(self.asker.since)),
            sent_bytes: self.asker.sent_bytes,
            received_bytes: self.received_bytes,
        });
    }
}

impl Drop for Account {
    /// Only a client that leaves drops an account.
    fn drop(&mut self) {
        let status = match self.stage {
            Stage::Answered(status) => Some(status),
            Stage::Held | Stage::Sent => None,
        };
        self.settle(RequestEnd::ClientLeft, status, &Reading::default());
    }
}
