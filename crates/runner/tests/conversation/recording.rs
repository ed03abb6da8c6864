//! Frames in both directions, kept as fixtures of the session crate when they are wanted: what a replay looks at, and
//! nothing of the machine or the day.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Names a folder into which the frames of each conversation are written.
const RECORD_VAR: &str = "BELLJAR_RECORD_FRAMES";

/// Members that say nothing about the protocol, or something else each time.
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

/// Lists that are long; their first entries stand for them.
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
        let to =
            std::env::var_os(RECORD_VAR).map(|folder| PathBuf::from(folder).join(format!("{name}.jsonl")));
        Self { lines: String::new(), to, place: place.canonicalize().unwrap().to_str().unwrap().to_owned() }
    }

    pub fn line(&mut self, direction: &str, frame: &Value) {
        if self.to.is_some() {
            // What belljar says is kept whole: a replay must say the same.
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

/// Of an entry, what it is called by.
fn named(item: &Value) -> Value {
    match item {
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| ["name", "value"].contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
