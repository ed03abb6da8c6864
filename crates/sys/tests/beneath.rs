//! Nothing below a directory leads out of it, each refusal with the way that is open as its control.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto, copy_user_attributes};
use belljar_sys::overlay::{OverlaySpec, OverlayStep, prepare};

struct Place {
    place: tempfile::TempDir,
    top: Directory,
}

/// `top/inside/file`, and `outside/file` beside it.
fn place() -> Place {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("top/inside")).unwrap();
    fs::create_dir(place.path().join("outside")).unwrap();
    fs::write(place.path().join("top/inside/file"), "in").unwrap();
    fs::write(place.path().join("outside/file"), "out").unwrap();
    let top = Directory::open(&place.path().join("top")).unwrap();
    Place { place, top }
}

fn error<T>(answer: Result<T, Errno>) -> Option<Errno> {
    answer.err()
}

#[test]
fn directories_are_reached_by_plain_names_only() {
    let Place { place, top } = place();
    let below = |name: &str| place.path().join("top").join(name);
    symlink("../outside", below("out")).unwrap();
    symlink("inside", below("in")).unwrap();
    symlink("/proc/self/root", below("magic")).unwrap();
    assert!(top.directory(Path::new("inside")).is_ok());
    assert!(top.passage(Path::new("")).is_ok());
    for path in ["out", "in", "magic", "in/x", "magic/etc"] {
        assert_eq!(error(top.directory(Path::new(path))), Some(Errno::LOOP), "{path}");
        assert_eq!(error(top.passage(Path::new(path))), Some(Errno::LOOP), "{path}");
    }
    for path in ["..", "inside/../..", "/", "/etc"] {
        assert_eq!(error(top.directory(Path::new(path))), Some(Errno::INVAL), "{path}");
    }
}

#[test]
fn entries_are_single_names() {
    let Place { place: _kept, top } = place();
    for name in ["", ".", "..", "inside/file", "../outside/file", "/etc/passwd"] {
        let name = OsStr::new(name);
        let answers = [
            error(top.status(name)),
            error(top.file(name)),
            error(top.create(name, 0o600)),
            error(top.remove(name)),
            error(top.set_mode(name, 0o777)),
            error(top.make_symlink(Path::new("x"), name)),
            error(top.rename(OsStr::new("inside"), &top, name, Onto::Anything)),
        ];
        assert_eq!(answers, [Some(Errno::INVAL); 7], "{name:?}");
    }
    assert_eq!(top.status(OsStr::new("inside")).unwrap().kind, InodeKind::Directory);
}

#[test]
fn files_are_not_opened_through_links_nor_waited_for() {
    let Place { place, top } = place();
    symlink("../outside/file", place.path().join("top/link")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path().join("top/pipe")).status().unwrap().success());
    assert_eq!(error(top.file(OsStr::new("link"))), Some(Errno::LOOP));
    assert_eq!(error(top.file(OsStr::new("pipe"))), Some(Errno::INVAL));
    assert_eq!(error(top.file(OsStr::new("inside"))), Some(Errno::INVAL));
    assert_eq!(error(top.create(OsStr::new("link"), 0o600)), Some(Errno::EXIST));
    assert_eq!(error(top.set_mode(OsStr::new("link"), 0)), Some(Errno::LOOP));
    let mut text = String::new();
    let inside = top.passage(Path::new("inside")).unwrap();
    inside.file(OsStr::new("file")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "in");
}

#[test]
fn paths_longer_than_the_kernel_takes_are_walked() {
    let Place { place: _kept, top } = place();
    let name = "n".repeat(250);
    let mut path = std::path::PathBuf::new();
    for _ in 0..50 {
        top.passage(&path).unwrap().make_directory(name.as_ref(), 0o755).unwrap();
        path.push(&name);
    }
    assert!(path.as_os_str().len() > 8192);
    assert!(top.directory(&path).is_ok());
}

/// Without privilege nothing is mounted, and the step is named.
#[test]
fn a_refused_mount_names_its_step() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for name in ["lower", "upper", "work"] {
        fs::create_dir(path(name)).unwrap();
    }
    let spec = OverlaySpec::new(&path("lower"), &path("upper"), &path("work"), &path("absent")).unwrap();
    let mut command = Command::new("true");
    let preparation = prepare(&mut command, vec![spec]).unwrap();
    assert!(command.spawn().is_err());
    // Where no namespace can be had, it ends a step earlier.
    assert!(matches!(preparation.failed_step(), Some(OverlayStep::Mount | OverlayStep::Namespaces)));
    assert_eq!(preparation.failed_step(), None, "reported once");
}

/// Those of an overlay say something about a layer, and nothing about a file.
#[test]
fn attributes_of_the_user_are_copied_and_others_are_not() {
    let place = tempfile::tempdir().unwrap();
    let files = ["from", "to"].map(|name| fs::File::create(place.path().join(name)).unwrap());
    let [from, to] = &files;
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(from, "user.note", b"mine", flags) == Err(Errno::OPNOTSUPP) {
        // There is nothing to copy, and the call succeeds.
        assert_eq!(copy_user_attributes(from.as_fd(), to.as_fd()), Ok(()));
        return;
    }
    rustix::fs::fsetxattr(from, "user.overlay.opaque", b"y", flags).unwrap();
    copy_user_attributes(from.as_fd(), to.as_fd()).unwrap();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::fgetxattr(to, "user.note", &mut value[..]), Ok(4));
    assert_eq!(rustix::fs::fgetxattr(to, "user.overlay.opaque", &mut value[..]), Err(Errno::NODATA));
}

#[test]
fn a_file_system_is_synced_through_a_directory_that_can_be_read() {
    let place = tempfile::tempdir().unwrap();
    let directory = Directory::open(place.path()).unwrap();
    assert_eq!(directory.sync_file_system(), Ok(()));
    assert_eq!(directory.passage(Path::new("")).unwrap().sync_file_system(), Err(Errno::BADF));
}
