//! Names under which entries are made, and what an interrupted apply leaves under them.
//!
//! A name tells who made it, and, when it is about to change places with an entry of the project, which of the two is
//! which. So what is found later is removed only if it is ours, or the very version that was to be replaced: anything else
//! is somebody's late change, and stays.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, is_superuser};
use belljar_sys::birth::{Birth, Standing};

use super::removal::{absent_is_fine, opened};

/// How names begin under which entries are made. One that is found later was left by an interruption.
pub const UNFINISHED: &str = ".belljar-unfinished-";

/// A name under which an entry is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub maker: Birth,
    pub number: u64,
    pub places: Option<Places>,
}

/// The two entries of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    /// The inode of the new entry; 0 if there is none and an entry is only moved to a temporary name.
    pub made: u64,
    /// What is expected in the place.
    pub before: Version,
}

/// A version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    inode: u64,
    seconds: i64,
    nanoseconds: u32,
    size: u64,
}

impl From<&Status> for Version {
    fn from(status: &Status) -> Self {
        let (time, size) = (status.modified, status.size);
        Self { inode: status.identity.inode, seconds: time.seconds, nanoseconds: time.nanoseconds, size }
    }
}

impl Unfinished {
    pub fn name(&self) -> OsString {
        let Self { maker, number, places } = self;
        let places = places.map_or(String::new(), |Places { made, before }| {
            let Version { inode, seconds, nanoseconds, size } = before;
            format!("_{made}_{inode}_{seconds}_{nanoseconds}_{size}")
        });
        format!("{UNFINISHED}{maker}.{number}{places}").into()
    }

    /// Reads what [`Unfinished::name`] wrote, and nothing else.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let rest = name.to_str()?.strip_prefix(UNFINISHED)?;
        let (head, places) = rest.split_once('_').map_or((rest, None), |(head, tail)| (head, Some(tail)));
        let (maker, number) = head.rsplit_once('.')?;
        let places = match places {
            None => None,
            Some(text) => {
                let mut parts = text.split('_');
                let before = |parts: &mut std::str::Split<'_, char>| {
                    Some(Version {
                        inode: parts.next()?.parse().ok()?,
                        seconds: parts.next()?.parse().ok()?,
                        nanoseconds: parts.next()?.parse().ok()?,
                        size: parts.next()?.parse().ok()?,
                    })
                };
                let made = parts.next()?.parse().ok()?;
                Some(Places { made, before: before(&mut parts)? })
            }
        };
        let parsed = Self { maker: Birth::parse(maker)?, number: number.parse().ok()?, places };
        // Each name has one spelling: one with signs, leading zeros or more parts is not ours.
        (parsed.name() == name).then_some(parsed)
    }

    /// Whether what is found under this name can go: nothing of the user's is lost with it.
    fn is_spent(&self, found: &Status) -> bool {
        let plain = matches!(found.kind, InodeKind::File | InodeKind::Symlink);
        // The superuser gives what is made the owner of the layer's.
        let own = is_superuser() || found.owner == rustix::process::geteuid().as_raw();
        let holds_nothing = self.places.is_none_or(|Places { made, before }| {
            found.identity.inode == made || Version::from(found) == before
        });
        plain && own && holds_nothing
    }
}

/// The outcome of looking for traces of an interrupted apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Traces that were removed.
    pub removed: Vec<PathBuf>,
    /// Those that stay: each holds a version of a file that somebody changed during the apply.
    pub kept: Vec<PathBuf>,
    /// What the apply had written and the user changed since: it is left as it is.
    pub changed: Vec<PathBuf>,
    /// What the user deleted since: it stays deleted.
    pub deleted: Vec<PathBuf>,
}

/// Whether traces are removed or only looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Only looked for.
    Look,
    /// Removed.
    Remove,
}

/// Looks through one directory of the project. `interrupted` is known to have ended, whatever its namespace.
pub(super) fn recover(
    directory: &Directory,
    path: &Path,
    interrupted: &Birth,
    mode: Recovery,
    out: &mut Recovered,
) -> Result<(), Errno> {
    let mut names = Vec::new();
    directory.entries(|name, _kind| names.extend(Unfinished::parse(name)))?;
    for unfinished in names {
        let gone = unfinished.maker == *interrupted || unfinished.maker.standing() == Standing::Ended;
        let name = unfinished.name();
        let Some(found) = directory.status_if_present(&name)?.filter(|_| gone) else { continue };
        if !unfinished.is_spent(&found) {
            out.kept.push(path.join(&name));
            continue;
        }
        if mode == Recovery::Remove {
            opened(directory, || absent_is_fine(directory.remove(&name)))?;
        }
        out.removed.push(path.join(&name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn gone() -> Birth {
        // The first process of no namespace that there is.
        Birth::parse("1.1.1").unwrap()
    }

    #[test]
    fn a_name_is_read_as_it_was_written_and_in_no_other_way() {
        let before = Version { inode: 7, seconds: -1, nanoseconds: 5, size: 0 };
        for places in [None, Some(Places { made: 12, before })] {
            let unfinished = Unfinished { maker: gone(), number: 3, places };
            assert_eq!(Unfinished::parse(&unfinished.name()), Some(unfinished));
        }
        for name in
            ["", "1.1.1", "1.1.1.x", "1.1.1.03", "1.1.1.3_", "1.1.1.3_1_2_3_4", "1.1.1.3_1_2_3_4_5_6", "12-3"]
        {
            assert_eq!(Unfinished::parse(OsStr::new(&format!("{UNFINISHED}{name}"))), None, "{name}");
        }
        assert_eq!(Unfinished::parse(OsStr::new("file")), None);
    }

    /// Between changing places and comparing, the name holds what was in the project.
    #[test]
    fn what_is_not_known_to_be_spent_stays() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &OsStr| place.path().join(name);
        let directory = Directory::open(place.path()).unwrap();
        let made = |number: u64, text: &str| {
            let file = at(OsStr::new("new"));
            fs::write(&file, text).unwrap();
            let status = directory.status(OsStr::new("new")).unwrap();
            (number, status)
        };
        let name = |number, places| Unfinished { maker: gone(), number, places }.name();
        let mut kept = Vec::new();
        // Ours, whole or not.
        let (number, _) = made(0, "half");
        fs::rename(at(OsStr::new("new")), at(&name(number, None))).unwrap();
        let (number, own) = made(1, "whole");
        let other = Version { inode: 1, ..Version::from(&own) };
        let places = Places { made: own.identity.inode, before: other };
        fs::rename(at(OsStr::new("new")), at(&name(number, Some(places)))).unwrap();
        // The version that was to be replaced.
        let (number, old) = made(2, "old");
        let places = Places { made: 1, before: Version::from(&old) };
        fs::rename(at(OsStr::new("new")), at(&name(number, Some(places)))).unwrap();
        // A later version of it, and another file altogether.
        let (number, old) = made(3, "old");
        let places = Places { made: 1, before: Version::from(&old) };
        fs::write(at(OsStr::new("new")), "changed late").unwrap();
        fs::rename(at(OsStr::new("new")), at(&name(number, Some(places)))).unwrap();
        kept.push(PathBuf::from("sub").join(name(number, Some(places))));
        fs::create_dir(at(&name(4, None))).unwrap();
        kept.push(PathBuf::from("sub").join(name(4, None)));
        // Of a process that runs, and names that are not ours.
        let living = Unfinished { maker: Birth::own().unwrap(), number: 5, places: None }.name();
        fs::write(at(&living), "").unwrap();
        fs::write(at(OsStr::new(".belljar-unfinished-12-3")), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at(&name(6, None))).unwrap();

        let mut looked = Recovered::default();
        recover(&directory, Path::new("sub"), &gone(), Recovery::Look, &mut looked).unwrap();
        let before = fs::read_dir(place.path()).unwrap().count();
        let mut found = Recovered::default();
        recover(&directory, Path::new("sub"), &gone(), Recovery::Remove, &mut found).unwrap();
        looked.removed.sort();
        found.removed.sort();
        found.kept.sort();
        assert_eq!((found.removed.len(), &found.kept), (4, &kept), "{found:?}");
        assert_eq!(looked.removed, found.removed);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), before - 4);
        assert!(Path::new("/etc/passwd").exists() && at(&living).exists());
    }
}
