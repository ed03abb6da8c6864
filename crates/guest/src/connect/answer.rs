//! The head of the proxy's answer.

/// The parts of the head that the guest needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyAnswer {
    /// The status code.
    pub status: u16,
    /// The value of `Content-Length`, if given.
    pub length: Option<usize>,
}

/// Reads status and length; `None` if it is not the head of an HTTP/1 answer.
#[must_use]
pub fn parse_proxy_answer(head: &[u8]) -> Option<ProxyAnswer> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut parts = lines.next()?.splitn(3, ' ');
    let version = parts.next()?;
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return None;
    }
    let status = parts.next().filter(|status| status.len() == 3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    });
    Some(ProxyAnswer { status, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_length() {
        let answer = |status, length| Some(ProxyAnswer { status, length });
        assert_eq!(parse_proxy_answer(b"HTTP/1.1 200 OK\r\n\r\n"), answer(200, None));
        assert_eq!(
            parse_proxy_answer(b"HTTP/1.0 403 No\r\ncontent-LENGTH: 12\r\n\r\n"),
            answer(403, Some(12))
        );
        assert_eq!(parse_proxy_answer(b"HTTP/1.1 407\r\nContent-Length: -1\r\n\r\n"), answer(407, None));
    }

    #[test]
    fn other_protocols_are_not_understood() {
        for head in
            ["", "SSH-2.0-x\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20 x\r\n\r\n", "HTTP/1.1\r\n\r\n"]
        {
            assert_eq!(parse_proxy_answer(head.as_bytes()), None, "{head:?}");
        }
    }
}
