//! What paths and names on the command line mean.

use super::{Options, shown};
use crate::error::CliError;
use belljar_contract::{AbsPath, ExitCode};
use belljar_runner::changes::{ChangeSelection, KeptChanges, KeptLayer, KeptRepository, Presence};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Turns what was named on the command line into paths of changes.
pub struct Naming<'a> {
    pub kept_layer: &'a KeptLayer,
    pub found: &'a KeptChanges,
    pub options: &'a Options,
    pub directory: &'a AbsPath,
}

impl Naming<'_> {
    /// All changes, or those that were named.
    pub fn selection(&self, paths: &[PathBuf]) -> Result<ChangeSelection, CliError> {
        if paths.is_empty() {
            return Ok(ChangeSelection::All);
        }
        Ok(ChangeSelection::Paths(paths.iter().map(|path| self.path(path)).collect::<Result<_, _>>()?))
    }

    /// The project's own repository.
    fn main(&self) -> Option<&KeptRepository> {
        self.found.repositories.iter().find(|repository| repository.label.as_os_str().is_empty())
    }

    /// The repository whose git directory a path lies in, and the path below that.
    fn of_git<'path>(&self, path: &'path Path) -> Option<(&KeptRepository, &'path Path)> {
        let all = self.found.repositories.iter();
        let inside =
            all.filter_map(|repository| Some((repository, path.strip_prefix(&repository.git).ok()?)));
        inside.max_by_key(|(repository, _)| repository.git.iter().count())
    }

    /// Whether a ref was changed. One that is packed has no file of its own.
    fn is_ref(&self, repository: &KeptRepository, name: &Path) -> bool {
        let is_packed = || self.found.has(&repository.file_of(Path::new("packed-refs")));
        repository.has_ref(name) || name.starts_with("refs") && is_packed()
    }

    /// A path, or a ref by its whole name. One that nothing is kept at is an error.
    fn path(&self, named: &Path) -> Result<PathBuf, CliError> {
        let path = self.resolved(named);
        if self.found.has(&path) || self.found.repositories.iter().any(|one| one.path == path) {
            return Ok(path);
        }
        if let Some(main) = self.main().filter(|main| self.is_ref(main, named)) {
            return Ok(main.file_of(named));
        }
        match self.of_git(&path) {
            Some((repository, name)) if self.is_ref(repository, name) => Ok(path),
            Some(_) | None => Err(self.unknown(&path)),
        }
    }

    /// What a yes is to: a path, a ref, all refs, the index, or the end of a repository.
    pub fn consented(&self, named: &Path) -> Result<PathBuf, CliError> {
        if self.main().is_some_and(|main| asks(main, named)) {
            return Ok(named.to_owned());
        }
        let path = self.resolved(named);
        if let Some((repository, name)) = self.of_git(&path) {
            let own = repository.own.as_path();
            let name = name.strip_prefix(own).unwrap_or(name);
            if asks(repository, name) {
                return Ok(repository.label.join(name));
            }
            let is_whole = name.as_os_str().is_empty() && repository.presence == Presence::Gone;
            if is_whole && !repository.label.as_os_str().is_empty() {
                return Ok(repository.label.clone());
            }
        }
        let is_staged = |repository: &KeptRepository| {
            repository.changes.staged_class.iter().any(|carried| carried.path == path)
        };
        let is_known = self.found.has(&path) || self.found.repositories.iter().any(is_staged);
        if is_known { Ok(path) } else { Err(self.unknown(&path)) }
    }

    /// The repository, by its path, and the ref that are meant; without a ref, the repository.
    pub fn reference(&self, named: &Path) -> Result<(PathBuf, Option<Vec<u8>>), CliError> {
        let bytes = |name: &Path| Some(name.as_os_str().as_bytes().to_vec());
        if let Some(main) = self.main().filter(|_| named.starts_with("refs") || named == Path::new("HEAD")) {
            return Ok((main.path.clone(), bytes(named)));
        }
        let path = self.resolved(named);
        match self.of_git(&path) {
            Some((repository, name)) if name.as_os_str().is_empty() => Ok((repository.path.clone(), None)),
            Some((repository, name)) => {
                let name = name.strip_prefix(&repository.own).unwrap_or(name);
                Ok((repository.path.clone(), bytes(name)))
            }
            None if self.found.repositories.iter().any(|one| one.path == path) => Ok((path, None)),
            None => Err(self.unknown(&path)),
        }
    }

    /// Whether a repository is meant by a selection.
    pub fn includes(selection: &ChangeSelection, repository: &KeptRepository) -> bool {
        let KeptRepository { path, git, .. } = repository;
        match selection {
            ChangeSelection::All => true,
            ChangeSelection::Paths(paths) => paths
                .iter()
                .any(|named| named.starts_with(git) || git.starts_with(named) || path.starts_with(named)),
        }
    }

    /// Relative to the project; outside it absolute.
    fn resolved(&self, named: &Path) -> PathBuf {
        let source = self.kept_layer.source().as_path();
        let mut out = PathBuf::new();
        for part in self.directory.as_path().join(named).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    out.pop();
                }
                Component::RootDir | Component::Prefix(_) | Component::Normal(_) => out.push(part),
            }
        }
        let path = out.strip_prefix(source).map(Path::to_owned).unwrap_or(out);
        // The git directory of a submodule is not where its files are.
        let labelled = self.found.repositories.iter().filter(|one| !one.label.as_os_str().is_empty());
        let mut below = labelled.filter_map(|one| Some(join(&one.git, path.strip_prefix(&one.label).ok()?)));
        below.next().unwrap_or(path)
    }

    fn unknown(&self, path: &Path) -> CliError {
        let message = format!("no change is kept at `{}`", shown(path));
        CliError::new(ExitCode::Invalid, message).hint(format!(
            "paths are relative to the current directory; `{} --stat` lists what is kept",
            self.options.command("diff")
        ))
    }
}

/// Whether a yes is asked for by this name of a ref, of all refs or of the index.
fn asks(repository: &KeptRepository, name: &Path) -> bool {
    let changes = &repository.changes;
    let index = !changes.staged_class.is_empty() || changes.unread_index.is_some();
    let refs = changes.unread_refs.is_some();
    repository.has_ref(name) || name == Path::new("index") && index || name == Path::new("refs") && refs
}

/// Joining an empty path would add a slash.
fn join(above: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { above.to_owned() } else { above.join(below) }
}
