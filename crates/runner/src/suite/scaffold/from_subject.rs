//! A scenario from the directory of a skill, a plugin or a marketplace.

use super::script_text::first_script_text;
use super::{Scaffold, beside, relative};
use crate::environment::HostEnvironment;
use crate::suite::load::{LoadError, Trial, known_skills};
use crate::suite::scope::{self, Permit, Scope};
use crate::suite::{Subject, load_subject, script_beside};
use belljar_contract::decode::plain;
use belljar_contract::{AbsPath, Pattern};
use belljar_plan::{SkillDocument, parse_skill};
use belljar_session::decider::yaml_quoted as quoted;
use serde_json::json;
use std::fs;

/// A skill that a scenario can be about.
struct Target {
    /// As the agent calls it.
    name: String,
    description: String,
    /// Whether it has programs of its own.
    has_scripts: bool,
}

/// The files for a first scenario of a directory; `out` is where the scenario goes.
///
/// # Errors
/// If the directory has no skill, or a file of it cannot be read.
pub fn scaffold_new(
    environment: &HostEnvironment,
    directory: &AbsPath,
    out: Option<AbsPath>,
    permit: Permit<'_>,
) -> Result<Scaffold, LoadError> {
    let subject = Subject {
        directory: directory.clone(),
        plugins: Vec::new(),
        marketplaces: Vec::new(),
        enabled: Vec::new(),
        uploads: Vec::new(),
        directories: Vec::new(),
        hosts: Vec::new(),
        model: None,
        prompt: "a prompt".to_owned(),
    };
    let trial = load_subject(environment, subject, permit)?;
    let targets = targets(&trial, environment)?;
    let Some(first) = targets.first() else {
        return Err(LoadError::Unfit(format!("`{directory}` has no skill to make a scenario for")));
    };
    let out = out.map_or_else(|| usual_place(environment, &first.name), Ok)?;
    let session = beside(&out, ".session.yaml");
    let place = out.parent().unwrap_or_else(|| out.clone());
    let mut notes = Vec::new();
    if !Scope::of_file(&out, environment).holds(directory) {
        notes.push(format!(
            "`{directory}` lies beyond the directory of the scenario, so `belljar test` asks for your agreement"
        ));
    }
    if targets.len() > 1 {
        let others: Vec<&str> = targets[1..].iter().map(|target| target.name.as_str()).collect();
        notes.push(format!("the scenario is about `{}`; there are also {}", first.name, others.join(", ")));
    }
    let files = vec![
        (out.clone(), scenario_text(first, &targets, &session)),
        (session, session_text(&trial, &relative(&place, directory))),
        (script_beside(&out), first_script_text("Skill", json!({"skill": first.name}))),
    ];
    Ok(Scaffold { files, notes })
}

/// `scenarios/NAME.yaml` below the working directory. A link out of it is refused: the directory may be a stranger's.
fn usual_place(environment: &HostEnvironment, name: &str) -> Result<AbsPath, LoadError> {
    let directory = environment.directory.child("scenarios");
    if !scope::really(&directory).is_within(&environment.directory) {
        return Err(LoadError::Named {
            what: "the directory",
            path: directory,
            why: "is a link that leads elsewhere; name a file with --out".to_owned(),
        });
    }
    Ok(directory.child(&format!("{}.yaml", name.replace(':', "-"))))
}

fn targets(trial: &Trial, environment: &HostEnvironment) -> Result<Vec<Target>, LoadError> {
    let mut found: Vec<(String, AbsPath)> =
        trial.found.skills.iter().map(|(name, path)| (name.to_string(), path.clone())).collect();
    let known = known_skills(&trial.found);
    for (plugin, path) in &trial.found.plugins {
        let prefix = format!("{plugin}:");
        let own = known.iter().filter_map(|name| name.strip_prefix(&prefix));
        found.extend(own.map(|name| (format!("{prefix}{name}"), path.child("skills").child(name))));
    }
    found.retain(|(_, path)| path.child("SKILL.md").as_path().is_file());
    found.sort();
    found.into_iter().map(|(name, path)| target(name, &path, trial, environment)).collect()
}

fn target(
    name: String,
    path: &AbsPath,
    trial: &Trial,
    environment: &HostEnvironment,
) -> Result<Target, LoadError> {
    let file = path.child("SKILL.md");
    // A link in a stranger's skill must not have another file quoted.
    if !trial.scope.holds(&file) {
        return Err(LoadError::Beyond { what: "a skill", path: file });
    }
    let SkillDocument { skill, sources, diagnostics } = parse_skill(scope::read(environment, &file)?);
    let Some(skill) = skill else { return Err(LoadError::Invalid { sources, diagnostics }) };
    let is_program = |file: &std::path::Path| {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ["sh", "py", "js", "ts", "rb", "pl"].contains(&ending)
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let has_scripts = entries.into_iter().any(|entry| {
        let path = entry.path();
        is_program(&path) || (path.is_dir() && entry.file_name() == "scripts")
    });
    Ok(Target { name, description: skill.description, has_scripts })
}

fn scenario_text(target: &Target, all: &[Target], session: &AbsPath) -> String {
    let Target { name, description, has_scripts } = target;
    let session = session.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut text = format!(
        "# A first scenario for the skill {}.\n\
         #   belljar check FILE            reports every fault of it\n\
         #   belljar test --scripted FILE  runs it with the script beside it, without a key\n\
         #   belljar test FILE             runs it with the model\n\
         name: {}\nsession: {}\n\n\
         # Write what a user would say. Leave the name of the skill out to test that its description is enough.\n\
         prompt: {}\n",
        plain(name),
        quoted(name),
        quoted(&session),
        quoted(&first_sentence(description)),
    );
    text.push_str("\n# The first rule that matches answers a question of the agent.\nanswers:\n");
    if *has_scripts {
        text.push_str("  # The skill has programs of its own. `allow_if` permits some commands only.\n");
        text.push_str("  - when_tool: Bash\n    decide: allow\n");
    }
    text.push_str("  - when_tool: Skill\n    decide: allow\n");
    text.push_str("  # - when_question: which format\n  #   choose: Markdown\n");
    text.push_str(&format!(
        "\n# What must hold afterwards; docs/reference/checks.md lists all checks.\nassert:\n  - result: success\n  \
         - skill_triggered: {}\n",
        quoted(&format!("^{}$", Pattern::quoted(name))),
    ));
    text.push_str("  # - file_exists: outputs/NAME\n  # - transcript_contains: WORDS\n");
    for other in all.iter().filter(|other| other.name != *name) {
        text.push_str(&format!("  # - no_skill_triggered: {}\n", plain(&quoted(&other.name))));
    }
    text
}

/// The first sentence of a description, as a user could write it.
fn first_sentence(description: &str) -> String {
    let line = plain(description.trim().lines().next().unwrap_or_default());
    let end = line.find(". ").map_or(line.len(), |at| at + 1);
    // At the beginning of a prompt a slash would call a command.
    let sentence = line[..end].trim().trim_start_matches('/');
    if sentence.is_empty() { "Do what this skill is for.".to_owned() } else { sentence.to_owned() }
}

fn session_text(trial: &Trial, directory: &str) -> String {
    let directory = quoted(directory);
    let what = match (trial.session.plugins.enabled.as_slice(), trial.found.plugins.is_empty()) {
        ([], true) => format!("skills:\n  local: [{directory}]\n"),
        ([], false) => format!("plugins:\n  local_plugins: [{directory}]\n"),
        (enabled, _) => {
            let enabled: Vec<String> = enabled.iter().map(|one| quoted(&one.to_string())).collect();
            format!("plugins:\n  local_marketplaces: [{directory}]\n  enabled: [{}]\n", enabled.join(", "))
        }
    };
    format!("# What the agent of the scenario gets; paths are relative to this file.\n{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_the_first_sentence() {
        for (description, prompt) in [
            ("Writes notes. Use when asked.", "Writes notes."),
            ("Writes v1.2 notes\nmore", "Writes v1.2 notes"),
            ("/notes", "notes"),
            ("/", "Do what this skill is for."),
        ] {
            assert_eq!(first_sentence(description), prompt);
        }
    }
}
