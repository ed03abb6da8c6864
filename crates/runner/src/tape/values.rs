//! Keyed digests of the values that a recording redacted. With them, a tape can be searched for the values later,
//! although it does not contain them.
//!
//! The key never leaves the machine that recorded the tape, so a value cannot be guessed from the tape alone, even if
//! there are few possible values. `docs/reference/tape-format.md` describes the digests.

use super::{Bodies, Tape};
use crate::store::machine_key::{keyed, machine_key, random, read_key};
use belljar_contract::{
    AbsPath, Scrubber, Secret, TAPE_WINDOW, TapeForm, TapeValue, TapeValues, Unescaped, Unsearched,
};
use belljar_egress::tape::Followed;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use zeroize::Zeroizing;

/// The modulus of the rolling hash, a Mersenne prime.
const MODULUS: u64 = (1 << 61) - 1;

/// What a search of a tape for redacted values found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ValueSearch {
    /// Whether the tape lists the values that its recording redacted. Older tapes do not, and are not searched.
    pub listed: bool,
    /// Places that contain a value.
    pub found: BTreeSet<ValueFound>,
    /// Values that were searched for.
    pub checked: usize,
    /// Values that could not be searched for, because the key is on another machine.
    pub unchecked: usize,
    /// Values that the recording could not redact.
    pub not_redacted: Vec<String>,
}

/// A value that the recording should have redacted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ValueFound {
    /// The file of the tape.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// The name of the value.
    pub name: String,
}

/// The key of one tape: derived from the machine's key and the tape's salt.
struct TapeKey(Zeroizing<[u8; 32]>);

impl TapeKey {
    fn new(machine: &[u8], salt: &str) -> Self {
        Self(Zeroizing::new(keyed(machine, &[b"belljar tape ", salt.as_bytes()])))
    }

    fn derived(&self, purpose: &[u8]) -> [u8; 32] {
        keyed(&*self.0, &[purpose])
    }

    /// Identifies the key, for a reader that has one.
    fn id(&self) -> String {
        hex(&self.derived(b"id")[..8])
    }

    fn digest(&self, form: &[u8]) -> String {
        hex(&keyed(&*self.0, &[b"value ", form])[..16])
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A rolling hash with secret base and mixing; sixteen bits of it are stored with each form.
struct Rolling {
    base: u64,
    mix: [u64; 2],
}

impl Rolling {
    fn new(key: &TapeKey) -> Self {
        let bytes = key.derived(b"rolling");
        let number =
            |at: usize| bytes[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Self { base: number(0) % (MODULUS - 256) + 256, mix: [number(8) | 1, number(16) | 1] }
    }

    fn times(left: u64, right: u64) -> u64 {
        let product = u128::from(left) * u128::from(right);
        let (low, high) = ((product as u64) & MODULUS, (product >> 61) as u64);
        let sum = low + high;
        if sum >= MODULUS { sum - MODULUS } else { sum }
    }

    fn push(&self, hash: u64, byte: u8) -> u64 {
        let sum = Self::times(hash, self.base) + u64::from(byte) + 1;
        if sum >= MODULUS { sum - MODULUS } else { sum }
    }

    /// The factor of the byte that leaves a window of this length.
    fn leaving(&self, window: usize) -> u64 {
        (1..window).fold(1, |power, _| Self::times(power, self.base))
    }

    fn tag(&self, hash: u64) -> u16 {
        let mixed = (hash ^ hash >> 31).wrapping_mul(self.mix[0]);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(self.mix[1]);
        (mixed >> 48) as u16
    }

    fn tag_of(&self, window: &[u8]) -> u16 {
        self.tag(window.iter().fold(0, |hash, byte| self.push(hash, *byte)))
    }

    /// Calls `hit` for every position whose window has a wanted tag.
    fn scan(&self, bytes: &[u8], window: usize, wanted: &[bool], mut hit: impl FnMut(usize, u16)) {
        if bytes.len() < window {
            return;
        }
        let leaving = self.leaving(window);
        let mut hash = bytes[..window].iter().fold(0, |hash, byte| self.push(hash, *byte));
        for at in 0..=bytes.len() - window {
            let tag = self.tag(hash);
            if wanted[usize::from(tag)] {
                hit(at, tag);
            }
            if let Some(next) = bytes.get(at + window) {
                let gone = Self::times(leaving, u64::from(bytes[at]) + 1);
                hash = self.push(if hash >= gone { hash - gone } else { hash + MODULUS - gone }, *next);
            }
        }
    }
}

/// The digests of a recording's values, and the names of those that could not be redacted.
///
/// # Errors
/// If the key can neither be read nor created.
pub(crate) fn digests_of<'s>(
    state: &AbsPath,
    values: impl IntoIterator<Item = (&'s str, &'s Secret)>,
    unsearched: &[Unsearched],
) -> io::Result<TapeValues> {
    let machine = machine_key(state)?;
    let salt = hex(&random::<16>()?[..]);
    let key = TapeKey::new(&machine[..], &salt);
    let rolling = Rolling::new(&key);
    let value = |(name, secret): (&str, &Secret)| {
        let forms = Scrubber::forms(secret);
        let form = |form: &Zeroizing<Vec<u8>>| TapeForm {
            bytes: form.len() as u64,
            tag: rolling.tag_of(&form[..form.len().min(TAPE_WINDOW)]),
            digest: key.digest(form),
        };
        TapeValue { name: name.to_owned(), forms: forms.iter().map(form).collect() }
    };
    Ok(TapeValues {
        key: key.id(),
        salt,
        values: values.into_iter().filter(|(_, secret)| !secret.is_empty()).map(value).collect(),
        not_redacted: unsearched.iter().map(|one| one.name.clone()).collect(),
    })
}

/// Searches every file of a tape for the values that its recording redacted.
///
/// # Errors
/// If a file or the key cannot be read.
pub fn redacted_values(tape: &Tape, state: &AbsPath) -> io::Result<ValueSearch> {
    let Some(listed) = &tape.head.values else { return Ok(ValueSearch::default()) };
    let not_redacted = listed.not_redacted.clone();
    let mut search = ValueSearch { listed: true, not_redacted, ..ValueSearch::default() };
    let key = read_key(state)?.map(|machine| TapeKey::new(&machine[..], &listed.salt));
    let Some(key) = key.filter(|key| key.id() == listed.key) else {
        search.unchecked = listed.values.len();
        return Ok(search);
    };
    search.checked = listed.values.len();
    let sought = Sought::new(&key, &listed.values);
    let mut look = |(file, first): (String, u64), bytes: &[u8]| {
        for (at, name) in sought.places(bytes) {
            let line = first + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
            search.found.insert(ValueFound { file: file.clone(), line, name });
        }
    };
    for file in tape.names() {
        let bytes = tape.read(&file)?;
        look((file, 1), &bytes);
    }
    // A message that an earlier request has as well was searched there.
    let mut followed = Followed::default();
    for body in tape.requests() {
        let rest = followed.read(&Bodies(tape), body, &|()| true)?;
        look(tape.place(body), &rest.document);
        followed.keep(body, rest, ());
    }
    Ok(search)
}

/// Forms by the length of the window that finds them.
struct Sought<'a> {
    key: &'a TapeKey,
    rolling: Rolling,
    windows: BTreeMap<usize, Vec<(&'a str, &'a TapeForm)>>,
}

impl<'a> Sought<'a> {
    fn new(key: &'a TapeKey, values: &'a [TapeValue]) -> Self {
        let mut windows: BTreeMap<usize, Vec<(&str, &TapeForm)>> = BTreeMap::new();
        for value in values {
            for form in &value.forms {
                let length = usize::try_from(form.bytes).unwrap_or(usize::MAX);
                windows.entry(length.min(TAPE_WINDOW)).or_default().push((&value.name, form));
            }
        }
        // A value is never empty; a tape that lists one has been edited.
        windows.remove(&0);
        Self { rolling: Rolling::new(key), key, windows }
    }

    /// Where values are, also those that the text escapes.
    fn places(&self, bytes: &[u8]) -> Vec<(usize, String)> {
        let mut out = self.written(bytes);
        for reading in Unescaped::of(bytes).readings() {
            let read = self.written(reading.text()).into_iter();
            out.extend(read.map(|(at, name)| (reading.origin(at..at + 1).start, name)));
        }
        out
    }

    fn written(&self, bytes: &[u8]) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        for (window, forms) in &self.windows {
            let mut wanted = vec![false; 1 << 16];
            forms.iter().for_each(|(_, form)| wanted[usize::from(form.tag)] = true);
            self.rolling.scan(bytes, *window, &wanted, |at, tag| {
                for (name, form) in forms.iter().filter(|(_, form)| form.tag == tag) {
                    let end = usize::try_from(form.bytes).ok().and_then(|length| at.checked_add(length));
                    let Some(text) = end.and_then(|end| bytes.get(at..end)) else { continue };
                    if self.key.digest(text) == form.digest {
                        out.push((at, (*name).to_owned()));
                    }
                }
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::Digest;

    fn state() -> (tempfile::TempDir, AbsPath) {
        let directory = tempfile::tempdir().unwrap();
        let path = AbsPath::new(directory.path().join("state")).unwrap();
        (directory, path)
    }

    fn places(state: &AbsPath, listed: &TapeValues, text: &[u8]) -> Vec<String> {
        let key = TapeKey::new(&read_key(state).unwrap().unwrap()[..], &listed.salt);
        Sought::new(&key, &listed.values).places(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn a_value_is_found_as_it_is_and_encoded() {
        let (_held, state) = state();
        let (long, short) = (Secret::new("postgres://u:p4ss@db/x"), Secret::new("hun2r"));
        let listed = digests_of(&state, [("DB", &long), ("PIN", &short)], &[]).unwrap();
        for (text, name) in [
            ("before postgres://u:p4ss@db/x after", "DB"),
            ("cG9zdGdyZXM6Ly91OnA0c3NAZGIveA==", "DB"),
            ("postgres:\\/\\/u:p4ss@db\\/x", "DB"),
            ("706f7374677265733a2f2f753a703473734064622f78", "DB"),
            ("xhun2r", "PIN"),
            ("postgres:\\\\\\/\\\\\\/u:p4ss@db\\u002fx", "DB"),
        ] {
            assert!(places(&state, &listed, text.as_bytes()).contains(&name.to_owned()), "{text}");
        }
        assert!(places(&state, &listed, b"postgres://u:p4ss@db/ hun2 [redacted:DB]").is_empty());
    }

    #[test]
    fn a_digest_says_nothing_without_the_key() {
        let (_held, here) = state();
        let (_other, elsewhere) = state();
        let secret = Secret::new("12345");
        let listed = digests_of(&here, [("PIN", &secret)], &[]).unwrap();
        let again = digests_of(&here, [("PIN", &secret)], &[]).unwrap();
        assert_ne!(listed.values, again.values, "every tape has a salt");
        digests_of(&elsewhere, [("PIN", &secret)], &[]).unwrap();
        let key = TapeKey::new(&read_key(&elsewhere).unwrap().unwrap()[..], &listed.salt);
        assert_ne!(key.id(), listed.key);
        assert!(Sought::new(&key, &listed.values).places(b"12345").is_empty());
        let plain = serde_json::to_string(&listed).unwrap();
        assert!(!plain.contains("12345"));
        assert!(!plain.contains(&Digest::of(b"12345").hex()[..32]));
    }

    #[test]
    fn a_few_megabytes_do_not_take_forever() {
        let (_held, state) = state();
        let values: Vec<(String, Secret)> = (0..20)
            .map(|at| (format!("V{at}"), Secret::new(format!("value-number-{at}-{}", "x".repeat(at)))))
            .collect();
        let pairs = values.iter().map(|(name, secret)| (name.as_str(), secret));
        let listed = digests_of(&state, pairs, &[]).unwrap();
        let mut text = b"nothing of interest, again and again. ".repeat(3 << 20 >> 5);
        text.extend_from_slice(b"value-number-7-xxxxxxx");
        let began = std::time::Instant::now();
        assert_eq!(places(&state, &listed, &text), ["V7"]);
        // Generous, for an unoptimised build on a busy machine; an optimised build takes a twentieth.
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
