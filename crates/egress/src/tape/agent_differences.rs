//! What another version of the agent sends otherwise.

use super::agent_texts;
use super::owned::{SERVER_TOOL, name, results};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How many characters of a parameter are shown.
const PARAMETER_SHOWN: usize = 80;

/// Tools that another version calls by another name: the agent lists the earlier ones as aliases (2.1.197, 2026-11-18).
const RENAMED: [(&str, &str); 4] =
    [("Task", "Agent"), ("BashOutput", "TaskOutput"), ("KillBash", "TaskStop"), ("KillShell", "TaskStop")];

/// What another version of the agent sent otherwise, in all requests that matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDifferences {
    pub tools_added: BTreeSet<String>,
    pub tools_removed: BTreeSet<String>,
    /// Tools with the same definition, or known to be the same, under another name: the recorded one and the present one.
    pub tools_renamed: BTreeMap<String, String>,
    /// Tools whose definition is another one.
    pub tools_changed: BTreeSet<String>,
    /// Tools around whose results the agent has other words.
    pub results_worded: BTreeSet<String>,
    /// Members of the request, each with the recorded and the present value.
    pub parameters: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Characters of the system prompt, recorded and present; the largest of all requests.
    pub system_prompt: Option<(usize, usize)>,
    /// Characters of the reminders, recorded and present; the largest of all requests.
    pub reminders: Option<(usize, usize)>,
    /// Characters of the system prompt and the definitions of the agent's own tools, recorded and present; the largest of
    /// all requests, also if they are the same.
    pub fixed_prompt: Option<(usize, usize)>,
}

impl AgentDifferences {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// The differences, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Self {
            tools_added,
            tools_removed,
            tools_renamed,
            tools_changed,
            results_worded,
            parameters,
            system_prompt,
            reminders,
            fixed_prompt: _,
        } = self;
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut out = Vec::new();
        let renamed = tools_renamed.iter().map(|(before, now)| format!("{before} to {now}")).collect();
        for (what, names) in [
            ("tools added", tools_added),
            ("tools removed", tools_removed),
            ("tools renamed", &renamed),
            ("tools defined otherwise", tools_changed),
            ("results worded otherwise", results_worded),
        ] {
            if !names.is_empty() {
                out.push(format!("{what}: {}", list(names)));
            }
        }
        for (name, (recorded, present)) in parameters {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
            out.push(format!("{name}: {} when recorded, now {}", text(recorded), text(present)));
        }
        for (what, sizes) in [("system prompt", system_prompt), ("reminders", reminders)] {
            if let Some((recorded, present)) = sizes {
                out.push(format!("{what}: {recorded} characters when recorded, now {present}"));
            }
        }
        out
    }

    /// Adds what differs between two requests that matched.
    pub(super) fn add(&mut self, recorded: &Value, present: &Value) {
        self.tools(recorded, present);
        self.parameters(recorded, present);
        let (before, now) = (results(recorded), results(present));
        let worded = before.iter().filter(|(id, (_, text))| now.get(*id).is_some_and(|(_, now)| now != text));
        self.results_worded.extend(worded.map(|(_, (tool, _))| (*tool).to_owned()));
        let larger = |known: &mut Option<(usize, usize)>, found: (usize, usize)| {
            *known = Some(known.map_or(found, |(left, right)| (left.max(found.0), right.max(found.1))));
        };
        let prompt = |of: &Value| of.get("system").map(agent_texts::marked_length).unwrap_or_default();
        if recorded.get("system") != present.get("system") {
            larger(&mut self.system_prompt, (prompt(recorded), prompt(present)));
        }
        let tools = |of: &Value| of.get("tools").map(agent_texts::marked_length).unwrap_or_default();
        let fixed = |of: &Value| prompt(of) + tools(of);
        larger(&mut self.fixed_prompt, (fixed(recorded), fixed(present)));
        let reminders = |of: &Value| of.get("messages").map(agent_texts::marks).unwrap_or_default();
        let (before, now) = (reminders(recorded), reminders(present));
        if before != now {
            let total = |marks: &[(String, usize)]| marks.iter().map(|(_, length)| length).sum();
            larger(&mut self.reminders, (total(&before), total(&now)));
        }
    }

    fn tools(&mut self, recorded: &Value, present: &Value) {
        let tools = |of: &Value| -> BTreeMap<String, Value> {
            let all = of.get("tools").and_then(Value::as_array).into_iter().flatten();
            // Those of servers are the user's side.
            let own = all.filter(|tool| !name(tool).starts_with(SERVER_TOOL));
            own.map(|tool| (name(tool).to_owned(), tool.clone())).collect()
        };
        let (before, now) = (tools(recorded), tools(present));
        let mut removed: BTreeSet<&String> = before.keys().filter(|name| !now.contains_key(*name)).collect();
        for (added, tool) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
            let is_same = |gone: &&&String| {
                let definition = tool.get("definition");
                definition.is_some() && before[**gone].get("definition") == definition
                    || RENAMED.contains(&(gone.as_str(), added.as_str()))
            };
            match removed.iter().find(is_same).copied() {
                Some(gone) => {
                    removed.remove(gone);
                    self.tools_renamed.insert(gone.clone(), added.clone());
                }
                None => {
                    self.tools_added.insert(added.clone());
                }
            }
        }
        self.tools_removed.extend(removed.into_iter().cloned());
        let changed = before.iter().filter(|(name, tool)| now.get(*name).is_some_and(|now| now != *tool));
        self.tools_changed.extend(changed.map(|(name, _)| name.clone()));
    }

    fn parameters(&mut self, recorded: &Value, present: &Value) {
        let members = |of: &Value| of.as_object().cloned().unwrap_or_default();
        let (before, now) = (members(recorded), members(present));
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        for name in names.into_iter().filter(|name| !["messages", "system", "tools"].contains(&name.as_str()))
        {
            if before.get(name) != now.get(name) {
                let text = |value: Option<&Value>| {
                    value.map(|value| value.to_string().chars().take(PARAMETER_SHOWN).collect::<String>())
                };
                self.parameters.insert(name.clone(), (text(before.get(name)), text(now.get(name))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(messages: Value) -> Value {
        agent_texts::without(json!({"model": "m", "system": "You are", "messages": messages}))
    }

    #[test]
    fn the_agents_side_is_listed() {
        let mut recorded = request(json!([{"role": "user", "content": "go"}]));
        let mut present =
            request(json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]));
        present["model"] = json!("n");
        present["tools"] = json!([{"name": "Grep", "definition": "x"}]);
        recorded["tools"] = json!([{"name": "Bash", "definition": "x"}, {"name": "Grep", "definition": "y"}]);
        let mut found = AgentDifferences::default();
        assert!(found.is_empty());
        found.add(&recorded, &present);
        assert_eq!(
            found.lines(),
            [
                "tools removed: Bash",
                "tools defined otherwise: Grep",
                "model: \"m\" when recorded, now \"n\"",
                "reminders: 0 characters when recorded, now 8",
            ]
        );
    }

    #[test]
    fn a_tool_under_another_name_is_renamed() {
        let with = |tools: &[(&str, &str)]| {
            let tool = |(name, definition): &(&str, &str)| json!({"name": name, "definition": definition});
            json!({"messages": [], "tools": tools.iter().map(tool).collect::<Vec<_>>()})
        };
        let mut found = AgentDifferences::default();
        found.add(
            &with(&[("Task", "a"), ("Look", "b"), ("Gone", "c"), ("Bash", "d")]),
            &with(&[("Agent", "x"), ("Search", "b"), ("Fresh", "y"), ("Bash", "d")]),
        );
        assert_eq!(
            found.lines(),
            ["tools added: Fresh", "tools removed: Gone", "tools renamed: Look to Search, Task to Agent"]
        );
    }

    #[test]
    fn a_result_with_other_words_names_its_tool() {
        let with = |said: &str| {
            json!({"messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Write", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": said}]},
            ]})
        };
        let mut found = AgentDifferences::default();
        found.add(&with("created"), &with("created"));
        assert!(found.is_empty());
        found.add(&with("created"), &with("was created"));
        assert_eq!(found.lines(), ["results worded otherwise: Write"]);
    }
}
