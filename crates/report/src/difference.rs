//! The differences between two plans.

use crate::Style;
use belljar_contract::visible;
use serde_json::Value;
use std::collections::BTreeMap;

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueChange {
    /// The path of the value, such as `egress.rules.allow-1.host`.
    pub key: String,
    /// The old value; `None` if it is new.
    pub before: Option<String>,
    /// The new value; `None` if it was removed.
    pub after: Option<String>,
}

/// The values that differ. Elements of lists are matched by their name, id, target or host, so that an insertion does
/// not look like a change of everything after it.
#[must_use]
pub fn changes(before: &Value, after: &Value) -> Vec<ValueChange> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), before, &mut old);
    flatten(String::new(), after, &mut new);
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| ValueChange {
            key: key.clone(),
            before: old.get(key).cloned(),
            after: new.get(key).cloned(),
        })
        .collect()
}

fn flatten(prefix: String, value: &Value, out: &mut BTreeMap<String, String>) {
    let below = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                flatten(below(key), member, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name =
                    ["name", "id", "target", "host", "what"].iter().find_map(|key| item.get(key)?.as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                flatten(below(&name), item, out);
            }
        }
        Value::String(text) => {
            out.insert(prefix, text.clone());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            out.insert(prefix, value.to_string());
        }
    }
}

/// One line for each change; long texts are cut, line breaks escaped.
#[must_use]
pub fn render_changes(changes: &[ValueChange], style: Style) -> String {
    let mut out = String::new();
    for ValueChange { key, before, after } in changes {
        out.push_str(&style.bold(&visible(key)));
        out.push('\n');
        if let Some(before) = before {
            out.push_str(&format!("  - {}\n", excerpt(before, after.as_deref())));
        }
        if let Some(after) = after {
            out.push_str(&format!("  + {}\n", excerpt(after, before.as_deref())));
        }
    }
    out
}

/// One line of `text`: all of it if it is short, otherwise the part that differs from `other`.
fn excerpt(text: &str, other: Option<&str>) -> String {
    const SHOWN: usize = 100;
    /// How much of the common text is shown before the difference.
    const BEFORE: usize = 24;
    let text = visible(text);
    let line: Vec<char> = text.chars().collect();
    if line.len() <= SHOWN {
        return line.into_iter().collect();
    }
    let other = visible(other.unwrap_or_default());
    let same = text.chars().zip(other.chars()).take_while(|(left, right)| left == right).count();
    let start = same.saturating_sub(BEFORE);
    let part: String = line.iter().skip(start).take(SHOWN).collect();
    let (head, tail) = (if start > 0 { "…" } else { "" }, if start + SHOWN < line.len() { "…" } else { "" });
    format!("{head}{part}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_deep_in_a_long_text_is_shown() {
        let text = |word: &str| format!("{}{word} and the rest\n{}", "same ".repeat(60), "end ".repeat(60));
        let (before, after) = (json!({"text": text("first")}), json!({"text": text("second")}));
        let shown = render_changes(&changes(&before, &after), Style::Plain);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("  - …") && lines[1].contains("first and the rest\\nend"), "{shown}");
        assert!(lines[2].starts_with("  + …") && lines[2].contains("second and the rest\\nend"), "{shown}");
        assert!(lines.iter().all(|line| line.chars().count() < 110), "{shown}");
    }

    #[test]
    fn an_insertion_is_one_change() {
        let before = json!({"rules": [{"id": "b", "host": "x"}], "n": 1});
        let after = json!({"rules": [{"id": "a", "host": "y"}, {"id": "b", "host": "x"}], "n": 1});
        let keys: Vec<String> = changes(&before, &after).into_iter().map(|change| change.key).collect();
        assert_eq!(keys, ["rules.a.host", "rules.a.id"]);
        assert!(changes(&before, &before).is_empty());
    }
}
