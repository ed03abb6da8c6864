//! The values that checks take, beside those of `contract::decode`.

mod glob;
mod host;
mod isolation_key;
mod path;
mod plain;

pub(crate) use glob::{PathGlob, ToolGlob};
pub(crate) use host::HostMatch;
pub(crate) use isolation_key::IsolationKey;
pub(crate) use path::PathName;
pub(crate) use plain::{Count, Decimal, NonEmpty, OneOrMore, Text, Yes};
