//! The address of a file to fetch, parsed once.

use std::fmt;

use belljar_contract::{Destination, DestinationError, Port, visible};
use hyper::Uri;

/// A URL of a file on an HTTP server. It never contains a user name or a password.
#[derive(Clone, PartialEq, Eq)]
pub struct FetchUrl {
    pub(super) scheme: FetchScheme,
    pub(super) destination: Destination,
    /// The path, beginning with `/`.
    path: String,
    /// It may contain a signature, so it is never printed.
    query: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchScheme {
    Https,
    Http,
}

/// Why a text is not the URL of a file to fetch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("not a URL that begins with `https://` or `http://`")]
    Form,
    #[error(transparent)]
    Destination(#[from] DestinationError),
}

impl FetchUrl {
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let uri: Uri = text.parse().ok().ok_or(UrlError::Form)?;
        let (scheme, port) = match uri.scheme_str() {
            Some("https") => (FetchScheme::Https, Port::HTTPS),
            Some("http") => (FetchScheme::Http, Port::HTTP),
            Some(_) | None => return Err(UrlError::Form),
        };
        let authority = uri.authority().ok_or(UrlError::Form)?.as_str();
        let destination = Destination::parse_with_default(authority.as_bytes(), port)?;
        let query = uri.query().map(str::to_owned);
        Ok(Self { scheme, destination, path: uri.path().to_owned(), query })
    }

    /// The URL of a `Location` header in the response of this one: a whole URL, one without a scheme, or a path.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        let scheme = self.scheme.text();
        let authority = self.authority();
        if location.starts_with("//") {
            return Self::parse(&format!("{scheme}:{location}"));
        }
        if location.starts_with('/') {
            return Self::parse(&format!("{scheme}://{authority}{location}"));
        }
        Self::parse(location)
    }

    /// The same server with another path, which begins with `/`.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn with_path(&self, path: &str) -> Result<Self, UrlError> {
        Self::parse(&format!("{}://{}{path}", self.scheme.text(), self.authority()))
    }

    /// The file of this URL on the server of another.
    #[must_use]
    pub fn on_server_of(self, other: &Self) -> Self {
        Self { scheme: other.scheme, destination: other.destination.clone(), ..self }
    }

    /// Whether both are on the same server, reached in the same way.
    #[must_use]
    pub fn same_server(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.destination == other.destination
    }

    #[must_use]
    pub fn scheme(&self) -> FetchScheme {
        self.scheme
    }

    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The host, and the port unless it is the default of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        let default = match self.scheme {
            FetchScheme::Https => Port::HTTPS,
            FetchScheme::Http => Port::HTTP,
        };
        if self.destination.port == default {
            return self.destination.host.to_string();
        }
        self.destination.to_string()
    }

    /// The path and the query, for a request.
    pub(super) fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

impl FetchScheme {
    fn text(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

impl fmt::Display for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.text(), self.authority(), visible(&self.path))
    }
}

impl fmt::Debug for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_sent_and_not_shown() {
        let url = FetchUrl::parse("https://Files.example:443/a%2fb?signature=hush#part").unwrap();
        assert_eq!(url.target(), "/a%2fb?signature=hush");
        assert_eq!(format!("{url} {url:?}"), "https://files.example/a%2fb https://files.example/a%2fb");
    }

    #[test]
    fn a_password_or_another_scheme_is_refused() {
        for text in [
            "",
            "files.example/a",
            "ftp://files.example/a",
            "file:///etc/passwd",
            "https://u:hush@x.example/",
        ] {
            let error = FetchUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{text}");
        }
    }

    #[test]
    fn a_location_is_whole_or_a_path() {
        let url = FetchUrl::parse("https://files.example:8443/a/b").unwrap();
        for (location, joined) in [
            ("/c", "https://files.example:8443/c"),
            ("//other.example/c", "https://other.example/c"),
            ("http://other.example/c", "http://other.example/c"),
        ] {
            assert_eq!(url.join(location).unwrap().to_string(), joined);
        }
        assert!(url.join("c").is_err());
        assert!(!url.same_server(&FetchUrl::parse("https://files.example/a/b").unwrap()));
        assert!(!url.same_server(&FetchUrl::parse("http://files.example:8443/a/b").unwrap()));
    }
}
