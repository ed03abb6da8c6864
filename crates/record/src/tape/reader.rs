//! Reads and verifies a tape. It is accepted as a whole or rejected with the specific fault.

use super::error::TapeFault;
use super::requests::{REQUESTS_MAX, Requests, SharedText};
use super::{BODIES, EXCHANGES, HEAD, HEAD_MAX, REQUESTS, TEXT};
use crate::disk::{open_regular, read_bounded};
use crate::reader::{KeptFile, RunReader};
use belljar_contract::{
    AbsPath, BodyRef, Digest, EXCHANGE_LINE, Exchange, TAPE_BYTES, TAPE_EXCHANGES, TAPE_FORMAT, TAPE_KIND,
    TapeHead, TapePart,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

/// The maximum depth of directories in a tape.
const DEEPEST: u32 = 64;

/// The size of verified parts, and of verified bodies, that stay in memory, so that a small tape is read once. Others are
/// read again when needed.
const IN_MEMORY: u64 = 1 << 20;

/// A rejected tape.
#[derive(Debug, thiserror::Error)]
#[error("the tape `{path}` cannot be used")]
pub struct TapeFailure {
    pub path: AbsPath,
    #[source]
    pub fault: TapeFault,
}

/// A verified tape.
#[derive(Debug)]
pub struct Tape {
    directory: AbsPath,
    /// The content of `tape.json`.
    pub head: TapeHead,
    /// Its exchanges in the order of arrival, without the bodies.
    pub exchanges: Vec<Exchange>,
    /// Parts and bodies that were short enough to stay in memory.
    parts: BTreeMap<String, KeptFile>,
    bodies: BTreeMap<Digest, Vec<u8>>,
    /// Requests that are not kept whole.
    requests: Requests,
}

impl Tape {
    /// Reads a tape and verifies every byte. Bodies are read one at a time; large ones do not stay in memory.
    ///
    /// # Errors
    /// When anything differs from what was written.
    pub fn open(directory: &AbsPath) -> Result<Self, TapeFailure> {
        read(directory).map_err(|fault| TapeFailure { path: directory.clone(), fault })
    }

    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    /// The names of its files except the requests.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let answers = self.exchanges.iter().filter_map(|exchange| exchange.answer.as_ref());
        let answers: BTreeSet<String> = answers.map(|answer| body_name(answer.body)).collect();
        let parts = self.head.parts.keys().filter(|name| ![REQUESTS, TEXT].contains(&name.as_str()));
        [HEAD.to_owned()].into_iter().chain(parts.cloned()).chain(answers).collect()
    }

    /// The requests in the order in which they were first sent, each once.
    #[must_use]
    pub fn requests(&self) -> Vec<BodyRef> {
        let mut known = BTreeSet::new();
        let all = self.exchanges.iter().map(|exchange| exchange.request.body);
        all.filter(|body| known.insert(body.digest)).collect()
    }

    /// Where a request is kept: the name of a file, and a line of it.
    #[must_use]
    pub fn place(&self, request: BodyRef) -> (String, u64) {
        match self.requests.line(request.digest) {
            Some(line) => (REQUESTS.to_owned(), line),
            None => (body_name(request), 1),
        }
    }

    /// One of its files.
    ///
    /// # Errors
    /// When it cannot be read, or is no longer the one that was checked.
    pub fn read(&self, name: &str) -> io::Result<Cow<'_, [u8]>> {
        if let Some(kept) = self.parts.get(name) {
            return Ok(Cow::Borrowed(&kept.bytes));
        }
        let bytes = read_bounded(self.directory.child(name).as_path(), TAPE_BYTES)?;
        let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
        match self.head.parts.get(name) {
            Some(part) => unchanged(bytes, part.digest),
            None => Ok(Cow::Owned(bytes)),
        }
    }

    /// A reader of the run on it.
    #[must_use]
    pub fn run(&self) -> RunReader<'_> {
        RunReader::with_kept(self.directory.clone(), &self.parts)
    }

    /// A body of an exchange.
    ///
    /// # Errors
    /// When it cannot be read, or is no longer the one that was checked.
    pub fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>> {
        if let Some(request) = self.requests.from(body.digest, 0) {
            return request.map(Cow::Owned);
        }
        if let Some(bytes) = self.bodies.get(&body.digest) {
            return Ok(Cow::Borrowed(bytes));
        }
        let path = self.directory.child(BODIES).child(&body.digest.hex());
        let bytes = read_bounded(path.as_path(), body.bytes)?.ok_or(io::ErrorKind::NotFound)?;
        unchanged(bytes, body.digest)
    }

    /// The length of the beginning that two requests share, as far as the tape shows it without their bytes.
    #[must_use]
    pub fn shared(&self, one: BodyRef, other: BodyRef) -> u64 {
        self.requests.shared(one.digest, other.digest)
    }

    /// A body from this byte on.
    ///
    /// # Errors
    /// As [`Tape::body`].
    pub fn body_from(&self, body: BodyRef, from: u64) -> io::Result<Cow<'_, [u8]>> {
        if let Some(rest) = self.requests.from(body.digest, from) {
            return rest.map(Cow::Owned);
        }
        let from = usize::try_from(from).map_err(io::Error::other)?;
        let whole = self.body(body)?.into_owned();
        Ok(Cow::Owned(whole.get(from..).unwrap_or_default().to_vec()))
    }
}

fn unchanged<'a>(bytes: Vec<u8>, digest: Digest) -> io::Result<Cow<'a, [u8]>> {
    if Digest::of(&bytes) == digest {
        Ok(Cow::Owned(bytes))
    } else {
        Err(io::Error::other("a file of the tape was changed after it was checked"))
    }
}

fn body_name(body: BodyRef) -> String {
    format!("{BODIES}/{}", body.digest.hex())
}

fn read(directory: &AbsPath) -> Result<Tape, TapeFault> {
    let head = head(directory)?;
    let mut left = TAPE_BYTES;
    let (mut parts, mut room) = (BTreeMap::new(), IN_MEMORY);
    for (name, part) in &head.parts {
        spend(&mut left, part.bytes)?;
        if name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(TapeFault::Foreign { why: format!("`{name}` is not a valid name of a part") });
        }
        if [EXCHANGES, REQUESTS, TEXT].contains(&name.as_str()) {
            continue;
        }
        if let Some(rest) = room.checked_sub(part.bytes) {
            let bytes = read_part(directory, name, *part)?;
            parts.insert(name.clone(), KeptFile { bytes, digest: part.digest });
            room = rest;
        } else {
            check_part(directory, name, *part)?;
        }
    }
    let exchanges = exchanges(directory, &head)?;
    let requests = requests(directory, &head)?;
    check_requests(&exchanges, &requests)?;
    let (mut known, mut bodies) = (BTreeSet::new(), BTreeMap::new());
    let mut room = IN_MEMORY;
    for exchange in &exchanges {
        let request = Some(exchange.request.body).filter(|body| requests.bytes(body.digest).is_none());
        for body in request.into_iter().chain(exchange.answer.as_ref().map(|answer| answer.body)) {
            if !known.insert(body.digest) {
                continue;
            }
            spend(&mut left, body.bytes)?;
            if let Some(rest) = room.checked_sub(body.bytes) {
                bodies.insert(body.digest, read_body(directory, exchange.seq, body)?);
                room = rest;
            } else {
                check_body(directory, exchange.seq, body)?;
            }
        }
    }
    let listed = head.parts.keys().cloned().chain([HEAD.to_owned()]);
    let listed: BTreeSet<String> =
        listed.chain(known.iter().map(|digest| format!("{BODIES}/{}", digest.hex()))).collect();
    strays(directory, "", &listed, 0)?;
    Ok(Tape { directory: directory.clone(), head, exchanges, parts, bodies, requests })
}

/// Reads the requests that are ranges of a text. Tapes of format 1 have none.
fn requests(directory: &AbsPath, head: &TapeHead) -> Result<Requests, TapeFault> {
    let part = |name: &str| head.parts.get(name).copied().filter(|_| head.format > 1);
    let (list, text) = match (part(REQUESTS), part(TEXT)) {
        (None, None) => return Ok(Requests::default()),
        (Some(list), Some(text)) => (list, text),
        (Some(_), None) => return Err(TapeFault::Missing { part: TEXT.to_owned() }),
        (None, Some(_)) => return Err(TapeFault::Missing { part: REQUESTS.to_owned() }),
    };
    if list.bytes > REQUESTS_MAX {
        return Err(TapeFault::TooLarge { limit: format!("{REQUESTS_MAX} bytes in `{REQUESTS}`") });
    }
    let list = read_part(directory, REQUESTS, list)?;
    let text = match text.bytes <= IN_MEMORY {
        true => SharedText::Memory(read_part(directory, TEXT, text)?),
        false => {
            let (file, found) = open_part(directory, TEXT)?;
            if found < text.bytes {
                return Err(TapeFault::Truncated { part: TEXT.to_owned(), found, wanted: text.bytes });
            }
            let (shared, digest) = SharedText::disk(file, found.min(TAPE_BYTES))
                .map_err(|cause| TapeFault::Read { part: TEXT.to_owned(), cause })?;
            as_written(TEXT, text, digest)?;
            shared
        }
    };
    Requests::read(&list, text)
}

/// Checks that the list has what the exchanges refer to, and nothing else.
fn check_requests(exchanges: &[Exchange], requests: &Requests) -> Result<(), TapeFault> {
    let mut used = BTreeSet::new();
    for exchange in exchanges {
        let body = exchange.request.body;
        match requests.bytes(body.digest) {
            Some(bytes) if bytes != body.bytes => {
                return Err(TapeFault::Edited { part: format!("{EXCHANGES}, exchange {}", exchange.seq) });
            }
            Some(_) => drop(used.insert(body.digest)),
            None => {}
        }
    }
    let stray = requests.digests().find(|digest| !used.contains(digest));
    stray.map_or(Ok(()), |digest| Err(TapeFault::Stray { part: format!("{REQUESTS}, {digest}") }))
}

fn spend(left: &mut u64, bytes: u64) -> Result<(), TapeFault> {
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| TapeFault::TooLarge { limit: format!("{TAPE_BYTES} bytes") })?;
    Ok(())
}

fn head(directory: &AbsPath) -> Result<TapeHead, TapeFault> {
    let failed = |cause| TapeFault::Read { part: HEAD.to_owned(), cause };
    let missing = || TapeFault::Missing { part: HEAD.to_owned() };
    let bytes =
        read_bounded(directory.child(HEAD).as_path(), HEAD_MAX).map_err(failed)?.ok_or_else(missing)?;
    parse_head(&bytes)
}

/// Parses a manifest. The kind and the format are checked before anything else.
fn parse_head(bytes: &[u8]) -> Result<TapeHead, TapeFault> {
    let foreign = |why: String| TapeFault::Foreign { why };
    if bytes.len() as u64 > HEAD_MAX {
        return Err(TapeFault::TooLarge { limit: format!("{HEAD_MAX} bytes in `{HEAD}`") });
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true => TapeFault::Truncated {
            part: HEAD.to_owned(),
            found: bytes.len() as u64,
            wanted: bytes.len() as u64 + 1,
        },
        false => foreign(format!("`{HEAD}`: {error}")),
    })?;
    if value.get("kind").and_then(Value::as_str) != Some(TAPE_KIND) {
        return Err(foreign(format!("`{HEAD}` is not the manifest of a tape")));
    }
    match value.get("format").and_then(Value::as_u64) {
        None | Some(0) => return Err(foreign(format!("`{HEAD}` has no format"))),
        Some(found) if found > u64::from(TAPE_FORMAT) => {
            return Err(TapeFault::Newer { found, known: TAPE_FORMAT });
        }
        Some(_) => {}
    }
    let head: TapeHead =
        serde_json::from_value(value).map_err(|error| foreign(format!("`{HEAD}`: {error}")))?;
    if head.reckoned() != head.integrity {
        return Err(TapeFault::Edited { part: HEAD.to_owned() });
    }
    if !head.parts.contains_key(EXCHANGES) {
        return Err(TapeFault::Missing { part: EXCHANGES.to_owned() });
    }
    Ok(head)
}

fn open_part(directory: &AbsPath, name: &str) -> Result<(File, u64), TapeFault> {
    let failed = |cause| TapeFault::Read { part: name.to_owned(), cause };
    let opened = open_regular(directory.child(name).as_path()).map_err(failed)?;
    opened.ok_or_else(|| TapeFault::Missing { part: name.to_owned() })
}

/// The bytes of a part, up to one byte more than its recorded length.
fn whole_part(directory: &AbsPath, name: &str, part: TapePart) -> Result<impl Read, TapeFault> {
    let (file, found) = open_part(directory, name)?;
    if found < part.bytes {
        return Err(TapeFault::Truncated { part: name.to_owned(), found, wanted: part.bytes });
    }
    Ok(file.take(part.bytes.saturating_add(1)))
}

fn check_part(directory: &AbsPath, name: &str, part: TapePart) -> Result<(), TapeFault> {
    let digest = Digest::of_reader(&mut whole_part(directory, name, part)?)
        .map_err(|cause| TapeFault::Read { part: name.to_owned(), cause })?;
    as_written(name, part, digest)
}

fn read_part(directory: &AbsPath, name: &str, part: TapePart) -> Result<Vec<u8>, TapeFault> {
    // With room for one more byte, the end is found without growing the buffer.
    let mut bytes = Vec::with_capacity(usize::try_from(part.bytes).unwrap_or(0).saturating_add(1));
    whole_part(directory, name, part)?
        .read_to_end(&mut bytes)
        .map_err(|cause| TapeFault::Read { part: name.to_owned(), cause })?;
    as_written(name, part, Digest::of(&bytes)).map(|()| bytes)
}

fn as_written(name: &str, part: TapePart, digest: Digest) -> Result<(), TapeFault> {
    if digest == part.digest { Ok(()) } else { Err(TapeFault::Edited { part: name.to_owned() }) }
}

fn check_body(directory: &AbsPath, seq: u64, body: BodyRef) -> Result<(), TapeFault> {
    let part = TapePart { bytes: body.bytes, digest: body.digest };
    check_part(directory, &body_name(body), part).map_err(|fault| fault_of_body(fault, seq, body))
}

fn read_body(directory: &AbsPath, seq: u64, body: BodyRef) -> Result<Vec<u8>, TapeFault> {
    let part = TapePart { bytes: body.bytes, digest: body.digest };
    read_part(directory, &body_name(body), part).map_err(|fault| fault_of_body(fault, seq, body))
}

fn fault_of_body(fault: TapeFault, seq: u64, body: BodyRef) -> TapeFault {
    if matches!(fault, TapeFault::Missing { .. }) {
        return TapeFault::MissingBody { seq, digest: body.digest };
    }
    fault
}

/// Reads the exchanges. A specific fault, such as a wrong order, is reported before a wrong digest.
fn exchanges(directory: &AbsPath, head: &TapeHead) -> Result<Vec<Exchange>, TapeFault> {
    let part = head.parts[EXCHANGES];
    if head.exchanges > TAPE_EXCHANGES {
        return Err(TapeFault::TooLarge { limit: format!("{TAPE_EXCHANGES} exchanges") });
    }
    let (file, found) = open_part(directory, EXCHANGES)?;
    let mut file = file.take(part.bytes.max(found).min(TAPE_BYTES));
    let out = if file.limit() <= IN_MEMORY {
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(|cause| TapeFault::Read { part: EXCHANGES.to_owned(), cause })?;
        let out = exchange_lines(&mut bytes.as_slice(), part, found)?;
        as_written(EXCHANGES, part, Digest::of(&bytes))?;
        out
    } else {
        let out = exchange_lines(&mut BufReader::new(file), part, found)?;
        check_part(directory, EXCHANGES, part)?;
        out
    };
    if out.len() as u64 != head.exchanges {
        return Err(TapeFault::Edited { part: EXCHANGES.to_owned() });
    }
    Ok(out)
}

/// Reads the lines of a file that has `found` bytes.
fn exchange_lines(lines: &mut impl BufRead, part: TapePart, found: u64) -> Result<Vec<Exchange>, TapeFault> {
    let mut out: Vec<Exchange> = Vec::new();
    let mut line = Vec::new();
    let truncated = || TapeFault::Truncated { part: EXCHANGES.to_owned(), found, wanted: part.bytes };
    loop {
        line.clear();
        let limit = EXCHANGE_LINE as u64 + 1;
        let read = lines.by_ref().take(limit).read_until(b'\n', &mut line);
        read.map_err(|cause| TapeFault::Read { part: EXCHANGES.to_owned(), cause })?;
        if line.is_empty() {
            break;
        }
        let number = out.len() as u64 + 1;
        if number > TAPE_EXCHANGES {
            return Err(TapeFault::TooLarge { limit: format!("{TAPE_EXCHANGES} exchanges") });
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            return Err(if found < part.bytes { truncated() } else { long_or_edited(line.len()) });
        };
        let exchange = read_exchange(text).map_err(|why| TapeFault::Line { line: number, why })?;
        in_order(&out, &exchange)?;
        out.push(exchange);
    }
    if found < part.bytes { Err(truncated()) } else { Ok(out) }
}

fn long_or_edited(length: usize) -> TapeFault {
    match length > EXCHANGE_LINE {
        true => TapeFault::TooLarge { limit: format!("{EXCHANGE_LINE} bytes in a line") },
        false => TapeFault::Edited { part: EXCHANGES.to_owned() },
    }
}

fn in_order(before: &[Exchange], exchange: &Exchange) -> Result<(), TapeFault> {
    let (seq, line) = (exchange.seq, before.len() as u64 + 1);
    match seq {
        seq if seq == before.len() as u64 => Ok(()),
        seq if before.iter().any(|earlier| earlier.seq == seq) => Err(TapeFault::Duplicated { line, seq }),
        seq => Err(TapeFault::Reordered { line, seq }),
    }
}

/// Parses a line of `exchanges.jsonl`.
///
/// # Errors
/// The reason in a few words.
pub fn read_exchange(line: &[u8]) -> Result<Exchange, String> {
    let exchange: Exchange = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if exchange.adds_up() {
        Ok(exchange)
    } else {
        Err("the lengths of its pieces do not add up to that of its body".to_owned())
    }
}

/// Reports files that the tape does not list.
fn strays(directory: &AbsPath, below: &str, listed: &BTreeSet<String>, depth: u32) -> Result<(), TapeFault> {
    let current = if below.is_empty() { directory.clone() } else { directory.child(below) };
    let failed = |cause| TapeFault::Read { part: below.to_owned(), cause };
    for entry in fs::read_dir(&current).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth < DEEPEST {
            strays(directory, &name, listed, depth + 1)?;
        } else if !listed.contains(&name) {
            return Err(TapeFault::Stray { part: name });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
