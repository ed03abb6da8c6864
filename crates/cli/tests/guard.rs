//! The guard of a project that is changed in place: what the host would execute later is held back while a command runs.

mod ask;
mod bare;
mod host;
mod race;

use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SEMANTICS: &str = include_str!("guard/semantics.py");
/// Longer than everything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// What builds the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Bwrap,
    Container,
}

impl Backend {
    fn command(self, stage: &Stage, script: &str) -> Command {
        let inside = ["--", "sh", "-c", script];
        match self {
            Backend::Bwrap => stage.command(&[&["exec", "--yes"], inside.as_slice()].concat()),
            Backend::Container => {
                let args = [&["exec", "--yes", "--backend", "container"], inside.as_slice()].concat();
                let mut command = stage.command(&args);
                command.env("BELLJAR_ENGINE", crate::container::engine());
                command
            }
        }
    }

    fn sh(self, stage: &Stage, script: &str) -> Finished {
        run_within(&mut self.command(stage, script), DEADLINE).unwrap()
    }

    /// Runs each of these in one sandbox, and gives the statuses as well.
    fn each(self, stage: &Stage, scripts: &[&str]) -> (Finished, Vec<i32>) {
        for (number, script) in scripts.iter().enumerate() {
            stage.write(&format!("project/script-{number:02}"), script);
        }
        let all = "for script in script-*; do sh $script > output 2>&1; echo \"status $?\"; cat output; done";
        let found = self.sh(stage, all);
        let statuses = found.stdout.lines().filter_map(|line| line.strip_prefix("status ")?.parse().ok());
        let statuses: Vec<i32> = statuses.collect();
        assert_eq!(statuses.len(), scripts.len(), "{}{}", found.stdout, found.stderr);
        (found, statuses)
    }
}

fn sh(stage: &Stage, script: &str) -> Finished {
    Backend::Bwrap.sh(stage, script)
}

fn git(stage: &Stage, directory: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
    command.current_dir(directory).env("HOME", stage.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
    let done = run_within(&mut command, DEADLINE).unwrap();
    assert!(done.status.success(), "git {args:?}: {}", done.stderr);
}

fn repository() -> Stage {
    let stage = Stage::new();
    let project = stage.path("project");
    git(&stage, &project, &["init", "-q", "-b", "main"]);
    git(&stage, &project, &["config", "user.name", "t"]);
    git(&stage, &project, &["config", "user.email", "t@example.org"]);
    stage.write("project/file", "one\n");
    git(&stage, &project, &["add", "file"]);
    git(&stage, &project, &["commit", "-q", "-m", "first"]);
    stage
}

/// Each of these would have the host execute something.
const ATTACKS: &[&str] = &[
    "echo x > .envrc",
    "mkdir -p sub/.vscode && echo {} > sub/.vscode/tasks.json",
    "echo x > ordinary && mv ordinary .mcp.json",
    "echo x > ordinary2 && ln ordinary2 .mcp.json",
    "ln -s src .vscode",
    "mkdir .idea",
    "echo x > .git/commondir",
    "mkdir -p .git/x && printf '[core]\\n\\tfsmonitor = x\\n' > .git/x/config && echo x > .git/commondir",
    "echo x > .git/hooks/pre-commit",
    "printf '[core]\\n\\tfsmonitor = x\\n' >> .git/config",
    ": > .git/config",
    "truncate -s 0 .git/config",
    "ln .git/config other-name",
    "mv .git/config elsewhere",
    "mv .git g2",
    "git config core.fsmonitor x",
    "git config alias.st '!x'",
    "git config include.path x",
    "git config 'remote.--upload-pack=touch x;git-upload-pack.url' .",
    "git config remote.pushDefault ' --receive-pack=x'",
    "git config branch.main.remote -x",
    "git config core.worktree ../src",
    "git config core.bare true",
    "(cat .git/config; printf '[core]\\n\\tworktree = \"\" ../../x\\n') > c1 && mv c1 .git/config",
    "(cat .git/config; printf '[core]\\n\\tworktree = \\\\\\n ../../x\\n') > c2 && mv c2 .git/config",
    "(cat .git/config; printf '[user]\\n\\tname # x\\n') > c3 && mv c3 .git/config",
    "printf '[core]\\n\\tfsmonitor = x\\n' > c && mv c .git/config",
    "mkdir -p .git/remotes && echo 'URL: ext::sh -c x' > .git/remotes/up",
    "mkdir legacy && echo x > legacy/up && mv -T legacy .git/other && mv -T .git/other .git/remotes",
    "echo x > .git/branches/up || (mkdir .git/branches && echo x > .git/branches/up)",
    "mkdir -p late/remotes && echo x > late/remotes/up && mkdir late/objects late/refs && echo x > late/HEAD",
    "mkfifo .envrc",
    "mkdir new && printf '[core]\\n\\tfsmonitor = x\\n' > new/config && mkdir new/objects new/refs",
    "git init -q made && echo x > made/.git/hooks/pre-commit",
    "git init -q made2 && git -C made2 config core.hooksPath x",
    "mkdir -p node_modules/e/.vscode && echo {} > node_modules/e/.vscode/tasks.json && mv node_modules/e out",
    "mkdir plain && echo x > plain/pre-commit && mv plain .git/hooks/d",
    "mkdir p && echo 'gitdir: /x' > p/.git",
    "mkdir -p far && ln -s ../far .git/modules",
    "python3 -c 'import os; f=os.open(\".\", os.O_TMPFILE|os.O_RDWR); os.link(f\"/proc/self/fd/{f}\", \".envrc\", src_dir_fd=f)'",
    // A path below a descriptor is judged by where it leads.
    "exec 3< . && echo x > /proc/self/fd/3/.envrc",
    "mkdir -p sub && exec 3< sub && echo x > /dev/fd/3/../.envrc",
    "exec 3< .git && echo x > /proc/self/fd/3/hooks/pre-commit",
    "exec 3< .git && ln -s /proc/self/fd/3/hooks/pre-commit by && echo x > by",
    "echo x > ordinary3 && python3 -c 'import os; f=os.open(\".\", os.O_PATH); p=f\"/proc/self/fd/{f}\"; os.rename(p+\"/ordinary3\", p+\"/.mcp.json\")'",
    "python3 -c 'import os; f=os.open(\".\", os.O_PATH); os.mkdir(f\"/proc/self/fd/{f}/.idea\")'",
    "python3 -c 'import os; f=os.open(\".git\", os.O_PATH); os.truncate(f\"/proc/self/fd/{f}/config\", 0)'",
    "ln -s .envrc innocent && echo x > innocent",
    "ln -s .git/hooks hk && echo x > hk/pre-commit",
    // A directory above that cannot be entered hides nothing.
    "mkdir s1 && git init -q --bare s1/b && cd s1/b && chmod 000 .. && printf '[core]\\n\\tfsmonitor = x\\n' >> config; code=$?; chmod 755 ..; exit $code",
    "mkdir -p s2/d && cd s2/d && printf '[core]\\n\\tfsmonitor = x\\n' > config && chmod 000 .. && mkdir objects refs && echo 'ref: refs/heads/x' > HEAD; code=$?; chmod 755 ..; exit $code",
    "mkdir -p .git/worktrees/w5 .git/modules/v && echo x > .git/worktrees/w5/commondir && \
     python3 -c 'import os; os.rename(\".git/worktrees/w5\", \".git/modules/v/l\")'",
    "mkdir -p .git/worktrees/w2/modules/m && echo x > .git/worktrees/w2/modules/m/config.worktree",
    // A link that is open is a link.
    "ln -s evil l1 && python3 -c 'import os; f=os.open(\"l1\", os.O_PATH|os.O_NOFOLLOW); os.link(f\"/proc/self/fd/{f}\", \".vscode\", src_dir_fd=f)'",
    "ln -s evil l2 && ln -P l2 .vscode",
    // Sockets are made without the guard, and git takes whatever is there for its directories.
    "mkdir n1 && printf '[core]\\n\\tfsmonitor = x\\n' > n1/config && echo 'ref: refs/heads/x' > n1/HEAD && python3 -c 'import socket; [socket.socket(socket.AF_UNIX).bind(\"n1/\"+n) for n in (\"objects\", \"refs\")]'",
    "mkdir n2 && echo 'ref: refs/heads/x' > n2/HEAD && printf '[core]\\n\\tfsmonitor = x\\n' > n2/config && python3 -c 'import socket; [socket.socket(socket.AF_UNIX).bind(\"n2/\"+n) for n in (\"objects\", \"refs\")]'",
    "mkdir n3 && printf '[core]\\n\\tfsmonitor = x\\n' > n3/config && python3 -c 'import socket; [socket.socket(socket.AF_UNIX).bind(\"n3/\"+n) for n in (\"objects\", \"refs\")]' && echo 'ref: refs/heads/x' > n3/HEAD",
    "mkdir n5 && printf '[core]\\n\\tfsmonitor = x\\n' > n5/config && mkfifo n5/HEAD",
    "mkdir -p n4/hooks && echo x > n4/hooks/post-commit && ln -s refs/heads/x n4/HEAD",
    // git on the host writes to where a link in its directory leads.
    "rm -f .git/logs/HEAD; ln -s ../hooks/post-commit .git/logs/HEAD",
    "ln -s ../.envrc .git/FETCH_HEAD",
    "ln -s ../.envrc l3 && mv l3 .git/FETCH_HEAD",
    "ln -s ../.envrc l4 && ln -P l4 .git/FETCH_HEAD",
    "ln -s testing .git/FETCH_HEAD",
    "mkdir g1 && ln -s ../../.envrc g1/HEAD && rm -rf .git/logs && mv g1 .git/logs",
    "git init -q --bare b1 && mkdir b1/logs && ln -s ../../.envrc b1/logs/HEAD",
    "mkdir -p b2/logs && ln -s ../../.envrc b2/logs/HEAD && echo 'ref: refs/heads/x' > b2/HEAD",
];

#[test]
fn what_the_host_would_execute_is_held_back() {
    require!(Bwrap, Git, Python);
    let stage = repository();
    let mut through = Vec::new();
    for attack in ATTACKS {
        let found = sh(&stage, attack);
        if found.status.success() || !found.stderr.contains("belljar: held back: ") {
            through.push(format!("{attack}: {}", found.stderr));
        }
    }
    assert!(through.is_empty(), "{}", through.join("\n"));
    assert_nothing_was_planted(&stage);
}

#[test]
fn a_container_holds_back_the_same() {
    require!(Podman, Bwrap, Git, Python);
    let [container, bwrap] = [Backend::Container, Backend::Bwrap].map(|backend| {
        let stage = repository();
        let (found, statuses) = backend.each(&stage, ATTACKS);
        for (attack, status) in ATTACKS.iter().zip(statuses) {
            assert_ne!(status, 0, "{attack}: {}{}", found.stdout, found.stderr);
        }
        assert_nothing_was_planted(&stage);
        found.stderr
    });
    assert_eq!(container, bwrap);
}

fn assert_nothing_was_planted(stage: &Stage) {
    for absent in [
        ".envrc",
        ".mcp.json",
        ".idea",
        ".vscode",
        "sub/.vscode/tasks.json",
        ".git/commondir",
        ".git/hooks/pre-commit",
        "made/.git/hooks/pre-commit",
        "out",
        "p/.git",
    ] {
        assert!(stage.path("project").join(absent).symlink_metadata().is_err(), "{absent} was made");
    }
    let config = fs::read_to_string(stage.path("project/.git/config")).unwrap();
    assert!(config.contains("t@example.org") && !config.contains("fsmonitor"), "{config}");
}

#[test]
fn a_line_tells_of_each_place_once_and_quotes_its_name() {
    require!(Bwrap);
    let stage = Stage::new();
    let found = sh(
        &stage,
        "for i in 1 2 3; do echo x > .envrc; done; d=$(printf 'a\\033[2Jb'); mkdir \"$d\"; echo x > \"$d/.envrc\"; true",
    );
    let lines: Vec<&str> = found.stderr.lines().filter(|line| line.contains("held back: create")).collect();
    assert_eq!(lines.len(), 2, "{}", found.stderr);
    assert!(lines[0].contains(" .envrc: the shell runs it"), "{}", found.stderr);
    assert!(!lines.iter().any(|line| line.contains('\u{1b}')), "{lines:?}");
    // It is kept with what the run left.
    let kept = stage.run(&["findings"]);
    assert!(kept.stdout.contains("held back: create .envrc: the shell runs it"), "{}", kept.stdout);
    let value = stage.json(&["findings", "--json"]);
    assert_eq!(value["data"]["held"].as_array().map(Vec::len), Some(2), "{value}");
}

/// Who commits.
const KNOWN: &str =
    "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@x GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@x;";

/// What git, and those who use it, do every day.
const TOOLS: &[&str] = &[
    "echo two > file && git add -A && git commit -q -m two && git log --oneline",
    "git switch -q -c side && echo s > s && git add s && git commit -q -m s && git switch -q main",
    "echo m > m && git add m && git commit -q -m m && git merge -q side -m merged",
    "echo z >> file && git stash -q && git stash pop -q && git checkout -q file",
    "git rebase -q --force-rebase HEAD~1",
    "git gc -q && git fsck --no-dangling",
    "git remote add origin https://example.org/x.git && git remote set-url origin https://example.org/y.git",
    "git remote remove origin",
    "git branch one && git branch -u main one && git branch -D one",
    "git config user.name other && git config --unset user.name && git config user.name t",
    "git init -q made && git -C made config user.name t && test -f made/.git/hooks/pre-commit.sample",
    "git clone -q . cloned && git -C cloned log --oneline && git -C cloned commit -q --allow-empty -m c",
    "git clone -q --bare . bare.git && git clone -q bare.git again",
    "git -C again push -q -u origin HEAD:topic && git -C again config branch.main.merge",
    "git worktree add -q tree && git -C tree commit -q --allow-empty -m t && git worktree list && git worktree remove tree",
    "git -c protocol.file.allow=always submodule add -q \"$PWD/bare.git\" part && git -C part log --oneline && git commit -q -m part",
    "git -c protocol.file.allow=always clone -q --recurse-submodules . deep && git -C deep/part log --oneline",
    "git clone -q --mirror . mirror.git && git init -q --bare empty.git && git -C mirror.git remote update",
    "git sparse-checkout set --cone src && git sparse-checkout disable",
    "git remote add up git@example.org:x/y.git && git remote rename up down && git remote remove down",
    "git config branch.main.description words && git config push.default current && git config --unset push.default",
    "mkdir t && (cd t && seq 1 300 | xargs touch) && tar cf t.tar t && mkdir t2 && tar xf t.tar -C t2 && test $(ls t2/t | wc -l) = 300",
    "cp -a t t3 && mv t3 t4 && rm -rf t4",
    "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
    "printf 'all: a b c d\\na b c d:\\n\\techo $@ > $@.out\\n' > Makefile && make -s -j4 && test -f d.out",
    "command -v sqlite3 > /dev/null || exit 0; sqlite3 x.db 'create table a(b); insert into a values(1); select * from a'",
    "command -v rsync > /dev/null || exit 0; rsync -a t/ t5",
    "command -v npm > /dev/null || exit 0; mkdir -p pkg app && echo '{\"name\":\"pkg\",\"version\":\"1.0.0\"}' > pkg/package.json && cd app && echo '{}' > package.json && npm install --offline --no-audit --no-fund --silent ../pkg && test -d node_modules/pkg",
    "mv cloned moved && git -C moved log --oneline",
    "mkdir .claude .vscode && echo x > .claude/notes.md && mkdir -p .claude/skills/a && echo x > .claude/skills/a/SKILL.md",
    "echo A=1 > .env && mkdir -p node_modules/.bin && ln -s ../x node_modules/.bin/x",
    "mktemp -p . && sort -T . file > sorted && sed -i s/a/b/ sorted && install -m 755 sorted s.sh",
    "(echo through > /dev/stdout) > redirected && test \"$(cat redirected)\" = through",
];

#[test]
fn what_people_do_with_git_and_other_tools_works() {
    require!(Bwrap, Git, Python);
    let stage = repository();
    for line in TOOLS {
        let found = sh(&stage, &format!("{KNOWN} {line}"));
        assert_eq!(found.status.code(), Some(0), "{line}\n{}{}", found.stdout, found.stderr);
        assert!(!found.stderr.contains("held back"), "{line}\n{}", found.stderr);
    }
}

#[test]
fn what_people_do_works_in_a_container() {
    require!(Podman, Git, Python);
    let stage = repository();
    let lines: Vec<String> = TOOLS.iter().map(|line| format!("{KNOWN} {line}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (found, statuses) = Backend::Container.each(&stage, &lines);
    for (line, status) in TOOLS.iter().zip(statuses) {
        assert_eq!(status, 0, "{line}\n{}{}", found.stdout, found.stderr);
    }
    assert!(!found.stderr.contains("held back"), "{}", found.stderr);
}

/// The same script in a directory that is guarded and in one that is not.
const COMPARED: &str = "mkdir /var/tmp/native $PWD/guarded; python3 semantics.py /var/tmp/native > /var/tmp/n 2>&1; \
    python3 semantics.py $PWD/guarded > /var/tmp/g 2>&1; cat /var/tmp/n; diff /var/tmp/n /var/tmp/g";

#[test]
fn calls_answer_as_they_do_without_a_guard() {
    require!(Bwrap, Python);
    compare_calls(Backend::Bwrap);
}

#[test]
fn calls_in_a_container_answer_as_they_do_without_a_guard() {
    require!(Podman, Python);
    compare_calls(Backend::Container);
}

fn compare_calls(backend: Backend) {
    let stage = Stage::new();
    stage.write("project/semantics.py", SEMANTICS);
    let found = backend.sh(&stage, COMPARED);
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    assert!(found.stdout.lines().count() > 110, "{}", found.stdout);
    for line in ["under signals 0", "under signals that interrupt []", "threads 0"] {
        assert!(found.stdout.lines().any(|found| found == line), "{line}: {}", found.stdout);
    }
    assert!(found.stdout.contains("\ndefault ACL [('0o"), "{}", found.stdout);
}

/// The host replaces files by rename while the command runs: a mount over them is gone then, the guard is not.
#[test]
fn files_that_the_host_replaces_stay_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    stage.write("project/.envrc", "export A=1\n");
    let script = "echo ready; read go; echo 'export EVIL=1' >> .envrc; printf '[core]\\n\\tfsmonitor = evil\\n' >> .git/config; echo done";
    let mut command = Backend::Bwrap.command(&stage, script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    git(&stage, &stage.path("project"), &["config", "my.key", "value"]);
    stage.write("project/saved", "export A=2\n");
    fs::rename(stage.path("project/saved"), stage.path("project/.envrc")).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "export A=2\n");
    let config = fs::read_to_string(stage.path("project/.git/config")).unwrap();
    assert!(config.contains("key = value") && !config.contains("evil"), "{config}");
}

/// The host's git writes a lock and renames it over the configuration: nothing from inside gets in between.
#[test]
fn the_lock_of_a_configuration_that_the_host_changes_is_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    let (lock, config) = (stage.path("project/.git/config.lock"), stage.path("project/.git/config"));
    let before = fs::read_to_string(&config).unwrap();
    let evil = "printf '[core]\\n\\tfsmonitor = x\\n'";
    for attack in [
        format!("{evil} >> .git/config.lock"),
        "truncate -s 0 .git/config.lock".to_owned(),
        "ln .git/config.lock other".to_owned(),
        "mv .git/config.lock other".to_owned(),
        format!("{evil} > other && mv other .git/config.lock"),
        format!("{evil} > other && rm -f .git/config.lock && ln other .git/config.lock"),
        format!("{evil} > other && rm -f .git/config.lock && ln -s ../other .git/config.lock"),
        format!("rm .git/config.lock; {evil} > .git/config.lock; false"),
        format!("rm .git/config.lock; : > .git/config.lock; {evil} >> .git/config.lock; false"),
    ] {
        fs::write(&lock, &before).unwrap();
        let found = sh(&stage, &attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
        // As the host's git does in the end.
        fs::rename(&lock, &config).ok();
        assert_eq!(fs::read_to_string(&config).unwrap(), before, "{attack}");
    }
    // What is written to a lock lands if it is harmless, also if it is opened again.
    let works = "(set -C; : > .git/config.lock) && cat .git/config > .git/config.lock && \
        printf '[user]\\n\\tname = second\\n' >> .git/config.lock && mv .git/config.lock .git/config && git config user.name";
    let found = sh(&stage, works);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "second\n"), "{}", found.stderr);
    assert!(!lock.exists());
    // A file that has the number of a lock that is gone is another file.
    let reused = "for i in 1 2 3 4 5; do (set -C; echo '[user]' > .git/config.lock) && rm .git/config.lock; \
        printf '[user]\\n\\temail = n%s\\n' $i > other && mv other .git/config && grep -q n$i .git/config || exit 1; done";
    let found = sh(&stage, reused);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    // Locks that are given up are forgotten.
    let many =
        sh(&stage, "for i in $(seq 1 200); do git config --unset no.such; done; git config user.email third");
    assert_eq!(many.status.code(), Some(0), "{}", many.stderr);
}

/// A work tree elsewhere: its repository is guarded as well, and what people do there works.
#[test]
fn the_repository_of_a_linked_work_tree_is_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    let (main, tree) = (stage.path("project/.git"), stage.path("elsewhere"));
    git(&stage, &stage.path("project"), &["worktree", "add", "-q", tree.to_str().unwrap()]);
    let inside = |script: &str| {
        let mut command = Backend::Bwrap.command(&stage, script);
        run_within(command.current_dir(&tree), DEADLINE).unwrap()
    };
    let main_path = main.display();
    for attack in [
        format!("echo x > {main_path}/commondir"),
        format!("echo x > {main_path}/hooks/pre-commit"),
        format!("echo x >> {main_path}/config"),
        format!("echo x > {main_path}/worktrees/elsewhere/config.worktree"),
        format!("echo ../../x > {main_path}/worktrees/elsewhere/commondir"),
        "git config core.fsmonitor x".to_owned(),
        "echo x > .git".to_owned(),
        "echo x > .envrc".to_owned(),
    ] {
        let found = inside(&attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
        assert!(found.stderr.contains("held back"), "{attack}: {}", found.stderr);
    }
    let works = inside(
        "git commit -q --allow-empty -m inside && git remote add o https://example.org/x && git branch x && git branch -D x",
    );
    assert_eq!(works.status.code(), Some(0), "{}", works.stderr);
}

/// Programs that a manifest names, and what a configuration of git names, are guarded by their paths.
#[test]
fn programs_that_are_named_are_guarded_by_path() {
    require!(Bwrap, Git);
    let stage = repository();
    let project = stage.path("project");
    git(&stage, &project, &["config", "core.hooksPath", "tools/hooks"]);
    git(&stage, &project, &["config", "core.fsmonitor", "tools/watch/run.sh"]);
    stage.write("project/scripts/token.sh", "#!/bin/sh\necho token\n");
    fs::set_permissions(project.join("scripts/token.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = project.join("scripts/token.sh");
    stage.write(
        "config/belljar/belljar.toml",
        format!(
            "[agents.a]\nharness = \"claude-code\"\n[agents.a.env]\nTOKEN = {{ command = [\"{}\"] }}\n",
            script.display()
        ),
    );
    for attack in [
        "ln -sT elsewhere tools",
        "mkdir -p tools/hooks && echo x > tools/hooks/pre-commit",
        "mkdir -p tools/watch && echo x > tools/watch/run.sh",
        "mkdir w && echo x > w/run.sh && rm -rf tools/watch && mkdir -p tools && mv w tools/watch",
        "echo x > scripts/token.sh",
        "echo x > other && mv other scripts/token.sh",
        "ln scripts/token.sh other-name",
    ] {
        let found = sh(&stage, attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
        assert!(found.stderr.contains("belljar: held back: "), "{attack}: {}", found.stderr);
    }
    assert!(!project.join("tools/hooks/pre-commit").exists() && !project.join("tools/watch/run.sh").exists());
    assert_eq!(fs::read_to_string(script).unwrap(), "#!/bin/sh\necho token\n");
}

/// What the user's own configuration of git names is executed in every project.
#[test]
fn programs_that_the_users_git_configuration_names_are_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    stage.write(
        "home/.gitconfig",
        "[core]\n\thooksPath = tools/hooks\n[includeIf \"gitdir:~/x/\"]\n\tpath = more\n",
    );
    stage.write("home/more", "[core]\n\tfsmonitor = tools/watch.sh\n[diff \"x\"]\n\ttextconv = tools/new\n");
    stage.write("project/tools/watch.sh", "true\n");
    fs::create_dir(stage.path("config/git")).unwrap();
    let included = format!("[include]\n\tpath = {}\n", stage.path("project/local.inc").display());
    stage.write("config/git/config", &included);
    git(&stage, &stage.path("project"), &["init", "-q", "part"]);
    for attack in [
        "mkdir -p part/tools/hooks && echo x > part/tools/hooks/pre-commit",
        "echo x > local.inc",
        "mkdir -p tools/hooks && echo x > tools/hooks/pre-commit",
        "mkdir h && echo x > h/pre-commit && mv h tools/hooks",
        "echo x >> tools/watch.sh",
        "rm tools/watch.sh && echo x > tools/watch.sh",
        "echo x > tools/new",
    ] {
        let found = sh(&stage, attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
    }
    assert_eq!(fs::read_to_string(stage.path("project/tools/watch.sh")).unwrap(), "true\n");
    assert!(
        !stage.path("project/tools/hooks/pre-commit").exists() && !stage.path("project/tools/new").exists()
    );
}

/// So is what the settings of an agent name.
#[test]
fn programs_that_an_agents_settings_name_are_guarded() {
    require!(Bwrap);
    let stage = Stage::new();
    let hook = r#"{"type": "command", "command": "python3 \"$CLAUDE_PROJECT_DIR/tools/stop.py\" --all"}"#;
    let status = r#"{"type": "command", "command": "tools/status.sh"}"#;
    let settings = format!(r#"{{"hooks": {{"Stop": [{{"hooks": [{hook}]}}]}}, "statusLine": {status}}}"#);
    stage.write("project/.claude/settings.json", &settings);
    for file in ["stop.py", "status.sh", "other.sh"] {
        stage.write(&format!("project/tools/{file}"), "true\n");
    }
    for attack in
        ["echo x >> tools/stop.py", "rm -f tools/status.sh && echo x > tools/status.sh", "mv tools t"]
    {
        let found = sh(&stage, attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
    }
    assert_eq!(sh(&stage, "echo x >> tools/other.sh").status.code(), Some(0));
}

/// Settings without power may still send the next push elsewhere.
#[test]
fn remotes_that_a_run_changes_are_reported() {
    require!(Bwrap, Git);
    let stage = repository();
    git(&stage, &stage.path("project"), &["remote", "add", "origin", "https://example.org/a"]);
    let quiet = sh(&stage, "git config user.name other && git branch -q side && git branch -q -u main side");
    assert!(quiet.status.success() && !quiet.stderr.contains("git configuration:"), "{}", quiet.stderr);
    let found = sh(
        &stage,
        "git remote set-url origin https://u:hidden@evil.example/x && git config remote.origin.pushUrl ssh://git@evil.example/y",
    );
    assert!(found.status.success(), "{}", found.stderr);
    for line in [
        "git configuration: remote.origin.url changed to https://[redacted]@evil.example/x",
        "git configuration: remote.origin.pushurl set to ssh://git@evil.example/y",
    ] {
        assert!(found.stderr.contains(line), "{}", found.stderr);
        assert!(stage.run(&["findings"]).stdout.contains(line));
    }
    assert!(!found.stderr.contains("hidden"), "{}", found.stderr);
}

/// A link on the way to a guarded place decides what is there.
#[test]
fn links_on_the_way_to_guarded_places_are_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    let project = stage.path("project");
    git(&stage, &project, &["config", "core.hooksPath", "current/hooks"]);
    stage.write("project/v1/hooks/README", "none yet");
    stage.write("project/v1/editor/notes", "none yet");
    symlink("current/editor", project.join(".vscode")).unwrap();
    let current = project.join("current");
    let make = "mkdir -p w/hooks w/editor && echo x > w/hooks/pre-commit && echo {} > w/editor/tasks.json";
    for attack in [
        "rm current && ln -s w current",
        "ln -s w other && rm current && mv other current",
        "ln -sfn w current",
        "rm current && mv w current",
        "rm current && mkdir -p current/hooks && cp w/hooks/pre-commit current/hooks/pre-commit",
        "echo x > current/hooks/pre-commit",
        "mv v1 v0 && mv w v1",
    ] {
        fs::remove_file(&current).ok();
        fs::remove_dir_all(&current).ok();
        symlink("v1", &current).unwrap();
        let found = sh(&stage, &format!("{make}; {attack}"));
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
        let planted =
            ["current/hooks/pre-commit", ".vscode/tasks.json"].map(|name| project.join(name).exists());
        assert_eq!(planted, [false; 2], "{attack}: {}", found.stderr);
        if project.join("v0").exists() {
            fs::remove_dir_all(project.join("v1")).ok();
            fs::rename(project.join("v0"), project.join("v1")).unwrap();
        }
    }
    // Other links stay what people make of them.
    let found = sh(&stage, "ln -s v1 latest && rm latest && ln -s w latest && echo x > latest/hooks/new");
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// In an overlay such a link needs confirmation, as the file that it leads to does.
#[test]
fn a_changed_link_on_the_way_to_hooks_needs_a_yes_in_an_overlay() {
    require!(Bwrap, Git);
    let stage = repository();
    let project = stage.path("project");
    git(&stage, &project, &["config", "core.hooksPath", "current/hooks"]);
    stage.write("project/v1/hooks/README", "none yet");
    symlink("v1", project.join("current")).unwrap();
    stage.write("config/belljar/belljar.toml", "[agents.a]\nworkspace = \"overlay\"\n");
    let script = "mkdir -p w/hooks && echo x > w/hooks/pre-commit && ln -sfn w current";
    let found = sh(&stage, script);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let diff = stage.run(&["diff", "--stat", "a"]);
    assert!(diff.stdout.contains("M current  ! "), "{}", diff.stdout);
}

/// Makes a tree by moving one under another until its paths are longer than a report may be, and a file of the class below.
const DEEP: &str = "import os
name, top = b'\\xff' * 250, os.open('node_modules', os.O_RDONLY)
def chain(path):
    for _ in range(14):
        path += b'/' + name
        os.mkdir(path, dir_fd=top)
    return path
bottom = chain(b'.')
open(os.open(bottom + b'/.envrc', os.O_CREAT | os.O_WRONLY, dir_fd=top), 'w').close()
for _ in range(14):
    os.rename(name, b'moved', src_dir_fd=top, dst_dir_fd=top)
    bottom = chain(b'.')
    os.rename(b'moved', bottom + b'/' + name, src_dir_fd=top, dst_dir_fd=top)
os.rename(name, b'out', src_dir_fd=top)
";

/// What is reported about the command is bounded, whatever the command does.
#[test]
fn a_path_longer_than_a_report_does_not_end_the_supervision() {
    require!(Bwrap, Python);
    let stage = Stage::new();
    stage.write("project/deep.py", DEEP);
    let found = sh(&stage, "mkdir node_modules; python3 deep.py; echo x > .envrc; echo alive");
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "alive\n"), "{}", found.stderr);
    assert!(found.stderr.contains("held back: move out/"), "{}", found.stderr);
    assert!(found.stderr.contains("held back: create .envrc"), "{}", found.stderr);
}

/// A second way to the same files is guarded like the first, also by the paths that a configuration names.
#[test]
fn a_mount_that_shows_the_project_again_is_guarded() {
    require!(Bwrap, Git);
    let stage = repository();
    let project = stage.path("project");
    git(&stage, &project, &["config", "core.hooksPath", "scripts/hooks"]);
    stage.write("project/scripts/hooks/README", "none yet");
    stage.write("project/.vscode/notes", "none yet");
    let here = project.display();
    let mounts =
        ["/again", "/scripts/scripts", "/git/.git", "/hooks/scripts/hooks", "/editor/.vscode"].map(|paths| {
            let (target, part) = paths[1..].split_once('/').unwrap_or((&paths[1..], ""));
            format!("{{ source = \"{here}/{part}\", target = \"/srv/{target}\", mode = \"rw\" }}")
        });
    let manifest = format!("[agents.a]\nmounts = [{}]\n", mounts.join(", "));
    stage.write("config/belljar/belljar.toml", manifest);
    for attack in [
        "echo x > /srv/again/scripts/hooks/pre-commit",
        "echo x > /srv/again/.envrc",
        "echo x > /srv/scripts/hooks/pre-commit",
        "rm -rf /srv/scripts/hooks; ln -s x /srv/scripts/hooks",
        "echo x > /srv/hooks/pre-commit",
        "echo x > /srv/git/hooks/pre-commit",
        "echo x >> /srv/git/config",
        "echo {} > /srv/editor/tasks.json",
    ] {
        let found = sh(&stage, attack);
        assert_ne!(found.status.code(), Some(0), "{attack}: {}", found.stderr);
        assert!(found.stderr.contains("held back"), "{attack}: {}", found.stderr);
    }
    let found = sh(
        &stage,
        "echo x > /srv/scripts/other && echo x > /srv/again/other && echo x > /srv/git/description",
    );
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// What builds fill is not guarded, and the report says what a link brings out of it.
#[test]
fn what_a_link_brings_out_of_build_output_is_reported() {
    require!(Bwrap, Git);
    let stage = repository();
    let found = sh(&stage, "mkdir -p target/web && echo x > target/web/.envrc && ln -s target/web web");
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let value = stage.json(&["findings", "--json"]);
    let text = value.to_string();
    assert!(text.contains("target/web/.envrc") && text.contains("guarded"), "{text}");
    // The next run knows the link.
    let found = sh(&stage, "echo y > target/web/.envrc");
    assert_ne!(found.status.code(), Some(0), "{}", found.stderr);
}

/// A second filter with a listener is refused by the kernel, and one that does not let itself be looked at writes nothing.
#[test]
fn the_command_cannot_take_the_place_of_the_guard() {
    require!(Bwrap, Python);
    let stage = Stage::new();
    let script = "python3 - <<'P'\nimport ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
        class P(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]\n\
        allow = (ctypes.c_uint64 * 1)(0x7fff000000000006)\nprog = P(1, ctypes.addressof(allow))\n\
        print(libc.syscall(317, 1, 8, ctypes.byref(prog)), ctypes.get_errno())\n\
        print(libc.prctl(4, 0))\n\
        try: open('x', 'w')\nexcept OSError as error: print(error.errno)\n\
        open('/var/tmp/x', 'w').close()\nP";
    let found = sh(&stage, script);
    assert_eq!(found.stdout, "-1 16\n0\n13\n", "{}", found.stderr);
    assert!(!stage.path("project/x").exists());
}
