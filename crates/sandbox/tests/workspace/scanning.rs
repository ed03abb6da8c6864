//! What a scan finds, what it does not stumble over, and what two scans tell.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_sandbox::{
    Class, Created, Grade, ProtectedKind, Shows, Since, UnseenBecause, created_since, scan, scan_named,
};
use rustix::time::{ClockId, clock_gettime};

use super::support::{link, mode, put, superuser};

fn protected(root: &Path) -> Vec<String> {
    let found = scan(root).unwrap();
    found
        .protected
        .iter()
        .map(|protected| match protected.kind {
            ProtectedKind::File => protected.path.display().to_string(),
            ProtectedKind::Directory => format!("{}/", protected.path.display()),
        })
        .collect()
}

/// A repository with everything that git makes, without git.
fn repository(root: &Path, at: &str) {
    for path in ["HEAD", "config", "hooks/pre-commit.sample", "objects/ab/cd", "refs/heads/main", "index"] {
        put(root, &format!("{at}/{path}"), "");
    }
}

#[test]
fn finds_them_wherever_they_lie() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    repository(root, ".git");
    repository(root, ".git/modules/libs/a");
    repository(root, "vendor/deep/er/sub/.git");
    repository(root, "caches/mirror");
    put(root, ".git/worktrees/w/commondir", "../..");
    put(root, ".git/worktrees/w/HEAD", "");
    put(root, "libs/a/.git", "gitdir: ../../.git/modules/libs/a");
    for path in
        [".claude/settings.json", ".claude/skills/s/SKILL.md", ".vscode/tasks.json", ".envrc", "CLAUDE.md"]
    {
        put(root, path, "");
    }
    put(root, "node_modules/.bin/tsc", "");
    put(root, "node_modules/x/.vscode/tasks.json", "");
    put(root, "config/hooks/x", "");
    assert_eq!(
        protected(root),
        [
            ".claude/settings.json",
            ".envrc",
            ".git/config",
            ".git/hooks/",
            ".git/modules/libs/a/config",
            ".git/modules/libs/a/hooks/",
            ".git/worktrees/w/commondir",
            ".vscode/tasks.json",
            "caches/mirror/config",
            "caches/mirror/hooks/",
            "libs/a/.git",
            "vendor/deep/er/sub/.git/config",
            "vendor/deep/er/sub/.git/hooks/",
        ]
    );
    let anchors = scan(root).unwrap().anchors();
    assert!(anchors.contains(&PathBuf::from(".git")) && anchors.contains(&PathBuf::from("vendor/deep")));
}

#[test]
fn a_bare_repository_may_be_the_top_itself() {
    let root = tempfile::tempdir().unwrap();
    repository(root.path(), ".");
    assert_eq!(protected(root.path()), ["config", "hooks/"]);
}

#[test]
fn places_that_stand_in_for_others_are_protected_too() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    repository(root, ".git");
    put(root, ".git/config", "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../shared.cfg\n");
    put(root, "shared.cfg", "[core]\nfsmonitor = ./tools/watch.sh\n");
    put(root, "tools/hooks/pre-commit", "");
    put(root, "tools/watch.sh", "");
    put(root, "tools/other.sh", "");
    link(root, ".claude", "agent");
    put(root, "agent/settings.json", "");
    put(root, "agent/notes.md", "");
    link(root, ".mcp.json", "agent/servers");
    put(root, "agent/servers", "");
    link(root, "loop", "loop");
    assert_eq!(
        protected(root),
        [
            ".git/config",
            ".git/hooks/",
            "agent/servers",
            "agent/settings.json",
            "shared.cfg",
            "tools/hooks/",
            "tools/watch.sh",
        ]
    );
    assert_eq!(scan(root).unwrap().links, [PathBuf::from(".claude"), ".mcp.json".into()]);
}

#[test]
fn neither_pipes_nor_links_nor_closed_directories_stop_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), ".envrc", "");
    let made = std::process::Command::new("mkfifo").arg(root.join(".envrc")).arg(root.join("pipe")).status();
    assert!(made.unwrap().success());
    link(root, "out", outside.path().to_str().unwrap());
    link(root, "round", ".");
    put(root, "closed/.envrc", "");
    mode(&root.join("closed"), 0);
    let mut deep = root.join("d");
    for _ in 0..600 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let found = scan(root).unwrap();
    mode(&root.join("closed"), 0o755);
    let protected: Vec<_> = found.protected.iter().map(|protected| protected.path.clone()).collect();
    let unseen: Vec<_> = found.unseen.iter().map(|unseen| unseen.why.clone()).collect();
    if superuser() {
        assert_eq!(protected, [PathBuf::from("closed/.envrc")]);
        assert_eq!(unseen, [UnseenBecause::TooDeep]);
    } else {
        assert_eq!(protected, [] as [PathBuf; 0]);
        assert_eq!(unseen, [UnseenBecause::Refused(13), UnseenBecause::TooDeep]);
    }
    assert!(scan(&root.join("absent")).is_err());
}

#[test]
fn two_scans_tell_what_appeared_and_what_changed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    repository(root, ".git");
    put(root, ".venv/bin/python", "old");
    put(root, ".claude/settings.json", "{}");
    link(root, "fine", "README");
    let before = scan(root).unwrap();
    assert_eq!(created_since(&before, root).unwrap().created, []);

    put(root, ".git/objects/00/11", "ordinary");
    put(root, "README", "ordinary");
    put(root, "new/.git/hooks/post-checkout", "evil");
    put(root, "new/.git/config", "[core]\nfsmonitor = evil\n");
    // A text without names is not reported.
    let config = fs::read_to_string(root.join(".git/config")).unwrap();
    put(root, ".git/config", &format!("{config}[user]\nname = a\n"));
    put(root, ".venv/bin/python", "new");
    // The same size and the same mtime, by another file.
    let old = fs::metadata(root.join(".claude/settings.json")).unwrap();
    put(root, "x", "[]");
    fs::File::open(root.join("x")).unwrap().set_modified(old.modified().unwrap()).unwrap();
    fs::rename(root.join("x"), root.join(".claude/settings.json")).unwrap();
    fs::remove_file(root.join("fine")).unwrap();
    link(root, "fine", "../outside");
    repository(root, "planted");
    let found = created_since(&before, root).unwrap().created;
    let lines: Vec<String> = found
        .iter()
        .map(|Created { path, class, since }| {
            let class = match class {
                Class::HostExecuted { grade: Grade::Guarded, .. } => "guarded",
                Class::HostExecuted { grade: Grade::Watched, .. } => "watched",
                Class::EscapingSymlink { .. } => "escaping",
                Class::Special { .. } => "special",
                Class::Ordinary => "ordinary",
            };
            let since = match since {
                Since::Appeared => "appeared",
                Since::Changed => "changed",
            };
            format!("{} {class} {since}", path.display())
        })
        .collect();
    assert_eq!(
        lines,
        [
            ".claude/settings.json guarded changed",
            ".venv/bin/python watched changed",
            "fine escaping appeared",
            "new/.git/config guarded appeared",
            "new/.git/hooks/post-checkout guarded appeared",
            "planted/HEAD watched appeared",
        ]
    );
}

/// What is put there before the signs come back is obeyed when they do.
#[test]
fn a_git_directory_without_its_signs_is_still_looked_at() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    repository(root, "mirror");
    put(root, "other/config", "");
    let before = scan(root).unwrap();
    fs::create_dir(root.join("away")).unwrap();
    for sign in ["HEAD", "objects", "refs"] {
        fs::rename(root.join("mirror").join(sign), root.join("away").join(sign)).unwrap();
    }
    for directory in ["mirror", "other"] {
        put(root, &format!("{directory}/config"), "[core]\nfsmonitor = evil\n");
        put(root, &format!("{directory}/hooks/update"), "evil");
    }
    let created = created_since(&before, root).unwrap().created;
    let created: Vec<_> = created.iter().map(|created| (created.path.to_str(), created.since)).collect();
    assert_eq!(
        created,
        [
            (Some("away/HEAD"), Since::Appeared),
            (Some("mirror/config"), Since::Changed),
            (Some("mirror/hooks/update"), Since::Appeared),
        ]
    );
}

/// git reads configuration and hooks where a `commondir` leads; one that git itself wrote leads to the directory around.
#[test]
fn what_a_commondir_leads_to_is_of_the_class() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for repository_of_trees in ["mirror", "shared"] {
        repository(root, repository_of_trees);
    }
    let whole = format!("{}/mirror/\n", root.canonicalize().unwrap().display());
    for (tree, said) in [
        ("mirror/worktrees/a", "../..\n"),
        ("mirror/worktrees/b", &whole),
        ("own", "../shared\n"),
        ("out", "/x"),
    ] {
        put(root, &format!("{tree}/HEAD"), "");
        put(root, &format!("{tree}/commondir"), said);
    }
    let found = scan(root).unwrap();
    let aliases: Vec<_> =
        found.aliases().iter().map(|alias| (alias.place.to_str(), alias.leads_to.to_str())).collect();
    let expected = ["branches", "config", "hooks", "info/attributes", "remotes"]
        .map(|name| (format!("own/{name}"), format!("shared/{name}")));
    let expected: Vec<_> =
        expected.iter().map(|(place, leads_to)| (Some(&**place), Some(&**leads_to))).collect();
    assert_eq!(aliases, expected);
}

/// Not a benchmark, but a fence that holds on a busy machine too: a scan that looks at every file would be past it.
#[test]
fn a_scan_costs_about_as_much_as_reading_the_names() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for directory in 0..50 {
        let directory = root.join(format!("part{}/package{directory}", directory % 20));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..100 {
            fs::File::create(directory.join(format!("module_{file}.rs"))).unwrap();
        }
    }
    repository(root, "part7/.git");
    let best = |act: &dyn Fn()| {
        // The processor's time of this thread: how long it has to wait for it says nothing about the scan.
        let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let once = |_| {
            let start = spent();
            act();
            spent() - start
        };
        (0..5).map(once).min().unwrap()
    };
    let names = best(&|| assert!(count(root) > 5_000));
    let scan = best(&|| assert_eq!(scan(root).unwrap().protected.len(), 2));
    assert!(scan < names * 20, "scan {scan:?}, names alone {names:?}");
}

fn count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|entry| if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

#[test]
fn programs_that_a_configuration_names_are_protected() {
    let place = tempfile::tempdir().unwrap();
    let root = &place.path().canonicalize().unwrap().join("home/p");
    fs::create_dir_all(root).unwrap();
    repository(root, ".git");
    let config = format!(
        "[core]\n\thooksPath = {0}/tools/hooks\n\tsshCommand = ~/p/tools/ssh -v\n\
         [filter \"x\"]\n\tclean = tools/clean %f\n\tsmudge = sh ./tools/smudge.sh\n\
         [diff \"y\"]\n\ttextconv = {0}/tools/conv\n[alias]\n\tgo = !\"$(git rev-parse --show-toplevel)/tools/go\"\n\
         [includeIf \"gitdir:{0}/\"]\n\tpath = {0}/more.cfg\n",
        root.display()
    );
    put(root, ".git/config", &config);
    put(root, "more.cfg", "[merge \"m\"]\n\tdriver = \"python3 'my tools/merge.py' %O\"\n");
    for path in
        ["tools/hooks/pre-push", "tools/ssh", "tools/clean", "tools/smudge.sh", "tools/conv", "tools/go"]
    {
        put(root, path, "");
    }
    put(root, "my tools/merge.py", "");
    for path in ["tools/other", "clean", "python3", "sh", "%f", "go"] {
        put(root, path, "");
    }
    let guarded = protected(root);
    for path in [
        "tools/hooks/",
        "tools/ssh",
        "tools/clean",
        "tools/smudge.sh",
        "tools/conv",
        "tools/go",
        "more.cfg",
        "my tools/merge.py",
    ] {
        assert!(guarded.iter().any(|found| found == path), "{path}: {guarded:?}");
    }
    for path in ["tools/other", "python3", "sh", "clean", "go"] {
        assert!(!guarded.iter().any(|found| found == path), "{path}: {guarded:?}");
    }
}

#[test]
fn what_is_used_outside_by_name_is_protected_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "scripts/token.sh", "");
    put(root, "scripts/other.sh", "");
    let named = [PathBuf::from("scripts/token.sh"), PathBuf::from("absent")];
    let before = scan_named(root, &named).unwrap();
    assert_eq!(
        before.protected.iter().map(|found| found.path.as_path()).collect::<Vec<_>>(),
        [Path::new("scripts/token.sh")]
    );
    assert_eq!(scan(root).unwrap().protected, []);
    put(root, "scripts/token.sh", "evil");
    put(root, "scripts/other.sh", "fine");
    put(root, "absent", "evil");
    let created: Vec<_> = created_since(&before, root).unwrap().created;
    let created: Vec<_> = created.iter().map(|created| (created.path.as_path(), created.since)).collect();
    assert_eq!(
        created,
        [(Path::new("absent"), Since::Appeared), (Path::new("scripts/token.sh"), Since::Changed)]
    );
}

#[test]
fn a_git_configuration_that_is_too_large_is_named() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    repository(root, ".git");
    put(root, "tools/x", "");
    let text = format!("{}[core]\n\tfsmonitor = ./tools/x\n", "# padding\n".repeat((1 << 20) / 10));
    put(root, ".git/config", &text);
    let found = scan(root).unwrap();
    let unseen: Vec<_> =
        found.unseen.iter().map(|unseen| (unseen.path.clone(), unseen.why.clone())).collect();
    assert_eq!(unseen, [(PathBuf::from(".git/config"), UnseenBecause::TooLarge)]);
    put(root, ".git/config", &text["# padding\n".len() * 10..]);
    let found = scan(root).unwrap();
    assert_eq!(found.unseen, []);
    assert!(found.protected.iter().any(|protected| protected.path == Path::new("tools/x")));
}

#[test]
fn links_on_the_way_to_something_of_the_class_are_of_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, ".git/config", "[core]\n\thooksPath = current/hooks\n");
    for path in ["v1/hooks/pre-commit", "v1/tool", "v1/editor/tasks.json", "v2/hooks/pre-commit"] {
        put(root, path, "");
    }
    link(root, "current", "latest");
    link(root, "latest", "v1");
    link(root, ".vscode", "current/editor");
    link(root, "other", "v1");
    let before = scan_named(root, &["current/tool".into()]).unwrap();
    let named: Vec<&Path> = before.named().iter().map(PathBuf::as_path).collect();
    assert_eq!(named, ["current", "current/tool", "latest", "v1/tool"].map(Path::new));
    let is_protected = |path: &str| before.protected.iter().any(|found| found.path == Path::new(path));
    assert!(is_protected("v1/tool") && is_protected("v1/editor/tasks.json") && !is_protected("current"));
    for (path, leads_to) in [("latest", "v2"), ("other", "v2")] {
        fs::remove_file(root.join(path)).unwrap();
        link(root, path, leads_to);
    }
    let created = created_since(&before, root).unwrap().created;
    let changed: Vec<&Path> = created
        .iter()
        .filter(|found| found.since == Since::Changed)
        .map(|found| found.path.as_path())
        .collect();
    assert_eq!(changed, [Path::new("latest")]);
}

#[test]
fn what_a_link_brings_out_of_build_output_is_of_the_class() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "target/web/.envrc", "");
    put(root, "target/other/.envrc", "");
    link(root, "target/web/round", "../web");
    assert_eq!(protected(root), Vec::<String>::new());
    link(root, "web", "target/web");
    link(root, "node_modules", "target/other");
    assert_eq!(protected(root), ["target/web/.envrc"]);
}

#[test]
fn a_directory_that_shows_a_part_again_is_guarded_by_its_own_paths() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, ".git/config", "[core]\n\thooksPath = scripts/hooks\n");
    repository(root, "mirror");
    let found = scan_named(root, &["scripts/tool".into()]).unwrap();
    let part = |path: &str| found.named_from(&Shows::Part { path: path.into() });
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(part(""), paths(&["scripts/tool", "scripts/hooks"]));
    assert_eq!(part("scripts"), paths(&["tool", "hooks"]));
    assert_eq!(part("src"), paths(&[]));
    for everything in ["scripts/hooks", "scripts/hooks/deeper", ".git/hooks", ".vscode", ".claude/hooks"] {
        assert_eq!(part(everything), paths(&[""]), "{everything}");
    }
    assert_eq!(part(".git"), paths(&[]));
    for everything in ["mirror/hooks", "mirror/info", "mirror/hooks/deeper"] {
        assert_eq!(part(everything), paths(&[""]), "{everything}");
    }
    assert_eq!((part("mirror"), part("mirror/objects")), (paths(&[]), paths(&[])));
    let more = found.named_from(&Shows::More { at: "work/project".into() });
    assert_eq!(more, paths(&["work/project/scripts/tool", "work/project/scripts/hooks"]));
}
