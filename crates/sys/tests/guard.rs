//! Calls that wait for an answer, and the Landlock layer behind them. Both concern one thread, so each test has one of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

use belljar_sys::fds::OnExec;
use belljar_sys::seccomp::notify::{self, Call, NotifyListener, NotifyResponse};
use belljar_sys::seccomp::{Filter, calls, entries, guard_entries};
use belljar_sys::{Errno, landlock, privs};

/// Runs `work` in a thread behind the filter, and `answer` for each call that it makes.
fn guarded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    mut answer: impl FnMut(&NotifyListener, &Call),
) -> T {
    let (give, take) = channel();
    let thread = thread::spawn(move || {
        privs::no_new_privs().unwrap();
        give.send(Filter::guard().unwrap().install_listener().unwrap()).unwrap();
        work()
    });
    let listener = take.recv().unwrap();
    loop {
        match listener.receive() {
            Ok(call) => answer(&listener, &call),
            Err(Errno::NOENT) => {}
            Err(_no_caller_left) => break,
        }
        if thread.is_finished() {
            break;
        }
    }
    thread.join().unwrap()
}

fn path(call: &Call) -> PathBuf {
    let address = if call.number == calls::OPENAT { call.arguments[1] } else { call.arguments[0] };
    PathBuf::from(String::from_utf8(notify::read_path(call.thread, address).unwrap()).unwrap())
}

#[test]
fn a_call_is_answered_carried_out_or_let_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["refused", "given", "continued"].map(|name| directory.path().join(name));
    let [refused, given, continued] = names.clone();
    let other = directory.path().join("other");
    let mut number = 0;
    let found = guarded(
        move || names.map(|name| File::create(name).map(|mut file| file.write_all(b"x"))),
        |listener, call| {
            assert!(listener.is_waiting(call));
            number += 1;
            match number {
                1 => {
                    assert_eq!(path(call), refused);
                    listener.answer(call, NotifyResponse::Error(Errno::ROFS)).unwrap();
                }
                2 => {
                    assert_eq!(path(call), given);
                    let file = File::create(&other).unwrap();
                    listener.answer_with(call, file.as_fd(), OnExec::Close).unwrap();
                    assert!(!listener.is_waiting(call));
                }
                _ => {
                    // Before the answer: the thread may be gone after it.
                    assert_eq!(path(call), continued);
                    listener.answer(call, NotifyResponse::Continue).unwrap();
                }
            }
        },
    );
    let [refused_with, given_with, continued_with] = found;
    assert_eq!(refused_with.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    given_with.unwrap().unwrap();
    continued_with.unwrap().unwrap();
    assert!(!refused.exists() && !given.exists() && continued.exists());
    let mut text = String::new();
    File::open(other).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}

/// Without a listener, calls that the filter hands on fail; others go on.
#[test]
fn nothing_is_made_once_the_listener_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().to_owned();
    std::fs::write(top.join("old"), "old").unwrap();
    let (give, take) = channel();
    let (gone, is_gone) = channel();
    let thread = thread::spawn(move || {
        privs::no_new_privs().unwrap();
        give.send(Filter::guard().unwrap().install_listener().unwrap()).unwrap();
        is_gone.recv().unwrap();
        let code = |done: io::Result<()>| done.err().and_then(|error| error.raw_os_error());
        let made = [
            code(File::create(top.join("new")).map(drop)),
            code(std::fs::create_dir(top.join("d"))),
            code(std::os::unix::fs::symlink("x", top.join("l"))),
            code(std::fs::rename(top.join("old"), top.join("x"))),
            code(std::fs::hard_link(top.join("old"), top.join("h"))),
        ];
        (made, std::fs::read_to_string(top.join("old")).unwrap())
    });
    drop(take.recv().unwrap());
    gone.send(()).unwrap();
    let (made, read) = thread.join().unwrap();
    assert_eq!(made, [Some(Errno::NOSYS.raw_os_error()); 5]);
    assert_eq!(read, "old");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn unmapped_memory_and_unterminated_paths_are_reported() {
    let own = rustix::thread::gettid().as_raw_pid();
    assert_eq!(notify::read_path(own, 8), Err(Errno::FAULT));
    let long = vec![b'a'; 8192];
    assert_eq!(notify::read_path(own, long.as_ptr() as u64), Err(Errno::NAMETOOLONG));
    assert_eq!(notify::read_path(own, c"some/path".as_ptr() as u64).unwrap(), b"some/path");
    assert_eq!(notify::read_path(own, c"".as_ptr() as u64).unwrap(), b"");
}

#[test]
fn openat2_is_refused_to_the_command_and_not_to_the_guard() {
    let openat2 = |entry: &belljar_sys::seccomp::Entry| entry.call == "openat2";
    assert!(entries().any(openat2) && guard_entries().any(openat2));
    let with = Filter::from_entries(entries()).unwrap().to_bytes();
    assert_ne!(Filter::with_a_guard(entries()).unwrap().to_bytes(), with);
}

/// Makes a character device that stands for nothing, as anybody may.
fn whiteout(path: &Path) -> io::Result<()> {
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::RWXU);
    Ok(rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0)?)
}

#[test]
fn nothing_is_made_but_where_it_is_granted() {
    assert!(landlock::kernel_abi() >= landlock::MAKING_SINCE, "the lane needs a kernel with Landlock");
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().canonicalize().unwrap();
    for name in ["project", "beside", "beside/deep"] {
        std::fs::create_dir(top.join(name)).unwrap();
    }
    std::fs::write(top.join("project/old"), "old").unwrap();
    let project = top.join("project");
    let places = landlock::beside(std::slice::from_ref(&project)).unwrap();
    assert!(places.contains(&top.join("beside")) && !places.contains(&project));
    assert!(!places.iter().any(|place| project.starts_with(place)));
    let tried = thread::spawn(move || {
        privs::no_new_privs().unwrap();
        landlock::restrict_making_to(&places).unwrap();
        let code = |done: io::Result<()>| done.err().and_then(|error| error.raw_os_error());
        let make = |path: &Path| code(File::create(path).map(drop));
        [
            make(&top.join("project/new")),
            make(&top.join("project/old")),
            make(&top.join("above")),
            code(std::fs::create_dir(top.join("project/d"))),
            code(std::os::unix::fs::symlink("x", top.join("project/l"))),
            code(std::fs::rename(top.join("project/old"), top.join("project/x"))),
            code(std::fs::hard_link(top.join("project/old"), top.join("project/h"))),
            code(whiteout(&top.join("project/refs"))),
            make(&top.join("beside/new")),
            code(std::fs::rename(top.join("beside/new"), top.join("beside/deep/new"))),
            code(File::open(top.join("project/old")).map(drop)),
        ]
    });
    let denied = Some(Errno::ACCESS.raw_os_error());
    let mut expected = [denied; 11];
    expected[8..].fill(None);
    assert_eq!(tried.join().unwrap(), expected);
}

#[test]
fn a_second_listener_is_refused() {
    let refused = guarded(
        || Filter::guard().unwrap().install_listener().is_err(),
        |listener, call| listener.answer(call, NotifyResponse::Continue).unwrap(),
    );
    assert!(refused);
    assert!(notify::is_available());
}
