//! A copy is the same tree, without what cannot be copied, or it is not there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use belljar_sandbox::{CopyError, SpecialKind, copy_tree};

use super::support::{link, listing, mode, put, superuser};

#[test]
fn modes_links_times_and_names_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    put(&from, "a/b/file", "content");
    put(&from, "tool", "#!");
    mode(&from.join("tool"), 0o4755);
    link(&from, "dangling", "/nowhere");
    link(&from, "directory", "a");
    fs::hard_link(from.join("tool"), from.join("a/tool")).unwrap();
    mode(&from.join("a/b"), 0o555);
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(Command::new("mkfifo").arg(from.join("pipe")).status().unwrap().success());
    let socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    let copied = copy_tree(&from, &to).unwrap();
    drop(socket);
    let mut skipped = copied.skipped;
    skipped.sort();
    assert_eq!(skipped, [("pipe".into(), SpecialKind::Fifo), ("socket".into(), SpecialKind::Socket)]);
    let mut expected = listing(&from);
    expected.retain(|line| !line.ends_with("special"));
    let expected: Vec<String> = expected.iter().map(|line| line.replace("tool 4755", "tool 755")).collect();
    assert_eq!(listing(&to), expected);
    let inode = |path: &str| fs::metadata(to.join(path)).unwrap().ino();
    assert_eq!(inode("tool"), inode("a/tool"));
    for path in ["sparse", "a/b", "a", ""] {
        let time = |root: &PathBuf| fs::metadata(root.join(path)).unwrap().modified().unwrap();
        assert_eq!(time(&from), time(&to), "{path}");
    }
    assert!(matches!(copy_tree(&from, &to), Err(CopyError::Make { .. })), "nothing is overwritten");
    mode(&from.join("a/b"), 0o755);
    mode(&to.join("a/b"), 0o755);
}

/// git tidies up whenever it likes: what vanishes meanwhile is left out.
#[test]
fn what_vanishes_while_it_is_copied_is_left_out() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    put(&from, "stays", "1");
    let busy = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 0..50 {
                    put(&from, &format!("comes/{number}/file"), "1");
                }
                fs::remove_dir_all(from.join("comes")).unwrap();
            }
        });
        let copies: Vec<_> =
            (0..100).map(|round| copy_tree(&from, &place.path().join(round.to_string()))).collect();
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        for copied in copies {
            copied.unwrap();
        }
    });
    assert_eq!(fs::read_to_string(place.path().join("99/stays")).unwrap(), "1");
}

#[test]
fn a_failure_names_the_entry_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    put(&from, "a/b/c", "1");
    let inside = from.join("a/copy");
    assert!(matches!(copy_tree(&from, &inside), Err(CopyError::IntoItself { .. })));
    assert!(!inside.exists());
    if !superuser() {
        put(&from, "a/closed", "1");
        mode(&from.join("a/closed"), 0);
        let to = place.path().join("to");
        match copy_tree(&from, &to) {
            Err(CopyError::Entry { path, .. }) => assert_eq!(path, PathBuf::from("a/closed")),
            other => panic!("{other:?}"),
        }
        assert!(!to.exists());
    }
}

/// A file system of one megabyte, in a mount namespace of this test's own.
#[test]
fn a_full_disk_names_the_entry_and_leaves_nothing() {
    belljar_testkit::require!(UserNs);
    if std::env::var_os("BELLJAR_TEST_SMALL_DISK").is_none() {
        let program = std::env::current_exe().unwrap();
        let script = "mount -t tmpfs -o size=1m none \"$2\" && exec \"$1\" --exact copying::a_full_disk_names_the_entry_and_leaves_nothing --nocapture";
        let place = tempfile::tempdir().unwrap();
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(program)
            .arg(place.path())
            .env("BELLJAR_TEST_SMALL_DISK", place.path())
            .output()
            .unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let disk = PathBuf::from(std::env::var_os("BELLJAR_TEST_SMALL_DISK").unwrap());
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    put(place.path(), "small", "1");
    put(place.path(), "d/large", &"x".repeat(2 << 20));
    match copy_tree(place.path(), &disk.join("to")) {
        Err(CopyError::Entry { path, cause }) => {
            assert_eq!((path, cause.raw_os_error()), (PathBuf::from("d/large"), 28));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}
