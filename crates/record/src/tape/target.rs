//! Whether a tape may be written to a path.

use super::error::TapeWriteError;
use super::{BODIES, EXCHANGES, HEAD, HEAD_MAX, REQUESTS, TEXT};
use crate::disk::read_bounded;
use belljar_contract::AbsPath;
use serde_json::Value;
use std::fs;

/// Refuses a path where a new tape would replace something that is no tape: a link, another directory, or a tape with files
/// that are no parts of it.
///
/// # Errors
/// What is in the way.
pub fn check_target(target: &AbsPath) -> Result<(), TapeWriteError> {
    check_replaced(target, target)
}

/// The same for what was taken away from `target`.
pub(super) fn check_replaced(at: &AbsPath, target: &AbsPath) -> Result<(), TapeWriteError> {
    let Ok(about) = fs::symlink_metadata(at) else { return Ok(()) };
    let head = at.child(HEAD);
    if !about.is_dir() || !fs::symlink_metadata(&head).is_ok_and(|head| head.is_file()) {
        return Err(TapeWriteError::InTheWay { path: target.clone() });
    }
    let text = read_bounded(head.as_path(), HEAD_MAX).ok().flatten().unwrap_or_default();
    let head: Value = serde_json::from_slice(&text).unwrap_or_default();
    let is_part = |name: &str| {
        [HEAD, EXCHANGES, REQUESTS, TEXT].contains(&name)
            || name.strip_prefix(BODIES).is_some_and(|rest| rest.starts_with('/'))
            || head["parts"].get(name).is_some()
    };
    match foreign(at, "", &is_part) {
        None => Ok(()),
        Some(name) => Err(TapeWriteError::Foreign { path: target.clone(), name }),
    }
}

fn foreign(directory: &AbsPath, before: &str, is_part: &dyn Fn(&str) -> bool) -> Option<String> {
    fs::read_dir(directory).into_iter().flatten().flatten().find_map(|entry| {
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                foreign(&AbsPath::new(entry.path()).ok()?, &format!("{name}/"), is_part)
            }
            Ok(_) | Err(_) => (!is_part(&name)).then_some(name),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_users_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path()).unwrap();
        let tape = top.child("a.tape");
        check_target(&tape).unwrap();
        fs::create_dir_all(tape.child("artifacts")).unwrap();
        let refused = check_target(&tape).unwrap_err().to_string();
        assert!(refused.ends_with("exists and is not a tape"), "{refused}");
        fs::write(tape.child("artifacts").child("x"), "").unwrap();
        fs::write(tape.child(HEAD), r#"{"parts": {"artifacts/x": {}}}"#).unwrap();
        check_target(&tape).unwrap();
        std::os::unix::fs::symlink("a.tape", top.child("b.tape")).unwrap();
        check_target(&top.child("b.tape")).unwrap_err();
        fs::write(tape.child("NOTES.md"), "").unwrap();
        let refused = check_target(&tape).unwrap_err().to_string();
        assert!(refused.contains("`NOTES.md`"), "{refused}");
    }
}
