//! The head of a request: taken only if it can be understood in one way.
//!
//! Two servers that read one message differently can be played against each other. What leaves room for that (lines
//! that end in a bare line feed, folded headers, two lengths) is refused here, whatever the standards would forgive.

use belljar_contract::{Destination, Port};

/// The longest head.
pub const HEAD_LIMIT: usize = 16 * 1024;

/// The most headers in it.
pub const HEADERS_LIMIT: usize = 100;

/// A request up to its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: String,
    /// The target as written.
    pub target: String,
    /// The protocol's version.
    pub version: Version,
    /// The headers in their order; names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The versions that are spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Nothing,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
}

/// Why a head is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// Longer than [`HEAD_LIMIT`], or more headers than [`HEADERS_LIMIT`].
    #[error("the head of the request is too large")]
    Large,
    /// A line that ends otherwise than in CR LF, or a CR or LF within one.
    #[error("a line of the head does not end in CR LF")]
    LineEnd,
    /// Not the head of a request in HTTP/1.
    #[error("the head is not one of HTTP/1")]
    Syntax,
    /// More than one way to tell where the body ends.
    #[error("the end of the body is told in more than one way, or in one that is not known here")]
    Framing,
    /// None or several.
    #[error("the request does not have exactly one `Host`")]
    Host,
    /// A path alone, as one sends to a server.
    #[error("this is a proxy: the request must name its host, as in `GET http://host/path`")]
    OriginForm,
    /// Another scheme than http.
    #[error("only `http://` can be asked for this way; use CONNECT for the rest")]
    Scheme,
    /// A target that is none.
    #[error("the target is not one of a request")]
    Target,
}

/// Where the head ends, once it has come.
#[must_use]
pub fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    let found = bytes.get(from..)?.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(from + found + 4)
}

/// Reads a whole head, its empty line included.
///
/// # Errors
/// See [`HeadFault`].
pub fn parse(bytes: &[u8]) -> Result<Head, HeadFault> {
    if bytes.len() > HEAD_LIMIT {
        return Err(HeadFault::Large);
    }
    lines_end_well(bytes)?;
    // The parser forgives empty lines in front.
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

/// No CR without its LF and no LF without its CR.
fn lines_end_well(bytes: &[u8]) -> Result<(), HeadFault> {
    let lone = |pair: &[u8]| (pair[0] == b'\r') != (pair[1] == b'\n');
    let first_is_lf = bytes.first() == Some(&b'\n');
    let last_is_cr = bytes.last() == Some(&b'\r');
    if first_is_lf || last_is_cr || bytes.windows(2).any(lone) { Err(HeadFault::LineEnd) } else { Ok(()) }
}

impl Head {
    /// The values of a header.
    pub fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.headers.iter().filter(move |(header, _)| header == name).map(|(_, value)| value.as_slice())
    }

    /// The words of a header that is a list, in lower case.
    pub fn words(&self, name: &str) -> Vec<String> {
        let values = self.values(name).map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
        let words =
            values.flat_map(|value| value.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>());
        words.filter(|word| !word.is_empty()).collect()
    }

    /// How the body ends.
    ///
    /// # Errors
    /// When that is told in more than one way.
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

    /// Whether the connection is to become something else.
    pub fn wants_upgrade(&self) -> bool {
        self.values("upgrade").next().is_some()
            || self.values("http2-settings").next().is_some()
            || self.words("connection").iter().any(|word| word == "upgrade")
    }

    /// Whether the client goes on with this connection.
    pub fn keeps_alive(&self) -> bool {
        let words = [self.words("connection"), self.words("proxy-connection")].concat();
        let says = |wanted: &str| words.iter().any(|word| word == wanted);
        match self.version {
            Version::Http11 => !says("close"),
            Version::Http10 => says("keep-alive") && !says("close"),
        }
    }

    /// Whether `Host` names this destination; one without a port is taken to mean `default`.
    ///
    /// # Errors
    /// When there are several, or none where there must be one.
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

    /// Authority and path of an absolute target.
    ///
    /// # Errors
    /// When it is of another form.
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
