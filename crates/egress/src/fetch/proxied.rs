//! Which connections go through the user's own HTTP proxy.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_contract::{Destination, Host, Port, Secret};
use hyper::Uri;
use zeroize::Zeroizing;

use super::FetchScheme;
use super::url::UrlError;

/// The proxy that the user configured for connections to the network.
pub struct UserProxy {
    pub(super) scheme: FetchScheme,
    pub(super) destination: Destination,
    /// The value of `Proxy-Authorization`.
    pub(super) credential: Option<Secret>,
}

impl UserProxy {
    /// Reads `http://user:password@host:port`; the scheme, the user and the port may be missing.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().ok().ok_or(UrlError::Form)?;
        let (scheme, port) = match uri.scheme_str() {
            Some("http") => (FetchScheme::Http, Port::HTTP),
            Some("https") => (FetchScheme::Https, Port::HTTPS),
            Some(_) | None => return Err(UrlError::Form),
        };
        let authority = uri.authority().ok_or(UrlError::Form)?.as_str();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let destination = Destination::parse_with_default(host.as_bytes(), port)?;
        let credential = user.map(|user| {
            let plain = Zeroizing::new(decoded(user));
            Secret::new(format!("Basic {}", STANDARD.encode(plain.as_slice())))
        });
        Ok(Self { scheme, destination, credential })
    }
}

impl fmt::Debug for UserProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserProxy({})", self.destination)
    }
}

/// Replaces `%xx`. Other text is kept.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = (*byte == b'%').then(|| Some(digit(at + 1)? * 16 + digit(at + 2)?)).flatten();
        match pair.and_then(|value| u8::try_from(value).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

/// The hosts that are reached without the proxy, as `NO_PROXY` lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyExceptions(Vec<String>);

impl ProxyExceptions {
    /// Reads a list with commas or spaces: a host, a domain with or without a leading dot, either with a port, or `*`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entries = text.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
        Self(entries.map(str::to_ascii_lowercase).collect())
    }

    pub(super) fn contain(&self, destination: &Destination) -> bool {
        let host = destination.host.to_string();
        let is_name = match destination.host {
            Host::Name(_) => true,
            Host::Address(_) => false,
        };
        let host = host.trim_matches(['[', ']']);
        self.0.iter().any(|entry| {
            let (entry, port) = match entry.rsplit_once(':') {
                Some((entry, port)) if !entry.contains(':') || entry.ends_with(']') => (entry, Some(port)),
                Some(_) | None => (entry.as_str(), None),
            };
            let domain = entry.trim_start_matches("*.").trim_start_matches('.').trim_matches(['[', ']']);
            let below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
            let matches = entry == "*" || (!domain.is_empty() && (host == domain || (is_name && below())));
            matches && port.is_none_or(|port| port == destination.port.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Destination {
        Destination::parse_with_default(text.as_bytes(), Port::HTTPS).unwrap()
    }

    #[test]
    fn exceptions_are_hosts_and_domains() {
        let list = ProxyExceptions::parse("localhost, .corp.example,mirror.example:8443 10.0.0.1 ::1");
        for (host, direct) in [
            ("localhost", true),
            ("a.corp.example", true),
            ("corp.example", true),
            ("evilcorp.example", false),
            ("mirror.example", false),
            ("mirror.example:8443", true),
            ("10.0.0.1", true),
            ("110.0.0.1", false),
            ("[::1]", true),
            ("example.org", false),
        ] {
            assert_eq!(list.contain(&at(host)), direct, "{host}");
        }
        assert!(ProxyExceptions::parse("*").contain(&at("any.example")));
        assert!(!ProxyExceptions::parse("").contain(&at("any.example")));
    }

    #[test]
    fn a_proxy_may_have_a_password_which_is_not_shown() {
        let proxy = UserProxy::parse("http://me:p%40ss@proxy.example:3128").unwrap();
        assert_eq!(proxy.credential.as_ref().unwrap().expose(), b"Basic bWU6cEBzcw==");
        assert_eq!(format!("{proxy:?}"), "UserProxy(proxy.example:3128)");
        assert_eq!(UserProxy::parse("proxy.example").unwrap().destination.to_string(), "proxy.example:80");
        assert!(UserProxy::parse("socks5://proxy.example").is_err());
    }
}
