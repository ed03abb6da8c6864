//! Files of the project that values come from, compared with what was agreed to right before they are used.

use crate::launch::values::read_value;
use crate::plan::facts::{Leads, content_fact, leads, link_digest};
use crate::store::machine_key::{keyed, machine_key};
use belljar_contract::{AbsPath, Digest, EnvSource, Plan, UsedOutside};
use belljar_plan::{ContentFact, ProjectFacts};
use std::io;
use zeroize::Zeroizing;

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

    /// Compares every file of the project that a command uses. Another content, or a file that was not there, is an error
    /// that names the file.
    pub(crate) fn check_command(&self, source: &EnvSource, directory: &AbsPath) -> io::Result<()> {
        for path in source.may_use(directory) {
            match content_fact(&path, &self.project(directory)) {
                ContentFact::Elsewhere => {}
                ContentFact::Digest(path, digest) => self.check(&path, digest)?,
                ContentFact::Unusable(why) => return Err(unusable(&path, &why)),
            }
        }
        Ok(())
    }

    /// Reads a file once, and compares what was read where the file is one of the project.
    pub(crate) fn read(&self, path: &AbsPath, directory: &AbsPath) -> io::Result<Zeroizing<Vec<u8>>> {
        match leads(path, &self.project(directory)) {
            Leads::Elsewhere => read_value(path),
            Leads::File(real) => {
                let bytes = read_value(&real)?;
                self.check(&real, Digest::of(&bytes))?;
                Ok(bytes)
            }
            Leads::Out { link, real } => {
                self.check(&link, link_digest(&real))?;
                read_value(&real)
            }
            // The file is not there, or is a directory.
            Leads::Directory(_) => Err(read_value(path).err().unwrap_or_else(|| changed(path))),
            Leads::Unusable(why) => Err(unusable(path, &why)),
        }
    }

    fn project(&self, directory: &AbsPath) -> ProjectFacts {
        ProjectFacts {
            directory: directory.clone(),
            root: self.root.clone(),
            canonical_root: self.root.clone(),
            outside_repository: None,
        }
    }

    fn check(&self, path: &AbsPath, digest: Digest) -> io::Result<()> {
        let agreed = |digest| self.files.contains(&UsedOutside { path: path.clone(), digest });
        if agreed(digest) || agreed(seal(self.state, digest)?) { Ok(()) } else { Err(changed(path)) }
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

fn unusable(path: &AbsPath, why: &str) -> io::Error {
    io::Error::other(format!("`{path}` cannot be read: {why}"))
}

fn changed(path: &AbsPath) -> io::Error {
    let words = format!("`{path}` changed after the plan was made; look at it, then start again");
    io::Error::other(words)
}
