//! Repositories of projects with an overlay or a copy: commits, branches, linked worktrees.

use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use std::fs;
use std::path::Path;
use std::process::Command;

/// git outside, as the user has it.
pub fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=User", "-c", "user.email=user@example.org"]).args(args);
    command
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    let found = command.output().unwrap();
    assert!(found.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

pub fn repository(mode: &str) -> Stage {
    let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
    stage.write("project/file.txt", "one\n");
    stage.write("project/other.txt", "other\n");
    let project = stage.path("project");
    git(&project, &["init", "-q", "-b", "main"]);
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "first"]);
    git(&project, &["branch", "old"]);
    stage
}

/// Inside, git needs a name for its commits.
const IDENTITY: &str =
    "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x; ";

pub fn exec(stage: &Stage, script: &str) -> Finished {
    exec_in(stage, &stage.path("project"), script)
}

fn exec_in(stage: &Stage, directory: &Path, script: &str) -> Finished {
    let script = format!("set -e; {IDENTITY}{script}");
    let mut command = stage.command(&["exec", "--yes", "a", "--", "sh", "-c", &script]);
    let found = stage.finish(command.current_dir(directory));
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    found
}

/// Pipes and sockets are never applied, and are shown.
#[test]
fn special_files_are_shown() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        exec(&stage, "mkfifo d.pipe; echo a > a");
        let page = stage.run(&["diff", "--stat"]).stdout;
        assert_eq!(page, "A a\nA d.pipe  ! neither a file nor a directory; it is never applied\n", "{mode}");
        let done = stage.run(&["apply"]);
        assert!(!stage.path("project/d.pipe").exists() && stage.path("project/a").exists(), "{done:?}");
    }
}

#[test]
fn commits_are_listed_as_commits_and_written_with_their_files() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        let script = "echo two >> file.txt; git commit -qam second; git checkout -qb feature; echo n > new.txt; \
                      git add new.txt; git commit -qm third; git branch -qD old; echo loose > untracked.txt";
        let end = exec(&stage, script).stderr;
        assert!(
            end.contains("3 changed files, 2 commits on feature, 1 commit on main, 2 refs moved kept in "),
            "{end}"
        );
        assert_eq!(git(&project, &["log", "--format=%s", "main"]), "first");
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "main\nold");

        let page = stage.run(&["diff"]).stdout;
        assert!(!page.contains("objects"), "{page}");
        for part in [
            "feature: created at ",
            "2 new commits\n",
            " third\n",
            " second\n",
            "old: deleted, was at ",
            "HEAD: main -> feature",
        ] {
            assert!(page.contains(part), "{mode}: {part}\n{page}");
        }
        let json = stage.json(&["diff", "--json"]);
        let refs = json["data"]["repository"]["refs"].as_array().unwrap();
        let feature = refs.iter().find(|one| one["name"] == "refs/heads/feature").unwrap();
        assert_eq!(
            (&feature["commit_count"], &feature["commits"][0]["subject"]),
            (&2.into(), &"third".into())
        );

        let dry = stage.run(&["apply", "--dry-run"]);
        assert_eq!(dry.status.code(), Some(0), "{}", dry.stderr);
        assert!(dry.stdout.contains("would apply file.txt\n"), "{}", dry.stdout);
        assert_eq!(git(&project, &["status", "--porcelain", "--untracked-files=no"]), "");

        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("applied feature: created at "), "{}", done.stdout);
        assert_eq!(git(&project, &["log", "--format=%s"]), "third\nsecond\nfirst");
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "feature\nmain");
        assert_eq!(git(&project, &["status", "--porcelain"]), "?? untracked.txt");
        git(&project, &["fsck", "--strict"]);
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
        assert!(!stage.run(&["instances"]).stdout.contains("changes kept"), "{mode}");
    }
}

/// A file that the user changed, a lock that git holds, a branch that moved: nothing of the commit is written.
#[test]
fn a_commit_is_written_whole_or_not_at_all() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo two >> file.txt; git commit -qam second; echo free > free.txt");
    let before = || (git(&project, &["rev-parse", "HEAD"]), fs::read(project.join(".git/index")).unwrap());
    let held = before();

    fs::write(project.join("file.txt"), "mine\n").unwrap();
    let conflict = stage.run(&["apply"]);
    assert_eq!(conflict.status.code(), Some(1), "{}", conflict.stderr);
    assert_eq!(conflict.stdout, "applied free.txt\n", "what is in no commit is written");
    assert!(
        conflict.stderr.contains("not applied: file.txt: the project's own file has changed"),
        "{}",
        conflict.stderr
    );
    assert!(
        conflict.stderr.contains("not applied: .git: commits, index and files go together"),
        "{}",
        conflict.stderr
    );
    assert_eq!(before(), held);
    assert_eq!(fs::read_to_string(project.join("file.txt")).unwrap(), "mine\n");

    let ours = stage.run(&["apply", "--take", "ours", "--", "file.txt"]);
    assert_eq!(
        (ours.status.code(), ours.stdout.as_str()),
        (Some(0), "kept your file.txt\n"),
        "{}",
        ours.stderr
    );
    // An editor that asks git for the state has it write the index anew; it means the same.
    git(&project, &["status"]);
    fs::write(project.join(".git/index.lock"), "").unwrap();
    let locked = stage.run(&["apply"]);
    assert_eq!(locked.status.code(), Some(1));
    assert!(locked.stderr.contains("git has it locked"), "{}", locked.stderr);
    assert!(project.join(".git/index.lock").exists(), "the lock is git's");
    fs::remove_file(project.join(".git/index.lock")).unwrap();
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "second\nfirst");
    assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "M file.txt", "the user's own version");
    assert!(!project.join(".git/index.lock").exists() && !project.join(".git/HEAD.lock").exists());

    exec(&stage, "git commit -q --allow-empty -m third");
    git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    let moved = stage.run(&["apply"]);
    assert_eq!(moved.status.code(), Some(1), "{}", moved.stdout);
    assert_eq!(git(&project, &["log", "--format=%s", "-1"]), "mine");
}

#[test]
fn the_repository_of_a_linked_worktree_is_out_of_reach() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let (project, tree) = (stage.path("project"), stage.path("tree"));
        git(&project, &["worktree", "add", "-q", "-b", "work", tree.to_str().unwrap()]);
        fs::copy(project.join("belljar.toml"), tree.join("belljar.toml")).unwrap();
        let script = "git branch -qD old; common=$(git rev-parse --git-common-dir); mkdir $common/x; \
                      printf '[core]\\n fsmonitor = false\\n' > $common/x/config; echo x > $common/commondir; \
                      rm $common/commondir; echo two >> file.txt; git commit -qam second; \
                      echo x > $common/commondir";
        let end = exec_in(&stage, &tree, script).stderr;
        assert!(end.contains("1 commit on work"), "{end}");
        assert!(!project.join(".git/commondir").exists() && !project.join(".git/x").exists());
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "main\nold\nwork");
        assert_eq!(git(&tree, &["log", "--format=%s"]), "first");
        let run = |args: &[&str]| stage.finish(stage.command(args).current_dir(&tree));
        let page = run(&["diff", "a"]).stdout;
        assert!(page.contains("work: ") && page.contains(" second\n"), "{page}");
        let planted = format!("A {}  ! git reads", project.join(".git/commondir").display());
        assert!(page.contains(&planted), "{page}");
        let done = run(&["apply", "a"]);
        assert_eq!(done.status.code(), Some(1), "{}", done.stdout);
        assert!(done.stderr.contains("commondir: needs your confirmation"), "{}", done.stderr);
        assert!(!project.join(".git/commondir").exists());
        assert_eq!(git(&tree, &["log", "--format=%s"]), "second\nfirst");
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "main\nwork");
        assert_eq!(git(&tree, &["status", "--porcelain", "-uno"]), "");
        git(&project, &["fsck", "--strict"]);
    }
}

/// A commit made without a work tree holds a file that the user's machine would execute.
#[test]
fn what_commits_carry_is_reported_and_asked_for() {
    require!(Bwrap, Git);
    const PLANT: &str = "blob=$(echo evil | git hash-object -w --stdin); \
        GIT_INDEX_FILE=/tmp/i git read-tree HEAD; \
        GIT_INDEX_FILE=/tmp/i git update-index --add --cacheinfo 100644,$blob,.envrc; \
        tree=$(GIT_INDEX_FILE=/tmp/i git write-tree); \
        commit=$(git commit-tree -p HEAD -m harmless $tree); back=$(git commit-tree -p $commit -m back HEAD^{tree}); \
        git update-ref refs/heads/planted $back";
    for mode in ["direct", "overlay", "copy"] {
        let stage = repository(mode);
        let end = exec(&stage, PLANT).stderr;
        assert!(end.contains(".envrc") && end.contains("a commit on `planted` changes it"), "{mode}: {end}");
        if mode == "direct" {
            continue;
        }
        let asked = stage.run(&["apply"]);
        assert_eq!(asked.status.code(), Some(1), "{}", asked.stdout);
        assert!(
            asked
                .stderr
                .contains("not applied: refs/heads/planted: needs your confirmation: changes .envrc in "),
            "{}",
            asked.stderr
        );
        assert_eq!(git(&stage.path("project"), &["branch", "--format=%(refname:short)"]), "main\nold");
        let allowed = stage.run(&["apply", "--allow", "refs/heads/planted"]);
        assert_eq!(allowed.status.code(), Some(0), "{}", allowed.stderr);
        assert_eq!(git(&stage.path("project"), &["log", "-1", "--format=%s", "planted"]), "back");
    }
}

/// However many branches there are, the end of a run stays readable.
#[test]
fn many_branches_do_not_bury_the_report() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let script = "git commit -q --allow-empty -m x; long=$(printf 'b%.0s' $(seq 150)); \
                  for n in $(seq 200); do git branch $long-$n; done; ln -s /etc out";
    let end = exec(&stage, script).stderr;
    assert!(end.contains("commits on 198 more branches"), "{end}");
    assert!(end.len() < 1500, "{} bytes: {end}", end.len());
}

/// Objects that do not hold what their names say would give another content to commits that the user has.
#[test]
fn objects_that_lie_about_their_names_are_held_back() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    let script = "echo two >> file.txt; git commit -qam second; \
        real=$(git rev-parse HEAD); fake=$(echo $real | tr 0123456789abcdef 123456789abcdef0); \
        dir=$(echo $fake | cut -c1-2); mkdir -p .git/objects/$dir; \
        cp .git/objects/$(echo $real | cut -c1-2)/$(echo $real | cut -c3-) .git/objects/$dir/$(echo $fake | cut -c3-)";
    exec(&stage, script);
    let held = stage.run(&["apply"]);
    assert_eq!(held.status.code(), Some(1), "{}", held.stdout);
    assert!(held.stderr.contains("does not hold the object that its name says"), "{}", held.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "first");
    git(&project, &["fsck", "--strict"]);
}

/// Packs that git makes inside are looked through and written; nothing that the user has is deleted.
#[test]
fn packed_commits_are_read_and_written() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    let text: String = (0..3000).map(|line| format!("line {line}\n")).collect();
    stage.write("project/long.txt", &text);
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "long"]);
    git(&project, &["gc", "-q"]);
    let loose = git(&project, &["count-objects"]);
    let script = "for n in 1 2 3; do echo $n >> long.txt; git commit -qam change-$n; done; git gc -q; git pack-refs --all";
    exec(&stage, script);
    let page = stage.run(&["diff"]).stdout;
    assert!(
        page.contains("main: ") && page.contains("3 new commits") && page.contains(" change-2\n"),
        "{page}"
    );
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "change-3\nchange-2\nchange-1\nlong\nfirst");
    assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "");
    assert_eq!(git(&project, &["count-objects"]), loose);
    git(&project, &["fsck", "--strict"]);
}

/// Who commits, and what is ignored, is known inside; nothing else of the user's configuration is.
#[test]
fn commits_inside_have_the_users_name() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    stage.write(
        "home/.gitconfig",
        "[user]\n\tname = Ada L\n\temail = ada@example.org\n\tsigningKey = KEY\n[credential]\n\thelper = !steal\n\
         [core]\n\texcludesFile = ~/mine\n[init]\n\tdefaultBranch = trunk\n",
    );
    stage.write("home/mine", "*.secret\n");
    stage.write("project/x.secret", "x");
    let run = |script: &str| {
        let found = stage.run(&["exec", "--yes", "a", "--", "sh", "-c", script]);
        (found.status.code(), found.stdout + &found.stderr)
    };
    let (status, text) =
        run("git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'; git status --short; \
                              git init -q /tmp/r && git -C /tmp/r symbolic-ref HEAD; git config -l --global");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("Ada L <ada@example.org>\n") && text.contains("refs/heads/trunk\n"), "{text}");
    assert!(!text.contains("x.secret") && !text.contains("KEY") && !text.contains("steal"), "{text}");
    let plan = stage.run(&["plan", "a"]).stdout;
    assert!(plan.contains("git's user.name, user.email"), "{plan}");
    stage.write("project/belljar.toml", "[agents.a]\nworkspace = \"overlay\"\ngit = { identity = false }\n");
    assert!(
        run("git config -l --global").1.contains("fatal") || !run("git config -l --global").1.contains("Ada")
    );
    stage.write(
        "project/belljar.toml",
        "[agents.a]\nworkspace = \"overlay\"\ngit = { identity = false, name = \"Bot\", email = \"bot@x\" }\n",
    );
    let (status, text) = run("git commit -q --allow-empty -m y && git log -1 --format='%an <%ae>'");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("Bot <bot@x>\n"), "{text}");
}

/// Where the user's own configuration is mounted, no file is made in it.
#[test]
fn a_mounted_configuration_of_git_is_not_written_to() {
    require!(Bwrap);
    let stage = Stage::with(
        "[agents.a]\nmounts = [{ source = \"~/.config\", target = \"/home/agent/.config\", mode = \"rw\" }]\n",
    );
    stage.write("home/.gitconfig", "[user]\n\tname = Ada\n");
    stage.write("home/.config/git/config", "[alias]\n\tx = status\n");
    let found = stage.run(&["exec", "--yes", "a", "--", "cat", "/home/agent/.config/git/config"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), "[alias]\n\tx = status\n"),
        "{}",
        found.stderr
    );
    assert_eq!(fs::read_to_string(stage.path("home/.config/git/config")).unwrap(), "[alias]\n\tx = status\n");
    assert!(!stage.path("home/.config/git/ignore").exists());
}

/// Directories that git empties: of branches, of tracked files, and such that become files.
#[test]
fn directories_that_a_commit_empties_are_removed() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        for path in ["gone/below/a", "moved/a", "turned/below/a", "mixed/tracked"] {
            stage.write(&format!("project/{path}"), "text\n");
        }
        git(&project, &["add", "."]);
        git(&project, &["commit", "-qm", "directories"]);
        stage.write("project/mixed/untracked", "text\n");
        git(&project, &["branch", "feature/foo"]);
        git(&project, &["branch", "x/y"]);
        exec(
            &stage,
            "git rm -qr gone turned; mv moved elsewhere; echo file > turned; rm -r mixed; git add -A; \
             git commit -qm agent; git branch -qD feature/foo; git branch -qD x/y; git branch x",
        );
        let dry = stage.run(&["apply", "--dry-run"]);
        assert_eq!(dry.status.code(), Some(0), "{mode}: {dry:?}");
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        assert_eq!(done.stdout.replace("applied ", "would apply "), dry.stdout, "{mode}");
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "main\nold\nx", "{mode}");
        assert_eq!(git(&project, &["status", "--porcelain"]), "", "{mode}");
        for path in ["gone", "moved", "mixed"] {
            assert!(!project.join(path).exists(), "{mode}: {path}");
        }
        assert_eq!(fs::read_to_string(project.join("turned")).unwrap(), "file\n");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
        git(&project, &["fsck", "--strict"]);
    }
}

/// Something of the user's in a directory that a commit empties: it stays there, the rest goes.
#[test]
fn a_directory_that_the_user_writes_to_stays() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    stage.write("project/gone/a", "text\n");
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "directory"]);
    exec(&stage, "git rm -qr gone; git commit -qm agent");
    stage.write("project/gone/mine", "mine\n");
    let dry = stage.run(&["apply", "--dry-run"]);
    let done = stage.run(&["apply"]);
    assert_eq!((dry.status.code(), done.status.code()), (Some(1), Some(1)), "{dry:?} {done:?}");
    assert_eq!(done.stdout.replace("applied ", "would apply "), dry.stdout);
    assert_eq!(fs::read_to_string(project.join("gone/mine")).unwrap(), "mine\n");
    assert!(!project.join("gone/a").exists());
    assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "agent");
}

/// What a directory brings with it keeps its times; a commit does not overwrite it.
#[test]
fn a_commit_does_not_overwrite_a_directory_that_was_moved_into_place() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        stage.write("project/spare/f", "precious\n");
        stage.write("project/alternative/f", "alternative\n");
        stage.write("project/u/f", "u\n");
        git(&project, &["add", "u"]);
        git(&project, &["commit", "-qm", "u"]);
        exec(&stage, "mkdir src; echo agent | tee src/f > u/f; git add src u; git commit -qm agent");
        let mv = |from: &str, to: &str| fs::rename(project.join(from), project.join(to)).unwrap();
        mv("spare", "src");
        mv("u", "u.before");
        mv("alternative", "u");
        for directory in ["src", "u"] {
            fs::write(project.join(directory).join("scratch"), "").unwrap();
            fs::remove_file(project.join(directory).join("scratch")).unwrap();
        }
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(1), "{mode}: {done:?}");
        assert_eq!(fs::read_to_string(project.join("src/f")).unwrap(), "precious\n", "{mode}: {done:?}");
        assert_eq!(fs::read_to_string(project.join("u/f")).unwrap(), "alternative\n", "{mode}: {done:?}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "u");
    }
}
