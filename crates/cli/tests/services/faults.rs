//! The egress services fail during a run: nothing continues unchecked or unlogged.

use super::{named, plain, serve};
use crate::stage::Stage;
use belljar_contract::{EgressLogState, read_egress_log};
use belljar_testkit::{require, wait};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server that counts.
fn counting() -> (u16, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let port = serve(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        plain("hello", "text/plain")
    });
    (port, count)
}

fn manifest(port: u16) -> String {
    format!("[agents.a.egress]\nallow = [\"one.test:{port}\", \"127.0.0.1:{port}\"]\n")
}

/// Lets the kernel refuse the next wait of a thread: the number of what it waits on is changed to one that is not open.
/// What the library below makes of that is a panic in the thread that serves.
#[cfg(target_arch = "x86_64")]
const BREAK_A_WAIT: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
ATTACH, DETACH, GETREGS, SETREGS, WALL = 16, 17, 12, 13, 0x40000000
NAMES = 'r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip'.split()
def ptrace(request, thread, data=None):
    if libc.ptrace(request, thread, None, data) < 0:
        raise OSError(ctypes.get_errno(), 'ptrace %d' % request)
thread = int(sys.argv[1])
for attempt in range(200):
    ptrace(ATTACH, thread)
    os.waitpid(thread, WALL)
    registers = (ctypes.c_ulonglong * 27)()
    ptrace(GETREGS, thread, registers)
    at = {name: number for number, name in enumerate(NAMES)}
    # epoll_wait and epoll_pwait: the first argument is what is waited on.
    if registers[at['orig_rax']] in (232, 281):
        registers[at['rax']] = registers[at['orig_rax']]
        registers[at['orig_rax']] = 2 ** 64 - 1
        registers[at['rdi']] = 999999
        registers[at['rip']] -= 2
        ptrace(SETREGS, thread, registers)
        ptrace(DETACH, thread)
        sys.exit(0)
    ptrace(DETACH, thread)
sys.exit('the thread never waits')
"#;

/// The egress thread of a process or of one that it started.
#[cfg(target_arch = "x86_64")]
fn serving_thread(of: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).ok()?;
    let numbers = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|task: &u32| {
        fs::read_to_string(format!("/proc/{of}/task/{task}/comm")).is_ok_and(|name| name.trim() == "egress")
    })
}

#[cfg(target_arch = "x86_64")]
#[test]
fn when_the_egress_services_fail_the_run_ends_and_nothing_leaves() {
    require!(Bwrap, Curl, Python, Root);
    let (port, count) = counting();
    let stage = Stage::with(&manifest(port));
    // It does not end when it is asked to, and goes on trying for as long as it is let.
    let script = format!(
        "trap '' TERM INT HUP; curl -sS -m 100 http://one.test:{port}/ && touch ready\n\
         read -r broken < broken; n=0\n\
         while :; do curl -sS -m 1 http://one.test:{port}/ >> after; curl -sS -m 1 --noproxy '*' http://one.test:{port}/ >> after; n=$((n+1)); echo $n > tries; done"
    );
    let mut command = named(&stage, "one.test", "true", &["exec", "--yes", "--", "sh", "-c", &script]);
    assert!(Command::new("mkfifo").arg(stage.path("project/broken")).status().unwrap().success());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ready = stage.path("project/ready");
    wait::for_files(&stage.path("project"), || ready.exists().then_some(())).unwrap();
    let thread = serving_thread(child.id()).unwrap();
    let broken = Command::new("python3").args(["-c", BREAK_A_WAIT, &thread.to_string()]).output().unwrap();
    assert!(broken.status.success(), "{}", String::from_utf8_lossy(&broken.stderr));
    // Also opened for reading, so that nothing waits for a reader that has ended.
    let mut pipe = fs::File::options().read(true).write(true).open(stage.path("project/broken")).unwrap();
    pipe.write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("error: the egress services failed; the sandbox was ended"), "{stderr}");
    assert!(stderr.contains("the egress services panicked"), "{stderr}");
    assert_eq!(count.load(Ordering::SeqCst), 1, "something left after what guards it had ended");
    assert_eq!(fs::read_to_string(stage.path("project/after")).unwrap_or_default(), "");
}

#[test]
fn when_the_log_finds_no_room_requests_are_refused() {
    require!(Bwrap, Curl, Root);
    let (port, count) = counting();
    let stage = Stage::with(&manifest(port));
    fs::create_dir_all(stage.path("state")).unwrap();
    fs::create_dir_all(stage.path("kept")).unwrap();
    let state = stage.path("state").display().to_string();
    // A disk of its own for what runs leave, with room for some requests; what is on it is kept when it goes.
    let first = format!("mount -t tmpfs -o size=160k none {state}");
    let script = format!(
        "for n in $(seq 600); do s=$(curl -sS -m 5 -o /dev/null -w '%{{http_code}}' http://one.test:{port}/); echo $s >> statuses; \
         [ $s = 200 ] || more=x$more; [ ${{#more}} -lt 5 ] || break; done"
    );
    let kept = stage.path("kept").display().to_string();
    let wrapped = format!(
        "\"$0\" exec --yes -- sh -c '{}'; s=$?; cp -r {state}/. {kept}; exit $s",
        script.replace('\'', "'\\''")
    );
    let mut command = Command::new("unshare");
    stage.write("hosts", "127.0.0.1 localhost one.test\n");
    command.args([
        "-m",
        "sh",
        "-c",
        &format!("mount --bind {} /etc/hosts && {first} && {wrapped}", stage.path("hosts").display()),
    ]);
    command.arg(env!("CARGO_BIN_EXE_belljar")).current_dir(stage.path("project")).env_clear();
    command.envs(stage.environment()).env("XDG_STATE_HOME", &state);
    let found = stage.finish(&mut command);
    let statuses = fs::read_to_string(stage.path("project/statuses")).unwrap();
    let statuses: Vec<&str> = statuses.lines().collect();
    let allowed = statuses.iter().take_while(|status| **status == "200").count();
    assert!(allowed > 5, "{statuses:?} {}", found.stderr);
    assert_eq!(&statuses[allowed..], ["503"; 5], "from then on everything is refused");
    assert_eq!(count.load(Ordering::SeqCst), allowed, "what was refused did not leave");
    let directory = fs::read_dir(stage.path("kept/belljar/runs")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(directory.join("egress.jsonl")).unwrap();
    let written = text.lines().filter(|line| line.contains(r#""kind":"decided""#)).count();
    assert!(written >= allowed, "{written} decisions are written, {allowed} requests left");
    let read = read_egress_log(&text, None);
    assert!(!matches!(read.state, EgressLogState::Complete), "{read:?}");
    assert!(found.stderr.contains("No space left on device"), "the user sees it: {}", found.stderr);
}
