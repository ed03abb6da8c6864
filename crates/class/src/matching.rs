//! Which lines of the table a path matches.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

use belljar_contract::glob_matches;

use super::table::{BUILD_OUTPUT, Grade, HOST_EXECUTED, HostExecuted, NEVER_RUN};

/// A line of the table, taken apart.
struct Line {
    entry: &'static HostExecuted,
    place: Place,
    /// The names, without a last `**`.
    names: Vec<&'static [u8]>,
    extent: Extent,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Place {
    Anywhere,
    GitDirectory,
    BareDirectory,
}

/// How far a line of the table reaches.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum Extent {
    /// The entry itself.
    Entry,
    /// The entry and everything below.
    Subtree,
}

/// A directory on the way to an entry that is a git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitTop {
    /// How many names lead to it.
    pub depth: usize,
    /// Whether it is called anything but `.git`.
    pub bare: bool,
}

/// The lines by the last of their names, and those whose last name has a `*` by the one before it, so that an ordinary name
/// costs two looks.
struct Index {
    literal: HashMap<Vec<u8>, Vec<Line>>,
    wild_below: HashMap<Vec<u8>, Vec<Line>>,
    wild: Vec<Line>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { literal: HashMap::new(), wild_below: HashMap::new(), wild: Vec::new() };
    let is_literal = |name: &&&[u8]| !name.contains(&b'*');
    for line in HOST_EXECUTED.iter().map(Line::new) {
        let mut names = line.names.iter().rev();
        let (last, above) = (names.next(), names.next());
        match (last.filter(is_literal), above.filter(is_literal)) {
            (Some(last), _) => index.literal.entry(last.to_ascii_lowercase()).or_default().push(line),
            (None, Some(above)) => {
                index.wild_below.entry(above.to_ascii_lowercase()).or_default().push(line);
            }
            (None, None) => index.wild.push(line),
        }
    }
    index
});

/// The lines that are filed under a name. None is filed under a longer one.
fn filed<'index>(lines: &'index HashMap<Vec<u8>, Vec<Line>>, name: &[u8]) -> &'index [Line] {
    let mut lowered = [0; 64];
    let Some(lowered) = lowered.get_mut(..name.len()) else { return &[] };
    lowered.copy_from_slice(name);
    lowered.make_ascii_lowercase();
    lines.get(&*lowered).map_or(&[], Vec::as_slice)
}

impl Line {
    fn new(entry: &'static HostExecuted) -> Self {
        let mut names: Vec<&[u8]> = entry.pattern.split('/').map(str::as_bytes).collect();
        let extent = if names.last() == Some(&b"**".as_slice()) { Extent::Subtree } else { Extent::Entry };
        if extent == Extent::Subtree {
            names.pop();
        }
        let place = match names[0] {
            b"<git>" => Place::GitDirectory,
            b"<bare>" => Place::BareDirectory,
            _ => Place::Anywhere,
        };
        if place != Place::Anywhere {
            names.remove(0);
        }
        Line { entry, place, names, extent }
    }

    /// Whether the pattern, its last `count` names left off, ends exactly where the path does.
    fn ends_at(&self, path: &[&[u8]], tops: &[GitTop], count: usize) -> bool {
        let names = &self.names[..self.names.len() - count];
        let Some(start) = path.len().checked_sub(names.len()) else { return false };
        if names.is_empty() || !path[start..].iter().zip(names).all(|(name, pattern)| wild(pattern, name)) {
            return false;
        }
        match self.place {
            Place::Anywhere => true,
            Place::GitDirectory => tops.iter().any(|top| top.depth == start),
            Place::BareDirectory => tops.iter().any(|top| top.depth == start && top.bare),
        }
    }

    /// The grade, given where the path lies.
    fn grade(&self, path: &[&[u8]]) -> Grade {
        let output = |name: &&[u8]| BUILD_OUTPUT.iter().any(|known| known.as_bytes() == *name);
        let in_output = path.split_last().is_some_and(|(_, above)| above.iter().any(output));
        if in_output && self.place == Place::Anywhere { Grade::Watched } else { self.entry.grade }
    }
}

/// What a path matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// How it is treated.
    pub grade: Grade,
    /// What would run it.
    pub why: &'static str,
    /// How far it reaches.
    pub extent: Extent,
}

fn hit(line: &Line, path: &[&[u8]]) -> Hit {
    Hit { grade: line.grade(path), why: line.entry.why, extent: line.extent }
}

fn stronger(one: Option<Hit>, other: Option<Hit>) -> Option<Hit> {
    // A subtree wins among equals: a scan need not look further.
    let rank = |hit: &Hit| (hit.grade, hit.extent == Extent::Subtree);
    one.into_iter().chain(other).max_by_key(rank)
}

/// The strongest line that ends at this very path; what its ancestors match is not asked.
#[must_use]
pub fn at(path: &[&[u8]], tops: &[GitTop]) -> Option<Hit> {
    let (last, above) = path.split_last()?;
    let below = above.last().map_or(&[][..], |above| filed(&INDEX.wild_below, above));
    filed(&INDEX.literal, last)
        .iter()
        .chain(below)
        .chain(&INDEX.wild)
        .filter(|line| line.ends_at(path, tops, 0))
        .map(|line| hit(line, path))
        .fold(None, |best, found| stronger(best, Some(found)))
}

/// The strongest line that lies at or below this path: what a link of this name would stand in for.
#[must_use]
pub fn at_or_below(path: &[&[u8]], tops: &[GitTop]) -> Option<Hit> {
    let filed = INDEX.literal.values().chain(INDEX.wild_below.values()).flatten();
    let lines = filed.chain(&INDEX.wild);
    lines
        .filter(|line| (1..line.names.len()).any(|count| line.ends_at(path, tops, count)))
        .map(|line| hit(line, path))
        .fold(at(path, tops), |best, found| stronger(best, Some(found)))
}

/// The strongest line for the path, by itself or by a directory that it lies in.
#[must_use]
pub fn whole(path: &[&[u8]], tops: &[GitTop]) -> Option<Hit> {
    if is_exempt(path, tops) { None } else { whole_or_exempt(path, tops) }
}

/// The same for what is exempt, too.
pub(super) fn whole_or_exempt(path: &[&[u8]], tops: &[GitTop]) -> Option<Hit> {
    let above = (1..path.len())
        .filter_map(|depth| at(&path[..depth], tops).filter(|hit| hit.extent == Extent::Subtree));
    above.fold(at(path, tops), |best, found| stronger(best, Some(found)))
}

/// Whether git never runs a file here, though it lies beside those that it runs.
#[must_use]
pub fn is_exempt(path: &[&[u8]], tops: &[GitTop]) -> bool {
    let Some((name, above)) = path.split_last() else { return false };
    is_hooks_directory(above, tops) && name.ends_with(NEVER_RUN.as_bytes())
}

/// Whether it is the directory of a git directory's hooks.
pub(super) fn is_hooks_directory(path: &[&[u8]], tops: &[GitTop]) -> bool {
    path.last() == Some(&b"hooks".as_slice()) && tops.iter().any(|top| top.depth + 1 == path.len())
}

/// The names of a path.
#[must_use]
pub fn names(path: &Path) -> Vec<&[u8]> {
    path.iter().map(OsStr::as_bytes).collect()
}

/// The git directories on the way to the last name, as far as names tell: `.git`, and those of submodules (their names
/// may have slashes) and worktrees inside it.
#[must_use]
pub fn lexical_tops(path: &[&[u8]]) -> Vec<GitTop> {
    let mut tops = Vec::new();
    let Some(git) = path.iter().position(|name| name.eq_ignore_ascii_case(b".git")) else { return tops };
    let is = |name: &[u8], wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
    for depth in git + 1..path.len() {
        let inside = &path[git + 1..depth];
        let is_top = match inside {
            [] => true,
            [modules, _, ..] if is(modules, b"modules") => true,
            [trees, _] if is(trees, b"worktrees") => true,
            // A work tree has submodules of its own.
            [trees, _, modules, _, ..] if is(trees, b"worktrees") && is(modules, b"modules") => true,
            _ => is(path[depth - 1], b".git"),
        };
        if is_top {
            tops.push(GitTop { depth, bare: false });
        }
    }
    tops
}

/// Whether a directory with these entries is one that git would obey. More is taken for one than git does: a `HEAD`
/// elsewhere can point to a directory of objects and refs.
#[derive(Debug, Default, Clone, Copy)]
pub struct GitSigns {
    head: bool,
    objects: bool,
    refs: bool,
    commondir: bool,
}

impl GitSigns {
    /// The names that tell.
    pub const NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

    /// Takes note of a name.
    pub fn see(&mut self, name: &OsStr) {
        match name.as_bytes() {
            b"HEAD" => self.head = true,
            b"objects" => self.objects = true,
            b"refs" => self.refs = true,
            b"commondir" => self.commondir = true,
            _ => {}
        }
    }

    /// Whether what was seen makes one.
    #[must_use]
    pub fn is_git_directory(self) -> bool {
        (self.objects && self.refs) || (self.head && self.commondir)
    }

    /// Whether `HEAD` was seen.
    #[must_use]
    pub fn has_head(self) -> bool {
        self.head
    }

    /// Whether it is one, or becomes one when something is called `objects` and `refs`. git asks no more of these than that
    /// they can be entered or executed, so a socket will do, and sockets are made without asking the guard.
    #[must_use]
    pub fn may_become_git_directory(self) -> bool {
        self.head || self.is_git_directory()
    }
}

/// `*` stands for any bytes; ASCII letters match without regard to case.
fn wild(pattern: &[u8], name: &[u8]) -> bool {
    glob_matches(pattern, name, |byte| *byte == b'*', u8::eq_ignore_ascii_case)
}
