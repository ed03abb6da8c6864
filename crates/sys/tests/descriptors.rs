//! Descriptors and framed messages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sys::fds::{self, OnExec};
use belljar_sys::message::{self, Bounds, MAX_DESCRIPTORS, MessageError};
use belljar_sys::process::{Ended, in_child};

const BOUNDS: Bounds = Bounds { bytes: 1 << 20, descriptors: 4, within: Some(Duration::from_secs(10)) };

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

#[test]
fn all_but_the_kept_are_closed() {
    let many: Vec<_> = (0..50).map(|_| null()).collect();
    let kept = [many[7].as_raw_fd(), many[30].as_raw_fd()];
    let ended = in_child(|| {
        if fds::close_from_3_except(&kept).is_err() {
            return 1;
        }
        let open = fds::open_numbers().unwrap();
        u8::from(!open.into_iter().filter(|number| *number > 2).eq(kept))
    });
    assert_eq!(ended.unwrap(), Ended::Exited(0));
}

#[test]
fn close_on_exec_is_set_and_cleared() {
    let file = null();
    let flags = || rustix::io::fcntl_getfd(&file).unwrap();
    fds::on_exec(file.as_fd(), OnExec::Keep).unwrap();
    assert!(flags().is_empty());
    fds::cloexec_from_3().unwrap();
    assert!(flags().contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn an_inherited_number_must_be_open() {
    assert!(matches!(fds::adopt_inherited(900), Err(fds::FdError::NotOpen { number: 900, .. })));
}

#[test]
fn a_sealed_file_cannot_be_changed() {
    let mut file = std::fs::File::from(fds::sealed_memfd("test", b"content").unwrap());
    let mut read = String::new();
    file.read_to_string(&mut read).unwrap();
    assert_eq!(read, "content");
    assert!(file.write_all(b"more").is_err());
    assert!(file.set_len(1).is_err());
}

#[test]
fn a_message_brings_its_descriptors() {
    let (one, other) = fds::stream_pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let body = vec![b'x'; 700_000];
    let sender = std::thread::spawn(move || {
        message::send(one.as_fd(), &body, &[writer.as_fd()]).unwrap();
        message::send(one.as_fd(), b"", &[]).unwrap();
    });
    let first = message::receive(other.as_fd(), BOUNDS).unwrap();
    assert_eq!((first.body.len(), first.descriptors.len()), (700_000, 1));
    let second = message::receive(other.as_fd(), BOUNDS).unwrap();
    assert_eq!((second.body.len(), second.descriptors.len()), (0, 0));
    assert!(matches!(message::receive(other.as_fd(), BOUNDS), Err(MessageError::Closed)));
    sender.join().unwrap();
    let flags = rustix::io::fcntl_getfd(&first.descriptors[0]).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    std::fs::File::from(first.descriptors.into_iter().next().unwrap()).write_all(b"through").unwrap();
    let mut heard = String::new();
    std::fs::File::from(reader).read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "through");
}

#[test]
fn bounds_are_kept_on_both_sides() {
    let (one, other) = fds::stream_pair().unwrap();
    let file = null();
    let too_many = vec![file.as_fd(); MAX_DESCRIPTORS + 1];
    let refused = message::send(one.as_fd(), b"x", &too_many);
    assert!(matches!(refused, Err(MessageError::TooManyDescriptors { .. })));
    message::send(one.as_fd(), b"x", &[file.as_fd(); 5]).unwrap();
    let refused = message::receive(other.as_fd(), BOUNDS);
    assert!(matches!(refused, Err(MessageError::TooManyDescriptors { limit: 4 })), "{refused:?}");
}

#[test]
fn a_message_that_stops_is_cut_off_or_late() {
    let (one, other) = fds::stream_pair().unwrap();
    rustix::io::write(&one, &[0, 0, 0, 9, b'x']).unwrap();
    let begin = Instant::now();
    let bounds = Bounds { within: Some(Duration::from_millis(50)), ..BOUNDS };
    assert!(matches!(message::receive(other.as_fd(), bounds), Err(MessageError::TimedOut)));
    assert!(begin.elapsed() < Duration::from_secs(5));
    rustix::io::write(&one, &[0, 0, 0, 9, b'x']).unwrap();
    drop(one);
    let refused = message::receive(other.as_fd(), BOUNDS);
    assert!(matches!(refused, Err(MessageError::CutOff)), "{refused:?}");
}

#[test]
fn the_kernel_names_the_sender_once_it_is_asked_to() {
    let (one, other) = fds::stream_pair().unwrap();
    message::send(one.as_fd(), b"before", &[]).unwrap();
    assert_eq!(message::receive(other.as_fd(), BOUNDS).unwrap().sender, None);
    message::ask_for_senders(other.as_fd()).unwrap();
    let child =
        belljar_sys::process::in_child(|| u8::from(message::send(one.as_fd(), b"after", &[]).is_err()));
    assert_eq!(child.unwrap(), Ended::Exited(0));
    let sender = message::receive(other.as_fd(), BOUNDS).unwrap().sender.unwrap();
    assert_ne!(sender, rustix::process::getpid());
    message::send(one.as_fd(), b"from here", &[]).unwrap();
    let sender = message::receive(other.as_fd(), BOUNDS).unwrap().sender;
    assert_eq!(sender, Some(rustix::process::getpid()));
}
