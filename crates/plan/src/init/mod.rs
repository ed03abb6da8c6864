//! Manifests that are written for people: the pieces of their text.

pub(crate) mod toml_text;
