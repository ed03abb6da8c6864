//! Values that `home = "shared"` brings into the sandbox with the user's own files: variables of settings, and variables
//! and headers of MCP servers. The files are parsed, never executed; names go to the plan, values to the scrubber.

use belljar_contract::{
    AbsPath, Entering, FileContent, HarnessProfile, HomeMode, MountSource, Plan, Secret, Unsearchable,
    not_redacted,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Members whose texts are values of an environment or of headers, wherever they stand in a file.
const HOLDERS: [&str; 2] = ["env", "headers"];
/// The file of the user's settings, in the agent's directory and in plugins.
const SETTINGS: &str = "settings.json";
/// Bounds of the search: a directory of plugins may hold anything.
const DEPTH: u32 = 8;
const ENTRIES: usize = 20_000;
const FILES: usize = 512;
const FILE_BYTES: u64 = 1 << 20;
const VALUES: usize = 512;
/// Documents nested deeper hold no settings.
const NESTING: u32 = 32;

/// A file that may hold such values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedFile {
    path: AbsPath,
    /// The members that enter the sandbox; without them, the whole file.
    members: Option<Vec<String>>,
}

/// A value in a shared file.
pub(crate) struct SharedValue {
    /// File and member, such as `~/.claude/settings.json env.TOKEN`.
    pub name: String,
    pub value: Secret,
    named: bool,
}

impl SharedValue {
    /// As a plan lists it.
    pub fn entering(&self) -> Entering {
        Entering {
            name: self.name.clone(),
            source: "your own configuration, home = \"shared\"".to_owned(),
            not_redacted: self.not_redacted(),
        }
    }

    /// Why a record cannot redact it.
    pub fn not_redacted(&self) -> Option<Unsearchable> {
        not_redacted(&self.value, self.named)
    }
}

/// The files of a plan that may hold such values.
pub(crate) fn files(plan: &Plan, profile: &HarnessProfile) -> Vec<SharedFile> {
    if plan.home != HomeMode::Shared {
        return Vec::new();
    }
    let mut wanted: BTreeSet<&str> = profile.plugin_mcp_files.iter().map(|file| last(file)).collect();
    wanted.insert(SETTINGS);
    let mut search = Search { wanted, entries: ENTRIES, found: BTreeSet::new() };
    for mount in &plan.mounts {
        let MountSource::Host(source) = &mount.source else { continue };
        if !mount.why.starts_with(belljar_plan::OF_THE_USER) {
            continue;
        }
        if source.as_path().is_dir() {
            search.directory(source, DEPTH);
        } else if mount.target.file_name().is_some_and(|name| search.wants(name)) {
            search.found.insert(SharedFile { path: source.clone(), members: None });
        }
    }
    for file in &plan.files {
        if let FileContent::JsonFrom { source, members, .. } = &file.content {
            search.found.insert(SharedFile { path: source.clone(), members: Some(members.clone()) });
        }
    }
    search.found.into_iter().take(FILES).collect()
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

struct Search<'a> {
    wanted: BTreeSet<&'a str>,
    entries: usize,
    found: BTreeSet<SharedFile>,
}

impl Search<'_> {
    fn wants(&self, name: &std::ffi::OsStr) -> bool {
        name.to_str().is_some_and(|name| self.wanted.contains(name))
    }

    /// Links are not followed: what they lead to is not shown, or is a mount of its own.
    fn directory(&mut self, directory: &AbsPath, depth: u32) {
        // What belljar cannot read, the agent cannot read either: both have the user's rights.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if self.entries == 0 || self.found.len() >= FILES {
                return;
            }
            self.entries -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let Ok(path) = AbsPath::new(entry.path()) else { continue };
            if kind.is_dir() && depth > 0 {
                self.directory(&path, depth - 1);
            } else if kind.is_file() && self.wants(&entry.file_name()) {
                self.found.insert(SharedFile { path, members: None });
            }
        }
    }
}

/// The values of the files as they are now. A file that is no JSON document holds nothing that the agent could read.
pub(crate) fn values(files: &[SharedFile], home: &AbsPath) -> Vec<SharedValue> {
    let mut out = Vec::new();
    for SharedFile { path, members } in files {
        let Some(mut document) = document(path.as_path()) else { continue };
        if let (Some(members), Value::Object(all)) = (members, &mut document) {
            all.retain(|name, _| members.contains(name));
        }
        let shown = path.relative_to(home).map(|below| format!("~/{}", below.display()));
        collect(&document, &shown.unwrap_or_else(|| path.to_string()), "", NESTING, &mut out);
    }
    out
}

fn document(path: &Path) -> Option<Value> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn collect(value: &Value, file: &str, at: &str, nesting: u32, out: &mut Vec<SharedValue>) {
    if nesting == 0 {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, item) in members {
                let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                match item {
                    Value::Object(held) if HOLDERS.contains(&name.as_str()) => {
                        held.iter().for_each(|(name, item)| keep(item, file, &below, name, out));
                    }
                    item => collect(item, file, &below, nesting - 1, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, file, at, nesting - 1, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn keep(item: &Value, file: &str, at: &str, name: &str, out: &mut Vec<SharedValue>) {
    let Value::String(text) = item else { return };
    // `${NAME}` is filled in by the agent, from an environment that the plan lists in full.
    if text.is_empty() || text.contains("${") || out.len() >= VALUES {
        return;
    }
    let named = belljar_contract::EnvName::new(name).is_ok_and(|name| name.looks_secret());
    out.push(SharedValue { name: format!("{file} {at}.{name}"), value: Secret::new(text.as_str()), named });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_and_headers_are_found_wherever_they_stand() {
        let document = json!({
            "env": {"GH": "ghp_value", "N": 3, "FROM": "${TOKEN}"},
            "mcpServers": {"a": {"env": {"K": "k-value"}, "headers": {"X": "h-value"}, "args": ["plain"]}},
            "hooks": [{"headers": {"Authorization": "Bearer z"}}],
        });
        let mut out = Vec::new();
        collect(&document, "f", "", NESTING, &mut out);
        let found: Vec<_> = out.iter().map(|one| (one.name.as_str(), one.value.expose())).collect();
        let wanted: [(&str, &[u8]); 4] = [
            ("f env.GH", b"ghp_value"),
            ("f mcpServers.a.env.K", b"k-value"),
            ("f mcpServers.a.headers.X", b"h-value"),
            ("f hooks.headers.Authorization", b"Bearer z"),
        ];
        assert_eq!(found, wanted);
    }
}
