//! Engines that are not what they should be, played by a thread.

use super::engine::{Engine, EngineError, EnginePlaces};
use super::image::{ARCHITECTURE, BuiltImage, Rebuild, base_name};
use super::recipe::{self, FromError};
use super::vessel::Vessel;
use crate::backend::tests::{machine, plan};
use crate::backend::{Lowering, lower};
use belljar_contract::{AbsPath, BackendKind, Errand, ImageName, Launch, OsText};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// An engine that a thread plays.
struct Played {
    folder: TempDir,
    thread: JoinHandle<Vec<String>>,
}

impl Played {
    /// `play` says what it does with a request line and body: an answer, or it hangs up.
    fn begin(play: impl Fn(&str, &str) -> Option<(u16, String)> + Send + 'static) -> Self {
        Self::word_for_word(move |line, body| {
            let (status, text) = play(line, body)?;
            Some(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
        })
    }

    /// The same with the head of the answer.
    fn word_for_word(play: impl Fn(&str, &str) -> Option<String> + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("engine.sock")).unwrap();
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
        Self { folder, thread }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// The request lines that it heard.
    fn end(self) -> Vec<String> {
        UnixStream::connect(self.socket()).unwrap().write_all(b"END / HTTP/1.1\r\n\r\n").unwrap();
        self.thread.join().unwrap()
    }
}

/// Plays an engine, and lets belljar try to have a container of it.
fn launched(play: fn(&str, &str) -> Option<(u16, String)>) -> (EngineError, Vec<String>) {
    let played = Played::begin(play);
    let run = played.folder.path().join("run");
    let places = EnginePlaces {
        named: Some(played.socket().into()),
        user_runtime: None,
        runtime: AbsPath::new(run.clone()).unwrap(),
        podman: None,
        runc: None,
        variables: Vec::new(),
    };
    let launch = container();
    let asked = launch.container.clone().unwrap();
    let error = Vessel::launch(&places, &launch, &asked, "test").unwrap_err();
    let left: Vec<_> = std::fs::read_dir(run).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    (error, played.end())
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

/// An answer that comes in pieces, whole or cut off.
fn pieces(lines: &[&str], end: &str) -> String {
    let mut out = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for line in lines {
        out.push_str(&format!("{:x}\r\n{line}\n\r\n", line.len() + 1));
    }
    out + end
}

const WHOLE: &str = "0\r\n\r\n";
const CUT: &str = "";
const MADE: &str = r#"{"aux":{"ID":"sha256:new"}}"#;

/// What an engine plays that is asked for an image of a base which it does not have.
#[derive(Clone)]
struct FromPlay {
    engine: &'static str,
    fetch: String,
    /// Whether it has the base after that.
    comes: bool,
    build: String,
    /// What containers of the base, and of what is made, have.
    has: fn(of_base: bool, path: &str) -> bool,
}

impl FromPlay {
    /// The base has no git, and what is made of it has.
    fn good() -> Self {
        let fetch = pieces(&[r#"{"status":"Pulling fs layer","id":"1"}"#], WHOLE);
        let build = pieces(&[r#"{"stream":"STEP 1/2: FROM x\n"}"#, MADE], WHOLE);
        Self {
            engine: "Docker",
            fetch,
            comes: true,
            build,
            has: |of_base, path| !of_base || !path.contains("git"),
        }
    }

    /// Plays it, and asks for the image; gives what came of it, what was heard, and the news.
    fn run(self) -> (Result<(BuiltImage, String), FromError>, Vec<String>, Vec<String>) {
        let fetched = AtomicU32::new(0);
        let answer = |status: u16, text: String| {
            Some(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
        };
        let played = Played::word_for_word(move |line, body| {
            let Self { engine, fetch, comes, build, has } = &self;
            if line.contains("/images/create?") {
                fetched.store(u32::from(*comes), Ordering::SeqCst);
                return Some(fetch.clone());
            }
            if line.contains("/build?") {
                return Some(build.clone());
            }
            if line.contains("/version") {
                return answer(
                    200,
                    format!(r#"{{"Components":[{{"Name":"{engine} Engine","Version":"4"}}]}}"#),
                );
            }
            if line.contains("/containers/create") {
                let id = if body.contains("sha256:base") { "of-base" } else { "of-new" };
                return answer(201, format!(r#"{{"Id":"{id}"}}"#));
            }
            if line.starts_with("HEAD") {
                let there = has(line.contains("of-base"), line);
                return Some(format!("HTTP/1.1 {} X\r\n\r\n", if there { 200 } else { 404 }));
            }
            if line.contains("/images/host.example/base:1/json") && fetched.load(Ordering::SeqCst) == 1 {
                return answer(200, format!(r#"{{"Id":"sha256:base","Architecture":"{ARCHITECTURE}"}}"#));
            }
            answer(
                if line.contains("/images/") && line.starts_with("GET") { 404 } else { 200 },
                "{}".to_owned(),
            )
        });
        let engine = Engine::at(&played.socket()).unwrap();
        let base = ImageName::parse("host.example/base:1").unwrap();
        let mut news = Vec::new();
        let built =
            engine.build_from(&base, Rebuild::WhereMissing, &mut |one| news.push(one.words.to_owned()));
        (built, played.end(), news)
    }
}

#[test]
fn a_base_is_fetched_completed_looked_at_and_named_in_this_order() {
    let (built, heard, news) = FromPlay::good().run();
    assert_eq!(built.unwrap(), (BuiltImage::Made, recipe::name("sha256:base")));
    let at = |part: &str| {
        heard.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {heard:?}"))
    };
    let order = [
        at("/images/create?fromImage=host.example/base:1 "),
        at("of-base"),
        at("/build?"),
        at("of-new"),
        at("/tag?"),
    ];
    assert!(order.is_sorted(), "{heard:#?}");
    let build = &heard[at("/build?")];
    for part in ["target=completed", "%22BASE%22:%22sha256:base%22", "%22PACKAGES%22:%22git%22", "forcerm=1"]
    {
        assert!(build.contains(part), "{part}: {build}");
    }
    assert_eq!(
        heard.iter().filter(|line| line.starts_with("DELETE") && line.contains("/containers/")).count(),
        2
    );
    assert_eq!(news.first().map(String::as_str), Some("Pulling fs layer"));
    // Podman's own interface says the number in another way.
    let id = "0a".repeat(32);
    let build = pieces(&[&format!(r#"{{"stream":"{id}\n"}}"#)], WHOLE);
    let (built, heard, _) = FromPlay { engine: "Podman", build, has: |_, _| true, ..FromPlay::good() }.run();
    built.unwrap();
    assert!(heard.iter().any(|line| line.contains(&format!("/images/sha256:{id}/tag?"))), "{heard:?}");
    let build = heard.iter().find(|line| line.contains("/build?")).unwrap();
    assert!(build.contains("target=whole") && !build.contains("PACKAGES"), "{build}");
}

#[test]
fn what_ends_in_the_middle_or_badly_is_no_image() {
    let fetching = |fetch: String, comes| FromPlay { fetch, comes, ..FromPlay::good() };
    let building = |build: String| FromPlay { build, ..FromPlay::good() };
    let talk = |error: &FromError, expected: &str| matches!(error, FromError::Engine(EngineError::Talk { act, .. }) if *act == expected);
    let line = r#"{"status":"Pulling fs layer"}"#;
    let failed =
        r#"{"errorDetail":{"message":"x"},"error":"dial tcp: lookup host.example: no such host\u001b[2J"}"#;
    let cases: Vec<(&str, FromPlay, Box<dyn Fn(&FromError) -> bool>)> = vec![
        (
            "a fetch that is cut off",
            fetching(pieces(&[line], CUT), true),
            Box::new(move |error| talk(error, "fetch the base")),
        ),
        (
            "a fetch that is cut off within a line",
            fetching(pieces(&[line], "5\r\n{\"a\":\r\n0\r\n\r\n"), true),
            Box::new(move |error| talk(error, "fetch the base")),
        ),
        (
            "a fetch that brings nothing",
            fetching(pieces(&[line], WHOLE), false),
            Box::new(|error| matches!(error, FromError::Engine(EngineError::NoImage { .. }))),
        ),
        (
            "a fetch that fails in a good answer",
            fetching(pieces(&[line, failed], WHOLE), false),
            Box::new(|error| {
                matches!(error, FromError::Fetch { words, .. } if !words.contains('\u{1b}'))
                    && error.hint().unwrap().contains("no registry can be reached")
            }),
        ),
        (
            "a build that is cut off",
            building(pieces(&[MADE], CUT)),
            Box::new(move |error| talk(error, "make an image")),
        ),
        (
            "a build that says nothing of a result",
            building(pieces(&[r#"{"stream":"STEP 1/2: FROM x\n"}"#], WHOLE)),
            Box::new(|error| matches!(error, FromError::Engine(EngineError::Refused { .. }))),
        ),
        (
            "a build that fails in a good answer",
            building(pieces(
                &[
                    r#"{"stream":"no route\u001b[31m\n"}"#,
                    r#"{"error":"building at STEP \"RUN x\": exit status 7"}"#,
                ],
                WHOLE,
            )),
            Box::new(|error| {
                error.to_string()
                    == "`host.example/base:1` has no git, and installing it failed: no route [31m; exit status 7"
            }),
        ),
        (
            "a build that does not help",
            FromPlay { has: |_, path| !path.contains("git"), ..FromPlay::good() },
            Box::new(|error| matches!(error, FromError::StillLacks { lacks, .. } if lacks == "git")),
        ),
        (
            "a base without a shell",
            FromPlay { has: |_, _| false, ..FromPlay::good() },
            Box::new(|error| matches!(error, FromError::NoShell { .. })),
        ),
    ];
    for (what, play, expected) in cases {
        let (built, heard, _) = play.run();
        let error = built.unwrap_err();
        assert!(expected(&error), "{what}: {error:?}");
        assert!(!heard.iter().any(|line| line.contains("/tag?")), "{what}: {heard:?}");
        let removed =
            heard.iter().any(|line| line.starts_with("DELETE") && line.contains("/images/sha256:new"));
        assert_eq!(removed, what == "a build that does not help", "{what}: {heard:?}");
    }
}
