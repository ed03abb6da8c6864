//! The lines of a starting manifest: live ones, examples, and explanations.

use super::toml_text::remark;
use serde_json::Value;

/// Whether an entry counts or is only shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Live,
    Example,
}

/// The text so far, and the schema that explains the keys.
pub(super) struct Page {
    text: String,
    schema: Value,
}

impl Default for Page {
    fn default() -> Self {
        Self { text: String::new(), schema: crate::manifest::json_schema() }
    }
}

impl Page {
    pub fn text(self) -> String {
        self.text
    }

    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub fn blank(&mut self) {
        self.line("");
    }

    /// An explanation. It may hold a stranger's text, which cannot end the line.
    pub fn say(&mut self, text: &str) {
        self.line(&format!("# {}", remark(text)));
    }

    /// A line that counts once its `#` is deleted.
    pub fn example(&mut self, line: &str) {
        self.line(&format!("#{line}"));
    }

    pub fn mark(&mut self, mark: Mark, line: &str) {
        match mark {
            Mark::Live => self.line(line),
            Mark::Example => self.example(line),
        }
    }

    pub fn title(&mut self, title: &str) {
        self.blank();
        self.say(&format!("---- {title} ----"));
    }

    /// What the schema says about a key, such as `agents.limits.memory`.
    pub fn explain(&mut self, path: &str) {
        let text = description(self.node(path));
        self.say(&text);
    }

    fn node(&self, path: &str) -> &Value {
        path.split('.').fold(&self.schema, below)
    }

    /// A key of the agent: what the schema says about it, and an example.
    pub fn key(&mut self, path: &str, value: &str) {
        self.explain(&format!("agents.{path}"));
        self.example(&format!("{path} = {value}"));
    }

    /// A table as a block of examples, each key with what the schema says about it.
    pub fn block(&mut self, path: &str, header: &str, entries: &[(&str, &str)]) {
        self.blank();
        let text = description(entry(self.node(path)));
        self.say(&text);
        self.example(header);
        for (key, value) in entries {
            self.explain(&format!("{path}.{}", key.split('.').next().unwrap_or(key)));
            self.example(&format!("{key} = {value}"));
        }
    }
}

fn description(node: &Value) -> String {
    node["description"].as_str().unwrap_or_default().to_owned()
}

/// The schema of a list's items, or of the entries under names of the author's, or of the table itself.
fn entry(node: &Value) -> &Value {
    let node = node.get("items").unwrap_or(node);
    node.get("additionalProperties").filter(|entries| entries.is_object()).unwrap_or(node)
}

fn below<'a>(node: &'a Value, key: &str) -> &'a Value {
    &entry(node)["properties"][key]
}
