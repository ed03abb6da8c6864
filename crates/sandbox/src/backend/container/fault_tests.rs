//! Engines that are not what they should be, played by a thread.

use super::engine::{EngineError, EnginePlaces};
use super::vessel::Vessel;
use crate::backend::tests::{machine, plan};
use crate::backend::{Lowering, lower};
use belljar_contract::{AbsPath, BackendKind, Errand, Launch, OsText};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// What the played engine does with a request line and body: an answer, or it hangs up.
type Play = fn(&str, &str) -> Option<(u16, String)>;

/// Plays an engine, and lets belljar try to have a container of it.
fn launched(play: Play) -> (EngineError, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let engine = std::thread::spawn(move || {
        let mut heard = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some((line, body)) = request(&mut stream) else { continue };
            if line.starts_with("END") {
                return heard;
            }
            if let Some((status, text)) = play(&line, &body) {
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(head.as_bytes()).ok();
            }
            heard.push(line);
        }
        heard
    });
    let places = EnginePlaces {
        named: Some(socket.clone().into()),
        user_runtime: None,
        runtime: AbsPath::new(folder.path().join("run")).unwrap(),
        podman: None,
        runc: None,
        variables: Vec::new(),
    };
    let launch = container();
    let asked = launch.container.clone().unwrap();
    let error = Vessel::launch(&places, &launch, &asked, "test").unwrap_err();
    let left: Vec<_> = std::fs::read_dir(folder.path().join("run")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    UnixStream::connect(&socket).unwrap().write_all(b"END / HTTP/1.1\r\n\r\n").unwrap();
    (error, engine.join().unwrap())
}

fn container() -> Launch {
    let plan = plan(BackendKind::Container);
    let errand = Errand::Command(vec![OsText::new("true").unwrap()]);
    lower(&Lowering { plan: &plan, errand: &errand, machine: &machine(), terminal: false }).unwrap()
}

fn request(stream: &mut UnixStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head
        .to_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ").and_then(|value| value.parse::<usize>().ok()));
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head.lines().next()?.to_owned(), String::from_utf8_lossy(&body).into_owned()))
}

fn made(line: &str) -> Option<(u16, String)> {
    line.contains("/containers/create").then(|| (201, r#"{"Id":"c1"}"#.to_owned()))
}

#[test]
fn whoever_calls_in_the_place_of_the_guest_is_turned_away() {
    let (error, heard) = launched(|line, body| {
        if line.contains("/containers/create") {
            let asked: serde_json::Value = serde_json::from_str(body).unwrap();
            let mounts = asked["HostConfig"]["Mounts"].as_array().unwrap();
            let path = mounts.last().unwrap()["Source"].as_str().unwrap().to_owned();
            // A process of this machine, and not the container's first.
            std::mem::forget(UnixStream::connect(Path::new(&path)).unwrap());
        }
        made(line).or_else(|| {
            let shown = r#"{"State":{"Running":true,"Pid":4242}}"#.to_owned();
            Some(if line.contains("/start") { (204, String::new()) } else { (200, shown) })
        })
    });
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(matches!(error, EngineError::Stranger { found, expected: 4242 } if found == own), "{error:?}");
    assert!(heard.last().unwrap().starts_with("DELETE"), "it is removed: {heard:?}");
}

#[test]
fn an_engine_that_refuses_or_goes_away_is_quoted_and_leaves_nothing() {
    let (error, _) =
        launched(|_, _| Some((500, r#"{"message":"write: no space left on device"}"#.to_owned())));
    assert!(error.to_string().contains("no space left on device"), "{error}");
    assert!(error.hint().unwrap().contains("make space"));
    let (error, _) = launched(|_, _| Some((409, r#"{"message":"the name is taken"}"#.to_owned())));
    assert!(error.to_string().contains("refused to make a container: the name is taken"), "{error}");
    let (error, heard) = launched(|line, _| made(line));
    assert!(matches!(error, EngineError::Talk { act: "start the container", .. }), "{error:?}");
    assert!(heard.iter().any(|line| line.starts_with("DELETE")), "it is removed: {heard:?}");
    let (error, _) = launched(|line, _| {
        made(line).or(Some((500, r#"{"message":"crun: cgroups in hybrid mode not supported"}"#.to_owned())))
    });
    assert!(error.hint().unwrap().contains("runc"), "{error:?}");
}

#[test]
fn a_container_that_ends_at_once_is_noticed() {
    let (error, _) = launched(|line, _| {
        made(line).or_else(|| {
            if line.contains("/logs") {
                return Some((200, "\u{2}\0\0\0\0\0\0\u{7}it fell".to_owned()));
            }
            let shown = r#"{"State":{"Running":false,"Pid":0}}"#.to_owned();
            Some(if line.contains("/start") { (204, String::new()) } else { (200, shown) })
        })
    });
    assert_eq!(error.to_string(), "the container ended before the guest spoke: it fell");
}
