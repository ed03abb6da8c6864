//! Checks the dependencies between the crates against a table of allowed ones.
//!
//! A dependency or a crate that is not in the table fails: a new crate is added to the table in the commit that
//! creates it. Thanks to the table a pure crate can be tested without side effects, and the parts that meet only in
//! `runner` can be read one at a time.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::repository::Repository;
use crate::{Findings, TaskError};

const PREFIX: &str = "belljar-";

/// Shows the table to people.
const GUIDE: &str = "CONTRIBUTING.md";

/// Allowed as a dev-dependency of every crate.
const TEST_HELP: &str = "testkit";

/// Dependencies with side effects: no pure crate may use them.
const WORLDLY: [&str; 5] = ["tokio", "hyper", "rustix", "libc", "clap"];

/// One crate of the workspace: its allowed dependencies, and the reason for the limit.
struct Ring {
    name: &'static str,
    may_see: &'static [&'static str],
    purity: Purity,
    because: &'static str,
}

#[derive(PartialEq, Eq)]
enum Purity {
    /// Functions on data only: no clock, disk, environment or network.
    Pure,
    Effects,
}

/// The allowed direct dependencies.
const RINGS: [Ring; 15] = [
    Ring {
        name: "contract",
        may_see: &[],
        purity: Purity::Pure,
        because: "every crate depends on it, so it depends on none",
    },
    Ring {
        name: "plan",
        may_see: &["contract"],
        purity: Purity::Pure,
        because: "it turns text into data and acts on nothing",
    },
    Ring {
        name: "verdict",
        may_see: &["contract"],
        purity: Purity::Pure,
        because: "it judges a run read from disk as it judges a live one",
    },
    Ring {
        name: "report",
        may_see: &["contract"],
        purity: Purity::Pure,
        because: "it renders what was judged and judges nothing itself",
    },
    Ring {
        name: "class",
        may_see: &["contract"],
        purity: Purity::Pure,
        because: "the guard inside and the scan outside must agree on what a host executes",
    },
    Ring {
        name: "sys",
        may_see: &[],
        purity: Purity::Effects,
        because: "it wraps the kernel's interfaces and knows nothing of the product",
    },
    Ring {
        name: "sandbox",
        may_see: &["contract", "class", "sys"],
        purity: Purity::Effects,
        because: "sandbox, egress, session and record meet only in runner",
    },
    Ring {
        name: "guest",
        may_see: &["contract", "class", "sys"],
        purity: Purity::Effects,
        because: "it runs inside the sandbox and stays small",
    },
    Ring {
        name: "egress",
        may_see: &["contract"],
        purity: Purity::Effects,
        because: "sandbox, egress, session and record meet only in runner",
    },
    Ring {
        name: "session",
        may_see: &["contract"],
        purity: Purity::Effects,
        because: "sandbox, egress, session and record meet only in runner",
    },
    Ring {
        name: "record",
        may_see: &["contract"],
        purity: Purity::Effects,
        because: "sandbox, egress, session and record meet only in runner",
    },
    Ring {
        name: "runner",
        may_see: &["contract", "plan", "verdict", "report", "sandbox", "egress", "session", "record", "sys"],
        purity: Purity::Effects,
        because: "the parts meet here; it uses sys for its own signals, descriptors and mounts",
    },
    Ring {
        name: "cli",
        may_see: &["contract", "report", "runner"],
        purity: Purity::Effects,
        because: "whatever the command line can do, the library can do",
    },
    Ring {
        name: TEST_HELP,
        may_see: &["contract"],
        purity: Purity::Effects,
        because: "the tests of every crate use it, so it must not see them",
    },
    Ring {
        name: "xtask",
        may_see: &["contract", "runner"],
        purity: Purity::Effects,
        because: "it generates references from the public API",
    },
];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let metadata = repository.output("cargo", &["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata = serde_json::from_str(&metadata)?;
    let mut faults = judge(&metadata)?;
    faults.extend(unused(&metadata)?);
    faults.extend(described(&std::fs::read_to_string(repository.path(GUIDE))?));
    Ok(Findings { notes: Vec::new(), faults })
}

/// The fault of a guide that does not contain the table as it is.
fn described(guide: &str) -> Option<String> {
    let line = |ring: &Ring| match ring.may_see {
        [] => format!("{:<9} nothing\n", ring.name),
        seen => format!("{:<9} {}\n", ring.name, seen.join(", ")),
    };
    let table: String = RINGS.iter().map(line).collect();
    let block = format!("```\n{table}```\n");
    (!guide.contains(&block))
        .then(|| format!("{GUIDE} must contain the allowed dependencies as they are:\n{block}"))
}

/// Checks the output of `cargo metadata --no-deps`.
fn judge(metadata: &Value) -> Result<Vec<String>, TaskError> {
    let packages = list(metadata, "packages")?;
    let members = packages.iter().map(|package| text(package, "name")).collect::<Result<BTreeSet<_>, _>>()?;
    let mut faults = Vec::new();
    for package in packages {
        let name = ring_name(text(package, "name")?);
        let Some(ring) = RINGS.iter().find(|ring| ring.name == name) else {
            faults.push(format!(
                "the crate `{name}` is not in the table of xtask/src/layering.rs; add it with its allowed dependencies"
            ));
            continue;
        };
        for dependency in list(package, "dependencies")? {
            let dependency_name = text(dependency, "name")?;
            let edge = Edge { to: dependency_name, for_tests: dependency["kind"].as_str() == Some("dev") };
            faults.extend(ring.fault_of(&edge, members.contains(dependency_name)));
        }
    }
    Ok(faults)
}

/// Allowed dependencies that no crate has.
fn unused(metadata: &Value) -> Result<Vec<String>, TaskError> {
    let mut faults = Vec::new();
    for package in list(metadata, "packages")? {
        let name = ring_name(text(package, "name")?);
        let dependencies = list(package, "dependencies")?;
        let seen = dependencies
            .iter()
            .map(|dependency| text(dependency, "name").map(ring_name))
            .collect::<Result<BTreeSet<_>, _>>()?;
        let ring = RINGS.iter().filter(|ring| ring.name == name);
        for allowed in ring.flat_map(|ring| ring.may_see).filter(|allowed| !seen.contains(*allowed)) {
            faults.push(format!(
                "`{name}` does not depend on `{allowed}`; remove it from xtask/src/layering.rs"
            ));
        }
    }
    Ok(faults)
}

/// A dependency as a crate declares it.
struct Edge<'a> {
    to: &'a str,
    for_tests: bool,
}

impl Ring {
    fn fault_of(&self, edge: &Edge<'_>, to_member: bool) -> Option<String> {
        let Self { name, may_see, purity, because } = self;
        if to_member {
            let to = ring_name(edge.to);
            let allowed = may_see.contains(&to) || (edge.for_tests && to == TEST_HELP);
            let kind = if edge.for_tests { "dev-dependency" } else { "dependency" };
            (!allowed).then(|| format!("`{name}` must not depend on `{to}` ({kind}): {because}"))
        } else {
            let worldly = *purity == Purity::Pure && WORLDLY.contains(&edge.to);
            worldly.then(|| format!("`{name}` must not depend on `{}`, it is pure: {because}", edge.to))
        }
    }
}

fn ring_name(package: &str) -> &str {
    // The package of the command line has the name of the program.
    if package == "belljar" { "cli" } else { package.strip_prefix(PREFIX).unwrap_or(package) }
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], TaskError> {
    Ok(value[key].as_array().ok_or_else(|| format!("cargo metadata has no list `{key}`"))?)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, TaskError> {
    Ok(value[key].as_str().ok_or_else(|| format!("cargo metadata has no string `{key}`"))?)
}

#[cfg(test)]
#[path = "layering_tests.rs"]
mod tests;
