//! The help of every verb: it has examples, they run, and the reference page is written from it.

use crate::cmd::{project, verbs};
use crate::container::from::{Own, hollow};
use crate::stage::{Stage, blessing};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

fn help(verb: Option<&str>) -> String {
    let arguments: Vec<&str> = verb.into_iter().flat_map(str::split_whitespace).chain(["--help"]).collect();
    let found = Stage::new().run(&arguments);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""));
    // Blanks at the ends of lines say nothing.
    found.stdout.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn examples(help: &str) -> Vec<String> {
    let Some((_, block)) = help.split_once("\nExamples:\n") else { return Vec::new() };
    block.lines().filter_map(|line| line.strip_prefix("  $ ")).map(str::to_owned).collect()
}

/// Nothing, the verbs, and what verbs have below them.
fn all() -> Vec<Option<String>> {
    let below = |verb: String| {
        let help = help(Some(&verb));
        let list = help.split_once("\nCommands:\n").map(|(_, list)| list.to_owned()).unwrap_or_default();
        let names = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        let inner: Vec<String> = names.map(|name| format!("{verb} {name}")).collect();
        [verb].into_iter().chain(inner).map(Some)
    };
    [None].into_iter().chain(verbs().into_iter().flat_map(below)).collect()
}

/// A project in which the examples of a verb make sense.
pub fn fixture(verb: &str) -> Stage {
    let stage = project();
    if ["init", "import", "run", "exec", "shell"].contains(&verb) {
        fs::remove_file(stage.path("project/belljar.toml")).unwrap();
    }
    if ["diff", "apply", "discard"].contains(&verb) {
        stage.write("project/belljar.toml", "[agents.a]\nworkspace = \"overlay\"\n");
    }
    let old =
        r#"{"agents": {"reviewer": {"env": {"LOG_LEVEL": "debug"}, "skills": [], "prompt": "Review."}}}"#;
    stage.write("project/claude-bottle.json", old);
    stage.write("project/hello.json", crate::cmd::HELLO);
    stage.write("project/scenarios/hello.yaml", "prompt: Hello\nassert:\n  - transcript_contains: Hello\n");
    stage.write("project/scenarios/hello.script.json", crate::cmd::HELLO);
    let question = r#"{"id": "1", "kind": "question", "questions": [{"question": "Which format?"}]}"#;
    stage.write("project/questions/req-1.json", question);
    if ["trace", "runs"].contains(&verb) {
        crate::cmd::tried(&stage, &["skill", "skills/changelog", "Hello", "--script", "hello.json"]);
    }
    if ["judge", "scenario"].contains(&verb) {
        crate::cmd::tried(&stage, &["test", "--scripted", "scenarios/hello.yaml"]);
    }
    if ["replay", "tape"].contains(&verb) {
        crate::cmd::record::recorded(&stage);
    }
    if verb == "agent" {
        crate::cmd::agent::planted(&stage, "2.1.327");
    }
    if verb == "image" {
        let own = Own::on(stage);
        // The one that the examples name; no registry is asked for it.
        own.import("docker.io/library/debian:12-slim", &hollow());
        return own.stage;
    }
    stage
}

/// Verbs whose examples do not disturb each other: they share a stage, which takes a run of the agent to make.
const SHARING: [&str; 5] = ["trace", "runs", "judge", "replay", "tape"];

#[test]
fn every_example_runs() {
    let verbs = verbs();
    let mut stages: Vec<(String, Vec<String>)> = Vec::new();
    for verb in all() {
        let examples = examples(&help(verb.as_deref()));
        assert!(!examples.is_empty(), "the help of {verb:?} has no examples");
        for example in examples {
            let args: Vec<&str> = example.split_whitespace().collect();
            let verb = *args.iter().skip_while(|word| **word != "belljar").nth(1).unwrap();
            assert!(verbs.iter().any(|known| known == verb), "{example}: there is no such verb");
            match stages.iter_mut().find(|(known, _)| known == verb && SHARING.contains(&verb)) {
                Some((_, examples)) => examples.push(example),
                None => stages.push((verb.to_owned(), vec![example])),
            }
        }
    }
    // Much of it is waiting, so there are more at work than processors.
    let waiting = Mutex::new(stages.into_iter());
    let next = || waiting.lock().unwrap().next();
    let work = || {
        while let Some((verb, examples)) = next() {
            let stage = fixture(&verb);
            examples.iter().for_each(|example| runs(&stage, example));
            if verb == "image" {
                Own { stage }.end();
            }
        }
    };
    let workers = 2 * thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
}

fn runs(stage: &Stage, example: &str) {
    let directory = Path::new(env!("CARGO_BIN_EXE_belljar")).parent().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", example]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    if example.contains("belljar image") {
        command.envs(Own::environment(stage));
    }
    // `doctor` is content only where there is an agent.
    let agent = belljar_testkit::agent::real().map(|path| path.with_file_name("").display().to_string());
    command.env("PATH", format!("{}:{}:/usr/bin:/bin", directory.display(), agent.unwrap_or_default()));
    let found = stage.finish(&mut command);
    assert_eq!(found.status.code(), Some(0), "$ {example}\n{}{}", found.stdout, found.stderr);
}

#[test]
fn the_short_help_fits_a_screen() {
    for verb in all() {
        let args = verb.as_deref().into_iter().flat_map(str::split_whitespace);
        let arguments: Vec<&str> = args.chain(["-h"]).collect();
        let text = Stage::new().run(&arguments).stdout;
        assert!(text.lines().count() <= 50 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

/// `docs/reference/cli.md` is what the binary says about itself. `BELLJAR_BLESS=1` writes it.
#[test]
fn the_reference_is_current() {
    let mut page = String::from(
        "<!-- Written from the help of the binary: BELLJAR_BLESS=1 cargo test -p belljar-cli --test cli reference -->\n\n# The command line\n",
    );
    for verb in all() {
        let name = verb.as_deref().map_or("belljar".to_owned(), |verb| format!("belljar {verb}"));
        page.push_str(&format!("\n## {name}\n\n```text\n{}```\n", help(verb.as_deref())));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if blessing() {
        fs::write(file, page).unwrap();
        return;
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == page,
        "docs/reference/cli.md is not current; BELLJAR_BLESS=1 writes it. It should be\n{page}"
    );
}
