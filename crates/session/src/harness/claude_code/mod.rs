//! Claude Code.
//!
//! The agent gets a directory of its own (`agent/` below belljar's) that is added to its session: the role as
//! `CLAUDE.md`, skills, settings, MCP servers, the note and the prompt. It is the same in every home mode, so
//! the user's configuration, where it is shared, is never overlaid and never edited.

mod background;
mod personal;
mod records;
mod transcript;
mod tuning;

pub(super) use background::background_hook;

use super::{HarnessError, profile};
use belljar_contract::{
    AbsPath, Access, Assembly, FileContent, Harness, HarnessProfile, HomeMode, PersonalFile, PlannedFile,
    Prompt, Purpose, RecordedDirectory, SessionTuning, TranscriptEntry, TunedAgent, Wanted,
};
use serde_json::{Map, Value, json};

/// The harness of Claude Code.
pub(super) struct ClaudeCode {
    profile: HarnessProfile,
}

/// Plugins that come with the agent and offer skills to the model, which compete with those under test. The variable for
/// bundled skills leaves them as they are (2.1.327, 2026-11-19).
const OWN_PLUGINS: [&str; 1] = ["cc-plugin-plugin-authoring@builtin"];

/// The agent asks about an unknown key by its last characters.
const KEY_TAIL: usize = 20;

impl ClaudeCode {
    pub fn load() -> Result<Self, HarnessError> {
        Ok(Self { profile: profile::parse("claude-code", include_str!("profile.toml"))? })
    }

    /// The state file: no onboarding, no questions about trust, key or permissions.
    fn state(&self, wanted: &Wanted<'_>) -> PlannedFile {
        let key = self.profile.env.iter().find(|entry| entry.name.as_str() == "ANTHROPIC_API_KEY");
        let key = key.map_or("", |entry| entry.value.as_str());
        let tail = &key[key.len().saturating_sub(KEY_TAIL)..];
        // The agent asks about belljar's own directory as well (2.1.327, 2026-11-19).
        let trusted = [wanted.project.clone(), wanted.kit.child("agent")].map(|directory| {
            (directory.as_path().to_string_lossy().into_owned(), json!({"hasTrustDialogAccepted": true}))
        });
        let projects: Map<String, Value> = trusted.into_iter().collect();
        let base = json!({
            "hasCompletedOnboarding": true,
            "customApiKeyResponses": {"approved": [tail], "rejected": []},
            "projects": projects,
            "bypassPermissionsModeAccepted": true,
        });
        let shared = wanted.home == HomeMode::Shared && wanted.host_state;
        let content = if shared {
            FileContent::JsonFrom {
                source: wanted.host_home.child(&self.profile.state_file),
                members: self.profile.shared_state.clone(),
                base,
            }
        } else {
            FileContent::Text(pretty(&base))
        };
        PlannedFile {
            target: wanted.home_directory.child(&self.profile.state_file),
            content,
            access: Access::ReadWrite,
            why: "the agent starts without its first-run questions".to_owned(),
        }
    }
}

impl Harness for ClaudeCode {
    fn profile(&self) -> &HarnessProfile {
        &self.profile
    }

    fn recorded_directories(&self, record: &str, text: &str) -> Vec<RecordedDirectory> {
        records::directories(record, text)
    }

    fn tune(&self, tuning: &SessionTuning<'_>) -> TunedAgent {
        tuning::tuned(tuning)
    }

    fn personal_files(&self, project: &str) -> Vec<PersonalFile> {
        personal::files(&self.profile, project)
    }

    fn transcript(&self, text: &str) -> Vec<TranscriptEntry> {
        transcript::entries(text)
    }

    fn assemble(&self, wanted: &Wanted<'_>) -> Assembly {
        let directory = wanted.kit.child("agent");
        let settings = directory.child(&self.profile.config_directory).child(&self.profile.settings_file);
        let servers = directory.child(".mcp.json");
        let system = directory.child("system-prompt.md");
        let mut files = vec![
            self.state(wanted),
            file(&settings, pretty(&settings_json(wanted)), "permissions"),
            file(&servers, pretty(&servers_json(wanted)), "the declared MCP servers and no others"),
            file(&system, system_prompt(wanted), "the note on the sandbox and the list of skills"),
        ];
        if let Some(role) = wanted.role {
            files.push(file(&directory.child("CLAUDE.md"), role.to_owned(), "the role"));
        }
        let prompt = wanted.prompt.map(|text| {
            let path = directory.child("prompt.md");
            files.push(file(&path, text.to_owned(), "the first message"));
            let argument = format!("Carry out the task in @{}", path.as_path().to_string_lossy());
            Prompt { text: text.to_owned(), file: path, argument }
        });
        let program = wanted.kit.child("bin").child(&self.profile.program);
        let argv = argv(wanted, &program, &directory, [&settings, &servers, &system]);
        Assembly { program, argv, files, skills_directory: directory.child(".claude/skills"), prompt }
    }
}

fn argv(wanted: &Wanted<'_>, program: &AbsPath, directory: &AbsPath, files: [&AbsPath; 3]) -> Vec<String> {
    let text = |path: &AbsPath| path.as_path().to_string_lossy().into_owned();
    let [settings, servers, system] = files;
    let mut argv = vec![text(program)];
    let mut flag = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    // `--add-dir`, `--mcp-config` and `--tools` take all arguments that follow; a flag must come after them.
    flag("--add-dir", text(directory));
    flag("--mcp-config", text(servers));
    if let Some(allowed) = &wanted.tools.allow {
        flag("--tools", allowed.join(","));
    }
    if let Some(model) = wanted.model {
        flag("--model", model.to_owned());
    }
    if let Some(effort) = wanted.effort {
        flag("--effort", effort.to_owned());
    }
    for plugin in wanted.plugins {
        flag("--plugin-dir", text(plugin.directory));
    }
    flag("--settings", text(settings));
    flag("--append-system-prompt-file", text(system));
    if wanted.permissions.skip_prompts {
        argv.push("--dangerously-skip-permissions".to_owned());
    }
    argv
}

fn settings_json(wanted: &Wanted<'_>) -> Value {
    let deny: Vec<&String> = wanted.tools.deny.iter().chain(&wanted.permissions.deny).collect();
    let mut settings = json!({
        "permissions": {"allow": wanted.permissions.allow, "deny": deny},
        "disabledMcpjsonServers": wanted.undeclared_mcp,
        "skipDangerousModePermissionPrompt": true,
    });
    match wanted.purpose {
        Purpose::Session => {}
        Purpose::Test => {
            settings["enabledPlugins"] =
                OWN_PLUGINS.map(|name| (name.to_owned(), json!(false))).into_iter().collect();
        }
    }
    settings
}

/// The agent expands `${NAME}` in a server's variables, so that no value stands in the file.
fn servers_json(wanted: &Wanted<'_>) -> Value {
    let servers: Map<String, Value> = wanted
        .mcp
        .iter()
        .map(|server| {
            let env: Map<String, Value> = server
                .env
                .iter()
                .map(|(name, carrier)| (name.to_string(), json!(format!("${{{carrier}}}"))))
                .collect();
            let value = json!({"type": "stdio", "command": server.command, "args": server.args, "env": env});
            (server.name.clone(), value)
        })
        .collect();
    json!({"mcpServers": servers})
}

fn system_prompt(wanted: &Wanted<'_>) -> String {
    let mut out = wanted.note.to_owned();
    if !wanted.skills.is_empty() {
        out.push_str("\n# Skills you have\n\n");
        for skill in wanted.skills {
            let line = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
            out.push_str(&format!("- `{}`: {line}\n", skill.name));
        }
    }
    out
}

fn file(target: &AbsPath, text: String, why: &str) -> PlannedFile {
    PlannedFile {
        target: target.clone(),
        content: FileContent::Text(text),
        access: Access::ReadOnly,
        why: why.to_owned(),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profile_is_whole() {
        let harness = ClaudeCode::load().unwrap();
        let profile = harness.profile();
        assert_eq!(profile.name, "claude-code");
        assert!(profile.env.iter().all(|entry| !entry.why.is_empty()));
        let places: Vec<String> = profile.model.credentials.iter().map(ToString::to_string).collect();
        assert_eq!(
            places,
            ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "~/.claude/.credentials.json"],
            "the order is the user's account"
        );
        assert!(profile.model.login_files().all(|file| !file.token.is_empty() && !file.expires.is_empty()));
        // The agent inside reads the same variable, so that the plan must set it.
        assert!(profile.env.iter().any(|entry| entry.name == profile.model.base_url));
    }

    #[test]
    fn versions_differ_in_what_they_can_do() {
        use belljar_contract::{AgentVersion, VersionStanding};
        let harness = ClaudeCode::load().unwrap();
        let versions = &harness.profile().versions;
        let standing = |text: &str| versions.standing(AgentVersion::parse(text).unwrap());
        assert_eq!(standing("2.1.197"), VersionStanding::Tested);
        assert_eq!(standing("2.1.327"), VersionStanding::Tested);
        assert_eq!(standing("2.1.200"), VersionStanding::Untested);
        assert_eq!(standing("2.2.0"), VersionStanding::Newer);
        let VersionStanding::TooOld { lacks } = standing("2.1.90") else {
            panic!("old enough to be refused")
        };
        assert!(
            lacks.len() == 1 && lacks[0].starts_with("telling when it is idle (since 2.1.100)"),
            "{lacks:?}"
        );
        let arguments = |text: &str| -> Vec<String> {
            let lacking = versions.lacking(AgentVersion::parse(text).unwrap());
            lacking.flat_map(|ability| ability.arguments.clone()).collect()
        };
        assert_eq!(arguments("2.1.90"), ["--include-hook-events"], "not given to one that does not know it");
        assert!(arguments("2.1.197").is_empty());
    }
}
