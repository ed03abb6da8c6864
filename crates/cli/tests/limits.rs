//! Limits that hold without being asked for, and what is said when one is reached.

use crate::cmd::record::{bash, data, main_turn, scenario, script, with_agent};
use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program, run_within};
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn sh(stage: &Stage, text: &str) -> Finished {
    stage.run(&["exec", "--yes", "--", "sh", "-c", text])
}

/// Fills every directory that can be written in memory until nothing fits any more, and prints the sum in KiB.
const FILL: &str = "sum=0
for place in /tmp /dev/shm /dev /run /var/tmp \"$HOME\"; do
  head -c 1G /dev/zero > \"$place/fill\" 2>/dev/null
  size=$(du -k \"$place/fill\" 2>/dev/null | cut -f1)
  sum=$((sum + ${size:-0}))
done
echo $sum";

#[test]
fn all_file_systems_in_memory_share_one_limit() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nlimits = { tmpfs = \"64M\" }\n");
    let found = sh(&stage, FILL);
    let kib: u64 = found.stdout.trim().parse().unwrap_or_else(|_| panic!("{found:?}"));
    assert!((32 << 10..=64 << 10).contains(&kib), "{kib} KiB fit into 64 MiB");
    assert!(
        found.stderr.contains("belljar: the tmpfs limit of 64M was reached (limits.tmpfs)"),
        "{}",
        found.stderr
    );
    // Names take memory of the kernel, too.
    let names = sh(
        &stage,
        "i=0; while true > /tmp/$i; do i=$((i+1)); [ $i -lt 100000 ] || break; done 2>/dev/null; echo $i",
    );
    let names: u64 = names.stdout.trim().parse().unwrap_or(u64::MAX);
    assert!(names < 10_000, "{names} files fit");
}

#[test]
fn without_a_word_memory_and_processes_are_limited() {
    require!(Bwrap);
    let stage = Stage::new();
    let found = sh(&stage, "df -k --output=size / /dev/shm | tail -n +2 | tr -d ' '");
    let sizes: Vec<u64> = found.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let memory = memory.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    assert!(sizes.iter().sum::<u64>() <= memory / 2, "{sizes:?} of {memory}");
    // A fork bomb ends at its own limit, not at the machine's.
    let bomb = "i=0; while [ $i -lt 5000 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; echo unbounded";
    let found = sh(&stage, bomb);
    assert!(!found.stdout.contains("unbounded"), "{found:?}");
    assert!(
        found.stderr.contains("belljar: the process limit of 4096 was reached (limits.pids)"),
        "{}",
        found.stderr
    );
    let plan = stage.json(&["plan", "--json"]);
    let defaults = plan["data"]["default_limits"].as_array().unwrap();
    let kinds: Vec<&Value> = defaults.iter().map(|row| &row["limit"]).collect();
    assert_eq!(kinds, [&json!("tmpfs"), &json!("pids"), &json!("time")], "{defaults:#?}");
    assert!(defaults.iter().all(|row| row["enforced"] == json!(true)), "{defaults:#?}");
    let page = stage.run(&["plan"]).stdout;
    assert!(page.contains("pids") && page.contains("4096") && page.contains("default; "), "{page}");
}

#[test]
fn a_default_is_declared_away_and_the_plan_says_so() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nlimits = { tmpfs = \"none\", pids = \"none\", time = \"none\" }\n");
    let plan = stage.json(&["plan", "--json"]);
    assert_eq!(plan["data"]["default_limits"], json!([]));
    assert_eq!(plan["data"]["plan"]["limits"]["unlimited"], json!(["pids", "time", "tmpfs"]));
    assert!(stage.run(&["plan"]).stdout.contains("declared without a limit"));
    let found = sh(
        &stage,
        "i=0; while [ $i -lt 4500 ]; do sleep 5 & i=$((i+1)); done; echo $i; kill $(jobs -p) 2>/dev/null",
    );
    assert!(found.stdout.contains("4500"), "{}", found.stderr);
}

#[test]
fn a_plan_names_the_limits_that_a_start_is_refused_for() {
    let stage = Stage::with("[agents.a]\nlimits = { memory = \"1G\", tmpfs = \"64M\", time = \"1h\" }\n");
    let args = ["plan", "--backend", "host", "--json"];
    let refusals = |plan: &Value| -> Vec<String> {
        let advice = plan["data"]["advice"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        advice.filter(|line| line.starts_with("a start is refused")).map(str::to_owned).collect()
    };
    let found = refusals(&stage.json(&args));
    assert!(
        found.len() == 2 && found[0].contains("memory") && found[1].contains("without a sandbox"),
        "{found:?}"
    );
    assert!(stage.run(&["plan", "--backend", "host"]).stdout.contains("! a start is refused"));
    let start = stage.run(&["exec", "--yes", "--backend", "host", "--", "true"]);
    assert_eq!(start.status.code(), Some(125), "{}", start.stderr);
    let unlimited = Stage::with("[agents.a]\nlimits = { time = \"1h\" }\n");
    let plan = unlimited.json(&args);
    assert_eq!(refusals(&plan), [""; 0]);
    let defaults = plan["data"]["default_limits"].as_array().unwrap();
    assert!(defaults.iter().all(|row| row["enforced"] == json!(false)), "{defaults:#?}");
}

#[test]
fn a_reached_memory_limit_is_said() {
    require!(Bwrap, Cgroups, Python);
    let stage = Stage::with("[agents.a]\nlimits = { memory = \"96M\" }\n");
    let found = stage.run(&["exec", "--yes", "--", "python3", "-c", "x = bytearray(1 << 30)"]);
    assert_eq!(found.status.code(), Some(137), "{}", found.stderr);
    assert!(
        found.stderr.contains("belljar: the memory limit of 96M was reached (limits.memory)"),
        "{}",
        found.stderr
    );
    let found = stage.run(&["exec", "--yes", "--", "true"]);
    assert!(!found.stderr.contains("was reached"), "{}", found.stderr);
}

#[test]
fn a_reached_process_limit_is_said() {
    require!(Bwrap, Cgroups);
    let stage = Stage::with("[agents.a]\nlimits = { pids = 20 }\n");
    let found = sh(&stage, "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done");
    assert!(
        found.stderr.contains("belljar: the process limit of 20 was reached (limits.pids)"),
        "{}",
        found.stderr
    );
}

#[test]
fn a_scenario_ends_at_the_time_of_the_command_line() {
    require!(Agent, Bwrap);
    let stage = scenario(&script(&[main_turn(&json!([bash("tail -f /dev/null")]))]));
    let args = ["test", "--json", "--scripted", "--timeout", "3s", "scenarios/hello.yaml"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    let data = data(&found);
    assert_eq!(found.status.code(), Some(6), "{data:#}{}", found.stderr);
    let row = &data["results"][0];
    assert_eq!(row["limits_reached"], json!([{"limit": "time", "value": "3s"}]), "{row:#}");
    assert_eq!(row["signals"][0]["message"], "a limit ended the run: time", "{row:#}");
}

#[test]
fn a_scenario_records_the_default_time_and_a_full_file_system() {
    require!(Agent, Bwrap);
    let call = bash("head -c 100G /dev/zero > /dev/shm/fill; echo full");
    let turns = script(&[main_turn(&json!([call])), main_turn(&json!([{"text": "all done"}]))]);
    let stage = scenario(&turns);
    let found =
        stage.finish(&mut with_agent(&stage, &["test", "--json", "--scripted", "scenarios/hello.yaml"]));
    let row = data(&found)["results"][0].clone();
    assert_eq!(found.status.code(), Some(0), "the agent went on: {row:#}{}", found.stderr);
    assert_eq!(row["limits_reached"][0]["limit"], "tmpfs", "{row:#}");
    let signals = row["signals"].as_array().unwrap();
    assert!(signals.iter().any(|signal| signal["code"] == "limit_reached"), "{row:#}");
    let directory = std::path::PathBuf::from(row["directory"].as_str().unwrap());
    let events = fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains("\"limit\":\"time\",\"value\":\"1h\""), "{events}");
    assert!(events.contains("\"limit_reached\""), "{events}");
}

#[test]
fn a_scenario_records_the_default_process_limit() {
    require!(Agent, Bwrap);
    // The shell that meets the limit ends, and leaves its children behind.
    let call = bash(
        "sh -c 'i=0; while [ $i -lt 5000 ]; do sleep 600 & i=$((i+1)); done' </dev/null >/dev/null 2>&1; echo met",
    );
    let turns = script(&[main_turn(&json!([call])), main_turn(&json!([{"text": "all done"}]))]);
    let stage = scenario(&turns);
    let found =
        stage.finish(&mut with_agent(&stage, &["test", "--json", "--scripted", "scenarios/hello.yaml"]));
    let row = data(&found)["results"][0].clone();
    assert_eq!(row["limits_reached"], json!([{"limit": "pids", "value": "4096"}]), "{row:#}{}", found.stderr);
    assert!(row["signals"].as_array().unwrap().iter().any(|one| one["code"] == "limit_reached"), "{row:#}");
    let directory = std::path::PathBuf::from(row["directory"].as_str().unwrap());
    let events = fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains("\"kind\":\"limit_reached\",\"limit\":\"pids\""), "{events}");
}

/// The sockets of allowed hosts come to belljar as descriptors.
#[test]
fn too_few_open_files_are_an_error_at_once() {
    require!(Bwrap);
    let stage = Stage::new();
    let hosts: Vec<String> = (0..40).map(|number| format!("\"h{number}.test\"")).collect();
    let manifest = format!("[agents.default]\negress.allow = [{}]\n", hosts.join(", "));
    stage.write("project/belljar.toml", manifest);
    let belljar = env!("CARGO_BIN_EXE_belljar");
    let within = |limit: u64| {
        let line = format!("ulimit -n {limit}; exec {belljar} exec --yes -- sh -c 'ulimit -n'");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
        stage.finish(&mut command)
    };
    // Each names what the guest answered, so none waited for an answer that was lost.
    for limit in [28, 48, 56, 60] {
        let few = within(limit);
        assert_eq!(few.status.code(), Some(125), "{limit}: {}", few.stderr);
        assert!(few.stderr.contains("the limit of open files is too low"), "{limit}: {}", few.stderr);
        assert!(few.stderr.contains("ulimit -n 1024"), "{limit}: {}", few.stderr);
    }
    let enough = within(200);
    assert_eq!((enough.status.code(), enough.stdout.trim()), (Some(0), "200"), "{}", enough.stderr);
}

#[test]
fn allowed_hosts_without_an_address_are_said() {
    let stage = Stage::new();
    let hosts: Vec<String> = (100..200).map(|number| format!("\"h{number}.test\"")).collect();
    let manifest = format!("[agents.default]\negress.allow = [{}]\n", hosts.join(", "));
    stage.write("project/belljar.toml", manifest);
    let found = stage.run(&["check"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("4 of the allowed hosts, from `h196.test` on"), "{}", found.stderr);
}

/// Every connection of the agent takes two descriptors outside; inside, the limit is the user's.
#[test]
fn the_egress_services_may_open_many_files_and_the_command_as_many_as_before() {
    require!(Bwrap);
    let stage = Stage::with("[agents.default]\negress.allow = [\"a.test\"]\n");
    let line = format!(
        "ulimit -Sn 100; exec {} exec --yes -- sh -c 'ulimit -Sn; read end'",
        env!("CARGO_BIN_EXE_belljar")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let mut belljar = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut inside = String::new();
    let mut output = BufReader::new(belljar.stdout.take().unwrap());
    output.read_line(&mut inside).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", belljar.id())).unwrap();
    drop(belljar.stdin.take());
    belljar.wait().unwrap();
    assert_eq!(inside.trim(), "100");
    let row = limits.lines().find(|row| row.starts_with("Max open files")).unwrap();
    let soft: u64 = row.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft >= 1024, "{row}");
}

/// Adds keys until the kernel refuses, then runs a command with what is left. The kernel counts a new session keyring only
/// where there was one before, as after a login.
const USES_UP_KEYS: &str = r#"import ctypes, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[__import__("platform").machine()]
libc.syscall(keyctl, 1, None)
for number in range(100000):
    if libc.syscall(add_key, b"user", b"n%d" % number, b"v", 1, -2) < 0:
        break
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"#;

#[test]
fn a_used_up_key_quota_is_an_error_with_a_remedy() {
    const USER: &str = "4251";
    require!(Bwrap, Python, Root);
    let stage = Stage::new();
    ["bin", "run", "tmp"].iter().for_each(|name| fs::create_dir(stage.path(name)).unwrap());
    copy_program(Path::new(env!("CARGO_BIN_EXE_belljar")), &stage.path("bin/belljar")).unwrap();
    let owned = Command::new("chown").args(["-R", USER]).arg(stage.path("")).status().unwrap();
    assert!(owned.success());
    fs::set_permissions(stage.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
    let belljar = stage.path("bin/belljar").display().to_string();
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
    command.args(["--clear-groups", "python3", "-c", USES_UP_KEYS, &belljar, "exec", "--yes", "--", "true"]);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    command.env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", stage.path("run"));
    command.env("TMPDIR", stage.path("tmp")).stdin(Stdio::null());
    let found = run_within(&mut command, Duration::from_secs(60)).unwrap();
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains("hint: every sandbox needs a key of its own"), "{}", found.stderr);
    assert!(found.stderr.contains("kernel.keys.maxkeys"), "{}", found.stderr);
}
