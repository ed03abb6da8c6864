//! What `diff`, `apply` and `discard` share: the words for changes, and which are meant.

use crate::output::Output;
use belljar_contract::visible_name;
use belljar_runner::aside::{Aside, Change, ChangeKind, Class, Refused, RefusedBecause, Selection};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What each of them takes.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The agent; the only one that is declared need not be named
    pub agent: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Only these, and what lies below them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Says what an interrupted apply had left in the project.
pub fn tell_recovered(aside: &Aside, output: &Output) {
    for path in &aside.recovered().kept {
        output.say(&format!(
            "warning: an interrupted apply left `{}`, which holds a version of a file that changed meanwhile; \
             look at it, then remove it",
            shown(path)
        ));
    }
}

/// All changes, or those that were named; `./` and `/` at the ends do not matter.
pub fn selection(paths: &[PathBuf]) -> Selection {
    if paths.is_empty() {
        return Selection::All;
    }
    Selection::Paths(paths.iter().map(|path| plain(path)).collect())
}

/// A path of the project, as changes have it.
pub fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != std::path::Component::CurDir).collect()
}

/// Text that cannot forge a line.
pub fn shown(path: &Path) -> String {
    visible_name(path)
}

pub fn mark(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::TypeChanged => "T",
        ChangeKind::ModeChanged => "P",
    }
}

/// Why a change is more than a change, or nothing.
pub fn remark(class: &Class) -> Option<String> {
    match class {
        Class::Ordinary => None,
        Class::HostExecuted { why, .. } => Some((*why).to_owned()),
        Class::EscapingSymlink { target } => {
            Some(format!("a link that leads out of the project, to {}", shown(target)))
        }
        Class::Special { .. } => Some("neither a file nor a directory; it is never applied".to_owned()),
    }
}

pub fn machine(change: &Change) -> Value {
    json!({
        "path": shown(&change.path),
        "change": mark(change.kind),
        "size": change.size,
        "needs_consent": remark(&change.class),
    })
}

pub fn reason(refused: &Refused) -> String {
    match &refused.why {
        RefusedBecause::NeedsConsent { class } => {
            format!("needs a yes of its own: {}", remark(class).unwrap_or_default())
        }
        RefusedBecause::Special => "neither a file nor a directory".to_owned(),
        RefusedBecause::ChangedSince => "the project's own file has changed since the run began".to_owned(),
        RefusedBecause::NotBelow => "a directory on the way leads out of the project".to_owned(),
        RefusedBecause::NeedsParent { parent } => format!("`{}` was not applied", shown(parent)),
        RefusedBecause::Failed { errno } => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}
