//! The workspace on real file systems, as the user who runs the tests and, if that is root, as an ordinary user again.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod applying;
mod copying;
mod losing;
mod merging;
mod overlaying;
mod property;
mod scanning;
mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use belljar_testkit::require::SKIP_LOG_VAR;

/// Runs every test of this program again without any privilege.
#[test]
fn everything_again_as_an_ordinary_user() {
    belljar_testkit::require!(Root);
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let temporary = place.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, PermissionsExt::from_mode(0o777)).unwrap();
    // The build directory may be closed to other users.
    let program = place.path().join("program");
    belljar_testkit::process::copy_program(&std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let skipped = temporary.join("skipped");
    let output = Command::new("setpriv")
        .args(["--reuid=4242", "--regid=4242", "--clear-groups"])
        .arg(&program)
        .args(["--skip", "everything_again_as_an_ordinary_user"])
        .env("TMPDIR", &temporary)
        .env("HOME", &temporary)
        .env(SKIP_LOG_VAR, &skipped)
        .current_dir(&temporary)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains(" 0 passed"), "{text}");
    pass_on(&fs::read_to_string(skipped).unwrap_or_default());
}

/// What the other user could not run is as visible as what we could not.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen where the test's output is")]
fn pass_on(skipped: &str) {
    eprint!("{skipped}");
    if let Some(log) = std::env::var_os(SKIP_LOG_VAR) {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        log.write_all(skipped.as_bytes()).unwrap();
    }
}
