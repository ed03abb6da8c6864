//! Which headers are forwarded. Request headers pass by name; response headers pass unless they belong to the connection
//! or could change the state of a client.

use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, HeaderName, HeaderValue, InvalidHeaderValue};

use super::credential::ModelCredential;
use super::names::BETA_HEADER;

/// Request headers that are forwarded. Credentials are not among them: the agent only has placeholders.
const REQUEST_NAMES: [&str; 5] = ["accept", "content-type", "user-agent", "x-app", "x-client-request-id"];

/// Prefixes of request headers that are forwarded.
const REQUEST_PREFIXES: [&str; 3] = ["anthropic-", "x-stainless-", "x-claude-"];

/// Response headers that are dropped: those of the connection, and those that only a browser obeys.
const ANSWER_DROPPED: [&str; 12] = [
    "alt-svc",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The beta that a login token needs.
const OAUTH_BETA: &str = "oauth-2025-04-20";

const BETA: HeaderName = HeaderName::from_static(BETA_HEADER);

/// The request headers for the model's host: the agent's, filtered, and the credential.
///
/// # Errors
/// When the credential is not a valid header value.
pub(in crate::gateway) fn for_upstream(
    asked: &HeaderMap,
    credential: &ModelCredential,
) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut headers = HeaderMap::with_capacity(asked.len() + 3);
    for (name, value) in asked {
        let known = REQUEST_NAMES.contains(&name.as_str());
        if known || REQUEST_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix)) {
            headers.append(name, value.clone());
        }
    }
    // Tokens are counted in the response, so it must not be compressed.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let (name, value) = credential.header()?;
    headers.insert(name, value);
    if let ModelCredential::Bearer(_) = credential {
        ask_for_beta(&mut headers, OAUTH_BETA);
    }
    Ok(headers)
}

fn ask_for_beta(headers: &mut HeaderMap, beta: &'static str) {
    let asked = headers.get_all(BETA).iter().filter_map(|value| value.to_str().ok());
    let named = asked.flat_map(|list| list.split(',')).any(|name| name.trim() == beta);
    if !named {
        headers.append(BETA, HeaderValue::from_static(beta));
    }
}

/// The response headers for the agent.
pub(in crate::gateway) fn for_agent(answered: &HeaderMap) -> HeaderMap {
    // Headers that `connection` names belong to the connection too.
    let listed = |name: &HeaderName| {
        let lists = answered.get_all("connection").iter().filter_map(|value| value.to_str().ok());
        lists.flat_map(|list| list.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(name.as_str()))
    };
    let mut headers = HeaderMap::with_capacity(answered.len());
    for (name, value) in answered {
        if !ANSWER_DROPPED.contains(&name.as_str()) && !listed(name) {
            headers.append(name, value.clone());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use belljar_contract::Secret;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn texts(headers: &HeaderMap) -> Vec<String> {
        let mut texts: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        texts.sort();
        texts
    }

    #[test]
    fn the_placeholder_goes_and_the_credential_comes() {
        let asked = map(&[
            ("x-api-key", "placeholder"),
            ("authorization", "Bearer placeholder"),
            ("host", "localhost"),
            ("cookie", "a=b"),
            ("connection", "keep-alive, x-odd"),
            ("content-length", "12"),
            ("accept-encoding", "gzip, br"),
            ("x-forwarded-for", "10.0.0.1"),
            ("user-agent", "claude-cli"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "one,two"),
            ("x-stainless-lang", "js"),
            ("x-claude-code-session-id", "s"),
        ]);
        let passed = [
            "accept-encoding: identity",
            "anthropic-beta: one,two",
            "anthropic-version: 2023-06-01",
            "user-agent: claude-cli",
            "x-claude-code-session-id: s",
            "x-stainless-lang: js",
        ];
        let key = for_upstream(&asked, &ModelCredential::ApiKey(Secret::new("real"))).unwrap();
        let mut expected: Vec<String> = passed.iter().map(|text| (*text).to_owned()).collect();
        expected.push("x-api-key: real".into());
        expected.sort();
        assert_eq!(texts(&key), expected);
        assert!(key["x-api-key"].is_sensitive());

        let bearer = for_upstream(&asked, &ModelCredential::Bearer(Secret::new("real"))).unwrap();
        let mut expected: Vec<String> = passed.iter().map(|text| (*text).to_owned()).collect();
        expected.extend(["authorization: Bearer real".into(), "anthropic-beta: oauth-2025-04-20".into()]);
        expected.sort();
        assert_eq!(texts(&bearer), expected);

        let named = map(&[("anthropic-beta", "one, oauth-2025-04-20")]);
        let again = for_upstream(&named, &ModelCredential::Bearer(Secret::new("real"))).unwrap();
        assert_eq!(again.get_all("anthropic-beta").iter().count(), 1);
    }

    #[test]
    fn an_answer_keeps_what_the_agent_needs() {
        let answered = map(&[
            ("retry-after", "7"),
            ("request-id", "r"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("x-should-retry", "true"),
            ("content-type", "text/event-stream"),
            ("set-cookie", "a=b"),
            ("transfer-encoding", "chunked"),
            ("connection", "close, X-Odd"),
            ("x-odd", "1"),
        ]);
        assert_eq!(
            texts(&for_agent(&answered)),
            [
                "anthropic-ratelimit-requests-remaining: 0",
                "content-type: text/event-stream",
                "request-id: r",
                "retry-after: 7",
                "x-should-retry: true",
            ]
        );
    }
}
