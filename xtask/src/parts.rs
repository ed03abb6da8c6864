//! What the program is made of: a list of its parts for machines (CycloneDX), and the licences that it is passed on under.
//!
//! Both are made from the packages that cargo takes for the program and for the guest in it, for one target: dependencies
//! of tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::TaskError;
use crate::repository::Repository;

/// The packages that a release is built from; the guest is embedded in the program.
const ROOTS: [&str; 2] = ["belljar-cli", "belljar-guest"];
/// Names of files with the text of a licence, in upper case.
const TEXTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A package that is part of the program.
#[derive(Debug)]
struct Part {
    name: String,
    version: String,
    licence: Option<String>,
    /// Whether it is a crate of this workspace.
    is_own: bool,
    directory: PathBuf,
    /// The digest of the archive that it came in.
    checksum: Option<String>,
    /// The identities of the packages that it depends on.
    needs: BTreeSet<String>,
}

impl Part {
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

/// The parts by their identities, as cargo names them.
type Parts = BTreeMap<String, Part>;

fn parts(repository: &Repository, target: &str) -> Result<Parts, TaskError> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", target];
    let metadata: Value = serde_json::from_str(&repository.output("cargo", &arguments)?)?;
    let lock = std::fs::read_to_string(repository.path("Cargo.lock"))?;
    select(&metadata, &checksums(&lock))
}

/// The packages that the roots need, with what each needs.
fn select(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Parts, TaskError> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let nodes: BTreeMap<String, BTreeSet<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .filter_map(|node| {
            let used =
                |dependency: &&Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
            let needs = list(&node["deps"]);
            let needs = needs.iter().filter(used).filter_map(|dependency| text(&dependency["pkg"])).collect();
            Some((text(&node["id"])?, needs))
        })
        .collect();
    let packages = list(&metadata["packages"]);
    let is_root = |package: &&Value| ROOTS.iter().any(|root| package["name"] == *root);
    let mut open: Vec<String> =
        packages.iter().filter(is_root).filter_map(|package| text(&package["id"])).collect();
    if open.len() != ROOTS.len() {
        return Err(format!("cargo metadata does not have all of {}", ROOTS.join(", ")).into());
    }
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if reached.insert(id.clone()) {
            open.extend(nodes.get(&id).cloned().unwrap_or_default());
        }
    }
    let part = |package: &Value| {
        let id = text(&package["id"])?;
        let (name, version) = (text(&package["name"])?, text(&package["version"])?);
        let directory = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
        let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
        let needs = nodes.get(&id).cloned().unwrap_or_default();
        let licence = text(&package["license"]);
        let is_own = package["source"].is_null();
        Some((id, Part { name, version, licence, is_own, directory, checksum, needs }))
    };
    Ok(packages.iter().filter_map(part).filter(|(id, _)| reached.contains(id)).collect())
}

/// The digests of packages in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let entry = |block: &str| {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

/// A CycloneDX document of version 1.5. The same sources and the same time give the same document.
pub fn bill(repository: &Repository, target: &str, seconds: u64) -> Result<String, TaskError> {
    Ok(format!("{:#}\n", document(&parts(repository, target)?, target, seconds)?))
}

fn document(parts: &Parts, target: &str, seconds: u64) -> Result<Value, TaskError> {
    let program =
        parts.values().find(|part| part.name == ROOTS[0]).ok_or("the program is not among its parts")?;
    let component = |part: &Part| {
        let kind = if part.name == ROOTS[0] { "application" } else { "library" };
        let mut component = json!({
            "type": kind,
            "bom-ref": part.purl(),
            "name": part.name,
            "version": part.version,
            "purl": part.purl(),
        });
        if let Some(licence) = &part.licence {
            // Older manifests write a slash, which the expressions of SPDX do not know.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        if let Some(checksum) = &part.checksum {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    };
    let dependencies = parts.values().map(|part| {
        let mut needs: Vec<String> =
            part.needs.iter().filter_map(|id| parts.get(id)).map(Part::purl).collect();
        // The guest is built by the program's build script, which cargo does not know.
        needs.extend(
            (part.name == ROOTS[0])
                .then(|| parts.values().find(|part| part.name == ROOTS[1]).map(Part::purl))
                .flatten(),
        );
        needs.sort();
        needs.dedup();
        json!({"ref": part.purl(), "dependsOn": needs})
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(seconds),
            "component": component(program),
            "properties": [{"name": "belljar:target", "value": target}],
        },
        "components": parts.values().filter(|part| part.name != ROOTS[0]).map(component).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// A time of day in UTC, from seconds since 1970.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // The calendar repeats every 400 years; years begin in March, so that a leap day is the last one.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hours, minutes, seconds) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// The licences of everything that others wrote, with the texts that their packages carry. Equal texts are there once.
pub fn licences(repository: &Repository, target: &str) -> Result<String, TaskError> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut page = String::from("belljar contains these packages of others, under these licences.\n\n");
    for part in parts(repository, target)?.values().filter(|part| !part.is_own) {
        let Part { name, version, .. } = part;
        writeln!(page, "{name} {version}: {}", part.licence.as_deref().unwrap_or("see below"))?;
        let found = licence_texts(&part.directory)?;
        if found.is_empty() && part.licence.is_none() {
            return Err(format!("{name} {version} names no licence and has no text of one").into());
        }
        for text in found {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (of, text) in texts {
        write!(page, "\n{}\n\n{}:\n\n{}\n", "-".repeat(78), of.join(", "), text.trim())?;
    }
    Ok(page)
}

fn licence_texts(directory: &Path) -> Result<BTreeSet<String>, TaskError> {
    let mut texts = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && TEXTS.iter().any(|text| name.starts_with(text)) {
            texts.insert(String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_date() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(timestamp(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn what_only_tests_need_is_no_part() {
        let kinds = |kind: Value| json!([{"kind": kind}]);
        let node = |id: &str, deps: Value| json!({"id": id, "deps": deps});
        let package = |name: &str, source: Value| {
            json!({"id": name, "name": name, "version": "1.0.0+x", "source": source, "license": "MIT/Apache-2.0",
                "manifest_path": format!("/x/{name}/Cargo.toml")})
        };
        let registry = json!("registry");
        let metadata = json!({
            "packages": [
                package("belljar-cli", Value::Null), package("belljar-guest", Value::Null),
                package("used", registry.clone()), package("below", registry.clone()), package("tested", registry),
            ],
            "resolve": {"nodes": [
                node("belljar-cli", json!([{"pkg": "used", "dep_kinds": kinds(Value::Null)},
                    {"pkg": "tested", "dep_kinds": kinds(json!("dev"))}])),
                node("belljar-guest", json!([])),
                node("used", json!([{"pkg": "below", "dep_kinds": kinds(json!("build"))}])),
                node("below", json!([])),
                node("tested", json!([])),
            ]},
        });
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0+x\"\nchecksum = \"ab\"\n";
        let parts = select(&metadata, &checksums(lock)).unwrap();
        let names: Vec<&str> = parts.values().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["belljar-cli", "belljar-guest", "below", "used"].map(|name| name));
        let document = document(&parts, "x86_64-unknown-linux-gnu", 0).unwrap();
        let used = &document["components"][2];
        assert_eq!(used["purl"], "pkg:cargo/used@1.0.0%2Bx");
        assert_eq!(used["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(used["hashes"][0]["content"], "ab");
        let needs = &document["dependencies"][0]["dependsOn"];
        assert_eq!(needs, &json!(["pkg:cargo/belljar-guest@1.0.0%2Bx", "pkg:cargo/used@1.0.0%2Bx"]));
    }

    /// What the format demands: required members, unique references, and no reference to what is not there.
    #[test]
    fn the_document_of_this_repository_is_complete() {
        let repository = Repository::this();
        let text = bill(&repository, "x86_64-unknown-linux-gnu", 1).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        let components = document["components"].as_array().unwrap();
        let all: Vec<&Value> =
            std::iter::once(&document["metadata"]["component"]).chain(components).collect();
        let references: BTreeSet<&str> = all.iter().map(|part| part["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), all.len(), "a reference is there twice");
        for part in &all {
            assert!(["application", "library"].contains(&part["type"].as_str().unwrap()), "{part}");
            assert!(part["name"].is_string() && part["version"].is_string(), "{part}");
            assert!(part["licenses"][0]["expression"].is_string(), "{part}");
            let own = part["name"].as_str().unwrap().starts_with("belljar-");
            let hash = part["hashes"][0]["content"].as_str();
            assert!(own || hash.is_some_and(|hash| hash.len() == 64), "{part}");
        }
        let dependencies = document["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), all.len());
        for dependency in dependencies {
            let needs = dependency["dependsOn"].as_array().unwrap();
            let known = |reference: &Value| references.contains(reference.as_str().unwrap());
            assert!(known(&dependency["ref"]) && needs.iter().all(known), "{dependency}");
        }
        let names: BTreeSet<&str> = all.iter().map(|part| part["name"].as_str().unwrap()).collect();
        assert!(names.contains("rustls") && names.contains("belljar-guest"), "{names:?}");
        assert!(!names.contains("bolero") && !names.contains("belljar-testkit"), "{names:?}");
        assert_eq!(text, bill(&repository, "x86_64-unknown-linux-gnu", 1).unwrap());
    }
}
