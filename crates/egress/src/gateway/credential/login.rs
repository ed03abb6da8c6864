//! Reads the token of a login file. Other members of the file, such as a refresh token, are skipped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use belljar_contract::{LoginFile, Secret};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

pub(super) struct Login<'d> {
    /// Borrowed, so that no copy is left in memory.
    pub token: &'d str,
    pub expires: Option<SystemTime>,
}

/// The login, if the file contains one. The error can quote the file, so that it must not be shown.
pub(super) fn read<'d>(
    file: &LoginFile,
    content: &'d Secret,
) -> Result<Option<Login<'d>>, serde_json::Error> {
    let Some(token) = member::<&str>(content, &file.token, Below::Required)? else { return Ok(None) };
    let millis = member::<Option<u64>>(content, &file.expires, Below::Optional)?.flatten();
    let expires = millis.and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    Ok(Some(Login { token, expires }))
}

/// Whether the members below the outermost one must be present. A file without the outermost one has no login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Required,
    Optional,
}

fn member<'d, T: Deserialize<'d>>(
    content: &'d Secret,
    path: &[String],
    below: Below,
) -> Result<Option<T>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(content.expose());
    let seed = Member { path, missing: Below::Optional, below, of: PhantomData };
    let found = seed.deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// The value that a path of members leads to.
struct Member<'p, T> {
    path: &'p [String],
    missing: Below,
    below: Below,
    of: PhantomData<T>,
}

impl<'d, T: Deserialize<'d>> DeserializeSeed<'d> for Member<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'d>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() { T::deserialize(json).map(Some) } else { json.deserialize_any(self) }
    }
}

impl<'d, T: Deserialize<'d>> Visitor<'d> for Member<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'d>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let Self { path, missing, below, of } = self;
        let Some((first, rest)) = path.split_first() else { return Ok(None) };
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'d, str>>()? {
            if name != first.as_str() {
                members.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                return Err(A::Error::custom("a member is repeated"));
            } else {
                found = Some(members.next_value_seed(Member { path: rest, missing: below, below, of })?);
            }
        }
        match (found, missing) {
            (Some(found), _) => Ok(found),
            (None, Below::Optional) => Ok(None),
            (None, Below::Required) => Err(A::Error::custom("a member is missing")),
        }
    }
}
