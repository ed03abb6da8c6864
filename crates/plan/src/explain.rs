//! Where each value of a plan comes from.

use belljar_contract::decode::Place;
use belljar_contract::nearest;
use belljar_contract::{Sources, position};
use serde_json::{Value, json};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Written in a file.
    Written(Place),
    /// belljar's own default, and why it is that.
    Default(&'static str),
    /// The harness wants it, and why.
    Harness(String),
    /// It follows from the host, and how.
    Host(String),
    /// Given by hand for this run, with this option of the command line.
    Option(&'static str),
}

/// One value of a plan and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedValue {
    /// The key, such as `model` or `env.LOG_LEVEL`.
    pub key: String,
    /// The value in short; never that of a variable.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Origin {
    /// For a person: a file, a line and a column, or a sentence.
    #[must_use]
    pub fn describe(&self, sources: &Sources) -> String {
        match self {
            Origin::Written(place) => {
                let source = sources.get(place.file);
                let (line, column) = position(source.map_or("", |source| &source.text), place.span.start);
                format!("{}:{line}:{column}", source.map_or("?", |source| &source.name))
            }
            Origin::Default(why) => format!("default: {why}"),
            Origin::Harness(why) => format!("harness: {why}"),
            Origin::Host(why) => format!("host: {why}"),
            Origin::Option(option) => format!("given by hand: {option}, for this run"),
        }
    }
}

impl ExplainedValue {
    #[must_use]
    pub fn is_given_by_hand(&self) -> bool {
        matches!(self.origin, Origin::Option(_))
    }

    #[must_use]
    pub fn to_json(&self, sources: &Sources) -> Value {
        json!({"key": self.key, "value": self.value, "origin": self.origin.describe(sources)})
    }
}

/// The reasons for `key`: the key itself, or everything below it.
///
/// # Errors
/// The nearest known key, when there is no such key.
pub fn why<'a>(reasons: &'a [ExplainedValue], key: &str) -> Result<Vec<&'a ExplainedValue>, Option<String>> {
    let below = |reason: &&ExplainedValue| {
        reason.key == key || reason.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
    };
    let found: Vec<&ExplainedValue> = reasons.iter().filter(below).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let keys: Vec<&str> = reasons.iter().map(|reason| reason.key.as_str()).collect();
    Err(nearest(key, keys).map(str::to_owned))
}
