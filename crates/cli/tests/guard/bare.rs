//! Git directories that are not called `.git`, as `.bare` beside its work trees: what makes them git directories can be taken
//! away inside, and must not come back around what was written meanwhile.

use super::{Backend, DEADLINE, KNOWN, git};
use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A clone without a work tree of its own, one that is linked, and a program that leaves a mark when the host runs it.
fn layout() -> Stage {
    let stage = Stage::new();
    let project = stage.path("project");
    stage.write("mark.sh", format!("#!/bin/sh\ntouch {}\n", stage.path("ran").display()));
    fs::set_permissions(stage.path("mark.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    git(&stage, &project, &["init", "-q", "-b", "main", "origin"]);
    stage.write("project/origin/file", "one\n");
    git(&stage, &project.join("origin"), &["add", "file"]);
    git(&stage, &project.join("origin"), &["commit", "-q", "-m", "first"]);
    git(&stage, &project, &["clone", "-q", "--bare", "origin", ".bare"]);
    stage.write("project/.git", "gitdir: ./.bare\n");
    git(&stage, &project, &["worktree", "add", "-q", "main"]);
    stage
}

/// What the scripts here have in common.
fn tools(stage: &Stage) -> String {
    let mark = stage.path("mark.sh");
    let mark = mark.display();
    format!(
        "{KNOWN}
        evil() {{ printf '[core]\\n\\tfsmonitor = {mark}\\n'; }}
        hook() {{ printf '#!/bin/sh\\nexec {mark}\\n' > $1 && chmod +x $1; }}
        socket() {{ python3 -c 'import os, socket, sys
for name in sys.argv[2:]:
    socket.socket(socket.AF_UNIX).bind(name)
    os.chmod(name, int(sys.argv[1], 8))' \"$@\"; }}
        onto() {{ python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' \"$@\"; }}
        exchange() {{ python3 -c 'import ctypes, sys
at, libc = -100, ctypes.CDLL(None)
sys.exit(libc.renameat2(at, sys.argv[1].encode(), at, sys.argv[2].encode(), 2) != 0)' \"$@\"; }}
        made() {{ git clone -q --bare origin made.git && git -C made.git worktree add -q ../tree; }}
        "
    )
}

/// Scripts that have the host run a program, and what the host does for that.
const ATTACKS: &[(&str, &str)] = &[
    // The repository of a work tree needs no `HEAD`, and sockets will do for the rest.
    (
        "mkdir away; cd .bare; mv HEAD objects refs ../away; evil > config; mv ../away/objects .; socket 755 refs",
        "git -C main status",
    ),
    (
        "cd .bare; mkdir away; mv HEAD objects refs away; socket 755 objects refs; evil > config",
        "git -C main status",
    ),
    (
        "cd .bare; mkdir away; mv HEAD objects refs away; socket 0 objects refs; evil > config; chmod 755 objects refs",
        "git -C main status",
    ),
    ("cd .bare; rm -r HEAD refs; evil > c; mv c config; socket 755 refs", "git -C main status"),
    ("cd .bare; rm -r HEAD refs; evil > c; rm config; ln c config; socket 755 refs", "git -C main status"),
    (
        "made; cd made.git; rm -r HEAD refs; mkdir -p hooks; hook hooks/post-index-change; socket 755 refs",
        "echo x > tree/file; git -C tree add file",
    ),
    (
        "made; cd made.git; rm -r HEAD refs hooks; mkdir h; hook h/post-index-change; mv h hooks; socket 755 refs",
        "echo x > tree/file; git -C tree add file",
    ),
    // The sign of the work tree is away for a while, too.
    (
        "made; cd made.git; mv worktrees/tree/HEAD h; rm -r HEAD refs; evil > config; socket 755 refs; \
         mv h worktrees/tree/HEAD",
        "git -C tree status",
    ),
    (
        "made; cd made.git; mv worktrees/tree/HEAD h; rm -r HEAD refs; evil > config; socket 755 refs; \
         cd worktrees/tree; chmod 0 ../..; echo 'ref: refs/heads/tree' > HEAD; chmod 755 ../..",
        "git -C tree status",
    ),
    (
        "made; cd made.git; rm worktrees/tree/commondir; rm -r HEAD refs; evil > config; socket 755 refs; \
         cd worktrees/tree; chmod 0 ../..; echo ../.. > commondir; chmod 755 ../..",
        "git -C tree status",
    ),
    (
        "made; mkdir -p other/refs; socket 755 other/objects; evil > other/config; cd made.git/worktrees/tree; \
         mv HEAD h; rm commondir; echo ../../../other > commondir; socket 755 HEAD; onto h HEAD",
        "git -C tree status",
    ),
    // A `HEAD` that is a socket is none, and one that takes its place is the first.
    (
        "cd .bare; mkdir away; mv HEAD objects refs away; evil > config; socket 755 HEAD; onto away/HEAD HEAD; \
         onto away/objects objects; onto away/refs refs",
        "git status",
    ),
    (
        "cd .bare; mkdir away; mv HEAD objects refs away; evil > config; socket 755 HEAD objects; \
         exchange away/HEAD HEAD; exchange away/objects objects; onto away/refs refs",
        "git status",
    ),
    (
        "mkdir new; cd new; evil > config; socket 755 HEAD objects refs; echo 'ref: refs/heads/x' > h; onto h HEAD",
        "git --git-dir=new --work-tree=main status",
    ),
    (
        "mkdir new; cd new; socket 755 HEAD objects refs; echo 'ref: refs/heads/x' > h; evil > config; ln -f h HEAD",
        "git --git-dir=new --work-tree=main status",
    ),
    // Parts that come together by the move of a directory.
    (
        "made; mv made.git old; mkdir made.git; evil > made.git/config; socket 755 made.git/objects made.git/refs; \
         mv old/worktrees made.git/worktrees",
        "git -C tree status",
    ),
    (
        "made; mkdir new; evil > new/config; socket 755 new/objects new/refs; mkdir new/worktrees; \
         onto made.git/worktrees/tree new/worktrees/tree; mv made.git old; mv new made.git",
        "git -C tree status",
    ),
    (
        "made; mkdir new; evil > new/config; socket 755 new/objects new/refs; mv made.git/worktrees/tree old; \
         rm -rf made.git/worktrees/tree; mv new made.git/worktrees/tree; \
         echo 'ref: refs/heads/tree' > made.git/worktrees/tree/HEAD",
        "git -C tree status",
    ),
    // A file `.git` that leads to where nothing was.
    (
        "mkdir later; evil > later/config; socket 755 later/objects later/refs; echo 'ref: refs/heads/x' > later/HEAD",
        "git -C lost status",
    ),
    // A `commondir` that git did not write.
    (
        "mv lib.git moved; mkdir lib.git new; evil > lib.git/config; socket 755 lib.git/objects lib.git/refs; \
         echo $PWD/new/.git > moved/worktrees/lib/gitdir; echo gitdir: $PWD/moved/worktrees/lib > new/.git",
        "git -C new status",
    ),
    ("cd odd/shared; rm -r refs HEAD; evil > config; socket 755 refs", "git -C odd status"),
    (
        "cd odd; mkdir new; cp -a shared/objects new; evil > new/config; socket 755 new/refs; mv shared old; mv new shared",
        "git -C odd status",
    ),
];

/// A layout with git directories that people made by hand.
fn with_oddities() -> Stage {
    let stage = layout();
    stage.write("project/lost/.git", "gitdir: ../later\n");
    stage.write("project/odd/.git", "gitdir: own\n");
    stage.write("project/odd/own/HEAD", "ref: refs/heads/main\n");
    stage.write("project/odd/own/commondir", "../shared\n");
    git(&stage, &stage.path("project/odd"), &["clone", "-q", "--bare", "../origin", "shared"]);
    // As libgit2 writes it.
    git(&stage, &stage.path("project"), &["clone", "-q", "--bare", "origin", "lib.git"]);
    git(&stage, &stage.path("project/lib.git"), &["worktree", "add", "-q", "../lib"]);
    let whole = format!("{}/\n", stage.path("project/lib.git").display());
    stage.write("project/lib.git/worktrees/lib/commondir", whole);
    stage
}

fn on_the_host(stage: &Stage, script: &str) -> Finished {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{} {script}", tools(stage))]).current_dir(stage.path("project"));
    command.env_clear().envs(stage.environment()).env("GIT_CONFIG_NOSYSTEM", "1");
    run_within(&mut command, DEADLINE).unwrap()
}

#[test]
fn what_was_written_while_signs_were_away_is_not_obeyed() {
    require!(Bwrap, Git, Python);
    attack_all(Backend::Bwrap);
}

#[test]
fn what_was_written_while_signs_were_away_is_not_obeyed_from_a_container() {
    require!(Podman, Git, Python);
    attack_all(Backend::Container);
}

fn attack_all(backend: Backend) {
    let mut through = Vec::new();
    for (attack, host) in ATTACKS {
        let stage = with_oddities();
        let found = backend.sh(&stage, &format!("{} {attack}", tools(&stage)));
        on_the_host(&stage, host);
        if stage.path("ran").exists() {
            through.push(format!("{attack}\n{}", found.stderr));
        }
    }
    assert!(through.is_empty(), "{}", through.join("\n"));
}

/// Each of the attacks works where nothing guards.
#[test]
fn signs_that_come_back_have_git_obey_what_is_there() {
    require!(Git, Python);
    for (attack, host) in ATTACKS {
        let stage = with_oddities();
        let made = on_the_host(&stage, attack);
        let found = on_the_host(&stage, host);
        assert!(stage.path("ran").exists(), "{attack}\n{}{}{}", made.stderr, found.stdout, found.stderr);
    }
}

/// What people do with work trees of a repository that is not called `.git`, and with directories that only look like one.
const WORKS: &[&str] = &[
    "git worktree add -q side && git -C side commit -q --allow-empty -m s && git worktree list",
    "git -C .bare worktree add -q ../trees/deep/third && git -C trees/deep/third status",
    "git -C main worktree add -q ../fourth && test \"$(git -C fourth rev-parse --git-common-dir)\" = \"$PWD/.bare\"",
    "echo two > main/file && git -C main commit -q -a -m two && git -C main push -q origin HEAD:topic",
    "git -C main fetch -q origin && git -C main fetch -q origin +refs/heads/*:refs/remotes/origin/*",
    "git -C main switch -q -c other && git -C .bare symbolic-ref HEAD refs/heads/other",
    "git -C .bare gc -q --prune=now && git -C main fsck --no-dangling && git -C main log --oneline",
    "git worktree move side moved && git -C moved status && git worktree remove --force fourth && git worktree prune",
    "git -C main remote add up https://example.org/x && git -C main branch -u main other",
    "git init -q --bare x.git && git -C x.git symbolic-ref HEAD refs/heads/y && rm -rf x.git",
    "git clone -q --bare origin y.git && git -C y.git worktree add -q ../ytree && git -C ytree commit -q --allow-empty -m y && mv y.git z.git && rm -rf ytree z.git",
    "git clone -q --mirror origin m.git && rm m.git/HEAD && echo 'ref: refs/heads/main' > m.git/HEAD && git -C m.git log --oneline && rm -rf m.git",
    "mkdir -p app/objects app/hooks && echo x > app/config && echo x > app/hooks/run",
    "mkdir -p app2/worktrees/a/b app2/refs && echo x > app2/config && echo x > app2/worktrees/a/commondir && echo x > app2/commondir",
    "mkdir app3 && cd app3 && socket 755 HEAD objects refs && echo x > config && mkdir hooks && echo x > hooks/run",
];

#[test]
fn what_people_do_with_bare_repositories_works() {
    require!(Bwrap, Git, Python);
    do_all(Backend::Bwrap);
}

#[test]
fn what_people_do_with_bare_repositories_works_in_a_container() {
    require!(Podman, Git, Python);
    do_all(Backend::Container);
}

fn do_all(backend: Backend) {
    let stage = layout();
    let lines: Vec<String> = WORKS.iter().map(|line| format!("{} {line}", tools(&stage))).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (found, statuses) = backend.each(&stage, &lines);
    for (line, status) in WORKS.iter().zip(statuses) {
        assert_eq!(status, 0, "{line}\n{}{}", found.stdout, found.stderr);
    }
    assert!(!found.stderr.contains("held back"), "{}", found.stderr);
    // The host goes on with what was made inside.
    let host = on_the_host(&stage, "git -C trees/deep/third log --oneline && git -C main status --short");
    assert!(host.status.success(), "{}", host.stderr);
}

/// Nothing obeys it yet, and the next who puts the parts together has to know.
#[test]
fn what_lies_in_a_git_directory_without_its_signs_is_reported() {
    require!(Bwrap, Git, Python);
    let stage = layout();
    git(&stage, &stage.path("project"), &["clone", "-q", "--bare", "origin", "plain.git"]);
    let script = "mkdir away && cd plain.git && mv HEAD objects refs ../away && evil > config";
    let found = Backend::Bwrap.sh(&stage, &format!("{} {script}", tools(&stage)));
    let value = stage.json(&["findings", "--json"]);
    let findings = value["data"]["items"].to_string();
    assert!(findings.contains("plain.git/config"), "{value}\n{}", found.stderr);
    assert!(found.stderr.contains("plain.git/config  changed; git runs what it names"), "{}", found.stderr);
}
