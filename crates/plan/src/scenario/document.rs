//! A YAML file: its text, and the tree with the place of everything in it.

use crate::syntax::{Aliases, parse_yaml};
use crate::text::{self, whole_file};
use belljar_contract::decode::{FAULT_LIMIT, Faults, Kind, Node, plain};
use belljar_contract::{Diagnostic, Label, SourceFile, Sources};

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

/// Parses a file that another crate decodes, such as a list of answers.
///
/// # Errors
/// When it is not one YAML document.
pub fn parse_document(text: DocumentText) -> Result<Document, DocumentError> {
    Document::read(text)
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

    /// The tree of the file.
    #[must_use]
    pub fn root(&self) -> &Node {
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
}
