//! The class of an entry: what it means for the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::links::{Leads, follow};
use super::matching::{self, GitTop, Hit};
use super::table::{GIT_POINTER, Grade, SET_ID, USED_OUTSIDE};

/// Why links in a git directory are of the class.
pub const LINK_IN_GIT: &str = "git writes to where it leads";

/// The type of an entry, as far as its class depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A regular file with a set-id bit.
    SetIdFile,
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(PathBuf),
    /// A device, a pipe or a socket.
    Special(SpecialKind),
}

/// Entries that carry no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialKind {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A type that the file system does not report.
    Unknown,
}

/// What an entry means for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Nothing by itself.
    Ordinary,
    /// The host would execute it later.
    HostExecuted {
        /// How it is treated.
        grade: Grade,
        /// What would run it, and when.
        why: &'static str,
    },
    /// A link that leads out of the tree.
    EscapingSymlink {
        /// Its text.
        target: PathBuf,
    },
    /// A device, a pipe or a socket.
    Special {
        /// The type of special file.
        kind: SpecialKind,
    },
}

/// What a class depends on beyond the entry itself.
pub trait TreeFacts {
    /// Whether git would treat the directory as a git directory.
    fn is_git_directory(&self, directory: &Path) -> bool;
    /// The text of the link at this path, if there is one.
    fn link_target(&self, path: &Path) -> Option<PathBuf>;
    /// Places of the class that lead to other places of the tree: what lies there counts as lying here.
    fn aliases(&self) -> &[Alias] {
        &[]
    }
    /// Files that the manifest, or a git configuration elsewhere, names to be used outside.
    fn named(&self) -> &[PathBuf] {
        &[]
    }
}

/// A place that the host would execute, and the place in the tree that stands in for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// The place of the class, such as `.git/hooks`.
    pub place: PathBuf,
    /// Where it leads.
    pub leads_to: PathBuf,
}

/// Facts of a tree of which only paths are known.
#[derive(Debug, Clone, Copy)]
pub struct NamesOnly;

impl TreeFacts for NamesOnly {
    fn is_git_directory(&self, _directory: &Path) -> bool {
        false
    }

    fn link_target(&self, _path: &Path) -> Option<PathBuf> {
        None
    }
}

/// The class of an entry, by its path in the tree and its kind alone.
#[must_use]
pub fn classify(relative: &Path, entry: &EntryKind) -> Class {
    classify_in(relative, entry, &NamesOnly)
}

/// The class of an entry in its tree.
#[must_use]
pub fn classify_in(relative: &Path, entry: &EntryKind, facts: &dyn TreeFacts) -> Class {
    let direct = class_at(relative, entry, facts);
    let through = facts.aliases().iter().filter_map(|alias| {
        let rest = relative.strip_prefix(&alias.leads_to).ok()?;
        // Joining an empty rest would add a slash.
        let place = if rest.as_os_str().is_empty() { alias.place.clone() } else { alias.place.join(rest) };
        Some(class_at(&place, entry, facts))
    });
    let through = through.fold(direct, stronger);
    // A link on the way to what stands in for a place of the class leads to something else.
    let is_link = matches!(entry, EntryKind::Symlink(_));
    let on_the_way = |alias: &&Alias| is_link && alias.leads_to.starts_with(relative);
    let led = facts.aliases().iter().filter(on_the_way).filter_map(|alias| {
        let names = matching::names(&alias.place);
        let Hit { grade, why, .. } = link_hit(&names, &tops(&names, facts))?;
        Some(Class::HostExecuted { grade, why })
    });
    let through = led.fold(through, stronger);
    // Whatever takes the place of a directory above a named file leads to another file.
    let leads = |named: &PathBuf| match entry {
        EntryKind::Directory | EntryKind::Special(_) => false,
        EntryKind::Symlink(_) => named.starts_with(relative) || relative.starts_with(named),
        EntryKind::File | EntryKind::SetIdFile => relative.starts_with(named),
    };
    if facts.named().iter().any(leads) {
        return stronger(through, Class::HostExecuted { grade: Grade::Guarded, why: USED_OUTSIDE });
    }
    through
}

fn class_at(relative: &Path, entry: &EntryKind, facts: &dyn TreeFacts) -> Class {
    let names = matching::names(relative);
    let tops = tops(&names, facts);
    let hit = match entry {
        EntryKind::Special(kind) => return Class::Special { kind: *kind },
        EntryKind::Symlink(target) => {
            if follow(relative, target, facts) == Leads::Out {
                return Class::EscapingSymlink { target: target.clone() };
            }
            link_hit(&names, &tops)
        }
        EntryKind::Directory => matching::whole(&names, &tops),
        EntryKind::File | EntryKind::SetIdFile => file_hit(&names, &tops, entry),
    };
    hit.map_or(Class::Ordinary, |hit| Class::HostExecuted { grade: hit.grade, why: hit.why })
}

fn file_hit(names: &[&[u8]], tops: &[GitTop], entry: &EntryKind) -> Option<Hit> {
    let always = |grade, why| Some(Hit { grade, why, extent: matching::Extent::Entry });
    if names.last().is_some_and(|name| name.eq_ignore_ascii_case(b".git")) {
        return always(Grade::Guarded, GIT_POINTER);
    }
    let hit = matching::whole(names, tops);
    if hit.is_none() && *entry == EntryKind::SetIdFile {
        return always(Grade::Watched, SET_ID);
    }
    hit
}

/// A link in place of a directory stands for everything that would be looked for below it.
fn link_hit(names: &[&[u8]], tops: &[GitTop]) -> Option<Hit> {
    let in_git = Hit { grade: Grade::Guarded, why: LINK_IN_GIT, extent: matching::Extent::Entry };
    let hit = file_hit(names, tops, &EntryKind::File).or_else(|| matching::at_or_below(names, tops));
    if tops.is_empty() { hit } else { hit.filter(|hit| hit.grade == Grade::Guarded).or(Some(in_git)) }
}

pub(super) fn tops(names: &[&[u8]], facts: &dyn TreeFacts) -> Vec<GitTop> {
    let mut tops = matching::lexical_tops(names);
    let mut directory = PathBuf::new();
    for (depth, name) in names.iter().enumerate() {
        if !tops.iter().any(|top| top.depth == depth) && facts.is_git_directory(&directory) {
            tops.push(GitTop { depth, bare: true });
        }
        directory.push(OsStr::from_bytes(name));
    }
    tops
}

/// The stricter of two classes.
#[must_use]
pub fn stronger(one: Class, other: Class) -> Class {
    if rank(&other) > rank(&one) { other } else { one }
}

fn rank(class: &Class) -> u8 {
    match class {
        Class::Ordinary => 0,
        Class::HostExecuted { grade: Grade::Watched, .. } => 1,
        Class::HostExecuted { grade: Grade::Guarded, .. } => 2,
        Class::EscapingSymlink { .. } => 3,
        Class::Special { .. } => 4,
    }
}
