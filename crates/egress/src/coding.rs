//! Whether the head of a response allows its body to be searched for a credential.

use hyper::header::{self, HeaderMap, HeaderValue};

/// How many characters of an encoding are shown.
const SHOWN: usize = 40;

/// The encoding that keeps a response from being searched, shortened. The caller redacts secrets before showing it.
pub(crate) fn unsearchable(headers: &HeaderMap) -> Option<String> {
    let other = |name, plain: &'static str| {
        headers
            .get_all(name)
            .iter()
            .find(move |value: &&HeaderValue| !value.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    let found = other(header::CONTENT_ENCODING, "identity")
        .or_else(|| other(header::TRANSFER_ENCODING, "chunked"))?;
    Some(found.as_bytes().escape_ascii().to_string().chars().take(SHOWN).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderName;

    fn encoding(pairs: &[(HeaderName, &[u8])]) -> Option<String> {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        unsearchable(&headers)
    }

    #[test]
    fn only_plain_encodings_can_be_searched() {
        let content = header::CONTENT_ENCODING;
        let transfer = header::TRANSFER_ENCODING;
        assert_eq!(encoding(&[]), None);
        assert_eq!(encoding(&[(content.clone(), b"Identity"), (transfer.clone(), b"chunked")]), None);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(encoding(&[(content.clone(), b"br")]), some("br"));
        assert_eq!(encoding(&[(content.clone(), b"identity"), (content.clone(), b"zstd")]), some("zstd"));
        assert_eq!(encoding(&[(content.clone(), b"identity, gzip")]), some("identity, gzip"));
        assert_eq!(encoding(&[(content.clone(), b"")]), some(""));
        assert_eq!(encoding(&[(content.clone(), b"\xff")]), some("\\xff"));
        assert_eq!(encoding(&[(transfer, b"gzip, chunked")]), some("gzip, chunked"));
        assert_eq!(encoding(&[(content, &[b'x'; 99])]), some(&"x".repeat(SHOWN)));
    }
}
