//! The table of what the host executes, by its own examples, and what links do to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belljar_class::{Class, EntryKind, Grade, HOST_EXECUTED, SpecialKind, TreeFacts, classify, classify_in};

/// A tree with one bare repository, and with these links.
struct Imagined(BTreeMap<&'static str, &'static str>);

impl TreeFacts for Imagined {
    fn is_git_directory(&self, directory: &Path) -> bool {
        directory.ends_with("bare-repo")
    }

    fn link_target(&self, path: &Path) -> Option<PathBuf> {
        self.0.get(path.to_str()?).map(PathBuf::from)
    }
}

fn imagined(links: &[(&'static str, &'static str)]) -> Imagined {
    Imagined(links.iter().copied().collect())
}

fn file(path: &str) -> Class {
    classify_in(Path::new(path), &EntryKind::File, &imagined(&[]))
}

fn grade(class: &Class) -> Option<Grade> {
    match class {
        Class::HostExecuted { grade, .. } => Some(*grade),
        Class::Ordinary | Class::EscapingSymlink { .. } | Class::Special { .. } => None,
    }
}

#[test]
fn every_line_matches_its_examples_and_not_its_near_misses() {
    for line in HOST_EXECUTED {
        assert!(!line.why.is_empty() && !line.matches.is_empty(), "{}", line.pattern);
        for path in line.matches {
            let class = file(path);
            assert!(
                grade(&class).is_some_and(|grade| grade >= line.grade),
                "{}: {path}: {class:?}",
                line.pattern
            );
        }
        for path in line.near_misses {
            assert_eq!(file(path), Class::Ordinary, "{}: {path}", line.pattern);
        }
    }
}

#[test]
fn a_trailing_slash_a_dot_and_odd_bytes_change_nothing() {
    for path in [".git/hooks/pre-commit/", "./.git/./hooks//pre-commit", ".git/hooks/\u{1b}[0m", ".envrc/"] {
        assert_eq!(grade(&file(path)), Some(Grade::Guarded), "{path}");
    }
    use std::os::unix::ffi::OsStrExt;
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"\xff/.git/config"));
    assert_eq!(grade(&classify(odd, &EntryKind::File)), Some(Grade::Guarded));
}

#[test]
fn a_git_pointer_counts_and_a_git_directory_alone_does_not() {
    assert_eq!(grade(&file("sub/.git")), Some(Grade::Guarded));
    assert_eq!(classify(Path::new("sub/.git"), &EntryKind::Directory), Class::Ordinary);
    let link = EntryKind::Symlink("elsewhere".into());
    assert_eq!(grade(&classify(Path::new("sub/.git"), &link)), Some(Grade::Guarded));
}

#[test]
fn what_builds_fill_is_only_watched_unless_it_is_gits() {
    assert_eq!(grade(&file("node_modules/a/.vscode/settings.json")), Some(Grade::Watched));
    assert_eq!(grade(&file("node_modules/a/.git/hooks/pre-commit")), Some(Grade::Guarded));
}

#[test]
fn links_are_classed_by_where_they_lead() {
    let links =
        [("up", ".."), ("here", "src"), ("src/deep", "../../x"), ("a", "b"), ("b", "a"), ("root", "/")];
    let facts = imagined(&links);
    let class =
        |path: &str, target: &str| classify_in(Path::new(path), &EntryKind::Symlink(target.into()), &facts);
    for (path, target) in
        [("x", "y"), ("d/x", "../y"), ("x", "here/y"), ("a", "b"), ("d/x", "."), ("x", "./y/..")]
    {
        assert_eq!(class(path, target), Class::Ordinary, "{path} -> {target}");
    }
    let out = [
        ("x", "/etc/passwd"),
        ("x", ".."),
        ("d/x", "../../y"),
        ("x", "up"),
        ("x", "up/up"),
        ("x", "here/deep/y"),
        ("x", "src/../../y"),
        ("x", "root/etc"),
        ("x", "missing/../../y"),
    ];
    for (path, target) in out {
        assert_eq!(
            class(path, target),
            Class::EscapingSymlink { target: target.into() },
            "{path} -> {target}"
        );
    }
}

#[test]
fn a_link_in_place_of_a_directory_stands_for_what_would_be_below() {
    for path in
        [".vscode", ".claude", ".git", ".git/hooks", ".git/info", ".cargo", "x/.husky", ".devcontainer"]
    {
        let class = classify(Path::new(path), &EntryKind::Symlink("innocent".into()));
        assert_eq!(grade(&class), Some(Grade::Guarded), "{path}");
    }
    assert_eq!(
        grade(&classify(Path::new("node_modules"), &EntryKind::Symlink("x".into()))),
        Some(Grade::Watched)
    );
    assert_eq!(classify(Path::new("src"), &EntryKind::Symlink("x".into())), Class::Ordinary);
}

#[test]
fn set_id_and_special_files_are_named() {
    assert_eq!(grade(&classify(Path::new("tool"), &EntryKind::SetIdFile)), Some(Grade::Watched));
    let fifo = EntryKind::Special(SpecialKind::Fifo);
    assert_eq!(classify(Path::new("p"), &fifo), Class::Special { kind: SpecialKind::Fifo });
}
