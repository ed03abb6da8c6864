//! What is served: the paths that go to the model's host, and nothing besides.

use hyper::Method;

/// What a method and a path ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// A turn of a conversation, which costs money.
    Messages,
    /// A count of tokens, which costs none.
    CountTokens,
    /// A look whether someone is there, answered here.
    Health,
    /// A path that is served, with another method.
    OtherMethod { allowed: &'static str },
    /// Not served.
    Unknown,
}

/// The paths that are served. Anything else is refused, whatever the agent's own rules would allow.
const SERVED: [(&str, &str, Route); 4] = [
    ("POST", "/v1/messages", Route::Messages),
    ("POST", "/v1/messages/count_tokens", Route::CountTokens),
    // The agent looks whether its base URL is alive.
    ("HEAD", "/", Route::Health),
    ("GET", "/", Route::Health),
];

/// The route of a request.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let mut at_path = SERVED.iter().filter(|(_, served, _)| *served == path);
    let exact = at_path.clone().find(|(served, _, _)| *served == method.as_str());
    match (exact, at_path.next()) {
        (Some((_, _, route)), _) => *route,
        (None, Some((allowed, _, _))) => Route::OtherMethod { allowed },
        (None, None) => Route::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_served() {
        assert_eq!(route(&Method::POST, "/v1/messages"), Route::Messages);
        assert_eq!(route(&Method::POST, "/v1/messages/count_tokens"), Route::CountTokens);
        assert_eq!(route(&Method::HEAD, "/"), Route::Health);
        assert_eq!(route(&Method::GET, "/v1/messages"), Route::OtherMethod { allowed: "POST" });
        for path in [
            "/v1/messages/batches",
            "/v1/messages/",
            "//v1/messages",
            "/v1/../v1/messages",
            "/v1/files",
            "/v1/complete",
            "/V1/messages",
            "/v1/messages%2Fbatches",
            "/x/v1/messages",
            "*",
            "",
        ] {
            assert_eq!(route(&Method::POST, path), Route::Unknown, "{path}");
        }
    }
}
