//! Files of the project that values come from, compared with what was agreed to right before they are used.

use crate::facts::content_fact;
use crate::machine_key::{keyed, machine_key};
use belljar_contract::{AbsPath, Digest, EnvSource, Plan, UsedOutside};
use belljar_plan::{ContentFact, ProjectFacts};
use std::io;

/// What a plan says of the files of the project that are used outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgreedFiles<'a> {
    files: &'a [UsedOutside],
    root: &'a AbsPath,
    state: &'a AbsPath,
}

/// The digest of a file that holds a value, with the machine's key: from a plain one a short value could be guessed.
pub(crate) fn seal(state: &AbsPath, digest: Digest) -> io::Result<Digest> {
    let key = machine_key(state)?;
    Ok(Digest::of(&keyed(&key[..], &[b"belljar agreed file ", &digest.into_bytes()])))
}

impl<'a> AgreedFiles<'a> {
    pub(crate) fn of(plan: &'a Plan, state: &'a AbsPath) -> Self {
        Self { files: &plan.used_outside, root: &plan.workspace.source, state }
    }

    /// Compares every file of the project that the source uses. Another content, or a file that was not there, is an
    /// error that names the file.
    pub(crate) fn check(&self, source: &EnvSource, directory: &AbsPath) -> io::Result<()> {
        let project = ProjectFacts {
            directory: directory.clone(),
            root: self.root.clone(),
            canonical_root: self.root.clone(),
            outside_repository: None,
        };
        for path in source.may_use(directory) {
            match content_fact(&path, &project) {
                ContentFact::Elsewhere => {}
                ContentFact::Digest(path, digest) => {
                    let agreed = |digest| self.files.contains(&UsedOutside { path: path.clone(), digest });
                    if !agreed(digest) && !agreed(seal(self.state, digest)?) {
                        return Err(changed(&path));
                    }
                }
                ContentFact::Unusable(why) => {
                    return Err(io::Error::other(format!("`{path}` cannot be read: {why}")));
                }
            }
        }
        Ok(())
    }

    /// A program that the search path leads to must have been agreed to where it is one of the project.
    pub(crate) fn check_program(&self, program: &AbsPath) -> io::Result<()> {
        let real = std::fs::canonicalize(program)?;
        let agreed = self.files.iter().any(|file| file.path.as_path() == real);
        if real.starts_with(self.root) && !agreed {
            let words = format!(
                "your PATH leads to `{program}`, a file of the project; write its path in the manifest, so that its \
                 content is part of what you agree to"
            );
            return Err(io::Error::other(words));
        }
        Ok(())
    }
}

fn changed(path: &AbsPath) -> io::Error {
    let words = format!("`{path}` changed after the plan was made; look at it, then start again");
    io::Error::other(words)
}
