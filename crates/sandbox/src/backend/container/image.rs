//! belljar's images. The one for plans without an image holds empty directories to mount on; it is made here and needs no
//! registry.

use super::engine::{Engine, done};
use super::error::EngineError;
use super::http::{Sent, escaped};
use super::recipe;
use super::tar::{self, TarEntry};
use super::unfinished::is_abandoned;
use belljar_contract::{Digest, ImageName};
use hyper::Method;
use serde::Serialize;

/// The name of the image of empty directories; the tag is a digest of what it was made from.
const REPOSITORY: &str = "localhost/belljar/base";
/// The directories that engines mount on in every container.
const DIRECTORIES: [&str; 6] = ["dev", "etc", "proc", "run", "sys", "tmp"];
/// This kind of processor, as images name it.
pub(super) const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    std::env::consts::ARCH
};

/// An image of belljar's that an engine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Its name and tag.
    pub name: String,
    /// The number that the engine gave it.
    pub id: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether this belljar would make it the same way, from what the engine has.
    pub current: bool,
    /// The base that it was made from, as the user named it; the image of empty directories has none.
    pub base: Option<String>,
}

/// Whether an image that is there is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// Only where it is missing.
    WhereMissing,
    /// Even where it exists.
    Always,
}

/// The outcome of making an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltImage {
    /// It existed already.
    There,
    /// It was made now.
    Made,
}

/// The image that containers are made from.
#[must_use]
pub fn base_name() -> String {
    let digest = Digest::of(&skeleton()).hex();
    format!("{REPOSITORY}:{}", digest.get(..12).unwrap_or_default())
}

impl Engine {
    /// Makes the image of empty directories where it is missing.
    ///
    /// # Errors
    /// When the engine does not take it.
    pub fn build_image(&self, rebuild: Rebuild) -> Result<BuiltImage, EngineError> {
        let name = base_name();
        let known = self.ask(Method::GET, &format!("/images/{name}/json"), Sent::Nothing, "show an image")?;
        if known.is_good() && rebuild == Rebuild::WhereMissing {
            return Ok(BuiltImage::There);
        }
        let target = format!("/images/create?fromSrc=-&repo={}", escaped(&name));
        self.good(Method::POST, &target, Sent::Tar(skeleton()), "import an image")?;
        if let Some(old) = known.json()["Id"].as_str() {
            // It has no name any more.
            self.forget(old);
        }
        Ok(BuiltImage::Made)
    }

    /// The number of an image that the user named. It is never fetched.
    ///
    /// # Errors
    /// When the engine does not have it, or it is not for this machine.
    pub fn named_image(&self, image: &ImageName) -> Result<String, EngineError> {
        let act = "show an image";
        let answer = self.ask(Method::GET, &format!("/images/{image}/json"), Sent::Nothing, act)?;
        if answer.status == 404 {
            let (socket, program) = (self.socket().display().to_string(), self.program()?);
            return Err(EngineError::NoImage { socket, image: image.clone(), program });
        }
        let shown = done(answer, act)?.json();
        let architecture = shown["Architecture"].as_str().unwrap_or_default();
        if architecture != ARCHITECTURE {
            let architecture =
                if architecture.is_empty() { "nothing that it names" } else { architecture }.to_owned();
            return Err(EngineError::Foreign { image: image.clone(), architecture, machine: ARCHITECTURE });
        }
        match shown["Id"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(EngineError::Refused { act, message: "it has no number".to_owned() }),
        }
    }

    /// Lists belljar's images.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn images(&self) -> Result<Vec<Image>, EngineError> {
        let act = "list images";
        let answer = done(self.ask_while_busy(&Method::GET, "/images/json", act)?, act)?.json();
        let mut out = Vec::new();
        for image in answer.as_array().into_iter().flatten() {
            let id = image["Id"].as_str().unwrap_or_default().to_owned();
            let bytes = image["Size"].as_u64().unwrap_or(0);
            let label = |name: &str| image["Labels"][name].as_str();
            let made_from = label(recipe::BASE).zip(label(recipe::BASE_ID));
            let names = image["RepoTags"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = names.iter().filter_map(|name| name.as_str()).collect();
            for name in names.iter().filter(|name| name.starts_with(&format!("{REPOSITORY}:"))) {
                let (name, current) = ((*name).to_owned(), *name == base_name());
                out.push(Image { name, id: id.clone(), bytes, current, base: None });
            }
            let Some((base, base_id)) = made_from else { continue };
            for name in names.iter().filter(|name| name.starts_with(&format!("{}:", recipe::REPOSITORY))) {
                let current = *name == recipe::name(base_id) && self.leads_to(base, base_id)?;
                let (name, base) = ((*name).to_owned(), Some(base.to_owned()));
                out.push(Image { name, id: id.clone(), bytes, current, base });
            }
            // The build ended before the image got its own name.
            for name in names.iter().filter(|name| is_abandoned(name)) {
                let (name, base) = ((*name).to_owned(), Some(base.to_owned()));
                out.push(Image { name, id: id.clone(), bytes, current: false, base });
            }
        }
        out.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(out)
    }

    /// Whether a name is still that of the image with this number.
    fn leads_to(&self, name: &str, id: &str) -> Result<bool, EngineError> {
        let target = format!("/images/{}/json", escaped(name));
        let shown = self.ask(Method::GET, &target, Sent::Nothing, "show an image")?;
        Ok(shown.is_good() && shown.json()["Id"].as_str() == Some(id))
    }

    /// Removes an image; one that a container uses is refused.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn remove_image(&self, image: &Image) -> Result<(), EngineError> {
        let target = format!("/images/{}", escaped(&image.name));
        self.good(Method::DELETE, &target, Sent::Nothing, "remove an image").map(drop)
    }
}

/// A tar archive of the directories: the same bytes every time.
fn skeleton() -> Vec<u8> {
    tar::archive(&DIRECTORIES.map(TarEntry::Directory))
}
