//! Absolute paths.

use crate::visible_bytes;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// An absolute path without `.`, `..`, doubled or trailing slashes, and without NUL.
///
/// It need not be UTF-8: the bytes of the file system are kept, and only the printed form is approximate. `..` is
/// resolved textually, so paths that come from the file system must be canonicalised first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbsPath(PathBuf);

/// Why a path was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("`{0}` is not an absolute path")]
    Relative(String),
    #[error("path must not contain a NUL byte")]
    Nul,
}

impl AbsPath {
    /// Accepts an absolute path and resolves `.` and `..` textually.
    ///
    /// # Errors
    /// When it is relative or holds a NUL byte.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::Nul);
        }
        if !path.is_absolute() {
            return Err(PathError::Relative(visible_bytes(path.as_os_str().as_bytes())));
        }
        Ok(Self::normal(Path::new("/"), path))
    }

    /// `self` followed by `relative`; an absolute `relative` replaces `self`.
    ///
    /// # Errors
    /// When `relative` holds a NUL byte.
    pub fn join(&self, relative: impl AsRef<Path>) -> Result<Self, PathError> {
        Self::new(self.0.join(relative))
    }

    /// `self` followed by a name that is known to be a plain component.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self::normal(&self.0, Path::new(name))
    }

    fn normal(base: &Path, path: &Path) -> Self {
        let mut out = base.to_path_buf();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    out.pop();
                }
                Component::Normal(name) => out.push(name),
            }
        }
        Self(out)
    }

    /// The path for the standard library.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The bytes the kernel sees.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// The last component; `None` for `/`.
    #[must_use]
    pub fn file_name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// The directory it is in; `None` for `/`.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().map(|parent| Self(parent.to_path_buf()))
    }

    /// Whether it is `other` or below it, by whole components.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The rest of the path after `other`; `None` if `self` is not below it.
    #[must_use]
    pub fn relative_to(&self, other: &Self) -> Option<&Path> {
        self.0.strip_prefix(&other.0).ok()
    }
}

impl AsRef<Path> for AbsPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for AbsPath {
    /// For people: escaped, so that a name cannot forge a line, colour a terminal or hide characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&visible_bytes(self.as_bytes()))
    }
}

impl fmt::Debug for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for AbsPath {
    /// A string if the bytes are UTF-8, otherwise `{"bytes": [..]}`, so that every path round-trips unambiguously.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        if let Some(text) = self.0.to_str() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("bytes", self.as_bytes())?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for AbsPath {
    /// Reads the serialised form and validates it like any other text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = AbsPath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an absolute path, or `{\"bytes\": [..]}`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AbsPath, E> {
        AbsPath::new(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AbsPath, A::Error> {
        let Some((key, bytes)) = map.next_entry::<String, Vec<u8>>()? else {
            return Err(A::Error::missing_field("bytes"));
        };
        if key != "bytes" || map.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("expected `bytes` and nothing else"));
        }
        AbsPath::new(OsString::from_vec(bytes)).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abs(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn is_normal() {
        for (text, normal) in
            [("/", "/"), ("//a///b/", "/a/b"), ("/a/./b/../c", "/a/c"), ("/../..", "/"), ("/a b\n", "/a b\n")]
        {
            assert_eq!(abs(text).as_path(), Path::new(normal));
        }
        assert_eq!(AbsPath::new("a/b"), Err(PathError::Relative("a/b".into())));
        assert_eq!(AbsPath::new("/a\0b"), Err(PathError::Nul));
    }

    #[test]
    fn containment_is_by_component() {
        assert!(abs("/home/ann/x").is_within(&abs("/home/ann")));
        assert!(!abs("/home/annette").is_within(&abs("/home/ann")));
        assert_eq!(abs("/a/b/c").relative_to(&abs("/a")), Some(Path::new("b/c")));
    }

    #[test]
    fn odd_names_survive_and_cannot_forge_a_line() {
        let path = AbsPath::new(OsStr::from_bytes(b"/a\xff\n\x1b[31m")).unwrap();
        assert_eq!(path.to_string(), "/a\\xff\\n\\u{1b}[31m");
        assert_eq!(serde_json::to_string(&path).unwrap(), r#"{"bytes":[47,97,255,10,27,91,51,49,109]}"#);
        assert_eq!(serde_json::to_string(&abs("/é")).unwrap(), r#""/é""#);
        for path in [path, abs("/é")] {
            assert_eq!(serde_json::from_value::<AbsPath>(serde_json::json!(path)).unwrap(), path);
        }
        for bad in [r#""a""#, "{}", r#"{"bytes":[47],"more":1}"#, r#"{"text":[47]}"#, r#"{"bytes":[47,0]}"#] {
            assert!(serde_json::from_str::<AbsPath>(bad).is_err(), "{bad}");
        }
    }
}
