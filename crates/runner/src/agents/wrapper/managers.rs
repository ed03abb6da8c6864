//! The directories in which version managers keep programs, as their documentation and installations of 2026-11 have
//! them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// More than anybody keeps of one kind; a directory with more is read so far.
const MOST_ENTRIES: usize = 1000;

/// A version manager whose shims are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    Asdf,
    Mise,
    Volta,
}

/// A program that a manager keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagedProgram {
    /// The directory of all versions of the tool that it belongs to.
    pub tool: PathBuf,
    pub program: PathBuf,
}

impl Manager {
    const ALL: [Self; 3] = [Self::Asdf, Self::Mise, Self::Volta];

    pub fn name(self) -> &'static str {
        match self {
            Self::Asdf => "asdf",
            Self::Mise => "mise",
            Self::Volta => "volta",
        }
    }

    /// The manager of this name, as a wrapper calls it.
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manager| manager.name() == name)
    }

    /// The manager whose shims are links to a program of this name.
    pub fn of_shim(name: &str) -> Option<Self> {
        match name {
            "volta-shim" => Some(Self::Volta),
            _ => Self::called(name),
        }
    }

    /// Where it keeps programs.
    pub fn directory(self, home: &Path, variable: &dyn Fn(&str) -> Option<PathBuf>) -> PathBuf {
        let set = |name: &str| variable(name).filter(|path| path.is_absolute());
        match self {
            Self::Asdf => set("ASDF_DATA_DIR").unwrap_or_else(|| home.join(".asdf")).join("installs"),
            Self::Mise => {
                let data = || set("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share")).join("mise");
                set("MISE_DATA_DIR").unwrap_or_else(data).join("installs")
            }
            Self::Volta => {
                set("VOLTA_HOME").unwrap_or_else(|| home.join(".volta")).join("tools/image/packages")
            }
        }
    }

    /// The programs of a name that it keeps, of each tool the newest version first.
    pub fn programs(self, directory: &Path, name: &str, package: &str) -> Vec<ManagedProgram> {
        let below: &[&str] = match self {
            Self::Volta => {
                let tool = directory.join(package);
                let program = tool.join("bin").join(name);
                return program.is_file().then_some(ManagedProgram { tool, program }).into_iter().collect();
            }
            Self::Asdf => &["bin", ".npm/bin", "."],
            Self::Mise => &["bin", "node_modules/.bin", "."],
        };
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        for tool in entries(directory) {
            let mut versions = entries(&tool);
            versions.sort_by_key(|version| Reverse(numbers(version)));
            for version in versions {
                let mut places = below.iter().map(|below| version.join(below).join(name));
                // `latest` and `2` are links to versions.
                if let Some(program) = places.find(|place| place.is_file())
                    && program.canonicalize().is_ok_and(|real| seen.insert(real))
                {
                    found.push(ManagedProgram { tool: tool.clone(), program });
                }
            }
        }
        found
    }
}

/// The entries of a directory, sorted; none of one that cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = read.take(MOST_ENTRIES).map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// The numbers of a version, for comparisons.
fn numbers(version: &Path) -> Vec<u64> {
    let name = version.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}
