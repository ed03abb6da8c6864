//! A first script, for a scenario or by itself.

use super::script_text::first_script_text;
use super::{Scaffold, beside};
use crate::environment::HostEnvironment;
use crate::suite::load::{LoadError, load_scenario_alone};
use belljar_contract::AbsPath;
use serde_json::json;

/// A first script. `named` is a scenario, beside which it goes and whose first skill it calls; a file that ends in `.json`;
/// or a name without an ending.
///
/// # Errors
/// If the scenario cannot be read.
pub fn scaffold_script(environment: &HostEnvironment, named: &AbsPath) -> Result<Scaffold, LoadError> {
    let name = named.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_scenario = name.ends_with(".yaml") || name.ends_with(".yml");
    let file = if name.ends_with(".json") { named.clone() } else { beside(named, ".script.json") };
    let (skill, plays) = match is_scenario {
        true => {
            let trial = load_scenario_alone(environment, named)?;
            let plays = format!("`belljar test --scripted {}`", environment.shown(named));
            (trial.scenario.skills.first().cloned(), plays)
        }
        false => {
            let file = environment.shown(&file);
            let skill = format!("`belljar skill DIR \"PROMPT\" --script {file}`");
            (None, format!("{skill}, or with a scenario `belljar test --script {file} SCENARIO`,"))
        }
    };
    let text = match &skill {
        Some(skill) => first_script_text("Skill", json!({"skill": skill})),
        // It asks for no permission and changes nothing.
        None => first_script_text("Bash", json!({"command": "ls", "description": "List the workspace"})),
    };
    Ok(Scaffold { files: vec![(file, text)], notes: vec![format!("edit its turns; {plays} plays it")] })
}
