//! `belljar agent`, against a registry that the test serves.

mod registry;
pub mod used;

use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use registry::{Answer, PACKAGE, Proxy, Registry, archive, archive_at, at, integrity, platform_package};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use tar::EntryType;

const FILE: EntryType = EntryType::Regular;
const PROGRAM: &[u8] = b"#!/bin/sh\necho 2.1.3 \\(Claude Code\\)\n";

/// Puts a version into the store without an installation.
pub fn planted(stage: &Stage, version: &str) {
    let at = format!("data/belljar/agents/claude-code/{version}");
    stage.write(&format!("{at}/claude"), PROGRAM);
    fs::set_permissions(stage.path(&at).join("claude"), fs::Permissions::from_mode(0o555)).unwrap();
    let description = json!({
        "format": 1, "name": "claude-code", "version": version, "package": platform_package(),
        "integrity": integrity(b""), "installed_at_ms": 0,
        "program": belljar_contract::Digest::of(PROGRAM), "bytes": PROGRAM.len(),
    });
    stage.write(&format!("{at}/agent.json"), description.to_string());
}

fn command(stage: &Stage, registry: &Registry, arguments: &[&str]) -> Command {
    let mut command = stage.command(&[&["agent"], arguments].concat());
    command.env("npm_config_registry", registry.url());
    command
}

fn run(stage: &Stage, registry: &Registry, arguments: &[&str]) -> Finished {
    stage.finish(&mut command(stage, registry, arguments))
}

/// Everything in the store, except the directories of agents.
fn stored(stage: &Stage) -> Vec<String> {
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(stage.path(path)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let mut out = names("data/belljar/agents");
    out.retain(|name| name != "claude-code");
    out.extend(names("data/belljar/agents/claude-code"));
    out.sort();
    out
}

#[track_caller]
fn refused(found: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(found.status.code(), Some(code), "{found:?}");
    for part in parts {
        assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
    }
}

#[test]
fn a_version_is_installed_listed_and_removed() {
    let (stage, registry) = (Stage::new(), Registry::start());
    registry.publish(&["2.1.2", "2.1.3"], PROGRAM);
    let found = run(&stage, &registry, &["install", "claude-code"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(found.stdout.starts_with("installed claude-code@2.1.3 ("), "{found:?}");
    assert!(found.stderr.starts_with("belljar: fetching claude-code …\n"), "{found:?}");
    let program = stage.path("data/belljar/agents/claude-code/2.1.3/claude");
    assert_eq!(fs::read(&program).unwrap(), PROGRAM);
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o555);
    assert_eq!(stored(&stage), ["2.1.3"]);

    // From here on no registry is needed.
    let asked = registry.heard().len();
    let again = run(&stage, &registry, &["install", "claude-code@2.1.3", "--json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["data"]["installed"][0]["outcome"], "there");
    let list = stage.json(&["agent", "list", "--json"]);
    let agents = list["data"]["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1, "{list:#}");
    assert_eq!((&agents[0]["version"], &agents[0]["path"]), (&json!("2.1.3"), &json!(program)));
    assert_eq!((&agents[0]["last_used_ms"], &agents[0]["in_use"]), (&Value::Null, &json!(false)));
    let which = stage.run(&["agent", "which", "claude-code@2.1.3"]);
    assert_eq!(which.stdout, format!("{}\n", program.display()));
    refused(
        &stage.run(&["agent", "which", "claude-code@2.1.2"]),
        2,
        &["is not installed", "hint: belljar agent install claude-code@2.1.2"],
    );

    let lock = File::open(program.with_file_name("lock")).unwrap();
    lock.lock_shared().unwrap();
    refused(&stage.run(&["agent", "remove", "claude-code@2.1.3"]), 2, &["is in use by a run"]);
    drop(lock);
    assert_eq!(stage.run(&["agent", "remove", "claude-code@2.1.3"]).status.code(), Some(0));
    assert!(stored(&stage).is_empty());
    refused(&stage.run(&["agent", "remove", "claude-code@latest"]), 2, &["is not a version"]);
    assert_eq!(registry.heard().len(), asked);
}

#[test]
fn the_agent_on_the_path_is_named_with_its_version() {
    let stage = Stage::new();
    stage.write("bin/claude", PROGRAM);
    fs::set_permissions(stage.path("bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = stage.command(&["agent", "which", "claude-code"]);
    let path = format!("{}:/usr/bin:/bin", stage.path("bin").display());
    let found = stage.finish(command.env("PATH", path));
    assert_eq!(found.stdout, format!("{}\n", stage.path("bin/claude").display()));
    assert_eq!(found.stderr, "It is on your PATH: version 2.1.3.\n");
    refused(
        &stage.run(&["agent", "which", "claude-code"]),
        2,
        &["is not on your PATH", "hint: put `claude` on PATH, or name a version"],
    );
    refused(&stage.run(&["agent", "which", "claude-cod"]), 2, &["hint: did you mean `claude-code`?"]);
}

/// An agent in the home is no file of a project, unless the home was checked out.
#[test]
fn the_home_itself_is_not_a_project() {
    let stage = Stage::new();
    stage.write("home/bin/claude", PROGRAM);
    fs::set_permissions(stage.path("home/bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let which = || {
        let mut command = stage.command(&["agent", "which", "claude-code"]);
        command.current_dir(stage.path("home"));
        let path = format!("{}:/usr/bin:/bin", stage.path("home/bin").display());
        stage.finish(command.env("PATH", path)).stderr
    };
    assert_eq!(which(), "It is on your PATH: version 2.1.3.\n");
    assert!(Command::new("git").args(["init", "-q"]).arg(stage.path("home")).status().unwrap().success());
    assert_eq!(which(), "It is on your PATH: an unknown version.\n");
}

#[test]
fn a_damaged_version_is_named_and_can_be_removed() {
    for lost in ["agent.json", "claude"] {
        let (stage, registry) = (Stage::new(), Registry::start());
        registry.publish(&["2.1.3"], PROGRAM);
        assert_eq!(run(&stage, &registry, &["install", "claude-code@2.1.3"]).status.code(), Some(0));
        let directory = stage.path("data/belljar/agents/claude-code/2.1.3");
        fs::remove_file(directory.join(lost)).unwrap();
        let hint =
            "hint: `belljar agent remove claude-code@2.1.3`, then `belljar agent install claude-code@2.1.3`";
        for (verb, code) in [("which", 2), ("install", 4)] {
            refused(&run(&stage, &registry, &[verb, "claude-code@2.1.3"]), code, &["is damaged", hint]);
        }
        let found = run(&stage, &registry, &["remove", "claude-code@2.1.3"]);
        assert_eq!(found.stdout, "removed claude-code@2.1.3 (damaged)\n", "{found:?}");
        assert!(stored(&stage).is_empty(), "{:?}", stored(&stage));
        assert_eq!(run(&stage, &registry, &["install", "claude-code@2.1.3"]).status.code(), Some(0));
    }
}

#[test]
fn available_versions_are_listed_newest_first() {
    let (stage, registry) = (Stage::new(), Registry::start());
    registry.publish(&["2.1.2", "2.1.10"], PROGRAM);
    let found = run(&stage, &registry, &["list", "--available", "--json"]);
    let list: Value = serde_json::from_str(&found.stdout).unwrap();
    let versions: Vec<&Value> =
        list["data"]["available"].as_array().unwrap().iter().map(|entry| &entry["version"]).collect();
    assert_eq!(versions, ["2.1.10", "2.1.2"]);
    assert_eq!(list["data"]["available"][0]["tags"], json!(["latest"]));
    let text = run(&stage, &registry, &["list", "--available"]).stdout;
    assert!(text.contains("claude-code  2.1.10   2026-11-15 22:30  latest"), "{text}");
}

#[test]
fn an_archive_that_is_not_what_was_published_is_not_installed() {
    let whole = archive(&[("package/claude", FILE, PROGRAM)]);
    let cases: [(Value, Answer, i32, &str); 4] = [
        (json!(integrity(b"another")), Answer::Whole(whole.clone()), 4, "does not have the integrity"),
        (json!("sha1-gHks7ckAGbImVY3qbRDG9/A/Kcw="), Answer::Whole(whole.clone()), 4, "no SHA-512 integrity"),
        (Value::Null, Answer::Whole(whole.clone()), 4, "no SHA-512 integrity"),
        (
            json!(integrity(&whole)),
            Answer::Claims(whole[..whole.len() / 2].to_vec(), whole.len() as u64),
            4,
            "ended before it was complete",
        ),
    ];
    for (integrity, answer, code, why) in cases {
        let (stage, registry) = (Stage::new(), Registry::start());
        registry.publish_archive(&["2.1.3"], &whole, integrity);
        registry.put(&archive_at("2.1.3"), answer);
        refused(&run(&stage, &registry, &["install", "claude-code"]), code, &[why]);
        assert!(stored(&stage).is_empty(), "{why}: {:?}", stored(&stage));
    }
}

#[test]
fn a_hostile_archive_is_not_unpacked() {
    for (name, kind, why) in [
        ("../../../../claude", FILE, "leads out of it"),
        ("/tmp/claude", FILE, "leads out of it"),
        ("package/link", EntryType::Symlink, "a symbolic link"),
        ("package/link", EntryType::Link, "a hard link"),
        ("package/claude", FILE, "twice"),
    ] {
        let (stage, registry) = (Stage::new(), Registry::start());
        let bytes = archive(&[("package/claude", FILE, PROGRAM), (name, kind, b"")]);
        registry.publish_archive(&["2.1.3"], &bytes, json!(integrity(&bytes)));
        refused(&run(&stage, &registry, &["install", "claude-code"]), 4, &["is refused", why]);
        assert!(stored(&stage).is_empty(), "{name}: {:?}", stored(&stage));
    }
}

#[test]
fn metadata_that_cannot_be_used_is_named() {
    let stage = Stage::new();
    for (answer, why) in [
        (Answer::Whole(b"<html>".to_vec()), "the metadata of @anthropic-ai/claude-code is not valid"),
        (Answer::Claims(b"{}".to_vec(), 65 << 20), "is larger than"),
        (Answer::Redirect("ftp://127.0.0.1/x".to_owned()), "redirects to an address that is not a URL"),
    ] {
        let registry = Registry::start();
        registry.put(&at(PACKAGE), answer);
        refused(&run(&stage, &registry, &["install", "claude-code"]), 4, &[why]);
    }
    let registry = Registry::start();
    refused(&run(&stage, &registry, &["install", "claude-code"]), 4, &["answered with status 404"]);
}

#[test]
fn a_missing_version_names_the_nearest() {
    let (stage, registry) = (Stage::new(), Registry::start());
    registry.publish(&["2.1.2", "2.1.10"], PROGRAM);
    let found = run(&stage, &registry, &["install", "claude-code@2.1.9"]);
    refused(&found, 2, &["has no version `2.1.9`", "hint: the nearest is `2.1.2`"]);
    refused(&run(&stage, &registry, &["install", "claude-code@lates"]), 2, &["the nearest is `latest`"]);
}

#[test]
fn a_platform_without_a_package_is_named() {
    let (stage, registry) = (Stage::new(), Registry::start());
    registry.publish(&["2.1.3"], PROGRAM);
    let other = json!({"versions": {"2.1.3": {"os": ["linux"], "cpu": ["mips"]}}});
    for package in [platform_package(), format!("{PACKAGE}-darwin-arm64")] {
        registry.put(&at(&package), Answer::Whole(other.to_string().into_bytes()));
    }
    let found = run(&stage, &registry, &["install", "claude-code@2.1.3"]);
    refused(&found, 4, &["claude-code 2.1.3 has no package for linux "]);
}

#[test]
fn a_registry_that_is_absent_or_silent_is_given_up() {
    let stage = Stage::new();
    let mut install = stage.command(&["agent", "install", "claude-code"]);
    let found = stage.finish(install.env("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/"));
    refused(&found, 4, &["cannot connect to 127.0.0.1:1", "hint: the registry is the one of ~/.npmrc"]);

    let registry = Registry::start();
    registry.publish(&["2.1.3"], PROGRAM);
    registry.put(&archive_at("2.1.3"), Answer::Stalls(archive(&[("package/claude", FILE, PROGRAM)])));
    let mut install = command(&stage, &registry, &["install", "claude-code"]);
    // Everything else of the registry takes its time on a busy machine.
    let found = stage.finish(install.env("npm_config_fetch_timeout", "3000"));
    refused(&found, 4, &["sent nothing for 3s", "hint: try again"]);
    assert!(stored(&stage).is_empty());
}

#[test]
fn a_token_goes_to_its_own_server_alone() {
    let (stage, registry, other) = (Stage::new(), Registry::start(), Registry::start());
    registry.publish(&["2.1.3"], PROGRAM);
    other.publish(&["2.1.3"], PROGRAM);
    registry
        .put(&archive_at("2.1.3"), Answer::Redirect(format!("http://{}/moved?signature=x", other.address)));
    other.put(
        "/moved?signature=x",
        Answer::Whole(archive(&[("package/package.json", FILE, b"{}"), ("package/claude", FILE, PROGRAM)])),
    );
    // The other server has a token of its own, which a redirect does not get either.
    let settings = format!(
        "@anthropic-ai:registry = {}\n//{}/:_authToken=${{NPM_TOKEN}}\n//{}/:_authToken=hush too\n\
         registry=http://127.0.0.1:1/\n",
        registry.url(),
        registry.address,
        other.address
    );
    stage.write("home/.npmrc", settings);
    // A stranger's file chooses neither the registry nor a token.
    stage.write("project/.npmrc", format!("@anthropic-ai:registry={}\n", other.url()));
    let mut install = stage.command(&["agent", "install", "claude-code"]);
    refused(
        &stage.finish(&mut install),
        2,
        &["uses the variable NPM_TOKEN, which is not set", "hint: export NPM_TOKEN"],
    );
    assert!(registry.heard().is_empty());
    let found = stage.finish(install.env("NPM_TOKEN", "hush"));
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let sent: Vec<Option<String>> = registry.heard().into_iter().map(|heard| heard.authorization).collect();
    assert_eq!(sent, vec![Some("Bearer hush".to_owned()); 3]);
    let elsewhere = other.heard();
    assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
    assert_eq!(elsewhere[0].authorization, None);
    assert!(!format!("{found:?}").contains("hush") && !found.stderr.contains("signature"));
}

#[test]
fn a_registry_with_tls_is_reached_through_the_proxy_of_the_user() {
    let stage = Stage::new();
    let (registry, certificate) = Registry::start_secured("registry.example");
    registry.publish(&["2.1.3"], PROGRAM);
    let proxy = Proxy::start(&registry);
    stage.write("ca.pem", certificate);
    let settings = "registry=https://registry.example/\n//registry.example/:_authToken=hush\n";
    stage.write("home/.npmrc", settings);
    let mut install = stage.command(&["agent", "install", "claude-code"]);
    install.env("HTTPS_PROXY", format!("http://me:pass@{}", proxy.address));
    let found = stage.finish(&mut install);
    refused(&found, 4, &["the TLS handshake with registry.example:443 failed", "hint: `cafile` in ~/.npmrc"]);
    assert!(registry.heard().is_empty(), "no request without the right certificate");
    stage.write("home/.npmrc", format!("{settings}cafile={}\n", stage.path("ca.pem").display()));
    let found = stage.finish(&mut install);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let asked = ("CONNECT registry.example:443 HTTP/1.1".to_owned(), Some("Basic bWU6cGFzcw==".to_owned()));
    assert_eq!(*proxy.heard.lock().unwrap(), vec![asked; 4]);
    assert!(registry.heard().iter().all(|heard| heard.authorization.as_deref() == Some("Bearer hush")));
}

/// An installation that waits for the rest of its archive.
fn stalled(stage: &Stage, registry: &Registry) -> Child {
    registry.publish(&["2.1.3"], PROGRAM);
    let bytes = archive(&[("package/package.json", FILE, b"{}"), ("package/claude", FILE, PROGRAM)]);
    registry.put(&archive_at("2.1.3"), Answer::Stalls(bytes));
    let mut install = command(stage, registry, &["install", "claude-code"]);
    let before = registry.asked(&archive_at("2.1.3"));
    let child = install.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    registry.wait_for(&archive_at("2.1.3"), before);
    child
}

/// Waits for the end of a command and of all processes that have its output.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn two_installations_at_once_give_one_result() {
    let (stage, registry) = (Stage::new(), Registry::start());
    let first = stalled(&stage, &registry);
    let mut second = command(&stage, &registry, &["install", "claude-code@2.1.3"]);
    let mut second = second.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert_eq!(line, "belljar: waiting for another process that installs claude-code@2.1.3 …");
    registry.release();
    let (code, text) = ended(first);
    assert!(code == Some(0) && text.contains("installed claude-code@2.1.3"), "{text}");
    let mut text = String::new();
    second.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(second.wait().unwrap().success() && text.starts_with("already installed: "), "{text}");
    assert_eq!(registry.asked(&archive_at("2.1.3")), 1);
    assert_eq!(stored(&stage), ["2.1.3"]);
}

#[test]
fn an_interrupted_installation_leaves_nothing() {
    for (name, code) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        let (stage, registry) = (Stage::new(), Registry::start());
        let child = stalled(&stage, &registry);
        signal(child.id(), name);
        let (found, text) = ended(child);
        assert_eq!(found, code, "{name}: {text}");
        assert!(stored(&stage).is_empty(), "{name}: {:?}", stored(&stage));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn an_installation_that_was_killed_is_swept_and_started_again() {
    let (stage, registry) = (Stage::new(), Registry::start());
    let kill_all = || {
        let child = stalled(&stage, &registry);
        let keeper = children(child.id())[0];
        // All at once, as when the machine stops: nothing is left to clean up.
        let all = [vec![keeper, child.id()], children(keeper)].concat();
        all.iter().for_each(|pid| signal(*pid, "-STOP"));
        all.iter().for_each(|pid| signal(*pid, "-KILL"));
        ended(child);
        assert_eq!(stored(&stage).len(), 2, "{:?}", stored(&stage));
    };
    kill_all();
    let swept = stage.run(&["gc"]).stdout;
    // What other tests left in the temporary directory is swept as well.
    let own = swept
        .lines()
        .filter(|line| line.contains("/agents/claude-code/") || line.contains("/agents/.unfinished-"));
    assert_eq!(own.count(), 2, "{swept}");
    assert!(stored(&stage).is_empty());
    kill_all();
    registry.release();
    let found = run(&stage, &registry, &["install", "claude-code"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(stored(&stage), ["2.1.3"]);
}

#[test]
fn a_full_disk_is_an_error_and_nothing_is_left() {
    require!(Root);
    let (stage, registry) = (Stage::new(), Registry::start());
    // Little when it is packed, and more than the disk when it is unpacked; then also when it is packed.
    let noise: Vec<u8> =
        (0..4_000_000_u64).map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    for program in [vec![b'x'; 4 << 20], noise] {
        registry.publish(&["2.1.3"], &program);
        let script = format!(
            "mount -t tmpfs -o size=1m tmpfs {data}; {belljar} agent install claude-code; code=$?; \
             find {data}/belljar/agents -mindepth 2; exit $code",
            data = stage.path("data").display(),
            belljar = env!("CARGO_BIN_EXE_belljar"),
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).env_clear().envs(stage.environment());
        command.env("npm_config_registry", registry.url()).current_dir(stage.path("project"));
        let found = stage.finish(&mut command);
        refused(&found, 4, &["No space left on device", "hint: free some space"]);
        assert_eq!(found.stdout, "", "{found:?}");
    }
}
