//! Engines that are asked for an image of a base, played by a thread.

use super::engine::Engine;
use super::error::EngineError;
use super::fault_tests::{Played, answer};
use super::image::{ARCHITECTURE, BuiltImage, Rebuild};
use super::recipe::{self, FetchFault, FromError};
use belljar_contract::ImageName;
use std::sync::atomic::{AtomicBool, Ordering};

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

    fn run(self) -> Came {
        let fetched = AtomicBool::new(false);
        let played = Played::word_for_word(move |line, body| Some(self.answer(&fetched, line, body)));
        let engine = Engine::at(&played.socket()).unwrap();
        let base = ImageName::parse("host.example/base:1").unwrap();
        let mut news = Vec::new();
        let built =
            engine.build_from(&base, Rebuild::WhereMissing, &mut |one| news.push(one.line.to_owned()));
        Came { built, heard: played.end(), news }
    }

    fn answer(&self, fetched: &AtomicBool, line: &str, body: &str) -> String {
        let Self { engine, fetch, comes, build, has } = self;
        if line.contains("/images/create?") {
            fetched.store(*comes, Ordering::SeqCst);
            return fetch.clone();
        }
        if line.contains("/build?") {
            return build.clone();
        }
        if line.contains("/version") {
            return answer(200, &format!(r#"{{"Components":[{{"Name":"{engine} Engine","Version":"4"}}]}}"#));
        }
        if line.contains("/containers/create") {
            let id = if body.contains("sha256:base") { "of-base" } else { "of-new" };
            return answer(201, &format!(r#"{{"Id":"{id}"}}"#));
        }
        if line.starts_with("HEAD") {
            return answer(if has(line.contains("of-base"), line) { 200 } else { 404 }, "");
        }
        if line.contains("/images/host.example/base:1/json") && fetched.load(Ordering::SeqCst) {
            return answer(200, &format!(r#"{{"Id":"sha256:base","Architecture":"{ARCHITECTURE}"}}"#));
        }
        answer(if line.contains("/images/") && line.starts_with("GET") { 404 } else { 200 }, "{}")
    }
}

/// The outcome.
struct Came {
    built: Result<(BuiltImage, String), FromError>,
    /// The request lines.
    heard: Vec<String>,
    news: Vec<String>,
}

#[test]
fn a_base_is_fetched_completed_looked_at_and_named_in_this_order() {
    let Came { built, heard, news } = FromPlay::good().run();
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
    for part in [
        "target=completed",
        "%22BASE%22:%22sha256:base%22",
        "%22PACKAGES%22:%22git%22",
        "forcerm=1",
        "t=localhost/belljar/unfinished:",
    ] {
        assert!(build.contains(part), "{part}: {build}");
    }
    // What the user makes from the image inherits its labels.
    assert!(!build.contains("belljar.owner") && !build.contains("belljar.supervisor"), "{build}");
    assert_eq!(
        heard.iter().filter(|line| line.starts_with("DELETE") && line.contains("/containers/")).count(),
        2
    );
    assert_eq!(news.first().map(String::as_str), Some("Pulling fs layer"));
    // Podman's own interface says the number in another way.
    let id = "0a".repeat(32);
    let build = pieces(&[&format!(r#"{{"stream":"{id}\n"}}"#)], WHOLE);
    let Came { built, heard, .. } =
        FromPlay { engine: "Podman", build, has: |_, _| true, ..FromPlay::good() }.run();
    built.unwrap();
    assert!(heard.iter().any(|line| line.contains(&format!("/images/sha256:{id}/tag?"))), "{heard:?}");
    let build = heard.iter().find(|line| line.contains("/build?")).unwrap();
    assert!(build.contains("target=whole") && !build.contains("PACKAGES"), "{build}");
}

#[test]
fn an_interrupted_or_failed_build_makes_no_image() {
    fn fetching(fetch: String, comes: bool) -> FromPlay {
        FromPlay { fetch, comes, ..FromPlay::good() }
    }
    fn building(lines: &[&str], end: &str) -> FromPlay {
        FromPlay { build: pieces(lines, end), ..FromPlay::good() }
    }
    fn talk(error: &FromError, expected: &str) -> bool {
        matches!(error, FromError::Engine(EngineError::Talk { act, .. }) if *act == expected)
    }
    type Expected = fn(&FromError) -> bool;
    let line = r#"{"status":"Pulling fs layer"}"#;
    let step = r#"{"stream":"STEP 1/2: FROM x\n"}"#;
    let unreachable = r#"{"errorDetail":{"message":"x"},"error":"dial tcp: no such host\u001b[2J"}"#;
    let said = r#"{"stream":"no route\u001b[31m\n"}"#;
    let failed = r#"{"error":"building at STEP \"RUN x\": exit status 7"}"#;
    let early = answer(404, r#"{"message":"manifest for host.example/base:1 not found"}"#);
    let id = format!(r#"{{"stream":"{}\\n"}}"#, "0a".repeat(32));
    let cases: [(&str, FromPlay, Expected); 11] = [
        ("a fetch that is refused at once", fetching(early, false), |error| {
            matches!(error, FromError::Fetch { .. })
                && error.hint().is_some_and(|hint| hint.contains("look at the name and the tag"))
        }),
        ("a build in which something else says a number", building(&[&id, step], WHOLE), |error| {
            matches!(error, FromError::Engine(EngineError::Refused { .. }))
        }),
        ("a fetch that is cut off", fetching(pieces(&[line], CUT), true), |error| {
            talk(error, "fetch the base")
        }),
        (
            "a fetch that is cut off within a line",
            fetching(pieces(&[line], "5\r\n{\"a\":\r\n0\r\n\r\n"), true),
            |error| talk(error, "fetch the base"),
        ),
        ("a fetch that brings nothing", fetching(pieces(&[line], WHOLE), false), |error| {
            matches!(error, FromError::Engine(EngineError::NoImage { .. }))
        }),
        (
            "a fetch that fails in a good answer",
            fetching(pieces(&[line, unreachable], WHOLE), false),
            |error| {
                matches!(error, FromError::Fetch { message, .. } if message == "dial tcp: no such host\\u{1b}[2J")
                    && error.hint().is_some_and(|hint| hint.contains("no registry can be reached"))
            },
        ),
        ("a build that is cut off", building(&[MADE], CUT), |error| talk(error, "make an image")),
        ("a build that says nothing of a result", building(&[step], WHOLE), |error| {
            matches!(error, FromError::Engine(EngineError::Refused { .. }))
        }),
        ("a build that fails in a good answer", building(&[step, said, failed], WHOLE), |error| {
            error.to_string()
                == "`host.example/base:1` has no git, and installing it failed: no route\\u{1b}[31m; exit status 7"
        }),
        (
            "a build that does not help",
            FromPlay { has: |_, path| !path.contains("git"), ..FromPlay::good() },
            |error| matches!(error, FromError::StillLacks { lacks, .. } if lacks == "git"),
        ),
        ("a base without a shell", FromPlay { has: |_, _| false, ..FromPlay::good() }, |error| {
            matches!(error, FromError::NoShell { .. })
        }),
    ];
    for (what, play, expected) in cases {
        let Came { built, heard, .. } = play.run();
        let error = built.unwrap_err();
        assert!(expected(&error), "{what}: {error:?}");
        assert!(!heard.iter().any(|line| line.contains("/tag?")), "{what}: {heard:?}");
        let removed = heard
            .iter()
            .any(|line| line.starts_with("DELETE") && line.contains("/images/localhost/belljar/unfinished:"));
        assert_eq!(removed, what == "a build that does not help", "{what}: {heard:?}");
    }
}

#[test]
fn the_messages_of_engines_about_a_fetch() {
    for (message, expected) in [
        (
            "pinging container registry h: Get \"https://h/v2/\": dial tcp 10.0.0.1:443: connect: no route to host",
            FetchFault::Unreachable,
        ),
        (
            "Get \"https://h/v2/\": net/http: request canceled (Client.Timeout exceeded): i/o timeout",
            FetchFault::Unreachable,
        ),
        (
            "no image found in manifest list for architecture amd64, variant \"\", OS linux",
            FetchFault::Foreign,
        ),
        ("no matching manifest for linux/amd64 in the manifest list entries", FetchFault::Foreign),
        ("reading manifest 1 in h/base: manifest unknown", FetchFault::Absent),
        (
            "pull access denied for x, repository does not exist or may require 'docker login'",
            FetchFault::Absent,
        ),
        ("reading manifest 1 in h/base: unauthorized: authentication required", FetchFault::Absent),
        ("x509: certificate signed by unknown authority", FetchFault::Other),
        ("write: no space left on device", FetchFault::Other),
    ] {
        assert_eq!(recipe::fault(message), expected, "{message}");
    }
}
