//! Answers a plan's questions about the host. No other code does.

use belljar_contract::{AbsPath, Digest, USED_OUTSIDE_MAX};
use belljar_plan::{ContentFact, Holds, HostFacts, PathFact, ProjectFacts, Questions, TextFact, UserFacts};
use belljar_sys::regular::{open_regular, read_regular, too_large};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Larger than any role or `SKILL.md`.
const TEXT_LIMIT: u64 = 1 << 20;
const ELOOP: i32 = 40;
/// More files than a directory of scripts usually holds.
const MOST_ENTRIES: usize = 2000;

/// Answers all questions once. The texts of a stage are copies from a suite that may not be trusted: a link among them
/// that leads out of the stage is not read.
pub(crate) fn answer(
    questions: Questions,
    (user, project, stage): (UserFacts, ProjectFacts, Option<&AbsPath>),
    is_set: impl Fn(&str) -> bool,
    seal: impl Fn(Digest) -> io::Result<Digest>,
) -> HostFacts {
    let Questions { paths, texts, variables, contents } = questions;
    let contents = contents
        .into_iter()
        .map(|(path, holds)| (path.clone(), agreed_fact(&path, &project, holds, &seal)))
        .collect();
    HostFacts {
        user,
        project,
        contents,
        paths: paths.into_iter().map(|path| (path.clone(), path_fact(&path))).collect(),
        texts: texts.into_iter().map(|path| (path.clone(), text_fact(&path, stage))).collect(),
        variables: variables.into_iter().filter(|name| is_set(name.as_str())).collect(),
        guard_lacks: belljar_sandbox::guard_lacks(),
    }
}

fn path_fact(path: &AbsPath) -> PathFact {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.raw_os_error() == Some(ELOOP) => return PathFact::Loop,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return PathFact::Missing,
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return PathFact::Missing,
        Err(error) => return PathFact::Unreadable(error.to_string()),
    };
    let real = match fs::canonicalize(path).map(AbsPath::new) {
        Ok(Ok(real)) => real,
        Ok(Err(error)) => return PathFact::Unreadable(error.to_string()),
        Err(error) => return PathFact::Unreadable(error.to_string()),
    };
    if found.is_dir() {
        PathFact::Directory(real)
    } else if found.is_file() {
        PathFact::File(real)
    } else {
        PathFact::Special
    }
}

fn agreed_fact(
    path: &AbsPath,
    project: &ProjectFacts,
    holds: Holds,
    seal: impl Fn(Digest) -> io::Result<Digest>,
) -> ContentFact {
    match (content_fact(path, project), holds) {
        (ContentFact::Digest(path, digest), Holds::Value) => match seal(digest) {
            Ok(digest) => ContentFact::Digest(path, digest),
            Err(error) => ContentFact::Unusable(error.to_string()),
        },
        (fact, Holds::Code | Holds::Value) => fact,
    }
}

/// What a path, or an argument of a command that may be one, leads to.
pub(crate) enum Leads {
    /// Outside the project, or to no file.
    Elsewhere,
    /// A file of the project.
    File(AbsPath),
    /// A directory of the project.
    Directory(AbsPath),
    /// Out of the project, by a link in it.
    Out { link: AbsPath, real: AbsPath },
    /// A file of the project that cannot be read or is not regular.
    Unusable(String),
}

/// Resolves a path. A name that does not exist stands for the directory that it would lie in, because programs append
/// extensions to names. The working directory and the root of the project stand for no file.
pub(crate) fn leads(path: &AbsPath, project: &ProjectFacts) -> Leads {
    let ProjectFacts { root, directory, .. } = project;
    let is_whole = |real: &AbsPath| real == root || real == directory;
    let canonical =
        |path: &AbsPath| fs::canonicalize(path).and_then(|p| AbsPath::new(p).map_err(io::Error::other));
    let real = match canonical(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.is_within(root) => {
            return Leads::Unusable(error.to_string());
        }
        // Most arguments of a command do not name a file.
        Err(_) => match path.parent().map(|parent| canonical(&parent)) {
            Some(Ok(parent)) if parent.is_within(root) && !is_whole(&parent) && parent.as_path().is_dir() => {
                parent
            }
            Some(_) | None => return Leads::Elsewhere,
        },
    };
    let found = match fs::metadata(&real) {
        Ok(found) => found,
        Err(error) => return Leads::Unusable(error.to_string()),
    };
    match (real.is_within(root), path.is_within(root)) {
        (false, false) => Leads::Elsewhere,
        (false, true) => Leads::Out { link: path.clone(), real },
        (true, _) if is_whole(&real) => Leads::Elsewhere,
        (true, _) if found.is_dir() => Leads::Directory(real),
        (true, _) if found.is_file() => Leads::File(real),
        (true, _) => Leads::Unusable("it is not a regular file".to_owned()),
    }
}

/// The content of what a path leads to in the project: the digest of a file, of a directory with everything in it, or
/// of the target of a link.
pub(crate) fn content_fact(path: &AbsPath, project: &ProjectFacts) -> ContentFact {
    let (at, digest) = match leads(path, project) {
        Leads::Elsewhere => return ContentFact::Elsewhere,
        Leads::Unusable(why) => return ContentFact::Unusable(why),
        Leads::Out { link, real } => (link, Ok(link_digest(&real))),
        Leads::Directory(real) => {
            let digest = tree_digest(real.as_path());
            (real, digest)
        }
        Leads::File(real) => {
            let digest = file_digest(real.as_path(), USED_OUTSIDE_MAX).map(|(digest, _)| digest);
            (real, digest)
        }
    };
    digest.map_or_else(
        |error| ContentFact::Unusable(error.to_string()),
        |digest| ContentFact::Digest(at, digest),
    )
}

/// The digest for a link out of the project. An agent cannot change the file that it leads to.
pub(crate) fn link_digest(real: &AbsPath) -> Digest {
    Digest::of(&[b"link to ", real.as_path().as_os_str().as_bytes()].concat())
}

fn file_digest(path: &Path, limit: u64) -> io::Result<(Digest, u64)> {
    let mut file = open_regular(path)?.take(limit + 1);
    let digest = Digest::of_reader(&mut file)?;
    if file.limit() == 0 {
        return Err(too_large(limit));
    }
    Ok((digest, limit + 1 - file.limit()))
}

/// The digest of everything in a directory: names, executable bits, contents, and the targets of links.
fn tree_digest(top: &Path) -> io::Result<Digest> {
    let too_much = || {
        let limit = USED_OUTSIDE_MAX >> 20;
        io::Error::other(format!(
            "it holds more than {MOST_ENTRIES} files or {limit} MiB; name the file that is used"
        ))
    };
    let (mut open, mut rows, mut left) = (vec![top.to_owned()], Vec::new(), USED_OUTSIDE_MAX);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let found = fs::symlink_metadata(&path)?;
            let name = path.strip_prefix(top).map_err(io::Error::other)?.as_os_str().as_bytes().to_vec();
            let content = if found.is_dir() {
                open.push(path);
                b"directory".to_vec()
            } else if found.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_vec()
            } else if found.is_file() {
                let (digest, size) = file_digest(&path, left).map_err(|_large| too_much())?;
                left -= size;
                [&digest.into_bytes()[..], if found.mode() & 0o111 == 0 { b"-" } else { b"x" }].concat()
            } else {
                b"special".to_vec()
            };
            rows.push((name, content));
            if rows.len() > MOST_ENTRIES {
                return Err(too_much());
            }
        }
    }
    rows.sort();
    let parts = rows
        .iter()
        .flat_map(|(name, content)| [Digest::of(name).into_bytes(), Digest::of(content).into_bytes()]);
    Ok(Digest::of(&parts.flatten().collect::<Vec<u8>>()))
}

/// Whether a path leads below a directory, which itself may be named through links.
fn leads_below(path: &AbsPath, directory: &AbsPath) -> bool {
    let real = |path: &AbsPath| fs::canonicalize(path).ok();
    real(path).zip(real(directory)).is_some_and(|(path, directory)| path.starts_with(directory))
}

fn text_fact(path: &AbsPath, stage: Option<&AbsPath>) -> TextFact {
    let is_there = fs::symlink_metadata(path).is_ok();
    if is_there && stage.is_some_and(|stage| path.is_within(stage) && !leads_below(path, stage)) {
        return TextFact::Unusable(
            "it is a link that leads out of the directory it was copied from".to_owned(),
        );
    }
    match read_regular(path.as_path(), TEXT_LIMIT) {
        Ok(bytes) => {
            String::from_utf8(bytes).map_or(TextFact::Unusable("it is not UTF-8".to_owned()), TextFact::Text)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            TextFact::Missing
        }
        Err(error) if error.raw_os_error() == Some(ELOOP) => {
            TextFact::Unusable("it is a loop of symbolic links".to_owned())
        }
        Err(error) => TextFact::Unusable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_text_of_a_stage_is_not_read_through_a_link_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        fs::create_dir_all(top.child("stage/plugin")).unwrap();
        fs::write(top.child("key"), "{}").unwrap();
        fs::write(top.child("stage/own"), "own").unwrap();
        symlink(top.child("key"), top.child("stage/plugin/.mcp.json")).unwrap();
        symlink("../own", top.child("stage/plugin/SKILL.md")).unwrap();
        let stage = top.child("stage");
        let out = text_fact(&stage.child("plugin/.mcp.json"), Some(&stage));
        assert!(matches!(&out, TextFact::Unusable(why) if why.contains("leads out")), "{out:?}");
        let own = text_fact(&stage.child("plugin/SKILL.md"), Some(&stage));
        assert!(matches!(&own, TextFact::Text(text) if text == "own"), "{own:?}");
        // The user's own manifest may name a link.
        assert!(matches!(text_fact(&stage.child("plugin/.mcp.json"), None), TextFact::Text(_)));
    }
}
