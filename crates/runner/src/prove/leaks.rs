//! Tests whether data of the user reaches the model: canaries are put in the files of a made-up user and searched for
//! in every request of a real run.
//!
//! The model is a script that makes the agent search for them with all its tools. The same run without isolation comes
//! first: a canary that is not found there proves nothing.

use super::scene::random;
use super::stage::collect;
use super::{ProveDirectory, ProveError, ProveRequest};
use crate::store::leftovers::{MARK, mark};
use belljar_contract::{BackendKind, ExitCode, PersonalFile};
use belljar_session::Harnesses;
use belljar_sys::process::Prepare;
use serde::Serialize;
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The pattern of a canary. The agent searches for the pattern, so that only a hit brings a canary into a request.
const FORM: &str = "canary-[a-z]+-[0-9a-f]{16}";
/// The variable that holds one of them.
const VARIABLE: &str = "CANARY_VARIABLE";
/// The canary that must be found inside: it lies in the project.
const CONTROL: &str = "project";

/// The result for one canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeakRow {
    pub canary: &'static str,
    pub place: String,
    /// Whether a request of the run without isolation contained it.
    pub outside: bool,
    /// Whether a request of the run in the sandbox contained it.
    pub inside: bool,
    pub verdict: LeakVerdict,
}

/// The verdict on a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakVerdict {
    /// It could have leaked, and did not.
    Sealed,
    Leaks,
    /// It belongs to the project and must be visible.
    Control,
    /// It was not found without isolation either, or the control was not found.
    Unproved,
}

/// The result of a leak test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leaks {
    pub rows: Vec<LeakRow>,
    /// The number of searched requests of the sandboxed run.
    pub requests: usize,
}

impl Leaks {
    /// The exit status of the command.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        let any = |verdict| self.rows.iter().any(|row| row.verdict == verdict);
        match () {
            () if any(LeakVerdict::Leaks) => ExitCode::Failed,
            () if any(LeakVerdict::Unproved) => ExitCode::Unverified,
            () => ExitCode::Passed,
        }
    }
}

/// Creates canaries and searches for them.
///
/// # Errors
/// If the made-up user cannot be created, or a run failed.
pub fn leaks(request: ProveRequest<'_>) -> Result<Leaks, ProveError> {
    let place = ProveDirectory::make(request.environment)?;
    let (outside, inside) = (User::make(&place.side("h")?)?, User::make(&place.side("i")?)?);
    let searched = inside.run(&request, request.backend)?;
    let open = outside.run(&request, BackendKind::Host)?;
    let has = |requests: &[String], token: &str| requests.iter().any(|request| request.contains(token));
    let sees = inside.canaries.iter().any(|canary| canary.name == CONTROL && has(&searched, &canary.token));
    let rows = inside.canaries.iter().zip(&outside.canaries).map(|(here, there)| {
        let (outside, inside) = (has(&open, &there.token), has(&searched, &here.token));
        let verdict = match (here.name == CONTROL, outside, inside) {
            (true, true, true) => LeakVerdict::Control,
            (false, _, true) => LeakVerdict::Leaks,
            (false, true, false) if sees => LeakVerdict::Sealed,
            (true | false, _, _) => LeakVerdict::Unproved,
        };
        LeakRow { canary: here.name, place: here.place.clone(), outside, inside, verdict }
    });
    Ok(Leaks { rows: rows.collect(), requests: searched.len() })
}

struct Canary {
    name: &'static str,
    place: String,
    token: String,
}

/// A made-up user with a canary in every place that the agent or a tool could read.
struct User {
    root: PathBuf,
    canaries: Vec<Canary>,
}

impl User {
    fn make(root: &Path) -> Result<Self, ProveError> {
        let mut user = Self { root: root.to_owned(), canaries: Vec::new() };
        user.plant().map_err(|cause| ProveError::Scene { path: root.to_owned(), cause })?;
        Ok(user)
    }

    fn home(&self) -> PathBuf {
        self.root.join("user")
    }

    fn project(&self) -> PathBuf {
        self.home().join("work/demo")
    }

    fn plant(&mut self) -> io::Result<()> {
        let project = self.project().to_string_lossy().into_owned();
        let harness = Harnesses::built_in().usual();
        let instructions = &harness.profile().instructions_file;
        let line = |token: &str| format!("{token}\n");
        for PersonalFile { name, path, shown, form } in harness.personal_files(&project) {
            self.file(name, (&path, &shown), form)?;
        }
        let above = format!("work/{instructions}");
        self.file("above", (&above, &above), line)?;
        let plain = |path| (path, path);
        self.file("git", plain(".gitconfig"), |token| format!("[user]\n\tname = {token}\n"))?;
        self.file("history", plain(".bash_history"), |token| format!("curl -H 'key: {token}'\n"))?;
        self.file("ssh", plain(".ssh/id_ed25519"), line)?;
        let token = self.canary("variable", format!("the variable {VARIABLE}"));
        self.canaries.push(token);
        let own = format!("work/demo/{instructions}");
        self.file(CONTROL, (&own, &own), line)
    }

    fn canary(&self, name: &'static str, place: String) -> Canary {
        Canary { name, place, token: format!("canary-{name}-{:016x}", random()) }
    }

    fn file(
        &mut self,
        name: &'static str,
        (path, shown): (&str, &str),
        text: impl Fn(&str) -> String,
    ) -> io::Result<()> {
        let canary = self.canary(name, format!("~/{shown}"));
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        fs::write(path, text(&canary.token))?;
        self.canaries.push(canary);
        Ok(())
    }

    /// All requests of a run in which the agent searches for the canaries.
    fn run(&self, request: &ProveRequest<'_>, backend: BackendKind) -> Result<Vec<String>, ProveError> {
        let failed = |cause| ProveError::Scene { path: self.root.clone(), cause };
        let manifest = format!(
            "[agents.leaks]\nbackend = \"{}\"\npermissions.skip_prompts = true\ngit.identity = false\n",
            backend.name()
        );
        fs::write(self.project().join("belljar.toml"), manifest).map_err(failed)?;
        let script = self.root.join("script.json");
        fs::write(&script, self.script()).map_err(failed)?;
        let path = request.environment.outside_path();
        // outside: prove-belljar
        let mut command = Command::new(request.own.as_path());
        command.args(["run", "--yes", "--script"]).arg(&script).arg("--");
        command.args(&Harnesses::built_in().usual().profile().one_message).arg("Look around.");
        command.current_dir(self.project()).env_clear();
        command.env("HOME", self.home()).env("PATH", path);
        for (name, directory) in
            [("STATE", "state"), ("DATA", "data"), ("CONFIG", "config"), ("CACHE", "cache")]
        {
            command.env(format!("XDG_{name}_HOME"), self.root.join(directory));
        }
        let variable = self.canaries.iter().find(|canary| canary.name == "variable");
        command.env(VARIABLE, variable.map_or("", |canary| canary.token.as_str()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env(MARK, mark()).dies_with_spawner();
        let (_, errors, status) = collect(command.spawn().map_err(failed)?);
        let requests = self.requests().map_err(failed)?;
        match (status, requests.len()) {
            (Some(0), 2..) => Ok(requests),
            _ => Err(ProveError::Backend { backend, messages: errors.lines().map(str::to_owned).collect() }),
        }
    }

    /// A script with one search and a final message.
    fn script(&self) -> String {
        let only = format!("grep -hoE '{FORM}' | sort -u");
        let home = self.home().to_string_lossy().replace('\'', "'\\''");
        let command = format!(
            "grep -rhE '{FORM}' '{home}' 2>/dev/null | {only}; \
             cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | {only}"
        );
        let call =
            json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "look"}}});
        let turn = |block: serde_json::Value| json!({"answer": {"reply": {"content": [block]}}});
        json!({"version": 1, "turns": [turn(call), turn(json!({"text": "Done."}))]}).to_string()
    }

    fn requests(&self) -> io::Result<Vec<String>> {
        let mut out = Vec::new();
        for entry in fs::read_dir(self.root.join("state/belljar/runs"))? {
            let text = fs::read_to_string(entry?.path().join("artifacts/model-requests.jsonl"))?;
            out.extend(text.lines().map(str::to_owned));
        }
        Ok(out)
    }
}
