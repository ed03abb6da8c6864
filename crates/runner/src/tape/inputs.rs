//! The uploads, directories and projects that a test gives to the agent: what a tape records of them, and how they differ
//! from it now.

use super::facts::{Changed, ChangedCause};
use super::trees::{lone_file, tree};
use crate::suite::{OUTPUTS, PROJECTS, UPLOADS};
use belljar_contract::{AbsPath, Digest, TapeScenario, TapeTrees};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// What they are called together.
pub(super) const INPUTS: &str = "the uploads, directories and projects";

/// Digests by places in the workspace, or why they cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inputs(pub Result<BTreeMap<String, Digest>, String>);

impl Default for Inputs {
    fn default() -> Self {
        Self(Err("they were not looked at".to_owned()))
    }
}

/// The inputs in a workspace that was staged and that no agent has used.
pub(super) fn staged_inputs(workspace: &AbsPath, covered: TapeTrees) -> Inputs {
    let read = || -> io::Result<BTreeMap<String, Digest>> {
        let mut out = BTreeMap::new();
        for name in names(workspace)? {
            match name.as_str() {
                OUTPUTS => {}
                UPLOADS | PROJECTS => {
                    let below = workspace.child(&name);
                    for inner in names(&below)? {
                        out.insert(format!("{name}/{inner}"), input(&below.child(&inner), covered)?);
                    }
                }
                _ => drop(out.insert(name.clone(), input(&workspace.child(&name), covered)?)),
            }
        }
        Ok(out)
    };
    Inputs(read().map_err(|error| error.to_string()))
}

fn names(directory: &AbsPath) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        let name = entry?.file_name().into_string();
        name.map_err(|name| io::Error::other(format!("{name:?} is not UTF-8")))
    };
    fs::read_dir(directory)?.map(name).collect()
}

fn input(path: &AbsPath, covered: TapeTrees) -> io::Result<Digest> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => tree((path.as_path(), None), covered),
        false => lone_file(path.as_path()),
    }
}

/// The inputs that differ from those on a tape. Tapes of versions without digests of them have nothing to compare.
pub(super) fn input_changes(head: &TapeScenario, present: &Inputs) -> Vec<Changed> {
    let Some(recorded) = &head.inputs else { return Vec::new() };
    let present = match &present.0 {
        Ok(present) => present,
        Err(why) => {
            return vec![Changed::unknown(ChangedCause::Files, INPUTS, why)];
        }
    };
    let names: BTreeSet<&String> = recorded.keys().chain(present.keys()).collect();
    let differs = names.into_iter().filter(|name| recorded.get(*name) != present.get(*name));
    let text = |digest: Option<&Digest>| digest.map_or("nothing".to_owned(), ToString::to_string);
    let changed = differs.map(|name| Changed {
        cause: ChangedCause::Input,
        what: described(name),
        recorded: text(recorded.get(name)),
        present: text(present.get(name)),
    });
    changed.collect()
}

fn described(place: &str) -> String {
    let (kind, name) = match place.split_once('/') {
        Some((UPLOADS, name)) => ("upload", name),
        Some((PROJECTS, name)) => ("project", name),
        Some(_) | None => ("directory", place),
    };
    format!("the {kind} `{name}`")
}
