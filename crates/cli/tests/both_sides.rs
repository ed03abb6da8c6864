//! Random work of the user and of the agent in a project with a submodule, a repository of its own and a bare one, applied in
//! random order and killed at random moments. Nothing is confirmed, so nothing may be lost: no commit that a ref led
//! to on either side, and nothing that the user wrote.
//!
//! `BELLJAR_KILLS` sets how many rounds are made, `BELLJAR_SEED` where the random numbers begin.

use crate::killed::{kill_after, start};
use crate::nested_repositories::nested;
use crate::repositories::git;
use crate::stage::Stage;
use belljar_testkit::require;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PLACES: [&str; 4] = [".", "vendor/sub", "nested", "store.git"];

struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A line of a script that does something in one of the repositories; what fails does nothing.
fn deed(random: &mut Random, who: &str, number: usize) -> String {
    let place = random.of(&PLACES);
    let (branch, other) = (random.of(&["b0", "b1", "b2", "main"]), random.of(&["b0", "b1", "b2", "b3"]));
    let file = random.of(&["shared.txt", "one.txt", "deep/two.txt"]);
    let mark = format!("{who}-{number}");
    let tree = format!("{branch}^{{tree}}");
    let bare = [
        format!("git update-ref refs/heads/{other} $(git commit-tree -p {branch} -m {mark} {tree})"),
        format!("git branch {mark} {branch}"),
        format!("git branch -f {other} {branch}"),
        format!("git branch -D {other}"),
        format!("git tag -f t0 {branch}"),
        "git pack-refs --all".to_owned(),
        "git gc -q".to_owned(),
        format!("git update-ref -d refs/heads/{other}"),
        format!("git branch {other}/{mark} {branch}"),
    ];
    let edit = format!("mkdir -p deep; echo {mark} >> {file}");
    let tree = [
        format!("{edit}; git add {file}; git commit -qm {mark}"),
        format!("{edit}; git add {file}; git commit -qm {mark}"),
        edit.clone(),
        format!("{edit}; git add {file}"),
        format!("git add -A; git commit -qm {mark}"),
        format!("git checkout -q {branch}"),
        format!("git checkout -qb {mark}"),
        "git commit -q --amend --allow-empty -m amended".to_owned(),
        "git stash -q".to_owned(),
        "git stash pop -q".to_owned(),
        "git reset -q --hard HEAD~1".to_owned(),
        format!("git merge -q {branch}"),
        format!("rm {file}"),
        "rm -rf deep".to_owned(),
        format!("mkdir -p extra; echo {mark} > extra/{mark}"),
        format!("echo {mark} > {mark}.txt; git add {mark}.txt; git commit -qm {mark}"),
    ];
    let deed = match random.below(3) {
        0 => bare[random.below(bare.len())].clone(),
        _ if place == "store.git" => bare[random.below(bare.len())].clone(),
        _ => tree[random.below(tree.len())].clone(),
    };
    format!("(cd {place} && {deed}) >/dev/null 2>&1 </dev/null || true\n")
}

const IDENTITY: &str = "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x \
    GIT_CONFIG_NOSYSTEM=1 GIT_EDITOR=true;\n";

/// Says the commits that refs lead to, and, where that is asked for, reflogs.
fn telling(more: &str) -> String {
    let tell = |place: &str| {
        let head = format!("$(git -C {place} rev-parse -q --verify HEAD)");
        format!("git -C {place} rev-list --all {more} {head} 2>/dev/null | sed 's|^|{place} |'; ")
    };
    PLACES.map(tell).concat()
}

fn commits(text: &str) -> BTreeSet<String> {
    let is_commit = |line: &&str| PLACES.iter().any(|place| line.starts_with(place));
    text.lines().filter(is_commit).map(str::to_owned).collect()
}

fn sh(stage: &Stage, script: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{IDENTITY}{script}")]).current_dir(stage.path("project"));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn inside(stage: &Stage, script: &str) -> String {
    let script = format!("{IDENTITY}{script}");
    let found = stage.run(&["exec", "--yes", "a", "--", "sh", "-c", &script]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    found.stdout
}

/// The commits that are kept, by what `diff` says.
fn listed(found: &serde_json::Value) -> BTreeSet<String> {
    let data = &found["data"];
    let others = data["other_repositories"].as_array().into_iter().flatten();
    let mut out = BTreeSet::new();
    for repository in others.chain([&data["repository"]]) {
        let place = repository["path"].as_str().unwrap_or(".");
        for change in repository["refs"].as_array().into_iter().flatten() {
            let commits = change["commits"].as_array().into_iter().flatten();
            out.extend(commits.map(|commit| format!("{place} {}", commit["id"].as_str().unwrap())));
        }
    }
    out
}

/// The files of the project that are not git's.
fn files(top: &Path) -> Vec<PathBuf> {
    let (mut out, mut pending) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true if name == ".git" || name == "store.git" => {}
                true => pending.push(path),
                false => out.push(path),
            }
        }
    }
    out
}

/// The marks of the user that files hold, or commits that refs or reflogs lead to, or indexes.
fn marks(stage: &Stage, wanted: &BTreeSet<String>) -> BTreeSet<String> {
    let mut text = String::new();
    for path in files(&stage.path("project")) {
        let content = fs::read(&path).unwrap_or_default();
        text.push_str(&format!("{}\n{}", path.display(), String::from_utf8_lossy(&content)));
    }
    let in_git = "for place in . vendor/sub nested; do (cd $place; git ls-files --stage | awk '{print $2}'; \
        git rev-list --all --reflog --objects | awk '{print $1}') 2>/dev/null | sort -u | \
        git -C $place cat-file --batch 2>/dev/null; done";
    if wanted.iter().any(|mark| !has(&text, mark)) {
        let mut command = Command::new("sh");
        command.args(["-c", in_git]).current_dir(stage.path("project"));
        text.push_str(&String::from_utf8_lossy(&command.output().unwrap().stdout));
    }
    wanted.iter().filter(|mark| has(&text, mark)).cloned().collect()
}

fn has(text: &str, mark: &str) -> bool {
    let ends = |at: usize| !text[at + mark.len()..].starts_with(|next: char| next.is_ascii_digit());
    text.match_indices(mark).any(|(at, _)| ends(at))
}

struct Game {
    stage: Stage,
    random: Random,
    /// The steps so far, printed with a failure.
    story: String,
}

impl Game {
    fn new(mode: &str, seed: u64) -> Self {
        let stage = nested(mode);
        let branches = "git branch b0; git branch b1; git branch b2; git branch b3; git tag t0; git tag t1; ";
        sh(&stage, &PLACES.map(|place| format!("(cd {place}; {branches})\n")).concat());
        Game { stage, random: Random(seed), story: format!("{mode}, seed {seed}\n") }
    }

    fn script(&mut self, who: &str, most: usize) -> String {
        let count = 1 + self.random.below(most);
        let base = self.story.matches('\n').count() * 100;
        let script: String = (0..count).map(|at| deed(&mut self.random, who, base + at)).collect();
        self.story.push_str(&format!("--- {who}\n{script}"));
        script
    }

    /// One of the commands that write, which may be killed.
    fn apply(&mut self) {
        let name = format!("landed-{}", self.story.matches('\n').count());
        let place = self.random.of(&[".git", "vendor/sub", "nested", "store.git", "shared.txt", "vendor"]);
        let args = match self.random.below(6) {
            0 => vec!["apply", "--", place],
            1 => vec!["apply", "--as-branch", &name],
            2 => vec!["apply", "--as-branch", &name, "--", place],
            _ => vec!["apply"],
        };
        self.story.push_str(&format!("--- {args:?}"));
        if self.random.below(3) == 0 {
            let moment = Duration::from_millis(self.random.below(120) as u64);
            self.story.push_str(&format!(" killed after {moment:?}\n"));
            let mut child = start(&self.stage, &args, Stdio::null());
            kill_after(&mut child, moment);
            return;
        }
        let dry = (args.len() == 1).then(|| self.stage.run(&["apply", "--dry-run"]));
        let done = self.stage.run(&args);
        self.story.push_str(&format!("\n{}{}", done.stdout, done.stderr));
        assert!(matches!(done.status.code(), Some(0..=2)), "{}{done:?}", self.story);
        if let Some(dry) = dry {
            let tenses = [("would apply ", "applied "), ("would merge ", "merged "), ("would be ", "were ")];
            let plain =
                |text: &str| tenses.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
            assert_eq!(plain(&dry.stdout), done.stdout, "{}", self.story);
            assert_eq!(plain(&dry.stderr), done.stderr, "{}", self.story);
        }
    }

    fn check(&self, users: &BTreeSet<String>, agents: &BTreeSet<String>, mine: &BTreeSet<String>) {
        let Game { stage, story, .. } = self;
        let project = stage.path("project");
        let looked = stage.run(&["diff", "--json"]);
        assert_eq!(looked.status.code(), Some(0), "{story}{looked:?}");
        let now = commits(&sh(stage, &telling("--reflog")));
        let lost: Vec<_> = users.difference(&now).collect();
        assert!(lost.is_empty(), "{story}commits of the user are lost: {lost:?}");
        let kept = listed(&serde_json::from_str(&looked.stdout).unwrap());
        let lost: Vec<_> = agents.difference(&now).filter(|one| !kept.contains(*one)).collect();
        assert!(lost.is_empty(), "{story}commits of the agent are lost: {lost:?}");
        let lost: Vec<_> = mine.difference(&marks(stage, mine)).cloned().collect();
        assert!(lost.is_empty(), "{story}lines of the user are lost: {lost:?}");
        for place in PLACES {
            git(&project.join(place), &["fsck", "--strict", "--no-dangling"]);
        }
        let left = sh(stage, "find . -name '*.lock' -o -name '.belljar-unfinished-*'");
        assert_eq!(left, "", "{story}");
    }
}

#[test]
fn nothing_of_either_side_is_lost() {
    require!(Bwrap, Git);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (rounds, first) = (number("BELLJAR_KILLS").unwrap_or(20) / 4, number("BELLJAR_SEED").unwrap_or(1));
    for round in 0..rounds {
        // Each run with a copy has its own set of changes.
        let (mode, runs) = if round % 3 == 2 { ("copy", 1) } else { ("overlay", 2) };
        let mut game = Game::new(mode, first + round);
        for _ in 0..runs {
            let mut mine = BTreeSet::new();
            let script = game.script("agent", 8);
            // What the user has is the user's to delete.
            let known = commits(&sh(&game.stage, &telling("--reflog")));
            let seen = commits(&inside(&game.stage, &format!("{script}{}", telling(""))));
            let agents = seen.difference(&known).cloned().collect();
            let script = game.script("user", 6);
            sh(&game.stage, &script);
            let written = script.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            mine.extend(written.filter(|word| word.starts_with("user-")).map(str::to_owned));
            // The user may have taken something back.
            mine = marks(&game.stage, &mine);
            let users = commits(&sh(&game.stage, &telling("")));
            for _ in 0..2 {
                game.apply();
                game.check(&users, &agents, &mine);
            }
        }
    }
}
