//! The user's own files that Claude Code reads without being asked.

use belljar_contract::{HarnessProfile, PersonalFile, PersonalForm};
use serde_json::json;

pub(super) fn files(profile: &HarnessProfile, project: &str) -> Vec<PersonalFile> {
    let HarnessProfile { config_directory: own, instructions_file, settings_file, state_file, model, .. } =
        profile;
    // The agent names the directory of a project's memory after the project's path.
    let slug: String = project.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let memory = |project: &str| format!("{own}/projects/{project}/memory/MEMORY.md");
    let file =
        |name, path: String, form: PersonalForm| PersonalFile { name, shown: path.clone(), path, form };
    let login = model
        .login_files()
        .map(|login| file("login", login.path.clone(), |text| json!({"token": text}).to_string()));
    let mut files = vec![
        file("instructions", format!("{own}/{instructions_file}"), line),
        PersonalFile { shown: memory("…"), ..file("memory", memory(&slug), line) },
        file("hook", format!("{own}/{settings_file}"), hook),
        file("server", state_file.clone(), server),
    ];
    files.extend(login);
    files
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

fn hook(text: &str) -> String {
    let hook = json!([{"hooks": [{"type": "command", "command": format!("echo {text}")}]}]);
    json!({"hooks": {"SessionStart": hook, "UserPromptSubmit": hook}}).to_string()
}

fn server(text: &str) -> String {
    json!({"mcpServers": {text: {"command": "true"}}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{ClaudeCode, Harness};

    #[test]
    fn the_slug_of_a_project_is_not_shown() {
        let files = ClaudeCode::load().unwrap().personal_files("/home/a/work_1/demo");
        let memory = files.iter().find(|file| file.name == "memory").unwrap();
        assert_eq!(memory.path, ".claude/projects/-home-a-work-1-demo/memory/MEMORY.md");
        assert_eq!(memory.shown, ".claude/projects/…/memory/MEMORY.md");
        assert!(files.iter().all(|file| (file.form)("canary").contains("canary")));
    }
}
