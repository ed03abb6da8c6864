//! The files of a tree that the host would execute later, wherever they lie.
//!
//! Only names are read, by descriptor and without following a link; what is found is looked at. A scan before and one
//! after a run, compared, tell what appeared. Content is not digested: a change of content, name or permissions
//! changes the inode or its ctime, and no program can set a ctime.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::{
    Alias, BUILD_OUTPUT, Class, EntryKind, Extent, GIT_POINTER, GitSetting, GitSigns, GitTop, Grade, HOOK,
    Hit, LARGEST_CONFIG, Leads, Making, NEVER_RUN, SpecialKind, USED_OUTSIDE, Unless, What, classify_in,
    follow_noting,
};
use belljar_sys::Errno;
use belljar_sys::beneath::{InodeKind, Status, Time};
use belljar_sys::mounts::Identity;

use super::class;
use super::tree::Tree;

/// No real tree is deeper; one that was made to be is not walked to its end.
const DEEPEST: usize = 512;
/// Longer than any path.
const LONGEST_POINTER: u64 = 4200;
/// What git reads where `commondir` leads, and obeys.
const IN_COMMON: [&str; 5] = ["config", "hooks", "info/attributes", "remotes", "branches"];
/// Links in places of the class that are followed.
const MOST_ALIASES: usize = 256;
/// Entries that are looked at again because a link leads to them.
const MOST_THROUGH_LINKS: usize = 400_000;

/// Why a tree could not be scanned.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Its top cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The top.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
}

/// An existing file or directory that is read-only in `direct`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Protected {
    /// Its path in the tree.
    pub path: PathBuf,
    /// Its type.
    pub kind: ProtectedKind,
    /// What would run it.
    pub why: &'static str,
    /// Whether a guard inside judges what is to take its place. A mount would keep everything out.
    pub decided_by_content: bool,
}

/// The type of a protected entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtectedKind {
    /// A file.
    File,
    /// A directory with everything in it.
    Directory,
}

/// A part of the tree that was not looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unseen {
    /// Its path in the tree.
    pub path: PathBuf,
    /// The reason.
    pub why: UnseenBecause,
}

/// Why a part of a tree was not looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnseenBecause {
    /// The kernel said no, with this number.
    Refused(i32),
    /// It lies deeper than any real tree.
    TooDeep,
    /// Too much is reached through links.
    TooManyLinks,
    /// A git configuration is larger than any real one.
    TooLarge,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// What must be read-only, sorted; none lies in another.
    pub protected: Vec<Protected>,
    /// Links in places of the class. They cannot be made read-only by a mount; where they lead is protected.
    pub links: Vec<PathBuf>,
    /// Parts of the tree that were not looked at.
    pub unseen: Vec<Unseen>,
    pub(super) seen: BTreeMap<PathBuf, SeenFile>,
    pub(super) aliases: Vec<Alias>,
    /// Files that are used outside because somebody named them.
    pub(super) named: Vec<PathBuf>,
    /// Git directories that are not called `.git`.
    pub(super) bare: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenFile {
    pub(super) class: Class,
    pub(super) mark: StatusMark,
    /// The settings of a git configuration that are not known to be harmless, where all readers agree on them.
    pub(super) powers: Option<Vec<GitSetting>>,
}

/// Identifies a state of an entry. Times of directories are left out: they change with their entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatusMark {
    identity: Identity,
    times: Option<(u64, Time, Time)>,
}

impl StatusMark {
    fn of(status: &Status) -> Self {
        let times = (status.size, status.modified, status.changed);
        StatusMark {
            identity: status.identity,
            times: (status.kind != InodeKind::Directory).then_some(times),
        }
    }
}

impl Scan {
    /// The directories between the root and what is protected, outermost first. Renaming one of them would take the protected
    /// entry out of its place; a directory that is a mount point itself cannot be renamed.
    #[must_use]
    pub fn anchors(&self) -> Vec<PathBuf> {
        let above = self.protected.iter().flat_map(|protected| protected.path.ancestors().skip(1));
        let anchors: BTreeSet<&Path> = above.filter(|path| !path.as_os_str().is_empty()).collect();
        anchors.into_iter().map(Path::to_owned).collect()
    }

    /// Places of the class that lead to others of the tree, whether or not something is there.
    #[must_use]
    pub fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    /// Files that are used outside because somebody named them.
    #[must_use]
    pub fn named(&self) -> &[PathBuf] {
        &self.named
    }

    /// Whether a file lies below that is used outside because somebody named it.
    #[must_use]
    pub fn holds_named(&self, directory: &Path) -> bool {
        self.named.iter().any(|named| named.starts_with(directory))
    }
}

/// Finds what must be read-only, and remembers what else of the class is there.
///
/// # Errors
/// Fails if the top cannot be opened; what cannot be read below is in the outcome.
pub fn scan(root: &Path) -> Result<Scan, ScanError> {
    scan_named(root, &[])
}

/// The same with files of the tree that are used outside because somebody named them; they are of the class.
///
/// # Errors
/// As [`scan`].
pub fn scan_named(root: &Path, named: &[PathBuf]) -> Result<Scan, ScanError> {
    Ok(scan_tree(&open(root)?, named))
}

/// Scans a tree once more, with what is known from an earlier scan.
pub(super) fn scan_again(root: &Path, before: &Scan) -> Result<Scan, ScanError> {
    Ok(scan_tree(&open(root)?.knowing(before.bare.clone()), &before.named))
}

fn open(root: &Path) -> Result<Tree, ScanError> {
    Tree::open(root).map_err(|cause| ScanError::Open { path: root.to_owned(), cause })
}

pub(super) fn scan_tree(tree: &Tree, named: &[PathBuf]) -> Scan {
    let out = Scan { named: named.to_vec(), ..Scan::default() };
    let mut walk = Walk { tree, out, aliases: BTreeSet::new(), passed: BTreeSet::new(), visited: 0 };
    walk.below(PathBuf::new(), None);
    walk.through_aliases();
    walk.named(named);
    walk.passed();
    let Walk { mut out, aliases, .. } = walk;
    out.named.sort();
    out.named.dedup();
    out.protected.sort();
    out.protected.dedup_by(|later, earlier| later.path.starts_with(&earlier.path));
    out.links.sort();
    out.links.dedup();
    out.unseen.sort();
    out.unseen.dedup();
    out.aliases = aliases.into_iter().collect();
    out
}

struct Walk<'tree> {
    tree: &'tree Tree,
    out: Scan,
    aliases: BTreeSet<Alias>,
    /// Links on the way to something of the class.
    passed: BTreeSet<PathBuf>,
    visited: usize,
}

/// A directory to be read.
struct Pending {
    path: PathBuf,
    /// Where it counts as lying, when a link of the class leads to it.
    place: Option<PathBuf>,
    inherited: Option<Hit>,
}

impl Walk<'_> {
    fn below(&mut self, path: PathBuf, place: Option<PathBuf>) {
        let inherited = place.as_ref().and_then(|place| {
            let names = belljar_class::names(place);
            belljar_class::whole(&names, &belljar_class::lexical_tops(&names))
        });
        let inherited = inherited.filter(|hit| hit.extent == Extent::Subtree);
        let mut pending = vec![Pending { path, place, inherited }];
        while let Some(next) = pending.pop() {
            if let Err(why) = self.directory(&next, &mut pending) {
                self.out.unseen.push(Unseen { path: next.path, why });
            }
        }
    }

    fn directory(&mut self, at: &Pending, pending: &mut Vec<Pending>) -> Result<(), UnseenBecause> {
        let Pending { path, place, inherited } = at;
        let mut names = belljar_class::names(place.as_ref().unwrap_or(path));
        if names.len() > DEEPEST {
            return Err(UnseenBecause::TooDeep);
        }
        let refused = |cause: Errno| UnseenBecause::Refused(cause.raw_os_error());
        let directory = match self.tree.root().directory(path) {
            // Gone, or no directory any more: whatever took its place is for the next scan.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            answer => answer.map_err(refused)?,
        };
        let mut signs = GitSigns::default();
        // All names in one piece: most of them are looked at once and never again.
        let mut text = Vec::with_capacity(4096);
        let mut entries = Vec::with_capacity(128);
        let read = directory.entries(|name, kind| {
            signs.see(name);
            text.extend_from_slice(name.as_bytes());
            entries.push((text.len(), kind));
        });
        read.map_err(refused)?;
        if place.is_some() {
            self.visited += entries.len();
            if self.visited > MOST_THROUGH_LINKS {
                return Err(UnseenBecause::TooManyLinks);
            }
        }
        let depth = names.len();
        names.push(b"");
        let mut tops = belljar_class::lexical_tops(&names);
        names.pop();
        let is_git = signs.is_git_directory() || self.tree.knows(path);
        if is_git && !tops.iter().any(|top| top.depth == depth) {
            tops.push(GitTop { depth, bare: true });
            self.out.bare.insert(path.clone());
        }
        let mut start = 0;
        for (end, kind) in &entries {
            let name = OsStr::from_bytes(&text[start..*end]);
            start = *end;
            names.push(name.as_bytes());
            let hit = self.hit(&names, &tops, *inherited, *kind);
            names.pop();
            if hit.is_none() && *kind == InodeKind::File {
                continue;
            }
            let status = || directory.status(name);
            let entry = ScannedEntry {
                path: path.join(name),
                place: place.as_ref().map(|place| place.join(name)),
                hit,
            };
            match kind {
                InodeKind::Directory => {
                    let inherited = hit.filter(|hit| hit.extent == Extent::Subtree).or(*inherited);
                    if inherited.is_some() {
                        let covered = at.inherited.is_some_and(|hit| hit.grade == Grade::Guarded);
                        self.note(&entry, status(), covered);
                    }
                    let ScannedEntry { path, place, .. } = entry;
                    pending.push(Pending { path, place, inherited });
                }
                InodeKind::Symlink => self.link(entry, status(), directory.link_target(name)),
                InodeKind::File => self.note(&entry, status(), false),
                InodeKind::Fifo
                | InodeKind::Socket
                | InodeKind::CharacterDevice
                | InodeKind::BlockDevice
                | InodeKind::Unknown => {
                    let kind = class::special(*kind).unwrap_or(SpecialKind::Unknown);
                    self.see(entry.path, Class::Special { kind }, status());
                }
            }
        }
        Ok(())
    }

    fn hit(&self, names: &[&[u8]], tops: &[GitTop], inherited: Option<Hit>, kind: InodeKind) -> Option<Hit> {
        let of_hooks = inherited.is_some_and(|hit| hit.why == HOOK);
        if kind == InodeKind::File && (belljar_class::is_exempt(names, tops) || of_hooks && is_example(names))
        {
            return None;
        }
        let own = match kind {
            InodeKind::Directory => {
                belljar_class::at(names, tops).filter(|hit| hit.extent == Extent::Subtree)
            }
            InodeKind::Symlink => belljar_class::at_or_below(names, tops),
            InodeKind::File
            | InodeKind::Fifo
            | InodeKind::Socket
            | InodeKind::CharacterDevice
            | InodeKind::BlockDevice
            | InodeKind::Unknown => belljar_class::at(names, tops),
        };
        let is_pointer = || names.last().is_some_and(|name| name.eq_ignore_ascii_case(b".git"));
        if kind != InodeKind::Directory && is_pointer() {
            return Some(Hit { grade: Grade::Guarded, why: GIT_POINTER, extent: Extent::Entry });
        }
        own.into_iter().chain(inherited).max_by_key(|hit| hit.grade)
    }

    fn note(&mut self, entry: &ScannedEntry, status: Result<Status, Errno>, covered: bool) {
        let Some(Hit { grade, why, .. }) = entry.hit else { return };
        let Ok(status) = status else { return };
        if grade == Grade::Guarded && !covered {
            let kind = match status.kind {
                InodeKind::Directory => ProtectedKind::Directory,
                InodeKind::File
                | InodeKind::Symlink
                | InodeKind::Fifo
                | InodeKind::Socket
                | InodeKind::CharacterDevice
                | InodeKind::BlockDevice
                | InodeKind::Unknown => ProtectedKind::File,
            };
            let held = belljar_class::held(&entry.path, Making::File, self.tree);
            let decided_by_content = kind == ProtectedKind::File
                && entry.place.is_none()
                && held.is_some_and(|held| held.unless == Unless::HarmlessConfig);
            self.out.protected.push(Protected { path: entry.path.clone(), kind, why, decided_by_content });
        }
        let place = entry.place.as_deref().unwrap_or(&entry.path);
        let mut powers = None;
        if status.kind == InodeKind::File && why != GIT_POINTER && is_git_config(place) {
            powers = self.configuration(&entry.path, place);
        }
        if status.kind == InodeKind::File && place.file_name() == Some(OsStr::new("commondir")) {
            let (git, common) = (place.parent(), self.common_directory(&entry.path));
            if let Some((git, common)) = git.zip(common) {
                let alias = |name| Alias { place: git.join(name), leads_to: common.join(name) };
                self.aliases.extend(IN_COMMON.map(alias));
            }
        }
        // A directory runs nothing; what is in it is seen by itself.
        let hooks = place.file_name() == Some(OsStr::new("hooks")) && why == HOOK;
        if status.kind == InodeKind::Directory && hooks {
            return;
        }
        self.see(entry.path.clone(), Class::HostExecuted { grade, why }, Ok(status));
        if let Some(seen) = self.out.seen.get_mut(&entry.path) {
            seen.powers = powers;
        }
    }

    fn link(&mut self, entry: ScannedEntry, status: Result<Status, Errno>, target: Result<PathBuf, Errno>) {
        let Ok(target) = target else { return };
        let mut passed = Vec::new();
        match (follow_noting(&entry.path, &target, self.tree, &mut passed), entry.hit) {
            (Leads::Out, _) => self.see(entry.path, Class::EscapingSymlink { target }, status),
            (Leads::Inside(leads_to), Some(Hit { grade, why, .. })) => {
                self.out.links.push(entry.path.clone());
                self.see(entry.path.clone(), Class::HostExecuted { grade, why }, status);
                let place = entry.place.unwrap_or(entry.path);
                self.aliases.insert(Alias { place, leads_to });
                if grade == Grade::Guarded {
                    self.passed.extend(passed);
                }
            }
            (Leads::Nowhere, Some(Hit { grade, why, .. })) => {
                self.see(entry.path, Class::HostExecuted { grade, why }, status);
            }
            (Leads::Inside(leads_to), None) => self.out_of_build_output(entry, leads_to),
            (Leads::Nowhere, None) => {}
        }
    }

    /// Build output is only watched, because people do not work there. A link from outside makes it more than build output.
    fn out_of_build_output(&mut self, entry: ScannedEntry, leads_to: PathBuf) {
        let is_output = |path: &Path| path.iter().any(|name| BUILD_OUTPUT.iter().any(|known| name == *known));
        let place = entry.place.unwrap_or(entry.path);
        let is_directory =
            || matches!(self.tree.status(&leads_to), Ok(Some(found)) if found.kind == InodeKind::Directory);
        let goes_round = |known: &Alias| known.leads_to == leads_to && place.starts_with(&known.place);
        if !is_output(&place)
            && is_output(&leads_to)
            && is_directory()
            && !self.aliases.iter().any(goes_round)
        {
            self.aliases.insert(Alias { place, leads_to });
        }
    }

    fn see(&mut self, path: PathBuf, class: Class, status: Result<Status, Errno>) {
        // The entry was removed meanwhile.
        let Ok(status) = status else { return };
        let mark = StatusMark::of(&status);
        let class = match self.out.seen.remove(&path) {
            Some(before) => belljar_class::stronger(before.class, class),
            None => class,
        };
        self.out.seen.insert(path, SeenFile { class, mark, powers: None });
    }

    /// What a configuration of git names counts as lying where git looks by default.
    fn configuration(&mut self, path: &Path, place: &Path) -> Option<Vec<GitSetting>> {
        let (git, real) = (place.parent()?, path.parent()?);
        let (directory, name) = self.tree.parent(path).ok()?;
        let file = directory.file(name).ok()?;
        let mut text = Vec::new();
        let unseen = match file.take(LARGEST_CONFIG + 1).read_to_end(&mut text) {
            Ok(_) if text.len() as u64 > LARGEST_CONFIG => Some(UnseenBecause::TooLarge),
            Ok(_) => None,
            Err(cause) => Some(UnseenBecause::Refused(cause.raw_os_error().unwrap_or_default())),
        };
        if let Some(why) = unseen {
            self.out.unseen.push(Unseen { path: path.to_owned(), why });
            return None;
        }
        let named = belljar_class::named(&text);
        let mut passed = Vec::new();
        let tree = self.tree;
        let mut inside = |base: &Path, path: &Path| inside(tree, base, path, &mut passed);
        let stated = named.iter().find(|named| named.what == What::WorkTree);
        let top = match stated {
            Some(stated) => inside(git, &stated.path),
            None if git.file_name() == Some(OsStr::new(".git")) => git.parent().map(Path::to_owned),
            None => Some(git.to_owned()),
        };
        for named in &named {
            let (base, place) = match named.what {
                What::Hooks => (top.as_deref(), git.join("hooks")),
                What::Attributes => (top.as_deref(), git.join("info/attributes")),
                What::Program => (top.as_deref(), git.join("hooks/fsmonitor")),
                What::Config => (Some(real), git.join("config")),
                What::WorkTree => continue,
            };
            let Some(leads_to) = base.and_then(|base| inside(base, &named.path)) else { continue };
            // Most words of a command line name nothing of the tree, and its top is not a program. One that is not there
            // may still be made.
            let is_program = || match self.tree.status(&leads_to) {
                Ok(Some(found)) => found.kind != InodeKind::Directory,
                Ok(None) => leads_to.components().count() > 1,
                Err(_) => false,
            };
            if named.what != What::Program || is_program() {
                self.aliases.insert(Alias { place, leads_to });
            }
        }
        self.passed.extend(passed);
        belljar_class::powerful_settings(&text, git)
    }

    /// The directory that a `commondir` leads to: what lies there is obeyed instead of what lies beside the file. Nothing where it
    /// leads from `worktrees/NAME` to the repository around, which the guard knows by the places alone.
    fn common_directory(&mut self, path: &Path) -> Option<PathBuf> {
        let (directory, name) = self.tree.parent(path).ok()?;
        let mut text = Vec::new();
        directory.file(name).ok()?.take(LONGEST_POINTER).read_to_end(&mut text).ok()?;
        let (git, mut passed) = (path.parent()?, Vec::new());
        // git leaves off ends of lines, and nothing else.
        while matches!(text.last(), Some(b'\n' | b'\r')) {
            text.pop();
        }
        let common = Path::new(OsStr::from_bytes(&text));
        let common = inside(self.tree, git, common, &mut passed)?;
        self.passed.extend(passed);
        let trees = git.parent().filter(|trees| trees.file_name() == Some(OsStr::new("worktrees")));
        (trees.and_then(Path::parent) != Some(&common)).then_some(common)
    }

    fn named(&mut self, named: &[PathBuf]) {
        for path in named {
            match self.tree.status(path) {
                // Nothing can be mounted on a link.
                Ok(Some(status)) if status.kind == InodeKind::Symlink => {
                    self.passed.insert(path.clone());
                }
                Ok(Some(status)) => self.named_at(path.clone(), status),
                Ok(None) | Err(_) => self.named_through_links(path),
            }
        }
    }

    fn named_at(&mut self, path: PathBuf, status: Status) {
        let hit = Hit { grade: Grade::Guarded, why: USED_OUTSIDE, extent: Extent::Entry };
        self.note(&ScannedEntry { path, place: None, hit: Some(hit) }, Ok(status), false);
    }

    /// A file that is named by a way with links: where it is counts as named, too.
    fn named_through_links(&mut self, path: &Path) {
        let mut passed = Vec::new();
        let leads = follow_noting(Path::new("x"), path, self.tree, &mut passed);
        self.passed.extend(passed);
        if let Leads::Inside(real) = leads
            && real != path
        {
            self.out.named.push(real.clone());
            if let Ok(Some(status)) = self.tree.status(&real) {
                self.named_at(real, status);
            }
        }
    }

    /// Protects links on the way to a guarded file: changing such a link replaces the file.
    fn passed(&mut self) {
        for link in std::mem::take(&mut self.passed) {
            let class = Class::HostExecuted { grade: Grade::Guarded, why: USED_OUTSIDE };
            if let Ok(Some(status)) = self.tree.status(&link) {
                self.see(link.clone(), class, Ok(status));
            }
            self.out.named.push(link);
        }
    }

    /// Looks at what links and configurations of the class lead to, as if it lay there.
    fn through_aliases(&mut self) {
        let mut done = BTreeSet::new();
        while let Some(alias) = self.aliases.difference(&done).next().cloned() {
            let Alias { place, leads_to } = alias.clone();
            done.insert(alias);
            if done.len() > MOST_ALIASES {
                self.out.unseen.push(Unseen { path: leads_to, why: UnseenBecause::TooManyLinks });
                return;
            }
            let Ok(Some(status)) = self.tree.status(&leads_to) else { continue };
            let class = classify_in(&place, &kind_of(&status), self.tree);
            let hit = match class {
                Class::HostExecuted { grade, why } => Some(Hit { grade, why, extent: Extent::Subtree }),
                Class::Ordinary | Class::EscapingSymlink { .. } | Class::Special { .. } => None,
            };
            // The top itself cannot be read-only; what is in it is looked at.
            if !leads_to.as_os_str().is_empty() {
                let entry = ScannedEntry { path: leads_to.clone(), place: Some(place.clone()), hit };
                self.note(&entry, Ok(status), false);
            }
            if status.kind == InodeKind::Directory {
                self.below(leads_to, Some(place));
            }
        }
    }
}

struct ScannedEntry {
    path: PathBuf,
    place: Option<PathBuf>,
    hit: Option<Hit>,
}

/// The place in a tree that a file names by a path from `base`; links on the way are noted.
fn inside(tree: &Tree, base: &Path, path: &Path, passed: &mut Vec<PathBuf>) -> Option<PathBuf> {
    let at = tree.relative(path)?;
    // What was absolute begins at the top.
    let from_top = path.is_absolute() || path.starts_with("~");
    let base = if from_top { Path::new("") } else { base };
    match follow_noting(&base.join("x"), at, tree, passed) {
        Leads::Inside(path) => Some(path),
        Leads::Out | Leads::Nowhere => None,
    }
}

fn kind_of(status: &Status) -> EntryKind {
    if status.kind == InodeKind::Directory { EntryKind::Directory } else { EntryKind::File }
}

/// Whether git never runs a file of a directory of hooks.
fn is_example(names: &[&[u8]]) -> bool {
    matches!(names, [.., b"hooks", name] if name.ends_with(NEVER_RUN.as_bytes()))
}

fn is_git_config(place: &Path) -> bool {
    let name = place.file_name().map(OsStr::as_bytes);
    matches!(name, Some(b"config" | b"config.worktree"))
        && place.parent().and_then(Path::file_name) != Some(OsStr::new(".cargo"))
        && place.parent().and_then(Path::file_name) != Some(OsStr::new(".bundle"))
}
