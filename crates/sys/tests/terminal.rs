//! Terminals: size, raw mode, and the way back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;

use belljar_sys::pty::{Pair, RawMode, WindowSize, is_terminal, resize, restore_from_signal, size};
use rustix::termios::LocalModes;

fn echoes(pair: &Pair) -> bool {
    rustix::termios::tcgetattr(&pair.terminal).unwrap().local_modes.contains(LocalModes::ECHO)
}

#[test]
fn the_size_is_the_same_on_both_ends() {
    let pair = Pair::open().unwrap();
    assert!(is_terminal(&pair.terminal));
    let wanted = WindowSize { rows: 33, columns: 101 };
    resize(pair.controller.as_fd(), wanted).unwrap();
    assert_eq!(size(pair.terminal.as_fd()).unwrap(), wanted);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(size(file.as_fd()).is_err());
}

#[test]
fn raw_mode_ends_with_its_guard() {
    let pair = Pair::open().unwrap();
    assert!(echoes(&pair));
    let guard = RawMode::enter(pair.terminal.as_fd()).unwrap();
    assert!(!echoes(&pair));
    drop(guard);
    assert!(echoes(&pair));
}

#[test]
fn raw_mode_can_be_ended_from_a_signal_handler() {
    let pair = Pair::open().unwrap();
    restore_from_signal();
    let guard = RawMode::enter(pair.terminal.as_fd()).unwrap();
    restore_from_signal();
    assert!(echoes(&pair));
    drop(guard);
    restore_from_signal();
    assert!(echoes(&pair));
}
