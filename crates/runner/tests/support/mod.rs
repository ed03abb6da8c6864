//! A user with a home directory and a project.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use belljar_contract::{AbsPath, Plan, Purpose};
use belljar_runner::{GuestImage, GuestProgram, HostEnvironment, Planner, PrivateValues};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub struct World {
    base: tempfile::TempDir,
}

pub fn abs(path: &Path) -> AbsPath {
    AbsPath::new(path).unwrap()
}

pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

impl World {
    pub fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        for name in ["home", "project"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        Self { base }
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.base.path().join(below)
    }

    pub fn environment(&self, project: &Path) -> HostEnvironment {
        HostEnvironment {
            guest: GuestProgram::new(
                &abs(&self.path("home/data/belljar")),
                GuestImage { bytes: b"no program", digest: "0" },
            ),
            directory: abs(project),
            home: abs(&self.path("home")),
            config: abs(&self.path("home/.config/belljar")),
            data: abs(&self.path("home/data/belljar")),
            state: abs(&self.path("home/state/belljar")),
            runtime: abs(&self.path("home/run/belljar")),
            variables: BTreeMap::new(),
            private: PrivateValues::default(),
        }
    }

    /// The plan of the built-in agent for a project.
    pub fn plan(&self, project: &Path) -> Plan {
        let planner = Planner::new(self.environment(project)).unwrap();
        planner.plan(None, Purpose::Session).unwrap().compiled.plan
    }
}
