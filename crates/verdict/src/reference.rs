//! The page and the schema that are written from the table of checks.

use crate::check::{Group, Key, keys};
use crate::refused::REFUSED;
use crate::signal::SIGNALS;
use belljar_contract::SignalWeight;
use serde_json::{Map, Value, json};

/// The JSON Schema of an item of `assert`.
#[must_use]
pub fn schema() -> Value {
    let mut properties = Map::new();
    for key in keys() {
        let mut value = (key.schema)();
        value["description"] = json!(paragraphs(key.doc).join("\n\n"));
        properties.insert(key.name.to_owned(), value);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A check of a run",
        "description": "All keys of a check must hold.",
        "type": "object",
        "minProperties": 1,
        "properties": properties,
        "additionalProperties": false,
    })
}

const HEAD: &str = "\
<!-- Written by `cargo xtask generated --write` from crates/verdict/src/check. -->

# Checks

What a scenario can ask of a run, under `assert`. An item with several keys holds when all of them do. Each check has three
outcomes: pass, fail, and unknown where the evidence does not say; unknown is not green. \"It did not happen\" needs a whole
conversation, whole files or a whole log.

[Checks and their evidence](check-evidence.md) shows the outcomes of every check on a run, a replay and a protocol replay.
A check that would say that something is not in a text is unknown where a value was redacted from that text.

Patterns are those of JavaScript without look-around and references back to groups, compared without regard to capital
letters; they run in linear time. Paths are below the workspace; absolute ones, `..` and links that lead out are refused.
";

/// The page about every check, every signal and every key that is refused, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        page.push_str(&format!("\n## {}\n", group.title()));
        for key in keys().filter(|key| key.group == group) {
            page.push_str(&section(key));
        }
    }
    page.push_str("\n## Signals\n\nWhat is looked at without being asked for.\n\n| signal | weight | meaning |\n| --- | --- | --- |\n");
    for about in SIGNALS {
        let weight = match about.weight {
            SignalWeight::Fail => "fail",
            SignalWeight::Unknown => "unknown",
            SignalWeight::Warn => "warn",
        };
        page.push_str(&format!("| `{}` | {weight} | {} |\n", about.code, about.doc));
    }
    page.push_str("\n## Keys that are refused\n\n| key | why | instead |\n| --- | --- | --- |\n");
    for refused in REFUSED {
        page.push_str(&format!("| `{}` | {} | {} |\n", refused.key, refused.because, refused.instead));
    }
    page
}

fn section(key: &Key) -> String {
    let schema = (key.schema)();
    let mut out = format!(
        "\n### `{}`\n\nTakes {}.\n\n{}\n",
        key.name,
        takes(&schema),
        paragraphs(key.doc).join("\n\n")
    );
    if let Some(members) = schema["properties"].as_object() {
        out.push_str("\n| key | takes | |\n| --- | --- | --- |\n");
        for (name, member) in members {
            let required = schema["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
            let mark = if required { "**required.** " } else { "" };
            let line = member["description"].as_str().unwrap_or_default();
            out.push_str(&format!("| `{name}` | {} | {mark}{line} |\n", takes(member)));
        }
    }
    out
}

/// What a value is, in a few words.
fn takes(schema: &Value) -> String {
    if let Some(word) = schema.get("const") {
        return format!("`{}`", word.as_str().map_or_else(|| word.to_string(), str::to_owned));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return words.join(" or ");
    }
    if let Some(forms) = schema["oneOf"].as_array() {
        return forms.iter().map(takes).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "regex" => "a pattern".to_owned(),
        Some("string") => "a text".to_owned(),
        Some("integer") => "a whole number".to_owned(),
        Some("number") => "a number".to_owned(),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("array") => format!("a list, each {}", takes(&schema["items"])),
        Some("object") => "an object".to_owned(),
        Some(_) | None => "any value".to_owned(),
    }
}

/// The paragraphs of a documentation, each in one line.
fn paragraphs(doc: &[&str]) -> Vec<String> {
    let text: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
    text.split(|line| line.is_empty()).map(|lines| lines.join(" ")).filter(|text| !text.is_empty()).collect()
}
