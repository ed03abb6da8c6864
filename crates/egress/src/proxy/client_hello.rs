//! Reads the server name of a TLS ClientHello without terminating the TLS.
//!
//! Any input that is not exactly one well-formed ClientHello counts as malformed: the server might read it differently.

/// A ClientHello has to be complete within this many bytes.
pub const HELLO_LIMIT: usize = 64 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_LONGEST: usize = 16 * 1024;
const VERSION_AND_RANDOM: usize = 2 + 32;
const SERVER_NAME: [u8; 2] = [0, 0];
const HOST_NAME: [u8; 1] = [0];

/// What the bytes received so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The start of a ClientHello; more bytes are needed.
    Partial,
    NotTls,
    /// TLS, but not exactly one well-formed ClientHello.
    Malformed,
    Whole {
        server_name: Option<Vec<u8>>,
    },
}

/// Parses the bytes that a client sent from the start of its stream.
#[must_use]
pub fn read(bytes: &[u8]) -> Hello {
    match bytes {
        [] | [HANDSHAKE] => return Hello::Partial,
        [HANDSHAKE, 3, ..] => {}
        _ => return Hello::NotTls,
    }
    join_records(bytes).unwrap_or(Hello::Malformed)
}

/// The bytes are not a well-formed ClientHello.
struct Malformed;

/// Joins the records received so far and parses the message in them.
fn join_records(bytes: &[u8]) -> Result<Hello, Malformed> {
    let mut message = Vec::new();
    let mut records = Fields(bytes);
    loop {
        if let Some(body) = whole(&message)? {
            return Ok(Hello::Whole { server_name: server_name(body)? });
        }
        match next_record(&mut records)? {
            Some(fragment) => message.extend_from_slice(fragment),
            None if bytes.len() < HELLO_LIMIT => return Ok(Hello::Partial),
            None => return Err(Malformed),
        }
    }
}

/// Takes the fragment of the next record, if it is complete.
fn next_record<'b>(records: &mut Fields<'b>) -> Result<Option<&'b [u8]>, Malformed> {
    let wrong = |at: usize, right: u8| records.0.get(at).is_some_and(|byte| *byte != right);
    if wrong(0, HANDSHAKE) || wrong(1, 3) {
        return Err(Malformed);
    }
    let &[_, _, _, high, low, ref rest @ ..] = records.0 else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > RECORD_LONGEST {
        return Err(Malformed);
    }
    let Some((fragment, behind)) = rest.split_at_checked(length) else { return Ok(None) };
    records.0 = behind;
    Ok(Some(fragment))
}

/// The body of the ClientHello, if it is complete. No bytes may follow it.
fn whole(message: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Malformed);
    }
    let &[_, high, middle, low, ref body @ ..] = message else { return Ok(None) };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    if length > HELLO_LIMIT || body.len() > length {
        return Err(Malformed);
    }
    Ok((body.len() == length).then_some(body))
}

/// The server name in the body of a ClientHello.
fn server_name(body: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut body = Fields(body);
    body.take(VERSION_AND_RANDOM)?;
    let session = body.vector(1)?;
    let suites = body.vector(2)?;
    let compression = body.vector(1)?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compression.is_empty() {
        return Err(Malformed);
    }
    if body.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Fields(body.vector(2)?);
    body.end()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.take(2)?;
        let content = extensions.vector(2)?;
        if kind == SERVER_NAME && found.replace(one_host_name(content)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(found)
}

/// The only entry of a server name list.
fn one_host_name(content: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut content = Fields(content);
    let mut names = Fields(content.vector(2)?);
    content.end()?;
    let kind = names.take(1)?;
    let name = names.vector(2)?;
    names.end()?;
    if kind == HOST_NAME && !name.is_empty() { Ok(name.to_vec()) } else { Err(Malformed) }
}

/// The input that is left.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes bytes that are preceded by their length, which is `width` bytes itself.
    fn vector(&mut self, width: usize) -> Result<&'b [u8], Malformed> {
        let length = self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length)
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
#[path = "client_hello_tests.rs"]
mod tests;
