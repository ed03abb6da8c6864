//! A replay opens no network, unless the user agreed to the hosts and says so.

use super::{PLAIN, commands, listening, passed, refused, sending, suite};
use belljar_testkit::require;
use std::fs;
use std::path::Path;

#[test]
fn a_replay_dials_nothing_without_its_flag() {
    require!(Agent, Bwrap, Curl);
    let (port, arrived) = listening();
    let stage = suite(&format!("egress: {{extra_allow: ['127.0.0.1:{port}', one.example]}}\n"));
    stage.write("project/tests/in.txt", "something");
    let names = "curl -sS -m 20 https://one.example/ 2>&1; curl -sS -m 20 https://two.example/ 2>&1; true";
    commands(&stage, &format!("{names}; {}", sending("/etc/hostname", port)));
    let checks = "  - egress_denied: two.example\n  - egress_allowed: 127.0.0.1\n";
    let scenario = fs::read_to_string(stage.path("project/tests/a.yaml")).unwrap();
    let scenario =
        scenario.replace("assert: [{transcript_contains: all done}]\n", &format!("assert:\n{checks}"));
    stage.write("project/tests/a.yaml", &scenario);
    passed(&stage, &["record", "--scripted", "--yes", "tests/a.yaml"]);
    assert_eq!(arrived.lock().unwrap().drain(..).count(), 1, "the recording itself sends");

    // Without the flag the hosts need no agreement, and nothing arrives.
    let args = ["replay", "--json", "--on-drift", "continue", "tests/a.tape"];
    let found = stage.finish(&mut crate::cmd::record::with_agent(&stage, &args));
    assert_eq!(*arrived.lock().unwrap(), [""; 0], "{}", found.stdout);
    let envelope: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let row = &envelope["data"]["results"][0];
    let outcomes: Vec<&str> =
        row["checks"].as_array().unwrap().iter().map(|check| check["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["pass", "unknown"], "{row:#}");
    assert!(row["denied"].to_string().contains("--network"), "{row:#}");
    let log = fs::read_to_string(Path::new(row["directory"].as_str().unwrap()).join("egress.jsonl")).unwrap();
    for host in [&format!("127.0.0.1:{port}"), "one.example:443"] {
        let decided = log.lines().find(|line| line.contains("decided") && line.contains(host)).unwrap();
        assert!(decided.contains("\"is\":\"allowed\""), "the rules are decided on all the same: {decided}");
    }

    refused(&stage, &["replay", "--network", "tests/a.tape"], "egress to 127.0.0.1");
    assert_eq!(*arrived.lock().unwrap(), [""; 0]);
    let args = ["replay", "--network", "--yes", "--on-drift", "continue", "tests/a.tape"];
    stage.finish(&mut crate::cmd::record::with_agent(&stage, &args));
    assert_eq!(arrived.lock().unwrap().len(), 1, "with both it does");
}

#[test]
fn a_replay_without_isolation_is_refused_whether_the_network_is_open_or_not() {
    require!(Agent, Bwrap);
    let stage = suite(PLAIN);
    passed(&stage, &["record", "--scripted", "tests/a.yaml"]);
    let scenario = fs::read_to_string(stage.path("project/tests/a.yaml")).unwrap();
    stage.write("project/tests/a.yaml", format!("fidelity: protocol\n{scenario}"));
    for more in [&[][..], &["--network"]] {
        let args = [&["replay", "--yes", "tests/a.tape"], more].concat();
        let found = stage.finish(&mut crate::cmd::record::with_agent(&stage, &args));
        assert_eq!(found.status.code(), Some(4), "{}", found.stderr);
        assert!(found.stderr.contains("use `--backend bwrap`"), "{}", found.stderr);
        assert!(!found.stderr.contains("--network"), "no remedy that is refused as well: {}", found.stderr);
    }
    refused(&stage, &["replay", "--network", "tests/a.tape"], "backend `host`");
}
