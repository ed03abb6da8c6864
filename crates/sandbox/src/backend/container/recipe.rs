//! An image made of a base from a registry and what agents need.
//!
//! Nothing else fetches. The base is addressed by its number, so that every step is about the same image, and the result gets
//! its name last: an image with the name was inspected and lacks nothing.

use super::contents;
use super::engine::{Engine, VERSION};
use super::error::EngineError;
use super::http::{Heard, Sent, escaped};
use super::image::{ARCHITECTURE, BuiltImage, Rebuild};
use super::tar::{self, TarEntry};
use super::unfinished::{self, Role};
use belljar_contract::{Digest, ImageName, ImageWant};
use hyper::Method;
use serde_json::{Value, json};

const RECIPE: &str = include_str!("Containerfile");
/// The repository of the images; the tag is a digest of what one was made from.
pub(super) const REPOSITORY: &str = "localhost/belljar/from";
/// The base as the user named it, and its number.
pub(super) const BASE: &str = "belljar.base";
pub(super) const BASE_ID: &str = "belljar.base-id";
/// How many of its last lines a failed build is quoted with.
const LAST_LINES: usize = 4;
/// Programs that provide the network of a build, as podman names them in its errors.
const NETWORKS: [&str; 3] = ["netavark", "slirp4netns", "pasta"];
/// The most characters of an engine's message that are repeated.
const MESSAGE_LIMIT: usize = 2000;

/// What an engine is doing for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageAct {
    /// Fetching the base from its registry.
    Fetch,
    /// Making the image from the base.
    Build,
}

/// What an engine that works on an image reports.
#[derive(Debug, Clone, Copy)]
pub struct ImageNews<'a> {
    /// What the engine is doing.
    pub act: ImageAct,
    /// The last that the engine said about it: a line without control characters, or nothing.
    pub line: &'a str,
}

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FromError {
    /// The engine cannot do it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The base could not be fetched.
    #[error("the engine cannot fetch `{base}`: {message}")]
    Fetch {
        /// The name of the base.
        base: ImageName,
        /// The engine's message.
        message: String,
        /// The engine's command, for the user to run.
        program: &'static str,
    },
    /// Nothing can be added to the base.
    #[error("`{base}` has no shell: nothing can be installed in it")]
    NoShell {
        /// The name of the base.
        base: ImageName,
    },
    /// A step of the recipe failed.
    #[error("`{base}` has no {lacks}, and installing it failed: {message}")]
    Build {
        /// The name of the base.
        base: ImageName,
        /// What the base lacks.
        lacks: String,
        /// The last lines of the build.
        message: String,
    },
    /// The recipe ran, and the image still lacks something.
    #[error("`{base}` has no {lacks}, and still has none after it was installed")]
    StillLacks {
        /// The name of the base.
        base: ImageName,
        /// What the base lacks.
        lacks: String,
    },
}

impl FromError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = |text: &str| Some(text.to_owned());
        match self {
            FromError::Engine(error) => error.hint(),
            FromError::Fetch { base, message, program } => Some(match fault(message) {
                FetchFault::Unreachable => format!(
                    "no registry can be reached: look at the network, or bring the image in a file with \
                     `{program} load`"
                ),
                FetchFault::Foreign => {
                    format!(
                        "it is not made for this machine, linux/{ARCHITECTURE}: choose another image or tag"
                    )
                }
                FetchFault::Absent => format!(
                    "look at the name and the tag; where it takes a login, `{program} login` and \
                     `{program} pull {base}` come first"
                ),
                FetchFault::Other => format!("`{program} pull {base}` brings it by hand; then ask again"),
            }),
            FromError::NoShell { .. } => {
                text("choose a base with a shell, and with apt-get, apk, dnf or microdnf")
            }
            FromError::Build { message, .. } if NETWORKS.iter().any(|one| message.contains(one)) => text(
                "the engine can make no network for a build here; install it by hand with \
                 `podman build --network=host`, and give the result to --from",
            ),
            FromError::Build { .. } | FromError::StillLacks { .. } => text(
                "install it in an image of your own, and give that one to --from: where nothing lacks nothing \
                 is installed",
            ),
        }
    }
}

/// Why a base could not be fetched, as far as the engine's message shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchFault {
    Unreachable,
    Foreign,
    Absent,
    Other,
}

pub(super) fn fault(message: &str) -> FetchFault {
    const MARKS: [(FetchFault, &[&str]); 3] = [
        (FetchFault::Unreachable, &["dial tcp", "no such host", "i/o timeout", "connection refused"]),
        (FetchFault::Foreign, &["no image found in", "no matching manifest"]),
        (
            FetchFault::Absent,
            &["manifest unknown", "name unknown", "not found", "denied", "unauthorized", "404"],
        ),
    ];
    let message = message.to_lowercase();
    let found = MARKS.iter().find(|(_, marks)| marks.iter().any(|mark| message.contains(mark)));
    found.map_or(FetchFault::Other, |(fault, _)| *fault)
}

/// The name of the image that this belljar makes of a base on this kind of machine.
pub(super) fn name(base_id: &str) -> String {
    let inputs = [base_id, ARCHITECTURE, RECIPE, &contents::inputs()].join("\n");
    let digest = Digest::of(inputs.as_bytes()).hex();
    format!("{REPOSITORY}:{}", digest.get(..12).unwrap_or_default())
}

impl Engine {
    /// Makes sure that there is an image of this base that has what agents need; gives its name. The base is fetched where
    /// the engine does not have it.
    ///
    /// # Errors
    /// When the base cannot be had, is not for this machine, or cannot be completed. Nothing is left of it then.
    pub fn build_from(
        &self,
        base: &ImageName,
        rebuild: Rebuild,
        news: &mut dyn FnMut(ImageNews<'_>),
    ) -> Result<(BuiltImage, String), FromError> {
        let base_id = self.base(base, news)?;
        let name = name(&base_id);
        let show = format!("/images/{}/json", escaped(&name));
        let known = self.ask(Method::GET, &show, Sent::Nothing, "show an image")?;
        if known.is_good() && rebuild == Rebuild::WhereMissing {
            return Ok((BuiltImage::There, name));
        }
        let made = self.completed(base, &base_id, news)?;
        let tag = name.trim_start_matches(REPOSITORY).trim_start_matches(':');
        let target = format!("/images/{}/tag?repo={}&tag={tag}", escaped(&made), escaped(REPOSITORY));
        let replaces = known.json()["Id"].as_str().is_some_and(|old| old != made);
        if replaces {
            // Until it is removed, `gc` knows it by this name.
            self.mark_unfinished(&name, Role::Replaced)?;
        }
        self.good(Method::POST, &target, Sent::Nothing, "name an image")?;
        self.forget(&unfinished::name(Role::New));
        if replaces {
            self.forget(&unfinished::name(Role::Replaced));
        }
        Ok((BuiltImage::Made, name))
    }

    /// The number of the base, which is fetched where it is missing.
    fn base(&self, base: &ImageName, news: &mut dyn FnMut(ImageNews<'_>)) -> Result<String, FromError> {
        match self.named_image(base) {
            // This machine has no registry: an image of such a name was made here.
            Err(EngineError::NoImage { .. }) if !base.as_str().starts_with("localhost/") => {}
            found => return Ok(found?),
        }
        let (mut failed, mut last) = (None, String::new());
        let target = format!("{VERSION}/images/create?fromImage={}", escaped(&base.tagged()));
        let fetched = self.follow(&target, Sent::Nothing, "fetch the base", &mut |heard| {
            if let Heard::Line(line) = heard {
                failed = failed.take().or(complaint(line));
                last = line["status"].as_str().map_or(String::new(), plain);
            }
            news(ImageNews { act: ImageAct::Fetch, line: &last });
        });
        match fetched {
            // Some engines know before they begin.
            Err(EngineError::Refused { message, .. }) => failed = Some(plain(&message)),
            other => other?,
        }
        if let Some(message) = failed {
            return Err(FromError::Fetch { base: base.clone(), message, program: self.program()? });
        }
        let found = self.named_image(base);
        if let Err(EngineError::Foreign { .. }) = found {
            self.forget(&base.tagged());
        }
        Ok(found?)
    }

    /// The number of a new image of the base that lacks nothing. It has the name of an unfinished one.
    fn completed(
        &self,
        base: &ImageName,
        base_id: &str,
        news: &mut dyn FnMut(ImageNews<'_>),
    ) -> Result<String, FromError> {
        let wanted = contents::wanted(&[]);
        let missing = self.lacked_by(base_id, &wanted)?;
        let packages = contents::packages(&missing).ok_or(FromError::NoShell { base: base.clone() })?;
        let (mut failed, mut made, mut written) = (None, None, None);
        let mut said: Vec<String> = Vec::new();
        let context = Sent::Tar(tar::archive(&[TarEntry::File("Containerfile", RECIPE.as_bytes())]));
        let target = format!("{}?{}", self.builder()?, build_query(base, base_id, &packages));
        self.follow(&target, context, "make an image", &mut |heard| {
            if let Heard::Line(line) = heard {
                failed = failed.take().or(complaint(line));
                made = line["aux"]["ID"].as_str().map(str::to_owned).or(made.take());
                let text = line["stream"].as_str().unwrap_or_default();
                // Only the last line counts: an installed program can print such a line as well.
                written = number(text);
                let lines = text.lines().map(plain);
                said.extend(lines.filter(|line| !line.is_empty() && !line.contains("STEP ")));
                said.drain(..said.len().saturating_sub(LAST_LINES));
            }
            news(ImageNews { act: ImageAct::Build, line: said.last().map_or("", String::as_str) });
        })?;
        let refused = |message: String| EngineError::Refused { act: "make an image", message };
        match (failed, made.or(written)) {
            (Some(error), _) if packages.is_empty() => Err(refused(error).into()),
            (Some(error), _) => {
                said.push(without_the_recipe(&error).to_owned());
                Err(FromError::Build { base: base.clone(), lacks: names(&missing), message: said.join("; ") })
            }
            (None, None) => Err(refused("it ended without reporting the result".to_owned()).into()),
            (None, Some(made)) => match self.lacked_by(&made, &wanted) {
                Ok(still) if still.is_empty() => Ok(made),
                Ok(still) => {
                    self.forget(&unfinished::name(Role::New));
                    Err(FromError::StillLacks { base: base.clone(), lacks: names(&still) })
                }
                Err(error) => {
                    self.forget(&unfinished::name(Role::New));
                    Err(error.into())
                }
            },
        }
    }

    /// What builds images. Podman's own interface makes a network for a build without root, the common one cannot.
    fn builder(&self) -> Result<&'static str, EngineError> {
        Ok(if self.program()? == "podman" { "/v4.0.0/libpod/build" } else { "/v1.40/build" })
    }

    /// Removes an image that is not wanted. One that a container still uses stays.
    pub(super) fn forget(&self, image: &str) {
        let target = format!("/images/{}", escaped(image));
        let _removed = self.ask(Method::DELETE, &target, Sent::Nothing, "remove an image");
    }
}

/// The request for a build. What an earlier one left is not used, and nothing is left by this one.
fn build_query(base: &ImageName, base_id: &str, packages: &[&str]) -> String {
    let (stage, arguments) = match packages {
        [] => ("whole", json!({ "BASE": base_id })),
        _ => ("completed", json!({ "BASE": base_id, "PACKAGES": packages.join(" ") })),
    };
    // Images that the user makes from this one inherit these labels, so none of them marks an image for removal.
    let labels = json!({ BASE: base, BASE_ID: base_id });
    // Podman would use the network of this machine, with all that listens on its loopback. Docker does not know the word,
    // and has a network of its own for builds.
    let namespaces = json!([{ "Name": "network", "Host": false, "Path": "" }]);
    let json = |value: Value| escaped(&value.to_string());
    format!(
        "dockerfile=Containerfile&target={stage}&t={}&buildargs={}&labels={}&nsoptions={}&nocache=1&layers=0&rm=1&forcerm=1",
        escaped(&unfinished::name(Role::New)),
        json(arguments),
        json(labels),
        json(namespaces)
    )
}

/// The number of an image, where it is all that a line says.
fn number(text: &str) -> Option<String> {
    let text = text.trim();
    let alone = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    alone.then(|| format!("sha256:{text}"))
}

/// The error that a line reports. The status of the answer was sent before it, and was good.
fn complaint(line: &Value) -> Option<String> {
    let message = line["error"].as_str().or(line["errorDetail"]["message"].as_str())?;
    Some(plain(message))
}

/// An engine quotes the whole step that failed before it says how it ended.
fn without_the_recipe(error: &str) -> &str {
    let end = error.rsplit_once("\": ").or(error.rsplit_once("' "));
    end.map_or(error, |(_, end)| end)
}

/// A line without control characters.
fn plain(text: &str) -> String {
    belljar_contract::visible(text.trim()).chars().take(MESSAGE_LIMIT).collect()
}

fn names(wants: &[&ImageWant]) -> String {
    wants.iter().map(|want| want.what.as_str()).collect::<Vec<_>>().join(", no ")
}
