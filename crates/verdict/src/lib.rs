//! From evidence to a judgement: the checks an author writes, and what is looked at without being asked for.
//!
//! Everything here is a pure function. A check has three outcomes: it passes on evidence, fails on evidence, and is
//! unknown where there is none. "It did not happen" is said of a whole record only. A run read back from disk is
//! judged as a live one.

mod check;
mod checks;
mod compare;
mod conflict;
mod distrust;
mod files;
mod finding;
mod material;
mod parse;
mod reference;
mod refused;
mod replay;
mod run;
mod signal;
mod value;

pub use checks::{Checks, Explained};
pub use compare::unvouched;
pub use distrust::distrust;
pub use material::Material;
pub use parse::parse_checks;
pub use reference::{reference, schema};
pub use refused::{REFUSED, Refused};
pub use replay::{
    DriftedRun, StaleRule, judge_as_replayed, judge_contradicting, judge_denied, judge_drifted, judge_stale,
    judge_unlisted,
};
pub use signal::{DENIED, UNVOUCHED};

#[cfg(test)]
mod tests;
