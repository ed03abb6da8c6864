//! What the registry says about a package: its versions, their tags, archives and platforms.

use super::integrity::Integrity;
use super::version::VersionWish;
use belljar_contract::{PublishedVersion, UtcTime, nearest};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Metadata of a package. Members that are not needed are skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Packument {
    #[serde(rename = "dist-tags", default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    versions: BTreeMap<String, Release>,
    /// When each version was published; some registries leave it out.
    #[serde(default)]
    time: BTreeMap<String, serde_json::Value>,
}

/// One version of a package.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Release {
    #[serde(rename = "optionalDependencies", default)]
    optional: BTreeMap<String, String>,
    #[serde(default)]
    os: Vec<String>,
    #[serde(default)]
    cpu: Vec<String>,
    #[serde(default)]
    libc: Vec<String>,
    #[serde(default)]
    dist: Archive,
}

#[derive(Debug, Default, Deserialize)]
struct Archive {
    tarball: Option<String>,
    integrity: Option<String>,
}

/// A version that can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableVersion {
    pub version: PublishedVersion,
    /// Milliseconds since 1970, if the registry says it.
    pub published_ms: Option<u64>,
    /// The tags that name it, such as `latest`.
    pub tags: Vec<String>,
}

/// A version that the registry does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// The nearest version or tag that it has.
    pub near: Option<String>,
}

/// The kind of machine that a program runs on, in the words of npm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    pub os: &'static str,
    pub cpu: &'static str,
    pub libc: &'static str,
}

impl Platform {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpu = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let any = |directories: &[&str], name: &str| {
            let has = |directory: &&str| {
                let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
                let mut names = entries.map(|entry| entry.file_name());
                names.any(|found| found.to_string_lossy().starts_with(name))
            };
            directories.iter().any(has)
        };
        // The loaders' paths are part of the platforms' binary interfaces. A machine with both runs programs for glibc.
        let musl = any(&["/lib"], "ld-musl-") && !any(&["/lib", "/lib64"], "ld-linux-");
        Self { os: std::env::consts::OS, cpu, libc: if musl { "musl" } else { "glibc" } }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({})", self.os, self.cpu, self.libc)
    }
}

impl Packument {
    /// The version that a wish means.
    pub fn find(&self, wish: &VersionWish) -> Result<PublishedVersion, Missing> {
        match wish {
            VersionWish::Exact(version) if self.versions.contains_key(version.as_str()) => {
                Ok(version.clone())
            }
            VersionWish::Exact(version) => {
                let known: Vec<PublishedVersion> = self.parsed().collect();
                let near = version.nearest(known.iter()).map(ToString::to_string);
                Err(Missing { near })
            }
            VersionWish::Tag(tag) => {
                let tagged = self.tags.get(tag).and_then(|text| PublishedVersion::parse(text));
                let tagged = tagged.filter(|version| self.versions.contains_key(version.as_str()));
                tagged.ok_or_else(|| {
                    let near = nearest(tag, self.tags.keys().map(String::as_str));
                    Missing {
                        near: near
                            .or(self.tags.contains_key("latest").then_some("latest"))
                            .map(str::to_owned),
                    }
                })
            }
        }
    }

    pub fn release(&self, version: &PublishedVersion) -> Option<&Release> {
        self.versions.get(version.as_str())
    }

    /// Versions that are not valid are left out.
    fn parsed(&self) -> impl Iterator<Item = PublishedVersion> {
        self.versions.keys().filter_map(|text| PublishedVersion::parse(text))
    }

    /// All versions with packages for platforms, the newest first.
    pub fn available(&self, package: &str) -> Vec<AvailableVersion> {
        let mut versions: Vec<PublishedVersion> = self
            .parsed()
            .filter(|version| {
                let release = self.release(version);
                release.is_some_and(|release| !release.platforms(package, None).is_empty())
            })
            .collect();
        versions.sort_by(|a, b| b.cmp(a));
        let tags = |version: &PublishedVersion| {
            let of_it = self.tags.iter().filter(|(_, tagged)| *tagged == version.as_str());
            of_it.map(|(tag, _)| tag.clone()).collect()
        };
        let time =
            |version: &PublishedVersion| UtcTime::parse_unix_ms(self.time.get(version.as_str())?.as_str()?);
        versions
            .into_iter()
            .map(|version| AvailableVersion { published_ms: time(&version), tags: tags(&version), version })
            .collect()
    }
}

impl Release {
    /// The packages for platforms, with their versions, those whose names mention `first` first.
    pub fn platforms(&self, package: &str, first: Option<&Platform>) -> Vec<(&str, PublishedVersion)> {
        let own = |name: &str| {
            name.strip_prefix(package).is_some_and(|rest| rest.starts_with('-') && is_name(rest))
        };
        let listed = self.optional.iter().filter(|(name, _)| own(name));
        let mut out: Vec<(&str, PublishedVersion)> = listed
            .filter_map(|(name, version)| Some((name.as_str(), PublishedVersion::parse(version)?)))
            .collect();
        if let Some(Platform { os, cpu, libc }) = first {
            // Only the order depends on names; what a package is for, it says itself.
            out.sort_by_key(|(name, _)| [os, cpu, libc].iter().filter(|word| !name.contains(**word)).count());
        }
        out
    }

    pub fn runs_on(&self, platform: &Platform) -> bool {
        let names = |list: &[String], word: &str| list.iter().any(|listed| listed == word);
        let Platform { os, cpu, libc } = platform;
        names(&self.os, os) && names(&self.cpu, cpu) && (self.libc.is_empty() || names(&self.libc, libc))
    }

    pub fn tarball(&self) -> Option<&str> {
        self.dist.tarball.as_deref()
    }

    pub fn integrity(&self) -> Option<Integrity> {
        Integrity::parse(self.dist.integrity.as_deref()?)
    }
}

/// Whether a text can be a part of a package's name, and so of a path.
fn is_name(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packument() -> Packument {
        serde_json::from_value(serde_json::json!({
            "name": "@x/agent",
            "dist-tags": {"latest": "2.1.0", "broken": "9.9.9"},
            "versions": {
                "1.0.0": {"optionalDependencies": {"@other/agent-linux-x64": "1.0.0"}},
                "2.0.0": {"optionalDependencies": {"@x/agent-linux-x64": "2.0.0"}},
                "2.1.0": {"optionalDependencies": {
                    "@x/agent-darwin-arm64": "2.1.0", "@x/agent-linux-arm64": "2.1.0", "@x/agent-linux-x64": "2.1.0",
                    "@x/agent-linux-x64-musl": "2.1.0", "@x/agent-../../etc": "2.1.0", "@x/agent-range": "^2.1.0",
                }},
                "not a version": {},
            },
            "time": {"created": "x", "2.1.0": "2026-11-15T22:30:43.120Z"},
        }))
        .unwrap()
    }

    #[test]
    fn a_wish_is_a_version_or_a_tag() {
        let packument = packument();
        let found = |text: &str| {
            let wish = PublishedVersion::parse(text)
                .map_or_else(|| VersionWish::Tag(text.to_owned()), VersionWish::Exact);
            packument.find(&wish).map(|version| version.to_string()).map_err(|missing| missing.near)
        };
        assert_eq!(found("2.0.0").as_deref(), Ok("2.0.0"));
        assert_eq!(found("latest").as_deref(), Ok("2.1.0"));
        assert_eq!(found("2.0.9"), Err(Some("2.0.0".to_owned())));
        assert_eq!(found("lastest"), Err(Some("latest".to_owned())));
        assert_eq!(found("broken"), Err(Some("broken".to_owned())), "its version is not there");
    }

    #[test]
    fn versions_for_platforms_are_listed_newest_first() {
        let found = packument().available("@x/agent");
        let texts: Vec<&str> = found.iter().map(|found| found.version.as_str()).collect();
        assert_eq!(texts, ["2.1.0", "2.0.0"]);
        assert_eq!(found[0].tags, ["latest"]);
        assert_eq!(found[0].published_ms, Some(1_794_781_843_120));
    }

    #[test]
    fn the_likely_platform_is_asked_first() {
        let packument = packument();
        let release = &packument.versions["2.1.0"];
        let names = |libc| {
            let platform = Platform { os: "linux", cpu: "x64", libc };
            let list = release.platforms("@x/agent", Some(&platform));
            list.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("glibc")[0], "@x/agent-linux-x64");
        assert_eq!(names("musl")[0], "@x/agent-linux-x64-musl");
        assert_eq!(names("musl").len(), 4, "{:?}", names("musl"));
    }

    #[test]
    fn a_package_says_what_it_runs_on() {
        let release = |json| -> Release { serde_json::from_value(json).unwrap() };
        let here = Platform { os: "linux", cpu: "x64", libc: "glibc" };
        for (json, runs) in [
            (serde_json::json!({"os": ["linux"], "cpu": ["x64"], "libc": ["glibc"]}), true),
            (serde_json::json!({"os": ["linux"], "cpu": ["x64"]}), true),
            (serde_json::json!({"os": ["linux"], "cpu": ["x64"], "libc": ["musl"]}), false),
            (serde_json::json!({"os": ["linux"], "cpu": ["arm64"]}), false),
            (serde_json::json!({"os": ["darwin"], "cpu": ["x64"]}), false),
            (serde_json::json!({}), false),
        ] {
            assert_eq!(release(json.clone()).runs_on(&here), runs, "{json}");
        }
    }
}
