//! Git directories that were made to run something on the host, under every verb that takes a directory.
//!
//! Each payload writes a file outside the sandbox, and a `git` that is first on the search path does too.

use crate::cmd::record::{bash, files, main_turn, plain, recorded, scenario, script};
use crate::cmd::{agent_path, verbs};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The skill that the suite's session names.
const SKILL: &str = "project/skills/hello";

/// Where a payload shows that it ran.
fn canaries(stage: &Stage) -> Vec<String> {
    let names = fs::read_dir(stage.path("canaries")).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// A shell line that leaves a canary.
fn payload(stage: &Stage, name: &str) -> String {
    format!("touch {}; false", stage.path("canaries").join(name).display())
}

/// An index (version 3) whose only entry the work tree lacks on purpose, and no object holds.
fn index_of(name: &str) -> Vec<u8> {
    let mut entry = [[0; 24].as_slice(), &0o100_644_u32.to_be_bytes(), &[0; 12], &[0x17; 20]].concat();
    entry.extend((0x4000 | u16::try_from(name.len()).unwrap()).to_be_bytes());
    entry.extend(0x4000_u16.to_be_bytes());
    entry.extend(name.as_bytes());
    entry.resize((entry.len() + 8) & !7, 0);
    [b"DIRC\0\0\0\x03\0\0\0\x01".as_slice(), &entry, &[0; 20]].concat()
}

/// The one that makes git look for an ignore file among the objects.
fn index() -> Vec<u8> {
    index_of(".gitignore")
}

/// A git directory with this configuration.
fn git_directory(stage: &Stage, at: &str, config: &str) {
    stage.write(&format!("{at}/HEAD"), "ref: refs/heads/main\n");
    for directory in ["objects", "refs"] {
        fs::create_dir_all(stage.path(at).join(directory)).unwrap();
    }
    stage.write(&format!("{at}/config"), config);
    stage.write(&format!("{at}/index"), index());
}

/// What makes git fetch the missing object, and run the payload for that.
fn promisor(stage: &Stage, name: &str, worktree: &str) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n{worktree}[extensions]\n\tpartialClone = origin\n\
         [remote \"origin\"]\n\turl = {}\n\tpromisor = true\n\tuploadpack = \"{}\"\n",
        stage.path("project").display(),
        payload(stage, name)
    )
}

/// What else git runs.
fn programs(stage: &Stage, name: &str) -> String {
    let line = |what: &str| payload(stage, &format!("{name}-{what}"));
    format!(
        "[core]\n\tfsmonitor = \"{}\"\n\thooksPath = hooks\n\tsshCommand = \"{}\"\n\tpager = \"{}\"\n\teditor = \"{}\"\n\
         [filter \"f\"]\n\tclean = \"{}\"\n\tsmudge = \"{}\"\n\tprocess = \"{}\"\n\trequired = true\n\
         [diff \"d\"]\n\ttextconv = \"{}\"\n\tcommand = \"{}\"\n[alias]\n\tls-files = \"!{}\"\n",
        line("fsmonitor"),
        line("ssh"),
        line("pager"),
        line("editor"),
        line("clean"),
        line("smudge"),
        line("process"),
        line("textconv"),
        line("command"),
        line("alias")
    )
}

type Plant = fn(&Stage);

/// What is planted, by name. Each is taken away afterwards.
const PLANTED: [(&str, Plant); 13] = [
    ("an embedded bare repository", |stage| {
        git_directory(stage, SKILL, &promisor(stage, "bare", "\tworktree = .\n"));
    }),
    ("a repository around the suite", |stage| {
        git_directory(stage, "project/.git", &promisor(stage, "around", ""));
    }),
    ("a repository in the skill", |stage| {
        git_directory(stage, "project/skills/hello/.git", &promisor(stage, "skill", ""));
    }),
    ("a common directory elsewhere", |stage| {
        git_directory(stage, "project/.git", "[core]\n");
        git_directory(stage, "project/elsewhere", &promisor(stage, "common", ""));
        stage.write("project/.git/commondir", "../elsewhere\n");
    }),
    ("objects elsewhere", |stage| {
        git_directory(stage, "project/.git", &promisor(stage, "alternates", ""));
        git_directory(stage, "project/elsewhere", &promisor(stage, "alternate", ""));
        stage.write(
            "project/.git/objects/info/alternates",
            format!("{}\n", stage.path("project/elsewhere/objects").display()),
        );
    }),
    ("an included configuration", |stage| {
        let included = "[include]\n\tpath = ../more.cfg\n[includeIf \"gitdir:**\"]\n\tpath = ../more.cfg\n";
        git_directory(stage, "project/.git", included);
        stage.write("project/more.cfg", promisor(stage, "included", "") + &programs(stage, "included"));
    }),
    ("a link to a work tree's repository elsewhere", |stage| {
        git_directory(stage, "elsewhere", &promisor(stage, "linked", ""));
        stage.write("project/skills/hello/.git", format!("gitdir: {}\n", stage.path("elsewhere").display()));
    }),
    ("a remote that is a program", |stage| {
        let config = format!(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[protocol]\n\tallow = always\n\
             [remote \"origin\"]\n\turl = \"ext::sh -c '{}'\"\n\tpromisor = true\n",
            payload(stage, "ext").replace("; ", "% ;% ").replace("touch ", "touch% ")
        );
        git_directory(stage, "project/.git", &config);
    }),
    ("programs of all kinds", |stage| {
        git_directory(stage, "project/.git", &programs(stage, "programs"));
        fs::remove_file(stage.path("project/.git/index")).unwrap();
        stage.write("project/.gitattributes", "* filter=f diff=d\n");
        stage.write("project/hooks/post-index-change", format!("#!/bin/sh\n{}\n", payload(stage, "hook")));
        fs::set_permissions(stage.path("project/hooks/post-index-change"), PermissionsExt::from_mode(0o755))
            .unwrap();
    }),
    ("an index cut off", |stage| {
        git_directory(stage, "project/.git", &promisor(stage, "cut", ""));
        stage.write("project/.git/index", &index()[..70]);
    }),
    ("a huge index", |stage| {
        git_directory(stage, "project/.git", &promisor(stage, "huge", ""));
        fs::File::options()
            .write(true)
            .open(stage.path("project/.git/index"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
    }),
    ("an index that claims a billion entries", |stage| {
        git_directory(stage, "project/.git", &promisor(stage, "many", ""));
        let mut index = index();
        index[8] = 0x40;
        stage.write("project/.git/index", index);
    }),
    ("an index and a configuration that are pipes", |stage| {
        git_directory(stage, "project/.git", "");
        for name in ["index", "config"] {
            let path = stage.path("project/.git").join(name);
            fs::remove_file(&path).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
    }),
];

fn run(stage: &Stage, args: &[&str]) -> Finished {
    let path = format!("{}:{}", stage.path("bin").display(), agent_path());
    stage.finish(stage.command(args).env("PATH", path))
}

/// A suite with a tape, and a `git` that tells when it is started outside.
fn suite() -> Stage {
    let stage = scenario(&plain());
    recorded(&stage);
    // Each test plants its own; the manifest marks the suite.
    fs::remove_dir_all(stage.path("project/.git")).unwrap();
    stage.write("project/belljar.toml", "[agents.a]\n");
    stage.write("project/old/claude-bottle.json", "{}");
    fs::create_dir(stage.path("canaries")).unwrap();
    stage.write(
        "bin/git",
        format!("#!/bin/sh\ntouch {}/git\nexec /usr/bin/git \"$@\"\n", stage.path("canaries").display()),
    );
    fs::set_permissions(stage.path("bin/git"), PermissionsExt::from_mode(0o755)).unwrap();
    stage
}

/// Verbs that stage a skill, and so read the repository around it.
const STAGING: [&[&str]; 7] = [
    &["skill", "skills/hello", "go", "--include-untracked", "--script", "scenarios/hello.script.json"],
    &["test", "--include-untracked", "--scripted", "scenarios"],
    &["record", "--include-untracked", "--scripted", "scenarios/hello.yaml", "--out", "tapes"],
    &["replay", "scenarios"],
    &["tape", "verify", "scenarios"],
    &["tape", "diff", "scenarios/hello.tape", "scenarios/hello.tape"],
    &["tape", "upgrade-report", "scenarios"],
];

/// Verbs that look at a project.
const LOOKING: [&[&str]; 21] = [
    &["check"],
    &["check", "scenarios"],
    &["scenario", "new", "skills/hello", "--out", "made/hello.yaml"],
    &["script", "new", "scenarios/hello.yaml", "--force"],
    &["plan"],
    &["plan", "--lowered"],
    &["run", "--dry-run"],
    &["exec", "--yes", "--", "true"],
    &["shell", "--yes", "--dry-run"],
    &["trust", "--json"],
    &["import", "old"],
    &["init", "--stdout"],
    &["diff"],
    &["apply"],
    &["discard", "--yes"],
    &["instances"],
    &["gc", "--dry-run"],
    &["decide", "--tool", "Bash", "--scenario", "scenarios/hello.yaml"],
    &["tape", "show", "scenarios/hello.tape"],
    &["tape", "to-script", "scenarios/hello.tape"],
    &["chat", "skills/hello", "--script", "scenarios/hello.script.json"],
];

/// Verbs that take no directory of a stranger.
const OTHERS: [&str; 13] = [
    "agent",
    "answer",
    "completions",
    "doctor",
    "findings",
    "gates",
    "image",
    "judge",
    "man",
    "prove",
    "runs",
    "schema",
    "trace",
];

#[test]
fn every_verb_is_tried_or_said_not_to_be() {
    let tried: BTreeSet<String> = STAGING
        .iter()
        .chain(&LOOKING)
        .map(|args| args[0].to_owned())
        .chain(OTHERS.map(str::to_owned))
        .collect();
    assert_eq!(tried, verbs().into_iter().collect());
}

/// Ended by itself, and where it failed it says why.
#[track_caller]
fn assert_sane(what: &str, args: &[&str], found: &Finished) {
    let status = found.status.code();
    assert!(status.is_some_and(|status| status != 101), "{what}, {args:?}: {found:?}");
    let output = format!("{}{}", found.stdout, found.stderr);
    assert!(status == Some(0) || !output.trim().is_empty(), "{what}, {args:?}: {found:?}");
    assert!(!output.contains("panicked"), "{what}, {args:?}: {output}");
}

#[test]
fn nothing_of_a_strangers_repository_runs() {
    require!(Agent, Bwrap, Git);
    let stage = suite();
    let before = names(&stage.path("project"));
    for (what, plant) in PLANTED {
        plant(&stage);
        for args in STAGING.iter().chain(&LOOKING) {
            let found = run(&stage, args);
            assert_eq!(canaries(&stage), [""; 0], "{what}, {args:?}: {found:?}");
            assert_sane(what, args, &found);
        }
        clear(&stage.path("project"), &before);
        clear(&stage.path(SKILL), &BTreeSet::from(["SKILL.md".to_owned(), "scripts".to_owned()]));
        fs::remove_dir_all(stage.path("elsewhere")).ok();
    }
}

#[test]
fn a_repository_that_cannot_be_read_is_named_and_one_that_can_is_read() {
    require!(Agent, Bwrap, Git);
    let stage = suite();
    let skill = ["skill", "skills/hello", "go", "--script", "scenarios/hello.script.json"];
    let before = names(&stage.path("project"));
    let reasons = [
        ("a repository around the suite", "sparse-checkout disable"),
        ("an index cut off", "damaged or cut off"),
        ("a huge index", "larger than 64 MiB"),
        ("a link to a work tree's repository elsewhere", "does not name this directory as its work tree"),
        ("an index and a configuration that are pipes", "not a regular file"),
    ];
    for (what, why) in reasons {
        let (_, plant) = PLANTED.iter().find(|(name, _)| *name == what).unwrap();
        plant(&stage);
        let found = run(&stage, &skill);
        assert_eq!(found.status.code(), Some(2), "{what}: {found:?}");
        assert!(found.stderr.contains(why) && found.stderr.contains(".git"), "{what}: {}", found.stderr);
        clear(&stage.path("project"), &before);
        fs::remove_file(stage.path(SKILL).join(".git")).ok();
    }
    for what in ["programs of all kinds", "an embedded bare repository"] {
        let (_, plant) = PLANTED.iter().find(|(name, _)| *name == what).unwrap();
        plant(&stage);
        let found = run(&stage, &["test", "--scripted", "--include-untracked", "scenarios/hello.yaml"]);
        assert_eq!(found.status.code(), Some(0), "{what}: {found:?}");
        assert_eq!(canaries(&stage), [""; 0], "{what}");
        clear(&stage.path("project"), &before);
    }
}

#[test]
fn a_file_behind_a_link_is_not_staged() {
    require!(Agent, Bwrap);
    let show = "cat /opt/belljar/agent/.claude/skills/hello/keys/id | tr a-z A-Z";
    let turns = [main_turn(&json!([bash(show)])), main_turn(&json!([{"text": "all done"}]))];
    // With the link itself among the files, and without.
    for ignored in ["", "keys\n"] {
        let stage = scenario(&script(&turns));
        stage.write("home/.ssh/id", "the-key-of-the-user\n");
        stage.link("project/skills/hello/keys", &stage.path("home/.ssh").display().to_string());
        git_directory(&stage, "project/skills/hello/.git", "");
        stage.write("project/skills/hello/.git/index", index_of("keys/id"));
        stage.write("project/skills/hello/.gitignore", ignored);
        fs::create_dir(stage.path("canaries")).unwrap();
        let found = run(&stage, &["test", "--scripted", "--include-untracked", "scenarios/hello.yaml"]);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        assert_eq!(fs::read_to_string(stage.path("home/.ssh/id")).unwrap(), "the-key-of-the-user\n");
        let kept = files(&stage.path("home/.local/state/belljar"));
        let content = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        assert!(kept.iter().any(|path| content(path).contains("hello/keys/id")), "the run is kept");
        let leaked: Vec<&PathBuf> =
            kept.iter().filter(|path| content(path).contains("THE-KEY-OF-THE-USER")).collect();
        assert_eq!(leaked, [] as [&PathBuf; 0], "{ignored:?}");
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// Removes what was not there.
fn clear(directory: &Path, keep: &BTreeSet<String>) {
    for name in names(directory).difference(keep) {
        let path = directory.join(name);
        fs::remove_dir_all(&path).or_else(|_file| fs::remove_file(&path)).unwrap();
    }
}
