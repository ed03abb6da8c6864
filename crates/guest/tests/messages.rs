//! Decoding: no bytes make it panic or take memory beyond its bounds, and what was encoded comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;
use std::time::Duration;

use belljar_contract::{
    Access, GUEST_PROTOCOL, GuestAddress, GuestBeginning, GuestBounds, GuestCodecError, GuestEnd, GuestFiles,
    GuestFilter, GuestGround, GuestLimit, GuestListener, GuestOrder, GuestPart, GuestReport, GuestResource,
    GuestRoot, GuestSource, GuestSpec, GuestStream, GuestTerminal, GuestVariable, OsText,
};
use belljar_guest::parse_proxy_answer;
use belljar_sys::message::{self, Bounds, MessageError};
use proptest::prelude::*;

fn os_text() -> impl Strategy<Value = OsText> {
    proptest::collection::vec(1u8.., 0..24).prop_map(|bytes| OsText::new(bytes).unwrap())
}

fn name() -> impl Strategy<Value = OsText> {
    proptest::collection::vec(62u8.., 1..12).prop_map(|bytes| OsText::new(bytes).unwrap())
}

fn path() -> impl Strategy<Value = OsText> {
    os_text().prop_map(|text| OsText::new([b"/", text.as_bytes()].concat()).unwrap())
}

fn abs(path: &str) -> OsText {
    OsText::new(path).unwrap()
}

prop_compose! {
    fn any_spec()(
        argv in proptest::collection::vec(os_text(), 1..5),
        program in name(),
        variables in proptest::collection::vec((name(), os_text()), 0..5),
        directory in path(),
        socket in path(),
        roots in proptest::collection::vec(path(), 0..4),
        port in any::<u16>(),
        numbers in any::<(u32, u32, u8)>(),
    ) -> GuestSpec {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        GuestSpec {
            protocol: GUEST_PROTOCOL,
            program,
            argv,
            environment: variables.into_iter().map(|(name, value)| GuestVariable { name, value }).collect(),
            directory,
            stdin: GuestStream::Attached(numbers.2),
            stdout: GuestStream::Inherit,
            stderr: GuestStream::Null,
            terminal: GuestTerminal::Own,
            range: None,
            beginning: GuestBeginning::OnOrder,
            listeners: vec![
                GuestListener { name: "a".to_owned(), at: GuestAddress::Tcp { address } },
                GuestListener { name: "b".to_owned(), at: GuestAddress::Unix { path: socket, mode: 0o600 } },
            ],
            root: GuestRoot::Built {
                ground: GuestGround::Namespaces,
                parts: vec![
                    GuestPart::File { at: abs("/f"), length: numbers.0.into() },
                    GuestPart::Bind {
                        from: abs("/a"),
                        is: GuestSource::Exactly { device: (numbers.0, numbers.1), inode: u64::MAX },
                        at: abs("/b"),
                        access: Access::ReadOnly,
                    },
                    GuestPart::Memory { at: abs("/tmp"), mode: 0o1777 },
                ],
                user: numbers.1,
                bounds: GuestBounds { tmpfs: Some(u64::from(numbers.0)), pid_max: Some(numbers.1) },
            },
            files: GuestFiles::Roots { read_only: roots, read_write: Vec::new() },
            filter: GuestFilter::Standard,
            guard: None,
            umask: numbers.0,
            limits: vec![GuestLimit { resource: GuestResource::Cpu, soft: 1, hard: u64::MAX }],
            grace_ms: numbers.1,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spec_comes_back_as_it_was(spec in any_spec()) {
        prop_assert_eq!(GuestSpec::from_bytes(&spec.to_bytes().unwrap()).unwrap(), spec);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        drop(GuestSpec::from_bytes(&bytes));
        drop(GuestReport::from_bytes(&bytes));
        drop(GuestOrder::from_bytes(&bytes));
        prop_assert!(parse_proxy_answer(&bytes).is_none_or(|answer| answer.status <= 999));
    }

    #[test]
    fn a_damaged_spec_never_panics(spec in any_spec(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = spec.to_bytes().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        drop(GuestSpec::from_bytes(&bytes));
        drop(GuestSpec::from_bytes(&bytes[..at]));
    }

    #[test]
    fn arbitrary_frames_are_received_or_refused_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let (one, other) = belljar_sys::fds::stream_pair().unwrap();
        rustix::io::write(&one, &bytes).ok();
        drop(one);
        let bounds = Bounds { bytes: 128, descriptors: 0, within: Some(Duration::from_secs(5)) };
        match message::receive(other.as_fd(), bounds) {
            Ok(received) => prop_assert!(received.body.len() <= 128),
            Err(error) => prop_assert!(!matches!(error, MessageError::TimedOut), "{error:?}"),
        }
    }
}

#[test]
fn rules_that_the_types_do_not_hold() {
    let base = || {
        serde_json::json!({
            "protocol": GUEST_PROTOCOL, "program": "a", "argv": ["a"], "environment": [], "directory": "/",
            "stdin": "null", "stdout": "inherit", "stderr": {"attached": 0}, "terminal": "absent", "beginning": "at_once",
            "listeners": [], "root": "as_found", "files": "as_mounted", "filter": "standard", "umask": 18, "limits": [], "grace_ms": 100
        })
    };
    let decode = |value: &serde_json::Value| GuestSpec::from_bytes(value.to_string().as_bytes());
    assert!(decode(&base()).is_ok());
    let tcp = |address: &str| serde_json::json!([{"name": "x", "at": {"tcp": {"address": address}}}]);
    let twice = serde_json::json!([
        {"name": "x", "at": {"unix": {"path": "/a", "mode": 384}}},
        {"name": "x", "at": {"unix": {"path": "/b", "mode": 384}}}
    ]);
    let cases = [
        ("protocol", serde_json::json!(1)),
        ("program", serde_json::json!("")),
        ("program", serde_json::json!("a\0b")),
        ("argv", serde_json::json!([])),
        ("argv", serde_json::json!([[256]])),
        ("directory", serde_json::json!("tmp")),
        ("environment", serde_json::json!([{"name": "a=b", "value": ""}])),
        ("environment", serde_json::json!([{"name": "", "value": ""}])),
        ("listeners", tcp("0.0.0.0:80")),
        ("listeners", tcp("[::]:80")),
        ("listeners", twice),
        ("limits", serde_json::json!([{"resource": "cpu", "soft": 2, "hard": 1}])),
        ("root", serde_json::json!({"built": {"parts": [{"mask": {"at": "proc/keys"}}], "user": 1}})),
        (
            "root",
            serde_json::json!({"built": {"parts": [{"bind": {
            "from": "usr", "is": "system", "at": "/usr", "access": "ro"
        }}], "user": 1}}),
        ),
        ("root", serde_json::json!({"built": {"parts": [], "user": 1, "more": 1}})),
        ("filter", serde_json::json!("none")),
        (
            "guard",
            serde_json::json!({
                "roots": [{"path": "/p", "is_git": false, "aliases": [], "named": []}],
                "apart": [], "allowed": ["p/.envrc"], "on_held": "ask"
            }),
        ),
        ("unknown", serde_json::json!(1)),
    ];
    for (key, value) in cases {
        let mut spec = base();
        spec[key] = value;
        assert!(decode(&spec).is_err(), "{spec}");
    }
    assert!(GuestOrder::from_bytes(br#"{"signal":{"signal":0}}"#).is_err());
    assert!(GuestOrder::from_bytes(br#"{"signal":{"signal":65}}"#).is_err());
}

#[test]
fn a_message_that_is_too_long_is_refused_before_it_is_read() {
    let long = vec![b' '; 64 * 1024 + 1];
    assert!(matches!(GuestReport::from_bytes(&long), Err(GuestCodecError::TooLong { .. })));
    let (one, other) = belljar_sys::fds::stream_pair().unwrap();
    rustix::io::write(&one, &u32::MAX.to_be_bytes()).unwrap();
    let bounds = Bounds { bytes: 1024, descriptors: 0, within: Some(Duration::from_secs(5)) };
    let refused = message::receive(other.as_fd(), bounds);
    assert!(matches!(refused, Err(MessageError::TooLong { limit: 1024, .. })), "{refused:?}");
}

#[test]
fn values_of_the_environment_are_not_shown() {
    let text = |text: &str| OsText::new(text).unwrap();
    let variable = GuestVariable { name: text("BELLJAR_PROXY_TOKEN"), value: text("secret") };
    assert_eq!(format!("{variable:?}"), "\"BELLJAR_PROXY_TOKEN\"=<6 bytes>");
}

#[test]
fn the_status_of_an_end() {
    assert_eq!(GuestEnd::Code(7).status(), 7);
    assert_eq!(GuestEnd::Code(256).status(), 0);
    assert_eq!(GuestEnd::Signal(9).status(), 137);
}
