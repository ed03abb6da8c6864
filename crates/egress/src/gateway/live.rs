//! The live model: each request is looked at, paid for out of the budget, given the credential and sent to the model's
//! host; its answer passes as it comes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_contract::{Scrubber, Usd};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::{HeaderMap, Response, StatusCode, Uri};

use super::account::{Account, Aside, Asker, Billing, Books, at_most};
use super::answer::{Answer, AnswerBody, Answering, Asked, HangUp, document_answer};
use super::budget::Budget;
use super::connect::{Dialler, Link};
use super::credential::{CredentialError, FoundCredential};
use super::event::{GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished, RequestStarted};
use super::headers;
use super::members;
use super::messages::MessagesView;
use super::money::Cost;
use super::pool::{Outgoing, Pool, SendError};
use super::prices::PriceTable;
use super::provider_tools::{ProviderTools, Screening, strip};
use super::refusal::Refusal;
use super::relay::{RelayBody, Running, meter};
use super::routes::{Route, route};
use super::upstream::Upstream;
use super::usage::{Meter, Reading, UsageTotals};
use crate::coding::unsearchable;
use crate::resolve::Resolve;
use crate::tls::TlsClient;

/// Mark of a sub-agent's requests.
const AGENT_ID_HEADER: &str = "x-claude-code-agent-id";

/// Bytes of a sub-agent's mark that are kept.
const AGENT_ID_BYTES: usize = 128;

/// Bytes of an answer that is an error.
const MAX_ERROR_BYTES: usize = 256 * 1024;

/// How long upstream may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimes {
    /// For a connection, TLS included.
    pub connect_within: Duration,
    /// From a request to the head of its answer. A model that thinks long streams nothing for minutes.
    pub first_byte_within: Duration,
    /// Between two pieces of an answer.
    pub silent_within: Duration,
    /// For which a connection waits for its next request.
    pub idle_within: Duration,
}

impl Default for UpstreamTimes {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(15),
            first_byte_within: Duration::from_secs(600),
            silent_within: Duration::from_secs(300),
            idle_within: Duration::from_secs(90),
        }
    }
}

/// What a live gateway is made of.
pub struct LiveSetup {
    /// Where the model is.
    pub upstream: Upstream,
    /// How its name becomes an address.
    pub resolver: Arc<dyn Resolve>,
    /// How TLS is spoken to it.
    pub tls: TlsClient,
    /// The credential, or why there is none: then the first request says so.
    pub credential: Result<FoundCredential, CredentialError>,
    /// What may be spent.
    pub cap: Option<Usd>,
    /// What things cost.
    pub prices: PriceTable,
    /// What the provider may do on its own.
    pub provider_tools: ProviderTools,
    /// How long upstream may take.
    pub times: UpstreamTimes,
    /// Who hears of it.
    pub sink: Arc<dyn GatewaySink>,
}

/// Answers by the live model.
#[derive(Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

struct Shared {
    upstream: Upstream,
    /// Knows the credential.
    scrubber: Arc<Scrubber>,
    credential: Result<FoundCredential, CredentialError>,
    provider_tools: ProviderTools,
    times: UpstreamTimes,
    books: Arc<Books>,
    pool: Arc<Pool>,
    requests: AtomicU64,
    /// Once the credential was refused no request goes upstream.
    refused: Mutex<Option<GatewayTrouble>>,
    told: Mutex<Vec<std::mem::Discriminant<GatewayTrouble>>>,
}

impl Live {
    /// A gateway to the live model. Nothing is dialled before the first request.
    pub fn new(setup: LiveSetup) -> Self {
        let LiveSetup { upstream, resolver, tls, credential, cap, prices, provider_tools, times, sink } =
            setup;
        let budget = Budget::new(cap.map(Cost::from));
        let known =
            credential.as_ref().ok().map(|found| (found.source.to_string(), found.credential.secret()));
        let known = known.iter().map(|(name, secret)| (name.as_str(), *secret));
        // One credential is never too many to be searched for; one that is too short to be is no credential.
        let (scrubber, _) = Scrubber::new(known);
        let scrubber = Arc::new(scrubber);
        let dialler =
            Dialler { upstream: upstream.clone(), resolver, tls, connect_within: times.connect_within };
        let shared = Shared {
            upstream,
            scrubber,
            credential,
            provider_tools,
            times,
            books: Arc::new(Books::new(prices, budget, sink)),
            pool: Arc::new(Pool::new(dialler, times.idle_within)),
            requests: AtomicU64::new(0),
            refused: Mutex::new(None),
            told: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What was used so far.
    pub fn totals(&self) -> UsageTotals {
        self.shared.books.totals().clone()
    }

    /// What was charged against the cap so far: answers as they were counted, and the rest as it was claimed.
    pub fn spent(&self) -> Cost {
        self.shared.books.budget.spent()
    }
}

impl Answer for Live {
    fn answer(&self, asked: Asked) -> Answering {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok::<_, HangUp>(shared.answer(asked).await) })
    }
}

impl Shared {
    async fn answer(&self, asked: Asked) -> Response<AnswerBody> {
        let asker = Asker {
            request: self.requests.fetch_add(1, Ordering::Relaxed),
            agent: agent_id(&asked.headers),
            since: Instant::now(),
            sent_bytes: asked.body.as_ref().map_or(0, Bytes::len) as u64,
        };
        let Asked { method, uri, headers, body } = asked;
        let path = uri.path();
        let (route, path) = match route(&method, path) {
            Route::Health => {
                return document_answer(StatusCode::OK, Bytes::from_static(b"{\"type\":\"gateway\"}"));
            }
            Route::Messages => (Route::Messages, "/v1/messages"),
            Route::CountTokens => (Route::CountTokens, "/v1/messages/count_tokens"),
            Route::OtherMethod { allowed } => {
                return self.refuse(&asker, None, Refusal::OtherMethod { path: path.to_owned(), allowed });
            }
            Route::Unknown => {
                return self.refuse(&asker, None, Refusal::Unknown { method, path: path.to_owned() });
            }
        };
        let body = match body {
            Ok(body) => body,
            Err(fault) => return self.refuse(&asker, None, Refusal::Body(fault)),
        };
        match self.forward(&asker, Forward { route, path, uri: &uri, headers: &headers, body }).await {
            Ok(response) => response,
            Err((model, refusal)) => self.refuse(&asker, model, refusal),
        }
    }

    /// Sends a request on, unless something speaks against it.
    async fn forward(
        &self,
        asker: &Asker,
        forward: Forward<'_>,
    ) -> Result<Response<AnswerBody>, (Option<String>, Refusal)> {
        let credential = self.credential().map_err(|trouble| (None, Refusal::Trouble(trouble)))?;
        let (known, unknown) =
            members::known(&forward.body).map_err(|fault| (None, Refusal::NotMessages(fault)))?;
        let forward = Forward { body: known.map_or(forward.body, Bytes::from), ..forward };
        let view = MessagesView::read(&forward.body).map_err(|fault| (None, Refusal::NotMessages(fault)))?;
        let refused = |refusal| (Some(view.model.clone()), refusal);
        let (body, mut stripped) = self.screened(&view, forward.body).map_err(refused)?;
        stripped.extend(unknown);
        let outgoing = Outgoing {
            path: self.upstream.path(forward.path, forward.uri.query()),
            headers: headers::for_upstream(forward.headers, &credential.credential)
                .map_err(|_invalid| refused(Refusal::Trouble(unsendable(credential))))?,
            body,
        };
        let mut account = self.account(asker, &view, forward.route).await.map_err(refused)?;
        // It may have been refused while this one waited for its money.
        if let Err(trouble) = self.credential() {
            return Ok(close(account, RequestEnd::Refused, &Refusal::Trouble(trouble)));
        }
        let started = RequestStarted {
            request: asker.request,
            upstream: self.upstream.destination().to_string(),
            path: forward.path,
            model: view.model.clone(),
            agent: asker.agent.clone(),
            stripped,
        };
        if let Err(error) = self.books.sink.emit(GatewayEvent::Started(started)) {
            let refusal = Refusal::NotKept(error.to_string());
            return Ok(close(account, RequestEnd::Refused, &refusal));
        }
        account.sent();
        let sending = tokio::time::timeout(self.times.first_byte_within, self.pool.send(&outgoing)).await;
        let (response, link) = match sending {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                if let SendError::Connect(_) | SendError::Form(_) = error {
                    account.not_sent();
                }
                return Ok(close(account, RequestEnd::Failed, &self.failed(error)));
            }
            Err(_late) => {
                return Ok(close(account, RequestEnd::Failed, &Refusal::Late(self.times.first_byte_within)));
            }
        };
        drop(outgoing);
        let passing = Passing { route: forward.route, credential, account, link };
        Ok(self.pass(passing, response).await)
    }

    /// Passes an answer on. A host that repeats the credential must not hand it to the agent: a header that holds it is
    /// left out, an error is not passed on, and in other answers it is taken out as they pass.
    async fn pass(&self, passing: Passing<'_>, response: Response<Incoming>) -> Response<AnswerBody> {
        let Passing { route, credential, mut account, link } = passing;
        let (head, incoming) = response.into_parts();
        let status = head.status;
        account.answered(status.as_u16());
        let coded = unsearchable(&head.headers).map(|coding| Refusal::Coded {
            upstream: self.upstream.destination().to_string(),
            coding: self.scrubber.scrub(&coding),
        });
        let mut headers = headers::for_agent(&head.headers);
        let repeated = headers.iter().filter(|(_, value)| credential.credential.is_in(value.as_bytes()));
        let repeated: Vec<_> = repeated.map(|(name, _)| name.clone()).collect();
        for name in repeated {
            headers.remove(name);
        }
        if !status.is_success() {
            let passing = Passing { route, credential, account, link };
            return self.pass_error(passing, status, headers, incoming, coded).await;
        }
        if let Some(refusal) = coded {
            return close(account, RequestEnd::Failed, &refusal);
        }
        let meter = match route {
            Route::Messages => meter(&head.headers),
            Route::CountTokens | Route::Health | Route::OtherMethod { .. } | Route::Unknown => Meter::Blind,
        };
        let running = Running { meter, account, status: status.as_u16(), link, pool: Arc::clone(&self.pool) };
        // The length may change on the way.
        headers.remove(CONTENT_LENGTH);
        let scrubbed = self.scrubber.stream();
        let body = RelayBody::new(incoming, scrubbed, self.times.silent_within, running).boxed_unsync();
        with_head(body, status, headers)
    }

    /// Passes an error on, or what is said instead of it.
    async fn pass_error(
        &self,
        passing: Passing<'_>,
        status: StatusCode,
        mut headers: HeaderMap,
        incoming: Incoming,
        coded: Option<Refusal>,
    ) -> Response<AnswerBody> {
        let Passing { route: _, credential: found, mut account, link } = passing;
        let reading = Limited::new(incoming, MAX_ERROR_BYTES).collect();
        let body = match tokio::time::timeout(self.times.silent_within, reading).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            // The status says enough.
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        account.received(body.len(), None);
        let repeats = found.credential.is_in(&body);
        if let StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN = status {
            let said = match &coded {
                Some(_) => "(it cannot be read)".to_owned(),
                None if repeats => "(it repeats the credential)".to_owned(),
                None => message_of(&body),
            };
            let trouble = GatewayTrouble::CredentialRefused {
                from: found.source,
                upstream: self.upstream.destination().to_string(),
                status: status.as_u16(),
                said,
            };
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble.clone());
            self.tell(&trouble);
            return close(account, RequestEnd::Failed, &Refusal::Trouble(trouble));
        }
        if status.is_redirection() || status.is_informational() {
            return close(account, RequestEnd::Failed, &Refusal::Redirect(status));
        }
        if let Some(refusal) = coded {
            return close(account, RequestEnd::Failed, &refusal);
        }
        if repeats {
            return close(account, RequestEnd::Failed, &Refusal::Repeats(status));
        }
        account.close(RequestEnd::Complete, Some(status.as_u16()), &Reading::default());
        self.pool.give_back(link);
        // The length is that of what was read, which upstream may have announced otherwise.
        headers.remove(CONTENT_LENGTH);
        with_head(Full::new(body).map_err(|never| match never {}).boxed_unsync(), status, headers)
    }

    /// The credential, unless there is none or it was refused.
    fn credential(&self) -> Result<&FoundCredential, GatewayTrouble> {
        if let Some(trouble) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(trouble.clone());
        }
        self.credential.as_ref().map_err(|error| GatewayTrouble::NoCredential(error.clone()))
    }

    /// The body without what the provider may not do, and the names of that.
    fn screened(&self, view: &MessagesView, body: Bytes) -> Result<(Bytes, Vec<String>), Refusal> {
        match self.provider_tools.screen(view) {
            Screening::Pass => Ok((body, Vec::new())),
            Screening::Strip { tools, names } => Ok((Bytes::from(strip(&body, &view.tools, &tools)), names)),
            Screening::Refuse { name } => Err(Refusal::ProviderTool { name }),
        }
    }

    /// Opens the account of a request, with the most that it can cost set aside.
    async fn account(&self, asker: &Asker, view: &MessagesView, route: Route) -> Result<Account, Refusal> {
        let budget = &self.books.budget;
        let priced = self.books.prices.find(&view.model, view.speed);
        let (input, most) = match (route, priced) {
            (Route::Messages, Some(priced)) => {
                let max_tokens = match view.max_tokens {
                    Some(max_tokens) => max_tokens,
                    None if budget.is_capped() => return Err(Refusal::NoMaxTokens),
                    None => 0,
                };
                at_most(priced, view, max_tokens)
            }
            (Route::Messages, None) if budget.is_capped() => {
                return Err(Refusal::Trouble(GatewayTrouble::Unpriced { model: view.model.clone() }));
            }
            (
                Route::Messages
                | Route::CountTokens
                | Route::Health
                | Route::OtherMethod { .. }
                | Route::Unknown,
                _,
            ) => (Cost::ZERO, Cost::ZERO),
        };
        let claim = budget.claim(most).await.map_err(|reached| {
            Refusal::Trouble(GatewayTrouble::BudgetReached {
                cap: reached.cap,
                spent: reached.spent,
                claim: most,
                model: view.model.clone(),
            })
        })?;
        let billing = match route {
            Route::Messages => Billing::ByTokens,
            Route::CountTokens | Route::Health | Route::OtherMethod { .. } | Route::Unknown => Billing::Free,
        };
        Ok(Account::open(Arc::clone(&self.books), asker.clone(), view, billing, Aside { claim, input }))
    }

    /// What the agent is told when a request could not be sent or was not answered.
    fn failed(&self, error: SendError) -> Refusal {
        match error {
            SendError::Connect(error) => {
                let again = super::refusal::again_after(&error);
                let trouble = GatewayTrouble::Unreachable {
                    upstream: self.upstream.destination().to_string(),
                    cause: error.to_string(),
                };
                self.tell(&trouble);
                Refusal::Unreachable { trouble, again }
            }
            SendError::Broken(error) => Refusal::Broken(error.to_string()),
            SendError::Form(error) => Refusal::Broken(error.to_string()),
        }
    }

    /// Answers a request that goes no further.
    fn refuse(&self, asker: &Asker, model: Option<String>, refusal: Refusal) -> Response<AnswerBody> {
        if let Refusal::Trouble(trouble) = &refusal {
            self.tell(trouble);
        }
        self.books.finished(RequestFinished {
            request: asker.request,
            model,
            agent: asker.agent.clone(),
            status: Some(refusal.status().as_u16()),
            end: RequestEnd::Refused(refusal.to_string()),
            tokens: None,
            cost: None,
            duration: asker.since.elapsed(),
            first_byte: None,
            sent_bytes: 0,
            received_bytes: 0,
        });
        refusal.answer()
    }

    /// Tells of each kind of trouble once.
    fn tell(&self, trouble: &GatewayTrouble) {
        let kind = std::mem::discriminant(trouble);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&kind) {
            told.push(kind);
            drop(told);
            // Who cannot keep it will not keep the start of the next request either, which is then refused.
            self.books.sink.emit(GatewayEvent::Trouble(trouble.clone())).ok();
        }
    }
}

/// A request that was sent, and whose answer has come.
struct Passing<'a> {
    route: Route,
    credential: &'a FoundCredential,
    account: Account,
    link: Link,
}

/// A request on its way upstream.
struct Forward<'a> {
    route: Route,
    path: &'static str,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: Bytes,
}

/// Closes the account of a request that gets an answer of ours.
fn close(account: Account, end: fn(String) -> RequestEnd, refusal: &Refusal) -> Response<AnswerBody> {
    account.close(end(refusal.to_string()), Some(refusal.status().as_u16()), &Reading::default());
    refusal.answer()
}

fn unsendable(credential: &FoundCredential) -> GatewayTrouble {
    GatewayTrouble::NoCredential(CredentialError::Characters(credential.source))
}

fn with_head(body: AnswerBody, status: StatusCode, headers: HeaderMap) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn agent_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AGENT_ID_HEADER)?.to_str().ok()?;
    Some(text.chars().take(AGENT_ID_BYTES).collect())
}

/// The words of an error of the API, as far as they can be shown. The agent replaces every text with the header's name
/// in it by a hint of its own, which would hide ours.
fn message_of(body: &[u8]) -> String {
    const CHARS: usize = 300;
    let message = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = message.and_then(|error| error["error"]["message"].as_str().map(str::to_owned));
    let shown = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let shown = shown.replace("x-api-key", "API key");
    shown.chars().filter(|letter| !letter.is_control()).take(CHARS).collect()
}
