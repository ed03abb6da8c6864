//! Decides what the guard holds back while a run lasts: the guarded part of the class, by the path and the type of the
//! entry that would be created.
//!
//! Links are judged as the entries that they could stand in for; the caller has to find out where they lead. Entries
//! that are only watched are not held back.

use std::path::{Path, PathBuf};

use super::class::{LINK_IN_GIT, TreeFacts, tops};
use super::matching::{self, Extent, GitTop};
use super::table::{CONFIG, GIT_POINTER, Grade, USED_OUTSIDE};

/// Files that git writes and then renames over a configuration. A program that can write to the lock of the host's git
/// can write the configuration.
const CONFIG_LOCKS: [&str; 2] = ["config.lock", "config.worktree.lock"];

/// Where git's own probe leads (`create_default_files` of git 2.47, `git_fs_path_supports_symlinks` of libgit2).
const PROBE: &[u8] = b"testing";

/// The type of entry that would be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// A file, a pipe or a socket.
    File,
    /// A directory, empty or not.
    Directory,
    /// A symbolic link.
    Link,
    /// The symbolic link that git makes in a new git directory, to find out whether it can.
    Probe,
}

impl Making {
    /// A link with this text.
    #[must_use]
    pub fn link(text: &[u8]) -> Self {
        if text == PROBE { Making::Probe } else { Making::Link }
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_link(self) -> bool {
        match self {
            Making::Link | Making::Probe => true,
            Making::File | Making::Directory => false,
        }
    }
}

/// Why an entry is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// What would run it, and when.
    pub why: &'static str,
    /// The content with which it is let through.
    pub unless: Unless,
}

/// Contents that are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unless {
    /// None.
    Never,
    /// A git configuration: [`may_replace`](super::may_replace) decides.
    HarmlessConfig,
    /// A file that points to a git directory.
    KnownRepository,
    /// A file that points from the part of a work tree to its repository.
    OwnRepository,
    /// The lock of a git configuration: what is written to it is judged when it takes the configuration's place.
    ConfigLock,
}

/// Whether an entry of this kind is held back at this path of the tree.
#[must_use]
pub fn held(relative: &Path, making: Making, around: &dyn TreeFacts) -> Option<Held> {
    let through = around.aliases().iter().filter_map(|alias| {
        let rest = relative.strip_prefix(&alias.leads_to).ok()?;
        let place: PathBuf = alias.place.iter().chain(rest.iter()).collect();
        // Another file stands in for it, so its own name decides nothing about its content.
        held_at(&place, making, around).map(|held| Held { unless: Unless::Never, ..held })
    });
    let stands_in = |leads_to: &Path| making.is_link() && leads_to.starts_with(relative);
    let leads = around.aliases().iter().find(|alias| stands_in(&alias.leads_to));
    let leads = leads.and_then(|alias| held_at(&alias.place, Making::Link, around));
    let named = around.named().iter().any(|named| match making {
        Making::Directory => false,
        Making::Link | Making::Probe => named.starts_with(relative) || relative.starts_with(named),
        Making::File => relative.starts_with(named),
    });
    let named = named.then_some(Held { why: USED_OUTSIDE, unless: Unless::Never });
    let lock =
        around.aliases().iter().any(|alias| is_config(&alias.place) && is_lock_of(relative, &alias.leads_to));
    let lock = (lock && making != Making::Directory).then_some(Held { why: CONFIG, unless: Unless::Never });
    // Entries that their content can make harmless come last.
    through.chain(leads).chain(named).chain(lock).next().or_else(|| held_at(relative, making, around))
}

fn is_config(place: &Path) -> bool {
    place.file_name().is_some_and(|name| name == "config" || name == "config.worktree")
}

/// git follows a link that stands in for a configuration, and makes the lock where it leads.
fn is_lock_of(relative: &Path, config: &Path) -> bool {
    relative.extension().is_some_and(|last| last.eq_ignore_ascii_case("lock"))
        && relative.with_extension("") == config
}

fn is_config_lock(name: &[u8]) -> bool {
    CONFIG_LOCKS.iter().any(|lock| name.eq_ignore_ascii_case(lock.as_bytes()))
}

fn held_lock(names: &[&[u8]], making: Making, around: &dyn TreeFacts) -> Option<Held> {
    let name = names.last().filter(|name| is_config_lock(name))?;
    // git does not rename a directory over a file.
    if making == Making::Directory || !tops(names, around).iter().any(|top| top.depth + 1 == names.len()) {
        return None;
    }
    let exact = making == Making::File && CONFIG_LOCKS.iter().any(|lock| lock.as_bytes() == *name);
    Some(Held { why: CONFIG, unless: if exact { Unless::ConfigLock } else { Unless::Never } })
}

fn held_at(relative: &Path, making: Making, around: &dyn TreeFacts) -> Option<Held> {
    let names = matching::names(relative);
    if making != Making::Directory && names.last().is_some_and(|name| name.eq_ignore_ascii_case(b".git")) {
        let unless = if making == Making::File && names.last() == Some(&b".git".as_slice()) {
            Unless::KnownRepository
        } else {
            Unless::Never
        };
        return Some(Held { why: GIT_POINTER, unless });
    }
    if let Some(held) = held_lock(&names, making, around) {
        return Some(held);
    }
    if making.is_link() {
        return held_link(&names, making, around);
    }
    // Most names match no line, wherever a git directory may be: nothing is looked at for them.
    let anywhere: Vec<GitTop> = (0..=names.len()).map(|depth| GitTop { depth, bare: true }).collect();
    let find = |tops: &[GitTop]| {
        let hit = matching::whole_or_exempt(&names, tops).filter(|hit| hit.grade == Grade::Guarded)?;
        (making != Making::Directory || hit.extent == Extent::Subtree).then_some(hit)
    };
    find(&anywhere)?;
    let tops = tops(&names, around);
    let hit = find(&tops)?;
    let exempt = match making {
        Making::Directory => matching::is_hooks_directory(&names, &tops),
        Making::File | Making::Link | Making::Probe => matching::is_exempt(&names, &tops),
    };
    if exempt {
        return None;
    }
    let in_git = tops.iter().any(|top| top.depth + 1 == names.len());
    let unless = match names.last().copied() {
        Some(b"config" | b"config.worktree") if making == Making::File && in_git => Unless::HarmlessConfig,
        Some(b"commondir") if making == Making::File && in_git => Unless::OwnRepository,
        Some(_) | None => Unless::Never,
    };
    Some(Held { why: hit.why, unless })
}

/// A link in the place of something of the class, or anywhere in a git directory.
fn held_link(names: &[&[u8]], making: Making, around: &dyn TreeFacts) -> Option<Held> {
    let tops = tops(names, around);
    let hits = matching::at_or_below(names, &tops).into_iter().chain(matching::whole_or_exempt(names, &tops));
    let hit = hits.into_iter().find(|hit| hit.grade == Grade::Guarded);
    let is_free = tops.is_empty() || (making == Making::Probe && is_probe(names, &tops));
    let why = hit.map(|hit| hit.why).or((!is_free).then_some(LINK_IN_GIT))?;
    Some(Held { why, unless: Unless::Never })
}

/// Whether git, or libgit2, makes a link here to find out whether it can. They remove it at once; if it stays, git does
/// not write through it.
fn is_probe(names: &[&[u8]], tops: &[GitTop]) -> bool {
    let is_random = |rest: &[u8]| rest.len() == 6 && rest.iter().all(u8::is_ascii_alphanumeric);
    let probes = |name: &&[u8]| {
        [b"t".as_slice(), b"_git2_"].iter().any(|start| name.strip_prefix(*start).is_some_and(is_random))
    };
    names.last().is_some_and(probes) && tops.iter().any(|top| top.depth + 1 == names.len())
}

/// Whether a name is one of those that together make a git directory of the directory that has them.
#[must_use]
pub fn is_git_sign(name: &[u8]) -> bool {
    matching::GitSigns::NAMES.iter().any(|sign| sign.as_bytes() == name)
}

/// Whether the names on the way say that the last of them is in a git directory.
#[must_use]
pub fn is_in_git_by_name(relative: &Path) -> bool {
    let names = matching::names(relative);
    matching::lexical_tops(&names).iter().any(|top| top.depth + 1 == names.len())
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
