//! Describes changes.

use super::{Options, shown};
use belljar_contract::visible;
use belljar_runner::changes::{
    BothChanged, BranchUse, Carried, Change, ChangeKind, Class, KeptRepository, Presence, RefChange,
    RefValue, RefusedBecause, RefusedChange, RepositoryChanges, Unmerged, short_ref,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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

/// What a line about a repository begins with; nothing for the project's own.
fn repository_title(repository: &KeptRepository) -> String {
    let path = &repository.path;
    if path.as_os_str().is_empty() { String::new() } else { format!("{}: ", shown(path)) }
}

/// What happened to a repository, a line each.
pub fn repository_lines(repository: &KeptRepository) -> Vec<String> {
    let (title, changes) = (repository_title(repository), &repository.changes);
    let mut out = Vec::new();
    match repository.presence {
        Presence::Both => {}
        Presence::New => out.push("new repository".to_owned()),
        Presence::Gone => {
            out.push("repository deleted".to_owned());
            return out.into_iter().map(|line| format!("{title}{line}")).collect();
        }
    }
    for change in &changes.refs {
        let RefChange { name, before, after, commits, count, class, unread, lost } = change;
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
        if *lost > 0 {
            out.push(format!("  ! {}", losing(*lost)));
        }
    }
    match changes.staged.len() {
        0 => {}
        1 => out.push("index: 1 path changed".to_owned()),
        count => out.push(format!("index: {count} paths changed")),
    }
    out.extend(changes.staged_class.iter().map(|carried| format!("  ! {}", carried_line(carried))));
    out.extend(changes.unread().map(|why| format!("! not known: {}", visible(why))));
    let titled = |line: String| if line.starts_with(' ') { line } else { format!("{title}{line}") };
    out.into_iter().map(titled).collect()
}

fn losing(count: usize) -> String {
    match count {
        1 => "no ref and no reflog would lead to 1 commit that it had".to_owned(),
        count => format!("no ref and no reflog would lead to {count} commits that it had"),
    }
}

fn carried_line(carried: &Carried) -> String {
    let Carried { path, class, commit } = carried;
    let by = commit.map(|id| format!(" in {}", id.short())).unwrap_or_default();
    format!("changes {}{by}: {}", shown(path), remark(class).unwrap_or_default())
}

/// The project's own repository, whether something is kept of it or not.
pub fn own_machine(repositories: &[KeptRepository]) -> Value {
    let own = repositories.iter().find(|repository| repository.label.as_os_str().is_empty());
    own.map_or_else(|| changes_machine(&RepositoryChanges::default()), repository_machine)
}

pub fn repository_machine(repository: &KeptRepository) -> Value {
    let mut out = changes_machine(&repository.changes);
    let path = &repository.path;
    out["path"] = json!(if path.as_os_str().is_empty() { ".".to_owned() } else { shown(path) });
    out["state"] = json!(match repository.presence {
        Presence::Both => "changed",
        Presence::New => "new",
        Presence::Gone => "deleted",
    });
    out
}

fn changes_machine(changes: &RepositoryChanges) -> Value {
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
            "lost_commits": change.lost,
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

pub fn reason(refused: &RefusedChange, options: &Options) -> String {
    match &refused.why {
        RefusedBecause::Carries { paths, unread } => {
            let first: Vec<String> = paths.iter().take(3).map(carried_line).collect();
            let more = paths.len().saturating_sub(3);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let unread = unread.as_ref().map(|why| format!("what it holds is not known: {}", visible(why)));
            let all: Vec<String> = first.into_iter().chain(unread).collect();
            format!("needs your confirmation: {}{more}", all.join(", "))
        }
        RefusedBecause::HeldBack { files } => {
            format!(
                "commits, index and files go together, and one of them cannot be written: {files} held back"
            )
        }
        RefusedBecause::Locked => "git has it locked; if no git is running, delete the lock file".to_owned(),
        RefusedBecause::Unsound => "it does not hold the object that its name says".to_owned(),
        RefusedBecause::NeedsConsent { class } => {
            format!("needs your confirmation: {}", remark(class).unwrap_or_default())
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
        RefusedBecause::InUse { name, place, how } => {
            let how = match how {
                BranchUse::CheckedOut => "is checked out",
                BranchUse::Rebased => "is being rebased",
                BranchUse::Bisected => "is being bisected",
            };
            let place = if place.as_os_str().is_empty() { "the project".to_owned() } else { shown(place) };
            format!("{} {how} in {place}", shown(Path::new(short_ref(name))))
        }
        RefusedBecause::Incomplete { missing } => {
            format!("new commits lead to {missing}, which is not there")
        }
        RefusedBecause::PartOfCommits => {
            let discard = options.command("discard");
            format!("it cannot be dropped without its commits; `{discard}` drops all of them")
        }
        RefusedBecause::LosesCommits { count } => format!("needs your confirmation: {}", losing(*count)),
        RefusedBecause::DeletesRepository => {
            "needs your confirmation: the repository is deleted, with all its commits".to_owned()
        }
        RefusedBecause::StagedOnly => {
            "it is staged, and neither a commit nor the file has it; it would be lost".to_owned()
        }
        RefusedBecause::NeedsRepository { path } => {
            format!("it names commits of `{}`, which is not written", shown(path))
        }
        RefusedBecause::Unseen => "it cannot be read; it can only be discarded".to_owned(),
        RefusedBecause::Unmerged { why } => format!("{CHANGED}, and {}", unmerged(*why)),
        RefusedBecause::LinkAbove { link } => format!("`{}` is a link now", shown(link)),
        RefusedBecause::NotBelow => {
            "a directory on the way changed meanwhile, or is on another file system".to_owned()
        }
        RefusedBecause::NeedsParent { parent } => format!("`{}` was not applied", shown(parent)),
        RefusedBecause::Failed { errno } => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}
