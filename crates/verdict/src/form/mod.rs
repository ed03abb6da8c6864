//! The values that keys take: each is read, checked and described in one place, so that the schema cannot differ from
//! what is accepted.

mod glob;
mod host;
mod object;
mod path;
mod plain;

pub(crate) use glob::{PathGlob, ToolGlob};
pub(crate) use host::HostMatch;
pub(crate) use object::object;
pub(crate) use path::PathName;
pub(crate) use plain::{Count, Decimal, OneOrMore, Some1, Text, Word, Words, Yes};

use belljar_contract::{DataFault, visible_start};
use serde_json::{Map, Value};

/// A value that a key takes.
pub(crate) trait Form: Sized {
    /// Reads it; `None` after at least one fault.
    fn read(value: &Value, reader: &mut Reader) -> Option<Self>;

    /// Its JSON Schema.
    fn schema() -> Value;
}

/// Where one is in the data, and what was wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    path: String,
    pub faults: Vec<DataFault>,
}

/// A stranger's text may be megabytes long; a fault shows its beginning.
const SHOWN: usize = 64;

impl Reader {
    /// Reads something at a place below this one.
    pub(crate) fn at<T>(&mut self, place: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(place);
        let out = read(self);
        self.path.truncate(length);
        out
    }

    /// A fault here.
    pub(crate) fn fault<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.faults.push(DataFault::new(self.path.clone(), message));
        None
    }

    /// A fault here with a way out.
    pub(crate) fn fault_with<T>(&mut self, message: impl Into<String>, help: impl Into<String>) -> Option<T> {
        self.faults.push(DataFault::new(self.path.clone(), message).help(help));
        None
    }

    /// The value is of another kind.
    pub(crate) fn expected<T>(&mut self, what: &str, found: &Value) -> Option<T> {
        self.fault(format!("expected {what}, found {}", kind(found)))
    }

    /// An object with no other keys than these.
    pub(crate) fn object<'a>(&mut self, value: &'a Value, known: &[&str]) -> Option<&'a Map<String, Value>> {
        let Value::Object(members) = value else {
            return self.expected("an object", value);
        };
        for key in members.keys().filter(|key| !known.contains(&key.as_str())) {
            let help = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it takes {}", listed(known)),
            };
            self.at(&format!(".{}", shown(key)), |reader| {
                reader.fault_with::<()>("there is no such key", help)
            });
        }
        Some(members)
    }

    /// A member that must be there.
    pub(crate) fn required<T: Form>(&mut self, members: &Map<String, Value>, key: &str) -> Option<T> {
        match members.get(key) {
            Some(value) => self.at(&format!(".{key}"), |reader| T::read(value, reader)),
            None => self.fault(format!("`{key}` is missing")),
        }
    }

    /// A member that may be left out.
    pub(crate) fn optional<T: Form>(&mut self, members: &Map<String, Value>, key: &str) -> Option<Option<T>> {
        match members.get(key) {
            Some(value) => self.at(&format!(".{key}"), |reader| T::read(value, reader)).map(Some),
            None => Some(None),
        }
    }
}

/// What a value is, in words.
pub(crate) fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The beginning of a stranger's text, in one line.
pub(crate) fn shown(text: &str) -> String {
    visible_start(text, SHOWN)
}

/// The known word nearest to this one, when one is near.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > SHOWN {
        return None;
    }
    let folded = word.to_lowercase();
    known
        .map(|candidate| (strsim::jaro_winkler(&folded, candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, each quoted.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
