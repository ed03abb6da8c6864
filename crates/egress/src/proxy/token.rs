//! The run's token. Only processes inside the sandbox have it.

use super::head::Head;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_contract::Secret;

/// The user name that is sent with the token.
pub const USER: &str = "belljar";

/// The token in the forms in which clients send it.
#[derive(Debug)]
pub(super) struct Token {
    basic: Secret,
    plain: Secret,
}

impl Token {
    /// `None` for an empty token, which would let every client in.
    pub fn new(token: &Secret) -> Option<Self> {
        if token.is_empty() {
            return None;
        }
        let pair = zeroize::Zeroizing::new([USER.as_bytes(), b":", token.expose()].concat());
        Some(Self { basic: Secret::new(STANDARD.encode(&*pair)), plain: Secret::new(token.expose()) })
    }

    /// Whether the head carries the token.
    pub fn is_in(&self, head: &Head) -> bool {
        let values: Vec<&[u8]> = head.values("proxy-authorization").collect();
        let [value] = values.as_slice() else { return false };
        let Some((scheme, credentials)) = value.split_at_checked(6) else { return false };
        let basic = scheme.eq_ignore_ascii_case(b"basic ");
        basic && same(credentials.trim_ascii(), self.basic.expose())
    }

    /// Whether these are the user name and the token.
    pub fn is(&self, user: &[u8], password: &[u8]) -> bool {
        user == USER.as_bytes() && same(password, self.plain.expose())
    }
}

/// Compares in constant time.
fn same(given: &[u8], right: &[u8]) -> bool {
    verify_slices_are_equal(given, right).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::head::parse;

    #[test]
    fn only_the_token_is_the_token() {
        let token = Token::new(&Secret::new("s3cret")).unwrap();
        let given = |line: &str| {
            let head = format!("CONNECT a.test:443 HTTP/1.1\r\n{line}\r\n\r\n");
            token.is_in(&parse(head.as_bytes()).unwrap())
        };
        let right = STANDARD.encode("belljar:s3cret");
        assert!(given(&format!("Proxy-Authorization: Basic {right}")));
        assert!(given(&format!("proxy-authorization: basic  {right}")));
        for wrong in ["belljar:s3cre", "belljar:s3cret ", "belljar:", "other:s3cret", ":s3cret", ""] {
            assert!(!given(&format!("Proxy-Authorization: Basic {}", STANDARD.encode(wrong))), "{wrong:?}");
        }
        assert!(!given("Proxy-Authorization: Basic"));
        assert!(!given(&format!("Proxy-Authorization: Bearer {right}")));
        assert!(!given(&format!("Authorization: Basic {right}")));
        assert!(!given(&format!("Proxy-Authorization: Basic {right}\r\nProxy-Authorization: Basic x")));
        assert!(!given("Accept: */*"));
        assert!(token.is(b"belljar", b"s3cret"));
        assert!(!token.is(b"belljar", b"s3cre") && !token.is(b"", b"s3cret") && !token.is(b"belljar", b""));
    }

    #[test]
    fn an_empty_token_is_rejected() {
        assert!(Token::new(&Secret::new("")).is_none());
    }
}
