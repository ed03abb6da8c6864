//! Which of the things that agents need an image has. The image is inspected; nothing in it runs.

use super::body::{OWNER, RUN, SUPERVISOR};
use super::engine::Engine;
use super::error::EngineError;
use super::http::{Sent, escaped};
use super::orphans;
use belljar_contract::{AbsPath, Container, ImageName, ImageWant, WantWeight};
use hyper::Method;
use serde_json::json;

/// A program or file that agents work better with.
#[derive(Debug)]
struct Useful {
    what: &'static str,
    /// Where it may be.
    any: &'static [&'static str],
    /// The package that contains it in distributions; `None` for a shell, without which nothing can be installed.
    package: Option<&'static str>,
    /// What does not work without it.
    loses: &'static str,
}

const USEFUL: [Useful; 4] = [
    Useful {
        what: "shell",
        any: &["/bin/sh", "/usr/bin/sh"],
        package: None,
        loses: "the agent runs no commands, and `shell` opens none",
    },
    Useful {
        what: "bash",
        any: &["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"],
        package: Some("bash"),
        loses: "commands of the agent that are meant for it fail",
    },
    Useful {
        what: "git",
        any: &["/usr/bin/git", "/usr/local/bin/git", "/bin/git"],
        package: Some("git"),
        loses: "repositories cannot be used",
    },
    Useful {
        what: "TLS roots",
        any: &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"],
        package: Some("ca-certificates"),
        loses: "programs other than the agent trust no host",
    },
];

/// The list as text, which changes when the list does.
pub(super) fn inputs() -> String {
    format!("{USEFUL:?}")
}

/// The packages that install what is missing, if there is one for each.
pub(super) fn packages(missing: &[&ImageWant]) -> Option<Vec<&'static str>> {
    let package = |want: &&ImageWant| USEFUL.iter().find(|useful| useful.what == want.what)?.package;
    missing.iter().map(package).collect()
}

/// What an agent needs of a system, with one of these interpreters for its program.
pub fn wanted(interpreter: &[AbsPath]) -> Vec<ImageWant> {
    let path = |path: &&str| AbsPath::new(*path).ok();
    let useful = USEFUL.iter().map(|Useful { what, any, loses, package: _ }| ImageWant {
        what: (*what).to_owned(),
        any: any.iter().filter_map(path).collect(),
        loses: (*loses).to_owned(),
        weight: WantWeight::Useful,
    });
    let necessary = interpreter.first().map(|first| ImageWant {
        what: format!("`{first}`"),
        any: interpreter.to_vec(),
        loses: "the agent's program is started with it".to_owned(),
        weight: WantWeight::Necessary,
    });
    necessary.into_iter().chain(useful).collect()
}

impl Engine {
    /// Returns what the plan wants of a container and its image lacks, one sentence each.
    ///
    /// # Errors
    /// When it lacks what is necessary, or the engine does not say.
    pub(super) fn lacking(&self, id: &str, container: &Container) -> Result<Vec<String>, EngineError> {
        let Container { image, wanted, mounts: _ } = container;
        let missing = self.missing(id, wanted)?;
        if let Some(want) = missing.iter().find(|want| want.weight == WantWeight::Necessary) {
            let ImageWant { what, loses, .. } = want;
            return Err(EngineError::Lacking {
                image: image.to_string(),
                what: what.clone(),
                loses: loses.clone(),
            });
        }
        let sentence =
            |want: &&ImageWant| format!("the image `{image}` has no {}: {}", want.what, want.loses);
        Ok(missing.iter().map(sentence).collect())
    }

    /// Returns what an image lacks. A container is made from it and removed again; it is never started.
    ///
    /// # Errors
    /// When the engine does not have the image, or does not say.
    pub fn image_lacks<'a>(
        &self,
        image: &ImageName,
        wanted: &'a [ImageWant],
    ) -> Result<Vec<&'a ImageWant>, EngineError> {
        self.lacked_by(&self.named_image(image)?, wanted)
    }

    /// Returns what the image with this number lacks.
    pub(super) fn lacked_by<'a>(
        &self,
        image: &str,
        wanted: &'a [ImageWant],
    ) -> Result<Vec<&'a ImageWant>, EngineError> {
        let act = "make a container";
        let body = json!({
            "Image": image,
            "Entrypoint": ["/nothing"],
            "Cmd": [],
            "Labels": { OWNER: orphans::owner(), SUPERVISOR: orphans::this_process(), RUN: "look" },
        });
        let made = self.good(Method::POST, "/containers/create", Sent::Json(body), act)?.json();
        let id = made["Id"].as_str().unwrap_or_default();
        let missing = self.missing(id, wanted);
        self.ask_while_busy(&Method::DELETE, &format!("/containers/{id}?force=true&v=true"), "remove it")?;
        missing
    }

    fn missing<'a>(&self, id: &str, wanted: &'a [ImageWant]) -> Result<Vec<&'a ImageWant>, EngineError> {
        let mut missing = Vec::new();
        for want in wanted {
            let mut there = false;
            for path in &want.any {
                let target = format!("/containers/{id}/archive?path={}", escaped(&path.to_string()));
                there = self.ask(Method::HEAD, &target, Sent::Nothing, "look into the image")?.is_good();
                if there {
                    break;
                }
            }
            if !there {
                missing.push(want);
            }
        }
        Ok(missing)
    }
}
