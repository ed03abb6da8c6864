//! Decides which files a suite may use without an agreement, and reads files accordingly.

use super::load::LoadError;
use super::requests::Consent;
use crate::environment::HostEnvironment;
use belljar_contract::{AbsPath, Digest, Harness, PathUse, Wish, Wishes};
use belljar_plan::{DocumentError, DocumentText, Ground, SUITE_MARKS, SuiteRoot, suite_root};
use belljar_record::tape::SUFFIX;
use belljar_session::Harnesses;
use belljar_sys::regular::{open_regular, read_regular};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The largest scenario file.
const LONGEST: u64 = 4 << 20;
/// The mode bit of a directory that every user can write to, such as `/tmp`.
const SHARED: u32 = 0o0002;

/// The files that belong to a suite, and those that the user named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The scenario's file, or the directory that is tested.
    pub suite: AbsPath,
    roots: Vec<SuiteRoot>,
}

impl Scope {
    /// The scope of a file: the directory that it belongs to.
    #[must_use]
    pub fn of_file(file: &AbsPath, environment: &HostEnvironment) -> Self {
        let real = really(file);
        let root = suite_root(&real, &environment.home, ground);
        Self { suite: real, roots: vec![root] }
    }

    /// The scope of a tape: that of its file, with the scenario of the same name beside it.
    #[must_use]
    pub fn of_tape(tape: &AbsPath, environment: &HostEnvironment) -> Self {
        let mut scope = Self::of_file(tape, environment);
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

    /// The directory that belongs to the suite; `None` if only the file itself does.
    #[must_use]
    pub fn root(&self) -> Option<&AbsPath> {
        self.roots.first().and_then(SuiteRoot::directory)
    }

    /// Whether a path belongs to the suite after links are resolved.
    #[must_use]
    pub fn holds(&self, path: &AbsPath) -> bool {
        self.holds_real(&really(path))
    }

    /// Whether a path without links belongs to the suite.
    #[must_use]
    pub fn holds_real(&self, real: &AbsPath) -> bool {
        self.roots.iter().any(|root| root.holds(real))
    }
}

/// Decides whether the files outside a suite that were found while loading it may be read.
pub type Permit<'a> = &'a dyn Fn(&Wishes) -> bool;

/// The files that were read for a suite.
pub(super) struct FilesRead {
    /// Those outside of it, which were permitted.
    pub beyond: Vec<(PathUse, AbsPath)>,
    /// The digests of those that were parsed, as they were then.
    pub parsed: Vec<(PathUse, Digest)>,
}

/// Reads the files of a suite. A file outside the suite is opened only with a permit.
pub(super) struct Reading<'a> {
    environment: &'a HostEnvironment,
    pub(super) scope: &'a Scope,
    permit: Permit<'a>,
    beyond: RefCell<Vec<(PathUse, AbsPath)>>,
    parsed: RefCell<Vec<(PathUse, Digest)>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(environment: &'a HostEnvironment, scope: &'a Scope, permit: Permit<'a>) -> Self {
        Self { environment, scope, permit, beyond: RefCell::default(), parsed: RefCell::default() }
    }

    /// What was read.
    pub(super) fn end(self) -> FilesRead {
        FilesRead { beyond: self.beyond.into_inner(), parsed: self.parsed.into_inner() }
    }

    /// Asks for a permit for those of the paths that lie outside the suite.
    ///
    /// # Errors
    /// If there is none. No file was opened.
    pub(super) fn ask(&self, paths: &[(PathUse, AbsPath)]) -> Result<(), LoadError> {
        for (used_as, path) in paths {
            self.ask_real(*used_as, really(path))?;
        }
        Ok(())
    }

    fn ask_real(&self, used_as: PathUse, real: AbsPath) -> Result<(), LoadError> {
        if self.scope.holds_real(&real) {
            return Ok(());
        }
        let mut beyond = self.beyond.borrow_mut();
        beyond.push((used_as, real));
        let wish =
            |(used_as, path): &(PathUse, AbsPath)| Wish::Path { path: path.clone(), used_as: *used_as };
        let list = beyond.iter().map(wish).collect();
        let wishes = Wishes::new(self.scope.suite.clone(), self.scope.root().cloned(), list);
        if (self.permit)(&wishes) { Ok(()) } else { Err(LoadError::Asks { wishes: Box::new(wishes) }) }
    }

    /// Reads and parses a file that the suite names. Errors in a file outside the suite do not quote its text:
    /// otherwise a suite could have the first lines of any file of the user printed.
    ///
    /// # Errors
    /// If it may not or cannot be read, or is not valid.
    pub(super) fn parse<T>(
        &self,
        (used_as, path): (PathUse, &AbsPath),
        parse: impl FnOnce(DocumentText) -> Result<T, DocumentError>,
    ) -> Result<T, LoadError> {
        self.ask(&[(used_as, path.clone())])?;
        let located = Located::find(path)?;
        // A link may have changed in between.
        self.ask_real(used_as, located.real.clone())?;
        let own = self.scope.holds_real(&located.real);
        let text = located.read(self.environment)?;
        self.parsed.borrow_mut().push((used_as, Digest::of(&text.bytes)));
        parse(text).map_err(|error| match own {
            true => error.into(),
            false => LoadError::Beyond { what: used_as.describe(), path: path.clone() },
        })
    }
}

/// A file that was found and is not opened for reading yet.
struct Located {
    path: AbsPath,
    real: AbsPath,
    file: File,
}

impl Located {
    fn find(path: &AbsPath) -> Result<Self, LoadError> {
        let failed = |cause| LoadError::Read { path: path.clone(), cause };
        // `O_PATH` only finds the file: opening a device or a pipe could have effects.
        let found = rustix::fs::open(path.as_path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let file = File::from(found.map_err(|error| failed(error.into()))?);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        let real =
            fs::read_link(of_descriptor(&file)).and_then(|real| AbsPath::new(real).map_err(io::Error::other));
        Ok(Self { path: path.clone(), real: real.map_err(failed)?, file })
    }

    /// Reads the file that was found, even if the path leads elsewhere by now.
    fn read(self, environment: &HostEnvironment) -> Result<DocumentText, LoadError> {
        let Self { path, file, real: _ } = self;
        let failed = |cause| LoadError::Read { path: path.clone(), cause };
        let opened = open_regular(&of_descriptor(&file)).map_err(failed)?;
        let mut bytes = Vec::new();
        opened.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok(DocumentText { name: environment.shown(&path), bytes })
    }
}

/// Reads a file that the suite names, with links resolved now, if it belongs to the suite or was agreed to. Also
/// returns whether it belongs to the suite.
///
/// # Errors
/// If neither is the case, it cannot be read, or it has more bytes than `limit`.
pub(super) fn read_agreed(
    scope: &Scope,
    consent: &Consent,
    path: &AbsPath,
    limit: u64,
) -> io::Result<(Vec<u8>, bool)> {
    let Located { path: _, real, file } = Located::find(path).map_err(|error| match error {
        LoadError::Read { cause, .. } => cause,
        other @ (LoadError::Invalid { .. }
        | LoadError::Named { .. }
        | LoadError::Beyond { .. }
        | LoadError::Asks { .. }
        | LoadError::Unfit(_)
        | LoadError::Path(_)
        | LoadError::Planning(_)) => io::Error::other(other.to_string()),
    })?;
    let own = scope.holds_real(&real);
    if !own && !consent.covers_path(&scope.suite, &real) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it leads to a file that was not agreed to",
        ));
    }
    // The descriptor refers to the file that was checked, even if the path leads elsewhere by now.
    Ok((read_regular(&of_descriptor(&file), limit)?, own))
}

/// A path to an open file, whatever its name is now.
pub(super) fn of_descriptor(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Reads a file that the user named.
pub(super) fn read(environment: &HostEnvironment, path: &AbsPath) -> Result<DocumentText, LoadError> {
    Located::find(path)?.read(environment)
}

/// Whether a path is a link out of its directory. A link in a foreign suite could lead to any file of the user, and an
/// error would quote it.
pub(super) fn leads_away(path: &AbsPath) -> bool {
    path.parent().map(|directory| really(&directory)) != really(path).parent()
}

/// The target of a path with every link resolved. A missing file is resolved to where it would be.
pub(crate) fn really(path: &AbsPath) -> AbsPath {
    // The kernel's own limit.
    const LINKS: usize = 40;
    let mut whole = path.as_path().to_owned();
    for _ in 0..LINKS {
        match one_step(&whole) {
            Step::Arrived(real) => return AbsPath::new(real).unwrap_or_else(|_nul| path.clone()),
            Step::Further(next) => whole = next,
        }
    }
    path.clone()
}

enum Step {
    Arrived(PathBuf),
    Further(PathBuf),
}

fn one_step(path: &Path) -> Step {
    let mut missing = Vec::new();
    let with =
        |base: PathBuf, missing: &[&OsStr]| missing.iter().rev().fold(base, |base, name| base.join(name));
    for above in path.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            let whole = with(real, &missing);
            // `..` after a missing directory leads back from where that directory would be.
            let back = missing.contains(&OsStr::new(".."));
            return match AbsPath::new(&whole) {
                Ok(plain) if back => Step::Further(plain.as_path().to_owned()),
                Ok(_) | Err(_) => Step::Arrived(whole),
            };
        }
        // A dangling link counts as well: its target may exist a moment later.
        if let Ok(target) = fs::read_link(above) {
            let parent = above.parent().unwrap_or(above);
            let base = fs::canonicalize(parent).unwrap_or_else(|_missing| parent.to_owned());
            return Step::Further(with(base.join(target), &missing));
        }
        missing.extend(above.components().next_back().map(Component::as_os_str));
    }
    Step::Arrived(path.to_owned())
}

/// The facts about a directory above a suite. A marker counts only if it belongs to the directory's owner: in `/tmp`,
/// any user can create one.
fn ground(directory: &AbsPath) -> Ground {
    let Ok(found) = fs::metadata(directory) else { return Ground::Plain };
    if found.mode() & SHARED == SHARED {
        return Ground::Shared;
    }
    let marks = |name: &str| {
        let mark = fs::symlink_metadata(directory.child(name));
        mark.is_ok_and(|mark| mark.uid() == found.uid())
    };
    let harnesses = Harnesses::built_in().list().into_iter().map(Harness::profile);
    let plugins = harnesses.map(|profile| profile.plugin_directory.as_str());
    if SUITE_MARKS.into_iter().chain(plugins).any(marks) { Ground::Marked } else { Ground::Plain }
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
        symlink("d2", top.child("suite/d1")).unwrap();
        symlink("inner/d3", top.child("suite/d2")).unwrap();
        symlink("../../home/absent", top.child("suite/inner/d3")).unwrap();
        symlink("missing/../../home/later", top.child("suite/back")).unwrap();
        symlink("round", top.child("suite/round")).unwrap();
        for (name, real) in [
            ("suite/file", "home/.ssh/key"),
            ("suite/inner/keys/key", "home/.ssh/key"),
            ("suite/own/keys/key", "home/.ssh/key"),
            ("suite/inner/keys/missing/file", "home/.ssh/missing/file"),
            ("suite/own/missing", "suite/inner/missing"),
            ("suite/dangling", "home/new"),
            ("suite/d1", "home/absent"),
            ("suite/d1/below", "home/absent/below"),
            ("suite/own/d3", "home/absent"),
            ("suite/back", "home/later"),
            ("suite/round", "suite/round"),
        ] {
            assert_eq!(really(&top.child(name)), top.child(real), "{name}");
        }
        let scope = Scope::of_named(&top.child("suite"), []);
        assert!(scope.holds(&top.child("suite/own")) && !scope.holds(&top.child("suite/file")));
        assert!(!scope.holds(&top.child("suite/inner/keys")) && !scope.holds(&top.child("suite/dangling")));
    }

    #[test]
    fn a_file_beyond_is_not_opened_without_a_permit() {
        let (_directory, top) = world();
        fs::create_dir_all(top.child("suite")).unwrap();
        // A pipe is never opened, even with a permit: opening it can wake another program.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            top.child("pipe").as_path(),
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        fs::write(top.child("key"), "a: b").unwrap();
        symlink("../key", top.child("suite/link")).unwrap();
        let environment = crate::suite::requests::tests::environment(&top);
        let scope = Scope::of_named(&top.child("suite"), []);
        let parsed = |permit: Permit<'_>, name: &str| {
            let reading = Reading::new(&environment, &scope, permit);
            reading.parse((PathUse::Session, &top.child(name)), belljar_plan::parse_document)
        };
        for name in ["key", "suite/link"] {
            let Err(LoadError::Asks { wishes }) = parsed(&|_| false, name) else { panic!("{name}") };
            let wish = Wish::Path { path: top.child("key"), used_as: PathUse::Session };
            assert_eq!(wishes.list(), [wish], "{name}");
            assert!(parsed(&|_| true, name).is_ok(), "{name}");
        }
        assert!(matches!(parsed(&|_| true, "pipe"), Err(LoadError::Read { .. })));
    }

    #[test]
    fn a_tape_and_the_scenario_of_its_name_belong_together() {
        let (_directory, top) = world();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o1777)).unwrap();
        let environment = crate::suite::requests::tests::environment(&top);
        let scope = Scope::of_tape(&top.child("a.tape"), &environment);
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
        for mode in [0o1777, 0o777] {
            fs::set_permissions(&top, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(ground(&top), Ground::Shared);
        }
        assert_eq!(ground(&top.child("missing")), Ground::Plain);
    }

    #[test]
    fn a_mark_of_another_user_does_not_count() {
        // Only root can change the owner of a file.
        belljar_testkit::require!(Root);
        let (_directory, top) = world();
        fs::create_dir(top.child(".git")).unwrap();
        assert_eq!(ground(&top), Ground::Marked);
        std::os::unix::fs::chown(top.child(".git"), Some(65534), None).unwrap();
        assert_eq!(ground(&top), Ground::Plain);
    }
}
