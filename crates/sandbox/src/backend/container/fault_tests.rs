//! Engines that are not what they should be, played by a thread.

use super::engine::{Engine, EnginePlaces, ServiceEnd};
use super::error::EngineError;
use super::handle::ContainerHandle;
use super::image::{Rebuild, base_name};
use crate::backend::tests::{lowered, plan};
use belljar_contract::{AbsPath, BackendKind, Launch, OsText, Workload};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// An engine that a thread plays.
pub(super) struct Played {
    directory: TempDir,
    thread: JoinHandle<Vec<String>>,
}

impl Played {
    /// `play` says what it does with a request line and body: an answer, or it hangs up.
    fn begin(play: impl Fn(&str, &str) -> Option<(u16, String)> + Send + 'static) -> Self {
        Self::word_for_word(move |line, body| {
            let (status, text) = play(line, body)?;
            Some(answer(status, &text))
        })
    }

    /// The same with the head of the answer.
    pub(super) fn word_for_word(play: impl Fn(&str, &str) -> Option<String> + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("engine.sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let mut heard = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some((line, body)) = request(&mut stream) else { continue };
                if line.starts_with("END") {
                    return heard;
                }
                if let Some(answer) = play(&line, &body) {
                    stream.write_all(answer.as_bytes()).ok();
                }
                heard.push(line);
            }
            heard
        });
        Self { directory, thread }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    /// The request lines that it heard.
    pub(super) fn end(self) -> Vec<String> {
        UnixStream::connect(self.socket()).unwrap().write_all(b"END / HTTP/1.1\r\n\r\n").unwrap();
        self.thread.join().unwrap()
    }
}

/// An answer with its head.
pub(super) fn answer(status: u16, text: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// Plays an engine, and lets belljar try to have a container of it.
fn launched(play: fn(&str, &str) -> Option<(u16, String)>) -> (EngineError, Vec<String>) {
    let played = Played::begin(play);
    let run = played.directory.path().join("run");
    let places = EnginePlaces {
        named: Some(played.socket().into()),
        user_runtime: None,
        runtime: AbsPath::new(run.clone()).unwrap(),
        service: ServiceEnd::WhenIdle,
        podman: None,
        runc: None,
        variables: Vec::new(),
    };
    let launch = container();
    let asked = launch.container.clone().unwrap();
    let error = ContainerHandle::launch(&places, &launch, &asked, "test").unwrap_err();
    let left: Vec<_> = std::fs::read_dir(run).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    (error, played.end())
}

fn container() -> Launch {
    let plan = plan(BackendKind::Container);
    let workload = Workload::Command(vec![OsText::new("true").unwrap()]);
    lowered(&plan, &workload).unwrap()
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
fn a_process_that_connects_in_the_place_of_the_guest_is_turned_away() {
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

#[test]
fn an_engine_that_is_making_an_image_is_asked_again_for_the_list() {
    let refusals = AtomicU32::new(2);
    let played = Played::begin(move |_, _| {
        let busy = refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let listed = format!(r#"[{{"Id":"i1","Size":7,"RepoTags":["{}"]}}]"#, base_name());
        Some(match busy {
            Ok(_) => {
                (500, r#"{"message":"locating item named \"manifest\": file does not exist"}"#.to_owned())
            }
            Err(_) => (200, listed),
        })
    });
    let images = Engine::at(&played.socket()).unwrap().images().unwrap();
    assert!(images.iter().all(|image| image.current && image.id == "i1") && images.len() == 1, "{images:?}");
    assert_eq!(played.end().len(), 3);
}

#[test]
fn an_image_that_is_made_again_takes_the_place_of_the_old_one() {
    let played = Played::begin(|line, _| {
        Some((200, if line.starts_with("GET") { r#"{"Id":"i1"}"# } else { "{}" }.to_owned()))
    });
    Engine::at(&played.socket()).unwrap().build_image(Rebuild::Always).unwrap();
    let heard = played.end();
    assert!(heard[1].contains("/images/create?") && heard[2].starts_with("DELETE"), "{heard:?}");
    assert!(heard[2].contains("/images/i1 "), "{heard:?}");
}
