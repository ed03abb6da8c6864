use super::*;
use crate::{Destination, Host};

fn decision(verdict: EgressVerdict) -> EgressDecision {
    EgressDecision {
        way: EgressWay::Connect,
        destination: "a.test:443".to_owned(),
        addresses: vec![],
        rule: None,
        verdict,
        method: None,
        path: None,
        credential: None,
        within: None,
    }
}

fn rows() -> Vec<EgressRow> {
    let refused = EgressVerdict::Denied { reason: EgressRefusal::Port { allowed: vec![Port::HTTPS] } };
    let allowed = EgressDecision {
        addresses: vec!["192.0.2.1".parse().unwrap()],
        rule: Some("allow-1".to_owned()),
        ..decision(EgressVerdict::Allowed)
    };
    let within = EgressDecision {
        way: EgressWay::Intercepted,
        method: Some("GET".to_owned()),
        path: Some("/repos".to_owned()),
        credential: Some("github".to_owned()),
        within: Some(1),
        ..decision(EgressVerdict::Allowed)
    };
    let end = EgressEnd {
        address: Some("192.0.2.1:443".parse().unwrap()),
        sent: 517,
        received: 4096,
        duration_ms: 12,
        failure: Some("it broke off".to_owned()),
    };
    vec![
        EgressRow::Opened {
            format: EGRESS_LOG_FORMAT,
            run: RunId::new(7),
            opened_at_ms: 1,
            policy: Digest::of(b"rules"),
            listeners: vec!["127.0.0.1:3128".to_owned()],
            enforcement: Enforcement::Enforced,
        },
        EgressRow::Decided { seq: 1, at_ms: 5, decision: allowed, enforcement: Enforcement::Enforced },
        EgressRow::Decided {
            seq: 2,
            at_ms: 6,
            decision: decision(refused),
            enforcement: Enforcement::Enforced,
        },
        EgressRow::Decided { seq: 3, at_ms: 6, decision: within, enforcement: Enforcement::Enforced },
        EgressRow::Finished { seq: 1, at_ms: 17, end },
        EgressRow::Closed { at_ms: 20, allowed: 2, denied: 1 },
    ]
}

fn write(rows: &[EgressRow]) -> (String, EgressChain) {
    rows.iter().fold((String::new(), EgressChain::START), |(text, chain), row| {
        let (line, chain) = chain.line(&serde_json::to_string(row).unwrap());
        (text + &line, chain)
    })
}

fn state(text: &str) -> EgressLogState {
    read_egress_log(text, None).state
}

fn edited(line: usize, fault: EgressLogFault) -> EgressLogState {
    EgressLogState::Edited { line, fault }
}

#[test]
fn a_written_log_is_read_back() {
    let (text, chain) = write(&rows());
    let reading = read_egress_log(&text, chain.head());
    assert_eq!(reading, EgressLogReading { rows: rows(), state: EgressLogState::Complete });
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(Digest::parse(line["chain"].as_str().unwrap()).is_some(), "every line is one JSON object");
    }
}

/// A version that cannot say it does not take such a log for one of its own.
#[test]
fn a_log_that_is_not_enforced_is_never_complete() {
    let mut rows = self::rows();
    for row in &mut rows {
        if let EgressRow::Opened { enforcement, format, .. } = row {
            (*enforcement, *format) = (Enforcement::NotEnforced, Enforcement::NotEnforced.format());
        } else if let EgressRow::Decided { enforcement, .. } = row {
            *enforcement = Enforcement::NotEnforced;
        }
    }
    let (text, chain) = write(&rows);
    let reading = read_egress_log(&text, chain.head());
    assert_eq!(reading, EgressLogReading { rows, state: EgressLogState::Unenforced });
    assert_eq!(text.matches("\"enforcement\":\"not_enforced\"").count(), 4, "the opening and each decision");
    assert!(reading.state.describe().contains("did not use the proxy"));
    assert!(!write(&self::rows()).0.contains("enforcement"), "other logs are as they were");
    assert_eq!((Enforcement::Enforced.format(), Enforcement::NotEnforced.format()), (1, EGRESS_LOG_FORMAT));
}

#[test]
fn nothing_happened_and_nothing_was_watching_differ() {
    let closed = EgressRow::Closed { at_ms: 9, allowed: 0, denied: 0 };
    let (quiet, _) = write(&[rows()[0].clone(), closed]);
    assert_eq!(state(&quiet), EgressLogState::Complete);
    assert_eq!(state(""), EgressLogState::Absent);
    let (opened, _) = write(&rows()[..1]);
    assert_eq!(state(&opened), EgressLogState::Truncated);
}

#[test]
fn every_cut_is_seen() {
    let (text, chain) = write(&rows());
    for at in 1..text.len() {
        assert_eq!(state(&text[..at]), EgressLogState::Truncated, "cut at {at}");
        let found = read_egress_log(&text[..at], chain.head()).state;
        assert!(
            matches!(found, EgressLogState::Edited { fault: EgressLogFault::Head, .. }),
            "cut at {at}, and the record knows that it had an end: {found:?}"
        );
    }
    assert_eq!(read_egress_log("", chain.head()).state, edited(0, EgressLogFault::Head));
}

#[test]
fn every_changed_byte_is_seen() {
    let (text, _) = write(&rows());
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert_ne!(state(&changed), EgressLogState::Complete, "byte {at}");
    }
}

#[test]
fn lines_cannot_be_taken_out_or_moved() {
    let (text, _) = write(&rows());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for out in 1..lines.len() - 1 {
        let rest: String =
            lines.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, line)| *line).collect();
        assert_eq!(state(&rest), edited(out + 1, EgressLogFault::Chain));
    }
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    assert_eq!(state(&swapped.concat()), edited(2, EgressLogFault::Chain));
}

#[test]
fn a_new_chain_over_inconsistent_rows_is_detected() {
    let without = |out: usize| {
        let mut rows = rows();
        rows.remove(out);
        write(&rows).0
    };
    assert_eq!(state(&without(0)), edited(1, EgressLogFault::Order));
    assert_eq!(state(&without(1)), edited(2, EgressLogFault::Number));
    assert_eq!(state(&without(3)), edited(5, EgressLogFault::Counts));
    let mut doubled = rows();
    doubled.insert(1, doubled[0].clone());
    assert_eq!(state(&write(&doubled).0), edited(2, EgressLogFault::Order));
    let mut after = rows();
    after.push(after[5].clone());
    assert_eq!(state(&write(&after).0), edited(7, EgressLogFault::Order));
    let (text, _) = write(&rows());
    let head = Some(Digest::of(b"another"));
    assert_eq!(read_egress_log(&text, head).state, edited(6, EgressLogFault::Head));
}

#[test]
fn a_newer_log_is_refused_by_its_version_and_an_invalid_row_by_its_line() {
    let (text, _) = EgressChain::START.line(r#"{"kind":"begun","format":3}"#);
    assert_eq!(state(&text), EgressLogState::Newer { format: 3 });
    let (opened, chain) = write(&rows()[..1]);
    let (line, _) = chain.line(r#"{"kind":"decided","seq":1,"at_ms":0,"more":1}"#);
    assert_eq!(state(&(opened + &line)), edited(2, EgressLogFault::Row));
}

#[test]
fn fuzz_egress_log() {
    let (whole, _) = write(&rows());
    let everyday = std::time::Duration::from_millis(300);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        assert_ne!(state(&text), EgressLogState::Complete);
        assert_ne!(state(&format!("{whole}{text}")) == EgressLogState::Complete, !text.is_empty());
    });
}

#[test]
fn a_destination_reads_back() {
    let destination = Destination { host: Host::of("::1".parse().unwrap()), port: Port::HTTP };
    let text = serde_json::to_string(&destination).unwrap();
    assert_eq!(serde_json::from_str::<Destination>(&text).unwrap(), destination);
    assert!(serde_json::from_str::<Destination>("\"a.test\"").is_err());
    assert!(serde_json::from_str::<Port>("0").is_err());
}
