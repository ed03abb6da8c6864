//! The base URL of the model's host, as the user configured it.

use std::net::IpAddr;

use belljar_contract::{AddressClass, Destination, DestinationError, Port};
use hyper::Uri;

use super::messages_api::DEFAULT_URL;

const HTTP: Port = match Port::new(80) {
    Some(port) => port,
    None => panic!("80 is a port"),
};

/// Which addresses the model's host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    Public,
    /// Also this machine and private networks, for a company's gateway or a test's server. The user has to ask for it.
    Private,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub(super) scheme: Scheme,
    pub(super) destination: Destination,
    /// The authority of the URL, for `host` and `:authority`.
    pub(super) authority: String,
    prefix: String,
    reach: AddressScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
}

/// Why a text is not a valid base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The text is not a URL with a host.
    #[error("`{0}` is not a base URL of a model's host, such as `https://llm.example.org/team`")]
    Form(String),
    /// The scheme is not supported.
    #[error("`{0}` must begin with `https://`; `http://` is possible for this machine and private networks")]
    Scheme(String),
    /// The credential would be sent unencrypted.
    #[error("`{0}` would send the credential unencrypted; use https, or declare the host as private")]
    InTheClear(String),
    /// The host or port is invalid.
    #[error("the base URL of the model's host is invalid")]
    Destination(#[source] DestinationError),
}

/// Why an address of the host is not dialled. The texts follow the name of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotDialled {
    #[error("its address {0} is {what}, which has to be declared", what = .1.describe())]
    Class(IpAddr, AddressClass),
    #[error("its address {0} is public, and http would send the credential unencrypted")]
    InTheClear(IpAddr),
}

impl Default for Upstream {
    fn default() -> Self {
        Self::parse(DEFAULT_URL, AddressScope::Public).expect("the default is read by a test")
    }
}

impl Upstream {
    /// # Errors
    /// See [`UpstreamError`].
    pub fn parse(text: &str, reach: AddressScope) -> Result<Self, UpstreamError> {
        let form = || UpstreamError::Form(shown(text));
        let uri: Uri = text.parse().ok().ok_or_else(form)?;
        let authority = uri.authority().ok_or_else(form)?.as_str();
        if uri.query().is_some() || text.contains('#') {
            return Err(form());
        }
        let (scheme, port) = match uri.scheme_str() {
            Some("https") => (Scheme::Https, Port::HTTPS),
            Some("http") if reach == AddressScope::Private => (Scheme::Http, HTTP),
            Some("http") => return Err(UpstreamError::InTheClear(shown(text))),
            Some(_) | None => return Err(UpstreamError::Scheme(shown(text))),
        };
        let destination = Destination::parse_with_default(authority.as_bytes(), port)
            .map_err(UpstreamError::Destination)?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, destination, authority: authority.to_ascii_lowercase(), prefix, reach })
    }

    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    pub(super) fn path(&self, path: &str, query: Option<&str>) -> String {
        let Self { prefix, .. } = self;
        match query {
            Some(query) => format!("{prefix}{path}?{query}"),
            None => format!("{prefix}{path}"),
        }
    }

    /// Whether an address of the host may be dialled.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), NotDialled> {
        let class = AddressClass::of(address);
        match (class, self.reach, self.scheme) {
            (AddressClass::Public, _, Scheme::Https) => Ok(()),
            (AddressClass::Public, _, Scheme::Http) => Err(NotDialled::InTheClear(address)),
            (
                AddressClass::Loopback | AddressClass::Private | AddressClass::SharedByProviders,
                AddressScope::Private,
                _,
            ) => Ok(()),
            (
                AddressClass::Loopback
                | AddressClass::Private
                | AddressClass::SharedByProviders
                | AddressClass::LinkLocal
                | AddressClass::Metadata
                | AddressClass::Multicast
                | AddressClass::Special,
                _,
                _,
            ) => Err(NotDialled::Class(address, class)),
        }
    }
}

/// A text of the user without a possible password.
fn shown(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{}", host.escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls() {
        let default = Upstream::default();
        assert_eq!(default.path("/v1/messages", Some("beta=true")), "/v1/messages?beta=true");
        let company = Upstream::parse("https://LLM.example.org:8443/team/a/", AddressScope::Public).unwrap();
        assert_eq!(company.destination().to_string(), "llm.example.org:8443");
        assert_eq!(company.path("/v1/messages", None), "/team/a/v1/messages");
        let local = Upstream::parse("http://127.0.0.1:9", AddressScope::Private).unwrap();
        assert_eq!((local.path("/", None).as_str(), local.authority.as_str()), ("/", "127.0.0.1:9"));
    }

    #[test]
    fn invalid_base_urls() {
        for (text, reach) in [
            ("", AddressScope::Private),
            ("api.example.org", AddressScope::Private),
            ("/v1", AddressScope::Private),
            ("ftp://x.example", AddressScope::Private),
            ("unix:/run/x", AddressScope::Private),
            ("http://llm.example.org", AddressScope::Public),
            ("https://llm.example.org/?a=b", AddressScope::Public),
            ("https://llm.example.org/#a", AddressScope::Public),
            ("https://user:hush@llm.example.org", AddressScope::Public),
            ("https://:443", AddressScope::Public),
            ("https://llm.example.org:0", AddressScope::Public),
            ("https://127.1", AddressScope::Private),
        ] {
            let error = Upstream::parse(text, reach).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hush"), "{error}");
        }
    }

    #[test]
    fn undeclared_addresses_are_not_dialled() {
        let at = |url: &str, reach, address: &str| {
            Upstream::parse(url, reach).unwrap().check(address.parse().unwrap()).is_ok()
        };
        for (address, public, private, clear) in [
            ("93.184.216.34", true, true, false),
            ("127.0.0.1", false, true, true),
            ("10.1.2.3", false, true, true),
            ("::1", false, true, true),
            ("::ffff:127.0.0.1", false, true, true),
            ("169.254.169.254", false, false, false),
            ("fe80::1", false, false, false),
            ("224.0.0.1", false, false, false),
            ("0.0.0.0", false, false, false),
        ] {
            assert_eq!(at("https://x.example", AddressScope::Public, address), public, "{address}");
            assert_eq!(at("https://x.example", AddressScope::Private, address), private, "{address}");
            assert_eq!(at("http://x.example", AddressScope::Private, address), clear, "{address}");
        }
    }
}
