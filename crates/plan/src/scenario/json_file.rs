//! JSON files that scenarios and sessions lead to.

use super::document::{DocumentError, DocumentText};
use crate::syntax::parse_json;
use crate::text::{self, whole_file};
use belljar_contract::SourceFile;
use belljar_contract::decode::{Faults, Node, plain};

/// Parses a JSON file that `decode` reads. It also gets the text.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn read<T>(
    file: DocumentText,
    decode: impl FnOnce(&Node, &SourceFile, &mut Faults<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    let (source, finding) = text::read(0, file.name, file.bytes);
    let mut faults = Faults::new(0, &source.text);
    let decoded = match finding {
        Some(finding) => {
            faults.list.push(finding);
            None
        }
        None => parse_json(&source.text, &mut faults).and_then(|node| decode(&node, &source, &mut faults)),
    };
    if let (Some(decoded), true) = (decoded, faults.list.is_empty()) {
        return Ok(decoded);
    }
    if faults.list.is_empty() {
        let message = format!("`{}` cannot be used", plain(&source.name));
        faults.list.push(whole_file("invalid-value", message, "look at what the file holds"));
    }
    let diagnostics = faults.list;
    Err(DocumentError { sources: vec![source], diagnostics })
}
