//! One intercepted tunnel: the TLS handshake with the client, then its requests.

use super::body::{ResponseBody, TimedBody, scrub_headers};
use super::counted::{Count, Counted};
use super::credential::BoundCredential;
use super::head::{RequestHead, RequestRefusal, decide, rewrite, strip_hop_by_hop};
use super::host_client::{HostClient, HostClientError};
use super::{InterceptState, PIECE, READ_AHEAD};
use crate::coding::unsearchable;
use crate::proxy::{ByteStream, InterceptedRequest, RequestSink, Tunnel, TunnelEnd};
use belljar_contract::{Destination, Host, HostName, Port, with_causes};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::BufReader;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

const HEAD_MAX: usize = 64 << 10;

/// Concurrent requests on one connection.
const STREAMS_MAX: u32 = 100;

/// The longest path that is logged.
const LOGGED_PATH: usize = 1024;

/// The client's stream inside the tunnel.
type Inside = BufReader<Counted<Box<dyn ByteStream>>>;

/// What the requests of one tunnel share.
struct TunnelContext {
    shared: Arc<InterceptState>,
    destination: Destination,
    upstream: HostClient,
    log: Arc<dyn RequestSink>,
}

pub(super) async fn serve(shared: Arc<InterceptState>, tunnel: Tunnel) -> TunnelEnd {
    let Tunnel { client, destination, address, rule: _, log } = tunnel;
    let count = Arc::new(Count::default());
    let client = Counted { stream: client, count: Arc::clone(&count) };
    let client = BufReader::with_capacity(READ_AHEAD, client);
    let serving = async {
        let Host::Name(name) = &destination.host else {
            return Err("TLS to an address cannot be intercepted, only to a name".to_owned());
        };
        let stream = accept(&shared, name, client).await?;
        let authority = match destination.port {
            Port::HTTPS => name.to_string(),
            port => format!("{name}:{port}"),
        };
        let server_name = ServerName::try_from(name.to_string())
            .map_err(|_invalid| format!("`{name}` is not a valid server name for TLS"))?;
        let upstream = HostClient::new(shared.tls.clone(), address, server_name, authority, shared.timeouts);
        let context =
            TunnelContext { shared: Arc::clone(&shared), destination: destination.clone(), upstream, log };
        requests(Arc::new(context), stream).await
    };
    let failure = serving.await.err();
    TunnelEnd {
        sent: count.read.load(Ordering::Relaxed),
        received: count.written.load(Ordering::Relaxed),
        failure,
    }
}

/// Accepts TLS in the host's name, if the client's handshake is for that host.
async fn accept(
    shared: &InterceptState,
    name: &HostName,
    client: Inside,
) -> Result<TlsStream<Inside>, String> {
    let handshake = async {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await;
        let start = start.map_err(|error| format!("the client did not start TLS: {error}"))?;
        let wanted = start.client_hello().server_name().map(str::to_ascii_lowercase);
        if wanted.as_deref() != Some(name.as_str()) {
            let wanted = wanted.map_or_else(|| "no host".to_owned(), |wanted| format!("`{wanted}`"));
            return Err(format!("the tunnel is for {name}, but the TLS handshake in it is for {wanted}"));
        }
        let config = shared.ca.server(name).map_err(|error| error.to_string())?;
        start
            .into_stream(config)
            .await
            .map_err(|error| format!("the client aborted the TLS handshake: {error}"))
    };
    let late = || "the client did not finish the TLS handshake in time".to_owned();
    tokio::time::timeout(shared.timeouts.dial, handshake).await.map_err(|_elapsed| late())?
}

async fn requests(context: Arc<TunnelContext>, mut stream: TlsStream<Inside>) -> Result<(), String> {
    // One piece leaves in one write.
    stream.get_mut().1.set_buffer_limit(Some(PIECE));
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| {
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(answer(&context, request).await) }
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
        // A client may close the connection without a TLS close message.
        Err(error) if !error.is_shutdown() => Err(format!("the client's connection ended early: {error}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Handles one request up to the head of its response.
async fn answer(context: &TunnelContext, request: Request<Incoming>) -> Response<ResponseBody> {
    let method = request.method().clone();
    let head = RequestHead { method: &method, uri: request.uri(), headers: request.headers() };
    let decided = decide(&head, &context.destination, &context.shared.rules);
    let credentials: Vec<&BoundCredential> =
        context.shared.credentials_for(&context.destination).filter(|_| decided.is_ok()).collect();
    let row = InterceptedRequest {
        method: context.shared.scrubber.scrub(method.as_str()),
        path: logged_path(context, request.uri()),
        rule: match &decided {
            Ok(allowed) => Some(allowed.rule.clone()),
            Err(refusal) => refusal.rule.clone(),
        },
        allowed: decided.is_ok(),
        reason: decided.as_ref().err().map(|refusal| context.shared.scrubber.scrub(&refusal.reason)),
        credential: join(&credentials),
    };
    if context.log.decided(&row).is_err() {
        return text(StatusCode::BAD_GATEWAY, "the request could not be logged, so it was not sent");
    }
    let allowed = match decided {
        Ok(allowed) => allowed,
        Err(refusal) => return refused(context, &method, request.uri(), &refusal),
    };
    let Some(request) = prepared(request, allowed.path.as_deref(), &credentials) else {
        return text(StatusCode::BAD_REQUEST, "the request has no target");
    };
    match context.upstream.send(request).await {
        Ok(response) => forward_response(context, response, &method, row),
        Err(error) => {
            let status = match error {
                HostClientError::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
                HostClientError::Dial { .. } | HostClientError::Tls { .. } | HostClientError::Http { .. } => {
                    StatusCode::BAD_GATEWAY
                }
            };
            text(status, &context.shared.scrubber.scrub(&with_causes(&error)))
        }
    }
}

fn join(credentials: &[&BoundCredential]) -> Option<String> {
    let names: Vec<&str> = credentials.iter().map(|credential| credential.name.as_str()).collect();
    Some(names.join(", ")).filter(|names| !names.is_empty())
}

/// The path for the log. The query often holds a secret, so that only its presence is logged.
fn logged_path(context: &TunnelContext, uri: &Uri) -> String {
    let query = if uri.query().is_some() { "?…" } else { "" };
    let path = context.shared.scrubber.scrub(uri.path());
    let mut short: String = path.chars().take(LOGGED_PATH).collect();
    if short.len() < path.len() {
        short.push('…');
    }
    short + query
}

/// The request to forward: its target is the normalised path that was checked.
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

/// The response for the client.
fn forward_response(
    context: &TunnelContext,
    response: Response<Incoming>,
    method: &Method,
    asked: InterceptedRequest,
) -> Response<ResponseBody> {
    let has_credential = asked.credential.is_some();
    let (mut parts, body) = response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return text(StatusCode::BAD_GATEWAY, "the host switched protocols without being asked to");
    }
    if let Some(coding) = unsearchable(&parts.headers).filter(|_| has_credential) {
        return withheld(context, asked, &coding);
    }
    strip_hop_by_hop(&mut parts.headers);
    // The extensions include the reason phrase, which is text of the host.
    parts.extensions.clear();
    let stall = context.shared.timeouts.stall;
    if !has_credential {
        return Response::from_parts(parts, ResponseBody::Passing(TimedBody::new(body, stall)));
    }
    let scrubber = &context.shared.scrubber;
    scrub_headers(&mut parts.headers, scrubber);
    let without_body =
        *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !without_body {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, ResponseBody::scrubbed(body, scrubber, stall))
}

/// Withholds a response that cannot be searched for the credential, and logs that.
fn withheld(context: &TunnelContext, asked: InterceptedRequest, coding: &str) -> Response<ResponseBody> {
    let reason = format!(
        "{} sent the encoding `{coding}` although none was accepted; a response that cannot be searched for the credential is withheld",
        context.destination
    );
    let reason = context.shared.scrubber.scrub(&reason);
    let response = text(StatusCode::BAD_GATEWAY, &reason);
    let row = InterceptedRequest { allowed: false, reason: Some(reason), ..asked };
    // The response is withheld either way, and a log that cannot be written refuses every further request.
    context.log.decided(&row).ok();
    response
}

fn refused(
    context: &TunnelContext,
    method: &Method,
    uri: &Uri,
    refusal: &RequestRefusal,
) -> Response<ResponseBody> {
    let asked = format!("{method} {}{}", context.destination, uri.path());
    let mut lines = format!("{asked} is refused: {}\n", refusal.reason);
    if let Some(hint) = &refusal.hint {
        lines += &format!("hint: {hint}\n");
    }
    let mut response = text(refusal.status, context.shared.scrubber.scrub(&lines).trim_end());
    if let Some(rule) = refusal.rule.as_deref().and_then(|rule| HeaderValue::from_str(rule).ok()) {
        response.headers_mut().insert("x-belljar-rule", rule);
    }
    response
}

fn text(status: StatusCode, message: &str) -> Response<ResponseBody> {
    let body = ResponseBody::Text(Some(Bytes::from(format!("belljar: {message}\n"))));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
