//! Values that `home = "shared"` brings into the sandbox with the user's own files: variables of settings, and
//! variables, headers, arguments and addresses of MCP servers. The files are parsed, never executed. Names go to the
//! plan, values to the scrubber. Files that are too large to be searched are listed as not redacted.

mod texts;

use belljar_contract::{
    AbsPath, Entering, FileContent, HarnessProfile, HomeMode, MountSource, Plan, SHARED_FILE_MAX, Secret,
    Unsearchable, not_redacted,
};
use belljar_sys::regular::read_regular;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io;

/// Members whose texts are values of an environment or of headers, at any depth of a file.
const HOLDERS: [&str; 2] = ["env", "headers"];
/// Limits of the search: a directory of plugins may be arbitrarily large.
const DEPTH: u32 = 16;
const ENTRIES: usize = 100_000;
const FILES: usize = 2048;
const VALUES: usize = 2048;
const NESTING: u32 = 100;

/// A file that may hold secret values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedFile {
    path: AbsPath,
    /// The members that enter the sandbox; if `None`, the whole file does.
    members: Option<Vec<String>>,
    /// Why the file was not searched, if a limit was reached.
    unread: Option<String>,
}

/// A value in a shared file.
pub(crate) struct SharedValue {
    /// File and member, such as `~/.agent/own.json env.TOKEN`.
    pub name: String,
    /// Empty for a file or directory that was not searched.
    pub value: Secret,
    named: bool,
    unread: bool,
}

impl SharedValue {
    /// The entry in a plan's list of secrets.
    pub fn entering(&self) -> Entering {
        Entering {
            name: self.name.clone(),
            source: "your own configuration, home = \"shared\"".to_owned(),
            not_redacted: self.not_redacted(),
        }
    }

    /// The reason why records cannot redact this value, if there is one.
    pub fn not_redacted(&self) -> Option<Unsearchable> {
        if self.unread { Some(Unsearchable::Unread) } else { not_redacted(&self.value, self.named) }
    }
}

/// The files of a plan that may hold secret values.
pub(crate) fn files(plan: &Plan, profile: &HarnessProfile) -> Vec<SharedFile> {
    if plan.home != HomeMode::Shared {
        return Vec::new();
    }
    let mut wanted: BTreeSet<&str> = profile.plugin_mcp_files.iter().map(|file| last(file)).collect();
    wanted.insert(&profile.settings_file);
    let mut search = Search { wanted, entries: ENTRIES, files: FILES, found: BTreeSet::new() };
    for mount in &plan.mounts {
        let MountSource::Host(source) = &mount.source else { continue };
        if !mount.why.starts_with(belljar_plan::OF_THE_USER) {
            continue;
        }
        if source.as_path().is_dir() {
            search.directory(source, DEPTH);
        } else if mount.target.file_name().is_some_and(|name| search.wants(name)) {
            search.add(source.clone(), None, None);
        }
    }
    for file in &plan.files {
        if let FileContent::JsonFrom { source, members, .. } = &file.content {
            search.add(source.clone(), Some(members.clone()), None);
        }
    }
    search.found.into_iter().collect()
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

struct Search<'a> {
    wanted: BTreeSet<&'a str>,
    /// Entries and files of directories that may still be searched.
    entries: usize,
    files: usize,
    found: BTreeSet<SharedFile>,
}

impl Search<'_> {
    fn wants(&self, name: &std::ffi::OsStr) -> bool {
        name.to_str().is_some_and(|name| self.wanted.contains(name))
    }

    fn add(&mut self, path: AbsPath, members: Option<Vec<String>>, unread: Option<String>) {
        self.found.insert(SharedFile { path, members, unread });
    }

    /// Links are not followed: their targets are not visible inside, or are mounts of their own.
    fn directory(&mut self, directory: &AbsPath, depth: u32) {
        if depth == 0 {
            let why = format!("more than {DEPTH} directories deep");
            return self.add(directory.clone(), None, Some(why));
        }
        let mut below = Vec::new();
        // The agent runs with the user's rights, too: it cannot read what belljar cannot read.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if self.entries == 0 || self.files == 0 {
                let why = format!("after {ENTRIES} entries or {FILES} files");
                return self.add(directory.clone(), None, Some(why));
            }
            self.entries -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let Ok(path) = AbsPath::new(entry.path()) else { continue };
            if kind.is_dir() {
                below.push(path);
            } else if kind.is_file() && self.wants(&entry.file_name()) {
                self.files -= 1;
                self.add(path, None, None);
            }
        }
        below.iter().for_each(|path| self.directory(path, depth - 1));
    }
}

/// The present values of the files, and the places that could not be searched.
pub(crate) fn values(files: &[SharedFile], home: &AbsPath) -> Vec<SharedValue> {
    let mut found = Collected::default();
    for SharedFile { path, members, unread } in files {
        let shown = path.relative_to(home).map(|below| format!("~/{}", below.display()));
        let shown = shown.unwrap_or_else(|| path.to_string());
        if let Some(why) = unread {
            found.cut(&shown, why);
            continue;
        }
        let mut document = match document(path) {
            Ok(Some(document)) => document,
            Ok(None) => continue,
            Err(why) => {
                found.cut(&shown, &why);
                continue;
            }
        };
        if let (Some(members), Value::Object(all)) = (members, &mut document) {
            all.retain(|name, _| members.contains(name));
        }
        found.collect(&document, &shown, "", NESTING);
    }
    found.values
}

/// The content of a file; `None` if the user, and so the agent, cannot read it.
fn document(path: &AbsPath) -> Result<Option<Value>, String> {
    let bytes = match read_regular(path.as_path(), SHARED_FILE_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(format!("larger than {} MiB", SHARED_FILE_MAX >> 20));
        }
        Err(_unreadable) => return Ok(None),
    };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(text).map(Some).map_err(|_error| "not valid JSON".to_owned())
}

#[derive(Default)]
struct Collected {
    values: Vec<SharedValue>,
    full: bool,
}

impl Collected {
    /// Records a place that is not searched.
    fn cut(&mut self, place: &str, why: &str) {
        let name = format!("{place} ({why})");
        self.values.push(SharedValue { name, value: Secret::new(""), named: false, unread: true });
    }

    fn collect(&mut self, value: &Value, file: &str, at: &str, nesting: u32) {
        match value {
            Value::Object(_) | Value::Array(_) if nesting == 0 => {
                self.cut(file, &format!("nested deeper than {NESTING}"));
            }
            Value::Object(members) => {
                self.server(members, file, at);
                for (name, item) in members {
                    let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                    if HOLDERS.contains(&name.as_str()) {
                        self.held(item, file, &below, name, nesting - 1);
                    } else {
                        self.collect(item, file, &below, nesting - 1);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, file, at, nesting - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Every text below a holder is a value.
    fn held(&mut self, value: &Value, file: &str, at: &str, name: &str, nesting: u32) {
        match value {
            Value::Object(_) | Value::Array(_) if nesting == 0 => {
                self.cut(file, &format!("nested deeper than {NESTING}"));
            }
            Value::Object(members) => members
                .iter()
                .for_each(|(name, item)| self.held(item, file, &format!("{at}.{name}"), name, nesting - 1)),
            Value::Array(items) => items.iter().for_each(|item| self.held(item, file, at, name, nesting - 1)),
            Value::String(text) => self.keep(text, file, at, texts::secret_name(name)),
            Value::Number(number) => self.keep(&number.to_string(), file, at, texts::secret_name(name)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The command line and the address of an MCP server or a hook.
    fn server(&mut self, members: &Map<String, Value>, file: &str, at: &str) {
        let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        let arguments = members.get("args").and_then(Value::as_array).into_iter().flatten();
        let arguments_of_command =
            text("command").split_whitespace().map(|part| part.trim_matches(['"', '\'']));
        for (name, parts) in [
            ("args", texts::of_arguments(arguments.filter_map(Value::as_str))),
            ("command", texts::of_arguments(arguments_of_command)),
            ("url", texts::of_url(text("url"))),
        ] {
            parts.into_iter().for_each(|part| self.keep(part, file, &below(name), true));
        }
    }

    fn keep(&mut self, text: &str, file: &str, at: &str, named: bool) {
        for part in texts::literals(text) {
            if self.values.len() >= VALUES {
                if !std::mem::replace(&mut self.full, true) {
                    self.cut(file, &format!("after {VALUES} values"));
                }
                return;
            }
            let (name, value) = (format!("{file} {at}"), Secret::new(part));
            self.values.push(SharedValue { name, value, named, unread: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn collected(document: &Value) -> Vec<(String, String)> {
        let mut found = Collected::default();
        found.collect(document, "f", "", NESTING);
        let text = |one: &SharedValue| String::from_utf8(one.value.expose().to_vec()).unwrap();
        found.values.iter().map(|one| (one.name.clone(), text(one))).collect()
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn variables_and_headers_are_found_wherever_they_stand() {
        let document = json!({
            "env": {"GH": "ghp_value", "N": 31_415_926, "FROM": "${TOKEN}"},
            "mcpServers": {"a": {"env": {"K": "k-value"}, "headers": {"X": "h-value"}, "args": ["plain"]}},
            "hooks": [{"headers": {"Authorization": "Bearer z"}}],
        });
        let wanted = [
            ("f env.GH", "ghp_value"),
            ("f env.N", "31415926"),
            ("f hooks.headers.Authorization", "Bearer z"),
            ("f mcpServers.a.env.K", "k-value"),
            ("f mcpServers.a.headers.X", "h-value"),
        ];
        let mut found = collected(&document);
        found.sort();
        assert_eq!(found, pairs(&wanted));
    }

    #[test]
    fn text_beside_a_variable_is_a_value() {
        let document = json!({"env": {"A": "Bearer sk-live-0815${X}", "B": "${A:-default-value}"}});
        assert_eq!(collected(&document), pairs(&[("f env.A", "sk-live-0815"), ("f env.B", "default-value")]));
    }

    #[test]
    fn arguments_and_addresses_of_servers_are_searched() {
        let document = json!({"mcpServers": {
            "a": {"command": "npx", "args": ["-y", "--api-key", "value-of-key", "--token=${T}"]},
            "b": {"url": "https://h.example/mcp?api_key=value-in-url"},
        }});
        let wanted = [("f mcpServers.a.args", "value-of-key"), ("f mcpServers.b.url", "value-in-url")];
        assert_eq!(collected(&document), pairs(&wanted));
    }

    /// The names of the entries that were not searched.
    fn unread(values: &[SharedValue]) -> Vec<&str> {
        let cut = |one: &&SharedValue| one.not_redacted() == Some(Unsearchable::Unread);
        values.iter().filter(cut).map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn a_file_is_searched_as_far_as_it_enters_and_every_cut_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let home = AbsPath::new(directory.path()).unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(home.child(name), text).unwrap();
            SharedFile { path: home.child(name), members: None, unread: None }
        };
        let long = json!({"pad": "x".repeat(2 << 20), "env": {"K": "value-behind"}}).to_string();
        let many: Map<String, Value> =
            (0..=VALUES).map(|at| (format!("K{at}"), json!(format!("value-{at}")))).collect();
        let huge = file("huge.json", "");
        let opened = std::fs::File::options().write(true).open(huge.path.as_path()).unwrap();
        opened.set_len(SHARED_FILE_MAX + 1).unwrap();
        let found = values(&[file("long.json", &long), huge, file("broken.json", "{\"env\"")], &home);
        assert_eq!(
            (found[0].name.as_str(), found[0].value.expose()),
            ("~/long.json env.K", &b"value-behind"[..])
        );
        assert_eq!(unread(&found), ["~/huge.json (larger than 64 MiB)", "~/broken.json (not valid JSON)"]);
        let found = values(&[file("many.json", &json!({"env": many}).to_string())], &home);
        assert_eq!(found.len(), VALUES + 1);
        assert_eq!(unread(&found), ["~/many.json (after 2048 values)"]);
        assert_eq!(
            found[VALUES].entering().describe(),
            "your own configuration, home = \"shared\"; not redacted: belljar did not search it for values"
        );
    }

    #[test]
    fn a_directory_that_is_not_searched_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let home = AbsPath::new(directory.path()).unwrap();
        for name in ["p/settings.json", "p/q/settings.json"] {
            std::fs::create_dir_all(home.child(name).as_path().parent().unwrap()).unwrap();
            std::fs::write(home.child(name), "{}").unwrap();
        }
        let search = |entries, depth| {
            let wanted = BTreeSet::from(["settings.json"]);
            let mut search = Search { wanted, entries, files: FILES, found: BTreeSet::new() };
            search.directory(&home, depth);
            let files = Vec::from_iter(search.found);
            (files.len(), unread(&values(&files, &home)).join(" "))
        };
        assert_eq!(search(ENTRIES, DEPTH), (2, String::new()));
        assert_eq!(search(3, DEPTH), (2, "~/p/q (after 100000 entries or 2048 files)".to_owned()));
        assert_eq!(search(ENTRIES, 2), (2, "~/p/q (more than 16 directories deep)".to_owned()));
    }
}
