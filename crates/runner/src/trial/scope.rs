//! What a suite may use without an agreement, and reading files with that in mind.

use super::load::LoadError;
use crate::planning::Surroundings;
use belljar_contract::{AbsPath, PathUse};
use belljar_plan::{DocumentError, DocumentText, Ground, SUITE_MARKS, SuiteRoot, suite_root};
use belljar_record::tape::SUFFIX;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A longer file is no scenario.
const LONGEST: u64 = 4 << 20;
/// Everyone may write, and nobody may remove what is another's: `/tmp`.
const SHARED: u32 = 0o1002;

/// What is a suite's own, and what the user gave it on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The scenario's file, or the directory that is tried.
    pub suite: AbsPath,
    roots: Vec<SuiteRoot>,
}

impl Scope {
    /// The scope of a file: the directory that it belongs to.
    #[must_use]
    pub fn of_file(file: &AbsPath, surroundings: &Surroundings) -> Self {
        let real = really(file);
        let root = suite_root(&real, &surroundings.home, ground);
        Self { suite: real, roots: vec![root] }
    }

    /// The scope of a tape: that of a file, and the scenario of the same name beside it.
    #[must_use]
    pub fn of_tape(tape: &AbsPath, surroundings: &Surroundings) -> Self {
        let mut scope = Self::of_file(tape, surroundings);
        let beside = |ending: &str| {
            let name = scope.suite.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
            Some(SuiteRoot::FileAlone(scope.suite.parent()?.child(&format!("{name}.{ending}"))))
        };
        let own: Vec<SuiteRoot> = ["yaml", "yml"].into_iter().filter_map(beside).collect();
        scope.roots.extend(own);
        scope
    }

    /// The scope of a directory that the user named, with further paths that the user named.
    #[must_use]
    pub fn of_named<'a>(directory: &AbsPath, further: impl IntoIterator<Item = &'a AbsPath>) -> Self {
        let suite = really(directory);
        let further = further.into_iter().map(|path| SuiteRoot::Directory(really(path)));
        let roots = std::iter::once(SuiteRoot::Directory(suite.clone())).chain(further).collect();
        Self { suite, roots }
    }

    /// The directory that is the suite's own; none where only the file itself is.
    #[must_use]
    pub fn root(&self) -> Option<&AbsPath> {
        self.roots.first().and_then(SuiteRoot::directory)
    }

    /// Whether a path leads to what is the suite's own, links followed.
    #[must_use]
    pub fn holds(&self, path: &AbsPath) -> bool {
        self.holds_real(&really(path))
    }

    fn holds_real(&self, real: &AbsPath) -> bool {
        self.roots.iter().any(|root| root.holds(real))
    }

    /// Reads and parses a file that the suite names. Of a file beyond the suite no fault quotes the text: a suite could
    /// name any file of the user's to have its first lines printed.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it should be.
    pub(super) fn parse<T>(
        &self,
        surroundings: &Surroundings,
        (used_as, path): (PathUse, &AbsPath),
        parse: impl FnOnce(DocumentText) -> Result<T, DocumentError>,
    ) -> Result<T, LoadError> {
        let (text, real) = read(surroundings, path)?;
        let own = real.is_some_and(|real| self.holds_real(&real));
        parse(text).map_err(|error| match own {
            true => error.into(),
            false => LoadError::Beyond { what: used_as.describe(), path: path.clone() },
        })
    }
}

/// A file and where it really lies; that is asked of the open file, so that no link can change in between.
pub(super) fn read(
    surroundings: &Surroundings,
    path: &AbsPath,
) -> Result<(DocumentText, Option<AbsPath>), LoadError> {
    let failed = |cause| LoadError::Read { path: path.clone(), cause };
    // Not blocking: a named pipe that nobody writes to would wait for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path.as_path(), flags, Mode::empty());
    let file = File::from(opened.map_err(|error| failed(error.into()))?);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a file")));
    }
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    let text = DocumentText { name: surroundings.shown(path), bytes };
    Ok((text, real.and_then(|real| AbsPath::new(real).ok())))
}

/// Where a path leads, every link in it followed. What is not there is where it would be.
pub(super) fn really(path: &AbsPath) -> AbsPath {
    let mut missing = Vec::new();
    for above in path.as_path().ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            let whole = missing.iter().rev().fold(real, |real, name| real.join(name));
            return AbsPath::new(whole).unwrap_or_else(|_nul| path.clone());
        }
        // A dangling link leads somewhere; what is not there yet may be there in a moment.
        if let Ok(target) = fs::read_link(above) {
            let base = above.parent().unwrap_or(above);
            let whole = missing.iter().rev().fold(base.join(target), |real, name| real.join(name));
            return AbsPath::new(whole).unwrap_or_else(|_nul| path.clone());
        }
        missing.extend(above.file_name());
    }
    path.clone()
}

/// What is known of a directory above a suite. A mark counts where it belongs to the directory's own owner: in `/tmp`
/// anyone can put one.
fn ground(directory: &AbsPath) -> Ground {
    let Ok(found) = fs::metadata(directory) else { return Ground::Plain };
    if found.mode() & SHARED == SHARED {
        return Ground::Shared;
    }
    let marks = |name: &str| {
        let mark = fs::symlink_metadata(directory.child(name));
        mark.is_ok_and(|mark| mark.uid() == found.uid())
    };
    if SUITE_MARKS.iter().any(|name| marks(name)) { Ground::Marked } else { Ground::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn world() -> (tempfile::TempDir, AbsPath) {
        let directory = tempfile::tempdir().unwrap();
        let path = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        (directory, path)
    }

    #[test]
    fn a_path_is_where_all_of_its_links_lead() {
        let (_directory, top) = world();
        fs::create_dir_all(top.child("suite/inner")).unwrap();
        fs::create_dir_all(top.child("home/.ssh")).unwrap();
        fs::write(top.child("home/.ssh/key"), "").unwrap();
        symlink("../home/.ssh/key", top.child("suite/file")).unwrap();
        symlink("../../home/.ssh", top.child("suite/inner/keys")).unwrap();
        symlink("inner", top.child("suite/own")).unwrap();
        symlink("../home/new", top.child("suite/dangling")).unwrap();
        for (name, real) in [
            ("suite/file", "home/.ssh/key"),
            ("suite/inner/keys/key", "home/.ssh/key"),
            ("suite/own/keys/key", "home/.ssh/key"),
            ("suite/inner/keys/missing/file", "home/.ssh/missing/file"),
            ("suite/own/missing", "suite/inner/missing"),
            ("suite/dangling", "home/new"),
        ] {
            assert_eq!(really(&top.child(name)), top.child(real), "{name}");
        }
        let scope = Scope::of_named(&top.child("suite"), []);
        assert!(scope.holds(&top.child("suite/own")) && !scope.holds(&top.child("suite/file")));
        assert!(!scope.holds(&top.child("suite/inner/keys")) && !scope.holds(&top.child("suite/dangling")));
    }

    #[test]
    fn a_tape_and_the_scenario_of_its_name_belong_together() {
        let (_directory, top) = world();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o1777)).unwrap();
        let surroundings = crate::trial::wishes::tests::surroundings(&top);
        let scope = Scope::of_tape(&top.child("a.tape"), &surroundings);
        assert_eq!(scope.root(), None);
        assert!(scope.holds(&top.child("a.yaml")) && scope.holds(&top.child("a.yml")));
        assert!(!scope.holds(&top.child("b.yaml")) && !scope.holds(&top.child("a.tape.yaml")));
        symlink("/etc/passwd", top.child("a.yaml")).unwrap();
        assert!(!scope.holds(&top.child("a.yaml")), "where it leads counts");
    }

    #[test]
    fn what_everyone_can_write_to_is_shared_whatever_lies_in_it() {
        let (_directory, top) = world();
        assert_eq!(ground(&top), Ground::Plain);
        fs::write(top.child("SKILL.md"), "").unwrap();
        assert_eq!(ground(&top), Ground::Marked);
        fs::set_permissions(&top, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(ground(&top), Ground::Shared);
        assert_eq!(ground(&top.child("missing")), Ground::Plain);
    }

    #[test]
    fn a_mark_of_another_user_does_not_count() {
        // Only root can give a file away.
        belljar_testkit::require!(Root);
        let (_directory, top) = world();
        fs::create_dir(top.child(".git")).unwrap();
        assert_eq!(ground(&top), Ground::Marked);
        std::os::unix::fs::chown(top.child(".git"), Some(65534), None).unwrap();
        assert_eq!(ground(&top), Ground::Plain);
    }
}
