//! Starting, signalling and reaping; signals as data; namespaces and mounts by doing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;

use belljar_sys::Errno;
use belljar_sys::mounts::{self, Copied, OverlaySupport};
use belljar_sys::process::{self, Ended, OwnedChild, Prepare, Target, in_child};
use belljar_sys::signal::Signals;
use belljar_sys::spawn::{ControllingTerminal, Program, SpawnError, SpawnStep, Stream};
use belljar_sys::userns::{self, Reason, Switches, Userns};
use rustix::process::{Pid, Signal};

fn strings(arguments: &[&str]) -> Vec<CString> {
    arguments.iter().map(|argument| CString::new(*argument).unwrap()).collect()
}

fn program<'a>(file: &'a CStr, arguments: &'a [CString]) -> Program<'a> {
    Program {
        file,
        arguments,
        environment: &[],
        directory: c"/",
        stdio: [Stream::Inherited; 3],
        keeps: &[],
        terminal: ControllingTerminal::Absent,
        limits: &[],
        umask: 0o022,
    }
}

fn output(program: &mut Program<'_>) -> String {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let pid =
        Program { stdio: [Stream::Inherited, Stream::From(writer.as_fd()), Stream::Inherited], ..*program }
            .spawn()
            .unwrap();
    drop(writer);
    let text = std::io::read_to_string(std::fs::File::from(reader)).unwrap();
    process::wait_for(pid).unwrap();
    text
}

#[test]
fn a_program_starts_with_clean_signals_in_its_own_session() {
    let script = "grep -E '^(SigBlk|SigIgn)' /proc/self/status; test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo leader";
    let arguments = strings(&["sh", "-c", script]);
    // The runtime of Rust ignores SIGPIPE, and this test blocks SIGUSR1: neither may be inherited.
    let _signals = Signals::take(&[Signal::USR1]).unwrap();
    let text = output(&mut program(c"/bin/sh", &arguments));
    assert_eq!(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nleader\n");
}

#[test]
fn a_program_gets_what_is_kept_for_it_and_nothing_else() {
    let (kept, _other_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (not_kept, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let open = |fd: &OwnedFd| format!("test -e /proc/self/fd/{} && echo open; ", fd.as_raw_fd());
    let arguments = strings(&["sh", "-c", &format!("{}echo -; {}true", open(&kept), open(&not_kept))]);
    let keeps = [kept.as_fd()];
    let text = output(&mut Program { keeps: &keeps, ..program(c"/bin/sh", &arguments) });
    assert_eq!(text, "open\n-\n");
    assert!(
        rustix::io::fcntl_getfd(&kept).unwrap().contains(rustix::io::FdFlags::CLOEXEC),
        "here nothing changed"
    );
}

#[test]
fn a_child_does_not_outlive_its_owner() {
    let arguments = strings(&["sleep", "600"]);
    let child = OwnedChild::new(program(c"/bin/sleep", &arguments).spawn().unwrap());
    let pid = child.pid();
    rustix::process::test_kill_process(pid).unwrap();
    drop(child);
    assert_eq!(rustix::process::test_kill_process(pid), Err(Errno::SRCH));
}

#[test]
fn a_failed_step_is_named() {
    let arguments = strings(&["x"]);
    let failure = |program: Program<'_>| match program.spawn() {
        Err(SpawnError::Child { step, cause }) => (step, cause),
        other => panic!("{other:?}"),
    };
    assert_eq!(failure(program(c"/no/such", &arguments)), (SpawnStep::Execute, Errno::NOENT));
    assert_eq!(failure(program(c"/etc/passwd", &arguments)), (SpawnStep::Execute, Errno::ACCESS));
    let lost = Program { directory: c"/no/such", ..program(c"/bin/true", &arguments) };
    assert_eq!(failure(lost), (SpawnStep::Directory, Errno::NOENT));
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let stdio = [Stream::From(null.as_fd()), Stream::Inherited, Stream::Inherited];
    let no_terminal =
        Program { terminal: ControllingTerminal::Stdin, stdio, ..program(c"/bin/true", &arguments) };
    assert_eq!(failure(no_terminal), (SpawnStep::Terminal, Errno::NOTTY));
}

#[test]
fn a_terminal_becomes_the_one_of_the_session() {
    let pair = belljar_sys::pty::Pair::open().unwrap();
    let arguments = strings(&["sh", "-c", "exec < /dev/tty && echo has one"]);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let stdio = [Stream::From(pair.terminal.as_fd()), Stream::From(writer.as_fd()), Stream::Inherited];
    let program = Program { terminal: ControllingTerminal::Stdin, stdio, ..program(c"/bin/sh", &arguments) };
    let pid = program.spawn().unwrap();
    drop(writer);
    assert_eq!(std::io::read_to_string(std::fs::File::from(reader)).unwrap(), "has one\n");
    assert_eq!(process::wait_for(pid).unwrap(), Ended::Exited(0));
}

#[test]
fn commands_get_descriptors_at_their_numbers() {
    let [first, second] = ["one", "two"].map(fds_with);
    belljar_sys::fds::cloexec_from_3().unwrap();
    let mut command = Command::new("sh");
    // No pipe after `ls`: the shell would still hold one end of it. And `ls` is not last: it would be the shell.
    command.args(["-c", "cat <&7; cat <&3; ls /proc/$$/fd; true"]);
    let output = command.inherits(vec![(first, 3), (second, 7)]).unwrap().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("twoone0\n1\n2\n3\n7\n"), "{text}");
}

fn fds_with(text: &str) -> OwnedFd {
    belljar_sys::fds::sealed_memfd("test", text.as_bytes()).unwrap()
}

#[test]
fn a_panic_in_a_child_stays_there() {
    let ended = in_child(|| panic!("in the child"));
    assert_eq!(ended.unwrap(), Ended::Exited(101));
}

#[test]
fn a_command_dies_with_its_spawner() {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    in_child(|| {
        let mut command = Command::new("sleep");
        command.arg("60").dies_with_spawner().keeps(vec![writer.try_clone().unwrap()]);
        u8::from(command.spawn().is_err())
    })
    .unwrap();
    drop(writer);
    // The pipe ends when the last process that holds it has ended.
    let mut nothing = [0];
    assert_eq!(rustix::io::read(&reader, &mut nothing), Ok(0));
}

#[test]
fn a_process_is_signalled_through_its_descriptor() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let opened = process::open(Pid::from_child(&child)).unwrap();
    process::signal_open(opened.as_fd(), Signal::KILL).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(process::signal_open(opened.as_fd(), Signal::KILL).is_err());
    assert!(process::signal(Target::Process(Pid::from_raw(i32::MAX).unwrap()), 0).is_err());
}

#[test]
fn blocked_signals_are_read() {
    // In a child, which has one thread: in the harness the signal would go to a thread that does not block it.
    let ended = in_child(|| {
        let signals = Signals::take(&[Signal::USR1, Signal::USR2]).unwrap();
        let before = signals.next().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Signal::USR2).unwrap();
        let after = signals.next().unwrap();
        u8::from((before, after, signals.next().unwrap()) != (None, Some(Signal::USR2.as_raw()), None))
    });
    assert_eq!(ended.unwrap(), Ended::Exited(0));
}

#[test]
fn user_namespaces_are_found_out_by_doing() {
    let found = userns::probe().unwrap();
    match &found {
        Userns::Works => {}
        Userns::Refused { reason, .. } => eprintln!("user namespaces are refused here: {reason:?}"),
    }
    // Behind the filter it is refused, and the reason is known.
    let filter = belljar_sys::seccomp::Filter::standard().unwrap();
    belljar_sys::privs::no_new_privs().unwrap();
    filter.install().unwrap();
    let refused = userns::probe().unwrap();
    assert!(
        matches!(
            refused,
            Userns::Refused { step: userns::UserNamespaceStep::Unshare, errno: Errno::PERM, .. }
        ),
        "{refused:?}"
    );
}

#[test]
fn the_reason_for_a_refusal() {
    use userns::UserNamespaceStep::{Map, Unshare};
    let none = Switches::default();
    let cases = [
        (Switches { max_user_namespaces: Some(0), ..none }, Unshare, Errno::NOSPC, Reason::MaxIsZero),
        (Switches { unprivileged_userns_clone: Some(0), ..none }, Unshare, Errno::PERM, Reason::CloneSwitch),
        (Switches { apparmor_restrict: Some(1), ..none }, Map, Errno::PERM, Reason::AppArmor),
        (Switches { apparmor_restrict: Some(1), ..none }, Map, Errno::ACCESS, Reason::AppArmor),
        (Switches { seccomp: Some(2), ..none }, Unshare, Errno::PERM, Reason::Filtered),
        (none, Unshare, Errno::NOSPC, Reason::Exhausted),
        (none, Unshare, Errno::PERM, Reason::Unknown),
    ];
    for (switches, step, errno, reason) in cases {
        assert_eq!(switches.explain(step, errno), reason, "{switches:?}");
    }
}

#[test]
fn overlays_are_found_out_by_doing() {
    let scratch = tempfile::tempdir().unwrap();
    let support = mounts::probe_overlay(scratch.path()).unwrap();
    assert!(matches!(
        support,
        OverlaySupport::Works | OverlaySupport::Refused(_) | OverlaySupport::NoUserNamespace
    ));
    eprintln!("overlay in a user namespace: {support:?}");
}

#[test]
fn identity_tells_files_apart() {
    let directory = tempfile::tempdir().unwrap();
    let [file, other, link] = ["file", "other", "link"].map(|name| directory.path().join(name));
    std::fs::write(&file, "x").unwrap();
    std::fs::write(&other, "x").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let first = mounts::identity(&file).unwrap();
    assert_eq!(mounts::identity(&file).unwrap(), first);
    assert_ne!(mounts::identity(&other).unwrap(), first);
    assert_ne!(mounts::identity(&link).unwrap(), first, "a link is not what it points at");
    assert!(mounts::identity(&directory.path().join("none")).is_err());
    assert_eq!(mounts::try_identity(&directory.path().join("none")), Err(rustix::io::Errno::NOENT));
    assert_eq!(mounts::try_identity(&file.join("below")), Err(rustix::io::Errno::NOTDIR));
}

#[test]
fn a_copy_has_the_content_however_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("from"), "content").unwrap();
    let from = std::fs::File::open(directory.path().join("from")).unwrap();
    let to = std::fs::File::create(directory.path().join("to")).unwrap();
    let copied = mounts::share_or_copy(&from, &to).unwrap();
    assert!(matches!(copied, Copied::Shared | Copied::Bytes));
    assert_eq!(std::fs::read_to_string(directory.path().join("to")).unwrap(), "content");
}

#[test]
fn read_only_needs_privilege_and_then_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let refused = in_child(|| {
        belljar_sys::caps::drop_all().ok();
        match mounts::read_only_recursive(&path) {
            Err(mounts::MountError::ReadOnly { cause: Errno::PERM, .. }) => 0,
            _ => 1,
        }
    });
    assert_eq!(refused.unwrap(), Ended::Exited(0));
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped in part: needs Root");
        return;
    }
    let held = in_child(|| {
        let private =
            rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        let ready = belljar_sys::raw::try_plain(belljar_sys::raw::PlainCall::Unshare(libc::CLONE_NEWNS))
            .is_ok()
            && rustix::mount::mount_change("/", private).is_ok()
            && rustix::mount::mount_bind(&path, &path).is_ok();
        let before = std::fs::write(path.join("a"), "x").is_ok();
        let after = || std::fs::write(path.join("a"), "y").map_err(|error| error.raw_os_error());
        u8::from(
            !(ready
                && before
                && mounts::read_only_recursive(&path).is_ok()
                && after() == Err(Some(libc::EROFS))),
        )
    });
    assert_eq!(held.unwrap(), Ended::Exited(0));
}
