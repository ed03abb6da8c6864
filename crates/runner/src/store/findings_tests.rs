use super::*;
use belljar_contract::{Scrubber, Secret};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

fn created(path: &str, class: Class) -> Created {
    Created { path: path.into(), class, since: Since::Appeared }
}

fn root() -> AbsPath {
    AbsPath::new("/p").unwrap()
}

#[test]
fn build_output_is_marked_as_such() {
    let watched = || Class::HostExecuted { grade: Grade::Watched, why: "a shim" };
    let guarded = || Class::HostExecuted { grade: Grade::Guarded, why: "a hook" };
    let of = |path: &str, class: Class| {
        let found = finding_of(&root(), created(path, class)).unwrap();
        (found.danger, found.output.map(|output| output.to_string()))
    };
    let output = Some("/p/web/node_modules".to_owned());
    assert_eq!(of("web/node_modules/a/node_modules/.bin/x", watched()), (Danger::BuildOutput, output));
    assert_eq!(of("web/bin/x", watched()), (Danger::Watched, None));
    // Not the directory itself, and no guarded file.
    assert_eq!(of("node_modules", watched()), (Danger::Watched, None));
    assert_eq!(of("node_modules/a/.git/hooks/x", guarded()), (Danger::Guarded, None));
    let link = Class::EscapingSymlink { target: "/etc/\u{1b}[2J".into() };
    let found = finding_of(&root(), created(".venv/bin/python", link)).unwrap();
    assert_eq!(found.danger, Danger::EscapingLink);
    assert_eq!(found.target.as_deref(), Some("/etc/\\u{1b}[2J"));
    assert!(finding_of(&root(), created("x", Class::Ordinary)).is_none());
}

#[test]
fn names_that_a_run_chose_are_redacted() {
    let secrets = [("A", Secret::new("a-secret-value")), ("P", Secret::new("/p/where-it-lies"))];
    let redact: Redact = Arc::new(Scrubber::new(secrets.iter().map(|(name, one)| (*name, one))).0);
    let of = |path: &str, project: &str| {
        let path = AbsPath::new(path).unwrap();
        redacted_path(path, &AbsPath::new(project).unwrap(), &redact).to_string()
    };
    assert_eq!(of("/p/.git/hooks/a-secret-value", "/p"), "/p/.git/hooks/[redacted:A]");
    assert_eq!(of("/p/where-it-lies/x", "/p/where-it-lies"), "/p/where-it-lies/x");
    assert_eq!(of("/p/where-it-lies/x", "/other"), "/[redacted:P]/x");
}

#[test]
fn values_that_are_not_text_are_redacted_in_names_and_targets() {
    let secret = Secret::new(&b"zq93-\xff\xfesecret"[..]);
    let redact: Redact = Arc::new(Scrubber::new([("C", &secret)]).0);
    let target = [b"/etc/", secret.expose()].concat();
    let target = PathBuf::from(OsStr::from_bytes(&target));
    let at = [b"a-", secret.expose()].concat();
    let at = PathBuf::from(OsStr::from_bytes(&at));
    let link = Created { path: at, class: Class::EscapingSymlink { target }, since: Since::Appeared };
    let found = redacted(finding_of(&root(), link).unwrap(), &root(), &redact);
    assert_eq!(found.target.as_deref(), Some("/etc/[redacted:C]"));
    assert_eq!(found.path.to_string(), "/p/a-[redacted:C]");
    let branch = visible_name(OsStr::from_bytes(secret.expose()));
    assert_eq!(redact.scrub(&branch), "[redacted:C]");
}

#[test]
fn many_places_are_counted() {
    let places = |count: usize| -> Vec<String> { (0..count).map(|at| at.to_string()).collect() };
    assert_eq!(few(places(5)), places(5));
    let shown = few(places(10_000));
    assert_eq!((shown.len(), shown[4].as_str()), (6, "4"));
    assert!(shown[5].starts_with("9995 more paths"), "{shown:?}");
    assert_eq!(few(vec!["long/".repeat(1000)])[0].chars().count(), 301);
}

#[test]
fn a_list_is_private_and_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = FindingsStore::new(&AbsPath::new(directory.path()).unwrap());
    assert_eq!(store.list().unwrap(), []);
    let link = Class::EscapingSymlink { target: "/etc".into() };
    let findings = Findings {
        format: FINDINGS_FORMAT,
        agent: belljar_contract::AgentName::new("a").unwrap(),
        project: root(),
        at_ms: 1_700_000_000_000,
        items: vec![finding_of(&root(), created("out", link)).unwrap()],
        held: Vec::new(),
        dropped: 0,
    };
    let name = store.write(&findings, None).unwrap();
    let list = store.list().unwrap();
    assert_eq!(list.iter().map(|entry| &entry.name).collect::<Vec<_>>(), [&name]);
    assert_eq!(store.read(&list[0]).unwrap(), findings);
    let mode = |path: &AbsPath| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&list[0].path), mode(store.directory())), (0o600, 0o700));
    fs::write(&list[0].path, "{\"format\": 2}").unwrap();
    assert!(store.read(&list[0]).is_err());
}
