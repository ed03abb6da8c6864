//! What is wrong with a file, collected while it is decoded.

use super::{Key, Kind, Node, Place, part};
use crate::nearest::nearest;
use crate::{Diagnostic, Severity, visible_start};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;

/// Faults of one file beyond this number are not listed: a hostile file can have millions.
pub const FAULT_LIMIT: usize = 200;

/// The faults in one file.
#[derive(Debug)]
pub struct Faults<'t> {
    /// Index of the file among the sources.
    pub file: usize,
    text: &'t str,
    /// The faults so far, warnings among them.
    pub list: Vec<Diagnostic>,
    /// Names whose entries could not be decoded at all.
    pub broken_names: BTreeSet<String>,
}

impl<'t> Faults<'t> {
    /// No faults yet. `text` is what spans refer to; empty for data without text.
    #[must_use]
    pub fn new(file: usize, text: &'t str) -> Self {
        Self { file, text, list: Vec::new(), broken_names: BTreeSet::new() }
    }

    /// The place of a span in this file.
    #[must_use]
    pub fn place(&self, span: &Range<usize>) -> Place {
        Place { file: self.file, span: span.clone() }
    }

    /// The first line of a span, because a table can go on for a page.
    fn first_line(&self, span: &Range<usize>) -> Range<usize> {
        match self.text.get(span.clone()).and_then(|written| written.split_once('\n')) {
            Some((line, _)) => span.start..span.start + line.trim_end().len(),
            None => span.clone(),
        }
    }

    /// Whether one more is listed. The last one says that there are more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.list.len() < FAULT_LIMIT
    }

    /// Adds a warning: the file can be used.
    pub fn warn(&mut self, code: &'static str, span: &Range<usize>, fault: Fault) {
        // The last entry is kept for an error, because it says that more was left out.
        if self.list.len() + 1 < FAULT_LIMIT {
            self.push(code, span, fault);
            if let Some(last) = self.list.last_mut() {
                last.severity = Severity::Warning;
            }
        }
    }

    /// Adds an error. Gives up silently once [`FAULT_LIMIT`] is reached.
    pub fn push(&mut self, code: &'static str, span: &Range<usize>, fault: Fault) {
        if !self.has_room() {
            return;
        }
        let (code, fault) = if self.list.len() + 1 == FAULT_LIMIT {
            ("too-many-faults", Fault::new("there are more faults from here on, which are not listed"))
        } else {
            (code, fault)
        };
        let label = self.place(&self.first_line(span)).label(fault.label);
        // Every fault passes here, so that no text of a file reaches a terminal as more than one plain line.
        let mut diagnostic = Diagnostic::error(code, plain(&fault.message), label);
        diagnostic.help = fault.help.as_deref().map(plain);
        self.list.push(diagnostic);
    }

    /// Adds an error about the value of `node`.
    pub fn invalid<T>(&mut self, node: &Node, fault: Fault) -> Option<T> {
        self.push("invalid-value", &node.span, fault);
        None
    }

    /// The same about some bytes of the string that `node` is.
    pub fn invalid_part<T>(&mut self, node: &Node, part: &Range<usize>, fault: Fault) -> Option<T> {
        let span = self.part(node, part).unwrap_or_else(|| node.span.clone());
        self.push("invalid-value", &span, fault);
        None
    }

    /// Where some bytes of the string that `node` is are written; `None` where that is not certain.
    #[must_use]
    pub fn part(&self, node: &Node, part: &Range<usize>) -> Option<Range<usize>> {
        match &node.kind {
            Kind::String(value) => part::place(self.text, &node.span, value, part),
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => None,
        }
    }

    /// Adds that `node` is of another type than expected.
    pub fn mismatch<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        let mut fault = Fault::new(format!("expected {expected}, found {}", node.describe()));
        if expected == "a list" && matches!(node.kind, Kind::String(_)) {
            fault = fault.help("a list of one is written in brackets, as in `[\"…\"]`");
        }
        self.wrong_type(node, fault)
    }

    /// The same with a message of its own.
    pub fn wrong_type<T>(&mut self, node: &Node, fault: Fault) -> Option<T> {
        self.push("wrong-type", &node.span, fault.label(format!("this is {}", node.describe())));
        None
    }

    /// What `decode` gives; `None` also when it added a fault, because its value is then incomplete.
    pub fn whole<T>(&mut self, decode: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.list.len();
        let value = decode(self);
        value.filter(|_| self.list.len() == before && self.has_room())
    }

    /// Adds that `key` is not one of the known keys of `what`. Gives the known key that is probably meant.
    pub fn unknown_key<'k>(&mut self, key: &Key, what: &str, known: &[&'k str]) -> Option<&'k str> {
        let near = nearest(&key.text, known.iter().copied());
        let label = near.map_or("not a known key".to_owned(), |near| format!("did you mean `{near}`?"));
        let verb = if known.len() == 1 { "the only known key is" } else { "known keys are" };
        let fault = Fault::new(format!("unknown key `{}` in {what}", shown(&key.text)))
            .label(label)
            .help(format!("{verb} {}", list(known)));
        self.push("unknown-key", &key.span, fault);
        near
    }
}

/// What is wrong with a value, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, in one line.
    pub message: String,
    /// What is said at the underline; may be empty.
    pub label: String,
    /// How to fix it.
    pub help: Option<String>,
}

impl Fault {
    /// A fault with a message alone.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), label: String::new(), help: None }
    }

    /// The same with a text at the underline.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same with how to fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// `a`, `b` and `c`, quoted.
pub fn list<T: Display>(items: &[T]) -> String {
    joined(items, "and")
}

/// `a`, `b` or `c`, quoted.
pub fn choices<T: Display>(items: &[T]) -> String {
    joined(items, "or")
}

fn joined<T: Display>(items: &[T], conjunction: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [only] => format!("`{only}`"),
        [front @ .., last] => {
            let front: Vec<String> = front.iter().map(|item| format!("`{item}`")).collect();
            format!("{} {conjunction} `{last}`", front.join(", "))
        }
    }
}

/// A value from a file as a message quotes it: its beginning, hidden characters escaped.
#[must_use]
pub fn shown(text: &str) -> String {
    visible_start(text, 60)
}

/// A whole message on one line, hidden characters escaped.
#[must_use]
pub fn plain(text: &str) -> String {
    visible_start(text, 1000)
}
