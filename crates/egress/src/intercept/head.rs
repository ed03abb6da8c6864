//! What happens to the head of a request and of an answer, as functions of the head.

use super::credential::BoundCredential;
use crate::overrides;
use belljar_contract::{Destination, EgressRule, Port, RequestDenial, request_allowed, requests_matter};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};

/// Why a request does not go on, and how that is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: StatusCode,
    pub rule: Option<String>,
    pub reason: String,
    pub hint: Option<String>,
}

impl Refusal {
    fn forbidden(rule: Option<&str>, reason: impl Into<String>) -> Self {
        let rule = rule.map(str::to_owned);
        Self { status: StatusCode::FORBIDDEN, rule, reason: reason.into(), hint: None }
    }
}

/// A request that goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// The rule.
    pub rule: String,
    /// The path to be sent, where it was compared.
    pub path: Option<String>,
}

/// The head of a request.
pub(super) struct RequestHead<'h> {
    pub method: &'h Method,
    pub uri: &'h Uri,
    pub headers: &'h HeaderMap,
}

/// Decides on a request inside a tunnel to `destination`.
pub(super) fn decide(
    head: &RequestHead<'_>,
    destination: &Destination,
    rules: &[EgressRule],
) -> Result<Allowed, Refusal> {
    same_name(head, destination)?;
    if matches!(*head.method, Method::CONNECT | Method::TRACE) {
        return Err(Refusal::forbidden(None, format!("{} is not passed on", head.method)));
    }
    if head.headers.contains_key(header::UPGRADE) || head.headers.contains_key("http2-settings") {
        return Err(Refusal::forbidden(
            None,
            "another protocol was asked for, and requests could not be looked at in it",
        ));
    }
    let admission = request_allowed(rules, destination, head.method.as_str(), head.uri.path().as_bytes());
    let admission = admission.map_err(|denial| denied(&denial))?;
    let meant = overrides::find(head.headers.keys().map(HeaderName::as_str), head.uri.query());
    if let Some(reason) = meant.filter(|_| requests_matter(rules, destination)) {
        return Err(Refusal::forbidden(Some(&admission.rule.id), reason));
    }
    Ok(Allowed { rule: admission.rule.id.clone(), path: admission.path.map(|path| path.as_str().to_owned()) })
}

fn denied(denial: &RequestDenial) -> Refusal {
    let hint = match denial {
        RequestDenial::NoRule => Some("add the host to `egress.allow` in belljar.toml".to_owned()),
        RequestDenial::Denied { rule } => Some(format!("`egress.{rule}` in belljar.toml denies it")),
        RequestDenial::NotAllowed { rules } => {
            rules.first().map(|(id, _)| format!("to allow it, widen `egress.{id}` in belljar.toml"))
        }
        RequestDenial::Path { .. } => Some("write the path in its plain form".to_owned()),
    };
    Refusal { hint, ..Refusal::forbidden(denial.rule(), denial.to_string()) }
}

/// The request must be for the host that the tunnel is for, in every place where it names one.
fn same_name(head: &RequestHead<'_>, destination: &Destination) -> Result<(), Refusal> {
    let hosts = head.headers.get_all(header::HOST);
    let named: Vec<&[u8]> = hosts
        .iter()
        .map(HeaderValue::as_bytes)
        .chain(head.uri.authority().map(|authority| authority.as_str().as_bytes()))
        .collect();
    let same = |name: &&[u8]| Destination::parse_with_default(name, Port::HTTPS).as_ref() == Ok(destination);
    let scheme = head.uri.scheme_str().is_none_or(|scheme| scheme == "https");
    if scheme && !named.is_empty() && hosts.iter().count() <= 1 && named.iter().all(same) {
        return Ok(());
    }
    let reason = format!("the request is not for {destination}, which the tunnel is for");
    Err(Refusal { status: StatusCode::MISDIRECTED_REQUEST, rule: None, reason, hint: None })
}

/// Headers that are for one connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::EXPECT,
];

/// Takes out what is for one connection only, also what `Connection` names.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let fixed = ["keep-alive", "proxy-connection", "http2-settings"].map(HeaderName::from_static);
    for name in named.into_iter().chain(HOP_BY_HOP).chain(fixed) {
        headers.remove(name);
    }
}

/// The head that is sent on: without what was for this connection, with the credentials of this destination.
pub(super) fn rewrite(headers: &mut HeaderMap, credentials: &[&BoundCredential]) {
    let wants_trailers = headers.get(header::TE).is_some_and(|te| te.as_bytes() == b"trailers");
    strip_hop_by_hop(headers);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if credentials.is_empty() {
        return;
    }
    // What is compressed, or comes in parts that the client chooses, cannot be searched.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    for credential in credentials {
        // Whatever stood there, the placeholder for one, goes; nowhere else is anything replaced.
        headers.insert(credential.header.clone(), credential.value.clone());
    }
}
