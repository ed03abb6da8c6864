//! The repositories of a project whose changes are kept: one for each git directory, be it the project's own, that of a
//! submodule, or one that lies anywhere below. They are found by what makes a repository, on the user's side or the agent's.

mod notes;
mod seen;
mod states;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use belljar_class::{LARGEST_CONFIG, git_settings};
use belljar_sys::beneath::{Directory, InodeKind};

use super::Overlay;
use super::changes::Changes;
use super::layers::Layers;
use crate::workspace::git::{GitFiles, read_in};

pub use notes::note_repository;
pub(super) use seen::{InProject, InSandbox};
pub(super) use states::{LARGEST_LOG, States, TreeState, objects, same_refs};

/// Where the project's own repository is in the kept changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::workspace) struct Place {
    /// Which of the layers: that of the project, or that of the repository elsewhere.
    pub tree: usize,
    /// The shared git directory there.
    pub shared: PathBuf,
    /// The git directory of the work tree, below the shared one.
    pub own: PathBuf,
}

impl Place {
    /// Finds it in the project, by what the user has there: the agent's word does not count.
    pub(super) fn find(overlays: &[Overlay]) -> Option<Self> {
        let repository = overlays.get(1).map(|repository| repository.lower.as_path());
        Self::of(&overlays.first()?.lower, repository)
    }

    /// The same without layers.
    pub(in crate::workspace) fn of(project_path: &Path, repository: Option<&Path>) -> Option<Self> {
        let project = Directory::open(project_path).ok()?;
        let kind = project.status(".git".as_ref()).ok()?.kind;
        match (repository, kind) {
            (None, InodeKind::Directory) => {
                Some(Place { tree: 0, shared: PathBuf::from(".git"), own: PathBuf::new() })
            }
            (Some(repository), InodeKind::File) => {
                let text = read_in(&project, Path::new(".git"), 16 << 10).ok()??;
                let line = text.strip_prefix(b"gitdir:")?.trim_ascii();
                let stated = project_path.join(OsStr::from_bytes(line));
                let own = stated.canonicalize().ok()?;
                let own = own.strip_prefix(repository).ok()?.to_owned();
                Some(Place { tree: 1, shared: PathBuf::new(), own })
            }
            (None | Some(_), _) => None,
        }
    }
}

/// On which sides a repository is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The project has it, and the agent left it there.
    Both,
    /// The agent made it.
    New,
    /// The agent deleted it.
    Gone,
}

/// A repository with kept changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// Which of the layers it lies in.
    pub tree: usize,
    /// The git directory there.
    pub git: PathBuf,
    /// The git directory of the project's work tree, below that one; empty in all but a linked worktree.
    pub own: PathBuf,
    /// Where its files lie in the project; `None` where they are elsewhere, or nowhere.
    pub top: Option<PathBuf>,
    /// Whether it is the project's own.
    pub is_main: bool,
    pub presence: Presence,
}

impl Repository {
    /// Those that something was changed in, the deepest first and the project's own last.
    pub(super) fn touched(overlays: &[Overlay], layers: &[Layers], changes: &[Changes]) -> Vec<Self> {
        let main = Place::find(overlays);
        let mut out = Vec::new();
        for (tree, found) in changes.iter().enumerate() {
            for git in above(found) {
                let is_place = main.as_ref().is_some_and(|main| main.tree == tree && main.shared == git);
                if !is_place && !layers[tree].is_repository(git) {
                    continue;
                }
                // The agent may have made the one of a project that had none.
                let is_main = is_place || main.is_none() && tree == 0 && git == Path::new(".git");
                let own = main.as_ref().filter(|_| is_main).map(|place| place.own.clone());
                let presence = match (layers[tree].had_repository(git), layers[tree].shows_repository(git)) {
                    (false, true) => Presence::New,
                    (true, false) => Presence::Gone,
                    (true, true) | (false, false) => Presence::Both,
                };
                let (git, own) = (git.to_owned(), own.unwrap_or_default());
                let mut repository = Repository { tree, git, own, top: None, is_main, presence };
                repository.top = match is_main {
                    true => Some(PathBuf::new()),
                    false => repository.main_tree(overlays, layers),
                };
                out.push(repository);
            }
        }
        let depth = |repository: &Repository| {
            let place = repository.top.as_ref().unwrap_or(&repository.git);
            (!repository.is_main, place.iter().count(), repository.git.iter().count())
        };
        out.sort_by_key(|repository| std::cmp::Reverse(depth(repository)));
        out
    }

    /// One of which no more is known than that both sides have it; `main` is the project's own.
    pub(super) fn shared(tree: usize, git: &Path, main: Option<&Place>) -> Self {
        let main = main.filter(|main| main.tree == tree && main.shared == git);
        let own = main.map(|main| main.own.clone()).unwrap_or_default();
        let (git, is_main) = (git.to_owned(), main.is_some());
        Repository { tree, git, own, top: None, is_main, presence: Presence::Both }
    }

    /// The files of one of its sides: of the project, or, of a new one, of the agent.
    fn files<'layers>(&'layers self, layers: &'layers [Layers]) -> Box<dyn GitFiles + 'layers> {
        let (layers, shared) = (&layers[self.tree], self.git.as_path());
        match self.presence {
            Presence::Both | Presence::Gone => Box::new(InProject { layers, shared }),
            Presence::New => Box::new(InSandbox { layers, shared }),
        }
    }

    /// A setting of its main work tree: `Some(None)` where it stands without a value.
    fn setting(&self, layers: &[Layers], key: &str) -> Option<Option<Vec<u8>>> {
        let files = self.files(layers);
        ["config.worktree", "config"].iter().find_map(|name| {
            let text = files.read(Path::new(name), LARGEST_CONFIG).ok()??;
            let settings = git_settings(&text);
            settings.iter().rfind(|setting| setting.is("core", key)).map(|setting| setting.value.clone())
        })
    }

    /// Whether it has no main work tree.
    pub(super) fn is_bare(&self, overlays: &[Overlay], layers: &[Layers]) -> bool {
        match self.setting(layers, "bare") {
            Some(None) => true,
            Some(Some(value)) => {
                [&b"true"[..], b"yes", b"on", b"1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
            }
            None => {
                let git = overlays[self.tree].lower.join(&self.git);
                git.file_name() != Some(OsStr::new(".git")) && self.setting(layers, "worktree").is_none()
            }
        }
    }

    /// Where the files of its main work tree lie in the project.
    fn main_tree(&self, overlays: &[Overlay], layers: &[Layers]) -> Option<PathBuf> {
        match self.setting(layers, "worktree").flatten() {
            Some(stated) => self.in_project(overlays, Path::new(OsStr::from_bytes(&stated))),
            None if self.tree == 0 && self.git.file_name() == Some(OsStr::new(".git")) => {
                self.git.parent().map(Path::to_owned)
            }
            None => None,
        }
    }

    /// Where the files of a work tree are, in the project or not, by its git directory below the shared one.
    pub(super) fn work_tree(&self, overlays: &[Overlay], layers: &[Layers], own: &Path) -> Option<PathBuf> {
        if !own.as_os_str().is_empty() {
            return Some(self.place(overlays, &self.stated_by(layers, own)?));
        }
        match self.setting(layers, "worktree").flatten() {
            Some(stated) => Some(self.place(overlays, Path::new(OsStr::from_bytes(&stated)))),
            None => Some(self.place(overlays, Path::new(".."))),
        }
    }

    /// Where the files of a linked work tree lie in the project, by its git directory below the shared one.
    pub(super) fn linked_tree(&self, overlays: &[Overlay], layers: &[Layers], own: &Path) -> Option<PathBuf> {
        self.in_project(overlays, &self.stated_by(layers, own)?)
    }

    /// The work tree that a git directory of a linked one names.
    fn stated_by(&self, layers: &[Layers], own: &Path) -> Option<PathBuf> {
        let text = self.files(layers).read(&own.join("gitdir"), 16 << 10).ok()??;
        let stated = own.join(OsStr::from_bytes(text.trim_ascii_end()));
        stated.parent().map(Path::to_owned)
    }

    /// A path that a file of the git directory states, as one of the project.
    fn in_project(&self, overlays: &[Overlay], stated: &Path) -> Option<PathBuf> {
        self.place(overlays, stated).strip_prefix(&overlays[0].lower).ok().map(Path::to_owned)
    }

    /// A path that a file of the git directory states.
    fn place(&self, overlays: &[Overlay], stated: &Path) -> PathBuf {
        let mut out = PathBuf::new();
        for part in overlays[self.tree].lower.join(&self.git).join(stated).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    out.pop();
                }
                Component::RootDir | Component::Prefix(_) | Component::Normal(_) => out.push(part),
            }
        }
        out
    }

    /// The file of a ref, in its tree.
    pub(super) fn file_of(&self, name: &[u8]) -> PathBuf {
        let below = match name {
            b"HEAD" => self.own.join("HEAD"),
            b"main-worktree/HEAD" => PathBuf::from("HEAD"),
            name => PathBuf::from(OsStr::from_bytes(name)),
        };
        self.git.join(below)
    }

    /// The name that git has for the HEAD of a work tree.
    pub(super) fn head_of(&self, own: &Path) -> Vec<u8> {
        match own {
            own if own == self.own => b"HEAD".to_vec(),
            own if own.as_os_str().is_empty() => b"main-worktree/HEAD".to_vec(),
            own => own.join("HEAD").as_os_str().as_bytes().to_vec(),
        }
    }

    /// The path of an entry of its git directory below that.
    pub(super) fn below<'path>(&self, tree: usize, path: &'path Path) -> Option<&'path Path> {
        path.strip_prefix(&self.git).ok().filter(|_| tree == self.tree)
    }
}

/// The directories that something was changed in.
fn above(found: &Changes) -> BTreeSet<&Path> {
    let mut seen = HashSet::new();
    for change in &found.changes {
        for above in change.path.ancestors().skip(1) {
            if !seen.insert(above) {
                break;
            }
        }
    }
    seen.into_iter().collect()
}
