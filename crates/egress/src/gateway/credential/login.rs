//! Reads the token of a login file. Other members of the file, such as a refresh token, are skipped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use belljar_contract::{LoginFile, Secret};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

pub(super) struct LoginToken<'d> {
    /// Borrowed, so that no copy is left in memory.
    pub token: &'d str,
    pub expires: Option<SystemTime>,
}

/// The login, if the file contains one. The error can quote the file, so that it must not be shown.
pub(super) fn read<'d>(
    file: &LoginFile,
    content: &'d Secret,
) -> Result<Option<LoginToken<'d>>, serde_json::Error> {
    let Some(token) = member::<&str>(content, &file.token, Presence::Required)? else { return Ok(None) };
    let millis = member::<Option<u64>>(content, &file.expires, Presence::Optional)?.flatten();
    let expires = millis.and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    Ok(Some(LoginToken { token, expires }))
}

/// Whether a member may be missing.
#[derive(Clone, Copy)]
enum Presence {
    Required,
    Optional,
}

/// The value at the end of the path. A file without the outermost member has no login; `below` is about the others.
fn member<'d, T: Deserialize<'d>>(
    content: &'d Secret,
    path: &[String],
    below: Presence,
) -> Result<Option<T>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(content.expose());
    let seed = MemberAt { path, first: Presence::Optional, below, of: PhantomData };
    let found = seed.deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// The value that a path of members leads to.
struct MemberAt<'p, T> {
    path: &'p [String],
    /// Of the first member of the path.
    first: Presence,
    /// Of the members after it.
    below: Presence,
    of: PhantomData<T>,
}

impl<'d, T: Deserialize<'d>> DeserializeSeed<'d> for MemberAt<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'d>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() { T::deserialize(json).map(Some) } else { json.deserialize_any(self) }
    }
}

impl<'d, T: Deserialize<'d>> Visitor<'d> for MemberAt<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'d>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let Self { path, first, below, of } = self;
        let Some((wanted, rest)) = path.split_first() else { return Ok(None) };
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'d, str>>()? {
            if name != wanted.as_str() {
                members.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                return Err(A::Error::custom("a member is repeated"));
            } else {
                found = Some(members.next_value_seed(MemberAt { path: rest, first: below, below, of })?);
            }
        }
        match (found, first) {
            (Some(found), Presence::Optional | Presence::Required) => Ok(found),
            (None, Presence::Optional) => Ok(None),
            (None, Presence::Required) => Err(A::Error::custom("a member is missing")),
        }
    }
}
