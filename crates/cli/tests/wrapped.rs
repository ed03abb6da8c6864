//! The agent behind a wrapper on the search path: `run` starts the program behind it, or says before it starts anything
//! that there is none to be found, and `doctor` says the same.

use crate::cmd::HELLO;
use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program};
use belljar_testkit::{agent, require};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SHIM: &str = "home/.local/share/mise/shims";

fn stage() -> Stage {
    let stage = Stage::new();
    stage.write("project/hello.json", HELLO);
    stage
}

fn script(stage: &Stage, name: &str, text: &str) {
    stage.write(name, text);
    fs::set_permissions(stage.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs belljar with a directory first on its search path.
fn with(stage: &Stage, first: &str, arguments: &[&str]) -> Finished {
    let path = format!("{}:/usr/bin:/bin", stage.path(first).display());
    stage.finish(stage.command(arguments).env("PATH", path).env_remove("XDG_DATA_HOME"))
}

const RUN: [&str; 6] = ["run", "--script", "hello.json", "--", "-p", "hello"];

#[test]
fn the_program_behind_a_shim_is_started_and_named_by_doctor() {
    require!(Agent, Bwrap);
    let stage = stage();
    // A shim of mise is a link to mise, which must not be asked.
    script(&stage, "home/.local/bin/mise", "#!/bin/sh\ntouch \"$HOME/asked\"\nexit 1\n");
    stage.link(&format!("{SHIM}/claude"), stage.path("home/.local/bin/mise").to_str().unwrap());
    let kept = "home/.local/share/mise/installs/npm-anthropic-ai-claude-code/2.1.197/bin/claude";
    let program = agent::real().unwrap().canonicalize().unwrap();
    stage.link(kept, program.to_str().unwrap());
    let found = with(&stage, SHIM, &RUN);
    assert_eq!((found.status.code(), found.stdout.trim()), (Some(0), "Hello to you."), "{found:?}");
    let doctor = with(&stage, SHIM, &["doctor"]).stdout;
    let wanted = format!("{}, tested, {} (behind the wrapper ", agent::VERSION, program.display());
    assert!(doctor.contains(&wanted), "{wanted} in\n{doctor}");
    let which = with(&stage, SHIM, &["agent", "which", "claude-code"]);
    assert_eq!(which.stdout, format!("{}\n", program.display()));
    assert!(which.stderr.contains("behind the wrapper"), "{}", which.stderr);
    assert!(!stage.path("home/asked").exists() && !stage.path("asked").exists());
}

/// `run` and `doctor` say the same, and nothing is started; `exec` needs no agent.
fn is_refused(stage: &Stage, text: &str, why: &str) {
    script(stage, "bin/claude", text);
    let file = stage.path("bin/claude").display().to_string();
    let found = with(stage, "bin", &RUN);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(125), ""), "{found:?}");
    let doctor = with(stage, "bin", &["doctor"]);
    assert_eq!(doctor.status.code(), Some(4), "{doctor:?}");
    let doctor = doctor.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [&file, why, "belljar agent install claude-code", "--agent claude-code@"] {
        assert!(found.stderr.contains(part), "{part} in\n{}", found.stderr);
        assert!(doctor.contains(part), "{part} in\n{doctor}");
    }
    assert_eq!(with(stage, "bin", &["exec", "--", "true"]).status.code(), Some(0));
    let which = with(stage, "bin", &["agent", "which", "claude-code"]);
    assert_eq!(which.status.code(), Some(2), "{which:?}");
    assert!(which.stderr.contains(why), "{which:?}");
    assert!(!stage.path("ran").exists(), "the wrapper was run outside");
}

#[test]
fn a_wrapper_that_leads_nowhere_is_an_error_before_anything_starts() {
    require!(Bwrap);
    let stage = stage();
    let ran = stage.path("ran").display().to_string();
    is_refused(&stage, &format!("#!/bin/sh\ntouch {ran}\nexec claude \"$@\"\n"), "it leads back to itself");
    is_refused(&stage, &format!("#!/bin/sh\ntouch {ran}\nexec \"$AGENT\" \"$@\"\n"), "does not name a file");
    is_refused(&stage, "#!/bin/sh\nexec /nowhere/claude \"$@\"\n", "cannot find `/nowhere/claude`");
}

#[test]
fn npms_wrapper_leads_to_the_program_of_the_platform() {
    require!(Agent, Bwrap);
    let stage = stage();
    // As `npm install --global --ignore-scripts` leaves it.
    let program = agent::real().unwrap();
    let installed = program.parent().and_then(Path::parent).unwrap();
    let global = stage.path("home/npm/lib/node_modules/@anthropic-ai");
    fs::create_dir_all(&global).unwrap();
    let mut copy = Command::new("cp");
    assert!(copy.arg("-a").arg(installed.join("claude-code")).arg(&global).status().unwrap().success());
    let platform = program.parent().unwrap().file_name().unwrap();
    fs::create_dir(global.join(platform)).unwrap();
    copy_program(&program, &global.join(platform).join("claude")).unwrap();
    stage.link("home/npm/bin/claude", "../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe");
    let found = with(&stage, "home/npm/bin", &RUN);
    assert_eq!((found.status.code(), found.stdout.trim()), (Some(0), "Hello to you."), "{found:?}");
}
