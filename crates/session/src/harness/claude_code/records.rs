//! The agent's records of the user's plugins: the directories of marketplaces and plugins.
//!
//! Seen in version 2.1: `known_marketplaces.json` maps a name to its `source` and `installLocation`, the settings do the
//! same under `extraKnownMarketplaces`, and `installed_plugins.json` lists an `installPath` for each scope.

use belljar_contract::RecordedDirectory;
use serde_json::Value;

const MARKETPLACE: &str = ".claude-plugin/marketplace.json";
const PLUGIN: &str = ".claude-plugin/plugin.json";

/// The directories that a record names. A record in an unknown format names none.
pub(super) fn directories(record: &str, text: &str) -> Vec<RecordedDirectory> {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    match record {
        "plugins/known_marketplaces.json" => marketplaces(&value),
        "settings.json" => value.get("extraKnownMarketplaces").map(marketplaces).unwrap_or_default(),
        "plugins/installed_plugins.json" => value.get("plugins").map(plugins).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn marketplaces(value: &Value) -> Vec<RecordedDirectory> {
    let members = value.as_object().into_iter().flatten();
    members
        .flat_map(|(name, entry)| {
            let source = entry.get("source").filter(|source| source["source"] == "directory");
            let paths = [source.and_then(|source| source.get("path")), entry.get("installLocation")];
            let what = format!("the marketplace `{name}`");
            paths.into_iter().flatten().filter_map(move |path| recorded(path, MARKETPLACE, &what))
        })
        .collect()
}

fn plugins(value: &Value) -> Vec<RecordedDirectory> {
    let members = value.as_object().into_iter().flatten();
    members
        .flat_map(|(name, installed)| {
            let what = format!("the plugin `{name}`");
            let installed = installed.as_array().into_iter().flatten();
            installed.filter_map(move |one| recorded(one.get("installPath")?, PLUGIN, &what))
        })
        .collect()
}

fn recorded(path: &Value, mark: &str, what: &str) -> Option<RecordedDirectory> {
    let path = path.as_str()?.to_owned();
    Some(RecordedDirectory { path, mark: mark.to_owned(), what: what.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(record: &str, text: &str) -> Vec<String> {
        directories(record, text).into_iter().map(|found| format!("{} {}", found.what, found.path)).collect()
    }

    #[test]
    fn each_record_names_its_directories() {
        let known = r#"{"m": {"source": {"source": "directory", "path": "/a"}, "installLocation": "/b"},
                        "g": {"source": {"source": "github", "repo": "x/y", "path": "/no"}, "installLocation": "/c"}}"#;
        let expected = ["the marketplace `g` /c", "the marketplace `m` /a", "the marketplace `m` /b"];
        let mut found = paths("plugins/known_marketplaces.json", known);
        found.sort();
        assert_eq!(found, expected);
        let settings =
            r#"{"extraKnownMarketplaces": {"m": {"source": {"source": "directory", "path": "/a"}}}}"#;
        assert_eq!(paths("settings.json", settings), ["the marketplace `m` /a"]);
        let installed = r#"{"version": 2, "plugins": {"p@m": [{"scope": "user", "installPath": "/p"}]}}"#;
        assert_eq!(paths("plugins/installed_plugins.json", installed), ["the plugin `p@m` /p"]);
    }

    #[test]
    fn what_is_not_a_record_names_nothing() {
        let records =
            ["plugins/known_marketplaces.json", "plugins/installed_plugins.json", "settings.json", "x"];
        let texts = [
            "",
            "[]",
            "7",
            r#"{"m": 7}"#,
            r#"{"plugins": {"p": [7, {}]}}"#,
            r#"{"m": {"source": 1, "installLocation": 2}}"#,
        ];
        for (record, text) in records.iter().flat_map(|record| texts.map(|text| (*record, text))) {
            assert_eq!(directories(record, text), [], "{record} {text}");
        }
    }
}
