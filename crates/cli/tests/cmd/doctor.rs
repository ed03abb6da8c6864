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
    require!(Agent, AgentOlder, Bwrap);
    let stage = Stage::new();
    for (program, version) in [(agent::real(), agent::VERSION), (agent::older(), agent::OLDER_VERSION)] {
        let directory = program.unwrap().parent().unwrap().display().to_string();
        let page = stage.finish(stage.command(&["doctor"]).env("PATH", format!("{directory}:/usr/bin:/bin")));
        assert!(page.stdout.contains(&format!("{version}, tested, ")), "{}", page.stdout);
    }
}

#[test]
fn a_full_directory_is_named_with_the_remedy() {
    require!(UserNs);
    let stage = Stage::new();
    let state = stage.path("home/.local/state");
    std::fs::create_dir_all(&state).unwrap();
    // A file system of its own that is full, in a mount namespace that ends with the command.
    let full = "mount -t tmpfs -o size=64k none \"$1\" && { head -c 1M /dev/zero > \"$1/fill\" 2>/dev/null; shift; exec \"$@\"; }";
    let mut command = std::process::Command::new("/usr/bin/unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", full, "sh"]).arg(&state);
    command.arg(env!("CARGO_BIN_EXE_belljar")).args(["doctor", "--json"]);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let found = stage.finish(&mut command);
    let json: serde_json::Value = serde_json::from_str(&found.stdout).unwrap_or_else(|_| panic!("{found:?}"));
    let rows = json["data"]["checks"].as_array().unwrap_or_else(|| panic!("{json:#}"));
    let row = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!(row("data directory")["state"], "good", "{json:#}");
    assert_eq!(row("state directory")["state"], "bad", "{json:#}");
    assert!(row("state directory")["fix"].to_string().contains("belljar gc"), "{json:#}");
}
