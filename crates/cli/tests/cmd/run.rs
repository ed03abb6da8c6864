use crate::stage::Stage;
use belljar_testkit::wait::{self, DEADLINE};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One tool call that writes a file, then a sentence.
const SCRIPT: &str = r#"{"version": 1, "turns": [
  {"answer": {"reply": {"content": [{"tool_use": {"name": "Bash", "input": {"command": "echo written > made.txt"}}}]}}},
  {"answer": {"reply": {"content": [{"text": "All done."}]}}}
]}"#;

/// A stage with the real agent on its path.
fn with_agent() -> (Stage, String) {
    let stage = Stage::new();
    stage.write("project/script.json", SCRIPT);
    let directory = agent::real().unwrap().parent().unwrap().display().to_string();
    (stage, format!("{directory}:/usr/bin:/bin"))
}

#[test]
fn the_real_agent_runs_sealed_on_a_scripted_model() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let mut command = stage.command(&["run", "--script", "script.json", "--", "-p", "write it"]);
    let found = stage.finish(command.env("PATH", &path));
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "All done.\n"), "{}", found.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/made.txt")).unwrap(), "written\n");
    let directory = run_directory(&stage);
    let names: Vec<String> = fs::read_dir(directory.join("artifacts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("transcript-") && name.ends_with(".jsonl")),
        "{names:?}"
    );
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(directory.join("result.json")).unwrap()).unwrap();
    assert!(result["metrics"]["cpu_ms"].as_u64().is_some_and(|ms| ms > 50), "{result}");
    assert!(
        result["metrics"]["peak_memory_bytes"].as_u64().is_some_and(|bytes| bytes > 50 << 20),
        "{result}"
    );
}

#[test]
fn a_script_that_is_none_is_named_before_anything_starts() {
    let stage = Stage::new();
    stage.write("project/script.json", "{\"version\": 1, \"turns\": [{}]}");
    let found = stage.run(&["run", "--script", "script.json"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("script.json"), "{}", found.stderr);
    assert!(!stage.path("data/belljar").exists(), "nothing was made");
}

#[test]
fn without_a_model_or_an_agent_it_says_so() {
    require!(Bwrap);
    let stage = Stage::new();
    let found = stage.run(&["run"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("the agent claude-code is not installed"), "{}", found.stderr);
}

/// A terminal of its own, so that the screen can be read.
pub struct Screen {
    socket: String,
}

impl Screen {
    pub fn open(stage: &Stage, path: &str, line: &str) -> Self {
        // A server that is being ended must not be mistaken for the next one.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = stage.path(&format!("tmux-{number}.sock")).display().to_string();
        let screen = Self { socket };
        let mut command =
            screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "36", line]);
        command
            .current_dir(stage.path("project"))
            .envs(stage.environment())
            .env_remove("NO_COLOR")
            .env("PATH", path);
        assert!(command.env("SHELL", "/bin/sh").env("LANG", "C.UTF-8").status().unwrap().success());
        screen
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket, "-u"]).args(args);
        command
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).output().unwrap().stdout).into_owned()
    }

    pub fn keys(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status().unwrap().success());
    }

    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        let began = Instant::now();
        loop {
            let text = self.text();
            if text.contains(part) {
                return text;
            }
            assert!(began.elapsed() < DEADLINE, "{part:?} never came:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]).status().ok();
    }
}

#[test]
fn the_terminal_interface_starts_without_a_question_works_and_leaves() {
    require!(Agent, Bwrap, Tmux);
    let (stage, path) = with_agent();
    let line = format!(
        "{} run --script script.json; echo status-$?; stty -a; exec sleep 60",
        env!("CARGO_BIN_EXE_belljar")
    );
    let screen = Screen::open(&stage, &path, &line);
    let start = screen.wait_for("bypass permissions on");
    for question in ["theme", "API key", "trust", "Do you want", "MCP server"] {
        assert!(!start.contains(question), "it asks about {question}:\n{start}");
    }
    screen.keys(&["-l", "write the file, ünïcode ☃"]);
    screen.wait_for("ünïcode ☃");
    screen.keys(&["Enter"]);
    screen.wait_for("All done.");
    assert_eq!(fs::read_to_string(stage.path("project/made.txt")).unwrap(), "written\n");
    screen.tmux(&["resize-window", "-x", "84", "-y", "30"]).status().unwrap();
    screen.keys(&["-l", "/exit"]);
    screen.wait_for("/exit");
    screen.keys(&["Enter"]);
    let end = screen.wait_for("status-0");
    assert!(screen.wait_for("icanon").contains(" icanon"), "the terminal is as it was: {end}");
    let traced = stage.run(&["trace", "last", "--full"]);
    assert_eq!(traced.status.code(), Some(0), "{traced:?}");
    let told = ["own transcript", "    write the file, ünïcode ☃\n", "call Bash", "    All done.\n"];
    for part in told {
        assert!(traced.stdout.contains(part), "{part}: {traced:?}");
    }
}

/// The directory of the only run there is.
fn run_directory(stage: &Stage) -> std::path::PathBuf {
    let runs = stage.path("home/.local/state/belljar/runs");
    let mut directories: Vec<_> = fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(directories.len(), 1, "{directories:?}");
    directories.remove(0)
}

fn headless(stage: &Stage, path: &str) -> String {
    let mut command = stage.command(&["run", "--yes", "--script", "script.json", "--", "-p", "write it"]);
    let found = stage.finish(command.env("PATH", path).env("CANARY_VARIABLE", "canary-variable"));
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "All done.\n"), "{}", found.stderr);
    let directory = run_directory(stage);
    let shown = directory.strip_prefix(stage.path("home")).unwrap().display().to_string();
    assert!(found.stderr.contains(&format!("recorded in ~/{shown}")), "{}", found.stderr);
    let requests = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    assert!(requests.lines().count() >= 2, "{requests}");
    requests
}

/// Everything below a directory: names, contents, modes and times.
fn everything(directory: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>, u32, i64)> {
    use std::os::unix::fs::MetadataExt;
    let mut out = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        out.push((path, content, found.mode(), found.mtime_nsec() + found.mtime() * 1_000_000_000));
    }
    out.sort();
    out
}

/// A user with a full configuration of the agent: every place from which something could leak has its canary.
fn plant(stage: &Stage) {
    stage.write("CLAUDE.md", "canary-above\n");
    stage.write(".mcp.json", r#"{"mcpServers": {"canary-above-server": {"command": "true"}}}"#);
    stage.write(
        ".claude/skills/canary-above-skill/SKILL.md",
        "---\nname: canary-above-skill\ndescription: d\n---\n",
    );
    stage.write("home/CLAUDE.md", "canary-home-md\n");
    stage.write("home/.claude/CLAUDE.md", "canary-user-md\n");
    let hook = stage.path("hook-ran").display().to_string();
    let hooks = format!(
        r#"{{"hooks": {{"SessionStart": [{{"hooks": [{{"type": "command", "command": "echo canary-hook; touch {hook}"}}]}}]}}, "env": {{"CANARY": "canary-setting"}}}}"#
    );
    stage.write("home/.claude/settings.json", hooks);
    stage.skill("home/.claude/skills", "canary-user-skill");
    stage.write(
        "home/.claude/agents/canary-agent.md",
        "---\nname: canary-agent\ndescription: canary-agent\n---\nx\n",
    );
    stage.write(
        "home/.claude.json",
        r#"{"mcpServers": {"canaryserver": {"command": "true"}}, "oauthAccount": {"token": "canary-token"}}"#,
    );
    stage.write("home/.claude/.credentials.json", r#"{"token": "canary-credential"}"#);
    let slug: String = stage
        .path("project")
        .display()
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    stage.write(&format!("home/.claude/projects/{slug}/memory/MEMORY.md"), "canary-memory\n");
    stage.write("home/.claude/history.jsonl", "{\"display\": \"canary-history\"}\n");
}

/// A plugin of the user's, installed the way users do it.
fn install_plugin(stage: &Stage) {
    install_plugin_from(stage, "home/.claude/plugins/marketplaces/market");
}

/// The agent itself adds the marketplace in that directory, and installs its plugin.
fn install_plugin_from(stage: &Stage, directory: &str) {
    stage.write(
        &format!("{directory}/.claude-plugin/marketplace.json"),
        r#"{"name": "market", "owner": {"name": "t"}, "plugins": [{"name": "plug", "source": "./plug", "description": "d"}]}"#,
    );
    stage.write(
        &format!("{directory}/plug/.claude-plugin/plugin.json"),
        r#"{"name": "plug", "version": "1.0.0", "description": "d"}"#,
    );
    let skill = "---\nname: plugged\ndescription: canary-plugin-skill\n---\nBody.\n";
    stage.write(&format!("{directory}/plug/skills/plugged/SKILL.md"), skill);
    let market = stage.path(directory).display().to_string();
    for args in [["plugin", "marketplace", "add", &market].as_slice(), &["plugin", "install", "plug@market"]]
    {
        let mut command = Command::new(agent::real().unwrap());
        command.args(args).env_clear().envs(stage.environment()).current_dir(stage.path("home"));
        let done = stage.finish(command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"));
        assert!(done.status.success(), "{args:?}: {}{}", done.stdout, done.stderr);
    }
}

#[test]
fn nothing_of_the_user_reaches_the_model() {
    require!(Agent, Bwrap);
    for home in ["clean", "project"] {
        let (stage, path) = with_agent();
        stage.write(
            "project/belljar.toml",
            format!("[agents.a]\nhome = \"{home}\"\npermissions.skip_prompts = true\n"),
        );
        stage.write("project/CLAUDE.md", "project-words\n");
        plant(&stage);
        install_plugin(&stage);
        let before =
            (everything(&stage.path("home/.claude")), fs::read(stage.path("home/.claude.json")).unwrap());
        let requests = headless(&stage, &path);
        assert!(requests.contains("project-words"), "the project's own words do reach it");
        assert!(
            !requests.to_lowercase().contains("canary"),
            "home = {home}: {}",
            around(&requests, "canary")
        );
        assert!(!stage.path("hook-ran").exists());
        let after =
            (everything(&stage.path("home/.claude")), fs::read(stage.path("home/.claude.json")).unwrap());
        assert!(before == after, "home = {home}: the user's own files are as they were");
    }
}

fn around(text: &str, part: &str) -> String {
    let at = text.to_lowercase().find(part).unwrap_or(0);
    text.chars().skip(at.saturating_sub(200)).take(400).collect()
}

#[test]
fn a_shared_home_shows_the_users_configuration_and_changes_none_of_it() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    stage.write("project/belljar.toml", "[agents.a]\nhome = \"shared\"\npermissions.skip_prompts = true\n");
    plant(&stage);
    install_plugin(&stage);
    let before =
        (everything(&stage.path("home/.claude")), fs::read(stage.path("home/.claude.json")).unwrap());
    let requests = headless(&stage, &path);
    for shown in ["canary-user-md", "canary-user-skill", "canary-agent", "canary-hook", "canary-plugin-skill"]
    {
        assert!(requests.contains(shown), "{shown} is visible");
    }
    for hidden in [
        "canary-above",
        "canary-token",
        "canary-credential",
        "canary-memory",
        "canary-history",
        "canary-variable",
    ] {
        assert!(!requests.contains(hidden), "{hidden}: {}", around(&requests, hidden));
    }
    assert!(!stage.path("hook-ran").exists(), "the hook ran inside");
    let after = (everything(&stage.path("home/.claude")), fs::read(stage.path("home/.claude.json")).unwrap());
    assert!(before == after, "the user's own files are as they were");
}

#[test]
fn a_plugin_from_a_directory_of_the_users_is_there_in_a_shared_home_only() {
    require!(Agent, Bwrap);
    for (home, visible) in [("shared", true), ("project", false)] {
        let (stage, path) = with_agent();
        stage.write(
            "project/belljar.toml",
            format!("[agents.a]\nhome = \"{home}\"\npermissions.skip_prompts = true\n"),
        );
        install_plugin_from(&stage, "home/own/market");
        stage.write("home/own/beside.txt", "not a part of it");
        assert_eq!(headless(&stage, &path).contains("canary-plugin-skill"), visible, "home = {home}");
        let plan = stage.run(&["plan"]).stdout;
        assert_eq!(plan.contains("the marketplace `market`"), visible, "{plan}");
        let seen = stage.run(&["exec", "--yes", "--", "ls", &stage.path("home/own").display().to_string()]);
        assert_eq!(seen.stdout, if visible { "market\n" } else { "" }, "{}", seen.stderr);
    }
}

#[test]
fn the_agent_gets_what_it_declares_and_nothing_is_left_over() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let manifest = r#"[library.skills.declared-skill]
source = "skills/declared-skill"
[library.mcp.declared]
command = "python3"
args = ["server.py"]
env = { TOKEN = "tok $(x) en" }
[library.plugins.plug]
source = "plug"
[agents.a]
role = "role.md"
prompt = "first message, from a file"
skills = ["declared-skill"]
mcp = ["declared"]
plugins = ["plug"]
tools = { deny = ["WebSearch"] }
permissions.skip_prompts = true
"#;
    stage.write("project/belljar.toml", manifest);
    stage.write("project/role.md", "words-of-the-role\n");
    stage.skill("project/skills", "declared-skill");
    stage.write(
        "project/.mcp.json",
        r#"{"mcpServers": {"undeclared": {"command": "python3", "args": ["server.py"]}}}"#,
    );
    stage.write(
        "project/plug/.claude-plugin/plugin.json",
        r#"{"name": "plug", "version": "1.0.0", "description": "d"}"#,
    );
    stage.skill("project/plug/skills", "plugged-skill");
    let bundled =
        r#"{"mcpServers": {"bundled": {"command": "python3", "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}}}"#;
    stage.write("project/plug/.mcp.json", bundled);
    stage.write("project/server.py", SERVER);
    stage.write("project/plug/server.py", SERVER);
    // The agent sends the definition of a server's tool once the model has looked it up.
    let looks = json!({"tool_use": {"name": "ToolSearch", "input": {"query": "select:mcp__declared__tool", "max_results": 1}}});
    let turn = |content: Value| json!({"answer": {"reply": {"content": [content]}}});
    let turns = [turn(looks), turn(json!({"text": "All done."}))];
    stage.write("project/script.json", json!({"version": 1, "turns": turns}).to_string());
    let requests = headless(&stage, &path);
    for shown in [
        "words-of-the-role",
        "declared-skill: Does declared-skill",
        "plugged-skill",
        "mcp__declared__tool",
        "mcp__plugin_plug_bundled__tool",
        "TOKEN=[redacted:BELLJAR_MCP_1_TOKEN].",
        "You are in a sandbox",
    ] {
        assert!(requests.contains(shown), "{shown} is missing: {}", around(&requests, "mcp__"));
    }
    for hidden in ["mcp__undeclared", "\"WebSearch\""] {
        assert!(!requests.contains(hidden), "{hidden}: {}", around(&requests, &hidden.to_lowercase()));
    }
    let directory = run_directory(&stage);
    for file in ["run.json", "events.jsonl", "result.json"] {
        let text = fs::read_to_string(directory.join(file)).unwrap();
        assert!(!text.contains("tok $(x) en"), "{file} holds no value");
    }
}

/// A server of the Model Context Protocol with one tool that tells its environment.
const SERVER: &str = r#"import sys, json, os
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif m.get("method") == "tools/list":
        r = {"tools": [{"name": "tool", "description": "TOKEN=" + os.environ.get("TOKEN", "none") + ".", "inputSchema": {"type": "object"}}]}
    elif "id" in m:
        r = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;

#[test]
fn the_manifests_prompt_is_delivered_by_file_and_two_runs_have_two_names() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    stage.write(
        "project/belljar.toml",
        "[agents.a]\nprompt = \"words of $(the) \\\"prompt\\\"\"\npermissions.skip_prompts = true\n",
    );
    // Without further arguments and without a terminal, the agent prints and ends.
    let mut command = stage.command(&["run", "--yes", "--script", "script.json"]);
    let found = stage.finish(command.env("PATH", &path));
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    let directory = run_directory(&stage);
    let requests = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    assert!(requests.contains("words of $(the) "), "{}", around(&requests, "carry out"));
    let name = directory.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.contains("-a-"), "{name}");
}

#[test]
fn one_conversation_has_one_run_at_a_time_and_goes_on_afterwards() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let slow = SCRIPT.replace(
        "{\"answer\": {\"reply\": {\"content\": [{\"text\"",
        "{\"delay_ms\": 2500, \"answer\": {\"reply\": {\"content\": [{\"text\"",
    );
    assert_ne!(slow, SCRIPT);
    stage.write("project/slow.json", slow);
    stage.write(
        "project/next.json",
        r#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"text": "Gone on."}]}}}]}"#,
    );
    let id = "2f0c1d7e-0b53-4c37-9a55-5a1f3f6f2f11";
    let mut first = stage.command(&["run", "--script", "slow.json", "--", "-p", "begin", "--session-id", id]);
    let mut first = first
        .env("PATH", &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let made = stage.path("project/made.txt");
    wait::for_files(&stage.path("project"), || made.exists().then_some(())).unwrap();
    let second = |arguments: &[&str]| {
        let args = [&["run", "--script", "next.json", "--"], arguments].concat();
        stage.finish(stage.command(&args).env("PATH", &path))
    };
    for args in [["-p", "x", "--resume", id].as_slice(), &["-p", "x", &format!("--resume={id}")]] {
        let refused = second(args);
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains(id) && refused.stderr.contains("default"), "{}", refused.stderr);
    }
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let resumed = second(&["-p", "and now", "--resume", id]);
    assert_eq!(
        (resumed.status.code(), resumed.stdout.as_str()),
        (Some(0), "Gone on.\n"),
        "{}",
        resumed.stderr
    );
}

#[test]
fn a_name_that_is_taken_is_refused() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let slow = SCRIPT.replacen("{\"answer\"", "{\"delay_ms\": 2000, \"answer\"", 1);
    stage.write("project/slow.json", slow);
    let run = |script: &str| {
        let mut command = stage.command(&["run", "--name", "mine", "--script", script, "--", "-p", "x"]);
        command.env("PATH", &path).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        command
    };
    let mut first = run("slow.json").spawn().unwrap();
    let runs = stage.path("home/.local/state/belljar/runs");
    wait::for_files(&stage.path("home"), || runs.exists().then_some(())).unwrap();
    let second = stage.finish(&mut run("script.json"));
    assert_eq!(second.status.code(), Some(125));
    assert!(second.stderr.contains("`mine` is taken"), "{}", second.stderr);
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn two_runs_of_one_project_at_once_are_kept_apart() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let start = || {
        let mut command = stage.command(&["run", "--script", "script.json", "--", "-p", "write it"]);
        command
            .env("PATH", &path)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let runs = [start(), start(), start()];
    for run in runs {
        let done = run.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&done.stdout),
            "All done.\n",
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    let directories = fs::read_dir(stage.path("home/.local/state/belljar/runs")).unwrap();
    let mut names: Vec<String> = directories
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("run.json")).unwrap())
        .map(|text| {
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["name"].as_str().unwrap().to_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["default", "default-2", "default-3"]);
}

#[test]
fn at_a_terminal_one_question_is_asked_and_secrets_are_typed_unseen() {
    require!(Bwrap, Tmux);
    let stage = Stage::with("[agents.a]\nenv = { PASSWORD = \"?The password\" }\n");
    let exec = |mark: &str| {
        format!("{} exec -- sh -c 'echo value-$PASSWORD'; echo {mark}-$?; ", env!("CARGO_BIN_EXE_belljar"))
    };
    let screen = Screen::open(&stage, "/usr/bin:/bin", &format!("{}exec sleep 60", exec("first")));
    screen.wait_for("Start this? [y/N]");
    screen.keys(&["n", "Enter"]);
    screen.wait_for("first-125");
    drop(screen);
    // This time it is agreed to, so the next start asks for the password only.
    let screen =
        Screen::open(&stage, "/usr/bin:/bin", &format!("{}{}exec sleep 60", exec("second"), exec("third")));
    screen.wait_for("Start this? [y/N]");
    screen.keys(&["y", "Enter"]);
    screen.wait_for("The password:");
    screen.keys(&["-l", "hunter2"]);
    screen.keys(&["Enter"]);
    let text = screen.wait_for("second-0");
    assert!(text.contains("value-hunter2") && !text.contains("password: hunter2"), "{text}");
    let began = Instant::now();
    while !screen.text().trim_end().ends_with("The password:") {
        assert!(began.elapsed() < DEADLINE, "{}", screen.text());
        std::thread::sleep(Duration::from_millis(50));
    }
    screen.keys(&["-l", "other"]);
    screen.keys(&["Enter"]);
    assert!(screen.wait_for("third-0").contains("value-other"));
}

#[test]
fn a_full_disk_stops_a_run_before_it_starts() {
    require!(Agent, Bwrap, Root);
    let (stage, path) = with_agent();
    let state = stage.path("state");
    fs::create_dir(&state).unwrap();
    // In a mount namespace of its own, so that nothing is left behind whatever happens.
    let script = "mount -t tmpfs -o size=16k none \"$1\" && dd if=/dev/zero of=\"$1/fill\" bs=1k count=64 2>/dev/null; \
                  \"$0\" run --script script.json -- -p x";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_belljar")]).arg(&state);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let found = stage.finish(command.env("PATH", &path).env("XDG_STATE_HOME", &state));
    assert_eq!(found.status.code(), Some(125), "{}{}", found.stdout, found.stderr);
    assert!(found.stderr.contains("recorded") || found.stderr.contains("No space left"), "{}", found.stderr);
    assert!(!stage.path("project/made.txt").exists(), "nothing was started");
}
