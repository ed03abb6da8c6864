use super::*;
use belljar_contract::{EgressLogState, EgressWay, read_egress_log};

/// A disk with room for this many bytes.
#[derive(Clone)]
struct Disk {
    written: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Disk {
    fn new(room: usize) -> Self {
        Self { written: Arc::default(), room }
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.written.lock().unwrap();
        let taken = bytes.len().min(self.room - written.len());
        if taken == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn opening(limit: u64) -> LogOpening {
    LogOpening {
        run: RunId::new(7),
        opened_at_ms: 1,
        policy: Digest::of(b""),
        listeners: vec!["127.0.0.1:3128".to_owned()],
        enforcement: Enforcement::Enforced,
        limit,
    }
}

fn open(disk: &Disk, limit: u64) -> Result<Arc<EgressLog>, LogError> {
    EgressLog::open(disk.clone(), opening(limit), Arc::new(|text| text.replace("hush", "[redacted:key]")))
}

fn decision(destination: &str, verdict: EgressVerdict) -> EgressDecision {
    EgressDecision {
        way: EgressWay::Http,
        destination: destination.to_owned(),
        addresses: vec![],
        rule: None,
        verdict,
        method: None,
        path: None,
        credential: None,
        within: None,
    }
}

fn end() -> EgressEnd {
    EgressEnd { address: None, sent: 1, received: 2, duration_ms: 3, failure: Some("hush".to_owned()) }
}

#[test]
fn a_log_from_beginning_to_end() {
    let disk = Disk::new(1 << 20);
    let log = open(&disk, LOG_LIMIT).unwrap();
    assert_eq!(log.decide(decision("a.test:80", EgressVerdict::Allowed)), Ok(1));
    let refused = EgressVerdict::Denied { reason: EgressRefusal::NotAllowed };
    assert_eq!(log.decide(decision("b.test:80", refused)), Ok(2));
    assert_eq!(log.finish(1, end()), Ok(()));
    let summary = log.close().unwrap();
    assert_eq!((summary.allowed, summary.denied), (1, 1));
    let reading = read_egress_log(&disk.text(), summary.head);
    assert_eq!((reading.state, reading.rows.len()), (EgressLogState::Complete, 5));
    assert_eq!(log.decide(decision("c.test:80", EgressVerdict::Allowed)), Err(LogError::Closed));
    assert_eq!(log.close(), Err(LogError::Closed));
}

#[test]
fn secrets_are_replaced_in_every_free_text() {
    let disk = Disk::new(1 << 20);
    let log = open(&disk, LOG_LIMIT).unwrap();
    for reason in [
        EgressRefusal::Malformed { what: "hush".to_owned() },
        EgressRefusal::Sni { found: Some("hush.test".to_owned()) },
        EgressRefusal::Request { what: "hush".to_owned() },
    ] {
        let mut decision = decision("hush.test:80", EgressVerdict::Denied { reason });
        decision.method = Some("hush".to_owned());
        decision.path = Some("/hush".to_owned());
        log.decide(decision).unwrap();
    }
    log.finish(1, end()).unwrap();
    log.close().unwrap();
    assert!(!disk.text().contains("hush"), "{}", disk.text());
    assert_eq!(read_egress_log(&disk.text(), None).state, EgressLogState::Complete);
}

#[test]
fn a_full_disk_ends_egress_for_good() {
    let whole = Disk::new(1 << 20);
    open(&whole, LOG_LIMIT).unwrap();
    let first = whole.text().len();
    assert!(open(&Disk::new(first - 1), LOG_LIMIT).is_err(), "nothing starts without its first row");
    let mut disk = Disk::new(first + 20);
    let log = open(&disk, LOG_LIMIT).unwrap();
    assert!(log.decide(decision("a.test:80", EgressVerdict::Allowed)).is_err());
    disk.room = 1 << 20;
    assert!(log.decide(decision("a.test:80", EgressVerdict::Allowed)).is_err(), "a gap cannot be mended");
    assert!(log.close().is_err());
    assert!(matches!(log.failure(), Some(LogError::Write(_))));
    assert_eq!(read_egress_log(&disk.text(), None).state, EgressLogState::Truncated);
}

#[test]
fn the_log_has_a_size_limit() {
    let disk = Disk::new(1 << 20);
    let log = open(&disk, 4096).unwrap();
    let refused = || EgressVerdict::Denied { reason: EgressRefusal::NotAllowed };
    let count = (0..100).take_while(|_| log.decide(decision("b.test:80", refused())).is_ok()).count();
    assert!(count > 5 && count < 50, "{count}");
    assert!(disk.text().len() <= 4096);
    assert_eq!(log.failure(), Some(LogError::Limit(4096)));
}
