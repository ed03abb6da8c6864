//! Written data is read back unchanged, and secrets are not written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{
    Completeness, Event, GuestAct, HeldAnswer, Logged, Metrics, Missing, RunId, RunStatus, Scrubber, Secret,
};
use belljar_record::{LINE_MAX, ReadError, RemoveError, RunReader, RunState, RunStore, WriteError};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::{STARTED_MS, abs, events, head, metrics, nothing, status};

fn store(base: &tempfile::TempDir) -> RunStore {
    RunStore::new(&abs(base.path()))
}

#[test]
fn every_kind_of_event_comes_back() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = store(&base).create(&head(7), nothing()).unwrap();
    let directory = writer.directory().clone();
    assert_eq!(
        directory.as_path(),
        base.path().join("runs/20240229-123456-reviewer-2-00000007"),
        "date, name and id"
    );
    for (index, event) in events().iter().enumerate() {
        writer.emit(index as u64 * 100, event).unwrap();
        let run = RunReader::new(directory.clone()).read().unwrap();
        assert_eq!(run.events.len(), index + 2, "readable at every moment");
        assert_eq!(run.completeness, Completeness::Incomplete { why: Missing::EndOfRun });
    }
    assert_eq!(writer.finish(5000, status(), metrics()).unwrap(), directory);

    let run = RunReader::new(directory).read().unwrap();
    assert_eq!(run.completeness, Completeness::Complete);
    assert_eq!(run.head, head(7));
    let result = run.result.unwrap();
    assert_eq!((result.status, result.duration_ms, result.metrics), (status(), 5000, metrics()));
    let known: Vec<&Event> = run.events.iter().map(|record| record.event.known().unwrap()).collect();
    assert!(
        matches!(known[0], Event::RunStarted { run, started_at_ms: STARTED_MS, .. } if *run == RunId::new(7))
    );
    let written = events();
    assert_eq!(known[1..known.len() - 1], written.iter().collect::<Vec<_>>());
    assert_eq!(*known[known.len() - 1], Event::RunEnded { status: status(), duration_ms: 5000 });
    for (index, record) in run.events.iter().enumerate() {
        assert_eq!(record.seq, index as u64);
    }
}

#[test]
fn fuzz_texts_come_back() {
    bolero::check!().with_type::<(String, Vec<u8>, u64)>().for_each(|(text, bytes, number)| {
        let mut path = b"/".to_vec();
        path.extend(bytes.iter().filter(|byte| **byte != 0));
        let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path.as_slice());
        for event in [
            Event::Notice { text: text.clone() },
            Event::HostExecutedCreated {
                path: belljar_contract::AbsPath::new(path).unwrap(),
                why: text.clone(),
            },
            Event::HostExecutedAsked {
                path: belljar_contract::AbsPath::new(path).unwrap(),
                act: GuestAct::Make,
                why: text.clone(),
            },
            Event::HostExecutedAnswered {
                path: belljar_contract::AbsPath::new(path).unwrap(),
                act: GuestAct::Link,
                answer: HeldAnswer::Always,
            },
            Event::Unsealed {
                open: vec![belljar_contract::OpenNeed {
                    need: belljar_contract::Need::Network,
                    why: text.clone(),
                }],
            },
            Event::WorkspaceChanged { created: *number, changed: 0, removed: u64::MAX },
            Event::RunEnded { status: RunStatus::NotStarted { why: text.clone() }, duration_ms: *number },
        ] {
            let value: Value = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
            assert_eq!(Logged::from_json(value), Logged::Known(event));
        }
    });
}

#[test]
fn only_the_user_can_read_it() {
    let base = tempfile::tempdir().unwrap();
    let writer = store(&base).create(&head(1), nothing()).unwrap();
    let artifacts = writer.artifacts().unwrap();
    assert_eq!(writer.artifacts().unwrap(), artifacts);
    writer.agent_stderr().unwrap().write_all(b"x").unwrap();
    let directory = writer.finish(1, status(), Metrics::default()).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&base.path().join("runs")), mode(directory.as_path())), (0o700, 0o700));
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn secrets_do_not_reach_the_disk() {
    let base = tempfile::tempdir().unwrap();
    let secrets = || {
        let secrets = [("TOKEN", &Secret::new("hunter2")), ("QUOTED", &Secret::new("hun\"ter\n3"))];
        Arc::new(Scrubber::new(secrets).0)
    };
    let mut head = head(1);
    head.plan = serde_json::json!({"argv": ["--key=hunter2"], "hunter2": {"deep": ["hun\"ter\n3"]}});
    head.host.insert("note".to_owned(), "hunter2".into());
    head.versions.insert("agent".to_owned(), "1 hunter2".to_owned());
    let mut writer = store(&base).create(&head, secrets()).unwrap();
    writer.emit(1, &Event::Notice { text: "got hunter2 and {\"a\":\"hun\\\"ter\\n3\"}".to_owned() }).unwrap();
    let mut stderr = writer.agent_stderr().unwrap();
    // Split over two writes, within one line.
    stderr.write_all(b"\xff ok\nerror: hun").unwrap();
    stderr.write_all(b"ter2 is wrong").unwrap();
    stderr.flush().unwrap();
    let directory = writer
        .finish(2, RunStatus::NotStarted { why: "hunter2 is not a command".to_owned() }, Metrics::default())
        .unwrap();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        for secret in ["hunter2", "hun\"ter", "hun\\\"ter", "hun\\\\\\\"ter"] {
            assert!(!text.contains(secret), "{secret} in {}: {text}", path.display());
        }
    }
    assert_eq!(
        fs::read(directory.child("agent.stderr")).unwrap(),
        b"\xff ok\nerror: [redacted:TOKEN] is wrong",
        "other bytes are unchanged"
    );
    let run = RunReader::new(directory).read().unwrap();
    assert_eq!(run.completeness, Completeness::Complete);
    let text = "got [redacted:TOKEN] and {\"a\":\"[redacted:QUOTED]\"}".to_owned();
    assert_eq!(run.events[1].event, Logged::Known(Event::Notice { text }));
}

#[test]
fn an_event_too_long_to_be_read_back_is_refused_and_the_log_goes_on() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = store(&base).create(&head(1), nothing()).unwrap();
    let long = Event::Notice { text: "x".repeat(LINE_MAX) };
    assert!(matches!(writer.emit(1, &long), Err(WriteError::TooLong { .. })));
    let fits = Event::Notice { text: "x".repeat(LINE_MAX - 200) };
    writer.emit(1, &fits).unwrap();
    let directory = writer.finish(2, status(), Metrics::default()).unwrap();
    assert_eq!(RunReader::new(directory).read().unwrap().completeness, Completeness::Complete);
}

#[test]
fn the_agents_complaints_are_bounded() {
    let base = tempfile::tempdir().unwrap();
    let writer = store(&base).create(&head(1), nothing()).unwrap();
    let mut stderr = writer.agent_stderr().unwrap();
    let block = vec![b'x'; 1 << 20];
    for _ in 0..20 {
        stderr.write_all(&block).unwrap();
    }
    stderr.flush().unwrap();
    let size = fs::metadata(writer.directory().child("agent.stderr")).unwrap().len();
    assert!((belljar_record::STDERR_MAX..belljar_record::STDERR_MAX + 100).contains(&size), "{size}");
}

#[test]
fn runs_are_listed_and_removed_but_never_under_a_writer() {
    let base = tempfile::tempdir().unwrap();
    let store = store(&base);
    assert_eq!(store.list().unwrap().len(), 0, "a missing directory counts as empty");
    let ended = store.create(&head(1), nothing()).unwrap().finish(9, status(), Metrics::default()).unwrap();
    drop(store.create(&head(2), nothing()).unwrap());
    let running = store.create(&head(3), nothing()).unwrap();
    assert!(matches!(store.create(&head(3), nothing()), Err(WriteError::Exists { .. })));
    fs::create_dir(base.path().join("runs/20240229-something-else")).unwrap();
    std::os::unix::fs::symlink("/", base.path().join("runs/link")).unwrap();

    let list = store.list().unwrap();
    assert_eq!(list.len(), 4, "the link is not one");
    assert!(matches!(&list[0].state, RunState::Ended(result) if result.status == status()));
    assert!(matches!(list[1].state, RunState::CutShort));
    assert!(matches!(list[2].state, RunState::Running));
    assert!(matches!(list[3].head, Err(ReadError::Read { .. })));
    assert!(list[..3].iter().all(|entry| entry.head.is_ok() && entry.size.bytes > 0 && entry.size.whole));
    assert_eq!(list[0].directory, ended);

    assert!(matches!(store.remove(&list[2].directory), Err(RemoveError::Running { .. })));
    assert!(matches!(store.remove(&abs(base.path())), Err(RemoveError::Remove { .. })));
    store.remove(&list[0].directory).unwrap();
    store.remove(&list[1].directory).unwrap();
    drop(running);
    store.remove(&list[2].directory).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn runs_of_one_second_are_listed_as_they_began() {
    let base = tempfile::tempdir().unwrap();
    let store = store(&base);
    for (number, later) in [(3, 0), (1, 1), (2, 2)] {
        let mut head = head(number);
        head.started_at_ms = 1_700_000_000_000 + later;
        drop(store.create(&head, nothing()).unwrap());
    }
    let began = |entry: belljar_record::RunEntry| entry.head.unwrap().started_at_ms % 1000;
    assert_eq!(store.list().unwrap().into_iter().map(began).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn leftovers_are_found_when_their_process_is_gone() {
    let base = tempfile::tempdir().unwrap();
    let store = store(&base);
    let runs = base.path().join("runs");
    for name in [".making-a", ".making-b", ".removing-c", "20240229-d"] {
        fs::create_dir_all(runs.join(name)).unwrap();
    }
    let lock = fs::File::create(runs.join(".making-b/lock")).unwrap();
    lock.lock().unwrap();
    let names = |now| -> Vec<String> {
        let found = store.leftovers(now).unwrap();
        found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    let now = SystemTime::now();
    assert_eq!(names(now), [".removing-c"]);
    assert_eq!(names(now + Duration::from_secs(7200)), [".removing-c", ".making-a"]);
    for path in store.leftovers(now + Duration::from_secs(7200)).unwrap() {
        store.remove(&path).unwrap();
    }
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 2);
}
