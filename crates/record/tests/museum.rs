//! Runs that earlier versions wrote stay readable; runs of later formats are rejected.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{Completeness, Event, Missing};
use belljar_record::{ReadError, RunReader, RunStore};
use std::fs;
use std::path::{Path, PathBuf};
use support::{abs, events, head, metrics, nothing, status};

fn museum(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version)
}

/// Copies a run, for a test that modifies it.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Writes the run that the fixtures contain. The output becomes a fixture only when it is copied there by hand.
fn write_now(base: &Path) -> PathBuf {
    let mut writer = RunStore::new(&abs(base)).create(&head(0x1a2b_3c4d), nothing()).unwrap();
    for (index, event) in events().iter().enumerate() {
        writer.emit(index as u64 * 100, event).unwrap();
    }
    writer.finish(5000, status(), metrics()).unwrap().as_path().to_path_buf()
}

#[test]
fn v1_is_read_whole() {
    let run = RunReader::new(abs(&museum("v1/complete"))).read().unwrap();
    assert_eq!(run.completeness, Completeness::Complete);
    assert_eq!(run.head, head(0x1a2b_3c4d));
    assert_eq!(run.result.unwrap().metrics, metrics());
    let known: Vec<Event> = run.events.iter().filter_map(|record| record.event.known().cloned()).collect();
    assert_eq!(known.len(), run.events.len(), "every event is still known");
    assert_eq!(known[1..known.len() - 1], events());
}

#[test]
fn v1_is_still_written_byte_for_byte() {
    let base = tempfile::tempdir().unwrap();
    let now = write_now(base.path());
    for file in ["run.json", "events.jsonl", "result.json"] {
        let old = fs::read_to_string(museum("v1/complete").join(file)).unwrap();
        assert_eq!(fs::read_to_string(now.join(file)).unwrap(), old, "{file}: raise the format");
    }
}

#[test]
fn v1_cut_short() {
    let run = RunReader::new(abs(&museum("v1/cut-short"))).read().unwrap();
    assert_eq!(run.completeness, Completeness::Incomplete { why: Missing::EndOfLine });
    assert_eq!(run.events.len(), 5);
}

#[test]
fn the_head_is_part_of_the_chain() {
    let spoiled = copy(&museum("v1/complete"));
    let path = spoiled.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap().replace("6.1.0", "6.2.0");
    fs::write(&path, text).unwrap();
    let run = RunReader::new(abs(spoiled.path())).read().unwrap();
    assert_eq!(run.completeness, Completeness::Tampered { line: 1 });
    assert_eq!(run.events, []);
}

#[test]
fn lost_files() {
    let spoiled = copy(&museum("v1/complete"));
    fs::remove_file(spoiled.path().join("events.jsonl")).unwrap();
    let read = || RunReader::new(abs(spoiled.path())).read();
    assert_eq!(read().unwrap().completeness, Completeness::Tampered { line: 1 });
    fs::remove_file(spoiled.path().join("result.json")).unwrap();
    assert_eq!(read().unwrap().completeness, Completeness::Incomplete { why: Missing::Log });
    fs::remove_file(spoiled.path().join("run.json")).unwrap();
    assert!(matches!(read(), Err(ReadError::Read { .. })));
}

#[test]
fn later_formats_and_foreign_files_are_refused() {
    for (file, from, to, message) in [
        ("run.json", "\"format\": 1", "\"format\": 2", "has format 2; this belljar reads up to 1"),
        (
            "run.json",
            "\"event_format\": 1",
            "\"event_format\": 9",
            "has format 9; this belljar reads up to 1",
        ),
        ("result.json", "\"format\": 1", "\"format\": 2", "has format 2; this belljar reads up to 1"),
        ("run.json", "\"format\": 1", "\"format\": \"1\"", "was not written by belljar"),
        ("run.json", "{", "{{", "was not written by belljar"),
        (
            "run.json",
            "\"agent\": \"reviewer\",\n  \"inst",
            "\"agent\": \"../x\",\n  \"inst",
            "was not written",
        ),
    ] {
        let spoiled = copy(&museum("v1/complete"));
        let path = spoiled.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = RunReader::new(abs(spoiled.path())).read().unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(file), "{error}");
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_does_not_block() {
    let spoiled = copy(&museum("v1/complete"));
    let path = spoiled.path().join("events.jsonl");
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(RunReader::new(abs(spoiled.path())).read(), Err(ReadError::Read { .. })));
}
