//! Nothing of the user's or the agent's work is lost when everything is killed at random moments: neither while a run writes
//! to its layer nor while that is applied.
//!
//! `BELLJAR_KILLS` sets how many rounds are made.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Numbers that are the same each time.
struct Moments(u64);

impl Moments {
    fn next(&mut self, below: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        below.mul_f64((self.0 >> 33) as f64 / f64::from(1_u32 << 31))
    }
}

pub fn start(stage: &Stage, args: &[&str], stdout: Stdio) -> Child {
    stage.command(args).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null()).spawn().unwrap()
}

pub fn kill_after(child: &mut Child, moment: Duration) {
    let until = Instant::now() + moment;
    while Instant::now() < until && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().ok();
    child.wait().unwrap();
}

/// What the agent does in a round, saying each thing when it is done.
fn script(round: usize) -> String {
    format!(
        "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x; \
         rm -f .git/*.lock .git/refs/heads/*.lock; \
         for n in 1 2 3 4 5 6; do echo {round}.$n >> log.txt; echo {round}.$n > file-{round}-$n; \
         git add log.txt file-{round}-$n && git commit -qm {round}.$n && echo {round}.$n; done"
    )
}

fn subjects(project: &Path) -> Vec<String> {
    git(project, &["log", "--format=%s"]).lines().map(str::to_owned).collect()
}

fn check(stage: &Stage, done: &[String], mine: &str, when: &str) {
    let project = stage.path("project");
    assert_eq!(fs::read_to_string(project.join("mine.txt")).unwrap(), mine, "{when}: the user's work");
    assert_eq!(fs::read_to_string(project.join("other.txt")).unwrap(), "other\n", "{when}");
    git(&project, &["fsck", "--strict"]);
    let subjects = subjects(&project);
    for one in done {
        assert!(subjects.contains(one), "{when}: the commit {one} is lost: {subjects:?}");
        let file = project.join(format!("file-{}", one.replace('.', "-")));
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{one}\n"), "{when}: {}", file.display());
    }
    let log = fs::read_to_string(project.join("log.txt")).unwrap_or_default();
    assert!(done.iter().all(|one| log.lines().any(|line| line == one)), "{when}: {log}");
    let left: Vec<_> = fs::read_dir(&project)
        .unwrap()
        .chain(fs::read_dir(project.join(".git")).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".belljar-unfinished-") || name.ends_with(".lock"))
        .collect();
    assert!(left.is_empty(), "{when}: {left:?}");
}

#[test]
fn no_work_is_lost_when_everything_is_killed() {
    require!(Bwrap, Git);
    let rounds = std::env::var("BELLJAR_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let stage = repository("overlay");
    let project = stage.path("project");
    let began = Instant::now();
    exec(&stage, &script(0));
    let whole_run = began.elapsed();
    let began = Instant::now();
    let first = stage.run(&["apply"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let whole_apply = began.elapsed();
    let (mut moments, mut done) = (Moments(5), Vec::new());
    for round in 1..=rounds {
        let mine = format!("mine in round {round}\n");
        fs::write(project.join("mine.txt"), &mine).unwrap();
        let said = stage.path("said");
        let script = script(round);
        let args = ["exec", "--yes", "a", "--", "sh", "-c", &script];
        let mut run = start(&stage, &args, fs::File::create(&said).unwrap().into());
        let moment = moments.next(whole_run.mul_f64(1.2));
        kill_after(&mut run, moment);
        let heads =
            (git(&project, &["rev-parse", "HEAD"]), git(&project, &["status", "--porcelain", "-uno"]));
        // Only whole lines: the last may have been cut.
        let text = fs::read_to_string(&said).unwrap();
        let said: Vec<String> = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
            .map(str::to_owned)
            .collect();
        let when = format!("round {round}, run killed after {moment:?}");
        check(&stage, &done, &mine, &when);
        done.extend(said);

        // The sandbox ends with its supervisor, but not in the same moment; the layer is free when it has.
        let moment = moments.next(whole_apply);
        let mut apply = start(&stage, &["apply"], Stdio::null());
        kill_after(&mut apply, moment);
        let when = format!("{when}, apply killed after {moment:?}");
        assert_eq!(fs::read_to_string(project.join("mine.txt")).unwrap(), mine, "{when}");
        // The next look undoes or finishes it: HEAD and files agree again.
        let looked = stage.run(&["diff", "--stat"]);
        assert_eq!(looked.status.code(), Some(0), "{when}: {looked:?}");
        let now = (git(&project, &["rev-parse", "HEAD"]), git(&project, &["status", "--porcelain", "-uno"]));
        let applied = stage.run(&["apply"]);
        assert_eq!(applied.status.code(), Some(0), "{when}: {applied:?}");
        check(&stage, &done, &mine, &when);
        let last = (git(&project, &["rev-parse", "HEAD"]), git(&project, &["status", "--porcelain", "-uno"]));
        assert!(now == heads || now == last, "{when}: {now:?} is neither {heads:?} nor {last:?}");
        assert_eq!(stage.run(&["diff"]).stdout, "", "{when}");
    }
    assert!(done.len() > rounds, "the runs got far enough to be worth something: {}", done.len());
}

/// A merge is there or it is not, in a commit and outside of one; the next apply has the same versions to merge.
#[test]
fn a_merge_that_is_killed_is_made_by_the_next_apply() {
    require!(Bwrap, Git);
    let (ours, both) = ("ONE\ntwo\nthree\nfour\n", "ONE\ntwo\nthree\nFOUR\n");
    let (mut moments, mut whole) = (Moments(11), Duration::from_millis(300));
    for round in 0..12 {
        let stage = repository("overlay");
        let project = stage.path("project");
        let text = || fs::read_to_string(project.join("text.txt")).unwrap();
        fs::write(project.join("text.txt"), ours.to_lowercase()).unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "-qm", "text"]);
        let commit = if round % 2 == 0 { "; git commit -qam agent" } else { "" };
        exec(&stage, &format!("sed -i s/four/FOUR/ text.txt; echo more >> other.txt{commit}"));
        fs::write(project.join("text.txt"), ours).unwrap();
        let moment = moments.next(whole);
        let mut apply = start(&stage, &["apply"], Stdio::null());
        kill_after(&mut apply, moment);
        assert!([ours, both].contains(&text().as_str()), "round {round}, {moment:?}: {}", text());
        assert_eq!(stage.run(&["diff", "--stat"]).status.code(), Some(0));
        assert!([ours, both].contains(&text().as_str()), "round {round}, {moment:?}: {}", text());
        let began = Instant::now();
        let done = stage.run(&["apply"]);
        whole = began.elapsed().max(Duration::from_millis(20));
        assert_eq!(
            (done.status.code(), text().as_str()),
            (Some(0), both),
            "round {round}, {moment:?}: {done:?}"
        );
        let status = git(&project, &["status", "--porcelain"]);
        let wanted = if round % 2 == 0 { "M text.txt" } else { "M other.txt\n M text.txt" };
        assert_eq!(status, wanted, "round {round}");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "round {round}");
    }
}

/// The user goes on with a file before anything has undone or finished the apply: what was written last stays.
#[test]
fn an_edit_after_a_kill_is_not_undone() {
    require!(Bwrap, Git);
    let (mut moments, mut whole) = (Moments(17), Duration::from_millis(150));
    for round in 0..16 {
        let stage = repository("overlay");
        let project = stage.path("project");
        let text = |name: &str| fs::read_to_string(project.join(name)).unwrap_or_default();
        let many = "for n in 1 2 3 4 5 6 7 8 9; do echo $n > many-$n; done";
        exec(
            &stage,
            &format!("echo agent >> file.txt; echo new > new.txt; {many}; git add .; git commit -qm agent"),
        );
        let moment = moments.next(whole);
        let began = Instant::now();
        let mut apply = start(&stage, &["apply"], Stdio::null());
        kill_after(&mut apply, moment);
        whole = whole.min(began.elapsed().max(Duration::from_millis(20)) * 2);
        for name in ["file.txt", "new.txt"] {
            fs::write(project.join(name), text(name) + "mine\n").unwrap();
        }
        let when = format!("round {round}, {moment:?}");
        let looked = stage.run(&["diff", "--stat"]);
        assert_eq!(looked.status.code(), Some(0), "{when}: {looked:?}");
        for name in ["file.txt", "new.txt"] {
            assert!(text(name).ends_with("mine\n"), "{when}: {name}: {} {looked:?}", text(name));
        }
        let applied = stage.run(&["apply"]);
        assert!(matches!(applied.status.code(), Some(0 | 1)), "{when}: {applied:?}");
        for name in ["file.txt", "new.txt"] {
            assert!(text(name).contains("mine\n"), "{when}: {name}: {} {applied:?}", text(name));
        }
        git(&project, &["fsck", "--strict", "--no-dangling"]);
    }
}

/// A disk that gets full in the middle of an apply: nothing of the commit shows, and nothing is lost.
#[test]
fn a_full_disk_holds_a_commit_back() {
    require!(Bwrap, Git, UserNs);
    let stage = repository("overlay");
    let project = stage.path("project");
    let belljar = env!("CARGO_BIN_EXE_belljar");
    let script = format!(
        "set -e; cd {project}; tar cf {stage}/all.tar .; cd /; \
         mount -t tmpfs -o size=6m,mode=755 tmpfs {project}; cd {project}; tar xf {stage}/all.tar; \
         {belljar} exec --yes a -- sh -c 'export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A \
         GIT_COMMITTER_EMAIL=a@x; head -c 1500000 /dev/urandom > big; echo two >> file.txt; git add .; git commit -qm second' \
         2> /dev/null; \
         head -c 3700000 /dev/zero > filler; \
         set +e; {belljar} apply; echo status $?; cat file.txt; git log --format=%s; test -e big && echo big; \
         ls -a | grep unfinished; git status --porcelain -uno; git fsck --strict --no-dangling; rm filler; \
         {belljar} apply; echo status $?; git log --format=%s; git status --porcelain -uno; git fsck --strict",
        project = project.display(),
        stage = stage.path("").display(),
    );
    let mut command = Command::new("unshare");
    let own = if is_superuser() { "-m" } else { "-Urm" };
    command.args([own, "sh", "-c", &script]).env_clear().envs(stage.environment());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    let found = stage.finish(&mut command);
    let text = &found.stdout;
    let (first, second) = text.split_once("status 1\n").unwrap_or_else(|| panic!("{found:?}"));
    assert!(!first.contains("applied"), "{found:?}");
    assert!(found.stderr.contains("No space left on device"), "{found:?}");
    let (held, after) = second.split_once("applied").unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(held, "one\nfirst\n", "{found:?}");
    assert!(after.ends_with("status 0\nsecond\nfirst\n"), "{found:?}");
}

fn is_superuser() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// The user commits and an editor saves while commits of the agent are applied: whatever git said is done stays done, and what
/// the editor saved last is what is there.
#[test]
fn an_apply_races_with_git_and_an_editor() {
    require!(Bwrap, Git);
    for round in 0..4 {
        let stage = repository("overlay");
        let project = stage.path("project");
        exec(&stage, &format!("echo agent >> file.txt; {}", script(round)));
        let committing = {
            let project = project.clone();
            std::thread::spawn(move || {
                let mut done = Vec::new();
                for number in 0..12 {
                    let subject = format!("mine {number}");
                    let mut command = Command::new("git");
                    command.args(["-c", "user.name=U", "-c", "user.email=u@x"]);
                    command.args(["commit", "-q", "--allow-empty", "-m", &subject]).current_dir(&project);
                    // It fails where a lock is held, and says so.
                    if command.output().unwrap().status.success() {
                        done.push(subject);
                    }
                }
                done
            })
        };
        let saving = {
            let project = project.clone();
            std::thread::spawn(move || {
                for number in 0..200 {
                    fs::write(project.join(".other.txt.new"), format!("saved {number}\n")).unwrap();
                    fs::rename(project.join(".other.txt.new"), project.join("other.txt")).unwrap();
                }
            })
        };
        let applied = stage.run(&["apply"]);
        let done = committing.join().unwrap();
        saving.join().unwrap();
        assert!(matches!(applied.status.code(), Some(0 | 1)), "{applied:?}");
        let subjects = subjects(&project);
        assert!(done.iter().all(|one| subjects.contains(one)), "{done:?} {subjects:?} {applied:?}");
        assert_eq!(fs::read_to_string(project.join("other.txt")).unwrap(), "saved 199\n");
        git(&project, &["fsck", "--strict", "--no-dangling"]);
        // Held back is not lost: what was not written is still kept.
        let again = stage.run(&["diff"]).stdout;
        let whole = (1..=6).map(|number| format!("{round}.{number}"));
        for one in whole {
            assert!(subjects.contains(&one) || again.contains(&format!(" {one}\n")), "{one}: {again}");
        }
    }
}
