use crate::cmd::verbs;
use crate::stage::Stage;
use belljar_testkit::require;
use std::process::Command;

/// The script for a shell, which the real shell must be able to read.
fn script_is_read_by(shell: &str) {
    let stage = Stage::new();
    // Completions need nothing of the user, not even a home.
    let script = stage.finish(stage.command(&["completions", shell]).env_clear());
    assert_eq!(script.status.code(), Some(0), "{}", script.stderr);
    for verb in verbs() {
        assert!(script.stdout.contains(&verb), "{verb}");
    }
    stage.write("script", &script.stdout);
    let read = stage.finish(Command::new(shell).arg("-n").arg(stage.path("script")));
    assert!(read.status.success(), "{}", read.stderr);
    assert_eq!(read.stderr, "");
}

#[test]
fn bash_reads_it() {
    script_is_read_by("bash");
}

/// What the script answers to a word and a tab.
#[test]
fn bash_completes_with_it() {
    let stage = Stage::new();
    stage.write("script", stage.run(&["completions", "bash"]).stdout);
    let ask = "source \"$0\"; COMP_WORDS=(belljar tr); COMP_CWORD=1; _belljar belljar tr belljar; echo \"${COMPREPLY[@]}\"";
    let answer = stage.finish(Command::new("bash").args(["--norc", "-c", ask]).arg(stage.path("script")));
    assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("trust trace\n", ""));
}

#[test]
fn zsh_reads_it() {
    require!(Zsh);
    script_is_read_by("zsh");
}

#[test]
fn fish_reads_it() {
    require!(Fish);
    script_is_read_by("fish");
}

#[test]
fn another_shell_is_an_error_that_names_the_known_ones() {
    let found = Stage::new().run(&["completions", "tcsh"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.contains("[possible values: bash, zsh, fish]"), "{}", found.stderr);
}
