//! Names of container images.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The maximum length that engines accept, without tag and digest.
const NAME_LIMIT: usize = 255;
/// The maximum length of a tag.
const TAG_LIMIT: usize = 128;
/// The number of hexadecimal digits of a digest.
const DIGEST_LENGTH: usize = 64;

/// Why a text does not name an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    #[error("image name must not be empty")]
    Empty,
    #[error("image name must not have a scheme")]
    Scheme,
    #[error("image name must be lower case")]
    Capital,
    #[error(
        "each part of an image name must be letters and digits, with single `.`, one or two `_`, or any number of `-` between them"
    )]
    Part,
    #[error("the text before the first `/` is not a host with an optional port")]
    Host,
    #[error("tag must be up to 128 letters, digits, `_`, `.` and `-`, and must not begin with `.` or `-`")]
    Tag,
    #[error("digest must be `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
    #[error("image name must have at most {NAME_LIMIT} characters before its tag")]
    Long,
}

/// A container image: `[host[:port]/]path[:tag][@sha256:digest]`. Only the engine knows whether it exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

impl ImageName {
    /// Parses and checks a name.
    ///
    /// # Errors
    /// Says which part of it is wrong.
    pub fn parse(text: &str) -> Result<Self, ImageNameError> {
        if text.is_empty() {
            return Err(ImageNameError::Empty);
        }
        if text.contains("://") {
            return Err(ImageNameError::Scheme);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ImageNameError::Digest);
        }
        // A colon before the last slash belongs to the port of a host.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            Some(_) | None => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ImageNameError::Tag);
        }
        if name.len() > NAME_LIMIT {
            return Err(ImageNameError::Long);
        }
        let path = match name.split_once('/') {
            // Engines take the first part for a host when it looks like one.
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
                if !is_host(host) {
                    return Err(ImageNameError::Host);
                }
                path
            }
            Some(_) | None => name,
        };
        if path.contains(|c: char| c.is_ascii_uppercase()) {
            return Err(ImageNameError::Capital);
        }
        if !path.split('/').all(is_part) {
            return Err(ImageNameError::Part);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with `:latest` if it has no tag or digest. Some engines fetch every tag of a name without one.
    #[must_use]
    pub fn tagged(&self) -> String {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        if last.contains([':', '@']) { self.0.clone() } else { format!("{}:latest", self.0) }
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == DIGEST_LENGTH && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = text.bytes();
    text.len() <= TAG_LIMIT
        && bytes.next().is_some_and(word)
        && bytes.all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Letters and digits; between them one `.`, one or two `_`, or any number of `-`.
fn is_part(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut between = String::new();
    let mut last = None;
    for byte in text.bytes() {
        if letter(byte) {
            let joined = match between.as_str() {
                "" | "." | "_" | "__" => true,
                many => many.bytes().all(|byte| byte == b'-'),
            };
            if !joined {
                return false;
            }
            between.clear();
        } else if matches!(byte, b'.' | b'_' | b'-') && last.is_some() {
            between.push(char::from(byte));
        } else {
            return false;
        }
        last = Some(byte);
    }
    last.is_some_and(letter)
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ImageName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ImageName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let good = [
            "debian",
            "debian:12",
            "localhost/tools:1.2-rc_3",
            "ghcr.io/some-one/some__thing/x.y:latest",
            "registry.example.org:5000/team/image",
            "127.0.0.1:5000/a",
            "a--b/c",
            &format!("debian@{digest}"),
            &format!("quay.io/x/y:1@{digest}"),
        ];
        for text in good {
            assert_eq!(ImageName::parse(text).map(|name| name.to_string()), Ok(text.to_owned()));
        }
        use ImageNameError::{Capital, Digest, Empty, Host, Long, Part, Scheme, Tag};
        let long = "a".repeat(NAME_LIMIT + 1);
        let tag = format!("a:{}", "b".repeat(TAG_LIMIT + 1));
        let bad = [
            ("", Empty),
            ("docker://debian", Scheme),
            ("Debian", Capital),
            ("team/Image:1", Capital),
            ("a b", Part),
            ("../a", Host),
            ("a..b", Part),
            ("a/", Part),
            ("/a", Part),
            ("-a", Part),
            ("a?x=1", Part),
            ("a%2fb", Part),
            ("a\nb", Part),
            ("a_-b", Part),
            ("debian:", Tag),
            ("debian:.1", Tag),
            ("debian:a b", Tag),
            (&tag, Tag),
            ("debian@sha256:12", Digest),
            ("debian@md5:0123", Digest),
            ("exa_mple.org/a", Host),
            ("host:0/a", Host),
            ("host:70000/a", Host),
            (&long, Long),
        ];
        for (text, expected) in bad {
            assert_eq!(ImageName::parse(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_name_without_a_tag_has_the_usual_one() {
        let digest = format!("a@sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("debian", "debian:latest"),
            ("debian:12", "debian:12"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"),
            (digest.as_str(), digest.as_str()),
        ] {
            assert_eq!(ImageName::parse(text).unwrap().tagged(), expected);
        }
    }
}
