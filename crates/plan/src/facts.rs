//! The facts about the host that a plan depends on. The compiler asks for them; the runner answers once.

use belljar_contract::{AbsPath, Digest, EnvName};
use std::collections::{BTreeMap, BTreeSet};

/// The facts that are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// What is at these paths?
    pub paths: BTreeSet<AbsPath>,
    /// What do these text files hold? Absent ones are answered by absence.
    pub texts: BTreeSet<AbsPath>,
    /// Which of these variables are set?
    pub variables: BTreeSet<EnvName>,
    /// What do these files hold, where they are files of the project?
    pub contents: BTreeMap<AbsPath, Holds>,
}

/// What a file that is used outside is there for, which decides how its digest is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// Code: its digest is the same on every machine.
    Code,
    /// A value: its digest is made with a key of the machine, because a short value could be guessed from a plain one.
    Value,
}

impl Questions {
    /// Adds the questions of another set.
    pub fn extend(&mut self, other: Questions) {
        let Questions { paths, texts, variables, contents } = other;
        self.paths.extend(paths);
        self.texts.extend(texts);
        self.variables.extend(variables);
        contents.into_iter().for_each(|(path, holds)| self.content(path, holds));
    }

    /// Asks for a content; one that is asked for as a value stays one.
    pub fn content(&mut self, path: AbsPath, holds: Holds) {
        let asked = self.contents.entry(path).or_insert(holds);
        *asked = (*asked).max(holds);
    }
}

/// What is at a path, symbolic links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFact {
    Missing,
    /// A directory, at this canonical path.
    Directory(AbsPath),
    /// A regular file, at this canonical path.
    File(AbsPath),
    /// Something else: a socket, a device.
    Special,
    /// Symbolic links that go in a circle.
    Loop,
    /// It cannot be looked at, and why.
    Unreadable(String),
}

/// A text file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextFact {
    Text(String),
    Missing,
    /// It cannot be used, and why.
    Unusable(String),
}

/// The content of a file of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentFact {
    /// It is not a file of the project.
    Elsewhere,
    /// A file of the project, links followed, and the digest of what it holds.
    Digest(AbsPath, Digest),
    /// It cannot be read, and why.
    Unusable(String),
}

/// The project around the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFacts {
    /// The working directory, canonical.
    pub directory: AbsPath,
    /// The top of the work tree, or the working directory outside a repository.
    pub root: AbsPath,
    /// Parent of the repository's common directory; the same for all worktrees.
    pub canonical_root: AbsPath,
    /// The repository's common directory, when it lies outside the work tree.
    pub outside_repository: Option<AbsPath>,
}

/// The user and where belljar keeps things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFacts {
    /// The home directory, canonical.
    pub home: AbsPath,
    /// Where per-project state is kept.
    pub instances: AbsPath,
    /// Where belljar's configuration and the agreements are kept.
    pub config: AbsPath,
}

/// The answers to [`Questions`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    pub user: UserFacts,
    pub project: ProjectFacts,
    pub paths: BTreeMap<AbsPath, PathFact>,
    pub texts: BTreeMap<AbsPath, TextFact>,
    /// The variables, of those asked about, that are set.
    pub variables: BTreeSet<EnvName>,
    pub contents: BTreeMap<AbsPath, ContentFact>,
    /// The kernel feature that the guard of a `direct` workspace needs and this kernel lacks.
    pub guard_lacks: Option<String>,
}

impl HostFacts {
    /// Adds further answers.
    pub fn extend(&mut self, other: HostFacts) {
        let HostFacts { user: _, project: _, paths, texts, variables, contents, guard_lacks: _ } = other;
        self.paths.extend(paths);
        self.texts.extend(texts);
        self.variables.extend(variables);
        self.contents.extend(contents);
    }

    /// What is at a path. A path that was not asked about counts as unreadable: absence is not permission.
    #[must_use]
    pub fn path(&self, path: &AbsPath) -> PathFact {
        self.paths
            .get(path)
            .cloned()
            .unwrap_or_else(|| PathFact::Unreadable("it was not looked at".to_owned()))
    }

    /// What a text file holds.
    #[must_use]
    pub fn text(&self, path: &AbsPath) -> TextFact {
        self.texts.get(path).cloned().unwrap_or_else(|| TextFact::Unusable("it was not read".to_owned()))
    }

    /// What a file of the project holds.
    #[must_use]
    pub fn content(&self, path: &AbsPath) -> ContentFact {
        let unread = || ContentFact::Unusable("it was not read".to_owned());
        self.contents.get(path).cloned().unwrap_or_else(unread)
    }
}
