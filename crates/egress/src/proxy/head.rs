//! Parses the head of a request, and rejects every head that two servers could read differently.
//!
//! Request smuggling depends on such differences. Lines that end in a bare line feed, folded headers and a second length
//! are rejected here, even where the standards tolerate them.

use belljar_contract::{Destination, Port};

pub const HEAD_LIMIT: usize = 16 * 1024;

pub const HEADERS_LIMIT: usize = 100;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub method: String,
    /// The request target, unchanged.
    pub target: String,
    pub version: Version,
    /// The headers in order; names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
}

/// How the end of the body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The request has no body.
    Nothing,
    /// The body has this many bytes.
    Length(u64),
    /// The body ends after the last chunk.
    Chunked,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// Longer than [`HEAD_LIMIT`], or more headers than [`HEADERS_LIMIT`].
    #[error("the head of the request is too large")]
    Large,
    /// A line does not end in CR LF, or contains a CR or LF.
    #[error("a line of the head does not end in CR LF")]
    LineEnd,
    /// The head is not a valid HTTP/1 request.
    #[error("the request head is not valid HTTP/1")]
    Syntax,
    /// The end of the body is ambiguous.
    #[error("the length of the body is given twice, or in an unsupported way")]
    Framing,
    /// The `Host` header is missing or repeated.
    #[error("the request must have exactly one `Host` header")]
    Host,
    /// The target is only a path, as it is sent to a server.
    #[error("this is a proxy: the request must name its host, as in `GET http://host/path`")]
    OriginForm,
    /// The scheme is not http.
    #[error("only `http://` is forwarded; use CONNECT for other schemes")]
    Scheme,
    /// The request target is invalid.
    #[error("the request target is invalid")]
    Target,
}

/// The length of the head, once it is complete.
#[must_use]
pub fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    let found = bytes.get(from..)?.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(from + found + 4)
}

/// Parses a complete head, including its empty line.
///
/// # Errors
/// See [`HeadFault`].
pub fn parse(bytes: &[u8]) -> Result<Head, HeadFault> {
    if bytes.len() > HEAD_LIMIT {
        return Err(HeadFault::Large);
    }
    lines_end_well(bytes)?;
    // httparse skips empty lines before the request line.
    if bytes.starts_with(b"\r") {
        return Err(HeadFault::Syntax);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(HeadFault::Syntax),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadFault::Large),
        Err(_) => return Err(HeadFault::Syntax),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(HeadFault::Syntax);
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(HeadFault::Target);
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let headers =
        request.headers.iter().map(|header| (header.name.to_ascii_lowercase(), header.value.to_vec()));
    Ok(Head { method: method.to_owned(), target: target.to_owned(), version, headers: headers.collect() })
}

/// Rejects a CR without LF and an LF without CR.
fn lines_end_well(bytes: &[u8]) -> Result<(), HeadFault> {
    let lone = |pair: &[u8]| (pair[0] == b'\r') != (pair[1] == b'\n');
    let first_is_lf = bytes.first() == Some(&b'\n');
    let last_is_cr = bytes.last() == Some(&b'\r');
    if first_is_lf || last_is_cr || bytes.windows(2).any(lone) { Err(HeadFault::LineEnd) } else { Ok(()) }
}

impl Head {
    pub fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.headers.iter().filter(move |(header, _)| header == name).map(|(_, value)| value.as_slice())
    }

    /// The items of a comma-separated header, in lower case.
    pub fn tokens(&self, name: &str) -> Vec<String> {
        let values = self.values(name).map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
        let tokens = values
            .flat_map(|value| value.split(',').map(|token| token.trim().to_owned()).collect::<Vec<_>>());
        tokens.filter(|token| !token.is_empty()).collect()
    }

    /// How the end of the body is determined.
    ///
    /// # Errors
    /// When the headers are ambiguous.
    pub fn framing(&self) -> Result<Framing, HeadFault> {
        let lengths: Vec<&[u8]> = self.values("content-length").collect();
        let codings: Vec<&[u8]> = self.values("transfer-encoding").collect();
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Framing::Nothing),
            ([length], []) => {
                let digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(length).ok().filter(|_| digits);
                text.and_then(|text| text.parse().ok()).map(Framing::Length).ok_or(HeadFault::Framing)
            }
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && self.version == Version::Http11 => {
                Ok(Framing::Chunked)
            }
            _ => Err(HeadFault::Framing),
        }
    }

    /// Whether the client asks for another protocol on this connection.
    pub fn wants_upgrade(&self) -> bool {
        self.values("upgrade").next().is_some()
            || self.values("http2-settings").next().is_some()
            || self.tokens("connection").iter().any(|token| token == "upgrade")
    }

    /// Whether the client wants to keep the connection open.
    pub fn keeps_alive(&self) -> bool {
        let tokens = [self.tokens("connection"), self.tokens("proxy-connection")].concat();
        let says = |wanted: &str| tokens.iter().any(|token| token == wanted);
        match self.version {
            Version::Http11 => !says("close"),
            Version::Http10 => says("keep-alive") && !says("close"),
        }
    }

    /// Whether `Host` names this destination; a host without a port gets the port `default`.
    ///
    /// # Errors
    /// When the header is repeated, or is missing where it is required.
    pub fn host_is(&self, destination: &Destination, default: Port) -> Result<bool, HeadFault> {
        let hosts: Vec<&[u8]> = self.values("host").collect();
        match hosts.as_slice() {
            [host] => {
                let named = Destination::parse_with_default(host, default);
                Ok(named.is_ok_and(|named| named == *destination))
            }
            [] if self.version == Version::Http10 || self.method == "CONNECT" => Ok(true),
            _ => Err(HeadFault::Host),
        }
    }

    /// The authority and path of an absolute-form target.
    ///
    /// # Errors
    /// When the target has another form.
    pub fn absolute(&self) -> Result<(&str, String), HeadFault> {
        let target = self.target.as_str();
        if target.starts_with('/') || target == "*" {
            return Err(HeadFault::OriginForm);
        }
        let (scheme, rest) = target.split_once("://").ok_or(HeadFault::Target)?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(HeadFault::Scheme);
        }
        if rest.contains('#') {
            return Err(HeadFault::Target);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok((authority, path))
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
