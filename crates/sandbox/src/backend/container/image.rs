//! The image without a system: empty directories to mount on. It is made here and needs no registry.

use super::engine::{Engine, EngineError, done};
use super::http::{Sent, escaped};
use belljar_contract::{Digest, ImageName};
use hyper::Method;
use serde::Serialize;

/// Its name; what follows the colon is a digest of what it was made from.
const REPOSITORY: &str = "localhost/belljar/base";
/// What engines mount on in every container.
const DIRECTORIES: [&str; 6] = ["dev", "etc", "proc", "run", "sys", "tmp"];
const BLOCK: usize = 512;
/// This kind of processor, as images name it.
const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
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
    /// Its number.
    pub id: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether this belljar uses it.
    pub current: bool,
}

/// Whether an image that is there is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// Only where it is missing.
    WhereMissing,
    /// In any case.
    Always,
}

/// What became of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltImage {
    /// It was there.
    There,
    /// It was made.
    Made,
}

/// The image that containers are made from.
#[must_use]
pub fn base_name() -> String {
    let digest = Digest::of(&skeleton()).hex();
    format!("{REPOSITORY}:{}", digest.get(..12).unwrap_or_default())
}

impl Engine {
    /// Makes sure that the image is there.
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
            // It has no name any more. One that a container still uses stays.
            let _removed = self.ask(
                Method::DELETE,
                &format!("/images/{}", escaped(old)),
                Sent::Nothing,
                "remove an image",
            );
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
            let socket = self.socket().display().to_string();
            let podman = self.version()?.to_lowercase().contains("podman");
            let program = if podman { "podman" } else { "docker" };
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
            None => Err(EngineError::Refused { act, words: "it has no number".to_owned() }),
        }
    }

    /// belljar's images.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn images(&self) -> Result<Vec<Image>, EngineError> {
        let act = "list images";
        let answer = done(self.ask_while_busy(&Method::GET, "/images/json", act)?, act)?.json();
        let (current, mut out) = (base_name(), Vec::new());
        for image in answer.as_array().into_iter().flatten() {
            let names = image["RepoTags"].as_array().cloned().unwrap_or_default();
            for name in names.iter().filter_map(|name| name.as_str()) {
                if name.starts_with(&format!("{REPOSITORY}:")) {
                    let id = image["Id"].as_str().unwrap_or_default().to_owned();
                    let bytes = image["Size"].as_u64().unwrap_or(0);
                    out.push(Image { name: name.to_owned(), id, bytes, current: name == current });
                }
            }
        }
        out.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(out)
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
    let mut out: Vec<u8> = DIRECTORIES.iter().flat_map(|name| header(name)).collect();
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

/// The header of a directory, as POSIX has it.
fn header(name: &str) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, format!("{name}/").as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"5");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_image_is_a_tar_archive_of_empty_directories() {
        let mut tar = Command::new("tar")
            .args(["-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&skeleton()).unwrap();
        let output = tar.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert_eq!(text.lines().count(), DIRECTORIES.len(), "{text}");
        assert!(text.lines().all(|line| line.starts_with("drwxr-xr-x 0/0")), "{text}");
        assert_eq!(base_name(), base_name());
    }
}
