//! A tape of a run that a signal made fail is never green, whichever part that carries the signal was taken out or replaced.
//!
//! Every check of these runs passes, so the signal alone keeps them from being green.

use crate::altered_tapes::{events_of, frames_of, leaves, replaced};
use crate::cmd::record::data;
use crate::faults::{command, says, with_agent};
use crate::forged_tapes::{lines, write_events, write_part};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Events that say how a run went. Of the others, the start and what was enforced say nothing about it.
const ENDS: [&str; 5] = ["conversation_ended", "command_ended", "limit_reached", "run_ended", "interrupted"];

struct Signalled {
    stage: Stage,
    what: Vec<(PathBuf, String)>,
}

impl Signalled {
    /// Records what an agent does, with a check that passes.
    #[track_caller]
    fn new(does: &str, keys: &str, signal: &str) -> Self {
        let stage = with_agent(does);
        stage.write(
            "project/a.yaml",
            format!("prompt: go\n{keys}assert: [{{transcript_contains: All done.}}]\n"),
        );
        stage.write("project/a.script.json", says(&["All done."]));
        let found =
            stage.finish(&mut command(&stage, &["record", "--scripted", "--allow-failing", "a.yaml"]));
        assert!(stage.path("project/a.tape").exists(), "{found:?}");
        let this = Self { stage, what: Vec::new() };
        let rows = this.rows(&["a.tape"]);
        let codes = rows[0]["signals"].to_string();
        assert!(codes.contains(signal) && rows[0]["exit_code"] != 0, "{signal}: {:#}", rows[0]);
        let checks = rows[0]["checks"].to_string();
        assert!(checks.contains("\"pass\"") && !checks.contains("\"fail\""), "{:#}", rows[0]);
        this
    }

    fn original(&self) -> PathBuf {
        self.stage.path("project/a.tape")
    }

    fn rows(&self, paths: &[&str]) -> Vec<Value> {
        let found = self.stage.run(&[&["replay", "--protocol", "--json"], paths].concat());
        data(&found)["results"].as_array().unwrap().clone()
    }

    fn add(&mut self, what: String, change: impl FnOnce(&Path)) {
        let tape = self.stage.path(&format!("project/altered/{}.tape", self.what.len()));
        fs::create_dir_all(tape.parent().unwrap()).unwrap();
        assert!(Command::new("cp").arg("-r").arg(self.original()).arg(&tape).status().unwrap().success());
        // The scenario is found from the tape's directory.
        fs::copy(self.stage.path("project/a.yaml"), self.stage.path("project/altered/a.yaml")).unwrap();
        change(&tape);
        self.what.push((tape, what));
    }

    /// Takes out and replaces each event that says how the run went, each frame, and each value of the result.
    fn altered(mut self) {
        let events = events_of(&self.original());
        for at in 0..events.len() {
            let mut fewer = events.clone();
            let gone = fewer.remove(at).1;
            if gone["kind"] != "notice" && gone["kind"] != "limit_set" {
                self.add(format!("without event {at}: {gone}"), |tape| write_events(tape, &fewer));
            }
            if !ENDS.contains(&gone["kind"].as_str().unwrap()) {
                continue;
            }
            let mut pointers = Vec::new();
            leaves(&gone, "", &mut pointers);
            for pointer in pointers {
                let mut other = events.clone();
                let place = other[at].1.pointer_mut(&pointer).unwrap();
                *place = replaced(place);
                self.add(format!("event {at} at {pointer}: {gone}"), |tape| write_events(tape, &other));
            }
        }
        let frames = lines(&self.original().join("frames.jsonl"));
        for at in 0..frames.len() {
            let mut fewer = frames.clone();
            let gone = fewer.remove(at);
            self.add(format!("without frame {at}: {gone}"), |tape| frames_of(tape, &fewer));
        }
        let result: Value =
            serde_json::from_slice(&fs::read(self.original().join("result.json")).unwrap()).unwrap();
        let mut passed = result.clone();
        passed["status"] = json!({"how": "exited", "code": 0});
        if passed != result {
            self.add("a status of 0".to_owned(), |tape| {
                write_part(tape, "result.json", format!("{passed:#}\n").as_bytes())
            });
        }
        self.add("nothing".to_owned(), |_| {});
        let rows = self.rows(&["altered"]);
        let row = |tape: &Path| rows.iter().find(|row| row["tape"].as_str() == tape.to_str()).unwrap();
        let (last, _) = self.what.last().unwrap();
        // The copies are judged by what was changed in them, and not by where they are.
        assert_eq!(row(last)["changed"], json!([]), "{:#}", row(last));
        assert!(!row(last)["signals"].to_string().contains("recording_contradicts"), "{:#}", row(last));
        let green: Vec<&String> =
            self.what.iter().filter(|(tape, _)| row(tape)["exit_code"] == 0).map(|(_, what)| what).collect();
        assert_eq!(green, Vec::<&String>::new(), "of {}", self.what.len());
    }
}

#[test]
fn a_time_limit_stays_a_signal() {
    require!(Bwrap, Python);
    let waits = "greet(); take(); text('All done.'); heard(); signal.pause()";
    // Its words are said long before, also on a busy machine.
    Signalled::new(waits, "timeout_ms: 15000\n", "budget_reached").altered();
}

#[test]
fn a_failed_turn_stays_a_signal() {
    require!(Bwrap, Python);
    let fails = "greet(); take(); text('All done.')\n\
        say('result', subtype='error_during_execution', is_error=True, api_error_status=None, num_turns=1,\n\
        result=last[0], stop_reason='end_turn', total_cost_usd=0, usage={'input_tokens': 1, 'output_tokens': 1},\n\
        permission_denials=[], terminal_reason='completed')\n\
        idle()\nwhile heard() is not None: pass";
    Signalled::new(fails, "", "result_error").altered();
}

#[test]
fn a_call_that_no_rule_allowed_stays_a_signal() {
    require!(Bwrap, Python);
    let asks = "greet(); take(); ask(); heard(); text('All done.'); result(); idle()\nwhile heard() is not None: pass";
    Signalled::new(asks, "", "permissive_auto_allow").altered();
}
