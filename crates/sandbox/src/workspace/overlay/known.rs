//! Records what the project had when runs began: which directory was at each path, and the names of the files in it.
//!
//! A file that comes to its place by a rename gets a later ctime, but what is in a directory that is renamed does not. So a
//! file is known for the one that the run began with only if every directory above it is. And a file that the layer has and
//! the project has not was deleted by the user, if it was there when the run began.
//!
//! The list is bounded. A directory that is not in it and whose ctime is later than the start is not known to be the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::GitSigns;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, Time};

use super::Overlay;

const HEAD: &[u8] = b"belljar project 1";
/// Entries that are looked at, those near the top first: some 100 ms.
const MOST: usize = 100_000;
const NO_TIME: Time = Time { seconds: 0, nanoseconds: 0 };

/// Which directory it is. The number alone is given again when a directory is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Which {
    inode: u64,
    born: Time,
}

impl From<&Status> for Which {
    fn from(status: &Status) -> Self {
        Which { inode: status.identity.inode, born: status.born.unwrap_or(NO_TIME) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    which: Which,
    /// The first of the starts at which it was this directory, without another in between.
    since: Time,
    names: BTreeSet<OsString>,
}

/// The directories by their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known(BTreeMap<PathBuf, Held>);

impl Known {
    /// Whether the directory at this path is known for the one that was there at the start.
    pub(super) fn is_same(&self, path: &Path, now: &Status, start: Time) -> bool {
        self.0.get(path).is_some_and(|held| held.which == Which::from(now) && held.since <= start)
    }

    /// Whether another directory than this was at the path; `false` where that is not known.
    pub(super) fn is_other(&self, path: &Path, now: &Status) -> bool {
        self.0.get(path).is_some_and(|held| held.which != Which::from(now))
    }

    /// Whether the project had something here that was no directory.
    pub(super) fn was_there(&self, path: &Path) -> bool {
        let held = path.parent().and_then(|parent| self.0.get(parent));
        held.zip(path.file_name()).is_some_and(|(held, name)| held.names.contains(name))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = HEAD.to_vec();
        for (path, Held { which, since, names }) in &self.0 {
            let Which { inode, born } = which;
            let times = [born, since].map(|time| format!("{} {}", time.seconds, time.nanoseconds)).join(" ");
            out.extend(format!("\0{inode} {times} ").as_bytes());
            out.extend(path.as_os_str().as_bytes());
            // No path has two in a row, and no name has one.
            out.extend(b"//");
            out.extend(names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/'));
        }
        out.extend(b"\0\0");
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
        (parts.next()? == HEAD).then_some(())?;
        let entry = |part: &[u8]| {
            let mut fields = part.splitn(6, |byte| *byte == b' ');
            let mut text = || std::str::from_utf8(fields.next()?).ok();
            let inode = text()?.parse().ok()?;
            let born = Time { seconds: text()?.parse().ok()?, nanoseconds: text()?.parse().ok()? };
            let since = Time { seconds: text()?.parse().ok()?, nanoseconds: text()?.parse().ok()? };
            let rest = fields.next()?;
            let end = rest.windows(2).position(|pair| pair == b"//")?;
            let names = rest[end + 2..].split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            let names = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
            let path = PathBuf::from(OsStr::from_bytes(&rest[..end]));
            Some((path, Held { which: Which { inode, born }, since, names }))
        };
        Some(Known(parts.map(entry).collect::<Option<_>>()?))
    }

    /// Looks at the project; gives the git directories that were seen, too.
    fn of(project: &Path, start: Time) -> Result<(Self, Vec<PathBuf>), Errno> {
        let root = Directory::open(project)?;
        let (mut out, mut git, mut looked_at) = (BTreeMap::new(), Vec::new(), 0);
        let mut pending = VecDeque::from([(PathBuf::new(), false)]);
        while let Some((path, in_git)) = pending.pop_front() {
            if looked_at >= MOST {
                break;
            }
            // Directories that cannot be read, or vanish meanwhile, are left out.
            let Ok(directory) = root.directory(&path) else { continue };
            let Ok(status) = directory.own_status() else { continue };
            let (mut signs, mut below, mut names) = (GitSigns::default(), Vec::new(), BTreeSet::new());
            let read = directory.entries(|name, kind| {
                looked_at += 1;
                signs.see(name);
                if kind == InodeKind::Directory {
                    below.push(name.to_owned());
                } else {
                    names.insert(name.to_owned());
                }
            });
            if read.is_err() {
                continue;
            }
            let is_git = signs.is_git_directory();
            if is_git && signs.has_head() {
                git.push(path.clone());
            }
            // git moves its refs between files; what they say is compared elsewhere, and objects are only added.
            if in_git || is_git {
                names.clear();
            }
            let skipped = |name: &OsStr| is_git && name == "objects";
            let below = below.into_iter().filter(|name| !skipped(name));
            pending.extend(below.map(|name| (path.join(name), in_git || is_git)));
            out.insert(path, Held { which: Which::from(&status), since: start, names });
        }
        Ok((Known(out), git))
    }

    /// Takes over what was known at earlier starts and is still asked for.
    fn go_on_from(&mut self, earlier: &Known, carried: impl Iterator<Item = PathBuf>) {
        for (path, held) in &mut self.0 {
            if let Some(before) = earlier.0.get(path).filter(|before| before.which == held.which) {
                held.since = before.since;
            }
        }
        for path in carried.filter(|path| earlier.was_there(path)) {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let Some(before) = earlier.0.get(parent) else { continue };
            let gone = || Held { names: BTreeSet::new(), ..before.clone() };
            self.0.entry(parent.to_owned()).or_insert_with(gone).names.insert(name.to_owned());
        }
    }
}

impl Overlay {
    fn known(&self) -> PathBuf {
        self.directory.join("known")
    }

    /// What is known; without the list nothing is.
    pub(super) fn read_known(&self) -> io::Result<Known> {
        let bytes = match std::fs::read(self.known()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::default()),
            answer => answer?,
        };
        Known::parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a list of the project"))
    }

    /// Notes what the project holds for the run that begins; gives its git directories. `carried` are the entries that the
    /// layer holds from before.
    pub(super) fn note_known(
        &self,
        start: Time,
        carried: impl Iterator<Item = PathBuf>,
    ) -> io::Result<Vec<PathBuf>> {
        let (mut known, git) = Known::of(&self.lower, start)?;
        known.go_on_from(&self.read_known()?, carried);
        super::replace(&self.known(), &known.bytes())?;
        Ok(git)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let held = |names: &[&str]| Held {
            which: Which { inode: 7, born: Time { seconds: -1, nanoseconds: 5 } },
            since: Time { seconds: 3, nanoseconds: 4 },
            names: names.iter().map(OsString::from).collect(),
        };
        let known = Known(BTreeMap::from([
            (PathBuf::new(), held(&["a b\nc", "d"])),
            (PathBuf::from(OsStr::from_bytes(b"\xff/x")), held(&[])),
        ]));
        let bytes = known.bytes();
        assert_eq!(Known::parse(&bytes), Some(known));
        for end in 0..bytes.len() {
            assert_eq!(Known::parse(&bytes[..end]), None, "{end}");
        }
    }
}
