//! Files of the project that are run or read outside: their content is part of what was agreed to.

use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn script(stage: &Stage, name: &str, text: &str) {
    stage.write(&format!("project/{name}"), format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(stage.path("project").join(name), PermissionsExt::from_mode(0o755)).unwrap();
}

/// A project whose token comes from a script of its own.
fn project(more: &str) -> Stage {
    let stage = Stage::with(&format!(
        "[agents.a]\n{more}[agents.a.env]\nTOK = {{ command = [\"./scripts/token.sh\"] }}\n"
    ));
    script(&stage, "scripts/token.sh", "echo fine");
    stage
}

fn agree(stage: &Stage) {
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0));
}

const SHOW: [&str; 5] = ["exec", "--", "sh", "-c", "echo $TOK"];

#[test]
fn a_script_that_changed_is_asked_about_by_name() {
    require!(Bwrap);
    let stage = project("");
    agree(&stage);
    assert_eq!(stage.run(&SHOW).stdout, "fine\n");
    let marks = stage.path("ran").display().to_string();
    script(&stage, "scripts/token.sh", &format!("touch {marks}; echo evil"));
    let found = stage.run(&SHOW);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    let path = stage.path("project/scripts/token.sh").display().to_string();
    assert!(found.stderr.contains(&format!("used_outside.{path}.digest")), "{}", found.stderr);
    assert!(!stage.path("ran").exists(), "nothing ran");
    agree(&stage);
    assert_eq!(stage.run(&SHOW).stdout, "evil\n");
    assert!(stage.run(&["plan"]).stdout.contains("scripts/token.sh"));
}

#[test]
fn every_form_of_naming_a_file_counts() {
    require!(Bwrap);
    for source in [
        "{ command = [\"sh\", \"scripts/token.sh\"] }",
        "{ command = [\"sh\", \"-c\", \". ./scripts/token.sh\"] }",
        "{ command = [\"env\", \"X=1\", \"./link\"] }",
        "{ file = \"scripts/token.sh\" }",
    ] {
        let stage = Stage::with(&format!("[agents.a.env]\nTOK = {source}\n"));
        script(&stage, "scripts/token.sh", "echo fine");
        stage.link("project/link", "scripts/token.sh");
        agree(&stage);
        assert_eq!(stage.run(&["exec", "--", "true"]).status.code(), Some(0), "{source}");
        script(&stage, "scripts/token.sh", "echo other");
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(125), "{source}");
        assert!(found.stderr.contains("scripts/token.sh.digest"), "{source}: {}", found.stderr);
    }
}

#[test]
fn a_script_that_changes_between_the_plan_and_its_use_is_an_error() {
    require!(Bwrap);
    let change =
        "{ command = [\"sh\", \"-c\", \"echo 'touch ran; echo evil' >> scripts/token.sh; echo x\"] }";
    for (more, what) in [
        (format!("A = {change}\nTOK = {{ command = [\"./scripts/token.sh\"] }}\n"), "env"),
        (format!("A = {change}\nTOK = {{ file = \"scripts/token.sh\" }}\n"), "file"),
    ] {
        let stage = Stage::with(&format!("[agents.a.env]\n{more}"));
        script(&stage, "scripts/token.sh", "echo fine");
        let found = stage.run(&["exec", "--yes", "--", "true"]);
        assert_eq!(found.status.code(), Some(125), "{what}: {found:?}");
        let path = stage.path("project/scripts/token.sh").display().to_string();
        assert!(
            found.stderr.contains(&format!("`{path}` changed after the plan was made")),
            "{}",
            found.stderr
        );
        assert!(!stage.path("project/ran").exists());
    }
}

#[test]
fn a_program_of_the_project_on_the_path_needs_its_path_written() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a.env]\nTOK = { command = [\"token\"] }\n");
    script(&stage, "bin/token", "echo fine");
    let run = |path: String| stage.finish(stage.command(&["exec", "--yes", "--", "true"]).env("PATH", path));
    let found = run(format!("{}:/usr/bin:/bin", stage.path("project/bin").display()));
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains("a file of the project; write its path"), "{}", found.stderr);
    // A relative entry is not searched at all.
    let found = run("bin:/usr/bin:/bin".to_owned());
    assert!(found.stderr.contains("`token` is not on your PATH"), "{}", found.stderr);
}

#[test]
fn it_is_read_only_inside_and_reported() {
    require!(Bwrap);
    let stage = project("");
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", "echo evil > scripts/token.sh"]);
    assert_ne!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(fs::read_to_string(stage.path("project/scripts/token.sh")).unwrap(), "#!/bin/sh\necho fine\n");
    for line in ["rm scripts/token.sh", "mv scripts/token.sh x", "mv scripts s2", "rm -rf scripts"] {
        let found = stage.run(&["exec", "--yes", "--", "sh", "-c", line]);
        assert_ne!(found.status.code(), Some(0), "{line}: {found:?}");
    }
    assert_eq!(fs::read_to_string(stage.path("project/scripts/token.sh")).unwrap(), "#!/bin/sh\necho fine\n");
    // What happens outside meanwhile is told.
    let mut command = stage.command(&["exec", "--yes", "--", "sh", "-c", "echo ready; read line"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    script(&stage, "scripts/token.sh", "echo other");
    drop(child.stdin.take());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    child.wait().unwrap();
    assert!(told.contains("scripts/token.sh  changed; a manifest"), "{told}");
}

#[test]
fn in_an_overlay_it_needs_its_own_yes() {
    require!(Bwrap);
    let stage = project("workspace = \"overlay\"\n");
    let edit = "echo evil > scripts/token.sh; echo new > new.txt";
    assert_eq!(stage.run(&["exec", "--yes", "--", "sh", "-c", edit]).status.code(), Some(0));
    let found = stage.run(&["apply"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(1), "applied new.txt\n"),
        "{}",
        found.stderr
    );
    assert!(
        found.stderr.contains("left aside: scripts/token.sh: needs a yes of its own"),
        "{}",
        found.stderr
    );
    assert_eq!(fs::read_to_string(stage.path("project/scripts/token.sh")).unwrap(), "#!/bin/sh\necho fine\n");
    let found = stage.run(&["apply", "--allow", "scripts/token.sh", "--", "scripts/token.sh"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

#[test]
fn a_credential_of_a_script_is_held_to_the_same() {
    require!(Bwrap);
    let change = "[\"sh\", \"-c\", \"echo evil >> scripts/token.sh; echo secret-value\"]";
    let stage = Stage::with(&format!(
        "[agents.a.egress]\nallow = [\"a.example.org\", \"b.example.org\"]\n\
         [[agents.a.credentials]]\nhost = \"a.example.org\"\nvalue = {{ command = {change} }}\n\
         [[agents.a.credentials]]\nhost = \"b.example.org\"\nvalue = {{ command = [\"./scripts/token.sh\"] }}\n"
    ));
    script(&stage, "scripts/token.sh", "echo secret-value");
    let plan = stage.json(&["plan", "--json"]);
    let path = stage.path("project/scripts/token.sh").display().to_string();
    assert!(plan.to_string().contains(&format!("{{\"what\":\"{path}\"")), "{plan:#}");
    let found = stage.run(&["exec", "--yes", "--", "true"]);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains(&format!("`{path}` changed after the plan was made")), "{}", found.stderr);
}

#[test]
fn programs_that_the_repository_of_a_linked_work_tree_names_are_guarded() {
    require!(Bwrap, Git);
    let stage = Stage::new();
    let git = |folder: &str, words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .current_dir(stage.path(folder))
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(words);
        assert!(command.env("HOME", stage.path("home")).output().unwrap().status.success(), "{words:?}");
    };
    stage.write("main/tools/clean", "cat\n");
    stage.write("main/other", "x\n");
    git("main", &["init", "-q"]);
    git("main", &["add", "."]);
    git("main", &["commit", "-q", "-m", "first"]);
    git("main", &["config", "filter.x.clean", "sh tools/clean"]);
    fs::remove_dir(stage.path("project")).unwrap();
    git("main", &["worktree", "add", "-q", &stage.path("project").display().to_string()]);
    let write = |path: &str| stage.run(&["exec", "--yes", "--", "sh", "-c", &format!("echo evil > {path}")]);
    assert_eq!(write("other").status.code(), Some(0));
    assert_ne!(write("tools/clean").status.code(), Some(0));
    assert_eq!(fs::read_to_string(stage.path("project/tools/clean")).unwrap(), "cat\n");
}

/// A directory, a name that a program completes, and a pattern stand for what lies there.
#[test]
fn what_a_command_may_find_by_itself_in_a_named_directory_counts() {
    require!(Bwrap);
    for command in [
        r#"["sh", "-c", "cd tools && ./get.sh"]"#,
        r#"["env", "-C", "tools", "./get.sh"]"#,
        r#"["sh", "-c", ". tools/get.s?"]"#,
        r#"["sh", "-c", "for f in tools/*.sh; do . ./$f; done"]"#,
    ] {
        let stage = Stage::with(&format!("[agents.a.env]\nA = {{ command = {command} }}\n"));
        stage.write("project/tools/get.sh", "#!/bin/sh\necho 1\n");
        let path = stage.path("project/tools/get.sh");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0), "{command}");
        let found = stage.run(&["exec", "--yes", "--", "sh", "-c", "echo evil >> tools/get.sh"]);
        assert!(found.stderr.contains("Read-only"), "{command}: {}", found.stderr);
        stage.write("project/tools/get.sh", "#!/bin/sh\necho 2\n");
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(125), "{command}: {}", found.stderr);
        assert!(found.stderr.contains("project/tools"), "{command}: {}", found.stderr);
    }
}

#[test]
fn an_agent_cannot_change_what_another_agent_has_run_outside() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a.env]\nA = { command = [\"./key\"] }\n[agents.b]\n");
    stage.write("project/key", "#!/bin/sh\necho 1\n");
    fs::set_permissions(stage.path("project/key"), fs::Permissions::from_mode(0o755)).unwrap();
    let found = stage.run(&[
        "exec",
        "b",
        "--yes",
        "--",
        "sh",
        "-c",
        "echo evil >> key; mv key other; echo x > other",
    ]);
    assert!(found.stderr.contains("Read-only"), "{}", found.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/key")).unwrap(), "#!/bin/sh\necho 1\n");
}

/// `npm run` puts a directory of the project on the search path.
#[test]
fn programs_of_the_project_on_the_search_path_do_not_run_outside() {
    require!(Bwrap);
    let stage = Stage::new();
    let canary = stage.path("canary");
    for name in ["bwrap", "podman", "claude", "git"] {
        stage.write(
            &format!("project/node_modules/.bin/{name}"),
            format!("#!/bin/sh\ntouch {}\n", canary.display()),
        );
        let path = stage.path(&format!("project/node_modules/.bin/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", stage.path("project/node_modules/.bin").display());
    stage.skill("project/skills", "notes");
    stage.write("project/one.json", crate::cmd::HELLO);
    for words in [
        &["exec", "--", "true"][..],
        &["exec", "--", "true"],
        &["doctor"],
        &["skill", "skills/notes", "go", "--script", "one.json"],
        &["gc", "--dry-run"],
    ] {
        let found = stage.finish(stage.command(words).env("PATH", &path));
        assert!(!canary.exists(), "{words:?}: {}", found.stderr);
    }
}

/// What such a configuration names behind its first mebibyte would not be guarded.
#[test]
fn a_git_configuration_that_is_too_large_to_read_refuses_the_run() {
    require!(Bwrap);
    let padding = "# padding\n".repeat((1 << 20) / 10 + 1);
    let config = format!("[core]\n\tbare = false\n{padding}\tfsmonitor = ./tools/x\n");
    let own = Stage::new();
    for name in ["HEAD", "objects/x", "refs/x"] {
        own.write(&format!("project/.git/{name}"), "ref: refs/heads/main\n");
        own.write(&format!("main/.git/{name}"), "ref: refs/heads/main\n");
    }
    own.write("project/.git/config", &config);
    let found = own.run(&["exec", "--yes", "--", "true"]);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    let path = own.path("project/.git/config").display().to_string();
    assert!(found.stderr.contains(&format!("`{path}` is larger than 1 MiB")), "{}", found.stderr);

    // The same for the repository of a linked work tree.
    own.write("main/.git/config", &config);
    own.write("main/.git/worktrees/project/HEAD", "ref: refs/heads/main\n");
    own.write("main/.git/worktrees/project/commondir", "../..\n");
    let pointer = own.path("project/.git").display().to_string();
    own.write("main/.git/worktrees/project/gitdir", format!("{pointer}\n"));
    fs::remove_dir_all(own.path("project/.git")).unwrap();
    let directory = own.path("main/.git/worktrees/project").display().to_string();
    own.write("project/.git", format!("gitdir: {directory}\n"));
    let found = own.run(&["exec", "--yes", "--", "true"]);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains("is larger than 1 MiB"), "{}", found.stderr);
}
