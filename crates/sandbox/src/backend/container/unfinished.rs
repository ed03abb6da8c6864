//! Finds what an interrupted build leaves in an engine.
//!
//! An image is known to be unfinished by its name, which the builder gives it and takes away at the end. Labels cannot say
//! so: engines pass them on to every image and container that the user makes from a finished image.

use super::engine::{Engine, done};
use super::error::EngineError;
use super::http::{Sent, escaped};
use super::orphans::{is_orphan, lives, owner, this_process};
use hyper::Method;
use serde_json::json;
use std::collections::BTreeSet;

/// The repository of images that are not finished, or that a finished one has replaced.
const UNFINISHED: &str = "localhost/belljar/unfinished";

/// An image that belongs to a build whose process has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedImage {
    /// The number that the engine gave it.
    pub id: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The builder's name for it.
    pub(super) name: String,
}

/// Why a build gave an image a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    New,
    Replaced,
}

/// The tag of an image of the running build: it names the user, the PID namespace and this process.
fn tag(role: Role) -> String {
    let role = match role {
        Role::New => "new",
        Role::Replaced => "replaced",
    };
    format!("{}-{}-{role}", dashed(&owner()), this_process())
}

pub(super) fn name(role: Role) -> String {
    format!("{UNFINISHED}:{}", tag(role))
}

/// The numbers in a text, joined for a tag.
fn dashed(text: &str) -> String {
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
    numbers.collect::<Vec<_>>().join("-")
}

/// Whether a name was given by a build of this user that is not running any more.
pub(super) fn is_abandoned(name: &str) -> bool {
    let tag = name.strip_prefix(UNFINISHED).and_then(|rest| rest.strip_prefix(':'));
    let of_owner = tag.and_then(|tag| tag.strip_prefix(&dashed(&owner()))?.strip_prefix('-'));
    let Some(of_owner) = of_owner else { return false };
    of_owner.split_once('-').is_some_and(|(process, _role)| !lives(process))
}

impl Engine {
    /// Gives an image another name in the repository of unfinished ones.
    pub(super) fn mark_unfinished(&self, image: &str, role: Role) -> Result<(), EngineError> {
        let target = format!("/images/{}/tag?repo={}&tag={}", escaped(image), escaped(UNFINISHED), tag(role));
        self.good(Method::POST, &target, Sent::Nothing, "name an image").map(drop)
    }

    /// Images that builds of this user left, unless a container of the user's or of a run uses one.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn unfinished_builds(&self) -> Result<Vec<UnfinishedImage>, EngineError> {
        let act = "list images";
        let images = done(self.ask_while_busy(&Method::GET, "/images/json", act)?, act)?.json();
        let mut out = Vec::new();
        for image in images.as_array().into_iter().flatten() {
            let names = image["RepoTags"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
            for name in names.filter(|name| is_abandoned(name)) {
                let id = image["Id"].as_str().unwrap_or_default().to_owned();
                let bytes = image["Size"].as_u64().unwrap_or(0);
                out.push(UnfinishedImage { id, bytes, name: name.to_owned() });
            }
        }
        if out.is_empty() {
            return Ok(out);
        }
        let containers = self.containers(&json!({}))?;
        let plain = |id: &str| id.trim_start_matches("sha256:").to_owned();
        let in_use = containers.iter().filter(|one| !is_orphan(one));
        let images = in_use.filter_map(|one| one["ImageID"].as_str());
        let used: BTreeSet<String> = images.map(plain).collect();
        out.retain(|image| !used.contains(&plain(&image.id)));
        Ok(out)
    }

    /// Removes the builder's name, and the image where it has no other; one that a container uses is refused.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn remove_unfinished(&self, image: &UnfinishedImage) -> Result<(), EngineError> {
        let act = "remove an image";
        let target = format!("/images/{}", escaped(&image.name));
        let mut answer = self.ask_while_busy(&Method::DELETE, &target, act)?;
        if answer.status == 409 {
            // The engine made the builder's container after the builder's end.
            for orphan in self.orphans()? {
                self.remove_orphan(&orphan)?;
            }
            answer = self.ask_while_busy(&Method::DELETE, &target, act)?;
        }
        // It may have gone by itself.
        if answer.is_good() || answer.status == 404 {
            return Ok(());
        }
        Err(EngineError::Refused { act, message: answer.message() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ended_builds_of_this_user_are_abandoned() {
        let own = name(Role::New);
        assert!(!is_abandoned(&own), "{own}: this process runs");
        let owner = dashed(&owner());
        let this = this_process();
        let (process, _start) = this.rsplit_once('.').unwrap();
        assert!(is_abandoned(&format!("{UNFINISHED}:{owner}-{process}.1-new")), "an earlier process");
        for other in [
            format!("{UNFINISHED}:9{owner}-{process}.1-new"),
            format!("{UNFINISHED}:{owner}"),
            format!("{UNFINISHED}:latest"),
            "localhost/belljar/from:0123456789ab".to_owned(),
            "<none>:<none>".to_owned(),
            String::new(),
        ] {
            assert!(!is_abandoned(&other), "{other}");
        }
    }
}
