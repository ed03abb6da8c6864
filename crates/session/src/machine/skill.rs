//! Detects the use of a skill, in each of the ways that an agent has.

use belljar_contract::{Observation, SkillWay, Speaker};
use serde_json::{Map, Value};

/// The first words of a message that loads a skill's text for the model.
const BASE_DIRECTORY: &str = "Base directory for this skill: ";

/// A skill whose use is detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillPlace {
    pub name: String,
    /// Its directory in each spelling that the agent may use, without a `/` at the end: absolute, and relative to the
    /// working directory.
    pub directories: Vec<String>,
}

impl SkillPlace {
    fn lies_at(&self, directory: &str) -> bool {
        self.directories.iter().any(|own| own == directory)
    }
}

/// The skills that a call would put to use if it is carried out.
pub(super) fn uses(places: &[SkillPlace], tool: &str, input: &Map<String, Value>) -> Vec<(String, SkillWay)> {
    let text = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or_default();
    match tool {
        // Counted even where no such skill was declared: the agent has skills of its own.
        "Skill" => vec![(text("skill").trim_start_matches('/').to_owned(), SkillWay::Tool)],
        "Read" => {
            let reads = |place: &&SkillPlace| {
                text("file_path").strip_suffix("/SKILL.md").is_some_and(|directory| place.lies_at(directory))
            };
            places.iter().filter(reads).map(|place| (place.name.clone(), SkillWay::Read)).collect()
        }
        "Bash" => {
            let way = |place: &SkillPlace| Some((place.name.clone(), in_command(place, text("command"))?));
            places.iter().filter_map(way).collect()
        }
        _ => Vec::new(),
    }
}

/// How a command uses files of the skill; running a script takes precedence over reading the text.
fn in_command(place: &SkillPlace, command: &str) -> Option<SkillWay> {
    let mut found = None;
    for directory in &place.directories {
        for (at, _) in command.match_indices(&format!("{directory}/")) {
            let before = command[..at].chars().next_back();
            if before.is_some_and(|char| char.is_alphanumeric() || "/._-".contains(char)) {
                continue;
            }
            let rest = &command[at + directory.len() + 1..];
            let end = rest.find(|char: char| char.is_whitespace() || "'\"`;|&<>()".contains(char));
            match &rest[..end.unwrap_or(rest.len())] {
                "" => {}
                "SKILL.md" => found = found.or(Some(SkillWay::ShellRead)),
                _ => return Some(SkillWay::Script),
            }
        }
    }
    found
}

/// The skill that a message names as a command. The agent sends no frame for that.
pub(super) fn named_by_message(places: &[SkillPlace], text: &str) -> Option<Observation> {
    let word = text.strip_prefix('/')?.split_whitespace().next()?;
    places.iter().find(|place| place.name == word).map(|place| Observation::SkillActivated {
        skill: place.name.clone(),
        way: SkillWay::Message,
        by: Speaker::Main,
        call: None,
    })
}

/// The directory that the agent names when it loads a skill's text for the model.
pub(super) fn loaded(places: &[SkillPlace], text: &str) -> Option<Observation> {
    let directory = text.strip_prefix(BASE_DIRECTORY)?.lines().next()?.trim_end_matches('/');
    let skill = places.iter().find(|place| place.lies_at(directory)).map(|place| place.name.clone());
    Some(Observation::SkillLoaded { directory: directory.to_owned(), skill })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(tool: &str, input: Value) -> Vec<SkillWay> {
        let directories = vec!["/w/.agent/skills/notes".to_owned(), ".agent/skills/notes".to_owned()];
        let place = SkillPlace { name: "notes".to_owned(), directories };
        let Value::Object(input) = input else { panic!() };
        uses(&[place], tool, &input).into_iter().map(|(_, way)| way).collect()
    }

    #[test]
    fn each_way_is_distinguished_from_its_near_miss() {
        assert_eq!(found("Skill", json!({"skill": "notes"})), [SkillWay::Tool]);
        assert_eq!(found("Read", json!({"file_path": "/w/.agent/skills/notes/SKILL.md"})), [SkillWay::Read]);
        assert_eq!(found("Read", json!({"file_path": "/w/.agent/skills/notes2/SKILL.md"})), []);
        assert_eq!(found("Read", json!({"file_path": "/w/.agent/skills/notes/other.md"})), []);
        let bash = |command: &str| found("Bash", json!({"command": command}));
        assert_eq!(bash("cat .agent/skills/notes/SKILL.md"), [SkillWay::ShellRead]);
        assert_eq!(bash("cat '.agent/skills/notes/SKILL.md'|wc"), [SkillWay::ShellRead]);
        assert_eq!(bash("python3 /w/.agent/skills/notes/scripts/a.py x"), [SkillWay::Script]);
        assert_eq!(bash("cat .agent/skills/notes/SKILL.md; sh .agent/skills/notes/a.sh"), [SkillWay::Script]);
        assert_eq!(bash("cat my.agent/skills/notes/SKILL.md"), []);
        assert_eq!(bash("ls .agent/skills/notes .agent/skills/notes/"), []);
        assert_eq!(found("Write", json!({"file_path": "/w/.agent/skills/notes/SKILL.md"})), []);
    }
}
