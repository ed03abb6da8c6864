//! One tunnel: the handshake with the client, then its requests.

use super::body::{AnswerBody, Watched, scrub_headers};
use super::counted::{Count, Counted};
use super::credential::BoundCredential;
use super::head::{Refusal, RequestHead, decide, rewrite, strip_hop_by_hop};
use super::upstream::{Upstream, UpstreamError};
use super::{PIECE, READ_AHEAD, Shared};
use crate::coding::unsearchable;
use crate::proxy::{InterceptedRequest, RequestSink, Stream, Tunnel, TunnelEnd};
use belljar_contract::{Destination, Host, HostName, Port};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::BufReader;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The largest head of a request.
const HEAD_MAX: usize = 64 << 10;

/// Requests that one connection may have under way at once.
const STREAMS_MAX: u32 = 100;

/// The longest path that is written down.
const LOGGED_PATH: usize = 1024;

/// The client, within the tunnel.
type Inside = BufReader<Counted<Box<dyn Stream>>>;

/// What the requests of one tunnel share.
struct Served {
    shared: Arc<Shared>,
    destination: Destination,
    upstream: Upstream,
    log: Arc<dyn RequestSink>,
}

/// Serves a tunnel to its end.
pub(super) async fn serve(shared: Arc<Shared>, tunnel: Tunnel) -> TunnelEnd {
    let Tunnel { client, destination, address, rule: _, log } = tunnel;
    let count = Arc::new(Count::default());
    let client = Counted { stream: client, count: Arc::clone(&count) };
    let client = BufReader::with_capacity(READ_AHEAD, client);
    let served = async {
        let Host::Name(name) = &destination.host else {
            return Err("a host without a name has no certificate".to_owned());
        };
        let stream = accept(&shared, name, client).await?;
        let authority = match destination.port {
            Port::HTTPS => name.to_string(),
            port => format!("{name}:{port}"),
        };
        let server_name = ServerName::try_from(name.to_string())
            .map_err(|_invalid| format!("TLS cannot be spoken to {name}"))?;
        let upstream = Upstream::new(shared.tls.clone(), address, server_name, authority, shared.waits);
        let served = Served { shared: Arc::clone(&shared), destination: destination.clone(), upstream, log };
        requests(Arc::new(served), stream).await
    };
    let failure = served.await.err();
    TunnelEnd {
        sent: count.read.load(Ordering::Relaxed),
        received: count.written.load(Ordering::Relaxed),
        failure,
    }
}

/// Speaks TLS as the host, if it is that host that the client wants to speak to.
async fn accept(shared: &Shared, name: &HostName, client: Inside) -> Result<TlsStream<Inside>, String> {
    let handshake = async {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await;
        let start = start.map_err(|error| format!("the client did not begin TLS: {error}"))?;
        let wanted = start.client_hello().server_name().map(str::to_ascii_lowercase);
        if wanted.as_deref() != Some(name.as_str()) {
            let wanted = wanted.map_or_else(|| "no host".to_owned(), |wanted| format!("`{wanted}`"));
            return Err(format!("the tunnel is for {name}, and the TLS in it for {wanted}"));
        }
        let config = shared.authority.server(name).map_err(|error| error.to_string())?;
        start
            .into_stream(config)
            .await
            .map_err(|error| format!("the client broke the TLS handshake off: {error}"))
    };
    let late = || "the client did not finish the TLS handshake in time".to_owned();
    tokio::time::timeout(shared.waits.dial, handshake).await.map_err(|_elapsed| late())?
}

async fn requests(served: Arc<Served>, mut stream: TlsStream<Inside>) -> Result<(), String> {
    // A piece leaves in one write.
    stream.get_mut().1.set_buffer_limit(Some(PIECE));
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| {
        let served = Arc::clone(&served);
        async move { Ok::<_, Infallible>(answer(&served, request).await) }
    });
    let stream = TokioIo::new(stream);
    let ended = if http2 {
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_MAX as u32)
            .serve_connection(stream, service)
            .await
    } else {
        http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(PIECE)
            .max_header_size(HEAD_MAX)
            .serve_connection(stream, service)
            .await
    };
    match ended {
        // A client that is done may go without a word.
        Err(error) if !error.is_shutdown() => Err(format!("the client's connection ended early: {error}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// One request, from its head to the head of its answer.
async fn answer(served: &Served, request: Request<Incoming>) -> Response<AnswerBody> {
    let method = request.method().clone();
    let head = RequestHead { method: &method, uri: request.uri(), headers: request.headers() };
    let decided = decide(&head, &served.destination, &served.shared.rules);
    let credentials: Vec<&BoundCredential> =
        served.shared.credentials_for(&served.destination).filter(|_| decided.is_ok()).collect();
    let row = InterceptedRequest {
        method: served.shared.scrubber.scrub(method.as_str()),
        path: logged_path(served, request.uri()),
        rule: match &decided {
            Ok(allowed) => Some(allowed.rule.clone()),
            Err(refusal) => refusal.rule.clone(),
        },
        allowed: decided.is_ok(),
        reason: decided.as_ref().err().map(|refusal| served.shared.scrubber.scrub(&refusal.reason)),
        credential: join(&credentials),
    };
    if served.log.decided(&row).is_err() {
        return text(StatusCode::BAD_GATEWAY, "the request cannot be written down, so it is not sent");
    }
    let allowed = match decided {
        Ok(allowed) => allowed,
        Err(refusal) => return refused(served, &method, request.uri(), &refusal),
    };
    let Some(request) = prepared(request, allowed.path.as_deref(), &credentials) else {
        return text(StatusCode::BAD_REQUEST, "the request has no target");
    };
    match served.upstream.send(request).await {
        Ok(response) => passed_on(served, response, &method, row),
        Err(error) => {
            let status = match error {
                UpstreamError::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
                UpstreamError::Dial { .. } | UpstreamError::Tls { .. } | UpstreamError::Http { .. } => {
                    StatusCode::BAD_GATEWAY
                }
            };
            text(status, &served.shared.scrubber.scrub(&with_causes(&error)))
        }
    }
}

fn join(credentials: &[&BoundCredential]) -> Option<String> {
    let names: Vec<&str> = credentials.iter().map(|credential| credential.name.as_str()).collect();
    Some(names.join(", ")).filter(|names| !names.is_empty())
}

/// The path as it is written down. What stands behind `?` is often a secret of somebody's; that it was there is told.
fn logged_path(served: &Served, uri: &Uri) -> String {
    let query = if uri.query().is_some() { "?…" } else { "" };
    let path = served.shared.scrubber.scrub(uri.path());
    let mut short: String = path.chars().take(LOGGED_PATH).collect();
    if short.len() < path.len() {
        short.push('…');
    }
    short + query
}

/// The request as it is sent on: its target is a path, in the spelling that was looked at.
fn prepared(
    request: Request<Incoming>,
    path: Option<&str>,
    credentials: &[&BoundCredential],
) -> Option<Request<Incoming>> {
    let (mut parts, body) = request.into_parts();
    let path = path.unwrap_or_else(|| parts.uri.path());
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    parts.uri = target.parse().ok()?;
    parts.extensions.clear();
    rewrite(&mut parts.headers, credentials);
    Some(Request::from_parts(parts, body))
}

/// The answer as it goes to the client.
fn passed_on(
    served: &Served,
    response: Response<Incoming>,
    method: &Method,
    asked: InterceptedRequest,
) -> Response<AnswerBody> {
    let has_credential = asked.credential.is_some();
    let (mut parts, body) = response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return text(StatusCode::BAD_GATEWAY, "the host changed the protocol, which nobody asked for");
    }
    if let Some(coding) = unsearchable(&parts.headers).filter(|_| has_credential) {
        return withheld(served, asked, &coding);
    }
    strip_hop_by_hop(&mut parts.headers);
    // Among them the words behind the status, which are the other side's text.
    parts.extensions.clear();
    let stall = served.shared.waits.stall;
    if !has_credential {
        return Response::from_parts(parts, AnswerBody::Passing(Watched::new(body, stall)));
    }
    let scrubber = &served.shared.scrubber;
    scrub_headers(&mut parts.headers, scrubber);
    let without_body =
        *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !without_body {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, AnswerBody::scrubbed(body, scrubber, stall))
}

/// Says, in the log as well, that an answer could not be searched for the credential.
fn withheld(served: &Served, asked: InterceptedRequest, coding: &str) -> Response<AnswerBody> {
    let reason = format!(
        "{} answered in the coding `{coding}` though it was asked for none; what cannot be searched for the credential does not pass",
        served.destination
    );
    let reason = served.shared.scrubber.scrub(&reason);
    let response = text(StatusCode::BAD_GATEWAY, &reason);
    let row = InterceptedRequest { allowed: false, reason: Some(reason), ..asked };
    // Nothing passes either way; a log that cannot be written lets no further request out.
    served.log.decided(&row).ok();
    response
}

fn refused(served: &Served, method: &Method, uri: &Uri, refusal: &Refusal) -> Response<AnswerBody> {
    let asked = format!("{method} {}{}", served.destination, uri.path());
    let mut lines = format!("{asked} is refused: {}\n", refusal.reason);
    if let Some(hint) = &refusal.hint {
        lines += &format!("hint: {hint}\n");
    }
    let mut response = text(refusal.status, served.shared.scrubber.scrub(&lines).trim_end());
    if let Some(rule) = refusal.rule.as_deref().and_then(|rule| HeaderValue::from_str(rule).ok()) {
        response.headers_mut().insert("x-belljar-rule", rule);
    }
    response
}

fn text(status: StatusCode, words: &str) -> Response<AnswerBody> {
    let body = AnswerBody::Text(Some(Bytes::from(format!("belljar: {words}\n"))));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn with_causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words += &format!(": {error}");
        cause = error.source();
    }
    words
}
