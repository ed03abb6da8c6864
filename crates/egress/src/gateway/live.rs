//! The live model: each request is checked, charged to the budget, and sent to the model's host with the credential. The
//! response is relayed as it arrives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_contract::{Scrubber, Usd};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::{HeaderMap, Response, StatusCode, Uri};

use super::account::{Account, Accounts, Billing, RequestInfo, Reserved, at_most};
use super::answer::{AnswerBody, AnswerFuture, GatewayRequest, HangUp, Responder, document_answer};
use super::budget::Budget;
use super::connect::{Dialler, Link};
use super::credential::{FoundCredential, ModelCredentialError, output_tokens};
use super::event::{GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished, RequestStarted};
use super::messages_api::{
    AGENT_ID_HEADER, MessagesView, Meter, PriceTable, ProviderTools, Reading, Route, Screening, UsageTotals,
    headers, members, route, strip,
};
use super::money::Cost;
use super::pool::{Pool, SendError, UpstreamRequest};
use super::refusal::GatewayRefusal;
use super::relay::{RelayBody, Settlement, meter};
use super::upstream::Upstream;
use crate::coding::unsearchable;
use crate::resolve::Resolve;
use crate::tls::TlsClient;

/// How many characters of a sub-agent's id are kept.
const AGENT_ID_BYTES: usize = 128;

/// Limit for the body of an error response.
const MAX_ERROR_BYTES: usize = 256 * 1024;

/// Timeouts towards the model's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimes {
    /// For connecting, including TLS.
    pub connect_within: Duration,
    /// From a request to the head of its response. A model that thinks long sends nothing for minutes.
    pub first_byte_within: Duration,
    /// Between two pieces of a response.
    pub silent_within: Duration,
    /// How long an idle connection is kept.
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

/// Everything that the live model needs.
pub struct LiveSetup {
    pub upstream: Upstream,
    pub resolver: Arc<dyn Resolve>,
    pub tls: TlsClient,
    /// The credential, or why there is none; in that case the first request fails with the reason.
    pub credential: Result<FoundCredential, ModelCredentialError>,
    /// The most that may be spent.
    pub cap: Option<Usd>,
    pub prices: PriceTable,
    /// Tools of the provider that the run may use.
    pub provider_tools: ProviderTools,
    pub times: UpstreamTimes,
    /// Receives the events.
    pub sink: Arc<dyn GatewaySink>,
}

/// Answers requests with the live model.
#[derive(Clone)]
pub struct Live {
    shared: Arc<LiveInner>,
}

struct LiveInner {
    upstream: Upstream,
    /// Redacts the credential.
    scrubber: Arc<Scrubber>,
    credential: Result<FoundCredential, ModelCredentialError>,
    provider_tools: ProviderTools,
    times: UpstreamTimes,
    accounts: Arc<Accounts>,
    pool: Arc<Pool>,
    requests: AtomicU64,
    /// Once the host has refused the credential, no request is sent any more.
    refused: Mutex<Option<GatewayTrouble>>,
    reported: Mutex<Vec<std::mem::Discriminant<GatewayTrouble>>>,
}

impl Live {
    /// Creates the backend. Nothing is dialled before the first request.
    pub fn new(setup: LiveSetup) -> Self {
        let LiveSetup { upstream, resolver, tls, credential, cap, prices, provider_tools, times, sink } =
            setup;
        let budget = Budget::new(cap.map(Cost::from));
        let known =
            credential.as_ref().ok().map(|found| (found.source.to_string(), found.credential.secret()));
        let known = known.iter().map(|(name, secret)| (name.as_str(), *secret));
        // A single credential never exceeds the scrubber's limits. One that is too short to be redacted is not a credential.
        let (scrubber, _) = Scrubber::new(known);
        let scrubber = Arc::new(scrubber);
        let dialler =
            Dialler { upstream: upstream.clone(), resolver, tls, connect_within: times.connect_within };
        let shared = LiveInner {
            upstream,
            scrubber,
            credential,
            provider_tools,
            times,
            accounts: Arc::new(Accounts::new(prices, budget, sink)),
            pool: Arc::new(Pool::new(dialler, times.idle_within)),
            requests: AtomicU64::new(0),
            refused: Mutex::new(None),
            reported: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Tokens and cost so far.
    pub fn totals(&self) -> UsageTotals {
        self.shared.accounts.totals().clone()
    }

    /// What was charged against the cap so far: the counted cost of responses, and reservations where no count is known.
    pub fn spent(&self) -> Cost {
        self.shared.accounts.budget.spent()
    }
}

impl Responder for Live {
    fn answer(&self, asked: GatewayRequest) -> AnswerFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok::<_, HangUp>(shared.answer(asked).await) })
    }
}

impl LiveInner {
    async fn answer(&self, asked: GatewayRequest) -> Response<AnswerBody> {
        let info = RequestInfo {
            request: self.requests.fetch_add(1, Ordering::Relaxed),
            agent: agent_id(&asked.headers),
            since: Instant::now(),
            sent_bytes: asked.body.as_ref().map_or(0, Bytes::len) as u64,
        };
        let GatewayRequest { method, uri, headers, body } = asked;
        let path = uri.path();
        let (route, path) = match route(&method, path) {
            Route::Health => {
                return document_answer(StatusCode::OK, Bytes::from_static(b"{\"type\":\"gateway\"}"));
            }
            Route::Messages => (Route::Messages, "/v1/messages"),
            Route::CountTokens => (Route::CountTokens, "/v1/messages/count_tokens"),
            Route::OtherMethod { allowed } => {
                return self.refuse(
                    &info,
                    None,
                    GatewayRefusal::OtherMethod { path: path.to_owned(), allowed },
                );
            }
            Route::Unknown => {
                return self.refuse(&info, None, GatewayRefusal::Unknown { method, path: path.to_owned() });
            }
        };
        let body = match body {
            Ok(body) => body,
            Err(fault) => return self.refuse(&info, None, GatewayRefusal::Body(fault)),
        };
        match self.forward(&info, Forward { route, path, uri: &uri, headers: &headers, body }).await {
            Ok(response) => response,
            Err((model, refusal)) => self.refuse(&info, model, refusal),
        }
    }

    /// Forwards a request, unless it has to be refused.
    async fn forward(
        &self,
        info: &RequestInfo,
        forward: Forward<'_>,
    ) -> Result<Response<AnswerBody>, (Option<String>, GatewayRefusal)> {
        let credential = self.credential().map_err(|trouble| (None, GatewayRefusal::Trouble(trouble)))?;
        let (known, unknown) =
            members::known(&forward.body).map_err(|fault| (None, GatewayRefusal::InvalidRequest(fault)))?;
        let forward = Forward { body: known.map_or(forward.body, Bytes::from), ..forward };
        let view = MessagesView::read(&forward.body)
            .map_err(|fault| (None, GatewayRefusal::InvalidRequest(fault)))?;
        let refused = |refusal| (Some(view.model.clone()), refusal);
        let (body, mut stripped) = self.screened(&view, forward.body).map_err(refused)?;
        stripped.extend(unknown);
        let outgoing = UpstreamRequest {
            path: self.upstream.path(forward.path, forward.uri.query()),
            headers: headers::for_upstream(forward.headers, &credential.credential)
                .map_err(|_invalid| refused(GatewayRefusal::Trouble(unsendable(credential))))?,
            body,
        };
        let mut account = self.account(info, &view, forward.route).await.map_err(refused)?;
        // The credential may have been refused while this request waited for the budget.
        if let Err(trouble) = self.credential() {
            return Ok(close(account, RequestEnd::Refused, &GatewayRefusal::Trouble(trouble)));
        }
        let started = RequestStarted {
            request: info.request,
            upstream: self.upstream.destination().to_string(),
            path: forward.path,
            model: view.model.clone(),
            agent: info.agent.clone(),
            stripped,
        };
        if let Err(error) = self.accounts.sink.emit(GatewayEvent::Started(started)) {
            let refusal = GatewayRefusal::NotLogged(error.to_string());
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
                return Ok(close(
                    account,
                    RequestEnd::Failed,
                    &GatewayRefusal::Late(self.times.first_byte_within),
                ));
            }
        };
        drop(outgoing);
        let passing = ArrivedResponse { route: forward.route, credential, account, link };
        Ok(self.pass(passing, response).await)
    }

    /// Relays a response. A host that repeats the credential must not reveal it to the agent: a header that contains it is
    /// removed, an error that contains it is withheld, and in other bodies it is redacted.
    async fn pass(&self, passing: ArrivedResponse<'_>, response: Response<Incoming>) -> Response<AnswerBody> {
        let ArrivedResponse { route, credential, mut account, link } = passing;
        let (head, incoming) = response.into_parts();
        let status = head.status;
        account.answered(status.as_u16());
        let coded = unsearchable(&head.headers).map(|coding| GatewayRefusal::Coded {
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
            let passing = ArrivedResponse { route, credential, account, link };
            return self.pass_error(passing, status, headers, incoming, coded).await;
        }
        if let Some(refusal) = coded {
            return close(account, RequestEnd::Failed, &refusal);
        }
        let meter = match route {
            Route::Messages => meter(&head.headers),
            Route::CountTokens | Route::Health | Route::OtherMethod { .. } | Route::Unknown => {
                Meter::Uncounted
            }
        };
        let running =
            Settlement { meter, account, status: status.as_u16(), link, pool: Arc::clone(&self.pool) };
        // Redaction may change the length.
        headers.remove(CONTENT_LENGTH);
        let scrubbed = self.scrubber.stream();
        let body = RelayBody::new(incoming, scrubbed, self.times.silent_within, running).boxed_unsync();
        with_head(body, status, headers)
    }

    /// Relays an error, or replaces it.
    async fn pass_error(
        &self,
        passing: ArrivedResponse<'_>,
        status: StatusCode,
        mut headers: HeaderMap,
        incoming: Incoming,
        coded: Option<GatewayRefusal>,
    ) -> Response<AnswerBody> {
        let ArrivedResponse { route: _, credential: found, mut account, link } = passing;
        let reading = Limited::new(incoming, MAX_ERROR_BYTES).collect();
        let body = match tokio::time::timeout(self.times.silent_within, reading).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            // The status is enough.
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
                from: Box::new(found.source.clone()),
                upstream: self.upstream.destination().to_string(),
                status: status.as_u16(),
                said,
            };
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble.clone());
            self.report(&trouble);
            return close(account, RequestEnd::Failed, &GatewayRefusal::Trouble(trouble));
        }
        if status.is_redirection() || status.is_informational() {
            return close(account, RequestEnd::Failed, &GatewayRefusal::Redirect(status));
        }
        if let Some(refusal) = coded {
            return close(account, RequestEnd::Failed, &refusal);
        }
        if repeats {
            return close(account, RequestEnd::Failed, &GatewayRefusal::Repeats(status));
        }
        account.close(RequestEnd::Complete, Some(status.as_u16()), &Reading::default());
        self.pool.give_back(link);
        // The length of the body that was read may differ from the announced one.
        headers.remove(CONTENT_LENGTH);
        with_head(Full::new(body).map_err(|never| match never {}).boxed_unsync(), status, headers)
    }

    /// The credential, unless there is none or the host has refused it.
    fn credential(&self) -> Result<&FoundCredential, GatewayTrouble> {
        if let Some(trouble) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(trouble.clone());
        }
        self.credential.as_ref().map_err(|error| GatewayTrouble::NoCredential(error.clone()))
    }

    /// The body without the provider tools that are not allowed, and their names.
    fn screened(&self, view: &MessagesView, body: Bytes) -> Result<(Bytes, Vec<String>), GatewayRefusal> {
        match self.provider_tools.screen(view) {
            Screening::Pass => Ok((body, Vec::new())),
            Screening::Strip { tools, names } => Ok((Bytes::from(strip(&body, &view.tools, &tools)), names)),
            Screening::Refuse { name } => Err(GatewayRefusal::ProviderTool { name }),
        }
    }

    /// Opens the account of a request and reserves its maximum cost.
    async fn account(
        &self,
        info: &RequestInfo,
        view: &MessagesView,
        route: Route,
    ) -> Result<Account, GatewayRefusal> {
        let budget = &self.accounts.budget;
        let priced = self.accounts.prices.find(&view.model, view.speed);
        let (input, most) = match (route, priced) {
            (Route::Messages, Some(priced)) => {
                let max_tokens = match view.max_tokens {
                    Some(max_tokens) => max_tokens,
                    None if budget.is_capped() => return Err(GatewayRefusal::NoMaxTokens),
                    None => 0,
                };
                at_most(priced, view, max_tokens)
            }
            (Route::Messages, None) if budget.is_capped() => {
                return Err(GatewayRefusal::Trouble(GatewayTrouble::Unpriced { model: view.model.clone() }));
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
        let reservation = budget.reserve(most).await.map_err(|reached| {
            GatewayRefusal::Trouble(GatewayTrouble::BudgetReached {
                cap: reached.cap,
                spent: reached.spent,
                at_most: most,
                model: view.model.clone(),
                output_tokens: output_tokens(&self.credential).clone(),
            })
        })?;
        let billing = match route {
            Route::Messages => Billing::ByTokens,
            Route::CountTokens | Route::Health | Route::OtherMethod { .. } | Route::Unknown => Billing::Free,
        };
        Ok(Account::open(
            Arc::clone(&self.accounts),
            info.clone(),
            view,
            billing,
            Reserved { reservation, input },
        ))
    }

    /// The error for a request that could not be sent or got no response.
    fn failed(&self, error: SendError) -> GatewayRefusal {
        match error {
            SendError::Connect(error) => {
                let retry = super::refusal::retry_after(&error);
                let trouble = GatewayTrouble::Unreachable {
                    upstream: self.upstream.destination().to_string(),
                    cause: error.to_string(),
                };
                self.report(&trouble);
                GatewayRefusal::Unreachable { trouble, retry }
            }
            SendError::Broken(error) => GatewayRefusal::Broken(error.to_string()),
            SendError::Form(error) => GatewayRefusal::Broken(error.to_string()),
        }
    }

    /// Answers a request that is not forwarded.
    fn refuse(
        &self,
        info: &RequestInfo,
        model: Option<String>,
        refusal: GatewayRefusal,
    ) -> Response<AnswerBody> {
        if let GatewayRefusal::Trouble(trouble) = &refusal {
            self.report(trouble);
        }
        self.accounts.finished(RequestFinished {
            request: info.request,
            model,
            agent: info.agent.clone(),
            status: Some(refusal.status().as_u16()),
            end: RequestEnd::Refused(refusal.to_string()),
            tokens: None,
            cost: None,
            duration: info.since.elapsed(),
            first_byte: None,
            sent_bytes: 0,
            received_bytes: 0,
        });
        refusal.answer()
    }

    /// Reports each kind of trouble once.
    fn report(&self, trouble: &GatewayTrouble) {
        let kind = std::mem::discriminant(trouble);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.contains(&kind) {
            reported.push(kind);
            drop(reported);
            // If the event cannot be kept, the start of the next request cannot either, and that request is refused.
            self.accounts.sink.emit(GatewayEvent::Trouble(trouble.clone())).ok();
        }
    }
}

/// A request whose response has arrived.
struct ArrivedResponse<'a> {
    route: Route,
    credential: &'a FoundCredential,
    account: Account,
    link: Link,
}

/// A request to forward.
struct Forward<'a> {
    route: Route,
    path: &'static str,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: Bytes,
}

/// Closes the account of a request that the gateway answers itself.
fn close(account: Account, end: fn(String) -> RequestEnd, refusal: &GatewayRefusal) -> Response<AnswerBody> {
    account.close(end(refusal.to_string()), Some(refusal.status().as_u16()), &Reading::default());
    refusal.answer()
}

fn unsendable(credential: &FoundCredential) -> GatewayTrouble {
    GatewayTrouble::NoCredential(ModelCredentialError::Characters { of: credential.source.clone() })
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

/// The message of an API error, shortened. The agent replaces every text that contains `x-api-key` by a hint of its own,
/// which would hide the message.
fn message_of(body: &[u8]) -> String {
    const CHARS: usize = 300;
    let message = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = message.and_then(|error| error["error"]["message"].as_str().map(str::to_owned));
    let shown = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let shown = shown.replace("x-api-key", "API key");
    shown.chars().filter(|letter| !letter.is_control()).take(CHARS).collect()
}
