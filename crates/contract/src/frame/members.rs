//! Access to the members of an object that the agent sent.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is wrong with a frame of a known type.
pub(super) type Flaw = String;

/// Reads the members of one object. `required_*` and `optional_*` are for members that decide something: a wrong type
/// is an error. `loose_*` are for members that only describe: a wrong type is treated as absent.
#[derive(Clone, Copy)]
pub(super) struct Members<'a>(pub &'a Map<String, Value>);

impl<'a> Members<'a> {
    /// The value of a member; null is `None`.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub fn optional_text(self, key: &str) -> Result<Option<&'a str>, Flaw> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| format!("`{key}` is not a string")))
            .transpose()
    }

    pub fn required_text(self, key: &str) -> Result<&'a str, Flaw> {
        self.optional_text(key)?.ok_or_else(|| format!("`{key}` is missing"))
    }

    pub fn optional_bool(self, key: &str) -> Result<Option<bool>, Flaw> {
        let read =
            |value: &Value| value.as_bool().ok_or_else(|| format!("`{key}` is neither true nor false"));
        self.get(key).map(read).transpose()
    }

    pub fn required_bool(self, key: &str) -> Result<bool, Flaw> {
        self.optional_bool(key)?.ok_or_else(|| format!("`{key}` is missing"))
    }

    pub fn required_object(self, key: &str) -> Result<Members<'a>, Flaw> {
        let value = self.get(key).ok_or_else(|| format!("`{key}` is missing"))?;
        value.as_object().map(Members).ok_or_else(|| format!("`{key}` is not an object"))
    }

    pub fn required_id<T: TryFrom<String, Error = super::IdError>>(self, key: &str) -> Result<T, Flaw> {
        T::try_from(self.required_text(key)?.to_owned()).map_err(|error| format!("`{key}`: {error}"))
    }

    pub fn optional_id<T: TryFrom<String, Error = super::IdError>>(
        self,
        key: &str,
    ) -> Result<Option<T>, Flaw> {
        let id = self.optional_text(key)?.map(|text| T::try_from(text.to_owned()));
        id.transpose().map_err(|error| format!("`{key}`: {error}"))
    }

    pub fn loose_text(self, key: &str) -> Option<String> {
        self.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    /// The first member that exists of several spellings.
    pub fn loose_text_of(self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.loose_text(key))
    }

    /// The members that are texts and whose names end so.
    pub fn loose_texts_ending_in(self, ending: &str) -> BTreeMap<String, String> {
        let named = self.0.iter().filter(|(key, _)| key.ends_with(ending));
        named.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    pub fn loose_number(self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    pub fn loose_list(self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The strings of a list; of an object in the list its member `name` or `value`.
    pub fn loose_names(self, key: &str) -> Vec<String> {
        let name = |item: &Value| match item.as_object() {
            Some(object) => Members(object).loose_text_of(&["name", "value"]),
            None => item.as_str().map(str::to_owned),
        };
        self.loose_list(key).iter().filter_map(name).collect()
    }
}
