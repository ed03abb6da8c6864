//! The commits that a changed ref led to and leads to. A commit that another ref had all along is not new, and
//! still brings its files once this ref is checked out.

use super::history::RefChange;
use super::object::{ObjectError, ObjectId};
use super::refs::{RefValue, Refs};
use super::store::Objects;

const HEAD: &[u8] = b"HEAD";
const STASH: &[u8] = b"refs/stash";
const REPLACE: &[u8] = b"refs/replace/";
const REMOTES: &[u8] = b"refs/remotes/";

/// Files whose commits git checks out or applies as a whole when an unfinished operation ends.
const WHOLE: [&[u8]; 6] = [
    b"rebase-merge/autostash",
    b"rebase-merge/orig-head",
    b"sequencer/head",
    b"MERGE_AUTOSTASH",
    b"MERGE_HEAD",
    b"logs/refs/stash",
];

/// The commit before, if there was any, and the commit now.
pub(super) type MovedRef = (Option<ObjectId>, ObjectId);

/// Whether git reads this object instead of the one that the name of the ref holds.
pub(super) fn is_replacement(name: &[u8]) -> bool {
    name.starts_with(REPLACE)
}

/// What to compare for a changed ref. A new ref is compared with the user's HEAD.
pub(super) fn steps(
    change: &RefChange,
    (before, after): (&Refs, &Refs),
    objects: &Objects,
) -> Result<Vec<MovedRef>, ObjectError> {
    let name = change.name.as_slice();
    let tips = match after.others.get(name) {
        Some(ids) => unfinished(name, ids.as_deref().unwrap_or_default(), before),
        None => tip(name, before, after).into_iter().collect(),
    };
    let base = match base(name, before) {
        Some(id) if !tips.is_empty() => objects.peeled(&id)?,
        Some(_) | None => None,
    };
    let mut out = Vec::new();
    for id in tips {
        out.extend(objects.peeled(&id)?.map(|tip| (base, tip)));
    }
    Ok(out)
}

fn unfinished(name: &[u8], ids: &[ObjectId], before: &Refs) -> Vec<ObjectId> {
    if !WHOLE.iter().any(|whole| name.ends_with(whole)) {
        return Vec::new();
    }
    let had = before.others.get(name).and_then(Option::as_deref).unwrap_or_default();
    ids.iter().filter(|id| !had.contains(id)).copied().collect()
}

fn tip(name: &[u8], before: &Refs, after: &Refs) -> Option<ObjectId> {
    if is_only_remote(name, after) {
        return None;
    }
    if let Some(RefValue::Symbolic(target)) = after.values.get(name) {
        let target_changed = before.values.get(target) != after.values.get(target);
        // The change of the other ref is compared with the same commit.
        if target_changed && base(target, before) == base(name, before) {
            return None;
        }
    }
    after.resolve(name).or_else(|| replaced(name))
}

/// The object to compare with.
fn base(name: &[u8], before: &Refs) -> Option<ObjectId> {
    let head = || before.resolve(HEAD);
    // `git stash pop` merges into what is checked out, whatever entry was the last one before.
    if name == STASH {
        return head();
    }
    before.resolve(name).or_else(|| replaced(name)).or_else(head)
}

/// The object that git does not read while this ref exists.
fn replaced(name: &[u8]) -> Option<ObjectId> {
    ObjectId::parse(name.strip_prefix(REPLACE)?)
}

/// Whether a changed ref is compared with the user's HEAD, so that a file which names its commit need not be.
pub(super) fn is_compared_with_head(name: &[u8], before: &Refs, after: &Refs) -> bool {
    !is_only_remote(name, after) && base(name, before) == before.resolve(HEAD)
}

/// Whether this is a remote-tracking ref, and no ref of the user's own follows it: fetching checks nothing out.
fn is_only_remote(name: &[u8], after: &Refs) -> bool {
    let leads_here = |(from, value): (&Vec<u8>, &RefValue)| match value {
        RefValue::Object(_) => false,
        RefValue::Symbolic(target) => target == name && !from.starts_with(REMOTES),
    };
    name.starts_with(REMOTES) && !after.values.iter().any(leads_here)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{git, objects_of};
    use super::super::{ClassContext, PlainFiles, history};
    use super::*;
    use belljar_sys::beneath::Directory;
    use std::fs;
    use std::path::Path;

    fn refs_of(top: &Path) -> Refs {
        let directory = Directory::open(&top.join(".git")).unwrap();
        Refs::read(&PlainFiles(&directory), Path::new(""))
    }

    /// A repository whose branch `pr`, and what was fetched as `o/pr`, add a file of the class.
    fn repository(top: &Path) {
        git(top, &["init", "-q", "-b", "main"]);
        fs::write(top.join(".npmrc"), "mine\n").unwrap();
        git(top, &["add", "."]);
        git(top, &["commit", "-qm", "first"]);
        git(top, &["checkout", "-qb", "pr"]);
        fs::write(top.join(".envrc"), "evil\n").unwrap();
        git(top, &["add", "."]);
        git(top, &["commit", "-qm", "pr"]);
        git(top, &["update-ref", "refs/remotes/o/pr", "pr"]);
        git(top, &["checkout", "-q", "main"]);
        git(top, &["branch", "same"]);
    }

    /// The refs that carry files of the class after these commands.
    fn carried(commands: &[&[&str]]) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let top = place.path();
        repository(top);
        let before = refs_of(top);
        for command in commands {
            git(top, command);
        }
        let known = ClassContext { aliases: &[], named: &[], at: Path::new("") };
        let changes = history::compare(&before, &refs_of(top), &objects_of(top), &known);
        let mut out = Vec::new();
        for change in changes.iter().filter(|change| change.needs_consent()) {
            assert_eq!(change.unread, None, "{commands:?}");
            let paths = change.class.iter().map(|carried| carried.path.display().to_string());
            let name = String::from_utf8_lossy(&change.name);
            out.push(format!("{name} {}", paths.collect::<Vec<_>>().join(" ")));
        }
        out
    }

    #[test]
    fn commits_that_another_ref_had_are_judged_for_the_ref_that_moved() {
        belljar_testkit::require!(Git);
        let cases: [(&[&[&str]], &[&str]); 10] = [
            (&[&["update-ref", "refs/heads/main", "o/pr"]], &["refs/heads/main .envrc"]),
            (&[&["symbolic-ref", "HEAD", "refs/heads/pr"]], &["HEAD .envrc"]),
            (&[&["symbolic-ref", "HEAD", "refs/remotes/o/pr"]], &["HEAD .envrc"]),
            (&[&["symbolic-ref", "refs/heads/main", "refs/heads/pr"]], &["refs/heads/main .envrc"]),
            (&[&["checkout", "-q", "--detach", "pr"]], &["HEAD .envrc"]),
            // A new branch, and HEAD on it, are one change.
            (&[&["checkout", "-q", "-b", "x", "o/pr"]], &["refs/heads/x .envrc"]),
            (&[&["tag", "v1", "o/pr"]], &["refs/tags/v1 .envrc"]),
            (
                &[&["update-ref", "refs/heads/main", "pr"], &["checkout", "-q", "-f", "same"]],
                &["refs/heads/main .envrc"],
            ),
            (&[&["merge", "-q", "--no-ff", "-m", "merge", "pr"]], &["refs/heads/main .envrc"]),
            (&[&["merge", "-q", "--no-ff", "--no-commit", "pr"]], &["MERGE_HEAD .envrc"]),
        ];
        for (commands, expected) in cases {
            assert_eq!(carried(commands), expected, "{commands:?}");
        }
        // A remote-tracking ref is not compared, and does not stand for a file that is.
        for file in ["rebase-merge/orig-head", "MERGE_AUTOSTASH"] {
            let write = format!("!mkdir -p .git/rebase-merge && git rev-parse pr > .git/{file}");
            let alias = format!("alias.begin={write}");
            let commands: [&[&str]; 2] =
                [&["update-ref", "refs/remotes/o/z", "pr"], &["-c", &alias, "begin"]];
            assert_eq!(carried(&commands), [format!("{file} .envrc")]);
        }
        let replaced = carried(&[&["replace", "main", "pr"]]);
        assert!(replaced.len() == 1 && replaced[0].ends_with(" .envrc"), "{replaced:?}");
        assert!(replaced[0].starts_with("refs/replace/"), "{replaced:?}");
    }

    #[test]
    fn refs_that_bring_no_file_of_the_class_are_not_reported() {
        belljar_testkit::require!(Git);
        let cases: [&[&[&str]]; 6] = [
            &[&["checkout", "-q", "-b", "x"]],
            &[&["branch", "x"]],
            &[&["checkout", "-q", "same"]],
            &[&["update-ref", "refs/remotes/o/main", "pr"]],
            &[&["update-ref", "refs/remotes/o/pr", "main"]],
            &[&["commit", "-q", "--allow-empty", "-m", "x"], &["branch", "x"], &["branch", "-qD", "same"]],
        ];
        for commands in cases {
            assert_eq!(carried(commands), Vec::<String>::new(), "{commands:?}");
        }
    }
}
