//! Whether an answer can be searched for a credential, by what its head says of its body.

use hyper::header::{self, HeaderMap, HeaderValue};

/// The longest name of a coding that is told.
const TOLD: usize = 40;

/// The coding that keeps an answer from being searched, as far as it can be shown. Whoever shows it takes secrets out.
pub(crate) fn unsearchable(headers: &HeaderMap) -> Option<String> {
    let other = |name, plain: &'static str| {
        headers
            .get_all(name)
            .iter()
            .find(move |value: &&HeaderValue| !value.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    let found = other(header::CONTENT_ENCODING, "identity")
        .or_else(|| other(header::TRANSFER_ENCODING, "chunked"))?;
    Some(found.as_bytes().escape_ascii().to_string().chars().take(TOLD).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderName;

    fn told(pairs: &[(HeaderName, &[u8])]) -> Option<String> {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        unsearchable(&headers)
    }

    #[test]
    fn only_what_is_plain_can_be_searched() {
        let content = header::CONTENT_ENCODING;
        let transfer = header::TRANSFER_ENCODING;
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[(content.clone(), b"Identity"), (transfer.clone(), b"chunked")]), None);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(told(&[(content.clone(), b"br")]), some("br"));
        assert_eq!(told(&[(content.clone(), b"identity"), (content.clone(), b"zstd")]), some("zstd"));
        assert_eq!(told(&[(content.clone(), b"identity, gzip")]), some("identity, gzip"));
        assert_eq!(told(&[(content.clone(), b"")]), some(""));
        assert_eq!(told(&[(content.clone(), b"\xff")]), some("\\xff"));
        assert_eq!(told(&[(transfer, b"gzip, chunked")]), some("gzip, chunked"));
        assert_eq!(told(&[(content, &[b'x'; 99])]), some(&"x".repeat(TOLD)));
    }
}
