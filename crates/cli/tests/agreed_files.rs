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
        "{ command = [\"sh\", \"./scripts/token.sh\"] }",
        "{ command = [\"scripts/token.sh\"] }",
        "{ command = [\"sh\", \"-c\", \". HERE/scripts/token.sh\"] }",
        "{ command = [\"sh\", \"-c\", \"cd HERE/scripts && ./token.sh\"] }",
        "{ command = [\"sh\", \"-c\", \"for f in HERE/scripts/*.sh; do . $f; done\"] }",
        "{ command = [\"env\", \"X=1\", \"./link\"] }",
        "{ file = \"scripts/token.sh\" }",
    ] {
        let stage = Stage::new();
        let here = stage.path("project").display().to_string();
        stage.write(
            "project/belljar.toml",
            format!("[agents.a.env]\nTOK = {}\n", source.replace("HERE", &here)),
        );
        script(&stage, "scripts/token.sh", "echo fine");
        stage.link("project/link", "scripts/token.sh");
        agree(&stage);
        assert_eq!(stage.run(&["exec", "--", "true"]).status.code(), Some(0), "{source}");
        script(&stage, "scripts/token.sh", "echo other");
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(125), "{source}");
        assert!(found.stderr.contains("project/scripts"), "{source}: {}", found.stderr);
    }
}

#[test]
fn a_script_that_changes_between_the_plan_and_its_use_is_an_error() {
    require!(Bwrap);
    let change =
        "{ command = [\"sh\", \"-c\", \"echo 'echo evil' >> $HOME/../project/scripts/token.sh; echo x\"] }";
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
    // A change outside during the run is reported.
    let mut command = stage.command(&["exec", "--yes", "--", "sh", "-c", "echo ready; read line"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    script(&stage, "scripts/token.sh", "echo other");
    drop(child.stdin.take());
    let mut report = String::new();
    child.stderr.take().unwrap().read_to_string(&mut report).unwrap();
    child.wait().unwrap();
    assert!(report.contains("scripts/token.sh  changed; a manifest"), "{report}");
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
        found.stderr.contains("not applied: scripts/token.sh: needs your confirmation"),
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
    let change = "[\"sh\", \"-c\", \"echo evil >> $HOME/../project/scripts/token.sh; echo secret-value\"]";
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
    let git = |directory: &str, args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .current_dir(stage.path(directory))
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args);
        assert!(command.env("HOME", stage.path("home")).output().unwrap().status.success(), "{args:?}");
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

/// A command runs where the project is not, so that it finds nothing there by itself.
#[test]
fn a_command_finds_nothing_of_the_project_that_it_does_not_name() {
    require!(Bwrap, Python);
    let stage = Stage::new();
    let canary = stage.path("canary");
    let touch = format!("touch {}; echo x", canary.display());
    for name in ["token.sh", "scripts/token.sh", "node_modules/.bin/gh", "gh"] {
        script(&stage, name, &touch);
    }
    stage.write("project/tok.py", format!("import os; os.system({touch:?})\n"));
    stage.write("project/Makefile", format!("all:\n\t{touch}\n"));
    let path = format!("{}:/usr/bin:/bin", stage.path("project/node_modules/.bin").display());
    for command in [
        r#"["python3", "-m", "tok"]"#,
        r#"["sh", "-c", "./t*.sh"]"#,
        r#"["sh", "-c", "exec ./tok?n.sh"]"#,
        r#"["env", "PATH=scripts:/bin:/usr/bin", "token.sh"]"#,
        r#"["bash", "-c", "PATH=scripts:$PATH token.sh"]"#,
        r#"["env", "-Cscripts", "sh", "-c", "./token.sh"]"#,
        r#"["sh", "-c", "./s*/t*.sh"]"#,
        r#"["sh", "-c", "cd s*; ./token.sh"]"#,
        r#"["bash", "-c", "~+/scripts/token.sh"]"#,
        r#"["env", "-S./scripts/token.sh x"]"#,
        r#"["sh", "-c", "$PWD/token.sh"]"#,
        r#"["sh", "-c", "gh auth token"]"#,
        r#"["env", "gh", "auth", "token"]"#,
        r#"["sh", "-c", "HERE/t*.sh"]"#,
        r#"["sh", "-c", "cd HERE && ./token.sh"]"#,
        r#"["make", "-s", "-C", "HERE"]"#,
        r#"["env", "-C", "./", "./token.sh"]"#,
    ] {
        let command = command.replace("HERE", stage.path("project").to_str().unwrap());
        stage.write("project/belljar.toml", format!("[agents.a.env]\nTOK = {{ command = {command} }}\n"));
        let found = stage.finish(stage.command(&["exec", "--yes", "--", "true"]).env("PATH", &path));
        assert_ne!(found.status.code(), Some(0), "{command}");
        assert!(!canary.exists(), "{command}: {}", found.stderr);
    }
}

/// A relative path of the user's own manifest is not one of the project that it is used in.
#[test]
fn the_users_manifest_runs_nothing_of_a_project() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.write("config/belljar/belljar.toml", "[agents.a.env]\nTOK = { command = [\"./token.sh\"] }\n");
    stage.write("config/belljar/token.sh", "#!/bin/sh\necho own\n");
    fs::set_permissions(stage.path("config/belljar/token.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    script(&stage, "token.sh", "echo stranger");
    assert_eq!(stage.run(&SHOW).stdout, "own\n");
}

/// A link could lead to any file of the user's, and a fault quotes lines.
#[test]
fn nothing_is_quoted_of_a_file_that_a_link_leads_to() {
    let stage = Stage::new();
    stage.write("home/.ssh/id", "PRIVATE KEY of the user\n");
    for (name, args) in [
        ("belljar.toml", &["check"][..]),
        ("belljar.toml", &["plan"]),
        ("belljar.toml", &["exec", "--", "true"]),
        ("a.yaml", &["test", "--scripted", "a.yaml"]),
        ("a.yaml", &["trust", "--suite", "a.yaml"]),
        ("a.yaml", &["decide", "--tool", "Bash", "--scenario", "a.yaml"]),
        ("a.json", &["import", "a.json"]),
    ] {
        fs::remove_file(stage.path("project/belljar.toml")).ok();
        stage.link(&format!("project/{name}"), stage.path("home/.ssh/id").to_str().unwrap());
        let found = stage.run(args);
        fs::remove_file(stage.path("project").join(name)).unwrap();
        assert_ne!(found.status.code(), Some(0), "{args:?}");
        assert!(
            !found.stdout.contains("PRIVATE") && !found.stderr.contains("PRIVATE"),
            "{args:?}: {}",
            found.stderr
        );
    }
}

/// An agent may have put a link there.
#[test]
fn what_the_users_manifest_takes_from_a_project_is_asked_about_when_it_leads_elsewhere() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.write("home/private/key", "the key");
    stage.write("project/data/file", "data");
    stage.write("project/role.md", "be kind");
    for wish in [
        "mounts = [{ source = \"HERE/data\", target = \"/data\", mode = \"rw\" }]",
        "role = \"HERE/role.md\"",
    ] {
        let wish = wish.replace("HERE", stage.path("project").to_str().unwrap());
        stage.write("config/belljar/belljar.toml", format!("[agents.a]\n{wish}\n"));
        agree(&stage);
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(0), "{wish}: {}", found.stderr);
        for (name, to) in [("data", "private"), ("role.md", "private/key")] {
            let place = stage.path("project").join(name);
            fs::rename(&place, stage.path("project").join(format!("old-{name}"))).unwrap();
            std::os::unix::fs::symlink(stage.path("home").join(to), &place).unwrap();
        }
        let found = stage.run(&["exec", "--", "true"]);
        assert_ne!(found.status.code(), Some(0), "{wish}: {}", found.stderr);
        assert!(!found.stderr.contains("the key"), "{wish}: {}", found.stderr);
        for name in ["data", "role.md"] {
            let place = stage.path("project").join(name);
            fs::remove_file(&place).unwrap();
            fs::rename(stage.path("project").join(format!("old-{name}")), &place).unwrap();
        }
    }
}

/// A link of the project that leads out of it belongs to the agreement by where it leads.
#[test]
fn a_link_that_leads_elsewhere_since_the_agreement_is_asked_about() {
    require!(Bwrap);
    for wish in [r#"{ command = ["./get", "a"] }"#, r#"{ command = ["sh", "./get"] }"#, r#"{ file = "get" }"#]
    {
        let stage = Stage::with(&format!("[agents.a.env]\nA = {wish}\n"));
        for name in ["one", "two"] {
            stage.write(&format!("outside/{name}"), "#!/bin/sh\necho 1\n");
            let path = stage.path(&format!("outside/{name}"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        stage.link("project/get", stage.path("outside/one").to_str().unwrap());
        assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0), "{wish}");
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(0), "{wish}: {}", found.stderr);
        fs::remove_file(stage.path("project/get")).unwrap();
        stage.link("project/get", stage.path("outside/two").to_str().unwrap());
        let found = stage.run(&["exec", "--", "true"]);
        assert_eq!(found.status.code(), Some(125), "{wish}: {}", found.stderr);
        assert!(found.stderr.contains("project/get"), "{wish}: {}", found.stderr);
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
    for args in [
        &["exec", "--", "true"][..],
        &["doctor"],
        &["skill", "skills/notes", "go", "--script", "one.json"],
        &["gc", "--dry-run"],
    ] {
        let found = stage.finish(stage.command(args).env("PATH", &path));
        assert!(!canary.exists(), "{args:?}: {}", found.stderr);
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
