//! Options that change one run: they lie above the manifests, need no agreement, and change none.

use crate::cmd::{HELLO, agent_path, script};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = r#"[agents.a]
home = "shared"
env = { MODE = "one", FROM_SHELL = "${NOT_SET}" }

[agents.a.egress]
allow = ["a.test"]
deny = ["ads.test", "*.bad.test", "10.0.0.0/8"]
"#;

/// Every option once; the variable that is not set is given.
const ALL: [&str; 16] = [
    "--allow",
    "b.test:80",
    "--env",
    "FROM_SHELL=two",
    "--env",
    "LANG",
    "--mount",
    "../shown:/data:rw",
    "--workspace",
    "copy",
    "--home",
    "clean",
    "--model",
    "some-model",
    "--backend",
    "bwrap",
];

fn stage() -> Stage {
    let stage = Stage::with(MANIFEST);
    stage.write("shown/file", "shown\n");
    stage
}

fn with_lang(stage: &Stage, arguments: &[&str]) -> Finished {
    stage.finish(stage.command(arguments).env("LANG", "C.UTF-8").env("NOT_SET", "by-shell"))
}

fn standing(stage: &Stage) -> Value {
    let found = with_lang(stage, &["trust", "--json"]);
    serde_json::from_str::<Value>(&found.stdout).unwrap()["data"]["standing"].clone()
}

#[test]
fn each_option_is_in_the_plan_and_marked() {
    let stage = stage();
    let page = with_lang(&stage, &[&["plan"], ALL.as_slice()].concat());
    assert_eq!(page.status.code(), Some(0), "{}", page.stderr);
    for part in [
        "claude-code, some-model (by hand), bubblewrap (by hand)\n",
        ", without what is given by hand\n",
        "(a copy), by hand\n",
        " b.test:80 ",
        " allowed, by hand\n",
        "  rw   /data ",
        " given by hand (from ",
        "  FROM_SHELL given by hand\n",
        "  LANG       your variable LANG, by hand\n",
        "  home = clean nothing persists, by hand\n",
    ] {
        assert!(page.stdout.contains(part), "{part:?} in\n{}", page.stdout);
    }
    assert_eq!(page.stdout.matches("by hand").count(), 9, "and nothing else:\n{}", page.stdout);
    for (key, option) in [
        ("egress.allow-2", "--allow"),
        ("env.FROM_SHELL", "--env"),
        ("env.LANG", "--env"),
        ("mounts./data", "--mount"),
        ("workspace", "--workspace"),
        ("home", "--home"),
        ("model", "--model"),
        ("backend", "--backend"),
    ] {
        let found = with_lang(&stage, &[&["plan", "--why", key], ALL.as_slice()].concat());
        let origin = format!("\n  given by hand: {option}, for this run\n");
        assert!(found.stdout.ends_with(&origin), "{key}: {found:?}");
    }
    for (key, place) in [("egress.allow-1", "belljar.toml:6:10"), ("env.MODE", "belljar.toml:3:9")] {
        let found = with_lang(&stage, &[&["plan", "--why", key], ALL.as_slice()].concat());
        assert!(found.stdout.ends_with(&format!("\n  {place}\n")), "{key}: {found:?}");
    }
}

/// The digest, and with it an agreement, is about what the manifests ask for.
#[test]
fn an_agreement_stays_valid_and_none_comes_from_what_is_given_by_hand() {
    require!(Bwrap);
    let stage = stage();
    // The backend is part of what is agreed to.
    let options = &ALL[..14];
    let data = |arguments: &[&str]| {
        let found = with_lang(&stage, arguments);
        serde_json::from_str::<Value>(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"))["data"]
            .clone()
    };
    let plain = data(&["plan", "--json"]);
    let given = data(&[&["plan", "--json"], options].concat());
    assert_eq!(plain["digest"], given["digest"]);
    assert_ne!(plain["plan"], given["plan"]);
    assert_eq!(plain["by_hand"], json!([]));
    let keys =
        json!(["model", "home", "workspace", "egress.allow-2", "env.FROM_SHELL", "env.LANG", "mounts./data"]);
    assert_eq!(given["by_hand"], keys);
    let digest = plain["digest"].as_str().unwrap().to_owned();

    // Not agreed to: nothing starts, with or without options.
    let exec = |words: &[&str]| {
        with_lang(&stage, &[&["exec"], options, words, &["--", "cat", "/data/file"]].concat())
    };
    let refused = exec(&[]);
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(125), ""), "{}", refused.stderr);
    // What is shown before the question is what an agreement is about.
    assert!(refused.stderr.contains(&digest) && !refused.stderr.contains("by hand"), "{}", refused.stderr);
    assert!(refused.stderr.contains("home = shared"), "{}", refused.stderr);
    assert_eq!(exec(&["--agree-to", &digest]).stdout, "shown\n");
    assert_eq!(standing(&stage), "not agreed to yet");

    // Agreed to at a terminal, beside options: the agreement is to the manifest alone.
    let line = format!(
        "printf 'y\\n' | script -qec \"{} exec {} -- cat /data/file\" /dev/null",
        env!("CARGO_BIN_EXE_belljar"),
        options.join(" ")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project"));
    command.env_clear().envs(stage.environment()).env("SHELL", "/bin/sh").env("LANG", "C.UTF-8");
    let agreed = stage.finish(&mut command);
    assert!(agreed.stdout.contains("shown\r\n"), "{}", agreed.stdout);
    assert_eq!(standing(&stage), "agreed");
    let kept = everything(&stage.path("config/belljar/agreements"));
    assert!(!kept.contains("b.test") && !kept.contains("given by hand") && kept.contains("a.test"), "{kept}");
    assert_eq!(exec(&[]).stdout, "shown\n", "other options need no other agreement");

    // A change of the manifest does.
    stage.write("project/belljar.toml", MANIFEST.replace("a.test", "evil.test"));
    assert_eq!(exec(&[]).status.code(), Some(125));
}

#[test]
fn what_is_given_is_there_inside_and_the_manifest_stays() {
    require!(Bwrap);
    let stage = stage();
    let found = with_lang(
        &stage,
        &[
            &["exec", "--yes"],
            ALL.as_slice(),
            &["--", "sh", "-c", "echo $MODE $FROM_SHELL $LANG; echo new > /data/new; echo x > in-copy"],
        ]
        .concat(),
    );
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "one two C.UTF-8\n"), "{found:?}");
    assert_eq!(fs::read_to_string(stage.path("shown/new")).unwrap(), "new\n");
    assert!(!stage.path("project/in-copy").exists(), "it was made to a copy");
    assert!(found.stderr.contains("1 changed file kept in"), "{}", found.stderr);

    let read_only = with_lang(
        &stage,
        &["exec", "--yes", "--mount", "../shown:/s", "--", "sh", "-c", "cat /s/file; echo x > /s/file"],
    );
    assert!(read_only.stdout == "shown\n" && read_only.stderr.contains("Read-only"), "{read_only:?}");
    // The next run has the manifest's own values again.
    let plain = with_lang(&stage, &["exec", "--yes", "--", "sh", "-c", "echo $FROM_SHELL; ls /data"]);
    assert!(plain.stdout == "by-shell\n" && plain.stderr.contains("/data"), "{plain:?}");
    assert_eq!(fs::read_to_string(stage.path("project/belljar.toml")).unwrap(), MANIFEST);
}

#[test]
fn the_built_in_agent_takes_options_too() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.write("shown/file", "shown\n");
    stage.link("linked", "shown");
    stage.write("odd:name/file", "odd\n");
    for (source, path, expected) in [
        ("../shown:/data", "/data/file", "shown\n"),
        ("../linked:/data", "/data/file", "shown\n"),
        (r"../odd\:name:/data", "/data/file", "odd\n"),
        (r"../odd\:name:/o\:d", "/o:d/file", "odd\n"),
    ] {
        let found = stage.run(&["exec", "--mount", source, "--", "cat", path]);
        assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), expected), "{source}: {found:?}");
    }
}

/// What cannot be meant ends before anything happens.
#[test]
fn what_cannot_be_meant_is_refused_before_anything_happens() {
    let stage = stage();
    stage.write("home/.ssh/id", "secret");
    // As an agent can make one.
    stage.link("project/data", "../home/.ssh");
    let home = format!("{}:/data", stage.path("home").display());
    let odd = format!("{}:/data", stage.path("o:d").display());
    for (arguments, status, said) in [
        (&["--env", "1=x"][..], 2, "invalid value '1=x' for '--env <NAME[=VALUE]>'"),
        (&["--env", "A=1", "--env", "A=2"], 125, "`--env` gives the variable `A` twice"),
        (&["--env", "NOT_HERE"], 125, "the variable `NOT_HERE` is not set in this shell"),
        (&["--env", "HTTPS_PROXY=x"], 125, "`HTTPS_PROXY` is set by belljar and cannot be set here"),
        (&["--env", "BELLJAR_X=x"], 125, "`BELLJAR_X` is set by belljar and cannot be set here"),
        (&["--allow", "https://a.test/x"], 2, "expected a host or `*.domain`, found a URL; write `a.test`"),
        (&["--allow", "*"], 2, "`*` stands only at the front and before a dot"),
        (&["--allow", "ads.test"], 125, "`--allow ads.test` does nothing: the manifest denies that host"),
        (&["--allow", "x.bad.test:80"], 125, "`--allow x.bad.test:80` does nothing"),
        (&["--allow", "*.very.bad.test"], 125, "`--allow *.very.bad.test` does nothing"),
        (&["--allow", "10.1.2.3"], 125, "`--allow 10.1.2.3` does nothing"),
        (&["--mount", "../absent"], 125, "/absent` does not exist"),
        (&["--mount", "../shown:data"], 2, "the target `data` is not an absolute path"),
        (&["--mount", &odd], 2, "a colon in a path is written `\\:`"),
        (&["--mount", "../shown:/data:rwx"], 2, "expected `ro` or `rw` at the end, found `rwx`"),
        (&["--mount", "../shown:/etc"], 125, "nothing can be mounted at `/etc`"),
        (&["--mount", "../shown:/opt/belljar/bin"], 125, "that directory belongs to belljar"),
        (&["--mount", "../shown:/"], 125, "nothing can be mounted at `/`"),
        (&["--mount", &home], 125, "it holds your whole home"),
        (&["--mount", "../config/belljar:/data"], 125, "it holds belljar's own state"),
        (&["--mount", "data:/keys"], 125, "is a link that leads out of the project"),
        (&["--mount", "../shown:/x", "--mount", "../shown:/x"], 125, "something is mounted there already"),
        (&["--workspace", "inplace"], 2, "[possible values: direct, overlay, copy]"),
        (&["--home", "mine"], 2, "[possible values: clean, project, shared]"),
        (&["--model", "-x"], 2, "unexpected argument '-x'"),
        (&["--model", ""], 2, "expected a line of text, found an empty one"),
    ] {
        let base = ["exec", "--yes", "--env", "FROM_SHELL=x"];
        let found = stage.run(&[&base, arguments, &["--", "touch", "made"]].concat());
        assert_eq!(found.status.code(), Some(status), "{arguments:?}: {}", found.stderr);
        assert!(found.stderr.contains(said), "{arguments:?}: {}", found.stderr);
        let planned = stage.run(&[&["plan", "--env", "FROM_SHELL=x"], arguments].concat());
        assert_eq!(planned.status.code(), Some(2), "{arguments:?}: {}", planned.stderr);
    }
    assert!(!stage.path("project/made").exists() && !stage.path("data/belljar/instances").exists());
}

#[test]
fn what_the_agent_is_told_must_not_contradict_itself() {
    let stage = stage();
    for (arguments, status, said) in [
        (&["--continue", "--resume", "x"][..], 2, "cannot be used with"),
        (&["--continue", "--", "--resume=x"], 125, "the arguments behind `--` name a conversation too"),
        (&["--resume", "x", "--", "-c"], 125, "the arguments behind `--` name a conversation too"),
        (&["--continue", "--home", "clean"], 125, "`home = \"clean\"` keeps none"),
        (&["--resume", "--continue"], 2, "a value is required for '--resume <ID>'"),
        (&["-p", ""], 2, "the message is empty"),
        (&["-p", "--continue"], 2, "the agent would take it for a flag"),
    ] {
        let found = stage.run(&[&["run", "--yes", "--env", "FROM_SHELL=x"], arguments].concat());
        assert_eq!(found.status.code(), Some(status), "{arguments:?}: {}", found.stderr);
        assert!(found.stderr.contains(said), "{arguments:?}: {}", found.stderr);
    }
    for verb in ["exec", "shell", "plan"] {
        let found = stage.run(&[verb, "--continue"]);
        assert_eq!(found.status.code(), Some(2), "{verb}: only an agent has conversations");
    }
    let page = stage.run(&[
        "run",
        "--dry-run",
        "--env",
        "FROM_SHELL=x",
        "--resume",
        "abc",
        "-p",
        "go \"on\"",
        "--",
        "--verbose",
    ]);
    let words = "  by hand   \"--resume\" \"abc\" \"-p\" \"go \\\"on\\\"\" \"--verbose\"\n";
    assert!(page.stdout.ends_with(words), "{}", page.stdout);
}

#[test]
fn values_given_by_hand_are_redacted_as_others_are() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a.egress]\nallow = [\"a.test\"]\n");
    let mut command = stage.command(&[
        "exec",
        "--yes",
        "--env",
        "API_TOKEN=by-hand-1234",
        "--env",
        "PLACE",
        "--env",
        "MODE=plain-text-5",
        "--",
        "sh",
        "-c",
        "for host in $API_TOKEN $PLACE $MODE; do \
         curl -s -o /dev/null http://$host.test/; done; exit 0",
    ]);
    let found = stage.finish(command.env("PLACE", "from-shell-77"));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let audit =
        "secrets that enter the sandbox: API_TOKEN (given by hand), PLACE (your variable PLACE, by hand)\n";
    assert!(found.stderr.contains(audit), "{}", found.stderr);
    let kept = everything(&stage.path("home/.local/state/belljar/runs"));
    assert!(kept.contains("plain-text-5.test"), "a text that is no secret: {kept}");
    assert!(kept.contains("[redacted:API_TOKEN]") && kept.contains("[redacted:PLACE]"), "{kept}");
    assert!(!kept.contains("by-hand-1234") && !kept.contains("from-shell-77"), "{kept}");
}

/// The agent's own flags, from its profile, and the lock on a conversation.
#[test]
fn a_message_is_answered_and_the_conversation_goes_on() {
    require!(Agent, Bwrap);
    let stage = Stage::with("[agents.a]\nprompt = \"never sent\"\n");
    stage.write("project/hello.json", HELLO);
    stage.write("project/next.json", script(&[json!({"text": "Gone on."})]));
    let run = |words: &[&str]| {
        let arguments = [&["run", "--yes"], words].concat();
        stage.finish(stage.command(&arguments).env("PATH", agent_path()))
    };
    let first = run(&["--script", "hello.json", "-p", "who $(are) you?"]);
    assert_eq!((first.status.code(), first.stdout.as_str()), (Some(0), "Hello to you.\n"), "{first:?}");
    let again = run(&["--script", "next.json", "--continue", "--prompt", "and now?"]);
    assert_eq!((again.status.code(), again.stdout.as_str()), (Some(0), "Gone on.\n"), "{again:?}");
    let runs = fs::read_dir(stage.path("home/.local/state/belljar/runs")).unwrap();
    let requests = runs.map(|run| run.unwrap().path().join("artifacts/model-requests.jsonl"));
    let requests: Vec<String> = requests.map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(requests.iter().all(|text| text.contains("who $(are) you?") && !text.contains("never sent")));
    assert_eq!(requests.iter().filter(|text| text.contains("and now?")).count(), 1);
    let id = fs::read_dir(stage.path("home/.local/state/belljar/runs"))
        .unwrap()
        .find_map(|run| {
            let artifacts = fs::read_dir(run.unwrap().path().join("artifacts")).ok()?;
            artifacts
                .filter_map(|file| file.ok()?.file_name().into_string().ok())
                .find_map(|name| Some(name.strip_prefix("transcript-")?.strip_suffix(".jsonl")?.to_owned()))
        })
        .expect("the agent keeps its transcript");
    let resumed = run(&["--script", "next.json", "--resume", &id, "-p", "once more"]);
    assert_eq!((resumed.status.code(), resumed.stdout.as_str()), (Some(0), "Gone on.\n"), "{resumed:?}");
}

fn everything(directory: &Path) -> String {
    let mut text = String::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                text.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
            }
        }
    }
    text
}
