//! What a build that did not end well leaves in an engine.

use super::body::{OWNER, SUPERVISOR};
use super::engine::{Engine, EngineError};
use super::http::escaped;
use super::orphans::{lives, owner};
use super::recipe::BASE_ID;
use hyper::Method;
use serde_json::json;

/// An image without a name whose maker is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedImage {
    /// Its number.
    pub id: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Engine {
    /// Images that builds of this user made and did not live to name.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn unfinished_builds(&self) -> Result<Vec<UnfinishedImage>, EngineError> {
        let filters = json!({ "label": [format!("{OWNER}={}", owner())] }).to_string();
        let target = format!("/images/json?filters={}", escaped(&filters));
        let answer =
            super::engine::done(self.ask_while_busy(&Method::GET, &target, "list images")?, "list images")?;
        let mut out = Vec::new();
        for image in answer.json().as_array().into_iter().flatten() {
            let label = |name: &str| image["Labels"][name].as_str();
            let names = image["RepoTags"].as_array().cloned().unwrap_or_default();
            let nameless = names.iter().all(|name| name == "<none>:<none>");
            let ours = label(BASE_ID).is_some() && label(OWNER) == Some(owner().as_str());
            if nameless && ours && label(SUPERVISOR).is_some_and(|label| !lives(label)) {
                let id = image["Id"].as_str().unwrap_or_default().to_owned();
                out.push(UnfinishedImage { id, bytes: image["Size"].as_u64().unwrap_or(0) });
            }
        }
        Ok(out)
    }

    /// Removes it; one that a container uses is refused.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn remove_unfinished(&self, image: &UnfinishedImage) -> Result<(), EngineError> {
        let act = "remove an image";
        let target = format!("/images/{}", escaped(&image.id));
        let answer = self.ask_while_busy(&Method::DELETE, &target, act)?;
        // It may have gone by itself.
        if answer.is_good() || answer.status == 404 {
            return Ok(());
        }
        Err(EngineError::Refused { act, words: answer.words() })
    }
}
