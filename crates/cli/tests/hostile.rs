//! What strangers write, printed by every verb: nothing of it reaches the terminal as it is.

use crate::cmd::{agent_path, project, script, tried};
use crate::stage::Stage;
use belljar_contract::is_hidden;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Clears the screen, sets the title, hides text, turns it around, is not seen.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[8m\u{9b}2J\r\u{8}\u{7f}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{ad}\u{2028}evil";
/// The same for a file name and for JSON and YAML, where it is the reader's to escape.
const NAME: &str = "\u{1b}[2J\u{202e}\u{200b}\u{9b}\n\rbelljar: all is well";

fn assert_clean(what: &str, found: &Finished) {
    for (stream, text) in [("stdout", &found.stdout), ("stderr", &found.stderr)] {
        if let Some(at) = text.find(|c| is_hidden(c) && c != '\n') {
            let around: String = text[..at].chars().rev().take(60).collect();
            let around: String = around.chars().rev().collect();
            panic!(
                "{what}: {stream}: {:?} after {around:?}",
                text[at..].chars().take(12).collect::<String>()
            );
        }
        assert!(!text.lines().any(|line| line == "belljar: all is well"), "{what}: {stream}: a forged line");
    }
}

fn clean(stage: &Stage, arguments: &[&str]) -> Finished {
    let found = tried(stage, arguments);
    assert_clean(&arguments.join(" "), &found);
    found
}

/// A string of TOML or JSON with every hidden character escaped for the parser.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        c if u32::from(c) > 0xffff => format!("\\U{:08X}", u32::from(c)),
        c => format!("\\u{:04X}", u32::from(c)),
    };
    let body: String = text.chars().map(|c| if is_hidden(c) { escaped(c) } else { c.to_string() }).collect();
    format!("\"{body}\"")
}

/// The sources of the command line, in all directories.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(directories.iter().flat_map(|directory| sources(directory))).collect()
}

/// Sources that write to the streams or the terminal themselves, and why what they write is safe.
const WRITERS: [(&str, &str); 3] = [
    ("cli/src/output.rs", "the printer, which escapes"),
    ("runner/src/session/terminal.rs", "passes the bytes of a command through, and resets the terminal"),
    ("runner/src/suite/deciders/person.rs", "asks at the terminal, with texts that are escaped before"),
];

/// Places in a source that get hold of a stream or the terminal; a question whether one is a terminal does not count.
fn streams(text: &str) -> Vec<&str> {
    let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let word = |line: &str, name: &str| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let apart = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
                && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let called = after.starts_with("()") && !after.starts_with("().is_terminal()");
            let taken = (before.ends_with("::")
                || line.trim_start().starts_with("use ")
                || line.trim_start().starts_with("pub use "))
                && !after.starts_with("()");
            apart && (called || taken)
        })
    };
    let names = ["stdout", "stderr", "Stdout", "Stderr"];
    let paths = ["/dev/tty", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1", "/proc/self/fd/2"];
    let group = |line: &str| {
        // A list of imports over several lines.
        names[..2].iter().any(|name| line.trim() == format!("{name},"))
    };
    code()
        .filter(|line| {
            names.iter().any(|name| word(line, name))
                || group(line)
                || paths.iter().any(|path| line.contains(&format!("\"{path}\"")))
        })
        .collect()
}

#[test]
fn the_search_for_streams_knows_their_forms() {
    for form in [
        "std::io::stderr().lock()",
        "use std::io::stderr;",
        "use std::io::{Write, stderr};",
        "use std::io::stderr as other;",
        "    let mut out = stdout();",
        "let make = std::io::stdout;",
        "rustix::stdio::stdout()",
        "    stderr,",
        "File::open(\"/dev/tty\")",
        "fn out() -> io::Stdout {",
    ] {
        assert_eq!(streams(form).len(), 1, "{form}");
    }
    for form in [
        "std::io::stderr().is_terminal()",
        "command.stderr(Stdio::null())",
        "let out = journal.agent_stderr()?;",
        "    stderr: journal.agent_stderr()?,",
        "// std::io::stderr()",
    ] {
        assert!(streams(form).is_empty(), "{form}");
    }
}

#[test]
fn only_listed_files_write_to_the_streams() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = Vec::new();
    for file in ["cli/src", "runner/src"].iter().flat_map(|directory| sources(&crates.join(directory))) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
        let found = streams(&text);
        let listed = WRITERS.iter().any(|(writer, _why)| *writer == name);
        assert!(found.is_empty() || listed, "{name} writes past the escaping: {found:#?}");
        seen.extend((!found.is_empty()).then_some(name));
    }
    assert_eq!(seen.len(), WRITERS.len(), "a listed file no longer writes: {seen:?}");
}

#[test]
fn manifests_and_what_is_wrong_with_them() {
    let raw = format!("[agents.a]\nmodel = \"x{EVIL}\"\nhom = 2 # {EVIL}\n");
    let good = format!(
        "[agents.a]\nprompt = {0}\nenv = {{ A = {0} }}\n[mcp.m]\ncommand = \"sh\"\nargs = [{0}]\n",
        quoted(EVIL)
    );
    for manifest in [raw, good] {
        let stage = Stage::with(&manifest);
        for verb in [
            &["check"][..],
            &["plan"],
            &["plan", "--json"],
            &["plan", "--lowered"],
            &["plan", "--why", "prompt"],
            &["trust"],
            &["trust", "--json"],
            &["exec", "--dry-run", "--", "true"],
            &["diff"],
            &["findings"],
            &["instances"],
            &["gc", "--dry-run"],
            &["check", "--color", "always", "--json"],
        ] {
            clean(&stage, verb);
        }
        // Colours are belljar's own, and nothing else passes with them.
        for verb in [&["check", "--color", "always"][..], &["plan", "--color", "always"]] {
            let mut found = stage.run(verb);
            for text in [&mut found.stdout, &mut found.stderr] {
                let mut parts = text.split("\u{1b}[").map(str::to_owned);
                let first = parts.next().unwrap();
                let rest = parts.map(|part| {
                    let (code, rest) = part.split_once('m').unwrap();
                    assert!(
                        ["0", "1", "2", "31", "32", "33", "91", "92", "93", "94", "96"].contains(&code),
                        "{code}"
                    );
                    rest.to_owned()
                });
                *text = rest.fold(first, |out, part| out + &part);
            }
            assert_clean(&verb.join(" "), &found);
        }
    }
}

#[test]
fn names_of_files_and_targets_of_links() {
    require!(Bwrap);
    let plant = format!(
        "exec 2> /dev/null; mkdir -p \"$1/.git/hooks\"; : > \"$1/.git/hooks/pre-commit\"; : > \"$1/.mcp.json\"; ln -s \"/etc/$1\" out; printf '{}' \"$1\" > text; : > \"$1/plain\"",
        "%s\\n"
    );
    for mode in ["direct", "overlay"] {
        let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
        clean(&stage, &["exec", "--yes", "--", "sh", "-c", &plant, "sh", NAME]);
        for verb in [
            &["findings"][..],
            &["findings", "--json"],
            &["diff", "--stat"],
            &["diff", "--color", "never", "--json"],
            &["apply"],
            &["apply", "--json"],
            &["discard", "--yes"],
        ] {
            clean(&stage, verb);
        }
    }
    // The files of others are named on the command line, too.
    let stage = Stage::with("[agents.a]\n");
    for verb in
        ["test", "replay", "trace", "judge", "import", "skill", "gates", "answer", "run", "findings", NAME]
    {
        clean(&stage, &[verb, NAME]);
        clean(&stage, &[verb, NAME, NAME, "--json"]);
    }
    clean(&stage, &["tape", "show", NAME]);
    clean(&stage, &["-C", NAME, "check"]);
    clean(&stage, &["exec", "--", NAME]);
    clean(&stage, &["decide", "--question", EVIL, "--option", EVIL]);
    clean(&stage, &["decide", "--question", EVIL, "--option", EVIL, "--first"]);
    clean(&stage, &["decide", "--tool", EVIL, "--strict"]);
}

/// A model that says and calls what a stranger would.
fn evil_script() -> String {
    let said = format!("{EVIL}\nbelljar: all is well\nlast");
    let command = format!("printf '\\033[2J\\nbelljar: all is well\\n'; ls {EVIL}");
    script(&[
        json!({"text": said}),
        json!({"tool_use": {"name": "Bash", "input": {"command": command}}}),
        json!({"tool_use": {"name": EVIL, "input": {"command": EVIL}}}),
        json!({"text": said}),
    ])
}

#[test]
fn conversations_their_records_and_tapes() {
    require!(Bwrap, Agent);
    let stage = project();
    stage.write("project/evil.json", evil_script());
    let scenario = format!(
        "prompt: Hello\nname: {0}\nassert:\n  - transcript_contains: {0}\n  - transcript_contains: no{0}\n",
        "\"evil \\u202e\\u200b name\""
    );
    stage.write("project/scenarios/evil.yaml", &scenario);
    stage.write("project/scenarios/evil.script.json", evil_script());
    for more in ["--keep", "--verbose", "--json"] {
        let found = clean(&stage, &["skill", "skills/changelog", EVIL, "--script", "evil.json", more]);
        assert!(more == "--json" || found.stderr.contains("\\u{1b}[2J"), "{found:?}");
    }
    clean(&stage, &["trace", "last"]);
    clean(&stage, &["trace", "last", "--json"]);
    clean(&stage, &["trace", "last", "--full"]);
    clean(&stage, &["trace", "last", "--full", "--json"]);
    clean(&stage, &["test", "scenarios/evil.yaml", "--scripted"]);
    for verb in [&["runs"][..], &["runs", "--json"], &["trace", "last"], &["judge", "last"]] {
        clean(&stage, verb);
    }
    clean(&stage, &["judge", "last", "scenarios/evil.yaml", "--json"]);
    clean(&stage, &["test", "scenarios", "--scripted", "--verbose"]);
    let recorded = clean(&stage, &["record", "scenarios/evil.yaml", "--scripted", "--allow-failing"]);
    assert!(stage.path("project/scenarios/evil.tape").exists(), "{recorded:?}");
    for verb in [
        &["tape", "show", "scenarios/evil.tape"][..],
        &["tape", "show", "--json", "scenarios/evil.tape"],
        &["tape", "verify", "scenarios"],
        &["tape", "diff", "scenarios/evil.tape", "scenarios/evil.tape"],
        &["replay", "--protocol", "--mutate", "scenarios/evil.tape"],
        &["replay", "--protocol", "--verbose", "scenarios/evil.tape"],
        &["replay", "scenarios/evil.tape"],
    ] {
        clean(&stage, verb);
    }
    let shown = stage.run(&["tape", "show", "scenarios/evil.tape"]).stdout;
    assert!(shown.contains("\\u{1b}[2J"), "the tape has what this is about:\n{shown}");
}

#[test]
fn questions_that_wait() {
    let stage = Stage::with("[agents.a]\n");
    let question = json!({"id": "1", "kind": "question", "questions": [{"question": EVIL}]});
    stage.write("project/questions/req-1.json", question.to_string());
    let found = clean(&stage, &["gates", "questions"]);
    let value: serde_json::Value = serde_json::from_str(found.stdout.trim()).unwrap();
    assert_eq!(value["questions"][0]["question"], EVIL, "what machines read is unchanged");
}

/// A line of shell at a terminal of its own, in which someone types; what was written there.
fn at_a_terminal(stage: &Stage, line: &str, typed: &str) -> Finished {
    let mut command = Command::new("sh");
    command.args(["-c", "printf '%s' \"$TYPED\" | script -qec \"$LINE\" /dev/null"]);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let line = line.replace("belljar", env!("CARGO_BIN_EXE_belljar"));
    command.env("PATH", agent_path()).env("SHELL", "/bin/sh").env("TYPED", typed).env("LINE", line);
    let mut found = stage.finish(&mut command);
    // A terminal ends its lines with both.
    found.stdout = found.stdout.replace("\r\n", "\n");
    found
}

#[test]
fn at_a_terminal_too() {
    require!(Bwrap);
    let plant = "exec 2> /dev/null; mkdir -p \"$1/.git/hooks\"; : > \"$1/.git/hooks/pre-commit\"; ln -s \"/etc/$1\" out";
    for mode in ["direct", "overlay"] {
        let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
        clean(&stage, &["exec", "--yes", "--", "sh", "-c", plant, "sh", NAME]);
        // `apply` asks about each.
        for line in ["belljar findings", "belljar diff", "belljar apply", "belljar check", "belljar plan"] {
            assert_clean(line, &at_a_terminal(&stage, line, "n\nn\nn\nn\n"));
        }
    }
}

#[test]
fn questions_to_a_person() {
    require!(Bwrap, Agent);
    let stage = project();
    let options =
        json!([{"label": format!("yes{EVIL}"), "description": EVIL}, {"label": "no", "description": "b"}]);
    let question = json!({"question": format!("{EVIL}\nbelljar: all is well"), "header": EVIL, "options": options, "multiSelect": false});
    let asked = script(&[
        json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [question]}}}),
        json!({"text": "done"}),
    ]);
    stage.write("project/asks.json", asked);
    let found = at_a_terminal(&stage, "belljar skill skills/changelog Hello --script asks.json", "2\n");
    assert_clean("skill at a terminal", &found);
    assert!(
        found.stdout.contains("? \\u{1b}[2J") && found.stdout.contains("1. yes\\u{1b}[2J"),
        "{}",
        found.stdout
    );
}

#[test]
fn a_patch_is_one_in_a_pipe_and_safe_at_a_terminal() {
    require!(Bwrap, Git);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    stage.write("project/text", "one\r\ntwo\n");
    let change = "printf '%s\\n' \"$1\" >> text; echo new > added; echo 2 > 'sp ace'; ln -s x y; rm -f gone";
    stage.write("project/gone", "going\n");
    stage.write("project/sp ace", "1\n");
    let mut command = stage.command(&["exec", "--yes", "--", "sh", "-c", change, "sh"]);
    assert_clean("exec", &stage.finish(command.arg(EVIL)));
    let seen = at_a_terminal(&stage, "belljar diff", "");
    assert_clean("diff at a terminal", &seen);
    assert!(seen.stdout.contains("+\\u{1b}[2J"), "{}", seen.stdout);
    let found = stage.run(&["diff"]);
    let patch = found.stdout;
    assert!(found.stderr.contains("1 of 5 changes are listed and not in the patch"), "{}", found.stderr);
    assert!(patch.contains(EVIL) && patch.contains("+++ b/sp ace\t\n"), "{patch:?}");
    stage.write("patch", &patch);
    let mut git = Command::new("git");
    let applied = stage.finish(git.args(["apply", "../patch"]).current_dir(stage.path("project")));
    assert_eq!(applied.status.code(), Some(0), "{}\n{patch}", applied.stderr);
    let text = std::fs::read_to_string(stage.path("project/text")).unwrap();
    assert_eq!(text, format!("one\r\ntwo\n{EVIL}\n"));
    assert!(stage.path("project/added").exists() && !stage.path("project/gone").exists());
}
