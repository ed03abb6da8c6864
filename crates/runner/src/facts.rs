//! The one place that answers a plan's questions about the host.

use belljar_contract::AbsPath;
use belljar_plan::{HostFacts, PathFact, ProjectFacts, Questions, TextFact, UserFacts};
use std::fs;
use std::io::Read;

/// Larger than any role or `SKILL.md`.
const TEXT_LIMIT: u64 = 1 << 20;
const ELOOP: i32 = 40;

/// Answers everything, once.
pub(crate) fn answer(
    questions: Questions,
    user: UserFacts,
    project: ProjectFacts,
    is_set: impl Fn(&str) -> bool,
) -> HostFacts {
    let Questions { paths, texts, variables } = questions;
    HostFacts {
        user,
        project,
        paths: paths.into_iter().map(|path| (path.clone(), path_fact(&path))).collect(),
        texts: texts.into_iter().map(|path| (path.clone(), text_fact(&path))).collect(),
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

fn text_fact(path: &AbsPath) -> TextFact {
    match path_fact(path) {
        PathFact::File(_) => {}
        PathFact::Missing => return TextFact::Missing,
        PathFact::Directory(_) => return TextFact::Unusable("it is a directory".to_owned()),
        PathFact::Special => return TextFact::Unusable("it is not a regular file".to_owned()),
        PathFact::Loop => return TextFact::Unusable("it is a loop of symbolic links".to_owned()),
        PathFact::Unreadable(why) => return TextFact::Unusable(why),
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(TEXT_LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => TextFact::Unusable(error.to_string()),
        Ok(_) if bytes.len() as u64 > TEXT_LIMIT => TextFact::Unusable("it is larger than 1 MiB".to_owned()),
        Ok(_) => {
            String::from_utf8(bytes).map_or(TextFact::Unusable("it is not UTF-8".to_owned()), TextFact::Text)
        }
    }
}
