use crate::stage::Stage;
use belljar_testkit::require;
use std::process::{Command, Stdio};

#[test]
fn a_shell_that_reads_a_pipe_runs_what_it_reads() {
    require!(Bwrap);
    let stage = Stage::new();
    let line = format!("echo 'echo $HOME; exit 5' | {} shell", env!("CARGO_BIN_EXE_belljar"));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let found = stage.finish(command.stdin(Stdio::null()));
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(5), "/home/agent\n"), "{}", found.stderr);
}

#[test]
fn at_a_terminal_it_has_one_of_its_own() {
    require!(Bwrap);
    let stage = Stage::new();
    // `script` gives the binary a terminal; the answer of the inner shell shows a second one.
    let line = format!(
        "printf 'test -t 0 && test -t 1 && echo inner-$((40 + 2))\\nexit 3\\n' | script -qec \"{} shell\" /dev/null",
        env!("CARGO_BIN_EXE_belljar")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let found = stage.finish(command.env("SHELL", "/bin/sh"));
    assert!(found.stdout.contains("inner-42"), "{}", found.stdout);
    assert_eq!(found.status.code(), Some(3));
}
