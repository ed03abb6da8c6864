use crate::stage::Stage;
use belljar_testkit::{agent, require};

#[test]
fn names_each_finding_and_the_fix_of_what_is_missing() {
    require!(Bwrap);
    let stage = Stage::new();
    let page = stage.run(&["doctor"]);
    assert_eq!(page.status.code(), Some(4), "there is no agent on this path: {}", page.stdout);
    for part in ["bubblewrap", "user namespaces", "a sandbox"] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    let json = stage.json(&["doctor", "--json"]);
    assert_eq!((json["ok"].as_bool(), json["exit_code"].as_u64()), (Some(false), Some(4)), "{json}");
    let found = stage.finish(stage.command(&["doctor"]).env("PATH", "/nowhere"));
    assert!(found.stdout.contains("apt install bubblewrap"), "{}", found.stdout);
}

#[test]
fn the_version_of_the_agent_is_reported_and_whether_it_is_tested() {
    require!(Agent, AgentNext, Bwrap);
    let stage = Stage::new();
    for (program, version) in [(agent::real(), agent::VERSION), (agent::next(), agent::NEXT_VERSION)] {
        let directory = program.unwrap().parent().unwrap().display().to_string();
        let page = stage.finish(stage.command(&["doctor"]).env("PATH", format!("{directory}:/usr/bin:/bin")));
        assert!(page.stdout.contains(&format!("{version}, tested, ")), "{}", page.stdout);
    }
}
