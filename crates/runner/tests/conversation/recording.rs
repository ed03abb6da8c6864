//! Writes the frames in both directions, as fixtures of the session crate: everything that a replay needs, without
//! facts about the machine or the day.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The variable with the directory for the frames of each conversation.
const RECORD_VAR: &str = "BELLJAR_RECORD_FRAMES";

/// Members without meaning for the protocol, or with a different value each time.
const DROPPED: [&str; 30] = [
    "account",
    "analytics_disabled",
    "apiKeySource",
    "available_output_styles",
    "cache_creation",
    "container",
    "context_management",
    "diagnostics",
    "duration_api_ms",
    "duration_ms",
    "end_time",
    "fast_mode_state",
    "inference_geo",
    "iterations",
    "memory_paths",
    "modelUsage",
    "output_file",
    "output_style",
    "pid",
    "plugins",
    "product_feedback_disabled",
    "server_tool_use",
    "slash_commands",
    "stop_details",
    "terminal_slash_commands",
    "time_to_request_ms",
    "timestamp",
    "transcript_path",
    "ttft_ms",
    "ttft_stream_ms",
];

/// Long lists, which are cut to their first entries.
const SHORTENED: [&str; 5] = ["agents", "commands", "models", "skills", "tools"];

/// Texts are cut here.
const LONGEST_TEXT: usize = 300;

pub struct Recording {
    lines: String,
    to: Option<PathBuf>,
    place: String,
}

impl Recording {
    pub fn new(name: &str, place: &Path) -> Self {
        let to = std::env::var_os(RECORD_VAR)
            .map(|directory| PathBuf::from(directory).join(format!("{name}.jsonl")));
        Self { lines: String::new(), to, place: place.canonicalize().unwrap().to_str().unwrap().to_owned() }
    }

    pub fn line(&mut self, direction: &str, frame: &Value) {
        if self.to.is_some() {
            // Frames of belljar are kept in full: a replay must send the same.
            let frame = if direction == "in" { reduced(frame) } else { frame.clone() };
            let line = json!({direction: frame}).to_string();
            self.lines.push_str(&line.replace(&self.place, "/stage"));
            self.lines.push('\n');
        }
    }

    pub fn finish(&self) {
        if let Some(to) = &self.to {
            fs::write(to, &self.lines).unwrap();
        }
    }
}

fn reduced(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| !DROPPED.contains(&key.as_str()));
            let kept = kept.map(|(key, value)| match value {
                Value::Array(items) if SHORTENED.contains(&key.as_str()) => {
                    (key.clone(), items.iter().take(2).map(named).collect())
                }
                other => (key.clone(), reduced(other)),
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(reduced).collect(),
        Value::String(text) if text.chars().count() > LONGEST_TEXT => {
            json!(text.chars().take(LONGEST_TEXT).collect::<String>() + "…")
        }
        other => other.clone(),
    }
}

/// The name of an entry.
fn named(item: &Value) -> Value {
    match item {
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| ["name", "value"].contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
