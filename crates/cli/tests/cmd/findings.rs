use crate::cmd::{project, script, tried};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// What somebody else does in the project while a command runs there, as a guard that failed would let it: one guarded file among decoys of its own and of other kinds, and a link whose target paints.
const PLANT: &str = r#"
git init -q --template= new && mkdir new/.git/hooks && echo evil > new/.git/hooks/pre-commit
mkdir -p links && seq -f /etc/%.0f 10000 | xargs ln -s -t links
seq -f a%.0f 300 | xargs mkdir
seq -f a%.0f/.mcp.json 300 | xargs touch
seq -f a%.0f/.gitmodules 300 | xargs touch
mkdir -p node_modules/.bin; i=0; while [ $i -lt 60 ]; do : > "node_modules/.bin/tool$i"; i=$((i+1)); done
ln -s "$(printf '/etc/\033[2J\033[1;1Hnothing was left\342\200\256')" out
mkfifo pipe
"#;

#[test]
fn decoys_hide_nothing_and_everything_is_kept() {
    require!(Bwrap, Git);
    let stage = Stage::new();
    let mut command = stage.command(&["exec", "--", "sh", "-c", "echo ready; read go"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut plant = Command::new("sh");
    plant.args(["-c", PLANT]).current_dir(stage.path("project")).env("HOME", stage.path("home"));
    assert!(stage.finish(&mut plant).status.success());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let found = child.wait_with_output().unwrap();
    let report = &String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(0), "{report}");
    for line in [
        "new/.git/hooks/pre-commit  new; git runs it",
        "out  new; a link that leads out of the project, to /etc/\\u{1b}[2J\\u{1b}[1;1Hnothing was left\\u{202e}",
        "links/  10000 entries: a link that leads out of the project",
        // With the directory `.bin` itself.
        "node_modules/  61 entries: build output",
        "/.gitmodules  new; ",
        "pipe  new; neither a file nor a directory",
        " of the guarded kind): `belljar findings ",
    ] {
        assert!(report.contains(line), "{line}:\n{report}");
    }
    assert!(report.lines().count() <= 33, "{report}");
    assert!(report.find("pre-commit").unwrap() < report.find("out  new").unwrap(), "{report}");

    let listed = stage.run(&["findings"]);
    assert_eq!(listed.status.code(), Some(0), "{}", listed.stderr);
    let lines: Vec<&str> = listed.stdout.lines().filter(|line| line.starts_with("  ")).collect();
    for part in [
        "a1/.mcp.json",
        "a300/.mcp.json",
        "links/9999  new; a link that leads out of the project, to /etc/9999",
        "a77/.gitmodules",
        "new/.git/hooks/pre-commit",
        "node_modules/.bin/tool59",
        "to /etc/\\u{1b}[2J",
        "pipe  new",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}:\n{}", listed.stdout);
    }
    assert!(!listed.stdout.contains('\u{1b}') && !listed.stdout.contains('\u{202e}'));

    let machine = stage.run(&["findings", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&machine.stdout).unwrap();
    let items = value["data"]["items"].as_array().unwrap();
    assert_eq!(items.len(), lines.len());
    assert_eq!(items[0]["danger"], "guarded");
    // The name of the report leads to the same list.
    let name = value["data"]["run"].as_str().unwrap();
    assert!(report.contains(&format!("`belljar findings {name}` lists all")), "{report}");
    assert_eq!(stage.run(&["findings", name]).stdout, listed.stdout);
}

#[test]
fn nothing_is_kept_of_a_run_that_left_nothing() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.run(&["exec", "--", "sh", "-c", "echo ordinary > file"]);
    let listed = stage.run(&["findings"]);
    assert_eq!((listed.status.code(), listed.stdout.as_str()), (Some(0), ""), "{}", listed.stderr);
    assert!(listed.stderr.starts_with("no findings are kept for this project"), "{}", listed.stderr);
    let unknown = stage.run(&["findings", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", unknown.stderr);
}

#[test]
fn a_damaged_list_is_named_and_passed_over() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.run(&["exec", "--", "sh", "-c", "ln -s /etc out"]);
    let whole = stage.run(&["findings"]);
    assert!(whole.stdout.contains("out  new"), "{whole:?}");
    stage.write("home/.local/state/belljar/findings/99990101T000000Z-a-1.json", "{");
    let found = stage.run(&["findings"]);
    assert_eq!((found.status.code(), &found.stdout), (Some(0), &whole.stdout), "{}", found.stderr);
    assert!(found.stderr.contains("99990101T000000Z-a-1.json"), "{}", found.stderr);
    let asked = stage.run(&["findings", "99990101T000000Z-a-1"]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
}

#[test]
fn a_list_that_could_not_be_kept_is_not_named() {
    require!(Bwrap);
    let stage = Stage::new();
    // A file where the directory of the lists would be.
    stage.write("home/.local/state/belljar/findings", "");
    let plant = "mkdir links && seq -f /etc/%.0f 50 | xargs ln -s -t links";
    let found = stage.run(&["exec", "--", "sh", "-c", plant]);
    assert!(found.stderr.contains("links/  50 entries"), "{}", found.stderr);
    assert!(found.stderr.contains("cannot write the findings"), "{}", found.stderr);
    assert!(!found.stderr.contains("belljar findings"), "{}", found.stderr);
}

#[test]
fn a_trial_leaves_nothing_in_the_project() {
    require!(Bwrap, Agent);
    let stage = project();
    let plant =
        json!({"tool_use": {"name": "Bash", "input": {"command": "touch .mcp.json && ln -s /etc out"}}});
    stage.write("project/plants.json", script(&[plant, json!({"text": "done"})]));
    tried(&stage, &["skill", "skills/changelog", "Hello", "--script", "plants.json"]);
    let traced = stage.run(&["trace", "last"]).stdout;
    assert!(traced.contains(".mcp.json"), "it was planted where the agent worked:\n{traced}");
    assert!(!stage.path("project/.mcp.json").exists());
    assert!(!stage.path("home/.local/state/belljar/findings").exists());
}

#[test]
fn old_lists_are_swept() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.run(&["exec", "--", "sh", "-c", "ln -s /etc out"]);
    let file = || {
        let listed = stage.run(&["findings", "--json"]).stdout;
        let value: serde_json::Value = serde_json::from_str(&listed).unwrap();
        value["data"]["file"].as_str().map(std::path::PathBuf::from)
    };
    assert!(stage.run(&["gc"]).stderr.contains("nothing to remove"));
    let path = file().unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(31 * 24 * 3600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let swept = stage.run(&["gc"]);
    assert!(swept.stdout.contains("removed the findings"), "{}{}", swept.stdout, swept.stderr);
    assert_eq!(file(), None);
}
