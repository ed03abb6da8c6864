//! The reader of git configurations, compared with git itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use belljar_class::{GitSetting, git_settings, git_settings_strict};
use belljar_testkit::require;
use std::path::Path;
use std::process::Command;

/// Generated texts; `BELLJAR_GIT_CASES` asks for more.
const CASES: u64 = 3000;

/// A name, and its value where it has one.
type Entry = (Vec<u8>, Option<Vec<u8>>);

/// What texts are made of. The first ones are more frequent.
const PIECES: &[&str] = &[
    "\n",
    "[core]\n",
    "key",
    " = ",
    "=",
    " ",
    "\t",
    "\"",
    "\\",
    "\\\n",
    "x",
    "Value",
    "#",
    ";",
    "\"\"",
    "\\\"",
    "\\n",
    "\\t",
    "\\b",
    "\\q",
    "\r\n",
    "\r",
    "[a.b]",
    "[A.B.C]\n",
    "[remote \"Or\\\"ig\\in\"]\n",
    "[a \"\"]",
    "[a.b \"c\"]\n",
    "[.x]",
    "[]",
    "[a\t \"b\"]\n",
    "[a\"b\"]",
    "[a \"b\" ]",
    "[",
    "]",
    "-",
    ".",
    "_",
    "7",
    "\u{feff}",
    "é",
    "\u{b}",
    "\u{c}",
    "\0",
    "\u{7f}",
];

/// A fixed sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }

    fn text(&mut self) -> String {
        let mut out = String::new();
        if self.below(12) == 0 {
            out.push('\u{feff}');
        }
        if self.below(8) > 0 {
            out.push_str(["[core]\n", "[a.B]\n", "[Remote \"X y\"]\n\t", "[core] "][self.below(4)]);
        }
        for _ in 0..self.below(4) {
            if self.below(4) > 0 {
                out.push_str(["\tkey = ", "Key-7=", "k =\t", "key = \"\" ", "key = \\\n "][self.below(5)]);
            }
            for _ in 0..self.below(9) {
                let most = if self.below(3) == 0 { PIECES.len() } else { 20 };
                out.push_str(PIECES[self.below(most)]);
            }
            out.push('\n');
        }
        if self.below(4) == 0 {
            out.pop();
        }
        out
    }
}

/// What git finds in a file, as names and values; nothing where it fails.
fn read_by_git(directory: &Path, text: &[u8]) -> Option<Vec<Entry>> {
    std::fs::write(directory.join("text"), text).unwrap();
    let mut git = Command::new("git");
    git.args(["config", "-f", "text", "-z", "--list"]).current_dir(directory);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", directory).env_remove("XDG_CONFIG_HOME");
    git.env("GIT_DIR", directory);
    let done = git.output().unwrap();
    let one = |entry: &[u8]| {
        // No name has the end of a line, so the first one begins the value.
        match entry.iter().position(|byte| *byte == b'\n') {
            Some(at) => (entry[..at].to_vec(), Some(entry[at + 1..].to_vec())),
            None => (entry.to_vec(), None),
        }
    };
    let entries = done.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    done.status.success().then(|| entries.map(one).collect())
}

fn read_here(settings: &[GitSetting]) -> Vec<Entry> {
    let one = |setting: &GitSetting| {
        let GitSetting { section, subsection, key, value } = setting;
        let name = match subsection {
            Some(part) => [section.as_slice(), part, key].join(&b'.'),
            None => [section.as_slice(), key].join(&b'.'),
        };
        (name, value.clone())
    };
    settings.iter().map(one).collect()
}

fn compare(directory: &Path, text: &str) {
    let git = read_by_git(directory, text.as_bytes());
    if let Some(strict) = git_settings_strict(text.as_bytes()) {
        assert_eq!(Some(read_here(&strict)), git, "{text:?}");
    }
    // What git can read is read alike, but for NUL, at which its texts end, and keys before the first section, which it
    // never asks for.
    if let Some(mut git) = git.filter(|_| !text.contains('\0')) {
        git.retain(|(name, _)| name.contains(&b'.'));
        assert_eq!(read_here(&git_settings(text.as_bytes())), git, "{text:?}");
    }
}

#[test]
fn configurations_are_read_as_git_reads_them() {
    require!(Git);
    let directory = tempfile::tempdir().unwrap();
    for text in [
        "[core]\nworktree = \"\" ../x\n",
        "[core]\nworktree = \\\n ../x\n",
        "[core]\nkey # comment\n",
        "[core]\nkey ; comment\n",
        "[core]\nkey = a \"\" b\n",
        "[core]\nkey = a \"\" \n",
        "[core]\nkey = a\tb \t# c\n",
        "[core]\nkey = a \\\n",
        "[core]\nkey = a\\",
        "[core]\nkey = \"a\\\n b\"\n",
        "[core]\nkey\r\n",
        "[core]\nkey\r= a\n",
        "[core]\r\nkey = a\r\n",
        "[remote \"a\r\n\"]\nkey = a\n",
        "[remote.A \"B\"]\nkey\n",
        "\u{feff}[core]\nkey = a\n",
        "[core]\n\u{feff}key = a\n",
    ] {
        compare(directory.path(), text);
    }
    let cases = std::env::var("BELLJAR_GIT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ cases);
    let mut clear = 0;
    for _ in 0..cases {
        let text = numbers.text();
        clear += u64::from(git_settings_strict(text.as_bytes()).is_some_and(|read| !read.is_empty()));
        compare(directory.path(), &text);
    }
    assert!(clear > cases / 10, "only {clear} of {cases} texts have settings");
}
