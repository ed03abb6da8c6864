//! Other directories that show a scanned tree: what is made there is made in the tree.

use std::path::{Path, PathBuf};

use belljar_class::{GitTop, Grade};

use super::scan::Scan;

/// What of a tree another directory shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shows {
    /// A directory of the tree.
    Part {
        /// Its path in the tree.
        path: PathBuf,
    },
    /// The tree, and what lies around it.
    More {
        /// Where the tree is in it.
        at: PathBuf,
    },
}

impl Scan {
    /// What a guard holds back in another directory that shows this tree or a part of it, by paths there. An empty path is
    /// everything in it.
    #[must_use]
    pub fn named_from(&self, shows: &Shows) -> Vec<PathBuf> {
        let all = || self.named.iter().chain(self.aliases.iter().map(|alias| &alias.leads_to));
        match shows {
            Shows::More { at } => all().map(|path| at.iter().chain(path).collect()).collect(),
            Shows::Part { path } if self.is_guarded_part(path) => vec![PathBuf::new()],
            Shows::Part { path: part } => all()
                .filter_map(|path| match path.strip_prefix(part) {
                    Ok(rest) => Some(rest.to_owned()),
                    Err(_) => part.starts_with(path).then(PathBuf::new),
                })
                .collect(),
        }
    }

    /// Whether the names in a directory mean something to the class because of the names above it. Those of a git directory
    /// itself are known.
    fn is_guarded_part(&self, part: &Path) -> bool {
        let names = belljar_class::names(part);
        let above = part.ancestors().skip(1).filter(|above| self.bare.contains(*above));
        let bare: Vec<GitTop> =
            above.map(|above| GitTop { depth: above.iter().count(), bare: true }).collect();
        (1..=names.len()).any(|depth| {
            let (names, is_last) = (&names[..depth], depth == names.len());
            let is_git = names.last().is_some_and(|name| name.eq_ignore_ascii_case(b".git"));
            let mut tops = belljar_class::lexical_tops(names);
            tops.extend(&bare);
            let hit = belljar_class::at_or_below(names, &tops);
            if is_git { !is_last } else { hit.is_some_and(|hit| hit.grade == Grade::Guarded) }
        })
    }
}
