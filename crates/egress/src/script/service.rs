//! Answers one request: routes, limits, and the response of the script.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};

use super::body::{BodyEnd, FramedBody};
use super::document::JsonText;
use super::format::{Cut, CutEnd, ErrorReply, ScriptReply, Turn, TurnAnswer};
use super::log::{AnsweredBy, Arrival, BodySeen, Ledger, headers_seen};
use super::matching::Sender;
use super::player::Choice;
use super::request::{Delivery, MessagesRequest};
use super::wire::{self, Envelope};
use crate::gateway::{AGENT_ID_HEADER, AnswerFuture, BodyFault, Broken, GatewayRequest, HangUp, Responder};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptRoute {
    Messages,
    CountTokens,
    Greeting,
    PostOnly,
    Unknown,
}

/// Answers requests from a script.
#[derive(Debug, Clone)]
pub(super) struct Scripted {
    pub ledger: Arc<Ledger>,
}

impl Responder for Scripted {
    fn answer(&self, asked: GatewayRequest) -> AnswerFuture {
        let scripted = self.clone();
        Box::pin(async move { Ok(scripted.play(asked).await?.map(BodyExt::boxed_unsync)) })
    }
}

impl Scripted {
    /// Logs a request and answers it.
    async fn play(self, asked: GatewayRequest) -> Result<Response<FramedBody>, HangUp> {
        let GatewayRequest { method, uri, headers, body } = asked;
        let route = route(&method, uri.path());
        let sender = if headers.contains_key(AGENT_ID_HEADER) { Sender::SubAgent } else { Sender::Main };
        let body_bytes = body.as_ref().map_or(0, Bytes::len);
        let (body, fault) = match body {
            Ok(bytes) => (seen(bytes), None),
            Err(fault @ (BodyFault::TooLarge { .. } | BodyFault::NoRoom)) => {
                (BodySeen::TooLarge, Some(fault))
            }
            Err(fault @ (BodyFault::Broken | BodyFault::Late)) => (BodySeen::Broken, Some(fault)),
        };
        let arrival = Arrival {
            method: method.to_string(),
            path: uri.path().to_owned(),
            query: uri.query().map(str::to_owned),
            headers: headers_seen(&headers),
            body,
            body_bytes,
        };
        if let Some(refusal) = refusal(route, &arrival, fault) {
            return Ok(self.refuse(arrival, refusal));
        }
        match route {
            ScriptRoute::Messages => self.messages(arrival, sender).await,
            ScriptRoute::CountTokens => {
                let request = self.ledger.enter(arrival, AnsweredBy::TokenCount);
                Ok(json_response(StatusCode::OK, wire::token_count(body_bytes), request))
            }
            ScriptRoute::Greeting | ScriptRoute::PostOnly | ScriptRoute::Unknown => {
                let request = self.ledger.enter(arrival, AnsweredBy::Greeting);
                Ok(json_response(StatusCode::OK, wire::greeting(), request))
            }
        }
    }

    async fn messages(self, arrival: Arrival, sender: Sender) -> Result<Response<FramedBody>, HangUp> {
        let body = if let BodySeen::Json(body) = &arrival.body { body.as_str() } else { "null" };
        let asked = match MessagesRequest::read(body, sender) {
            Ok(asked) => asked,
            Err(problem) => {
                let refusal = ErrorReply::new(400, problem.to_string());
                return Ok(self.refuse(arrival, refusal));
            }
        };
        let (request, choice) = self.ledger.play(arrival, &asked);
        let turn = match choice {
            Choice::Turn { index: _, turn } => turn,
            Choice::Side { text } | Choice::ExhaustedReply { text } => Turn::text(text),
            Choice::ExhaustedError { message } | Choice::NoneAccepts { message } => {
                Turn::error(ErrorReply::new(400, message))
            }
        };
        self.perform(turn, &asked, request).await
    }

    /// Performs a turn.
    async fn perform(
        self,
        turn: Turn,
        asked: &MessagesRequest,
        request: usize,
    ) -> Result<Response<FramedBody>, HangUp> {
        let Turn { note: _, when: _, delay_ms, answer } = turn;
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        match answer {
            TurnAnswer::HangUp => Err(HangUp),
            TurnAnswer::Error(error) => Ok(error_response(&error, request)),
            TurnAnswer::Reply(reply) => {
                let envelope = Envelope { request, model: &asked.model };
                Ok(match asked.delivery {
                    Delivery::Stream => streamed(&reply, envelope),
                    Delivery::Whole => whole(&reply, envelope),
                })
            }
        }
    }

    fn refuse(&self, arrival: Arrival, refusal: ErrorReply) -> Response<FramedBody> {
        let request = self.ledger.enter(arrival, AnsweredBy::Refused(refusal.status));
        error_response(&refusal, request)
    }
}

fn streamed(reply: &ScriptReply, envelope: Envelope<'_>) -> Response<FramedBody> {
    let mut events = wire::events(reply, envelope);
    let ending = match reply.cut {
        Some(Cut { after_events, end }) if after_events < events.len() => {
            events.truncate(after_events);
            ending(end)
        }
        Some(_) | None => BodyEnd::Complete,
    };
    let body = FramedBody::stream(events, Duration::from_millis(reply.pause_ms), ending);
    let mut response = response(StatusCode::OK, body, envelope.request);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn whole(reply: &ScriptReply, envelope: Envelope<'_>) -> Response<FramedBody> {
    let document = wire::whole(reply, envelope);
    let Some(Cut { after_events: _, end }) = reply.cut else {
        return json_response(StatusCode::OK, document, envelope.request);
    };
    let half = document.slice(..document.len() / 2);
    let ending = match ending(end) {
        BodyEnd::Complete => return json_response(StatusCode::OK, half, envelope.request),
        ending @ BodyEnd::Break(_) => ending,
    };
    let body = FramedBody::stream(vec![half], Duration::ZERO, ending);
    let mut response = response(StatusCode::OK, body, envelope.request);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
    response
}

fn ending(end: CutEnd) -> BodyEnd {
    match end {
        CutEnd::Close => BodyEnd::Break(Broken::Close),
        CutEnd::Reset => BodyEnd::Break(Broken::Reset),
        CutEnd::EndOfBody => BodyEnd::Complete,
    }
}

/// The route. Anything before `/v1/` is a prefix of the client's base URL and is ignored.
fn route(method: &Method, path: &str) -> ScriptRoute {
    let api = if path.ends_with("/v1/messages") {
        Some(ScriptRoute::Messages)
    } else if path.ends_with("/v1/messages/count_tokens") {
        Some(ScriptRoute::CountTokens)
    } else {
        None
    };
    match api {
        Some(route) if method == Method::POST => route,
        Some(_) => ScriptRoute::PostOnly,
        // The agent checks with HEAD whether its base URL is alive, including the prefix.
        None if method == Method::HEAD && !path.contains("/v1/") => ScriptRoute::Greeting,
        None if method == Method::GET && path == "/" => ScriptRoute::Greeting,
        None => ScriptRoute::Unknown,
    }
}

/// Why a request is refused before the script is used.
fn refusal(route: ScriptRoute, arrival: &Arrival, fault: Option<BodyFault>) -> Option<ErrorReply> {
    if let Some(fault) = fault {
        return Some(ErrorReply::new(fault_status(fault), fault.to_string()));
    }
    let Arrival { method, path, query: _, headers: _, body, body_bytes: _ } = arrival;
    match (route, body) {
        (ScriptRoute::Unknown, _) => Some(ErrorReply::new(404, format!("{method} {path} is not served"))),
        (ScriptRoute::PostOnly, _) => {
            let refusal = ErrorReply::new(405, format!("{path} is served for POST only"));
            Some(refusal.header(ALLOW.as_str(), "POST"))
        }
        (ScriptRoute::Messages | ScriptRoute::CountTokens, BodySeen::NotJson { bytes: _, problem }) => {
            Some(ErrorReply::new(400, format!("the request body is not valid JSON: {problem}")))
        }
        (ScriptRoute::Messages | ScriptRoute::CountTokens, BodySeen::Empty) => {
            Some(ErrorReply::new(400, "the request has no body"))
        }
        (
            ScriptRoute::Messages | ScriptRoute::CountTokens,
            BodySeen::Json(_) | BodySeen::NotKept { .. } | BodySeen::TooLarge | BodySeen::Broken,
        )
        | (ScriptRoute::Greeting, _) => None,
    }
}

/// The status for a body that could not be read.
fn fault_status(fault: BodyFault) -> u16 {
    match fault {
        BodyFault::TooLarge { .. } => 413,
        BodyFault::Broken => 400,
        BodyFault::NoRoom => 503,
        BodyFault::Late => 408,
    }
}

/// The form in which a body is logged.
pub(super) fn seen(bytes: Bytes) -> BodySeen {
    let length = bytes.len();
    if length == 0 {
        return BodySeen::Empty;
    }
    match JsonText::read(bytes) {
        Ok(body) => BodySeen::Json(body),
        Err(error) => BodySeen::NotJson { bytes: length, problem: error.to_string() },
    }
}

fn error_response(error: &ErrorReply, request: usize) -> Response<FramedBody> {
    // The status was checked with the script.
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, wire::error(error, request), request);
    for (name, value) in &error.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn json_response(status: StatusCode, document: Bytes, request: usize) -> Response<FramedBody> {
    let mut response = response(status, FramedBody::whole(document), request);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn response(status: StatusCode, body: FramedBody, request: usize) -> Response<FramedBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(id) = HeaderValue::from_str(&wire::request_id(request)) {
        response.headers_mut().insert("request-id", id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_before_the_api_is_tolerated_and_a_suffix_is_not() {
        assert_eq!(route(&Method::POST, "/v1/messages"), ScriptRoute::Messages);
        assert_eq!(route(&Method::POST, "/run42/v1/messages"), ScriptRoute::Messages);
        assert_eq!(route(&Method::POST, "/a/b/v1/messages/count_tokens"), ScriptRoute::CountTokens);
        assert_eq!(route(&Method::GET, "/v1/messages"), ScriptRoute::PostOnly);
        assert_eq!(route(&Method::POST, "/v1/messages/batches"), ScriptRoute::Unknown);
        assert_eq!(route(&Method::POST, "/xv1/messages"), ScriptRoute::Unknown);
        assert_eq!(route(&Method::HEAD, "/"), ScriptRoute::Greeting);
        assert_eq!(route(&Method::HEAD, "/run42"), ScriptRoute::Greeting);
        assert_eq!(route(&Method::GET, "/"), ScriptRoute::Greeting);
        assert_eq!(route(&Method::GET, "/run42"), ScriptRoute::Unknown);
        assert_eq!(route(&Method::HEAD, "/v1/models"), ScriptRoute::Unknown);
    }
}
