//! The life of the first process: statuses, listeners, signals, and the end of everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use belljar_contract::{
    GUEST_REPORT_MAX, GuestAddress, GuestBeginning, GuestEnd, GuestLimit, GuestListener, GuestOrder,
    GuestReport, GuestResource, GuestSpec, GuestStep, OsText,
};
use belljar_sys::message::Bounds;
use support::{Jail, User, await_begin, await_end, mark, require, shell, spec, text, users};

#[test]
fn the_status_of_the_command_is_passed_on() {
    require!(Bwrap);
    for user in users() {
        let cases = [
            ("exit 0", 0, GuestEnd::Code(0)),
            ("exit 7", 7, GuestEnd::Code(7)),
            ("kill -TERM $$", 143, GuestEnd::Signal(15)),
            ("kill -KILL $$", 137, GuestEnd::Signal(9)),
        ];
        for (script, status, end) in cases {
            let outcome = Jail::run(*user, &shell(script));
            assert_eq!((outcome.status, outcome.end), (Some(status), Some(end)), "{user:?} {script}");
        }
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_127_or_126() {
    require!(Bwrap);
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOEXEC: i32 = 8;
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let headless = directory.path().join("headless");
    std::fs::write(&headless, "no header, no interpreter").unwrap();
    set_mode(directory.path(), 0o755);
    set_mode(&plain, 0o644);
    set_mode(&headless, 0o755);
    for user in users() {
        let cases = [
            ("no-such-program", 127, ENOENT),
            ("/no/such/program", 127, ENOENT),
            ("/mnt/files/plain", 126, EACCES),
            ("/mnt/files/headless", 126, ENOEXEC),
            ("/tmp", 126, EACCES),
        ];
        for (program, status, errno) in cases {
            let path = directory.path().to_str().unwrap();
            let more = ["--tmpfs", "/mnt", "--ro-bind", path, "/mnt/files"];
            let mut jail = Jail::launch_with(*user, &more);
            jail.send(&spec(&[program]));
            jail.receive().unwrap();
            jail.order(GuestOrder::Start);
            let (report, _) = jail.receive().unwrap();
            assert_eq!(report, GuestReport::ExecFailed { what: text(program), errno }, "{user:?}");
            assert_eq!(jail.bwrap.wait().unwrap().code(), Some(status), "{program}");
        }
    }
}

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn arguments_and_environment_survive_any_bytes() {
    require!(Bwrap);
    let mut spec = shell("printf '%s' \"$1$ODD\" | od -An -tx1");
    spec.argv.push(text("sh"));
    spec.argv.push(OsText::new([0xff, b'a', 0x80]).unwrap());
    let value = OsText::new([0xc3, 0x28, b'\n']).unwrap();
    spec.environment.push(belljar_contract::GuestVariable { name: text("ODD"), value });
    let outcome = Jail::run(User::Own, &spec);
    assert_eq!(outcome.output.trim(), "ff 61 80 c3 28 0a");
}

#[test]
fn listeners_accept_from_inside() {
    require!(Bwrap, Python);
    for user in users() {
        let script = "
import os, socket
a = socket.create_connection(('127.0.0.1', 3128)); a.sendall(b'tcp'); print(a.recv(9).decode())
b = socket.socket(socket.AF_UNIX); b.connect('/tmp/agent.sock'); b.sendall(b'unix'); print(b.recv(9).decode())
print(oct(os.stat('/tmp/agent.sock').st_mode & 0o777))
";
        let mut spec = spec(&["/usr/bin/python3", "-c", script]);
        let tcp = GuestAddress::Tcp { address: "127.0.0.1:3128".parse().unwrap() };
        let unix = GuestAddress::Unix { path: text("/tmp/agent.sock"), mode: 0o600 };
        spec.listeners = vec![
            GuestListener { name: "proxy".to_owned(), at: tcp },
            GuestListener { name: "agent".to_owned(), at: unix },
        ];
        let jail = Jail::launch(*user);
        let listeners = jail.start(&spec);
        let [tcp, unix] = <[_; 2]>::try_from(listeners).unwrap();
        let mut heard = [0; 3];
        let (mut connection, _) = TcpListener::from(tcp).accept().unwrap();
        connection.read_exact(&mut heard).unwrap();
        connection.write_all(b"pong-tcp").unwrap();
        assert_eq!(&heard, b"tcp");
        let mut heard = [0; 4];
        let (mut connection, _) = UnixListener::from(unix).accept().unwrap();
        connection.read_exact(&mut heard).unwrap();
        connection.write_all(b"pong-unix").unwrap();
        assert_eq!(&heard, b"unix");
        assert_eq!(jail.finish().output, "pong-tcp\npong-unix\n0o600\n", "{user:?}");
    }
}

#[test]
fn everything_ends_with_the_supervisor() {
    require!(Bwrap);
    for user in users() {
        let mark = mark(*user as u32);
        let mut jail = Jail::launch(*user);
        jail.start(&shell(&format!("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}")));
        await_begin(&mark);
        jail.control = None;
        await_end(&mark);
    }
}

#[test]
fn orphans_do_not_outlive_the_command() {
    require!(Bwrap);
    for user in users() {
        let mark = mark(10 + *user as u32);
        let script = format!(
            "setsid sh -c '(setsid sleep {mark} &) & sleep {mark}' & \
             while [ $(grep -al {mark} /proc/[0-9]*/cmdline | wc -l) -lt 3 ]; do :; done; exit 3"
        );
        let outcome = Jail::run(*user, &shell(&script));
        assert_eq!(outcome.status, Some(3), "{user:?}");
        await_end(&mark);
    }
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_after_the_grace_time() {
    require!(Bwrap);
    let mark = mark(20);
    let begin = std::time::Instant::now();
    let script = format!(
        "(trap '' TERM; touch /tmp/ready; sleep {mark}; sleep {mark}) & \
         while ! test -e /tmp/ready; do :; done; exit 5"
    );
    let outcome = Jail::run(User::Own, &shell(&script));
    assert_eq!(outcome.status, Some(5));
    assert!(begin.elapsed() >= Duration::from_millis(300), "the grace time was not given");
    await_end(&mark);
}

#[test]
fn signals_and_stop_reach_the_command() {
    require!(Bwrap);
    let mut jail = Jail::launch(User::Own);
    jail.start(&shell("trap 'echo usr1; exit 9' USR1; echo ready; while :; do sleep 0.05; done"));
    assert_eq!(jail.line(), "ready");
    jail.order(GuestOrder::Signal { signal: 10 });
    let outcome = jail.finish();
    assert_eq!((outcome.status, outcome.output.trim()), (Some(9), "usr1"));

    let mut jail = Jail::launch(User::Own);
    jail.start(&shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"));
    assert_eq!(jail.line(), "ready");
    jail.order(GuestOrder::Stop);
    assert_eq!(jail.finish().status, Some(137));
}

#[test]
fn limits_mask_and_directory_are_set() {
    require!(Bwrap);
    let mut spec = shell("ulimit -n; ulimit -c; umask; pwd");
    spec.limits = vec![
        GuestLimit { resource: GuestResource::OpenFiles, soft: 64, hard: 128 },
        GuestLimit { resource: GuestResource::Core, soft: 0, hard: 0 },
    ];
    spec.umask = 0o077;
    spec.directory = text("/usr/bin");
    assert_eq!(Jail::run(User::Own, &spec).output, "64\n0\n0077\n/usr/bin\n");
}

/// As many processes as the shell can start, up to a number.
fn crowd(count: u32, seconds: u32) -> String {
    format!("i=0; while [ $i -lt {count} ]; do sleep {seconds} & i=$((i+1)); done")
}

#[test]
fn a_process_limit_that_was_reached_is_reported() {
    require!(Bwrap, Root);
    let limited = |script: &str| {
        let mut spec = shell(script);
        spec.limits = vec![GuestLimit { resource: GuestResource::Processes, soft: 200, hard: 200 }];
        // The superuser is exempt from this limit.
        Jail::run(User::Ordinary, &spec)
    };
    assert!(limited(&crowd(300, 5)).crowded, "when the command ends");
    let before = limited(&format!("({}); sleep 3; exit 7", crowd(300, 2)));
    assert!(before.crowded && before.status == Some(7), "while it runs, and no longer when it ends");
    assert!(!limited(&crowd(150, 5)).crowded, "there was room");
    let unlimited = Jail::run(User::Ordinary, &shell(&crowd(300, 5)));
    assert!(!unlimited.crowded, "there was no limit");
}

#[test]
fn a_restriction_that_cannot_be_applied_is_a_refusal() {
    require!(Bwrap);
    // A capability is left in the bounding set, and the one that it takes to drop it is not there.
    for user in users() {
        let mut jail = Jail::launch_with(*user, &["--cap-add", "CAP_CHOWN"]);
        jail.send(&shell("echo must not run"));
        let (report, _) = jail.receive().unwrap();
        let GuestReport::SetupFailed { step, errno, .. } = report else { panic!("{report:?}") };
        assert_eq!((step, errno), (GuestStep::Capabilities, 1), "{user:?}");
        assert_eq!(jail.bwrap.wait().unwrap().code(), Some(125));
    }
}

#[test]
fn a_spec_that_is_not_understood_is_a_refusal() {
    require!(Bwrap);
    let mut jail = Jail::launch(User::Own);
    belljar_sys::message::send(jail.control(), b"{}", &[]).unwrap();
    let (report, _) = jail.receive().unwrap();
    assert!(matches!(report, GuestReport::SetupFailed { step: GuestStep::Spec, .. }), "{report:?}");
    assert_eq!(jail.bwrap.wait().unwrap().code(), Some(125));
}

#[test]
fn outside_a_pid_namespace_it_refuses() {
    let (ours, theirs) = belljar_sys::fds::stream_pair().unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&theirs).to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_belljar-guest"));
    command.args(["init", "--control", &number]);
    let mut child = belljar_sys::process::Prepare::keeps(&mut command, vec![theirs]).spawn().unwrap();
    drop(command);
    let bounds = Bounds { bytes: GUEST_REPORT_MAX, descriptors: 0, within: Some(Duration::from_secs(10)) };
    let received = belljar_sys::message::receive(ours.as_fd(), bounds).unwrap();
    let report = GuestReport::from_bytes(&received.body).unwrap();
    assert!(matches!(report, GuestReport::SetupFailed { step: GuestStep::Begin, .. }), "{report:?}");
    assert_eq!(child.wait().unwrap().code(), Some(125));
}

const MARK: &str = "BELLJAR_TEST_MARK";

#[test]
#[ignore = "the supervisor that the next test kills"]
fn supervisor_to_be_killed() {
    let mark = std::env::var(MARK).unwrap();
    let jail = Jail::launch(User::Own);
    jail.start(&shell(&format!("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}")));
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn everything_ends_with_sigkill_to_the_supervisor() {
    require!(Bwrap);
    let mark = mark(30);
    let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "supervisor_to_be_killed", "--ignored"])
        .env(MARK, &mark)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    await_begin(&mark);
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    await_end(&mark);
}

/// A supervisor that has nothing to prepare saves a round trip.
#[test]
fn a_command_may_start_without_an_order_but_not_without_restrictions() {
    require!(Bwrap);
    for user in users() {
        let script = "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '";
        let spec = GuestSpec { beginning: GuestBeginning::AtOnce, ..shell(script) };
        let outcome = Jail::run(*user, &spec);
        assert_eq!(outcome.output, "CapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n");
        assert_eq!(outcome.end, Some(GuestEnd::Code(0)));
    }
}
