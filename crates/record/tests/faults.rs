//! A writer that is killed, and a disk that is full.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{Completeness, Event, Metrics, Missing, RunStatus};
use belljar_record::{RunReader, RunState, RunStore, WriteError};
use belljar_testkit::require;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{abs, head, nothing, status};

/// The directory that the child writes to; set only for the child.
const CHILD: &str = "BELLJAR_TEST_WRITER";

fn notice(text: String) -> Event {
    Event::Notice { text }
}

/// Not a test of its own: the next test starts this binary with this name, and kills it.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let mut writer = RunStore::new(&abs(Path::new(&directory))).create(&head(1), nothing()).unwrap();
    for index in 0_u64.. {
        writer.emit(index, &notice(format!("{index} {}", "x".repeat(2000)))).unwrap();
        println!("wrote {index}");
    }
}

#[test]
fn a_killed_writer_leaves_a_readable_incomplete_run() {
    let base = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, base.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let wrote = |line: std::io::Result<String>| line.unwrap().strip_prefix("wrote ")?.parse::<usize>().ok();
    let mut lines = output.lines().filter_map(wrote);
    let seen = lines.find(|index| *index >= 100).unwrap();
    let store = RunStore::new(&abs(base.path()));
    assert!(matches!(store.list().unwrap()[0].state, RunState::Running));
    child.kill().unwrap();
    // It kept writing until it was killed; everything that it reported is in the log.
    let seen = lines.last().unwrap_or(seen);
    child.wait().unwrap();

    let list = store.list().unwrap();
    assert!(matches!(list[0].state, RunState::CutShort), "the lock went with the process");
    let run = RunReader::new(list[0].directory.clone()).read().unwrap();
    assert!(
        matches!(run.completeness, Completeness::Incomplete { why: Missing::EndOfRun | Missing::EndOfLine }),
        "{:?}",
        run.completeness
    );
    assert!(run.events.len() >= seen + 2, "{} events, {seen} reported", run.events.len());
}

/// A separate small file system, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let at = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=700");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at.path()).status();
        assert!(mount.unwrap().success());
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0.path()).status().ok();
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    require!(Root);
    let disk = SmallDisk::mount("64k");
    let base = disk.0.path();
    std::fs::write(base.join("filler"), vec![0; 16 << 10]).unwrap();
    let mut writer = RunStore::new(&abs(base)).create(&head(1), nothing()).unwrap();
    let big = notice("x".repeat(1500));
    let mut written = 0;
    let error = loop {
        match writer.emit(written, &big) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    let WriteError::Write { path, cause } = &error else { panic!("{error:?}") };
    assert_eq!(path.as_path(), writer.directory().as_path().join("events.jsonl"));
    assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
    let directory = writer.directory().clone();
    let run = RunReader::new(directory.clone()).read().unwrap();
    assert_eq!(run.completeness, Completeness::Incomplete { why: Missing::EndOfRun }, "no half line");
    assert_eq!(run.events.len() as u64, written + 1);

    // There is no room for another run, and nothing of it may remain.
    let error = RunStore::new(&abs(base)).create(&head(2), nothing()).unwrap_err().to_string();
    assert!(error.contains("run.json"), "{error}");
    assert_eq!(std::fs::read_dir(base.join("runs")).unwrap().count(), 1);

    // With room again, the same writer continues, and the run is complete.
    std::fs::remove_file(base.join("filler")).unwrap();
    writer.emit(written, &notice("room again".to_owned())).unwrap();
    writer.finish(9, status(), Metrics::default()).unwrap();
    assert_eq!(RunReader::new(directory).read().unwrap().completeness, Completeness::Complete);
}

#[test]
fn a_result_that_does_not_fit_leaves_the_run_incomplete() {
    require!(Root);
    let disk = SmallDisk::mount("64k");
    let base = disk.0.path();
    let writer = RunStore::new(&abs(base)).create(&head(1), nothing()).unwrap();
    let directory = writer.directory().clone();
    std::fs::write(base.join("filler"), vec![0; 1 << 20]).unwrap_err();
    let why = "y".repeat(100);
    let error = writer.finish(9, RunStatus::NotStarted { why }, Metrics::default()).unwrap_err().to_string();
    assert!(error.contains("result.json") && !error.contains(".new"), "{error}");
    let run = RunReader::new(directory.clone()).read().unwrap();
    assert_eq!(run.completeness, Completeness::Incomplete { why: Missing::Result });
    assert!(!directory.child("result.json.new").as_path().exists());
}
