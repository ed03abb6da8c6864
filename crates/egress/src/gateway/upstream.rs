//! Where the model really is, as the user declared it.

use std::net::IpAddr;

use belljar_contract::{AddressClass, Destination, DestinationError, Port};
use hyper::Uri;

/// The model's host when the user names none.
const DEFAULT_URL: &str = "https://api.anthropic.com";

/// The port of HTTP.
const HTTP: Port = match Port::new(80) {
    Some(port) => port,
    None => panic!("80 is a port"),
};

/// Which addresses a declared host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Public ones.
    Public,
    /// Also this machine and private networks: a company's gateway, or a server of a test. Said by the user.
    Private,
}

/// A base URL: scheme, host, port and a prefix of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub(super) scheme: Scheme,
    pub(super) destination: Destination,
    /// As it stands in the URL, for `host` and `:authority`.
    pub(super) authority: String,
    prefix: String,
    reach: Reach,
}

/// How it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
}

/// Why a text is not a base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Not a URL with a host.
    #[error("`{0}` is not the address of a model's host, such as `https://llm.example.org/team`")]
    Form(String),
    /// The scheme is not one that is spoken.
    #[error("`{0}`: a model's host is reached by https, or by http on this machine and private networks")]
    Scheme(String),
    /// The key would be readable on its way.
    #[error("`{0}`: http would show the key to the network; use https, or say that the host is private")]
    InTheClear(String),
    /// The host or port is none.
    #[error("the address of the model's host is wrong")]
    Destination(#[source] DestinationError),
}

/// Why an address of the host is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotDialled {
    #[error("its address {0} is {what}, which has to be declared", what = .1.describe())]
    Class(IpAddr, AddressClass),
    #[error("its address {0} is public, and http would show the key to the network")]
    InTheClear(IpAddr),
}

impl Default for Upstream {
    fn default() -> Self {
        Self::parse(DEFAULT_URL, Reach::Public).expect("the default is read by a test")
    }
}

impl Upstream {
    /// Reads a base URL.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub fn parse(text: &str, reach: Reach) -> Result<Self, UpstreamError> {
        let form = || UpstreamError::Form(shown(text));
        let uri: Uri = text.parse().ok().ok_or_else(form)?;
        let authority = uri.authority().ok_or_else(form)?.as_str();
        if uri.query().is_some() || text.contains('#') {
            return Err(form());
        }
        let (scheme, port) = match uri.scheme_str() {
            Some("https") => (Scheme::Https, Port::HTTPS),
            Some("http") if reach == Reach::Private => (Scheme::Http, HTTP),
            Some("http") => return Err(UpstreamError::InTheClear(shown(text))),
            Some(_) | None => return Err(UpstreamError::Scheme(shown(text))),
        };
        let destination = Destination::parse_with_default(authority.as_bytes(), port)
            .map_err(UpstreamError::Destination)?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, destination, authority: authority.to_ascii_lowercase(), prefix, reach })
    }

    /// Host and port.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The path and query for a request.
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
                Reach::Private,
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

/// A text of the user's, without what could be a password in it.
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
        assert_eq!(default.destination().to_string(), "api.anthropic.com:443");
        assert_eq!(default.path("/v1/messages", Some("beta=true")), "/v1/messages?beta=true");
        let company = Upstream::parse("https://LLM.example.org:8443/team/a/", Reach::Public).unwrap();
        assert_eq!(company.destination().to_string(), "llm.example.org:8443");
        assert_eq!(company.path("/v1/messages", None), "/team/a/v1/messages");
        let local = Upstream::parse("http://127.0.0.1:9", Reach::Private).unwrap();
        assert_eq!((local.path("/", None).as_str(), local.authority.as_str()), ("/", "127.0.0.1:9"));
    }

    #[test]
    fn what_is_no_base_url() {
        for (text, reach) in [
            ("", Reach::Private),
            ("api.example.org", Reach::Private),
            ("/v1", Reach::Private),
            ("ftp://x.example", Reach::Private),
            ("unix:/run/x", Reach::Private),
            ("http://llm.example.org", Reach::Public),
            ("https://llm.example.org/?a=b", Reach::Public),
            ("https://llm.example.org/#a", Reach::Public),
            ("https://user:hush@llm.example.org", Reach::Public),
            ("https://:443", Reach::Public),
            ("https://llm.example.org:0", Reach::Public),
            ("https://127.1", Reach::Private),
        ] {
            let error = Upstream::parse(text, reach).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hush"), "{error}");
        }
    }

    #[test]
    fn what_was_not_declared_is_not_dialled() {
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
            assert_eq!(at("https://x.example", Reach::Public, address), public, "{address}");
            assert_eq!(at("https://x.example", Reach::Private, address), private, "{address}");
            assert_eq!(at("http://x.example", Reach::Private, address), clear, "{address}");
        }
    }
}
