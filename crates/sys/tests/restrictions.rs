//! Keyring, capabilities, privileges, Landlock: each in a child, each with the state before it as its control.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;

use belljar_sys::landlock::{FileRules, LandlockError, Restriction, kernel_abi, restrict};
use belljar_sys::process::{Ended, in_child};
use belljar_sys::{caps, keyring, privs, raw};

fn status(name: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap().trim().to_owned()
}

fn holds(check: impl FnOnce() -> bool) -> bool {
    in_child(|| u8::from(!check())).unwrap() == Ended::Exited(0)
}

#[test]
fn a_fresh_keyring_does_not_show_the_callers_keys() {
    keyring::join_fresh().unwrap();
    raw::try_key_add(c"belljar-sys-test", b"secret").unwrap();
    assert!(holds(|| raw::try_key_search(c"belljar-sys-test").is_ok()), "control: a child sees the key");
    assert!(holds(|| {
        keyring::join_fresh().is_ok()
            && raw::try_key_search(c"belljar-sys-test") == Err(belljar_sys::Errno::NOKEY)
    }));
}

#[test]
fn all_five_capability_sets_are_emptied() {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let root = rustix::process::geteuid().is_root();
    assert!(status("CapBnd") != "0000000000000000", "control: the bounding set is not empty before");
    let empty = in_child(|| match caps::drop_all() {
        Ok(()) if caps::drop_all().is_err() => 4,
        Ok(()) => u8::from(!sets.iter().all(|set| status(set) == "0000000000000000")),
        Err(caps::CapsError::Bounding { .. }) => 2,
        Err(_) => 3,
    });
    // A second time needs nothing. Without CAP_SETPCAP the first fails, and says at what.
    assert_eq!(empty.unwrap(), Ended::Exited(if root { 0 } else { 2 }));
}

#[test]
fn privileges_are_given_up() {
    assert_eq!(status("NoNewPrivs"), "0");
    assert!(holds(|| privs::no_new_privs().is_ok() && privs::has_no_new_privs().unwrap()));
    assert!(holds(|| {
        privs::not_dumpable().is_ok() && rustix::process::dumpable_behavior().unwrap() as i32 == 0
    }));
    let cores = || rustix::process::getrlimit(rustix::process::Resource::Core);
    assert!(holds(|| privs::no_core_files().is_ok()
        && cores().current == Some(0)
        && cores().maximum == Some(0)));
}

#[test]
fn landlock_closes_what_is_outside_the_roots() {
    if kernel_abi() < 3 {
        eprintln!("skipped: needs Landlock ABI 3, this kernel has {}", kernel_abi());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [open, shut] = ["open", "shut"].map(|name| directory.path().join(name));
    for path in [&open, &shut] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("file"), "x").unwrap();
    }
    let rules = |read_only: &[&PathBuf], read_write: &[&PathBuf]| FileRules::Roots {
        read_only: read_only.iter().map(|path| (*path).clone()).collect(),
        read_write: read_write.iter().map(|path| (*path).clone()).collect(),
    };
    assert!(holds(|| std::fs::read(shut.join("file")).is_ok()), "control: open before");
    let read_only = rules(&[&open], &[]);
    assert!(holds(|| restrict(&read_only).unwrap().files == Restriction::Standing
        && std::fs::read(shut.join("file")).is_err()
        && std::fs::read(open.join("file")).is_ok()
        && std::fs::write(open.join("file"), "y").is_err()));
    let read_write = rules(&[], &[&open]);
    assert!(holds(|| restrict(&read_write).is_ok()
        && std::fs::write(open.join("new"), "y").is_ok()
        && std::fs::rename(open.join("new"), open.join("newer")).is_ok()
        && std::fs::read_dir(&shut).is_err()));
    let single = open.join("file");
    let one_file = rules(&[], &[&single]);
    assert!(holds(|| restrict(&one_file).is_ok() && std::fs::write(&single, "z").is_ok()));
}

#[test]
fn a_root_that_is_missing_is_named() {
    let missing = PathBuf::from("/no/such/root");
    let rules = FileRules::Roots { read_only: vec![missing.clone()], read_write: Vec::new() };
    match restrict(&rules) {
        Err(LandlockError::Open { path, .. }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn scopes_close_signals_and_abstract_sockets() {
    if kernel_abi() < 6 {
        eprintln!("skipped: needs Landlock ABI 6, this kernel has {}", kernel_abi());
        return;
    }
    let name = format!("belljar-scope-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let parent = std::process::id() as i32;
    let connects = || UnixStream::connect_addr(&address).is_ok();
    let signals = || raw::try_plain(raw::PlainCall::KillZero(parent)).is_ok();
    assert!(holds(|| connects() && signals()), "control: open before");
    assert!(holds(|| {
        let enforced = restrict(&FileRules::AsMounted).unwrap();
        enforced.signals == Restriction::Standing
            && enforced.abstract_sockets == Restriction::Standing
            && enforced.files == Restriction::NotAsked
            && !connects()
            && !signals()
            && std::fs::read("/proc/self/stat").is_ok()
    }));
}
