//! The program behind a wrapper on the search path: a script that hands its arguments on, or the shim of a version
//! manager. Inside the sandbox a wrapper leads nowhere, because what it starts is not there.
//!
//! Wrappers are read, never run. Where reading does not say which program they start, the launch is refused.

mod managers;
mod text;
#[cfg(test)]
mod wrapper_tests;

use super::metadata::Platform;
use crate::environment::HostEnvironment;
use belljar_contract::{AbsPath, HarnessProfile, visible};
use belljar_sys::regular::open_regular;
use managers::{ManagedProgram, Manager};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use text::Starts;

/// More wrappers than anybody has behind each other.
const MOST_WRAPPERS: usize = 8;
/// Longer than any wrapper; of other files only the beginning is read.
const HEAD: u64 = 16 << 10;

/// The agent's program on the search path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProgram {
    /// The program itself, links resolved.
    pub path: AbsPath,
    /// How it was found behind a wrapper, for messages.
    pub behind: Option<String>,
}

/// The file on the search path is a wrapper, and the program that it starts cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{file}` on your PATH is a wrapper, and the program behind it cannot be found: {why}", file = file.display())]
pub struct WrapperError {
    file: PathBuf,
    why: String,
    agent: String,
}

impl WrapperError {
    /// The remedies.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let agent = &self.agent;
        vec![
            format!(
                "`belljar agent install {agent}` keeps a version that needs no wrapper; `--agent {agent}@VERSION` starts it"
            ),
            "or put the directory of the program itself before the wrapper's on PATH".to_owned(),
        ]
    }
}

/// The agent's program on the search path, behind its wrappers.
///
/// # Errors
/// If a wrapper is found and the program behind it is not.
pub(crate) fn program_on_path(
    environment: &HostEnvironment,
    profile: &HarnessProfile,
) -> Result<Option<FoundProgram>, WrapperError> {
    let name = profile.program.as_str();
    let Some(first) = environment.found_inside(name) else { return Ok(None) };
    let search = WrapperSearch {
        name,
        package: &profile.package.name,
        program: Path::new(&profile.package.program).file_name().unwrap_or(name.as_ref()).as_ref(),
        home: environment.home.as_path(),
        variable: &|name| environment.variables.get(std::ffi::OsStr::new(name)).map(PathBuf::from),
        is_of_the_project: &|path| environment.is_of_the_project(path),
        first: &first,
    };
    let error = |why| WrapperError { file: first.clone(), why, agent: profile.name.clone() };
    search.follow().map(Some).map_err(error)
}

/// What is searched for, and where.
struct WrapperSearch<'a> {
    /// The name on the search path.
    name: &'a str,
    /// The npm package, and the name of the program in the packages of the platforms.
    package: &'a str,
    program: &'a Path,
    home: &'a Path,
    variable: &'a dyn Fn(&str) -> Option<PathBuf>,
    is_of_the_project: &'a dyn Fn(&AbsPath) -> bool,
    /// The file on the search path, links not resolved.
    first: &'a Path,
}

/// What a file turns out to be.
enum WrapperStep {
    Program,
    /// A wrapper around the file at the path, and what is worth saying about it.
    Behind(PathBuf, Option<String>),
}

impl WrapperSearch<'_> {
    /// Follows wrappers to the program.
    fn follow(&self) -> Result<FoundProgram, String> {
        let (mut at, mut seen, mut said) = (self.first.to_owned(), BTreeSet::new(), None);
        let mut from_project = false;
        while seen.len() < MOST_WRAPPERS {
            let real = executable(&at)?;
            // An agent may have written the project's file: it must not choose among the files of the user.
            if from_project && !(self.is_of_the_project)(&real) {
                return Err(format!("it is a file of the project, and leads out of it to `{real}`"));
            }
            if !seen.insert(real.clone()) {
                return Err("it leads back to itself".to_owned());
            }
            match self.step(&at, &real)? {
                WrapperStep::Program => {
                    let behind = (seen.len() > 1).then(|| {
                        let note = said.map(|note: String| format!("; {note}")).unwrap_or_default();
                        format!("behind the wrapper {}{note}", visible(&self.first.to_string_lossy()))
                    });
                    return Ok(FoundProgram { path: real, behind });
                }
                WrapperStep::Behind(next, note) => {
                    from_project = from_project || (self.is_of_the_project)(&real);
                    said = note.or(said);
                    at = next;
                }
            }
        }
        Err(format!("more than {MOST_WRAPPERS} wrappers are behind each other"))
    }

    fn step(&self, at: &Path, real: &AbsPath) -> Result<WrapperStep, String> {
        let head = head(real.as_path()).map_err(|cause| format!("cannot read `{real}`: {cause}"))?;
        // Shims of managers that are links to the manager itself.
        let own_name = real.as_path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if own_name != self.name
            && let Some(manager) = Manager::of_shim(own_name)
        {
            return self.kept(manager);
        }
        if head.starts_with(b"\x7fELF") {
            return Ok(WrapperStep::Program);
        }
        if let Some(directory) = self.package_directory(real.as_path()) {
            return self.of_package(&directory, &head);
        }
        let text = String::from_utf8_lossy(&head);
        match text::starts(&text, at, self.home, self.name) {
            Starts::Itself => Ok(WrapperStep::Program),
            Starts::File(path) => Ok(WrapperStep::Behind(path, None)),
            Starts::Manager(manager) => self.kept(manager),
            Starts::SameName => Ok(WrapperStep::Behind(self.first.to_owned(), None)),
            Starts::Unknown(why) => Err(format!("`{real}`: {why}")),
        }
    }

    fn kept(&self, manager: Manager) -> Result<WrapperStep, String> {
        let directory = manager.directory(self.home, self.variable);
        let kept = manager.programs(&directory, self.name, self.package);
        let (manager, directory) = (manager.name(), directory.display());
        match kept.as_slice() {
            [] => Err(format!("{manager} keeps no `{}` below {directory}", self.name)),
            [ManagedProgram { program, .. }] => Ok(WrapperStep::Behind(program.clone(), None)),
            [newest, others @ ..] if others.iter().all(|other| other.tool == newest.tool) => {
                let note = format!("the newest of {} that {manager} keeps", kept.len());
                Ok(WrapperStep::Behind(newest.program.clone(), Some(note)))
            }
            several => {
                let places: Vec<String> =
                    several.iter().map(|kept| format!("`{}`", kept.program.display())).collect();
                Err(format!("{manager} keeps several: {}", places.join(", ")))
            }
        }
    }

    /// The directory of the agent's npm package that a file lies in.
    fn package_directory(&self, file: &Path) -> Option<PathBuf> {
        let modules = Path::new("node_modules").join(self.package);
        file.ancestors().find(|directory| directory.ends_with(&modules)).map(Path::to_owned)
    }

    /// npm's launcher: the program is in the package of the platform, within the package or beside it.
    fn of_package(&self, directory: &Path, head: &[u8]) -> Result<WrapperStep, String> {
        let Platform { os, cpu, libc } = Platform::here();
        let libc = if libc == "musl" { "-musl" } else { "" };
        let platform = format!("{}-{os}-{cpu}{libc}", self.package);
        let modules = directory.ancestors().filter(|above| above.ends_with("node_modules"));
        let places = std::iter::once(directory.join("node_modules")).chain(modules.map(Path::to_owned));
        let mut programs = places.map(|place| place.join(&platform).join(self.program));
        match programs.find(|program| program.is_file()) {
            Some(program) => Ok(WrapperStep::Behind(program, None)),
            // Older packages are a script for node, which is the program itself.
            None if head.starts_with(b"#!") => Ok(WrapperStep::Program),
            None => Err(format!("the npm package `{platform}`, which has the program, is not installed")),
        }
    }
}

/// The real path of a file that a wrapper names.
fn executable(path: &Path) -> Result<AbsPath, String> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|cause| format!("cannot find `{shown}`: {cause}"))?;
    let found = real.metadata().map_err(|cause| format!("cannot read `{shown}`: {cause}"))?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        return Err(format!("`{shown}` is not an executable file"));
    }
    AbsPath::new(real).map_err(|cause| cause.to_string())
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    open_regular(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}
