//! The paths that are served; all others are refused.

use hyper::Method;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Route {
    /// A turn of a conversation, which costs money.
    Messages,
    /// A count of tokens, which is free.
    CountTokens,
    /// A health check, answered by the gateway itself.
    Health,
    /// A known path with an unsupported method.
    OtherMethod {
        allowed: &'static str,
    },
    Unknown,
}

/// Everything else is refused, even if the agent's egress rules would allow it.
const SERVED: [(&str, &str, Route); 4] = [
    ("POST", "/v1/messages", Route::Messages),
    ("POST", "/v1/messages/count_tokens", Route::CountTokens),
    // The agent checks whether its base URL is alive.
    ("HEAD", "/", Route::Health),
    ("GET", "/", Route::Health),
];

pub(in crate::gateway) fn route(method: &Method, path: &str) -> Route {
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
    fn only_listed_paths_are_served() {
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
