//! The settings of a git configuration that are known to be harmless.
//!
//! A list of what git runs always lags behind git, so this lists what is known to be harmless; everything else has power.
//! A configuration may be replaced by one that has the same settings with power, in the same order, and any of the others:
//! `git remote add` and `git push -u` write the whole file anew.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::git_settings::{GitSetting, git_settings, git_settings_strict};

/// Why a configuration may not take the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Not every reader would read it alike.
    Unclear,
    /// It adds, changes or leaves out these settings.
    Changes(Vec<String>),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Unclear => write!(out, "it is not written as git writes it"),
            Unfit::Changes(settings) => {
                write!(out, "it changes ")?;
                for (at, setting) in settings.iter().take(SHOWN).enumerate() {
                    let name: String = setting.chars().take(LETTERS).collect();
                    write!(out, "{}`{name}`", if at > 0 { ", " } else { "" })?;
                }
                match settings.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(out, " and {more} more"),
                }
            }
        }
    }
}

/// Settings that are named, and characters of each name.
const SHOWN: usize = 5;
const LETTERS: usize = 100;

/// What a harmless setting may be.
#[derive(Clone, Copy)]
enum Value {
    /// A truth, a number or a plain word.
    Word,
    /// Anything that can be seen.
    Text,
    /// The address of a repository, or the name of a remote; not one that names a program.
    Address,
    /// A directory of the tree, from the git directory.
    WorkTree,
}

/// Whether the section has a part in quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Named,
}

use Part::{Named, None as Plain};
use Value::{Address, Text, Word, WorkTree};

/// Sections with the keys that are harmless in them. `*` is every key.
const HARMLESS: &[(&str, Part, Value, &[&str])] = &[
    (
        "core",
        Plain,
        Word,
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "quotepath",
            "abbrev",
            "sparsecheckout",
            "sparsecheckoutcone",
            "longpaths",
            "protecthfs",
            "protectntfs",
            "hidedotfiles",
            "trustctime",
            "untrackedcache",
            "preloadindex",
            "commitgraph",
            "multipackindex",
            "compression",
            "bigfilethreshold",
            "commentchar",
        ],
    ),
    ("core", Plain, WorkTree, &["worktree"]),
    ("remote", Named, Address, &["url", "pushurl"]),
    ("remote", Named, Text, &["fetch", "push", "tagopt"]),
    (
        "remote",
        Named,
        Word,
        &["prune", "prunetags", "mirror", "skipdefaultupdate", "skipfetchall", "gh-resolved"],
    ),
    ("remote", Plain, Address, &["pushdefault"]),
    ("branch", Named, Address, &["remote", "pushremote"]),
    (
        "branch",
        Named,
        Text,
        &["merge", "description", "rebase", "vscode-merge-base", "gh-merge-base", "github-pr-owner-number"],
    ),
    ("branch", Plain, Word, &["autosetupmerge", "autosetuprebase", "sort"]),
    ("user", Plain, Text, &["name", "email"]),
    ("author", Plain, Text, &["name", "email"]),
    ("committer", Plain, Text, &["name", "email"]),
    ("submodule", Named, Address, &["url"]),
    ("submodule", Named, Word, &["active", "update", "ignore", "shallow", "fetchrecursesubmodules"]),
    ("submodule", Named, Text, &["branch"]),
    ("submodule", Plain, Word, &["recurse", "fetchjobs", "alternatelocation", "alternateerrorstrategy"]),
    ("submodule", Plain, Text, &["active"]),
    (
        "extensions",
        Plain,
        Word,
        &["objectformat", "refstorage", "worktreeconfig", "noop", "relativeworktrees"],
    ),
    ("pull", Plain, Word, &["rebase", "ff"]),
    ("push", Plain, Word, &["default", "autosetupremote", "followtags", "recursesubmodules"]),
    ("fetch", Plain, Word, &["prune", "prunetags", "parallel", "recursesubmodules", "writecommitgraph"]),
    ("merge", Plain, Word, &["ff", "conflictstyle", "renames", "log", "stat", "autostash"]),
    ("rebase", Plain, Word, &["autostash", "autosquash", "updaterefs", "stat"]),
    ("commit", Plain, Word, &["gpgsign", "verbose", "status"]),
    ("tag", Plain, Word, &["gpgsign", "sort"]),
    ("init", Plain, Text, &["defaultbranch"]),
    ("rerere", Plain, Word, &["enabled", "autoupdate"]),
    ("gc", Plain, Word, &["auto", "autopacklimit", "autodetach"]),
    ("maintenance", Plain, Word, &["auto", "strategy"]),
    ("index", Plain, Word, &["version", "threads", "sparse"]),
    ("pack", Plain, Word, &["window", "depth", "threads"]),
    ("diff", Plain, Word, &["algorithm", "renames", "mnemonicprefix", "noprefix", "context", "colormoved"]),
    ("log", Plain, Word, &["date", "decorate", "abbrevcommit", "follow"]),
    ("status", Plain, Word, &["*"]),
    ("advice", Plain, Word, &["*"]),
    ("color", Plain, Text, &["*"]),
    ("color", Named, Text, &["*"]),
    ("lfs", Plain, Word, &["repositoryformatversion"]),
    ("lfs", Named, Word, &["access", "locksverify"]),
];

/// Whether `new` may take the place of `current`, the configuration of the git directory at this path of the tree.
///
/// # Errors
/// Says why not.
pub fn may_replace(current: Option<&[u8]>, new: &[u8], git_directory: &Path) -> Result<(), Unfit> {
    let new = powerful(git_settings_strict(new).ok_or(Unfit::Unclear)?, git_directory);
    let current = powerful(git_settings(current.unwrap_or_default()), git_directory);
    if new == current {
        return Ok(());
    }
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (current.iter().collect(), new.iter().collect());
    let mut names: BTreeSet<String> =
        before.symmetric_difference(&after).map(|setting| setting.name()).collect();
    if names.is_empty() {
        // The same ones in another order, or another number of times.
        names.extend(after.into_iter().map(GitSetting::name));
    }
    Err(Unfit::Changes(names.into_iter().collect()))
}

/// The settings of a configuration that are not known to be harmless; nothing where not every reader would read it alike.
#[must_use]
pub fn powerful_settings(text: &[u8], git_directory: &Path) -> Option<Vec<GitSetting>> {
    Some(powerful(git_settings_strict(text)?, git_directory))
}

fn powerful(mut settings: Vec<GitSetting>, git_directory: &Path) -> Vec<GitSetting> {
    settings.retain(|setting| !is_harmless(setting, git_directory));
    settings
}

fn is_harmless(setting: &GitSetting, git_directory: &Path) -> bool {
    let GitSetting { section, subsection, key, value } = setting;
    let part = if subsection.is_some() { Named } else { Plain };
    let known = HARMLESS.iter().find(|(name, with, _, keys)| {
        name.as_bytes() == section
            && *with == part
            && keys.iter().any(|known| *known == "*" || known.as_bytes() == key)
    });
    let Some((.., kind, _)) = known else { return false };
    let value = value.as_deref().unwrap_or(b"true");
    let text = value.iter().all(|byte| !byte.is_ascii_control());
    match kind {
        Word => value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-#;/ ".contains(byte)),
        Text => text,
        Address => {
            let option = value.starts_with(b"-") || value.windows(4).any(|part| part == b"://-");
            text && !option && !value.windows(2).any(|part| part == b"::")
        }
        WorkTree => text && stays_inside(git_directory, value),
    }
}

/// Whether a path from the git directory stays in the tree, in a place that is not git's own.
fn stays_inside(git_directory: &Path, value: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let stated = Path::new(std::ffi::OsStr::from_bytes(value));
    let mut reached = PathBuf::from(git_directory);
    for component in stated.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => reached.push(name),
            Component::ParentDir => {
                if !reached.pop() {
                    return false;
                }
            }
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !reached.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(b".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(current: &str, new: &str) -> Result<(), Unfit> {
        may_replace(Some(current.as_bytes()), new.as_bytes(), Path::new(".git"))
    }

    #[test]
    fn what_git_writes_by_itself_is_harmless() {
        let init = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n";
        assert_eq!(may_replace(None, init.as_bytes(), Path::new(".git")), Ok(()));
        let remote = format!(
            "{init}[remote \"origin\"]\n\turl = git@host:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
        );
        assert_eq!(judged(init, &remote), Ok(()));
        let tracked = format!("{remote}[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n");
        assert_eq!(judged(&remote, &tracked), Ok(()));
        assert_eq!(judged(&tracked, init), Ok(()));
        let module = "[core]\n\tworktree = ../../../libs/a\n";
        assert_eq!(
            may_replace(None, module.as_bytes(), Path::new(".git/modules/libs/a")),
            Err(Unfit::Changes(vec!["core.worktree".into()]))
        );
        let module = "[core]\n\tworktree = ../../../../libs/a\n";
        assert_eq!(may_replace(None, module.as_bytes(), Path::new(".git/modules/libs/a")), Ok(()));
    }

    #[test]
    fn what_has_power_cannot_be_added_changed_or_removed() {
        for text in [
            "[core]\nfsmonitor = x",
            "[core]\nhooksPath = x",
            "[alias]\nst = status",
            "[alias]\nst = -c core.fsmonitor=x status",
            "[include]\npath = x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[remote \"o\"]\nurl = ext::sh -c x",
            "[remote \"o\"]\nurl = -x",
            "[remote \"o\"]\nurl = ssh://-oProxyCommand=x/y",
            "[remote \"o\"]\nuploadpack = x",
            "[branch \"m\"]\nremote = ext::x",
            "[submodule \"s\"]\nupdate = !x",
            "[extensions]\npartialClone = origin",
            "[core]\nworktree = ../..",
            "[core]\nworktree = /home/u",
            "[gc]\nrecentObjectsHook = x",
            "[diff \"d\"]\nalgorithm = x\ncommand = y",
            "[http]\nproxy = x",
        ] {
            assert!(matches!(judged("", text), Err(Unfit::Changes(_))), "{text}");
            assert!(matches!(judged(text, ""), Err(Unfit::Changes(_))), "{text}");
            // It was there, and is still there.
            assert_eq!(judged(text, &format!("{text}\n[user]\nname = a\n")), Ok(()), "{text}");
        }
        let two = "[core]\nhooksPath = a\nhooksPath = b\n";
        let swapped = "[core]\nhooksPath = b\nhooksPath = a\n";
        assert_eq!(judged(two, swapped), Err(Unfit::Changes(vec!["core.hookspath".into()])));
    }

    #[test]
    fn every_setting_that_differs_is_named() {
        let unfit =
            judged("[core]\nhooksPath = a\n", "[core]\nfsmonitor = b\n[alias]\nst = !c\n").unwrap_err();
        assert_eq!(unfit.to_string(), "it changes `alias.st`, `core.fsmonitor`, `core.hookspath`");
        let many: String = (0..9).map(|number| format!("[alias]\na{number} = !x\n")).collect();
        let unfit = judged("", &many).unwrap_err().to_string();
        assert!(unfit.ends_with("`alias.a4` and 4 more"), "{unfit}");
        let long = format!("[alias \"{}\"]\na = !x\n", "x".repeat(5000));
        assert!(judged("", &long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn what_readers_read_differently_is_refused() {
        for text in [
            "[core\nbare = false",
            "[core]\nbare = \"fal\nse\"",
            "[core]\nbare = a\\qb",
            "bare = false",
            "[core]\r\nbare = false",
            "[user]\nname = a\u{0}b",
            "\u{feff}[user]\nname = a",
            "[co re]\nbare = false",
            "[user]\nname = \"a",
            "[user]\nname = a\\",
        ] {
            assert_eq!(judged("", text), Err(Unfit::Unclear), "{text:?}");
        }
    }
}
