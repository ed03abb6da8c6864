//! Finds guarded and watched files that appeared or changed while a run wrote to the project directly.

use std::path::{Path, PathBuf};

use belljar_class::Class;

use super::scan::{Scan, ScanError, Unseen, scan_again};

/// An entry for the report at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its path in the tree.
    pub path: PathBuf,
    /// Its class.
    pub class: Class,
    /// Whether it was there before.
    pub since: Since,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// It was not there, or was not of the class.
    Appeared,
    /// It is another file now, or its content, name or permissions were touched.
    Changed,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSince {
    /// The entries, sorted.
    pub created: Vec<Created>,
    /// Parts that were not looked at, so that nothing is known about them.
    pub unseen: Vec<Unseen>,
}

/// Compares the tree with an earlier scan: files of both grades, links that lead out, special files. What was a git directory
/// then counts as one, whatever was taken out of it since.
///
/// # Errors
/// Fails if the top cannot be opened.
pub fn created_since(before: &Scan, root: &Path) -> Result<CreatedSince, ScanError> {
    let after = scan_again(root, before)?;
    let created = after.seen.into_iter().filter_map(|(path, now)| {
        let since = match before.seen.get(&path) {
            // A configuration of git that names nothing, or nothing else than before.
            None if now.powers.as_ref().is_some_and(Vec::is_empty) => return None,
            Some(then) if then.class == now.class && then.powers.is_some() && then.powers == now.powers => {
                return None;
            }
            None => Since::Appeared,
            Some(then) if then.mark != now.mark || then.class != now.class => Since::Changed,
            Some(_) => return None,
        };
        Some(Created { path, class: now.class, since })
    });
    Ok(CreatedSince { created: created.collect(), unseen: after.unseen })
}
