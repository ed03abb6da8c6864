//! What `diff`, `apply` and `discard` share: the words for changes, and which are meant.

use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, ExitCode, Purpose, visible, visible_name};
use belljar_runner::Planner;
use belljar_runner::aside::{
    Aside, BothChanged, Carried, Change, ChangeKind, Class, KeptChanges, RefChange, RefValue, Refused,
    RefusedBecause, RepositoryChanges, Selection, Unmerged, short_ref,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What each of them says where there is nothing to do.
pub const NOTHING: &str = "Nothing is kept aside.";

/// What each of them takes.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The agent; the only one that is declared need not be named
    pub agent: Option<String>,
    /// Set of changes, where the agent keeps several [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub layer: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Only these paths, relative to the current directory, and what lies below them; or a ref, as `refs/heads/main`
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

impl Options {
    /// Takes the changes that are meant; `None` where there are none.
    pub fn open(&self, planner: &Planner) -> Result<Option<Aside>, CliError> {
        let planned = planner.plan(self.agent.as_deref(), Purpose::Session)?;
        Ok(Aside::open(&planned, self.layer.as_deref())?)
    }
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
    for path in &aside.recovered().changed {
        output.say(&format!(
            "warning: an interrupted apply wrote `{}` and you changed it since; it is left as it is",
            shown(path)
        ));
    }
    for path in &aside.recovered().deleted {
        output.say(&format!(
            "warning: you deleted `{}` after an apply was interrupted; it stays deleted",
            shown(path)
        ));
    }
}

/// Turns what was named on the command line into paths of changes.
pub struct Naming<'a> {
    pub aside: &'a Aside,
    pub found: &'a KeptChanges,
    pub directory: &'a AbsPath,
}

impl Naming<'_> {
    /// All changes, or those that were named.
    pub fn selection(&self, paths: &[PathBuf]) -> Result<Selection, CliError> {
        if paths.is_empty() {
            return Ok(Selection::All);
        }
        Ok(Selection::Paths(paths.iter().map(|path| self.path(path)).collect::<Result<_, _>>()?))
    }

    fn is_ref(&self, name: &Path) -> bool {
        self.found.repository.refs.iter().any(|change| change.name == name.as_os_str().as_bytes())
    }

    /// A path, or a ref by its whole name. One that nothing is kept at is an error.
    fn path(&self, named: &Path) -> Result<PathBuf, CliError> {
        let path = self.resolved(named);
        // A ref need not have a file of its own.
        let packed = self.aside.file_of(Path::new("packed-refs")).is_some_and(|file| self.found.has(&file));
        let is_ref = |name: &Path| name.starts_with("refs") && (packed || self.is_ref(name));
        if is_ref(named)
            && !self.found.has(&path)
            && let Some(file) = self.aside.file_of(named)
        {
            return Ok(file);
        }
        let is_packed = || {
            let refs = self.aside.file_of(Path::new("refs"));
            packed && refs.is_some_and(|refs| path.starts_with(refs))
        };
        if self.found.has(&path) || is_packed() { Ok(path) } else { Err(self.unknown(&path)) }
    }

    /// What a yes is to: a path, a ref, all refs, or the index.
    pub fn consented(&self, named: &Path) -> Result<PathBuf, CliError> {
        let repository = &self.found.repository;
        let index = !repository.staged_class.is_empty() || repository.unread_index.is_some();
        let refs = repository.unread_refs.is_some();
        if self.is_ref(named) || named == Path::new("index") && index || named == Path::new("refs") && refs {
            return Ok(named.to_owned());
        }
        let path = self.resolved(named);
        let is_staged = repository.staged_class.iter().any(|carried| carried.path == path);
        if is_staged || self.found.has(&path) { Ok(path) } else { Err(self.unknown(&path)) }
    }

    /// Relative to the project; outside it absolute.
    fn resolved(&self, named: &Path) -> PathBuf {
        let source = self.aside.source().as_path();
        let mut out = PathBuf::new();
        for part in self.directory.as_path().join(named).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    out.pop();
                }
                Component::RootDir | Component::Prefix(_) | Component::Normal(_) => out.push(part),
            }
        }
        match out.strip_prefix(source) {
            Ok(below) => below.to_owned(),
            Err(_outside) => out,
        }
    }

    fn unknown(&self, path: &Path) -> CliError {
        let message = format!("no change is kept at `{}`", shown(path));
        CliError::new(ExitCode::Invalid, message)
            .hint("paths are relative to the current directory; `belljar diff --stat` lists what is kept")
    }
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

pub fn machine(change: &Change, both: &[BothChanged]) -> Value {
    let both = both.iter().find(|both| both.path == change.path);
    json!({
        "path": shown(&change.path),
        "change": mark(change.kind),
        "size": change.size,
        "needs_consent": remark(&change.class),
        "both_changed": both.is_some(),
        "not_merged": both.and_then(|both| both.unmerged).map(unmerged),
    })
}

/// What happened to a repository, a line each.
pub fn repository_lines(changes: &RepositoryChanges) -> Vec<String> {
    let mut out = Vec::new();
    for change in &changes.refs {
        let RefChange { name, before, after, commits, count, class, unread } = change;
        let name = shown(Path::new(short_ref(name)));
        let value = |value: &RefValue| match value {
            RefValue::Object(id) => id.short(),
            RefValue::Symbolic(target) => shown(Path::new(short_ref(target))),
        };
        let moved = match (before, after) {
            (None, Some(after)) => format!("created at {}", value(after)),
            (Some(before), None) => format!("deleted, was at {}", value(before)),
            (Some(before), Some(after)) => format!("{} -> {}", value(before), value(after)),
            (None, None) => String::new(),
        };
        let news = match count {
            0 => String::new(),
            1 => ", 1 new commit".to_owned(),
            count => format!(", {count} new commits"),
        };
        out.push(format!("{name}: {moved}{news}"));
        for commit in commits {
            out.push(format!(
                "  {} {}",
                commit.id.short(),
                visible(&String::from_utf8_lossy(&commit.subject))
            ));
        }
        if commits.len() < *count {
            out.push(format!("  and {} more", count - commits.len()));
        }
        out.extend(class.iter().map(|carried| format!("  ! {}", carried_line(carried))));
        out.extend(unread.iter().map(|why| format!("  ! not known: {}", visible(why))));
    }
    match changes.staged.len() {
        0 => {}
        1 => out.push("index: 1 path staged".to_owned()),
        count => out.push(format!("index: {count} paths staged")),
    }
    out.extend(changes.staged_class.iter().map(|carried| format!("  ! {}", carried_line(carried))));
    out.extend(changes.unread().map(|why| format!("! not known: {}", visible(why))));
    out
}

fn carried_line(carried: &Carried) -> String {
    let Carried { path, class, commit } = carried;
    let by = commit.map(|id| format!(" in {}", id.short())).unwrap_or_default();
    format!("changes {}{by}: {}", shown(path), remark(class).unwrap_or_default())
}

pub fn repository_machine(changes: &RepositoryChanges) -> Value {
    let value = |value: &RefValue| match value {
        RefValue::Object(id) => id.hex(),
        RefValue::Symbolic(target) => format!("ref: {}", String::from_utf8_lossy(target)),
    };
    let carried = |carried: &Carried| json!({"path": shown(&carried.path), "why": remark(&carried.class), "commit": carried.commit.map(|id| id.hex())});
    let refs = changes.refs.iter().map(|change| {
        let commits = change.commits.iter().map(
            |commit| json!({"id": commit.id.hex(), "subject": String::from_utf8_lossy(&commit.subject)}),
        );
        json!({
            "name": String::from_utf8_lossy(&change.name),
            "before": change.before.as_ref().map(value),
            "after": change.after.as_ref().map(value),
            "commits": commits.collect::<Vec<_>>(),
            "commit_count": change.count,
            "carries": change.class.iter().map(carried).collect::<Vec<_>>(),
            "unread": change.unread,
        })
    });
    json!({
        "refs": refs.collect::<Vec<_>>(),
        "staged": changes.staged.iter().map(|path| shown(path)).collect::<Vec<_>>(),
        "index_carries": changes.staged_class.iter().map(carried).collect::<Vec<_>>(),
        "unread": changes.unread().collect::<Vec<_>>(),
    })
}

const CHANGED: &str = "the project's own file has changed since the run began";

/// Why a file that both sides changed is not merged.
pub fn unmerged(why: Unmerged) -> String {
    match why {
        Unmerged::NoOriginal => "the version that both sides began with is not kept".to_owned(),
        Unmerged::Overlap { places: 1 } => "both sides changed the same lines".to_owned(),
        Unmerged::Overlap { places } => format!("both sides changed the same lines in {places} places"),
        Unmerged::Binary => "it is not text".to_owned(),
        Unmerged::TooLarge => "it is larger than belljar merges".to_owned(),
        Unmerged::Modes => "both sides changed its permissions".to_owned(),
        Unmerged::Whole => "files that your machine executes are not merged".to_owned(),
    }
}

/// A file that both sides changed, in a line.
pub fn both_line(both: &BothChanged) -> String {
    let path = shown(&both.path);
    match both.unmerged {
        None => format!("merge: {path} (both sides changed)"),
        Some(why) => format!("conflict: {path} (both sides changed; {})", unmerged(why)),
    }
}

pub fn reason(refused: &Refused) -> String {
    match &refused.why {
        RefusedBecause::Carries { paths, unread } => {
            let first: Vec<String> = paths.iter().take(3).map(carried_line).collect();
            let more = paths.len().saturating_sub(3);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let unread = unread.as_ref().map(|why| format!("what it holds is not known: {}", visible(why)));
            let all: Vec<String> = first.into_iter().chain(unread).collect();
            format!("needs a yes of its own: {}{more}", all.join(", "))
        }
        RefusedBecause::HeldBack { files } => {
            format!(
                "commits, index and files go together, and one of them cannot be written: {files} held back"
            )
        }
        RefusedBecause::Locked => "git has it locked; if no git is running, delete the lock file".to_owned(),
        RefusedBecause::Unsound => "it does not hold the object that its name says".to_owned(),
        RefusedBecause::NeedsConsent { class } => {
            format!("needs a yes of its own: {}", remark(class).unwrap_or_default())
        }
        RefusedBecause::Special => "neither a file nor a directory".to_owned(),
        RefusedBecause::ChangedSince => CHANGED.to_owned(),
        RefusedBecause::Moved { name } => {
            format!("you moved {} since the run began", shown(Path::new(OsStr::from_bytes(name))))
        }
        RefusedBecause::Elsewhere { head } => {
            let head = match head {
                RefValue::Object(id) => id.short(),
                RefValue::Symbolic(target) => shown(Path::new(short_ref(target))),
            };
            format!("you have left {head} since the run began; `git switch` back to it, then apply")
        }
        RefusedBecause::Incomplete { missing } => {
            format!("new commits lead to {missing}, which is not there")
        }
        RefusedBecause::PartOfCommits => {
            "it cannot be dropped without its commits; `belljar discard` drops all of them".to_owned()
        }
        RefusedBecause::Unseen => "it cannot be read; it can only be discarded".to_owned(),
        RefusedBecause::Unmerged { why } => format!("{CHANGED}, and {}", unmerged(*why)),
        RefusedBecause::NotBelow => "a directory on the way leads out of the project".to_owned(),
        RefusedBecause::NeedsParent { parent } => format!("`{}` was not applied", shown(parent)),
        RefusedBecause::Failed { errno } => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}
