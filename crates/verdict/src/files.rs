//! Finding a file among those that were seen, without leaving the workspace.

use crate::finding::{Finding, count};
use crate::run::Run;
use crate::value::PathName;
use belljar_contract::{Digest, FileKind, FileSeen, FilesSeen};
use std::collections::BTreeMap;

/// Bytes of a file that a check reads.
const LARGEST: u64 = 10 * 1024 * 1024;

/// Links that are followed on the way to one file; the kernel stops there too.
const LINKS: usize = 40;

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// A file, by its own path.
    File(String, &'a FileSeen),
    /// A directory with something in it.
    Directory(String),
    /// Nothing that was seen.
    Nothing,
    /// A pipe, socket or device.
    Special(String),
    /// A link leads out of the workspace, or nowhere.
    Astray { link: String, target: String },
}

/// What is at a path. Links are followed by their text, below the workspace only.
pub(crate) fn look<'a>(files: &'a BTreeMap<String, FileSeen>, path: &str) -> Place<'a> {
    let mut wanted: Vec<String> = path.split('/').map(str::to_owned).collect();
    for _ in 0..=LINKS {
        match walk(files, &wanted) {
            Ok(place) => return place,
            Err(Step { link, target, next: Some(next) }) => {
                if next.is_empty() {
                    return Place::Directory(format!("{link} -> {target}"));
                }
                wanted = next;
            }
            Err(Step { link, target, next: None }) => return Place::Astray { link, target },
        }
    }
    Place::Astray { link: path.to_owned(), target: "a circle of links".to_owned() }
}

/// The first link on a path, and the path after following it; `None` if it leaves the workspace.
struct Step {
    link: String,
    target: String,
    next: Option<Vec<String>>,
}

fn walk<'a>(files: &'a BTreeMap<String, FileSeen>, wanted: &[String]) -> Result<Place<'a>, Step> {
    for length in 1..=wanted.len() {
        let here = wanted[..length].join("/");
        let Some(found) = files.get(&here) else { continue };
        let last = length == wanted.len();
        match &found.kind {
            FileKind::Link { target } => {
                let next = joined(&wanted[..length - 1], target).map(|mut path| {
                    path.extend_from_slice(&wanted[length..]);
                    path
                });
                return Err(Step { link: here, target: target.clone(), next });
            }
            FileKind::File if last => return Ok(Place::File(here, found)),
            FileKind::Special if last => return Ok(Place::Special(here)),
            FileKind::File | FileKind::Special => return Ok(Place::Nothing),
        }
    }
    let here = wanted.join("/");
    Ok(if has_below(files, &here) { Place::Directory(here) } else { Place::Nothing })
}

/// Where a link in a directory leads; none outside.
fn joined(directory: &[String], target: &str) -> Option<Vec<String>> {
    if target.starts_with('/') {
        return None;
    }
    let mut path = directory.to_vec();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop()?;
            }
            name => path.push(name.to_owned()),
        }
    }
    Some(path)
}

/// Whether anything lies below a directory.
fn has_below(files: &BTreeMap<String, FileSeen>, directory: &str) -> bool {
    let start = format!("{directory}/");
    files.range(start.clone()..).next().is_some_and(|(path, _)| path.starts_with(&start))
}

/// Whether a path lies below one of the directories; an empty directory is the workspace itself.
pub(crate) fn lies_in(path: &str, directories: &[String]) -> bool {
    directories.iter().any(|directory| {
        let directory = directory.trim_matches('/');
        directory.is_empty()
            || directory == "."
            || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    })
}

/// Whether a directory is at a path, or below it.
pub(crate) fn lies_at_or_below(directory: &str, path: &str) -> bool {
    let rest = directory.trim_matches('/').strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The directories for results, and the other ones that the user sees.
pub(crate) fn outputs(files: &FilesSeen) -> (Vec<String>, Vec<String>) {
    files
        .visible
        .iter()
        .map(|directory| directory.trim_matches('/').to_owned())
        .partition(|directory| directory.rsplit('/').next() == Some("outputs"))
}

/// Files that were there before, below these directories, and are gone. What could not be looked at may still be there.
pub(crate) fn deleted(files: &FilesSeen, directories: &[String]) -> Vec<String> {
    let gone = |path: &&String| {
        lies_in(path, directories)
            && !files.after.contains_key(*path)
            && !files.unread.contains(path)
            && !lies_in(path, &files.unread)
    };
    files.before.keys().filter(gone).cloned().collect()
}

/// The content of a file after the run, or why there is none to look at.
pub(crate) fn content<'a>(run: &Run<'a>, path: &PathName) -> Result<(&'a [u8], String), Finding> {
    let files = run.files()?;
    match look(&files.after, path.as_str()) {
        Place::File(found, file) => match &file.body {
            _ if file.bytes > LARGEST => {
                Err(Finding::unknown(format!("{path} has {} bytes, checks read {LARGEST}", file.bytes)))
            }
            None => Err(Finding::unknown(format!("the content of {path} was not kept"))),
            // A secret that was taken out, or a copy that was changed later: neither is what the agent left.
            Some(body) if file.digest != Some(Digest::of(body)) => {
                Err(Finding::unknown(format!("what was kept of {path} is not what was left there")))
            }
            Some(body) => {
                let digest = Digest::of(body);
                Ok((body, format!("{found}, {} bytes, {digest}", file.bytes)))
            }
        },
        Place::Nothing => Err(gone(run, format!("{path} is not there"))),
        Place::Directory(_) => {
            Err(Finding::fail(format!("{path} is a directory")).shown("among the files after"))
        }
        place @ (Place::Special(_) | Place::Astray { .. }) => Err(astray(path, &place)),
    }
}

/// A finding for a file that should be there and was not seen.
pub(crate) fn gone(run: &Run<'_>, message: String) -> Finding {
    match run.all_files() {
        Ok(files) => Finding::fail(message).shown(&listing(files)),
        Err(unknown) => Finding::unknown(format!("{message}, but {}", unknown.message)),
    }
}

/// A finding for a path that leads to no file of the workspace.
pub(crate) fn astray(path: &PathName, place: &Place<'_>) -> Finding {
    match place {
        Place::Astray { link, target } => {
            Finding::fail(format!("{path} leads out of the workspace")).shown(&format!("{link} -> {target}"))
        }
        Place::Special(found) => Finding::fail(format!("{path} is not a file"))
            .shown(&format!("{found} is a pipe, socket or device")),
        Place::File(found, _) | Place::Directory(found) => {
            Finding::pass(format!("{path} is there")).shown(found)
        }
        Place::Nothing => Finding::fail(format!("{path} is not there")),
    }
}

/// What was looked at, in a line.
pub(crate) fn listing(files: &FilesSeen) -> String {
    format!("{} before, {} after, none unread", count(files.before.len(), "file"), files.after.len())
}
