//! What a suite of scenarios asks for beyond its own directory, and the digest that an agreement refers to.

use crate::{AbsPath, BackendKind, Digest, EnvName, HostPattern, LibraryName, canonical_json, visible};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// Version of the data that a digest of wishes covers.
const FORMAT: u32 = 1;

/// Access that a suite asks the user for. The variants are ordered by danger, the worst first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "wish", rename_all = "kebab-case")]
pub enum Wish {
    /// A backend with less isolation than the default.
    Backend { backend: BackendKind },
    /// The value of one of the user's variables.
    Variable {
        name: EnvName,
        /// The MCP server that gets it inside the sandbox.
        server: LibraryName,
    },
    /// A file or directory outside the suite's directory.
    Path {
        /// Its real path.
        path: AbsPath,
        used_as: PathUse,
    },
    /// Egress to a host.
    Host {
        /// The host and its port.
        #[serde(serialize_with = "as_text")]
        host: HostPattern,
    },
}

/// The use of a file or directory in a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathUse {
    /// A file below `uploads`.
    Upload,
    /// A directory that the agent works on, as a copy.
    Directory,
    /// A directory below `.projects`.
    Project,
    Session,
    /// An `mcp.json`.
    McpConfig,
    /// A skill, or its `SKILL.md`.
    Skill,
    /// A plugin, or its `plugin.json`.
    Plugin,
    /// A marketplace, or its `marketplace.json`.
    Marketplace,
    /// The script that replaces the model.
    Script,
}

impl PathUse {
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Directory => "directory to work on",
            Self::Project => "project directory",
            Self::Session => "session file",
            Self::McpConfig => "MCP configuration",
            Self::Skill => "skill",
            Self::Plugin => "plugin",
            Self::Marketplace => "marketplace",
            Self::Script => "script of the model",
        }
    }
}

impl Wish {
    /// Whether the suite also asks for a parent directory of this path, for the same use.
    fn is_below(&self, asked: &BTreeSet<(PathUse, AbsPath)>) -> bool {
        match self {
            Self::Path { path, used_as } => {
                let above = std::iter::successors(path.parent(), AbsPath::parent);
                above.into_iter().any(|above| asked.contains(&(*used_as, above)))
            }
            Self::Backend { .. } | Self::Variable { .. } | Self::Host { .. } => false,
        }
    }
}

impl fmt::Display for Wish {
    /// One line for people, escaped, so that a file's author cannot forge another line or reverse its direction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend { backend } => write!(f, "backend `{}`: runs without isolation", backend.name()),
            Self::Variable { name, server } => {
                write!(
                    f,
                    "variable {name}: its value enters the sandbox for the MCP server `{}`; every program inside can read it",
                    visible(&server.to_string())
                )
            }
            Self::Path { path, used_as } => {
                write!(f, "{}: {}", used_as.describe(), visible(&path.to_string()))
            }
            Self::Host { host } => write!(f, "egress to {}", visible(&host.to_string())),
        }
    }
}

fn as_text<S: serde::Serializer>(host: &HostPattern, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(host)
}

/// All wishes of one scenario, skill or plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// The file or directory that asks.
    pub suite: AbsPath,
    /// The directory that it may use without an agreement; `None` if only the file itself.
    pub root: Option<AbsPath>,
    list: Vec<Wish>,
}

impl Wishes {
    /// The wishes of a suite without duplicates, most dangerous first. A path below a directory that is also asked
    /// for is left out.
    #[must_use]
    pub fn new(suite: AbsPath, root: Option<AbsPath>, mut list: Vec<Wish>) -> Self {
        list.sort();
        list.dedup();
        let asked: BTreeSet<(PathUse, AbsPath)> = list
            .iter()
            .filter_map(|wish| match wish {
                Wish::Path { path, used_as } => Some((*used_as, path.clone())),
                Wish::Backend { .. } | Wish::Variable { .. } | Wish::Host { .. } => None,
            })
            .collect();
        list.retain(|wish| !wish.is_below(&asked));
        Self { suite, root, list }
    }

    /// The maximum number of wishes of one suite: a longer list would not be read before agreeing to it.
    pub const MOST: usize = 1000;

    /// The number of wishes of each kind, most dangerous kind first, as in `1 weaker backend, 2 files`.
    #[must_use]
    pub fn count_by_kind<'a>(wishes: impl IntoIterator<Item = &'a Wish>) -> String {
        let mut counts = [0_usize; 4];
        for wish in wishes {
            let kind = match wish {
                Wish::Backend { .. } => 0,
                Wish::Variable { .. } => 1,
                Wish::Path { .. } => 2,
                Wish::Host { .. } => 3,
            };
            counts[kind] += 1;
        }
        let names = ["weaker backend", "variable", "file or directory", "host"].into_iter().zip([
            "weaker backends",
            "variables",
            "files or directories",
            "hosts",
        ]);
        let counted = names.zip(counts).filter(|(_, count)| *count > 0);
        let counted =
            counted.map(|((one, many), count)| format!("{count} {}", if count == 1 { one } else { many }));
        counted.collect::<Vec<_>>().join(", ")
    }

    /// The wishes, most dangerous first.
    #[must_use]
    pub fn list(&self) -> &[Wish] {
        &self.list
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The data that the digest covers and that is stored with an agreement.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"format": FORMAT, "suite": self.suite, "root": self.root, "wishes": self.list})
    }

    /// The digest that an agreement refers to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(canonical_json(&self.to_json()).as_bytes())
    }

    /// One digest for several suites in any order. For a single suite it is that suite's digest. Suites without
    /// wishes are left out.
    #[must_use]
    pub fn digest_of_all(all: &[Self]) -> Digest {
        let mut digests: Vec<Digest> = all.iter().filter(|one| !one.is_empty()).map(Self::digest).collect();
        digests.sort();
        digests.dedup();
        match digests.as_slice() {
            [one] => *one,
            all => Digest::of(all.iter().map(|digest| format!("{digest}\n")).collect::<String>().as_bytes()),
        }
    }

    /// Whether these are of the same suite and root as the agreed ones, and ask for nothing beyond them.
    ///
    /// `agreed` is a value of [`Self::to_json`]. A suite that asks for less than before needs no new agreement.
    #[must_use]
    pub fn are_within(&self, agreed: &Value) -> bool {
        let now = self.to_json();
        let same = ["format", "suite", "root"].iter().all(|key| agreed.get(key) == now.get(key));
        same && self.list.iter().all(|wish| Self::stored_has(agreed, wish))
    }

    /// Whether a value of [`Self::to_json`] contains a wish.
    #[must_use]
    pub fn stored_has(stored: &Value, wish: &Wish) -> bool {
        stored.get("wishes").and_then(Value::as_array).is_some_and(|list| list.contains(&json!(wish)))
    }

    /// Whether a value of [`Self::to_json`] is for the same directory.
    #[must_use]
    pub fn has_root_of(&self, stored: &Value) -> bool {
        stored.get("root") == Some(&json!(self.root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn upload(text: &str) -> Wish {
        Wish::Path { path: path(text), used_as: PathUse::Upload }
    }

    fn host(text: &str) -> Wish {
        Wish::Host { host: HostPattern::parse(text).unwrap() }
    }

    fn variable(name: &str) -> Wish {
        Wish::Variable { name: EnvName::new(name).unwrap(), server: LibraryName::new("forge").unwrap() }
    }

    fn wishes(list: Vec<Wish>) -> Wishes {
        Wishes::new(path("/suite/a.yaml"), Some(path("/suite")), list)
    }

    #[test]
    fn the_most_dangerous_comes_first_and_each_once() {
        let list = vec![
            host("b.test"),
            upload("/x"),
            host("a.test:80"),
            variable("TOKEN"),
            Wish::Backend { backend: BackendKind::Host },
            upload("/x"),
        ];
        let shown: Vec<String> = wishes(list).list().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "backend `host`: runs without isolation",
                "variable TOKEN: its value enters the sandbox for the MCP server `forge`; every program inside can read it",
                "upload: /x",
                "egress to a.test:80",
                "egress to b.test",
            ]
        );
    }

    #[test]
    fn paths_below_a_requested_directory_are_left_out() {
        let skill = |text| Wish::Path { path: path(text), used_as: PathUse::Skill };
        let list = vec![skill("/x/SKILL.md"), skill("/x"), skill("/xy"), upload("/x/a")];
        let kept = wishes(list);
        assert_eq!(kept.list(), [skill("/x"), upload("/x/a"), skill("/xy")].as_slice());
    }

    #[test]
    fn many_wishes_take_no_longer_than_their_number() {
        let list: Vec<Wish> = (0..40_000).map(|number| upload(&format!("/x/{number}"))).collect();
        let begun = std::time::Instant::now();
        assert_eq!(wishes(list).list().len(), 40_000);
        // Pairwise comparison would need 1.6 thousand million comparisons.
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn wishes_are_counted_by_kind() {
        let list =
            [host("a.test"), host("b.test"), upload("/x"), Wish::Backend { backend: BackendKind::Host }];
        assert_eq!(Wishes::count_by_kind(&list), "1 weaker backend, 1 file or directory, 2 hosts");
        assert_eq!(Wishes::count_by_kind(&[]), "");
    }

    #[test]
    fn a_path_cannot_forge_a_line_or_turn_its_direction() {
        let shown = upload("/a\n\u{1b}[31m\u{202e}b").to_string();
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
        assert!(shown.contains("\\u{202e}"), "{shown:?}");
    }

    #[test]
    fn a_digest_stands_for_suite_root_and_every_wish() {
        let one = wishes(vec![upload("/x")]);
        let digest = one.digest();
        assert_eq!(digest, wishes(vec![upload("/x"), upload("/x")]).digest());
        assert_ne!(digest, wishes(vec![upload("/y")]).digest());
        assert_ne!(digest, wishes(vec![]).digest());
        assert_ne!(digest, Wishes { root: None, ..one.clone() }.digest());
        assert_ne!(digest, Wishes { suite: path("/suite/b.yaml"), ..one.clone() }.digest());
        let as_directory = Wish::Path { path: path("/x"), used_as: PathUse::Directory };
        assert_ne!(digest, wishes(vec![as_directory]).digest());
        assert_ne!(wishes(vec![host("a.test")]).digest(), wishes(vec![host("a.test:80")]).digest());
        let other = Wishes { suite: path("/suite/b.yaml"), ..one.clone() };
        let none = Wishes::new(path("/suite/c.yaml"), None, Vec::new());
        assert_eq!(Wishes::digest_of_all(std::slice::from_ref(&one)), digest);
        assert_eq!(Wishes::digest_of_all(&[none, one.clone()]), digest);
        let both = Wishes::digest_of_all(&[one.clone(), other.clone()]);
        assert_eq!(both, Wishes::digest_of_all(&[other, one]));
        assert_ne!(both, digest);
    }

    #[test]
    fn less_is_within_an_agreement_and_more_is_not() {
        let agreed = wishes(vec![upload("/x"), host("a.test")]).to_json();
        assert!(wishes(vec![upload("/x"), host("a.test")]).are_within(&agreed));
        assert!(wishes(vec![host("a.test")]).are_within(&agreed));
        assert!(!wishes(vec![host("b.test")]).are_within(&agreed));
        assert!(!wishes(vec![upload("/x"), host("a.test"), variable("TOKEN")]).are_within(&agreed));
        let elsewhere = Wishes { suite: path("/suite/b.yaml"), ..wishes(vec![host("a.test")]) };
        assert!(!elsewhere.are_within(&agreed), "wishes of two suites are not combined");
        let wider = Wishes { root: Some(path("/")), ..wishes(vec![host("a.test")]) };
        assert!(!wider.are_within(&agreed));
        for broken in [json!(null), json!({}), json!({"wishes": "all"})] {
            assert!(!wishes(vec![host("a.test")]).are_within(&broken));
        }
    }
}
