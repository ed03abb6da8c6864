//! A file and the places in it, for whoever reads its data later and finds a fault.

use super::lint;
use crate::syntax::{Aliases, parse_yaml};
use crate::text::{self, whole_file};
use belljar_contract::decode::{FAULT_LIMIT, Faults, Kind, Node, plain};
use belljar_contract::{DataFault, Diagnostic, Label, SourceFile, Sources};
use serde_json::Value;
use std::ops::Range;

/// A file as it was read.
#[derive(Debug, Clone)]
pub struct DocumentText {
    /// The name people know it by.
    pub name: String,
    /// What it holds; at most a little more than [`crate::SIZE_LIMIT`], so that a larger one is noticed.
    pub bytes: Vec<u8>,
}

/// Why a file cannot be used: everything that is wrong with it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{}` cannot be used", sources.first().map_or("the file", |source| source.name.as_str()))]
pub struct DocumentError {
    /// The text, for diagnostics.
    pub sources: Sources,
    /// What is wrong; warnings may be among it.
    pub diagnostics: Vec<Diagnostic>,
}

/// The text of a file and the place of everything in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    source: SourceFile,
    root: Node,
}

/// The data of a file whose form is known elsewhere, such as a list of answers.
///
/// # Errors
/// When it is not one YAML document.
pub fn parse_document(text: DocumentText) -> Result<(Value, Document), DocumentError> {
    let document = Document::read(text)?;
    Ok((document.root.to_value(), document))
}

impl Document {
    /// The texts that this file's diagnostics point into.
    #[must_use]
    pub fn sources(&self) -> Sources {
        vec![self.source.clone()]
    }

    /// The name people know the file by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The data at `path`, such as `assert[2].path`; all of it for an empty one.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<Value> {
        let found = find(&self.root, path);
        found.rest.is_empty().then(|| found.node.to_value())
    }

    /// What is worth knowing about the rules at `path`, a list.
    #[must_use]
    pub fn answer_warnings(&self, path: &str) -> Vec<Diagnostic> {
        let found = find(&self.root, path);
        let mut faults = self.faults();
        if let (Kind::Array(items), true) = (&found.node.kind, found.rest.is_empty()) {
            lint::answers(items, self.text(), &mut faults);
        }
        faults.list
    }

    /// The fault at its place; where the path does not exist, at the nearest thing above it that does.
    #[must_use]
    pub fn diagnostic(&self, fault: &DataFault) -> Diagnostic {
        let found = find(&self.root, &fault.path);
        let inner = match (&fault.span, found.rest.is_empty()) {
            (Some(span), true) => self.faults().part(found.node, span),
            _ => None,
        };
        let span = inner.unwrap_or_else(|| self.underline(&found));
        let label = Label { file: 0, span, text: String::new() };
        let mut diagnostic = Diagnostic::error("invalid-value", plain(&fault.message), label);
        diagnostic.help = fault.help.as_deref().map(plain);
        diagnostic
    }

    pub(super) fn read(text: DocumentText) -> Result<Self, DocumentError> {
        let (source, finding) = text::read(0, text.name, text.bytes);
        if let Some(finding) = finding {
            return Err(DocumentError { sources: vec![source], diagnostics: vec![finding] });
        }
        match parse_yaml(&source.text, Aliases::Bounded) {
            Ok(root) if root.kind == Kind::Null => {
                let message = format!("`{}` holds nothing", plain(&source.name));
                let finding = whole_file("empty", message, "write what it is for, or delete the file");
                Err(DocumentError { sources: vec![source], diagnostics: vec![finding] })
            }
            Ok(root) => Ok(Self { source, root }),
            Err(errors) => {
                let tell = |error: crate::syntax::SyntaxError| {
                    let label = |span, text: &str| Label { file: 0, span, text: text.to_owned() };
                    let code = if error.first.is_some() { "duplicate-key" } else { "syntax" };
                    let mut finding = Diagnostic::error(code, plain(&error.message), label(error.span, ""));
                    finding.related =
                        error.first.map(|first| label(first, "the first")).into_iter().collect();
                    finding.help = error.help.map(str::to_owned);
                    finding
                };
                let diagnostics = errors.into_iter().take(FAULT_LIMIT).map(tell).collect();
                Err(DocumentError { sources: vec![source], diagnostics })
            }
        }
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    pub(super) fn text(&self) -> &str {
        &self.source.text
    }

    /// The document, or everything that was found when something of it is an error.
    pub(super) fn judged(self, found: Vec<Diagnostic>) -> Result<(Self, Vec<Diagnostic>), DocumentError> {
        if found.iter().any(Diagnostic::is_error) {
            return Err(DocumentError { sources: vec![self.source], diagnostics: found });
        }
        Ok((self, found))
    }

    /// No faults yet, for what decodes a part of the file.
    #[must_use]
    pub fn faults(&self) -> Faults<'_> {
        Faults::new(0, &self.source.text)
    }

    /// A key with a value on its own line is underlined whole; of what spans lines, the first one.
    fn underline(&self, found: &Found<'_>) -> Range<usize> {
        let text = &self.source.text;
        let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |newline| at + newline);
        let node = &found.node.span;
        let span = match &found.key {
            Some(key) if node.start >= key.start && node.end <= line_end(key.start) => key.start..node.end,
            Some(key) => key.clone(),
            None => node.start..node.end.min(line_end(node.start)),
        };
        let trimmed = text[span.clone()].trim_end().len();
        span.start..span.start + trimmed
    }
}

/// What a path leads to.
struct Found<'a> {
    node: &'a Node,
    /// The key in front of it, where it has one.
    key: Option<Range<usize>>,
    /// What of the path is left, because it does not exist.
    rest: &'a str,
}

fn find<'a>(root: &'a Node, path: &'a str) -> Found<'a> {
    let mut found = Found { node: root, key: None, rest: path };
    while let Some(next) = step(&found) {
        found = next;
    }
    found
}

fn step<'a>(found: &Found<'a>) -> Option<Found<'a>> {
    match &found.node.kind {
        Kind::Array(items) => {
            let (index, rest) = found.rest.strip_prefix('[')?.split_once(']')?;
            let node = items.get(index.parse::<usize>().ok()?)?;
            Some(Found { node, key: None, rest })
        }
        Kind::Table(table) => {
            let path = found.rest.strip_prefix('.').unwrap_or(found.rest);
            if path.is_empty() {
                return None;
            }
            let whole = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
            // A key may hold dots itself, so the longest that fits is meant; and a very long one may be cut in the path.
            let fits = table.0.iter().filter_map(|(key, node)| {
                let rest = path.strip_prefix(key.text.as_str()).filter(|rest| whole(rest))?;
                Some((key, node, rest))
            });
            let cut = || {
                let long =
                    |key: &belljar_contract::decode::Key| path.len() >= 48 && key.text.starts_with(path);
                table.0.iter().find(|(key, _)| long(key)).map(|(key, node)| (key, node, ""))
            };
            let (key, node, rest) = fits.max_by_key(|(key, _, _)| key.text.len()).or_else(cut)?;
            Some(Found { node, key: Some(key.span.clone()), rest })
        }
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Foreign(_) => None,
    }
}
