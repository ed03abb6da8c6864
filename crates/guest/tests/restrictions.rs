//! Runs the probes inside, where they must be closed, and on the host, where they must be open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use belljar_contract::{
    GuestFiles, GuestFilter, GuestReport, GuestRestriction, GuestStep, GuestStream, GuestTerminal,
};
use support::{Jail, User, require, shell, spec, text, users};

const GUEST: &str = "/tmp/.belljar/belljar-guest";

/// Findings by probe: `Open`, `Closed`, `Unsupported`, with the errno where there is one.
type Findings = BTreeMap<String, (String, Option<i64>)>;

fn findings(lines: &str) -> Findings {
    let parse = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = value["probe"].as_str().unwrap().to_owned();
        let outcome = match value["outcome"].as_str() {
            Some(name) => (name.to_owned(), None),
            None => ("Closed".to_owned(), value["outcome"]["Closed"]["errno"].as_i64()),
        };
        (name, outcome)
    };
    lines.lines().map(parse).collect()
}

/// Objects of the host that must not be reachable.
struct Host {
    key: String,
    name: String,
    sleeper: std::process::Child,
    _listener: UnixListener,
}

impl Host {
    fn new() -> Self {
        let key = format!("belljar-{}", std::process::id());
        let description = std::ffi::CString::new(key.clone()).unwrap();
        belljar_sys::keyring::join_fresh().unwrap();
        let serial = belljar_sys::raw::try_key_add(&description, b"secret").unwrap();
        belljar_sys::raw::try_key_possessors_only(serial).unwrap();
        let address = SocketAddr::from_abstract_name(&key).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        Host { name: key.clone(), key, sleeper, _listener: listener }
    }

    fn arguments(&self, trace: &str) -> Vec<String> {
        let pid = self.sleeper.id().to_string();
        let arguments =
            ["probe", "--all", "--key", &self.key, "--abstract", &self.name, "--pid", &pid, "--trace", trace];
        arguments.map(str::to_owned).to_vec()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.sleeper.kill().unwrap();
        self.sleeper.wait().unwrap();
    }
}

/// Probes that are closed on some hosts too, so that a closed one proves nothing: x32 where the kernel has none, a
/// segment that was never created, terminals that do not exist.
const SAYS_NOTHING_HERE: [&str; 5] =
    ["x32", "segment", "terminal_input_stdin", "terminal_input_stdin_high_bits", "terminal_input_tty"];

#[test]
fn every_probe_is_closed_inside_and_open_on_the_host() {
    require!(Bwrap);
    let host = Host::new();
    let outside = Command::new(env!("CARGO_BIN_EXE_belljar-guest"))
        .args(host.arguments(&host.sleeper.id().to_string()))
        .stdin(std::fs::File::open("/dev/null").unwrap())
        .output()
        .unwrap();
    let outside = findings(&String::from_utf8(outside.stdout).unwrap());
    for user in users() {
        let arguments = host.arguments("1");
        let mut argv = vec![GUEST];
        argv.extend(arguments.iter().map(String::as_str));
        // All capabilities of the namespace: the guest itself must give them away.
        let jail = Jail::launch_with(*user, &["--cap-add", "ALL"]);
        jail.start(&spec(&argv));
        let inside = findings(&jail.finish().output);
        assert_eq!(inside.len(), outside.len());
        for (name, (outcome, errno)) in &inside {
            let expected = match name.as_str() {
                "terminal_input_stdin" | "terminal_input_stdin_high_bits" => "Unsupported",
                _ if name.starts_with("control_") => "Open",
                _ => "Closed",
            };
            assert_eq!(outcome, expected, "{user:?} {name} {errno:?}");
        }
        for name in ["clone3", "x32"] {
            assert_eq!(inside[name].1, Some(38), "{name}");
        }
        for name in ["io_uring", "bpf", "socket_vsock", "unshare_user", "clone_user", "mount", "session_key"]
        {
            assert_eq!(inside[name].1, Some(1), "{name}");
        }
    }
    if rustix::process::geteuid().is_root() {
        for (name, (outcome, errno)) in &outside {
            let open =
                outcome == "Open" || SAYS_NOTHING_HERE.contains(&name.as_str()) || name == "descriptors";
            assert!(open, "on the host {name} is {outcome} {errno:?}");
        }
    }
}

#[test]
fn the_status_lines_are_those_of_a_sealed_process() {
    require!(Bwrap);
    for user in users() {
        for who in ["self", "1"] {
            let script = format!("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/{who}/status");
            let jail = Jail::launch_with(*user, &["--cap-add", "ALL"]);
            jail.start(&shell(&script));
            let zero = "0000000000000000";
            let expected = format!(
                "CapInh:\t{zero}\nCapPrm:\t{zero}\nCapEff:\t{zero}\nCapBnd:\t{zero}\nCapAmb:\t{zero}\n\
                 NoNewPrivs:\t1\nSeccomp:\t2\n"
            );
            assert_eq!(jail.finish().output, expected, "{user:?} {who}");
        }
    }
}

/// The filter answers for `keyctl`; this file shows, past the filter, the keys that the session keyring holds.
#[test]
fn the_keys_of_the_caller_are_not_listed_inside() {
    require!(Bwrap);
    let host = Host::new();
    let plain = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "cat", "/proc/keys"];
    let listed = Command::new("bwrap").args(plain).output().unwrap();
    if !listed.status.success() {
        eprintln!("skipped: needs ProcKeys: {}", String::from_utf8_lossy(&listed.stderr));
        return;
    }
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&host.key), "control: bubblewrap alone lets the key through: {listed}");
    let outcome = Jail::run(User::Own, &spec(&["cat", "/proc/keys"]));
    assert_eq!(outcome.status, Some(0));
    assert!(!outcome.output.contains(&host.key), "{}", outcome.output);
}

#[test]
fn ten_thousand_descriptors_of_the_caller_stay_outside() {
    require!(Bwrap);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = 10_000;
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let many: Vec<OwnedFd> = (0..wanted).map(|_| null.try_clone().unwrap()).collect();
    for descriptor in &many {
        belljar_sys::fds::on_exec(descriptor.as_fd(), belljar_sys::fds::OnExec::Keep).unwrap();
    }
    // Control: bubblewrap itself passes them on.
    let plain = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "ls", "/proc/self/fd"];
    let passed = Command::new("bwrap").args(plain).output().unwrap().stdout;
    assert!(passed.split(|byte| *byte == b'\n').count() > wanted);
    let jail = Jail::launch(User::Own);
    jail.start(&spec(&[GUEST, "probe", "descriptors"]));
    let found = findings(&jail.finish().output);
    assert_eq!(found["descriptors"].0, "Closed");
}

#[test]
fn terminal_input_is_closed_on_a_terminal_of_our_own() {
    require!(Bwrap);
    for user in users() {
        let names = ["terminal_input_stdin", "terminal_input_stdin_high_bits", "terminal_input_tty"];
        let mut spec = shell(&format!("tty; test -t 0 && exec {GUEST} probe {}", names.join(" ")));
        spec.terminal = GuestTerminal::Own;
        spec.stdin = GuestStream::Terminal;
        let mut jail = Jail::launch(*user);
        jail.send(&spec);
        let (report, mut handed_out) = jail.receive().unwrap();
        assert_eq!((report, handed_out.len()), (GuestReport::Terminal, 1));
        let controller = handed_out.remove(0);
        assert!(belljar_sys::pty::is_terminal(&controller));
        jail.receive().unwrap();
        jail.order(belljar_contract::GuestOrder::Start);
        let (report, _) = jail.receive().unwrap();
        assert!(matches!(report, GuestReport::Started { .. }), "{report:?}");
        assert_eq!(jail.line(), "/dev/pts/0", "it has its name inside");
        let found = findings(&jail.finish().output);
        for name in names {
            // EPERM on /dev/tty also says that there is one: standard input became the terminal of the session.
            assert_eq!(found[name], ("Closed".to_owned(), Some(1)), "{user:?} {name}");
        }
    }
}

#[test]
fn the_guest_keeps_no_copy_of_the_controlling_end() {
    require!(Bwrap, Root);
    let mut spec = shell("echo begun; read line");
    spec.terminal = GuestTerminal::Own;
    spec.stdin = GuestStream::Terminal;
    let mut jail = Jail::launch(User::Own);
    jail.send(&spec);
    let (report, _controller) = jail.receive().unwrap();
    assert_eq!(report, GuestReport::Terminal);
    assert!(matches!(jail.receive().unwrap().0, GuestReport::Sealed { .. }));
    jail.order(belljar_contract::GuestOrder::Start);
    assert_eq!(jail.line(), "begun");
    let children = |pid: String| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let guest = children(jail.bwrap.id().to_string()).trim().to_owned();
    let command = children(guest.clone()).trim().to_owned();
    for pid in [guest, command] {
        let open: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .collect();
        assert!(!open.is_empty() && !open.iter().any(|path| path.ends_with("ptmx")), "{open:?}");
    }
}

#[test]
fn a_terminal_that_is_not_standard_input_is_refused() {
    require!(Bwrap);
    let mut without = shell("true");
    without.stdout = GuestStream::Terminal;
    let mut elsewhere = without.clone();
    elsewhere.terminal = GuestTerminal::Own;
    for spec in [without, elsewhere] {
        let jail = Jail::launch(User::Own);
        jail.send(&spec);
        let (report, handed_out) = jail.receive().unwrap();
        assert!(matches!(report, GuestReport::SetupFailed { step: GuestStep::Spec, .. }), "{report:?}");
        assert!(handed_out.is_empty());
    }
}

#[test]
fn landlock_roots_close_the_rest_and_a_missing_root_is_a_refusal() {
    require!(Bwrap);
    let roots = |read_only: &[&str], read_write: &[&str]| GuestFiles::Roots {
        read_only: read_only.iter().map(|path| text(path)).collect(),
        read_write: read_write.iter().map(|path| text(path)).collect(),
    };
    let script = "echo a > /tmp/a && cat /tmp/a; cat /etc/hostname 2>&1; ls /usr/bin/env; mv /tmp/a /tmp/b && cat /tmp/b";
    let mut spec = shell(script);
    spec.files = roots(&["/usr", "/bin", "/lib", "/lib64", "/proc"], &["/tmp", "/dev"]);
    let jail = Jail::launch(User::Own);
    jail.send(&spec);
    let (report, _) = jail.receive().unwrap();
    let GuestReport::Sealed { landlock } = report else { panic!("{report:?}") };
    jail.order(belljar_contract::GuestOrder::Start);
    jail.receive().unwrap();
    let output = jail.finish().output;
    if landlock.files == GuestRestriction::Standing {
        let expected = "a\ncat: /etc/hostname: Permission denied\n/usr/bin/env\na\n";
        assert_eq!(output, expected);
    }
    spec.files = roots(&["/usr", "/no/such/root"], &[]);
    let jail = Jail::launch(User::Own);
    jail.send(&spec);
    let (report, _) = jail.receive().unwrap();
    let GuestReport::SetupFailed { step, errno, detail } = report else { panic!("{report:?}") };
    assert_eq!((step, errno), (belljar_contract::GuestStep::Landlock, 2));
    assert!(detail.contains("/no/such/root"), "{detail}");
}

#[test]
fn ordinary_tools_still_work() {
    require!(Bwrap, Python);
    let checks = [
        ("mktemp", "mktemp && mktemp -d"),
        (
            "git",
            "cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m t && git status",
        ),
        (
            "multiprocessing",
            "/usr/bin/python3 -c 'import multiprocessing as m; q=m.Queue(); p=m.Process(target=q.put,args=(7,)); p.start(); print(q.get()); p.join()'",
        ),
        (
            "threads",
            "/usr/bin/python3 -c 'import threading; t=threading.Thread(target=print,args=(1,)); t.start(); t.join()'",
        ),
        (
            "loopback",
            "/usr/bin/python3 -c 'import socket; s=socket.create_server((\"127.0.0.1\",0)); c=socket.create_connection(s.getsockname()); c.sendall(b\"x\"); print(s.accept()[0].recv(1))'",
        ),
        ("names", "/usr/bin/python3 -c 'import socket; print(socket.getaddrinfo(\"localhost\", 80))'"),
        (
            "node",
            "command -v node >/dev/null || exit 0; node -e 'require(\"child_process\").execSync(\"true\"); const s=require(\"net\").createServer(()=>{}).listen(0,()=>s.close())'",
        ),
        ("job control", "sh -c 'sleep 0 & wait'"),
        ("debugger", "command -v strace >/dev/null || exit 0; strace -f -o /dev/null true"),
        ("pipes", "yes | head -n 10000 | sort | uniq -c"),
    ];
    for user in users() {
        for (name, script) in checks {
            let outcome = Jail::run(*user, &shell(script));
            assert_eq!(outcome.status, Some(0), "{user:?} {name}: {}", outcome.output);
        }
    }
    // The toolchain may be in a directory that only its user can read.
    let Ok(cargo) = std::env::var("CARGO") else {
        eprintln!("skipped in part: not run by cargo");
        return;
    };
    let outcome = Jail::run(User::Own, &spec(&[&cargo, "--version"]));
    assert!(outcome.output.starts_with("cargo "), "{:?} {}", outcome.status, outcome.output);
}

/// A tool beside an agent must not write to its memory; whatever else is written is as before.
#[test]
fn apart_no_process_writes_to_the_memory_of_another() {
    require!(Bwrap);
    let script = "sleep 60 & p=$!; until [ \"$(cat /proc/$p/comm)\" = sleep ]; do :; done; if (exec 9<>/proc/$p/mem) 2>/dev/null; then echo open; else echo closed; fi; \
        mkdir -p /tmp/a /tmp/b; echo x > /tmp/a/f && mv /tmp/a/f /tmp/b/f && cat /tmp/b/f; \
        echo y > /dev/null && echo written; cat /proc/$p/comm; kill $p";
    for user in users() {
        let standard = Jail::run(*user, &shell(script));
        assert_eq!(standard.output, "open\nx\nwritten\nsleep\n", "{user:?}: what is closed could be open");
        let mut apart = shell(script);
        (apart.files, apart.filter) = (GuestFiles::ProcessesApart, GuestFilter::Apart);
        assert_eq!(Jail::run(*user, &apart).output, "closed\nx\nwritten\nsleep\n", "{user:?}");
    }
}
