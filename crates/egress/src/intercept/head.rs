//! Decisions and changes that depend on the head of a request or response only.

use super::credential::BoundCredential;
use crate::overrides;
use belljar_contract::{Destination, EgressRule, Port, RequestDenial, request_allowed, requests_matter};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};

/// Why a request is refused, and the response to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestRefusal {
    pub status: StatusCode,
    pub rule: Option<String>,
    pub reason: String,
    pub hint: Option<String>,
}

impl RequestRefusal {
    fn forbidden(rule: Option<&str>, reason: impl Into<String>) -> Self {
        let rule = rule.map(str::to_owned);
        Self { status: StatusCode::FORBIDDEN, rule, reason: reason.into(), hint: None }
    }
}

/// A request that is allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowedRequest {
    pub rule: String,
    /// The normalised path to send, if a rule compared the path.
    pub path: Option<String>,
}

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
) -> Result<AllowedRequest, RequestRefusal> {
    same_name(head, destination)?;
    if matches!(*head.method, Method::CONNECT | Method::TRACE) {
        return Err(RequestRefusal::forbidden(None, format!("{} is not forwarded", head.method)));
    }
    if head.headers.contains_key(header::UPGRADE) || head.headers.contains_key("http2-settings") {
        return Err(RequestRefusal::forbidden(
            None,
            "the request asks for another protocol, which cannot be inspected",
        ));
    }
    let admission = request_allowed(rules, destination, head.method.as_str(), head.uri.path().as_bytes());
    let admission = admission.map_err(|denial| denied(&denial))?;
    let meant = overrides::find(head.headers.keys().map(HeaderName::as_str), head.uri.query());
    if let Some(reason) = meant.filter(|_| requests_matter(rules, destination)) {
        return Err(RequestRefusal::forbidden(Some(&admission.rule.id), reason));
    }
    Ok(AllowedRequest {
        rule: admission.rule.id.clone(),
        path: admission.path.map(|path| path.as_str().to_owned()),
    })
}

fn denied(denial: &RequestDenial) -> RequestRefusal {
    let hint = match denial {
        RequestDenial::NoRule => Some("add the host to `egress.allow` in belljar.toml".to_owned()),
        RequestDenial::Denied { rule } => Some(format!("`egress.{rule}` in belljar.toml denies it")),
        RequestDenial::NotAllowed { rules } => {
            rules.first().map(|(id, _)| format!("to allow it, widen `egress.{id}` in belljar.toml"))
        }
        RequestDenial::Path { .. } => Some("write the path in its normalised form".to_owned()),
    };
    RequestRefusal { hint, ..RequestRefusal::forbidden(denial.rule(), denial.to_string()) }
}

/// Checks that the request names the tunnel's host in every place where it names one.
fn same_name(head: &RequestHead<'_>, destination: &Destination) -> Result<(), RequestRefusal> {
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
    let reason = format!("the tunnel is for {destination}, but the request is for another host");
    Err(RequestRefusal { status: StatusCode::MISDIRECTED_REQUEST, rule: None, reason, hint: None })
}

/// Headers that concern one connection only.
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

/// Removes the headers that concern one connection only, including those that `Connection` names.
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

/// Prepares the headers of a forwarded request: removes those of this connection and adds the destination's credentials.
pub(super) fn rewrite(headers: &mut HeaderMap, credentials: &[&BoundCredential]) {
    let wants_trailers = headers.get(header::TE).is_some_and(|te| te.as_bytes() == b"trailers");
    strip_hop_by_hop(headers);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if credentials.is_empty() {
        return;
    }
    // Compressed bodies, and ranges that the client chooses, cannot be searched for the credential.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    for credential in credentials {
        // Replaces the client's value, such as a placeholder. No other header is changed.
        headers.insert(credential.header.clone(), credential.value.clone());
    }
}
