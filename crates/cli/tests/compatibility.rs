//! Scenario and session files as users of the format write them: each starts, or is refused by the name of a key.
//!
//! `compatibility/scenarios` and `compatibility/sessions` are whole files; `compatibility/keys` holds one file for each
//! key that these do not use. `docs/reference/compatibility.md` is written from what is found here
//! (`BELLJAR_BLESS=1`).

use crate::cmd::agent_path;
use crate::stage::{Stage, blessing};
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every file is a run of the real agent.
const DEADLINE: Duration = Duration::from_secs(400);

/// Keys and values that mean something else here than where the format comes from.
const DIFFERENT: &[(&str, &str)] = &[
    ("answers[].allow_if", "a small expression language instead of JavaScript: it cannot reach this machine"),
    ("allow_host_writes", "no effect: connected directories are copies, so the originals are never written"),
    ("baseline", "no snapshots of a desktop application are kept, so there is nothing but `latest`"),
    (
        "fidelity: container",
        "bubblewrap (`bwrap`); `--backend container` runs it in a container with an image",
    ),
    ("fidelity: cowork", "`bwrap`, and the agent's background tasks are switched off"),
    (
        "fidelity: hostloop",
        "`bwrap`: the whole agent is inside, not only its shell; background tasks are off",
    ),
    (
        "fidelity: protocol",
        "the backend `host`, which isolates nothing and needs your agreement; checks that need isolation are unknown",
    ),
    ("account_name", "taken with a warning: there is no account"),
    ("trusted_folders", "taken with a warning: no directory is trusted"),
    ("auto_mount_folders", "taken with a warning: no directory appears without being listed"),
    ("skills.suggest_enabled", "taken with a warning: skills are not suggested"),
    ("skills.proactive_suggest_enabled", "taken with a warning: skills are not suggested"),
    ("staleness.hash_ignore", "taken with a warning: a tape compares requests, not a hash of files"),
    ("agent", "a key of belljar: an installed version of the agent"),
    ("agent_env.auto_compact_window", "a key of belljar"),
    ("normalise", "a key of belljar"),
    ("egress.extra_allow", "port 443 unless one is written"),
    ("web_fetch.approved_domains", "a host must be reachable by `egress.extra_allow` too"),
    ("plugins.enabled", "`NAME@local` is a plugin of `local_plugins`, which the agent has in any case"),
    (
        "semantic_matches",
        "judged again on replay from the recorded answer; a judge that fails makes it unknown; `votes` is a key of belljar",
    ),
    ("max_peak_rss_bytes", "counts the whole sandbox"),
    ("allow_without_isolation", "a key of belljar"),
];

/// Values that have a row of their own.
const VALUES: [&str; 7] = [
    "answers[].allow_if",
    "fidelity: container",
    "fidelity: cowork",
    "fidelity: hostloop",
    "fidelity: microvm",
    "fidelity: protocol",
    "on_unanswered: prompt",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What became of each file, by its path: that it started, or the reason why it did not.
fn outcomes() -> BTreeMap<String, Result<(), String>> {
    let stage = Stage::copy_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compatibility"));
    // The suite's own directory, so that nothing in it needs an agreement.
    stage.write("project/belljar.toml", "");
    let arguments = ["test", "--json", "--yes", "--script", "hello.script.json", "scenarios", "keys"];
    let found = run_within(stage.command(&arguments).env("PATH", agent_path()), DEADLINE).unwrap();
    let envelope: Value =
        serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    let results = envelope["data"]["results"].as_array().unwrap();
    let one = |result: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if result["conclusion"].is_string() {
            // A run that has a directory reached the agent.
            let file = text(&result["file"]);
            let file =
                file.strip_prefix(&format!("{}/", stage.path("project").display())).unwrap().to_owned();
            assert!(result["directory"].is_string() && result["tier"].is_string(), "{result:#}");
            return (file, Ok(()));
        }
        let diagnostics = result["diagnostics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let errors = diagnostics.iter().filter(|found| found["severity"] == "error");
        let reasons: Vec<String> = errors.map(|found| text(&found["message"])).collect();
        let reason = if reasons.is_empty() { text(&result["error"]["message"]) } else { reasons.join("; ") };
        (text(&result["scenario"]), Err(reason))
    };
    results.iter().map(one).collect()
}

/// The keys below the properties of a schema, with dots between them.
fn keys(schema: &Value, above: &str, out: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().unwrap() {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        if property["properties"].is_object() {
            keys(property, &path, out);
        } else {
            out.insert(path);
        }
    }
}

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(repository().join("schema").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The text of all files that started, or of the file of one key.
fn texts(directory: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compatibility").join(directory);
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (format!("{directory}/{name}"), fs::read_to_string(path).unwrap())
    };
    files.map(named).collect()
}

struct Table<'a> {
    outcomes: &'a BTreeMap<String, Result<(), String>>,
    /// What the files that started are written of, sessions included.
    used: String,
}

impl Table<'_> {
    fn row(&self, key: &str) -> String {
        let leaf = key.rsplit(['.']).next().unwrap().trim_start_matches("answers[]");
        let own = format!("keys/{}.yaml", leaf.replace(": ", "-"));
        let (standing, text) = match self.outcomes.get(&own) {
            Some(Err(reason)) => {
                let named = leaf.split(": ").all(|word| reason.contains(word));
                assert!(named, "{own} is refused without the name of the key: {reason}");
                ("refused", reason.as_str())
            }
            found => {
                let written = if leaf.contains(": ") { leaf.to_owned() } else { format!("{leaf}:") };
                // The backend without isolation and versions of the agent are a matter of their own tests.
                let elsewhere = ["fidelity: protocol", "agent"].contains(&key);
                let tried = found.is_some() || self.used.contains(&written) || elsewhere;
                assert!(tried, "no file uses `{key}`");
                match DIFFERENT.iter().find(|(different, _)| *different == key) {
                    Some((_, how)) => ("different", *how),
                    None => ("same", ""),
                }
            }
        };
        format!("| `{key}` | {standing} | {text} |\n")
    }

    fn section(&self, title: &str, keys: &BTreeSet<String>) -> String {
        let rows: String = keys.iter().map(|key| self.row(key)).collect();
        format!("\n## {title}\n\n| key | | how, or why |\n| --- | --- | --- |\n{rows}")
    }
}

#[test]
fn files_of_the_format_start_or_are_refused_by_the_name_of_a_key() {
    require!(Agent, Bwrap);
    let outcomes = outcomes();
    let scenarios = texts("scenarios");
    let started: Vec<&String> = scenarios.keys().filter(|file| outcomes[*file].is_ok()).collect();
    let refused: Vec<String> = scenarios
        .keys()
        .filter_map(|file| Some(format!("{file}: {}", outcomes[file].as_ref().err()?)))
        .collect();
    assert!(scenarios.len() >= 39 && started.len() >= 38, "{} started\n{refused:#?}", started.len());
    for (file, key) in [
        ("scenarios/microvm", "fidelity"),
        ("scenarios/links", "computer_links_resolve"),
        ("scenarios/cloud", "execution"),
        ("keys/enabled-nowhere", "enabled"),
    ] {
        let reason = outcomes[&format!("{file}.yaml")].as_ref().unwrap_err();
        assert!(reason.contains(key), "{reason}");
    }
    let sessions = texts("sessions");
    for name in sessions.keys() {
        let used = started.iter().any(|file| scenarios[*file].contains(&format!("../{name}")));
        assert!(used, "{name} is the session of a scenario that started");
    }
    let texts =
        started.iter().map(|file| scenarios[*file].as_str()).chain(sessions.values().map(String::as_str));
    let table = Table { outcomes: &outcomes, used: texts.collect::<Vec<_>>().join("\n") };
    let scenario = schema("scenario.schema.json");
    let (mut of_scenario, mut of_session, mut checks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    keys(&scenario, "", &mut of_scenario);
    of_scenario.extend(VALUES.map(str::to_owned));
    keys(&schema("session.schema.json"), "", &mut of_session);
    checks
        .extend(scenario["properties"]["assert"]["items"]["properties"].as_object().unwrap().keys().cloned());
    let own = |file: &&String| file.starts_with("keys/") && outcomes[*file].is_err();
    let known = |key: &String| {
        of_scenario.contains(key) || of_session.iter().any(|path| path.ends_with(key.as_str()))
    };
    let named =
        outcomes.keys().filter(own).map(|file| file["keys/".len()..file.len() - ".yaml".len()].to_owned());
    checks.extend(named.filter(|key| !known(key) && !key.contains('-')));
    checks.insert("computer_links_resolve".to_owned());
    let page = [
        INTRODUCTION.to_owned(),
        format!(
            "\nOf {} scenario files in this format with which belljar is tested, {} start; the others have a key that is refused.\n",
            scenarios.len(),
            started.len()
        ),
        table.section("Keys of a scenario", &of_scenario),
        table.section("Keys of a session", &of_session),
        table.section("Checks", &checks),
    ];
    let path = repository().join("docs/reference/compatibility.md");
    if blessing() {
        fs::write(&path, page.concat()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        page.concat(),
        "BELLJAR_BLESS=1 writes it anew"
    );
}

const INTRODUCTION: &str = "\
# Scenario files of other tools

<!-- Written by crates/cli/tests/compatibility.rs; BELLJAR_BLESS=1 writes it anew. -->

belljar reads scenario and session files of the format that cowork-harness introduced. Each row is a key or a value of the
format: `same` means what it means there, `different` says how, `refused` gives the reason that you would see.

Two things differ everywhere. Where evidence is missing, a check is *unknown* (status 3), not failed. And what a file asks
for beyond its own directory needs your agreement first: see [scenarios](../guides/scenarios.md).
";
