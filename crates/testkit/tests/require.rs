//! `require!` as a test sees it: a test of this binary is run again in an environment where its prerequisite is
//! missing.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::Command;
use std::time::Duration;

use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{agent, require};

/// An ordinary test with a prerequisite; the others run it as a child.
#[test]
fn needs_the_agent() {
    require!(Agent);
    assert!(agent::real().is_ok());
    println!("went on");
}

/// Runs `needs_the_agent` with an agent that does not exist.
fn without_agent(variables: &[(&str, &str)]) -> Finished {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "needs_the_agent", "--nocapture"]);
    command.env_remove("BELLJAR_REQUIRE").env_remove("BELLJAR_SKIP_LOG");
    command.env("BELLJAR_TEST_AGENT", "/nonexistent/agent").envs(variables.iter().copied());
    run_within(&mut command, Duration::from_secs(60)).unwrap()
}

const SKIPPED: &str = "SKIPPED require::needs_the_agent : needs Agent: \
    BELLJAR_TEST_AGENT names /nonexistent/agent, which is not a file\n";

#[test]
fn a_missing_prerequisite_skips_the_test_visibly() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("skipped");
    let log_path = log.to_str().unwrap();
    for _ in 0..2 {
        let child = without_agent(&[("BELLJAR_SKIP_LOG", log_path), ("BELLJAR_REQUIRE", "Git,Root")]);
        assert!(child.status.success(), "{child:?}");
        assert!(child.stderr.contains(SKIPPED), "{child:?}");
        assert!(!child.stdout.contains("went on"), "{child:?}");
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), SKIPPED.repeat(2));
}

#[test]
fn a_promised_prerequisite_that_is_missing_fails_the_test() {
    for promise in ["Agent", "git, agent", "all"] {
        let child = without_agent(&[("BELLJAR_REQUIRE", promise)]);
        assert!(!child.status.success(), "{child:?}");
        let output = format!("{}{}", child.stdout, child.stderr);
        assert!(
            output.contains("BELLJAR_REQUIRE lists Agent, which is missing: BELLJAR_TEST_AGENT names"),
            "{child:?}"
        );
        assert!(!output.contains("SKIPPED"), "{child:?}");
    }
}

#[test]
fn an_unknown_prerequisite_fails_the_test() {
    let child = without_agent(&[("BELLJAR_REQUIRE", "Agnet")]);
    assert!(!child.status.success(), "{child:?}");
    assert!(
        format!("{}{}", child.stdout, child.stderr).contains("`Agnet` is not a prerequisite"),
        "{child:?}"
    );
}

#[test]
fn a_skip_that_cannot_be_logged_fails_the_test() {
    let child = without_agent(&[("BELLJAR_SKIP_LOG", "/nonexistent/log")]);
    assert!(!child.status.success(), "{child:?}");
}
