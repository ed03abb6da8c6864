//! Files of the project that values come from. They are compared with the agreed content right before they are used.

use crate::launch::values::read_value;
use crate::plan::facts::{Leads, content_fact, leads, link_digest};
use crate::store::machine_key::{keyed, machine_key};
use belljar_contract::{AbsPath, Digest, EnvSource, Plan, UsedOutside};
use belljar_plan::{ContentFact, ProjectFacts};
use std::io;
use zeroize::Zeroizing;

/// The files of the project that a plan uses outside the sandbox, with the agreed digests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgreedFiles<'a> {
    files: &'a [UsedOutside],
    root: &'a AbsPath,
    state: &'a AbsPath,
}

/// The digest of a file that holds a value, keyed with the machine's key: a short value could be guessed from a plain
/// digest.
pub(crate) fn seal(state: &AbsPath, digest: Digest) -> io::Result<Digest> {
    let key = machine_key(state)?;
    Ok(Digest::of(&keyed(&key[..], &[b"belljar agreed file ", &digest.into_bytes()])))
}

impl<'a> AgreedFiles<'a> {
    pub(crate) fn of(plan: &'a Plan, state: &'a AbsPath) -> Self {
        Self { files: &plan.used_outside, root: &plan.workspace.source, state }
    }

    /// Compares every file of the project that a command uses. If a file changed or is new, the error names it.
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

    /// Reads a file once. If it belongs to the project, the bytes that were read are compared with the agreement.
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
            // The file is missing or is a directory.
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

    /// Refuses a program from the search path that lies in the project and was not agreed to.
    pub(crate) fn check_program(&self, program: &AbsPath) -> io::Result<()> {
        let real = std::fs::canonicalize(program)?;
        let agreed = self.files.iter().any(|file| file.path.as_path() == real);
        if real.starts_with(self.root) && !agreed {
            let message = format!(
                "`{program}`, which your PATH leads to, is a file of the project; write its path in the manifest, so that its \
                 content is part of what you agree to"
            );
            return Err(io::Error::other(message));
        }
        Ok(())
    }
}

fn unusable(path: &AbsPath, why: &str) -> io::Error {
    io::Error::other(format!("`{path}` cannot be read: {why}"))
}

fn changed(path: &AbsPath) -> io::Error {
    let message = format!("`{path}` changed after the plan was made; look at it, then start again");
    io::Error::other(message)
}
