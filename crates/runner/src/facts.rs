//! The one place that answers a plan's questions about the host.

use belljar_contract::{AbsPath, Digest, USED_OUTSIDE_MAX};
use belljar_plan::{ContentFact, Holds, HostFacts, PathFact, ProjectFacts, Questions, TextFact, UserFacts};
use std::fs;
use std::io::{self, Read};

/// Larger than any role or `SKILL.md`.
const TEXT_LIMIT: u64 = 1 << 20;
const ELOOP: i32 = 40;

/// Answers everything, once. The texts of a stage are copies of a stranger's: what a link of theirs leads to beyond the
/// stage is not read.
pub(crate) fn answer(
    questions: Questions,
    (user, project, stage): (UserFacts, ProjectFacts, Option<&AbsPath>),
    is_set: impl Fn(&str) -> bool,
    seal: impl Fn(Digest) -> io::Result<Digest>,
) -> HostFacts {
    let Questions { paths, texts, variables, contents } = questions;
    let root = project.root.clone();
    HostFacts {
        user,
        project,
        paths: paths.into_iter().map(|path| (path.clone(), path_fact(&path))).collect(),
        texts: texts.into_iter().map(|path| (path.clone(), text_fact(&path, stage))).collect(),
        contents: contents
            .into_iter()
            .map(|(path, holds)| (path.clone(), agreed_fact(&path, &root, holds, &seal)))
            .collect(),
        variables: variables.into_iter().filter(|name| is_set(name.as_str())).collect(),
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
    root: &AbsPath,
    holds: Holds,
    seal: impl Fn(Digest) -> io::Result<Digest>,
) -> ContentFact {
    match (content_fact(path, root), holds) {
        (ContentFact::Digest(path, digest), Holds::Value) => match seal(digest) {
            Ok(digest) => ContentFact::Digest(path, digest),
            Err(error) => ContentFact::Unusable(error.to_string()),
        },
        (fact, Holds::Code | Holds::Value) => fact,
    }
}

/// The content of a file, where it is one of the project. Where a link leads decides.
pub(crate) fn content_fact(path: &AbsPath, root: &AbsPath) -> ContentFact {
    let real = match fs::canonicalize(path) {
        Ok(real) if real.starts_with(root) && real.is_file() => AbsPath::new(real),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && path.is_within(root) => {
            return ContentFact::Unusable(error.to_string());
        }
        // Most words of a command name no file at all.
        Ok(_) | Err(_) => return ContentFact::Elsewhere,
    };
    let real = match real {
        Ok(real) => real,
        Err(error) => return ContentFact::Unusable(error.to_string()),
    };
    let digest = fs::File::open(&real).and_then(|file| {
        let mut file = file.take(USED_OUTSIDE_MAX + 1);
        let digest = Digest::of_reader(&mut file)?;
        if file.limit() == 0 {
            let limit = USED_OUTSIDE_MAX >> 20;
            return Err(std::io::Error::other(format!("it is larger than {limit} MiB")));
        }
        Ok(digest)
    });
    match digest {
        Ok(digest) => ContentFact::Digest(real, digest),
        Err(error) => ContentFact::Unusable(error.to_string()),
    }
}

/// Whether a real path lies below a directory that may be named through links.
fn is_below(real: &AbsPath, directory: &AbsPath) -> bool {
    fs::canonicalize(directory).is_ok_and(|directory| real.as_path().starts_with(directory))
}

fn text_fact(path: &AbsPath, stage: Option<&AbsPath>) -> TextFact {
    let real = match path_fact(path) {
        PathFact::File(real) => real,
        PathFact::Missing => return TextFact::Missing,
        PathFact::Directory(_) => return TextFact::Unusable("it is a directory".to_owned()),
        PathFact::Special => return TextFact::Unusable("it is not a regular file".to_owned()),
        PathFact::Loop => return TextFact::Unusable("it is a loop of symbolic links".to_owned()),
        PathFact::Unreadable(why) => return TextFact::Unusable(why),
    };
    if stage.is_some_and(|stage| path.is_within(stage) && !is_below(&real, stage)) {
        return TextFact::Unusable(
            "it is a link that leads out of the directory it was copied from".to_owned(),
        );
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&real).and_then(|file| file.take(TEXT_LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => TextFact::Unusable(error.to_string()),
        Ok(_) if bytes.len() as u64 > TEXT_LIMIT => TextFact::Unusable("it is larger than 1 MiB".to_owned()),
        Ok(_) => {
            String::from_utf8(bytes).map_or(TextFact::Unusable("it is not UTF-8".to_owned()), TextFact::Text)
        }
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
        // What the user's own manifest names may be a link.
        assert!(matches!(text_fact(&stage.child("plugin/.mcp.json"), None), TextFact::Text(_)));
    }
}
