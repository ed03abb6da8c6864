//! Groups that are written, stopped and interrupted.

use super::*;
use crate::workspace::overlay::journal::{HEAD, JOURNAL, JournalMark};
use belljar_sys::beneath::Time;
use std::fs;
use std::io::Write;

fn mark(inode: u64) -> JournalMark {
    let modified = Time { seconds: -1, nanoseconds: 5 };
    JournalMark { inode, mode: 0o644, owner: 1, group: 2, size: 3, modified }
}

#[test]
fn a_journal_is_read_whole_or_not_at_all() {
    let beside = || OsString::from(".belljar-unfinished-1.1.1.1");
    let step = |deed, path: &str| JournalStep {
        tree: 1,
        deed,
        forced: deed == JournalAct::New,
        beside: beside(),
        mark: (deed != JournalAct::Lock).then(|| mark(7)),
        path: path.into(),
    };
    let steps = JournalAct::ALL.map(|deed| step(deed, "a b\nc")).to_vec();
    let journal = Journal { state: State::Committing, steps };
    let bytes = journal.bytes();
    assert_eq!(Journal::parse(&bytes), Some(journal));
    for end in 0..bytes.len() {
        assert!(Journal::parse(&bytes[..end]).is_none(), "{end}");
    }
    let old = Journal::parse(b"belljar group 1\0committing\x000 X 7\0name\0path\0\0").unwrap();
    let [
        JournalStep {
            deed: JournalAct::Exchange,
            forced: true,
            mark: Some(JournalMark { inode: 7, .. }),
            ..
        },
    ] = &old.steps[..]
    else {
        panic!("{old:?}")
    };
}

/// A project with two files, and a layer that changes both.
fn ground() -> (tempfile::TempDir, Vec<Overlay>, Vec<Layers>, Vec<Step>) {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("project")).unwrap();
    let overlays = vec![Overlay::new(&at("project"), &at("layers"))];
    overlays[0].make_directories().unwrap();
    for name in ["a.txt", "b.txt"] {
        fs::write(at("project").join(name), "the user's\n").unwrap();
        fs::write(at("layers/upper").join(name), "the agent's\n").unwrap();
    }
    let layers = vec![overlays[0].open().unwrap()];
    let step = |name: &str| {
        let before = layers[0].lower.status(Path::new(name)).unwrap();
        Step { tree: 0, path: name.into(), act: Act::Place { before }, forced: false }
    };
    let steps = vec![step("a.txt"), step("b.txt")];
    (place, overlays, layers, steps)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// An editor saves one of the files after it was looked at: the other is put back as it was.
#[test]
fn a_file_that_is_saved_meanwhile_undoes_the_rest() {
    let (place, overlays, layers, steps) = ground();
    let project = place.path().join("project");
    let save = || {
        fs::write(project.join("new"), "saved meanwhile\n").unwrap();
        fs::rename(project.join("new"), project.join("b.txt")).unwrap();
        Ok(())
    };
    let locks = [(0, PathBuf::from("index.lock"))];
    let stopped = carry_out(&overlays, &layers, &locks, &steps, &save).err().unwrap();
    assert_eq!((stopped.path.as_path(), stopped.why), (Path::new("b.txt"), RefusedBecause::ChangedSince));
    assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "the user's\n");
    assert_eq!(fs::read_to_string(project.join("b.txt")).unwrap(), "saved meanwhile\n");
    assert_eq!(names(&project), ["a.txt", "b.txt"]);
    assert_eq!(
        names(&place.path().join("layers/upper")),
        ["a.txt", "b.txt"],
        "nothing of the agent's is lost"
    );
    assert!(!place.path().join("layers").join(JOURNAL).exists());
}

/// What was made of both versions is undone like the rest, and the user's version is not taken for unchanged afterwards.
#[test]
fn a_merged_file_is_undone_as_one_that_the_user_changed() {
    let (place, overlays, layers, mut steps) = ground();
    let project = place.path().join("project");
    let before = layers[0].lower.status(Path::new("a.txt")).unwrap().unwrap();
    let merged = Merged { content: b"both\n".to_vec(), mode: 0o640 };
    steps[0] = Step { act: Act::Merge { before, merged }, ..steps[0].clone() };
    let save = || {
        fs::write(project.join("new"), "saved meanwhile\n").unwrap();
        fs::rename(project.join("new"), project.join("b.txt")).unwrap();
        Ok(())
    };
    assert!(carry_out(&overlays, &layers, &[], &steps, &save).is_err());
    assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "the user's\n");
    assert!(!place.path().join("layers/restored").exists());
    assert_eq!(names(&project), ["a.txt", "b.txt"]);

    let before = layers[0].lower.status(Path::new("b.txt")).unwrap();
    steps[1] = Step { act: Act::Place { before }, ..steps[1].clone() };
    assert!(carry_out(&overlays, &layers, &[], &steps, &|| Ok(())).is_ok());
    assert_eq!(fs::read_to_string(project.join("a.txt")).unwrap(), "both\n");
    assert_eq!(layers[0].lower.status(Path::new("a.txt")).unwrap().unwrap().mode, 0o640);
    assert_eq!(names(&place.path().join("layers/upper")), Vec::<String>::new());
}

/// While a group is written, git can neither commit nor stage anything, and says so.
#[test]
fn git_waits_for_a_group() {
    belljar_testkit::require!(Git);
    let (place, overlays, layers, steps) = ground();
    let project = place.path().join("project");
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=U", "-c", "user.email=u@x"]).args(arguments).current_dir(&project);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").output().unwrap()
    };
    assert!(git(&["init", "-q"]).status.success() && git(&["add", "."]).status.success());
    let busy = || {
        let refused = git(&["commit", "-qm", "meanwhile"]);
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains("index.lock"), "{refused:?}");
        Ok(())
    };
    let locks = [".git/index.lock", ".git/HEAD.lock"].map(|path| (0, PathBuf::from(path)));
    assert!(carry_out(&overlays, &layers, &locks, &steps, &busy).is_ok());
    assert_eq!(fs::read_to_string(project.join("b.txt")).unwrap(), "the agent's\n");
    assert!(git(&["commit", "-qm", "after"]).status.success(), "the locks are gone");
    assert_eq!(names(&place.path().join("layers/upper")), Vec::<String>::new());
}

/// A project of which everything changes: a file is replaced, one is new in a new directory, directories go, and one
/// becomes a file.
fn various() -> (tempfile::TempDir, Vec<Overlay>, Vec<Layers>, Vec<Step>) {
    use std::os::unix::fs::PermissionsExt;
    let (place, overlays, layers, mut steps) = ground();
    let at = |name: &str| place.path().join(name);
    steps.truncate(1);
    fs::remove_file(at("layers/upper/b.txt")).unwrap();
    for path in ["project/gone/below", "project/turned", "layers/upper/new"] {
        fs::create_dir_all(at(path)).unwrap();
    }
    for path in ["project/gone/below/file", "project/turned/file"] {
        fs::write(at(path), "the user's\n").unwrap();
    }
    for path in ["layers/upper/new/file", "layers/upper/turned"] {
        fs::write(at(path), "the agent's\n").unwrap();
    }
    fs::set_permissions(at("project/gone/below"), PermissionsExt::from_mode(0o750)).unwrap();
    layers[0].upper.root().make_whiteout(OsStr::new("gone")).unwrap();
    let delete =
        |path: &str| Act::Delete { before: layers[0].lower.status(Path::new(path)).unwrap().unwrap() };
    let step = |path: &str, act| Step { tree: 0, path: path.into(), act, forced: false };
    let mut all = vec![
        step("turned/file", delete("turned/file")),
        step("turned", Act::RemoveDirectory),
        step("gone/below/file", delete("gone/below/file")),
        step("gone/below", Act::RemoveDirectory),
        step("gone", Act::RemoveDirectory),
        step("new", Act::MakeDirectory),
        step("new/file", Act::Place { before: None }),
        step("turned", Act::Place { before: None }),
    ];
    all.append(&mut steps);
    (place, overlays, layers, all)
}

/// All names below, with the permissions of directories and the content of files.
fn tree(top: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let (mut out, mut pending) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if path.is_dir() {
                out.push(format!("{name} {:o}", path.metadata().unwrap().permissions().mode() & 0o777));
                pending.push(path);
            } else {
                out.push(format!("{name} {}", fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    out.sort();
    out
}

/// Does the first steps as an apply that is killed then.
fn killed_after(overlays: &[Overlay], layers: &[Layers], steps: &[Step], count: usize) -> Vec<JournalStep> {
    let mut journal = Journal { state: State::Committing, steps: Vec::new() };
    journal.steps.extend(steps.iter().map(|step| stage(layers, step).unwrap()));
    journal.write(overlays).unwrap();
    let going = going(steps);
    for (step, noted) in steps.iter().zip(&mut journal.steps).take(count) {
        commit(layers, &going, step, noted).unwrap();
    }
    journal.steps
}

#[test]
fn an_apply_that_is_killed_while_it_writes_is_undone() {
    for count in 0..=9 {
        let (place, overlays, layers, steps) = various();
        let before = [tree(&place.path().join("project")), tree(&place.path().join("layers/upper"))];
        killed_after(&overlays, &layers, &steps, count);
        assert_eq!(recover(&overlays).unwrap(), Recovered::default());
        let after = [tree(&place.path().join("project")), tree(&place.path().join("layers/upper"))];
        assert_eq!(after, before, "{count}");
        assert!(!is_interrupted(&overlays[0]));
        assert!(carry_out(&overlays, &layers, &[], &steps, &|| Ok(())).is_ok(), "{count}");
    }
}

#[test]
fn an_apply_that_is_killed_when_all_is_written_is_finished() {
    use std::os::unix::fs::PermissionsExt;
    let (place, overlays, layers, steps) = various();
    let mode = PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path().join("layers/upper/new"), mode).unwrap();
    let noted = killed_after(&overlays, &layers, &steps, steps.len());
    Journal { state: State::Done, steps: noted }.write(&overlays).unwrap();
    recover(&overlays).unwrap();
    let wanted = [
        "a.txt the agent's\n",
        "b.txt the user's\n",
        "new 755",
        "new/file the agent's\n",
        "turned the agent's\n",
    ];
    assert_eq!(tree(&place.path().join("project")), wanted);
    assert_eq!(tree(&place.path().join("layers/upper")), Vec::<String>::new());
    assert!(!is_interrupted(&overlays[0]));
}

/// What the user writes after an apply was killed, and before it is undone.
#[test]
fn what_the_user_changes_after_a_kill_stays() {
    let (place, overlays, layers, steps) = various();
    let project = place.path().join("project");
    let append = |path: &str| {
        let mut file = fs::File::options().append(true).open(project.join(path)).unwrap();
        file.write_all(b"mine\n").unwrap();
    };
    killed_after(&overlays, &layers, &steps, steps.len());
    append("a.txt");
    append("new/file");
    fs::create_dir_all(project.join("gone/below")).unwrap();
    fs::write(project.join("gone/below/file"), "mine\n").unwrap();
    let Recovered { kept, changed, .. } = recover(&overlays).unwrap();
    let text = |path: &str| fs::read_to_string(project.join(path)).unwrap();
    assert_eq!(text("a.txt"), "the agent's\nmine\n");
    assert_eq!(text("a.txt.before-apply"), "the user's\n");
    assert_eq!(text("new/file"), "the agent's\nmine\n");
    assert_eq!(text("gone/below/file"), "mine\n");
    assert_eq!(text("turned/file"), "the user's\n");
    assert_eq!(changed, ["new/file", "new"].map(|path| project.join(path)));
    assert!(kept.contains(&project.join("a.txt.before-apply")), "{kept:?}");
    let original = kept.iter().find(|path| path.ends_with("file.before-apply")).unwrap();
    assert_eq!(fs::read_to_string(original).unwrap(), "the user's\n");
}

/// What the user deletes after an apply was killed, wherever that had got to, and before it is undone.
#[test]
fn what_the_user_deletes_after_a_kill_stays_deleted() {
    for count in 0..=9 {
        let (place, overlays, layers, steps) = various();
        let project = place.path().join("project");
        killed_after(&overlays, &layers, &steps, count);
        let (exchanged, made, moved) = (count == 9, count > 6, count > 2);
        for file in ["a.txt", "new/file"] {
            fs::remove_file(project.join(file)).ok();
        }
        fs::remove_dir_all(project.join("gone")).ok();
        let Recovered { kept, deleted, .. } = recover(&overlays).unwrap();
        assert!(!project.join("a.txt").exists() && !project.join("new/file").exists(), "{count}");
        let name = |path: &str| project.join(path);
        assert_eq!(deleted.contains(&name("a.txt")), exchanged, "{count}: {deleted:?}");
        assert_eq!(deleted.contains(&name("new/file")), made, "{count}: {deleted:?}");
        assert_eq!(kept.contains(&name("a.txt.before-apply")), exchanged, "{count}: {kept:?}");
        // What the apply had moved away was not the user's to delete.
        assert_eq!(project.join("gone/below/file").exists(), moved, "{count}");
        assert_eq!(project.join("gone").exists(), moved, "{count}: {deleted:?}");
    }
}

#[test]
fn an_undo_leaves_directories_of_the_user() {
    let (place, overlays, layers, steps) = various();
    let own = place.path().join("project/new");
    fs::create_dir(&own).unwrap();
    killed_after(&overlays, &layers, &steps, steps.len());
    recover(&overlays).unwrap();
    assert!(own.is_dir() && names(&own).is_empty());
}

/// Without the journal it is not known which version is the user's.
#[test]
fn a_journal_that_cannot_be_read_stops_everything() {
    let (place, overlays, layers, steps) = various();
    killed_after(&overlays, &layers, &steps, steps.len());
    let journal = place.path().join("layers").join(JOURNAL);
    let whole = fs::read(&journal).unwrap();
    let newer = [b"belljar group 99", &whole[HEAD.len()..]].concat();
    let before = tree(&place.path().join("project"));
    let kept = crate::workspace::overlay::Kept::new(overlays.clone());
    for content in [&newer[..], &whole[..whole.len() - 1], b""] {
        fs::write(&journal, content).unwrap();
        assert!(matches!(kept.settle(), Err(LayersError::Journal { .. })));
        assert_eq!(fs::read(&journal).unwrap(), content);
        assert_eq!(tree(&place.path().join("project")), before);
    }
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();
    assert!(matches!(kept.settle(), Err(LayersError::Journal { .. })));
    fs::remove_dir(&journal).unwrap();
    fs::write(&journal, whole).unwrap();
    kept.settle().unwrap();
    assert_eq!(fs::read_to_string(place.path().join("project/a.txt")).unwrap(), "the user's\n");
}

#[test]
fn what_cannot_be_undone_stays_in_the_journal() {
    let (place, overlays, layers, steps) = various();
    let mut noted = killed_after(&overlays, &layers, &steps, steps.len());
    // A name that no file system takes.
    let impossible = JournalStep { path: "x".repeat(300).into(), ..noted[0].clone() };
    noted.insert(3, impossible.clone());
    Journal { state: State::Committing, steps: noted }.write(&overlays).unwrap();
    assert!(matches!(recover(&overlays), Err(LayersError::Undo { .. })));
    assert_eq!(fs::read_to_string(place.path().join("project/gone/below/file")).unwrap(), "the user's\n");
    let left = Journal::read(&overlays).unwrap().unwrap();
    assert_eq!(left, Journal { state: State::Committing, steps: vec![impossible] });
    assert!(is_interrupted(&overlays[0]));
}
