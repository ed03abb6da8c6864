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

/// What a line of commands prints, typed at a terminal into a shell inside.
fn typed(lines: &str) -> String {
    let stage = Stage::new();
    let line = format!(
        "printf '%s\\nexit\\n' \"$LINES_TO_TYPE\" | script -qec \"{} shell\" /dev/null",
        env!("CARGO_BIN_EXE_belljar")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    stage.finish(command.env("SHELL", "/bin/sh").env("LINES_TO_TYPE", lines)).stdout
}

#[test]
fn the_terminal_has_its_name_inside_and_programs_that_want_one_work() {
    require!(Bwrap);
    let found = typed(
        "echo \"named-$(tty)\"; ps -o tty= -p $$ | sed s/^/by-ps-/; script -qec 'echo \"nested-$(tty)\"' /dev/null </dev/null",
    );
    for expected in ["named-/dev/pts/0", "by-ps-pts/0", "nested-/dev/pts/1"] {
        assert!(found.contains(expected), "{expected} is missing in:\n{found}");
    }
}

#[test]
fn without_a_kind_of_terminal_a_common_one_is_assumed() {
    require!(Bwrap);
    assert!(Stage::new().environment().iter().all(|(name, _)| *name != "TERM"));
    let found = typed("echo \"for-$TERM-$(tput cols >/dev/null && echo known)\"");
    assert!(found.contains("for-xterm-256color-known"), "{found}");
}

#[test]
fn a_multiplexer_runs_inside() {
    require!(Bwrap, Tmux);
    let found = typed(
        "mkfifo /tmp/said && tmux -f /dev/null -L inner new-session -d -s s 'tty > /tmp/said' && echo \"pane-$(cat /tmp/said)\"",
    );
    assert!(found.contains("pane-/dev/pts/"), "{found}");
}

#[test]
fn nobody_inside_has_the_other_end_of_the_terminal() {
    require!(Bwrap);
    // The shell, the first process and all others: none has the multiplexer of terminals open.
    let found = typed(
        "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c ptmx | sed s/^/controllers-/; ls /proc/1/fd >/dev/null 2>&1 || echo first-is-closed",
    );
    assert!(found.contains("controllers-0") && found.contains("first-is-closed"), "{found}");
}
