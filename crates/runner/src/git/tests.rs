//! Compares the results with the real git, and feeds the parsers with input that git would not write.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::index::{self, HashLength, IndexEntry, IndexError};
use super::{Shared, SharedError, Untracked, UserFiles, shared_files};
use belljar_contract::AbsPath;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The decision of rules, without a limit.
fn say(rules: &super::Rules, path: &[u8], is: super::ignore::Is) -> Option<super::ignore::Says> {
    rules.say(path, is, &super::ignore::Steps::new(u64::MAX)).unwrap()
}

struct Ground(TempDir);

impl Ground {
    fn new() -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(ground.path("home/.config/git")).unwrap();
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn try_git(&self, directory: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new("git");
        command.current_dir(self.path(directory)).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "Ann"), ("EMAIL", "ann@example.org")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]).args(arguments);
        run_within(&mut command, Duration::from_secs(60)).unwrap()
    }

    fn git(&self, directory: &str, arguments: &[&str]) -> String {
        let ran = self.try_git(directory, arguments);
        assert!(ran.status.success(), "git {arguments:?}: {}", ran.stderr);
        ran.stdout
    }

    fn shared(&self, directory: &str) -> Result<Shared, SharedError> {
        self.shared_with(directory, Untracked::Included)
    }

    fn shared_with(&self, directory: &str, untracked: Untracked) -> Result<Shared, SharedError> {
        let abs = |path: PathBuf| AbsPath::new(path).unwrap();
        let user = UserFiles { home: abs(self.path("home")), config: self.path("home/.config") };
        shared_files(&abs(self.path(directory)), &user, untracked)
    }

    /// The shared files, after a comparison with git; other repositories in git's list are left out.
    fn compared(&self, directory: &str) -> BTreeSet<String> {
        let listed = self.git(directory, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let links = self.git(directory, &["ls-files", "-z", "--stage"]);
        let links: BTreeSet<&str> = links
            .split('\0')
            .filter(|line| line.starts_with("160000"))
            .filter_map(|line| line.split('\t').nth(1))
            .collect();
        let expected: BTreeSet<String> = listed
            .split('\0')
            .filter(|name| !name.is_empty() && !name.ends_with('/') && !links.contains(name))
            .map(str::to_owned)
            .collect();
        let found = match self.shared(directory).unwrap() {
            Shared::Everything => BTreeSet::new(),
            Shared::Files { files, left_out: _ } => {
                files.iter().map(|file| file.to_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
            }
        };
        assert_eq!(found, expected, "in {directory}");
        found
    }

    /// A repository with tracked, untracked and ignored files in several directories.
    fn repository(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
        self.git(name, &["init", "-q"]);
        for file in ["SKILL.md", "a/one", "a/b/two", "a/b/deep/er/three", "with space/x", "ä/ö"] {
            self.write(&format!("{name}/{file}"), file);
        }
        self.git(name, &["add", "."]);
        self.git(name, &["commit", "-q", "-m", "first"]);
        self.write(&format!("{name}/.gitignore"), "*.log\n/target/\n!keep.log\nnode_modules/\na/b/secret\n");
        self.write(&format!("{name}/a/.gitignore"), "!x.log\n*.tmp\n/b/local\nbuild\n");
        for file in [
            "x.log",
            "keep.log",
            "a/x.log",
            "a/y.log",
            "a/b/x.log",
            "a/b/keep.log",
            "a/t.tmp",
            "t.tmp",
            "a/b/local",
            "a/local",
            "target/debug/x",
            "a/target/y",
            "node_modules/m/i.js",
            "a/b/secret",
            "a/b/build/out",
            "a/build",
            "a/new",
            "a/b/deep/new",
        ] {
            self.write(&format!("{name}/{file}"), file);
        }
    }
}

#[test]
fn lists_what_git_lists() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("p");
    let all = ground.compared("p");
    assert!(all.contains("keep.log") && all.contains("a/x.log") && !all.contains("a/y.log"), "{all:?}");
    for directory in ["p/a", "p/a/b", "p/a/b/deep", "p/with space", "p/a/target"] {
        assert!(!ground.compared(directory).is_empty());
    }
    // Ignored as a whole.
    for directory in ["p/target", "p/node_modules/m", "p/a/b/build"] {
        assert!(ground.compared(directory).is_empty());
        assert_eq!(ground.shared(directory).unwrap(), Shared::Everything);
    }
    ground.write("p/.git/info/exclude", "a/new\n!t.tmp\n");
    ground.write("home/.config/git/ignore", "t.tmp\ndeep/new\n");
    assert!(!ground.compared("p").contains("a/new"));
    ground.write("home/.gitconfig", "[core]\n\texcludesFile = ~/mine # own\n");
    ground.write("home/mine", "keep.log\n");
    ground.compared("p");
    // A tracked file is shared even if a rule ignores it.
    ground.git("p", &["add", "-f", "node_modules", "target/debug/x", "a/y.log"]);
    ground.compared("p");
    assert!(!ground.compared("p/node_modules/m").is_empty());
}

#[test]
fn reads_every_kind_of_index_that_git_writes() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("p");
    for version in ["2", "3", "4"] {
        ground.git("p", &["update-index", "--index-version", version]);
        ground.compared("p");
        ground.write("p/a/intended", "x");
        ground.git("p", &["add", "-N", "a/intended"]);
        ground.git("p", &["update-index", "--skip-worktree", "a/one"]);
        ground.git("p", &["update-index", "--assume-unchanged", "a/b/two"]);
        fs::remove_file(ground.path("p/a/one")).ok();
        assert!(ground.compared("p").contains("a/one"));
        let long = format!("p/{}/x", ["long"; 50].join("-long/"));
        ground.write(&long, "x");
        ground.git("p", &["add", "."]);
        ground.compared("p");
    }
    ground.git("p", &["update-index", "--untracked-cache"]);
    ground.git("p", &["status"]);
    ground.compared("p");
    // A conflict has three entries of one name.
    ground.git("p", &["commit", "-q", "-a", "-m", "second"]);
    ground.git("p", &["checkout", "-q", "-b", "other", "HEAD~"]);
    ground.write("p/SKILL.md", "other");
    ground.git("p", &["commit", "-q", "-m", "third", "SKILL.md"]);
    ground.git("p", &["checkout", "-q", "main"]);
    ground.write("p/SKILL.md", "main");
    ground.git("p", &["commit", "-q", "-m", "fourth", "SKILL.md"]);
    assert!(!ground.try_git("p", &["merge", "other"]).status.success());
    ground.compared("p");
    // Files that became directories and links, and the other way round.
    fs::remove_file(ground.path("p/SKILL.md")).unwrap();
    ground.write("p/SKILL.md/inner", "x");
    fs::remove_dir_all(ground.path("p/with space")).unwrap();
    std::os::unix::fs::symlink("a", ground.path("p/with space")).unwrap();
    std::os::unix::fs::symlink("nowhere", ground.path("p/a/link")).unwrap();
    ground.compared("p");
}

#[test]
fn names_of_objects_may_be_of_sha_256() {
    require!(Git);
    let ground = Ground::new();
    fs::create_dir(ground.path("p")).unwrap();
    ground.git("p", &["init", "-q", "--object-format=sha256"]);
    ground.write("p/a/b", "x");
    ground.git("p", &["add", "."]);
    assert!(ground.compared("p").contains("a/b"));
    ground.git("p", &["update-index", "--index-version", "4"]);
    assert!(ground.compared("p").contains("a/b"));
}

#[test]
fn repositories_in_repositories_and_linked_work_trees() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("p");
    ground.repository("other");
    ground.git("other", &["add", "."]);
    ground.git("other", &["commit", "-q", "-m", "all"]);
    ground.git("p", &["submodule", "--quiet", "add", &ground.path("other").to_string_lossy(), "a/sub"]);
    ground.git("p", &["clone", "-q", &ground.path("other").to_string_lossy(), "a/nested"]);
    ground.git("p", &["init", "-q", "--bare", "a/bare.git"]);
    let listed = ground.compared("p");
    assert!(listed.contains(".gitmodules") && listed.contains("a/bare.git/HEAD"));
    assert!(!listed.iter().any(|name| name.starts_with("a/sub") || name.starts_with("a/nested")));
    ground.compared("p/a");
    ground.compared("p/a/sub");
    ground.compared("p/a/nested/a");
    ground.git("p", &["commit", "-q", "-a", "-m", "second"]);
    ground.git("p", &["worktree", "add", "-q", &ground.path("linked").to_string_lossy()]);
    ground.write("linked/a/only-here.log", "x");
    ground.write("linked/a/only-here", "x");
    assert!(ground.compared("linked").contains("a/only-here"));
    ground.compared("linked/a/b");
    // The files of an embedded git directory are listed by the repository around it.
    ground.git("p", &["add", "a/bare.git"]);
    match ground.shared("p/a/bare.git").unwrap() {
        Shared::Files { files, left_out: _ } => assert!(files.contains(&PathBuf::from("config"))),
        Shared::Everything => panic!("the repository around it is passed over"),
    }
}

#[test]
fn patterns_match_as_git_matches_them() {
    require!(Git);
    let ground = Ground::new();
    fs::create_dir(ground.path("p")).unwrap();
    ground.git("p", &["init", "-q"]);
    let pieces = [
        "a",
        "b",
        "ab",
        "*",
        "**",
        "/",
        "**/",
        "/**",
        "?",
        "[ab]",
        "[!a]",
        "[^/]",
        "[a-c]",
        "[]-a]",
        "[[:alpha:]]",
        "[[:x:]]",
        "[[:]",
        "[b-",
        "\\*",
        "\\",
        "{a,b}",
        " ",
        "!",
        ".",
        "é",
        "[\\]]",
        "[a\\-c]",
        "[z-a]",
        "***",
        "/*",
    ];
    let paths = [
        "a", "b", "ab", "a/b", "a/a/b", "b/a", "abc", "*", "a/ab/b", "ba", "a/b/a", ".a", "a b", "é", "]",
        "-", "{a,b}", "a/b/c/a", "[", "b/b/b/ab", "\\", "!a", "aa/b",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut asked = String::new();
    let mut cases = Vec::new();
    for number in 0..1500 {
        let pattern: String = (0..=random(4)).map(|_| pieces[random(pieces.len())]).collect();
        ground.write(&format!("p/d{number}/.gitignore"), format!("{pattern}\n"));
        let rules = super::Rules::parse(pattern.as_bytes(), format!("d{number}").as_bytes()).unwrap();
        for path in paths {
            let full = format!("d{number}/{path}");
            asked.push_str(&full);
            asked.push('\0');
            cases.push((pattern.clone(), rules.clone(), full));
        }
    }
    ground.write("asked", &asked);
    let mut command = Command::new("git");
    command.current_dir(ground.path("p")).env("HOME", ground.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"]);
    command.stdin(fs::File::open(ground.path("asked")).unwrap());
    let output = command.output().unwrap();
    let answers: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    let answers: Vec<&[&[u8]]> = answers.chunks_exact(4).collect();
    assert_eq!(answers.len(), cases.len());
    let mut ignored = 0;
    for ((pattern, rules, path), answer) in cases.iter().zip(answers) {
        assert_eq!(answer[3], path.as_bytes());
        let expected = !answer[2].is_empty() && !answer[2].starts_with(b"!");
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let mut says = above.filter_map(|path| say(rules, path.as_bytes(), super::ignore::Is::Directory));
        let says = says.next().or_else(|| say(rules, path.as_bytes(), super::ignore::Is::Other));
        let found = says == Some(super::ignore::Says::Ignored);
        ignored += usize::from(found);
        assert_eq!(found, expected, "`{pattern}` and `{path}`: git says {:?}", answer[2]);
    }
    assert!(ignored > 2000, "{ignored}");
}

#[test]
fn a_pattern_made_to_take_long_does_not() {
    let pattern = format!("{}b", "**/a/*a*a*a".repeat(200));
    let rules = super::Rules::parse(pattern.as_bytes(), b"").unwrap();
    let path = "a/".repeat(1500);
    let began = std::time::Instant::now();
    assert_eq!(say(&rules, path.as_bytes(), super::ignore::Is::Other), None);
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// An index with these entries and extensions.
fn made(version: u32, count: u32, body: &[u8]) -> Vec<u8> {
    [b"DIRC".as_slice(), &version.to_be_bytes(), &count.to_be_bytes(), body, &[0; 20]].concat()
}

fn entry(path: &[u8], mode: u32, flags: &[u8]) -> Vec<u8> {
    let mut out = [[0; 24].as_slice(), &mode.to_be_bytes(), &[0; 12], &[7; 20], flags, path].concat();
    out.resize((out.len() + 8) & !7, 0);
    out
}

fn flags(path: &[u8]) -> [u8; 2] {
    u16::try_from(path.len()).unwrap().min(0xfff).to_be_bytes()
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, IndexError> {
    let mut out = Vec::new();
    index::read(bytes, HashLength::Twenty, |IndexEntry { path, .. }| {
        out.push(path.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(out)
}

#[test]
fn what_git_would_not_write_is_an_error() {
    let one = |path: &[u8]| made(2, 1, &entry(path, 0o100_644, &flags(path)));
    assert_eq!(read(&one(b"a/b")).unwrap(), [b"a/b".to_vec()]);
    for path in ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.git/config", ".GIT/hooks/x", ""] {
        assert_eq!(read(&one(path.as_bytes())), Err(IndexError::Path), "{path}");
    }
    let whole = one(b"a/b");
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_err(), "{length}");
    }
    assert_eq!(read(b"not an index, but as long as one"), Err(IndexError::Foreign));
    assert_eq!(read(&made(2, u32::MAX, &entry(b"a", 0o100_644, &[0, 1]))), Err(IndexError::Damaged));
    assert!(matches!(read(&made(5, 0, b"")), Err(IndexError::Unsupported(_))));
    assert!(matches!(
        read(&made(2, 0, b"link\0\0\0\x04abcd")),
        Err(IndexError::Unsupported("a split index"))
    ));
    assert!(matches!(read(&made(2, 0, b"sdir\0\0\0\0")), Err(IndexError::Unsupported("a sparse index"))));
    assert!(matches!(read(&made(2, 0, b"newx\0\0\0\0")), Err(IndexError::Unsupported(_))));
    assert_eq!(read(&made(2, 0, b"TREE\0\0\0\x02ab")), Ok(vec![]));
    assert_eq!(read(&made(2, 0, b"TREE\xff\xff\xff\xffab")), Err(IndexError::Damaged));
    assert!(matches!(
        read(&made(2, 1, &entry(b"a", 0o040_000, &[0, 1]))),
        Err(IndexError::Unsupported("a sparse index"))
    ));
    // Each entry keeps the whole previous path: paths that grow without end.
    let grow = |text: &[u8]| [[0; 62].as_slice(), &[0], text, &[0]].concat();
    let growing =
        std::iter::once(grow(&[b'x'; 4000])).chain((0..100).map(|_| grow(b"yyyyyyyyyy"))).collect::<Vec<_>>();
    assert_eq!(read(&made(4, 101, &growing.concat())), Err(IndexError::Path));
    assert_eq!(
        read(&made(4, 1, &[[0; 62].as_slice(), b"\xff\xff\xff\xff\xff\xff\x7f", b"a\0"].concat())),
        Err(IndexError::Damaged)
    );
}

#[test]
fn unreadable_files_are_named_with_a_remedy() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("p");
    let failed = |directory: &str| ground.shared(directory).unwrap_err().to_string();
    ground.git("p", &["update-index", "--split-index"]);
    let error = failed("p");
    assert!(error.contains("p/.git/index`") && error.contains("--no-split-index"), "{error}");
    ground.git("p", &["update-index", "--no-split-index", "--force-write-index"]);
    ground.compared("p");
    let index = fs::read(ground.path("p/.git/index")).unwrap();
    ground.write("p/.git/index", &index[..index.len() / 2]);
    assert!(failed("p").contains("damaged or cut off"));
    fs::File::create(ground.path("p/.git/index")).unwrap().set_len(1 << 40).unwrap();
    assert!(failed("p").contains("larger than 64 MiB"));
    fs::remove_file(ground.path("p/.git/index")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", ground.path("p/.git/index")).unwrap();
    assert!(failed("p").contains("not a regular file"));
    fs::remove_file(ground.path("p/.git/index")).unwrap();
    ground.write("p/.git/index", &index);
    // An ignore file that exists only as an object.
    ground.git("p", &["add", ".gitignore"]);
    ground.git("p", &["update-index", "--skip-worktree", ".gitignore"]);
    fs::remove_file(ground.path("p/.gitignore")).unwrap();
    let error = failed("p/a");
    assert!(error.contains("p/.gitignore`") && error.contains("sparse-checkout disable"), "{error}");
    // A work tree that the repository does not refer to.
    ground.repository("victim");
    fs::create_dir(ground.path("claims")).unwrap();
    ground.write("claims/.git", format!("gitdir: {}\n", ground.path("victim/.git").display()));
    let error = failed("claims");
    assert!(error.contains("claims/.git`") && error.contains("worktree repair"), "{error}");
    ground.git("victim", &["config", "core.worktree", "/"]);
    assert!(failed("victim/a").contains("core.worktree"));
}

/// Entries that may be valid, as the fuzzer makes them: mode, flags, further flags, path.
type MadeEntry = (u32, u16, u16, Vec<u8>);

/// An index of these entries, as valid as its numbers are.
fn assembled(version: u32, entries: &[MadeEntry], rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (mode, flags, further, path) in entries {
        let start = body.len();
        body.extend([[0; 24].as_slice(), &mode.to_be_bytes(), &[0; 12], &[7; 20]].concat());
        let extended = flags & 0x4000 != 0 && version > 2;
        let length = u16::try_from(path.len()).unwrap_or(0xfff).min(0xfff);
        body.extend((if version == 4 { *flags } else { (flags & 0xf000) | length }).to_be_bytes());
        if extended {
            body.extend(further.to_be_bytes());
        }
        body.extend(path);
        let used = body.len() - start;
        body.resize(start + if version == 4 { used + 1 } else { (used + 8) & !7 }, 0);
    }
    made(version, u32::try_from(entries.len()).unwrap(), &[&body, rest].concat())
}

#[test]
fn fuzz_git_index() {
    bolero::check!().with_type::<(u8, Vec<MadeEntry>, Vec<u8>, (u16, u8))>().for_each(
        |(version, entries, rest, (at, byte))| {
            let whole = assembled(2 + u32::from(version % 3), entries, rest);
            let mut spoiled = whole.clone();
            let at = usize::from(*at) % spoiled.len();
            spoiled[at] = *byte;
            for text in [&whole, &spoiled, &whole[..at], rest] {
                for hash in [HashLength::Twenty, HashLength::ThirtyTwo] {
                    let read = index::read(text, hash, |IndexEntry { path, .. }| {
                        assert!((1..=4096).contains(&path.len()) && !path.contains(&0), "{path:?}");
                        let plain = |name: &[u8]| !matches!(name, b"" | b"." | b".." | b".git");
                        assert!(path.split(|byte| *byte == b'/').all(plain), "{path:?}");
                        ControlFlow::Continue(())
                    });
                    drop(read);
                }
            }
        },
    );
}

#[test]
fn fuzz_git_ignore() {
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(text, path)| {
        if let Ok(rules) = super::Rules::parse(text, b"") {
            for is in [super::ignore::Is::Directory, super::ignore::Is::Other] {
                say(&rules, path, is);
            }
        }
    });
}

#[test]
fn links_below_the_git_directory_are_refused() {
    require!(Git);
    let ground = Ground::new();
    ground.write("home/.netrc", "machine host\n");
    ground.write("home/secrets/exclude", "x\n");
    for (name, target) in [
        ("info/exclude", "home/.netrc"),
        ("config", "home/.netrc"),
        ("info", "home/secrets"),
        ("index", "home/.netrc"),
    ] {
        let repository = name.replace('/', "-");
        ground.repository(&repository);
        let place = ground.path(&format!("{repository}/.git/{name}"));
        fs::rename(&place, ground.path(&format!("{repository}/.git/before"))).unwrap();
        std::os::unix::fs::symlink(ground.path(target), &place).unwrap();
        let error = ground.shared(&repository).unwrap_err().to_string();
        let named = if name == "info" { place.join("exclude") } else { place };
        assert!(error.contains(&named.display().to_string()), "{name}: {error}");
        assert!(error.contains("symbolic link"), "{name}: {error}");
    }
    // The user's own files may be links.
    ground.repository("plain");
    ground.write("home/dotfiles/ignore", "*.tmp\n");
    std::os::unix::fs::symlink(ground.path("home/dotfiles/ignore"), ground.path("home/.config/git/ignore"))
        .unwrap();
    ground.compared("plain");
}

/// The peak memory of this process, in MiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() >> 10
}

#[test]
fn large_ignore_files_are_refused_with_little_memory() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("many");
    let line = "[a]".repeat(1300) + "\n";
    let text = line.repeat((1 << 20) / line.len());
    for number in 0..300 {
        ground.write(&format!("many/{number}/.gitignore"), &text);
    }
    let began = std::time::Instant::now();
    let error = ground.shared("many").unwrap_err();
    assert!(matches!(error, SharedError::TooManyRules { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(peak_memory() < 512, "{} MiB", peak_memory());
}

#[test]
fn rules_that_take_long_to_apply_are_refused() {
    require!(Git);
    let ground = Ground::new();
    ground.repository("slow");
    ground.write("slow/.gitignore", format!("{}x\n", "*a".repeat(1000)).repeat(200));
    for number in 0..2000 {
        ground.write(&format!("slow/files/{}{number}", "a".repeat(200)), "");
    }
    let began = std::time::Instant::now();
    let error = ground.shared("slow").unwrap_err();
    assert!(matches!(error, SharedError::TooManyRules { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn only_tracked_files_are_shared_unless_others_are_included() {
    require!(Git);
    let ground = Ground::new();
    for name in ["work/skill/SKILL.md", "work/skill/sub/tracked", "work/new/SKILL.md", "work/built/SKILL.md"]
    {
        ground.write(name, name);
    }
    ground.write("work/.gitignore", "*.log\nbuilt\n");
    ground.git("work", &["init", "-q"]);
    ground.git("work", &["add", "skill"]);
    ground.write("work/skill/sub/forgotten", "x");
    ground.write("work/skill/noise.log", "x");
    let listed = ground.git("work/skill", &["ls-files", "--cached"]);
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (files, left_out) = (paths(&listed.lines().collect::<Vec<_>>()), paths(&["sub/forgotten"]));
    assert_eq!(
        ground.shared_with("work/skill", Untracked::LeftOut).unwrap(),
        Shared::Files { files, left_out }
    );
    let files = paths(&["SKILL.md", "sub/forgotten", "sub/tracked"]);
    let all = Shared::Files { files, left_out: Vec::new() };
    assert_eq!(ground.shared("work/skill").unwrap(), all);
    // Only its name is in the index: a commit would not have it.
    ground.write("work/skill/sub/intended", "x");
    ground.git("work", &["add", "-N", "skill/sub/intended"]);
    let Shared::Files { files, left_out } = ground.shared_with("work/skill", Untracked::LeftOut).unwrap()
    else {
        panic!("it is tracked")
    };
    assert_eq!(
        (files, left_out),
        (paths(&["SKILL.md", "sub/tracked"]), paths(&["sub/forgotten", "sub/intended"]))
    );
    assert!(ground.compared("work/skill").contains("sub/intended"), "it is about to be added");
    // One that was never added, and one that is not git's business.
    let refused = ground.shared_with("work/new", Untracked::LeftOut).unwrap_err();
    assert!(refused.to_string().contains("--include-untracked"), "{refused}");
    assert_eq!(ground.shared_with("work/built", Untracked::LeftOut).unwrap(), Shared::Everything);
}
