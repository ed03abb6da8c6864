//! Which directory is a suite's own, so that it needs no agreement for what lies in it.

use belljar_contract::AbsPath;

/// Names that mark a directory as the top of somebody's work. So do the [`HarnessProfile::plugin_directory`] of the
/// known agents.
///
/// [`HarnessProfile::plugin_directory`]: belljar_contract::HarnessProfile::plugin_directory
pub const SUITE_MARKS: [&str; 3] = [".git", "belljar.toml", "SKILL.md"];

/// The files that belong to a scenario, a session or a tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuiteRoot {
    /// This directory and everything below it.
    Directory(AbsPath),
    /// The file itself and nothing else: its directory is the user's home, or shared by everyone.
    FileAlone(AbsPath),
}

/// What is known of a directory above a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// It has one of [`SUITE_MARKS`], or an agent's directory for the description of a plugin.
    Marked,
    /// It has no such mark.
    Plain,
    /// Everyone can put files there, as in `/tmp`.
    Shared,
}

/// The root of the suite that `file` belongs to: the nearest directory with a mark, or the file's own directory.
///
/// Never the home, a directory above it, or one that is shared. `file` and `home` must be canonical.
#[must_use]
pub fn suite_root(file: &AbsPath, home: &AbsPath, ground: impl Fn(&AbsPath) -> Ground) -> SuiteRoot {
    let own = file.parent();
    let private = |directory: &AbsPath| !home.is_within(directory) && directory.parent().is_some();
    let above = std::iter::successors(own.clone(), AbsPath::parent).take_while(private);
    let mut plain_own = None;
    for directory in above {
        match ground(&directory) {
            Ground::Marked => return SuiteRoot::Directory(directory),
            Ground::Plain if Some(&directory) == own.as_ref() => plain_own = Some(directory),
            Ground::Plain | Ground::Shared => {}
        }
    }
    plain_own.map_or_else(|| SuiteRoot::FileAlone(file.clone()), SuiteRoot::Directory)
}

impl SuiteRoot {
    /// Whether a canonical path is the suite's own.
    #[must_use]
    pub fn holds(&self, real: &AbsPath) -> bool {
        match self {
            Self::Directory(directory) => real.is_within(directory),
            Self::FileAlone(file) => real == file,
        }
    }

    /// The directory, where there is one.
    #[must_use]
    pub fn directory(&self) -> Option<&AbsPath> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::FileAlone(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    /// The root of a file where these directories have a mark and `/tmp` is shared.
    fn root(file: &str, marked: &[&str]) -> Option<String> {
        let ground = |directory: &AbsPath| match directory.to_string().as_str() {
            "/tmp" => Ground::Shared,
            found if marked.contains(&found) => Ground::Marked,
            _ => Ground::Plain,
        };
        let root = suite_root(&path(file), &path("/home/maria"), ground);
        root.directory().map(ToString::to_string)
    }

    #[test]
    fn the_nearest_mark_decides() {
        let file = "/home/maria/work/repo/tests/a.yaml";
        assert_eq!(root(file, &["/home/maria/work/repo"]).as_deref(), Some("/home/maria/work/repo"));
        let both = ["/home/maria/work/repo", "/home/maria/work/repo/tests"];
        assert_eq!(root(file, &both).as_deref(), Some("/home/maria/work/repo/tests"));
        assert_eq!(root(file, &[]).as_deref(), Some("/home/maria/work/repo/tests"));
        assert_eq!(root("/srv/repo/a.yaml", &["/srv"]).as_deref(), Some("/srv"));
    }

    #[test]
    fn the_home_and_what_lies_above_it_is_never_a_root() {
        for marked in ["/home/maria", "/home", "/"] {
            let found = root("/home/maria/work/a.yaml", &[marked]);
            assert_eq!(found.as_deref(), Some("/home/maria/work"), "{marked}");
        }
        for file in ["/home/maria/a.yaml", "/home/a.yaml", "/a.yaml"] {
            assert_eq!(root(file, &["/home/maria", "/home", "/"]), None, "{file}");
        }
        assert_eq!(root("/srv/a.yaml", &["/"]).as_deref(), Some("/srv"));
    }

    #[test]
    fn what_everyone_can_write_to_is_never_a_root() {
        assert_eq!(root("/tmp/a.yaml", &[]), None);
        assert_eq!(root("/tmp/suite/a.yaml", &[]).as_deref(), Some("/tmp/suite"));
        assert_eq!(root("/tmp/suite/tests/a.yaml", &["/tmp/suite"]).as_deref(), Some("/tmp/suite"));
    }

    #[test]
    fn a_root_holds_what_lies_below_it_by_whole_names() {
        let directory = SuiteRoot::Directory(path("/srv/repo"));
        assert!(directory.holds(&path("/srv/repo")) && directory.holds(&path("/srv/repo/a/b")));
        assert!(!directory.holds(&path("/srv/repository")) && !directory.holds(&path("/srv")));
        let alone = SuiteRoot::FileAlone(path("/tmp/a.yaml"));
        assert!(alone.holds(&path("/tmp/a.yaml")));
        assert!(!alone.holds(&path("/tmp/b.yaml")) && !alone.holds(&path("/tmp")));
    }
}
