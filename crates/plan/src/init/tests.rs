#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

use super::*;
use crate::manifest::{LayerText, Manifest, ManifestLayer, json_schema, parse};
use crate::syntax::parse_toml;
use belljar_contract::decode::{Kind, Node, Table};
use belljar_contract::{AbsPath, LibraryName};
use serde_json::Value;

const HARNESS: HarnessFacts<'_> = HarnessFacts {
    name: "scribe",
    example_version: "2.1.197",
    example_model: "some-model",
    instructions_file: "SCRIBE.md",
};

fn skill(name: &str, path: &str, description: Option<&str>) -> FoundSkill {
    FoundSkill {
        name: name.to_owned(),
        path_text: path.to_owned(),
        description: description.map(str::to_owned),
    }
}

fn server(name: &str, args: &[&str], env: &[&str]) -> FoundServer {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    FoundServer {
        name: name.to_owned(),
        command: "run-it".to_owned(),
        args: owned(args),
        env_names: owned(env),
    }
}

fn rich() -> Found {
    Found {
        project_name: "My Shop (v2)".to_owned(),
        project_skills: vec![skill("changelog", ".claude/skills/changelog", Some("Write release notes"))],
        user_skills: vec![
            skill("notes", "~/.claude/skills/notes", None),
            skill("changelog", "~/.claude/skills/changelog", None),
            skill("two words", "~/x", Some("x")),
        ],
        project_mcp: vec![
            server("tickets", &["--stdio", "a \"b\""], &["TOKEN", "TOKEN", "ZONE"]),
            server("expands", &["${HOME}/x"], &[]),
        ],
        plugins: vec![FoundPlugin { name: "example".to_owned(), path_text: "~/plugins/x".to_owned() }],
        has_instructions: true,
        markers: vec!["package.json".to_owned(), "Cargo.toml".to_owned()],
        git_remote_host: Some("Git.Shop.Example".to_owned()),
    }
}

/// Every text a stranger chose tries to leave its place.
fn hostile() -> Found {
    let evil = "x\n[agents.evil]\n#[[\"\"\"'''\u{1b}[31m\u{202e}\0";
    Found {
        project_name: evil.to_owned(),
        project_skills: vec![
            skill(evil, evil, Some(evil)),
            skill("good", evil, Some("no path")),
            skill("a.b", "p/\n[agents.evil]", Some("key = 1\n[agents.evil]")),
            skill("true", "~bob/x", None),
        ],
        user_skills: vec![skill("", "", Some("")), skill("c", "#x", Some("#model = 1"))],
        project_mcp: vec![
            server(evil, &[evil], &[evil]),
            server("s.t", &["\n#[agents.evil]", "#"], &["A-B"]),
            server("u", &["\n#[agents.evil]", "#"], &[]),
        ],
        plugins: vec![FoundPlugin { name: "é".to_owned(), path_text: "x".to_owned() }],
        has_instructions: true,
        markers: vec![evil.to_owned(), "#x".to_owned()],
        git_remote_host: Some(evil.to_owned()),
    }
}

fn manifest(text: &str) -> Manifest {
    let layer = LayerText {
        layer: ManifestLayer::Project,
        name: "belljar.toml".to_owned(),
        directory: AbsPath::new("/project").unwrap(),
        bytes: text.into(),
    };
    parse(vec![layer]).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.diagnostics))
}

fn is_example(line: &str) -> bool {
    line.trim_start().strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
}

/// The text with the `#` of these lines deleted.
fn uncomment(text: &str, chosen: impl Fn(usize) -> bool) -> String {
    let lines = text.lines().enumerate().map(|(at, line)| {
        if is_example(line) && chosen(at) { line.replacen('#', "", 1) } else { line.to_owned() }
    });
    lines.map(|line| line + "\n").collect()
}

fn founds() -> [Found; 3] {
    [Found::default(), rich(), hostile()]
}

#[test]
fn parses_as_it_is_and_with_every_example() {
    for found in founds() {
        let text = starting_manifest(&found, &HARNESS);
        assert_eq!(manifest(&text).agents.len(), 1);
        assert_eq!(manifest(&uncomment(&text, |_| true)).agents.len(), 1);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }
}

#[test]
fn each_example_can_be_used_alone() {
    for found in founds() {
        let text = starting_manifest(&found, &HARNESS);
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let end = if lines[at].starts_with("#[") {
                at + lines[at..].iter().take_while(|line| !line.is_empty()).count()
            } else {
                at + 1
            };
            manifest(&uncomment(&text, |line| (at..end).contains(&line)));
            at = end;
        }
    }
}

#[test]
fn what_is_there_is_picked_and_what_runs_code_is_not() {
    let text = starting_manifest(&rich(), &HARNESS);
    let name = |text: &str| LibraryName::new(text).unwrap();
    let live = manifest(&text);
    let (agent, spec) = live.agents.first_key_value().unwrap();
    assert_eq!(agent.as_str(), "My-Shop-v2");
    assert_eq!(spec.spec.skills.iter().map(|at| at.as_str()).collect::<Vec<_>>(), ["changelog"]);
    assert_eq!(live.skills.keys().collect::<Vec<_>>(), [&name("changelog")]);
    assert!(live.mcp.is_empty() && live.plugins.is_empty());
    assert!(spec.spec.mcp.is_empty() && spec.spec.plugins.is_empty() && spec.spec.ssh.is_empty());
    assert!(spec.spec.egress.as_ref().unwrap().allow.is_empty());

    let all = manifest(&uncomment(&text, |_| true));
    assert_eq!(
        all.skills.keys().map(LibraryName::as_str).collect::<Vec<_>>(),
        ["changelog", "example", "notes"]
    );
    assert_eq!(all.mcp[&name("tickets")].spec.args[1].0, "a \"b\"");
    assert_eq!(all.mcp[&name("tickets")].spec.env.len(), 2);
    assert_eq!(all.plugins.len(), 2, "a plugin that is called like the example is kept");
    let spec = &all.agents.first_key_value().unwrap().1.spec;
    assert_eq!(spec.ssh[0].hostname.to_string(), "git.shop.example");
    for picked in &spec.mcp {
        assert!(all.mcp.contains_key(&picked.value));
    }
    for line in [
        "# Left out: `changelog`: the name is taken",
        "# Left out: `two words`: ' ' cannot be part of a library name; allowed are letters, digits, `-`, `_` and `.`",
        "# Left out: `expands`: `${…}` would be expanded by the agent",
        "# Found here: `package.json` and `Cargo.toml`. Add the hosts that the build downloads from.",
        "    #\"git.shop.example\",  # where the repository's remote is",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn picks_refer_to_entries_that_are_shown() {
    for found in founds() {
        let all = manifest(&uncomment(&starting_manifest(&found, &HARNESS), |_| true));
        let spec = &all.agents.first_key_value().unwrap().1.spec;
        assert!(!spec.skills.is_empty() && !spec.mcp.is_empty() && !spec.plugins.is_empty());
        assert!(spec.skills.iter().all(|name| all.skills.contains_key(&name.value)));
        assert!(spec.mcp.iter().all(|name| all.mcp.contains_key(&name.value)));
        assert!(spec.plugins.iter().all(|name| all.plugins.contains_key(&name.value)));
    }
}

#[test]
fn agent_names() {
    let long = "a".repeat(80);
    for (project, agent) in [
        ("shop", "shop"),
        ("My Shop", "My-Shop"),
        (".dotfiles", "dotfiles"),
        ("a/../b", "a-..-b"),
        ("日本", "coder"),
        ("", "coder"),
        ("---", "coder"),
        (&long, &long[..64]),
    ] {
        assert_eq!(agent_name(project), agent);
    }
}

/// Tables of the text at one path: all entries of a list and all entries under names of the author's.
fn tables<'a>(nodes: &[&'a Node], schema: &Value) -> Vec<&'a Table> {
    let named = schema.get("additionalProperties").is_some_and(Value::is_object);
    let mut out = Vec::new();
    for node in nodes {
        match &node.kind {
            Kind::Array(items) => out.extend(tables(&items.iter().collect::<Vec<_>>(), &schema["items"])),
            Kind::Table(table) if named => {
                let entries: Vec<&Node> = table.0.iter().map(|(_, node)| node).collect();
                out.extend(tables(&entries, &schema["additionalProperties"]));
            }
            Kind::Table(table) => out.push(table),
            _ => {}
        }
    }
    out
}

fn missing(nodes: &[&Node], schema: &Value, path: &str, all: &str, out: &mut Vec<String>) {
    let entry = schema.get("items").unwrap_or(schema);
    let entry = entry.get("additionalProperties").filter(|entry| entry.is_object()).unwrap_or(entry);
    let tables = tables(nodes, schema);
    for (key, below) in entry["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let found: Vec<&Node> = tables.iter().filter_map(|table| table.get(key)).collect();
        if found.is_empty() {
            out.push(path.clone());
        }
        missing(&found, below, &path, all, out);
    }
    // Of the forms that a value can have, each key is shown somewhere.
    for form in entry["oneOf"].as_array().into_iter().flatten() {
        for (key, _) in form["properties"].as_object().into_iter().flatten() {
            if !all.contains(&format!("{key} = ")) {
                out.push(format!("{path}.{key}"));
            }
        }
    }
}

#[test]
fn every_key_of_the_schema_is_shown_and_explained() {
    for found in founds() {
        let text = starting_manifest(&found, &HARNESS);
        let all = uncomment(&text, |_| true);
        let root = Node { span: 0..0, kind: Kind::Table(parse_toml(&all).unwrap()) };
        let mut out = Vec::new();
        missing(&[&root], &json_schema(), "", &all, &mut out);
        assert_eq!(out, Vec::<String>::new());
        assert!(!text.lines().any(|line| line.trim_end() == "#"), "every key has an explanation");
    }
}

#[test]
fn the_walk_over_the_schema_misses_what_is_not_there() {
    let text = "[agents.a]\nlimits.pids = 1\n[[agents.a.mounts]]\nsource = 'x'\n";
    let root = Node { span: 0..0, kind: Kind::Table(parse_toml(text).unwrap()) };
    let mut out = Vec::new();
    missing(&[&root], &json_schema(), "", text, &mut out);
    for key in [
        ".library",
        ".library.mcp.command",
        ".agents.limits.cpu",
        ".agents.mounts.target",
        ".agents.env.file",
    ] {
        assert!(out.contains(&key.to_owned()), "{key} in {out:?}");
    }
    for key in [".agents", ".agents.limits", ".agents.limits.pids", ".agents.mounts.source"] {
        assert!(!out.contains(&key.to_owned()), "{key}");
    }
}
