//! The real agent against the scripted model: what the script says is done on disk, and no model was called.
//!
//! `cargo run -p belljar-testkit --example scripted_run`

#![expect(clippy::print_stdout, reason = "an example that shows what happens")]

use belljar_egress::script::{Listen, Reply, Script, ScriptedModel, Turn};
use belljar_testkit::agent;
use belljar_testkit::process::run_within;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let program = agent::real()?;
    let stage = tempfile::tempdir()?;
    for folder in ["project", "home"] {
        fs::create_dir(stage.path().join(folder))?;
    }
    let call = json!({"command": "echo 'written by the agent' > note.txt", "description": "write a note"});
    let script = Script::new()
        .turn(Turn::reply(Reply::new().text("I write a note.").tool_use("Bash", call)))
        .turn(Turn::text("The note is written."));
    let model = ScriptedModel::start(script, Listen::unix(stage.path().join("model.sock")))?;

    let mut command = Command::new(program);
    command.args(["-p", "--setting-sources", "", "--strict-mcp-config", "--allowedTools", "Bash"]);
    command.args(["--", "Write a note."]).current_dir(stage.path().join("project")).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", stage.path().join("home"));
    command.env("ANTHROPIC_API_KEY", "not-a-key").env("ANTHROPIC_BASE_URL", model.base_url());
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    if let Some(socket) = model.socket_path() {
        command.env("ANTHROPIC_UNIX_SOCKET", socket);
    }
    let finished = run_within(&mut command, Duration::from_secs(120))?;
    let transcript = model.finish();

    println!("asked:        Write a note.");
    println!("agent:        {}", finished.stdout.trim());
    println!("project/note: {}", fs::read_to_string(stage.path().join("project/note.txt"))?.trim());
    for request in transcript.requests.iter().filter(|request| request.path == "/v1/messages") {
        println!("model:        {} answered by {:?}", request.path, request.answered_by);
    }
    if !finished.status.success() || !transcript.unplayed.is_empty() {
        return Err(format!("the agent ended with {}: {}", finished.status, finished.stderr).into());
    }
    Ok(())
}
