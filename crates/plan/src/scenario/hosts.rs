//! Hosts as scenario and session files write them: the dot that ends a fully qualified name may be written.

use belljar_contract::decode::{Fault, Scalar};
use belljar_contract::{HostName, HostPattern};

/// A host or `*.domain`, with an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenHost(pub HostPattern);

impl Scalar for WrittenHost {
    const EXPECTED: &'static str = <HostPattern as Scalar>::EXPECTED;
    fn parse(text: &str) -> Result<Self, Fault> {
        <HostPattern as Scalar>::parse(&without_final_dot(text)).map(Self)
    }
    fn pattern() -> Option<&'static str> {
        <HostPattern as Scalar>::pattern()
    }
}

/// The name of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenHostName(pub HostName);

impl Scalar for WrittenHostName {
    const EXPECTED: &'static str = <HostName as Scalar>::EXPECTED;
    fn parse(text: &str) -> Result<Self, Fault> {
        <HostName as Scalar>::parse(&without_final_dot(text)).map(Self)
    }
    fn pattern() -> Option<&'static str> {
        <HostName as Scalar>::pattern()
    }
}

/// `example.org` for `example.org.`, and `example.org:443` for `example.org.:443`. Only one dot is taken off: a second one
/// is an empty label, which is refused.
fn without_final_dot(text: &str) -> String {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, &text[host.len()..]),
        Some(_) | None => (text, ""),
    };
    format!("{}{port}", host.strip_suffix('.').unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_dot_means_the_same_host() {
        for (text, shown) in [
            ("Foo.com.", "foo.com"),
            ("foo.com.:8443", "foo.com:8443"),
            ("*.Foo.com.", "*.foo.com"),
            ("foo.com", "foo.com"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(WrittenHost::parse(text).unwrap().0.to_string(), shown);
        }
        assert_eq!(WrittenHostName::parse("Docs.Foo.com.").unwrap().0.as_str(), "docs.foo.com");
        for text in ["foo.com..", ".", "..", "*.", "foo..com."] {
            assert!(WrittenHost::parse(text).is_err() && WrittenHostName::parse(text).is_err(), "{text}");
        }
    }
}
