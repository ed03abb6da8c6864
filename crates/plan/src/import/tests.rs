use super::*;
use crate::manifest::{LayerText, Manifest, ManifestLayer};
use belljar_contract::{AbsPath, position};
use serde_json::{Value, json};

fn text(name: &str, bytes: impl Into<Vec<u8>>) -> ImportText {
    ImportText { name: name.to_owned(), bytes: bytes.into() }
}

fn parsed(toml: &str) -> Manifest {
    let layer = LayerText {
        layer: ManifestLayer::Project,
        name: "belljar.toml".to_owned(),
        directory: AbsPath::new("/project").unwrap(),
        bytes: toml.into(),
    };
    crate::manifest::parse(vec![layer]).unwrap_or_else(|error| panic!("{:#?}\n{toml}", error.diagnostics))
}

fn imported(value: &Value) -> (Imported, Manifest) {
    let done = import(vec![text("claude-bottle.json", value.to_string())]).unwrap();
    let manifest = parsed(&done.toml);
    (done, manifest)
}

/// `file:line:column code: message`, as a terminal would have it.
fn faults(inputs: Vec<ImportText>) -> Vec<String> {
    let ImportError { sources, diagnostics, partial: _ } = import(inputs).unwrap_err();
    diagnostics
        .iter()
        .map(|fault| {
            let place = fault.label.as_ref().map_or(String::new(), |label| {
                let source = &sources[label.file];
                assert!(source.text.get(label.span.clone()).is_some(), "the place lies in the text");
                let (line, column) = position(&source.text, label.span.start);
                format!("{}:{line}:{column} ", source.name)
            });
            format!("{place}{}: {}", fault.code, fault.message)
        })
        .collect()
}

const WHOLE: &str = r#"{
  "agents": {
    "reviewer": {
      "env": {"LOG_LEVEL": "debug", "PASSWORD": "?Database password", "REGION": "${AWS_REGION}", "MARK": "${x", "TOKEN": "?"},
      "skills": ["notes", "changelog", "notes"],
      "prompt": "You review \"code\".\nBe brief.",
      "ssh": [
        {"Host": "forge", "IdentityFile": "~/.ssh/forge", "Hostname": "git.example.org", "User": "git", "Port": "2222",
         "KnownHostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"},
        {"Host": "other", "IdentityFile": "keys/other", "Hostname": "other.example.org", "User": "git", "Port": 22}
      ]
    }
  }
}"#;

const WRITTEN: &str = r#"[library.skills.changelog]
source = "~/.claude/skills/changelog"

[library.skills.notes]
source = "~/.claude/skills/notes"

[agents.reviewer]
# This was added to the system prompt; here it is the first message, and the agent acts on it.
# For standing instructions move the text to a file and name that: `role = "roles/NAME.md"`.
prompt = """
You review "code".
Be brief."""
skills = ["notes", "changelog"]
# As before, the agent does not ask before it acts: the sandbox protects the machine.
permissions = { skip_prompts = true }

[agents.reviewer.env]
LOG_LEVEL = "debug"
PASSWORD = "?Database password"
REGION = "${AWS_REGION}"
MARK = { value = "${x" }
TOKEN = "?TOKEN"

[agents.reviewer.egress]
# The network was open. Now only what is listed can be reached, and the model. For example:
# allow = ["api.example.org", "*.example.net", "db.internal:5432"]
# The ssh entries below are for `git.example.org:2222` and `other.example.org:22`.
allow = []

[[agents.reviewer.ssh]]
host = "forge"
hostname = "git.example.org"
user = "git"
port = 2222
identity_file = "~/.ssh/forge"
known_host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

[[agents.reviewer.ssh]]
host = "other"
hostname = "other.example.org"
user = "git"
port = 22
identity_file = "keys/other"
"#;

#[test]
fn a_whole_file() {
    let done = import(vec![text("claude-bottle.json", WHOLE)]).unwrap();
    parsed(&done.toml);
    let (head, rest) = done.toml.split_at(done.toml.find("[library").unwrap());
    assert_eq!(rest, WRITTEN);
    for note in &done.notes {
        assert!(head.contains(&format!("# - {note}\n")), "{head}");
    }
    let subjects: Vec<&str> = done.notes.iter().map(|note| note.split(':').next().unwrap()).collect();
    assert_eq!(
        subjects,
        ["sandbox", "network", "home", "permissions", "prompt", "skills", "ssh", "env", "ssh"]
    );
    assert_eq!(done.notes[7], "env: `TOKEN` had no question; its name is asked instead (`reviewer`)");
}

#[test]
fn the_project_wins_whole() {
    let home = r#"{"agents": {"b": {"prompt": "home", "env": {"A": "1"}}, "a": {"prompt": "kept"}}}"#;
    let project = r#"{"agents": {"c": {}, "b": {"prompt": "project"}}}"#;
    let done = import(vec![text("~/claude-bottle.json", home), text("claude-bottle.json", project)]).unwrap();
    let manifest = parsed(&done.toml);
    let prompt = |name: &str| {
        let agent = &manifest.agents[&AgentName::new(name).unwrap()].spec;
        (agent.prompt.as_ref().map(|at| at.value.0.clone()), agent.env.len())
    };
    assert_eq!(prompt("a"), (Some("kept".to_owned()), 0));
    assert_eq!(prompt("b"), (Some("project".to_owned()), 0));
    assert_eq!(prompt("c"), (None, 0));
    let at = |name: &str| done.toml.find(name).unwrap();
    assert!(at("[agents.b]") < at("[agents.a]") && at("[agents.a]") < at("[agents.c]"));
}

const ODD: [&str; 28] = [
    "",
    " ",
    "plain",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\u0041",
    "$(id)",
    "`id`",
    "$HOME",
    "${",
    "${}",
    "${A",
    "${A}b",
    "${1A}",
    "x${A}",
    "?\u{202e}",
    "a\nb",
    "a\r\nb",
    "\n",
    "\t\u{1}\u{1b}[31m\u{7f}\u{85}",
    "é日本😀",
    "\u{feff}",
    "# x",
    "a = 1\n[agents.evil]",
    "\u{fffe}\u{10ffff}",
];

#[test]
fn every_value_survives() {
    for odd in ODD {
        for other in ODD {
            let both = format!("{odd}{other}");
            let starts_with_question = both.starts_with('?');
            let (_, manifest) = imported(&json!({"agents": {"a.b": {
                "prompt": both,
                "env": {"LITERAL": if starts_with_question { "x" } else { &both }, "ASKED": "?Say \"it\" \\ ${A}", "READ": "${_A1}"},
                "ssh": [{"Host": "h", "IdentityFile": format!("~/x{both}"), "Hostname": "h.example", "User": "u", "Port": "1"}],
            }}}));
            let agent = &manifest.agents[&AgentName::new("a.b").unwrap()].spec;
            let prompt = agent.prompt.as_ref().map(|at| at.value.0.as_str());
            assert_eq!(prompt, Some(both.as_str()).filter(|text| !text.trim().is_empty()));
            let value = |name: &str| {
                agent.env.iter().find(|entry| entry.name.as_str() == name).unwrap().value.clone()
            };
            if !starts_with_question && both != "${A}" {
                assert_eq!(value("LITERAL"), EnvText::Literal(both.clone()));
            }
            assert_eq!(value("ASKED"), EnvText::Prompt("Say \"it\" \\ ${A}".to_owned()));
            assert_eq!(value("READ"), EnvText::Variable(EnvName::new("_A1").unwrap()));
            assert_eq!(agent.ssh[0].identity_file.value, crate::manifest::PathText::Home(format!("x{both}")),);
        }
    }
}

#[test]
fn every_name_survives() {
    let long = "a".repeat(64);
    for name in ["a", "true", "1", "1.5", "a.b", "inf", "A_b-c.", long.as_str()] {
        let (_, manifest) = imported(&json!({"agents": {name: {"skills": [name], "env": {"true": "x"}}}}));
        let agent = &manifest.agents[&AgentName::new(name).unwrap()].spec;
        assert_eq!(agent.skills[0].as_str(), name);
        assert!(agent.permissions.as_ref().unwrap().skip_prompts.as_ref().unwrap().value);
        assert!(agent.egress.as_ref().unwrap().allow.is_empty());
        let source = manifest.skills[&LibraryName::new(name).unwrap()].spec.source.clone().unwrap().value;
        assert_eq!(source, crate::manifest::PathText::Home(format!(".claude/skills/{name}")));
    }
}

#[test]
fn the_file_s_own_name_cannot_forge_a_line() {
    let evil = "x\n[agents.evil]\n#\u{1b}[31m";
    let done = import(vec![text(evil, r#"{"agents": {"a": {"ssh": [{"Host": "h", "IdentityFile": "k\n[agents.evil]", "Hostname": "h", "User": "u", "Port": 22}]}}}"#)]).unwrap();
    assert_eq!(parsed(&done.toml).agents.len(), 1);
    assert!(done.notes.iter().all(|note| !note.contains(char::is_control)), "{:?}", done.notes);
}

#[test]
fn all_faults_of_both_files_at_once() {
    let home = "{\"agents\": {\n  \"a/b\": {\"promt\": \"x\", \"env\": {\"A-B\": \"x\", \"B\": 1, \"B\": \"2\"}}\n}}";
    let project = r#"{
  "agent": {},
  "agents": {
    "a": {
      "env": {"N": "a\u0000", "Q": "?a\nb"}, "skills": ["a b", 1], "prompt": ["x"],
      "ssh": [{"Host": "-x", "IdentityFile": "~bob/k", "HostName": "h", "User": "u u", "Port": 65536, "KnownHostKey": "x"},
              {"Host": "h", "IdentityFile": "", "Hostname": "10.0.0.1", "User": "u", "Port": "22x"}, "x"]
    },
    "b": null
  }
}"#;
    assert_eq!(
        faults(vec![text("home", home), text("project", project)]),
        [
            "home:2:53 duplicate-key: the key `B` is there twice",
            "home:2:3 invalid-name: '/' cannot be part of an agent name; allowed are letters, digits, `-`, `_` and `.`",
            "home:2:11 unknown-key: unknown key `promt` in an agent",
            "home:2:33 invalid-name: '-' cannot be part of an environment variable's name; allowed are letters, digits and `_`",
            "home:2:50 wrong-type: expected a string, found a number",
            "project:2:3 unknown-key: unknown key `agent` in the file",
            "project:5:20 invalid-value: a text cannot hold a NUL character",
            "project:5:36 invalid-value: expected a line of text, found the control character '\\n' in it",
            "project:5:57 invalid-value: ' ' cannot be part of a library name; allowed are letters, digits, `-`, `_` and `.`",
            "project:5:64 wrong-type: expected the name of a library entry, found a number",
            "project:5:78 wrong-type: expected a string, found a list",
            "project:6:56 unknown-key: unknown key `HostName` in an ssh entry",
            "project:6:24 invalid-value: expected a word of letters, digits, `.`, `_` and `-`, found `-x`",
            "project:6:81 invalid-value: expected a word of letters, digits, `.`, `_` and `-`, found `u u`",
            "project:6:96 invalid-value: expected a port between 1 and 65535, found 65536",
            "project:6:46 invalid-value: `~` means your own home; another user's cannot be named",
            "project:6:119 invalid-value: expected a public key such as `ssh-ed25519 AAAA…`, found `x`",
            "project:7:94 wrong-type: expected a port, found a string",
            "project:7:45 invalid-value: expected a path, found an empty string",
            "project:7:102 wrong-type: expected a table, found a string",
            "project:9:10 wrong-type: expected a table, found nothing",
        ]
    );
}

#[test]
fn near_words_are_named() {
    let error = import(vec![text("f", r#"{"agents": {"a": {"promt": "x"}}}"#)]).unwrap_err();
    assert_eq!(error.diagnostics[0].label.as_ref().unwrap().text, "did you mean `prompt`?");
}

#[test]
fn files_that_are_no_such_file() {
    let cases: [(Vec<u8>, &str); 9] = [
        (Vec::new(), "empty: `f` is empty"),
        (b"\xef\xbb\xbf \n".to_vec(), "empty: `f` is empty"),
        (b"{}".to_vec(), "empty: no agent is declared in `f`"),
        (b"{\"agents\": {}}".to_vec(), "empty: no agent is declared in `f`"),
        (b"[]".to_vec(), "f:1:1 wrong-type: expected a table, found a list"),
        (b"{\"agents\": \xff}".to_vec(), "f:1:12 not-utf8: `f` is not UTF-8"),
        (b"{\n\t\"agents\": {},\n}".to_vec(), "f:3:1 syntax: not JSON: trailing comma"),
        (b"agents:\n  a: {}".to_vec(), "f:1:1 syntax: not JSON: expected value"),
        (vec![b' '; crate::SIZE_LIMIT + 1], "too-large: `f` is larger than 4 MiB, which no such file is"),
    ];
    for (bytes, message) in cases {
        assert_eq!(faults(vec![text("f", bytes)]), [message]);
    }
    assert_eq!(faults(Vec::new()), ["empty: there is no file to import"]);
    assert_eq!(faults(vec![text("f", "{"), text("g", "")]).len(), 2);
}

#[test]
fn a_byte_order_mark_says_nothing() {
    let plain = import(vec![text("f", r#"{"agents": {"a": {}}}"#)]).unwrap();
    assert_eq!(import(vec![text("f", "\u{feff}{\"agents\": {\"a\": {}}}")]).unwrap(), plain);
    assert_eq!(
        import(vec![text("g", "{}"), text("f", r#"{"agents": {"a": {}}}"#)]).unwrap().notes,
        plain.notes
    );
}

#[test]
fn what_belljar_sets_itself_is_noted() {
    let (done, _) = imported(
        &json!({"agents": {"a": {"env": {"HOME": "/x", "CLAUDE_CODE_OAUTH_TOKEN": "?", "HOMER": "x"}}}}),
    );
    let noted: Vec<&String> = done.notes.iter().filter(|note| note.contains("sets itself")).collect();
    assert_eq!(noted.len(), 2, "{noted:?}");
}
