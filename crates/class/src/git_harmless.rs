//! The settings of a git configuration that are known to be harmless.
//!
//! A list of what git runs always lags behind git, so this lists what is known to be harmless; everything else has power.
//! A configuration may be replaced by one that has the same settings with power, in the same order, and any of the others:
//! `git remote add` and `git push -u` write the whole file anew.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    /// The name of a branch or a ref.
    Name,
    /// Which refs become which.
    Refspec,
    /// The address of a repository, or the name of a remote; not one that names a program.
    Address,
    /// Where the git directory of a submodule says that its work tree is. git takes relative programs from there.
    WorkTree,
    /// Whether the repository is bare. In a bare one, git runs relative programs from the directory that it is started in.
    Bare,
}

/// What the part in quotes may be. git passes names of remotes to other programs as arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    /// The name of a remote, a branch or a submodule.
    Named,
    /// The address of a server.
    Server,
}

use Part::{Named, None as Plain, Server};
use Value::{Address, Bare, Name, Refspec, Text, Word, WorkTree};

/// Sections with the keys that are harmless in them. `*` is every key.
const HARMLESS: &[(&str, Part, Value, &[&str])] = &[
    (
        "core",
        Plain,
        Word,
        &[
            "repositoryformatversion",
            "filemode",
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
    ("core", Plain, Bare, &["bare"]),
    ("core", Plain, WorkTree, &["worktree"]),
    ("remote", Named, Address, &["url", "pushurl"]),
    ("remote", Named, Refspec, &["fetch", "push"]),
    (
        "remote",
        Named,
        Word,
        &["tagopt", "prune", "prunetags", "mirror", "skipdefaultupdate", "skipfetchall", "gh-resolved"],
    ),
    ("remote", Plain, Address, &["pushdefault"]),
    ("branch", Named, Address, &["remote", "pushremote"]),
    (
        "branch",
        Named,
        Name,
        &["merge", "rebase", "vscode-merge-base", "gh-merge-base", "github-pr-owner-number"],
    ),
    ("branch", Named, Text, &["description"]),
    ("branch", Plain, Word, &["autosetupmerge", "autosetuprebase", "sort"]),
    ("user", Plain, Text, &["name", "email"]),
    ("author", Plain, Text, &["name", "email"]),
    ("committer", Plain, Text, &["name", "email"]),
    ("submodule", Named, Address, &["url"]),
    ("submodule", Named, Word, &["active", "update", "ignore", "shallow", "fetchrecursesubmodules"]),
    ("submodule", Named, Name, &["branch"]),
    ("submodule", Plain, Word, &["recurse", "fetchjobs", "alternatelocation", "alternateerrorstrategy"]),
    ("submodule", Plain, Text, &["active"]),
    (
        "extensions",
        Plain,
        Word,
        &["objectformat", "refstorage", "worktreeconfig", "noop", "relativeworktrees"],
    ),
    ("pull", Plain, Word, &["rebase", "ff"]),
    ("push", Plain, Word, &["default", "autosetupremote", "followtags"]),
    ("fetch", Plain, Word, &["prune", "prunetags", "parallel", "recursesubmodules", "writecommitgraph"]),
    ("merge", Plain, Word, &["ff", "conflictstyle", "renames", "log", "stat", "autostash"]),
    ("rebase", Plain, Word, &["autostash", "autosquash", "updaterefs", "stat"]),
    ("commit", Plain, Word, &["gpgsign", "verbose", "status"]),
    ("tag", Plain, Word, &["gpgsign", "sort"]),
    ("init", Plain, Name, &["defaultbranch"]),
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
    ("lfs", Server, Word, &["access", "locksverify"]),
];

/// Whether `new` may take the place of `current`, the configuration of the git directory at this path of the tree.
///
/// # Errors
/// Returns why not.
pub fn may_replace(current: Option<&[u8]>, new: &[u8], git_directory: &Path) -> Result<(), Unfit> {
    let new = git_settings_strict(new).ok_or(Unfit::Unclear)?;
    let current = git_settings(current.unwrap_or_default());
    // git states the work tree of a submodule once; moving it moves every program that is named relative to it.
    let is_work_tree = |setting: &GitSetting| setting.is("core", "worktree");
    let moves = current.iter().any(is_work_tree);
    let has_power =
        |setting: &GitSetting| moves && is_work_tree(setting) || !is_harmless(setting, git_directory);
    let of = |settings: Vec<GitSetting>| settings.into_iter().filter(has_power).collect::<Vec<_>>();
    let (new, current) = (of(new), of(current));
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
    let mut settings = git_settings_strict(text)?;
    settings.retain(|setting| !is_harmless(setting, git_directory));
    Some(settings)
}

fn is_harmless(setting: &GitSetting, git_directory: &Path) -> bool {
    let GitSetting { section, subsection, key, value } = setting;
    let known = HARMLESS.iter().find(|(name, part, _, keys)| {
        let fits = match (part, subsection) {
            (Plain, None) => true,
            (Named, Some(name)) => is_plain_name(name),
            (Server, Some(address)) => is_plain_address(address),
            (Plain, Some(_)) | (Named | Server, None) => false,
        };
        fits && name.as_bytes() == section
            && keys.iter().any(|known| *known == "*" || known.as_bytes() == key)
    });
    let Some((.., kind, _)) = known else { return false };
    let value = value.as_deref().unwrap_or(b"true");
    match kind {
        Word => value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-#;/ ".contains(byte)),
        Text => is_visible(value),
        // A dot is the repository itself.
        Name => value == b"." || is_plain_name(value),
        Refspec => is_refspec(value),
        Address => is_plain_address(value),
        WorkTree => is_own_work_tree(git_directory, value),
        Bare => is_false(value) || is_called_bare(git_directory),
    }
}

fn is_visible(text: &[u8]) -> bool {
    !text.iter().any(u8::is_ascii_control)
}

/// Characters with a meaning to a shell.
const SHELL: &[u8] = b"$`;&|<>\"'\\";

/// Whether a text can only be a name: what git allows in a ref but for what a shell or a program's options could be. A name
/// that begins with a dot is that of a submodule.
fn is_plain_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| !SHELL.contains(byte) && !b" ~^:?*[".contains(byte);
    let part = |part: &[u8]| {
        !part.is_empty()
            && !part.starts_with(b"-")
            && !matches!(part, b"." | b"..")
            && !part.eq_ignore_ascii_case(b".git")
    };
    is_visible(name)
        && name.iter().all(plain)
        && name.split(|byte| *byte == b'/').all(part)
        && !name.windows(2).any(|pair| pair == b".." || pair == b"@{")
}

/// The transports of git itself; for any other it looks for a program of that name.
const TRANSPORTS: [&[u8]; 7] = [b"https", b"http", b"ssh", b"git", b"file", b"git+ssh", b"ssh+git"];

/// Whether a text can only be an address or a path, without an option in the place of a host and without a transport
/// that is a program.
fn is_plain_address(address: &[u8]) -> bool {
    let scheme = address.windows(3).position(|part| part == b"://").map(|end| &address[..end]);
    let host = scheme.map_or(address, |scheme| &address[scheme.len() + 3..]);
    is_visible(address)
        && !address.is_empty()
        && address.trim_ascii() == address
        && !address.iter().any(|byte| SHELL.contains(byte))
        && scheme.is_none_or(|scheme| TRANSPORTS.contains(&scheme))
        && !host.starts_with(b"-")
        && !host.starts_with(b"[-")
        && !address.windows(2).any(|part| part == b"::")
}

/// Whether both sides of a refspec are names, in which one part may be `*`.
fn is_refspec(spec: &[u8]) -> bool {
    let spec = spec.strip_prefix(b"+").or_else(|| spec.strip_prefix(b"^")).unwrap_or(spec);
    let side = |side: &[u8]| {
        let name: Vec<u8> = side.iter().map(|byte| if *byte == b'*' { b'x' } else { *byte }).collect();
        side.is_empty() || is_plain_name(&name)
    };
    spec.split(|byte| *byte == b':').count() <= 2 && spec.split(|byte| *byte == b':').all(side)
}

/// Whether git reads the value as false.
fn is_false(value: &[u8]) -> bool {
    value.is_empty() || [&b"false"[..], b"no", b"off", b"0"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// Whether the place of a git directory says that it has no work tree.
fn is_called_bare(git_directory: &Path) -> bool {
    let is_git = |name: &std::ffi::OsStr| name.as_bytes().eq_ignore_ascii_case(b".git");
    !git_directory.as_os_str().is_empty() && !git_directory.iter().any(is_git)
}

/// Whether a path from the git directory of a submodule, `.git/modules/NAME`, is that of its work tree, `NAME` beside
/// `.git`. Any other place has power, and so has every work tree of another git directory.
fn is_own_work_tree(git_directory: &Path, value: &[u8]) -> bool {
    let names: Vec<&[u8]> = git_directory.iter().map(OsStrExt::as_bytes).collect();
    let Some(git) = names.iter().position(|name| *name == b".git") else { return false };
    let below = &names[git + 1..];
    let own: Vec<&[u8]> = match below {
        [b"modules", name @ ..] => name.to_vec(),
        [b"worktrees", tree, b"modules", name @ ..] => [&[*tree], name].concat(),
        _ => return false,
    };
    // That of a submodule of a submodule lies in the `modules` of the outer one, unless that is a part of its name.
    let nested: Vec<&[u8]> = own.iter().copied().filter(|name| *name != b"modules").collect();
    let up = b"../".repeat(below.len() + 1);
    let stated = value.strip_prefix(up.as_slice());
    [own, nested].iter().any(|way| !way.is_empty() && stated == Some(way.join(&b'/').as_slice()))
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
        for (directory, value) in [
            (".git/modules/libs/a", "../../../../libs/a"),
            (".git/modules/modules/a", "../../../../modules/a"),
            (".git/modules/a/modules/b", "../../../../../a/b"),
            ("x/.git/modules/a", "../../../a"),
            (".git/worktrees/w/modules/a", "../../../../../w/a"),
        ] {
            let module = format!("[core]\n\tworktree = {value}\n");
            assert_eq!(may_replace(None, module.as_bytes(), Path::new(directory)), Ok(()), "{directory}");
            let other = format!("[core]\n\tworktree = {value}x\n");
            for (current, new) in [("", &other), (module.as_str(), &other), (other.as_str(), &module)] {
                let judged = may_replace(Some(current.as_bytes()), new.as_bytes(), Path::new(directory));
                assert_eq!(judged, Err(Unfit::Changes(vec!["core.worktree".into()])), "{directory}");
            }
        }
        let bare = b"[core]\n\tbare = true\n";
        assert_eq!(may_replace(None, bare, Path::new("a/bare.git")), Ok(()));
        for directory in ["", ".git", "a/.git", ".git/modules/a"] {
            assert!(may_replace(None, bare, Path::new(directory)).is_err(), "{directory}");
        }
    }

    #[test]
    fn names_and_addresses_are_plain() {
        for text in [
            "[remote \"up/stream-2\"]\nurl = ssh://git@host:22/~a/b.git\npush = +HEAD:refs/heads/*\ntagOpt = --no-tags",
            "[remote \"o\"]\nurl = C/My Project/x.git\nfetch = ^refs/heads/x\npush = :",
            "[branch \"feat/(x)#12\"]\nremote = .\nmerge = refs/heads/main\npushRemote = https://host/x?a=b",
            "[submodule \".vim/bundle/a\"]\nurl = ../a\nactive = true\nbranch = .",
            "[lfs \"https://host/a.git/info/lfs\"]\naccess = basic",
        ] {
            assert_eq!(judged("", text), Ok(()), "{text}");
        }
        for text in [
            "[remote \"--upload-pack=touch x;git-upload-pack\"]\nurl = .",
            "[remote \"-u\"]\nurl = .",
            "[remote \"a/-u\"]\nfetch = +refs/heads/*:refs/remotes/x/*",
            "[remote.--exec]\nurl = .",
            "[remote \"a b\"]\nurl = .",
            "[remote \"a;b\"]\nprune = true",
            "[remote \"\"]\nurl = .",
            "[remote \"..\"]\nurl = .",
            "[branch \"-x\"]\nremote = origin",
            "[branch \"$(x)\"]\nremote = origin",
            "[branch \"m\"]\nmerge = --exec=x",
            "[branch \"m\"]\nremote = --upload-pack=x",
            "[branch \"m\"]\npushRemote = \"\" \"--receive-pack=x\"",
            "[branch \"m\"]\npushRemote = \" -x\"",
            "[remote]\npushDefault = -x",
            "[remote]\npushDefault = \"a`b`\"",
            "[remote \"o\"]\nurl = \"\" -oProxyCommand=x:y",
            "[remote \"o\"]\nurl = ssh://$(x)@host/y",
            "[remote \"o\"]\nurl = ext://sh",
            "[remote \"o\"]\nurl = other://host/x",
            "[remote \"o\"]\nurl = ssh://[-oProxyCommand=x]/y",
            "[remote \"o\"]\npush = --force",
            "[remote \"o\"]\nfetch = a:b:c",
            "[submodule \"../x\"]\nurl = x",
            "[submodule \"a\"]\nbranch = -x",
            "[submodule \"a/.git\"]\nactive = true",
            "[push]\nrecurseSubmodules = on-demand",
            "[color \"-x\"]\nbranch = red",
            "[init]\ndefaultBranch = -x",
        ] {
            assert!(matches!(judged("", text), Err(Unfit::Changes(_))), "{text}");
        }
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
            "[core]\nworktree = ../evil",
            "[core]\nworktree = ..",
            "[core]\nprotectNTFS = false",
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
            "[user]\nname # comment",
        ] {
            assert_eq!(judged("", text), Err(Unfit::Unclear), "{text:?}");
        }
    }
}
