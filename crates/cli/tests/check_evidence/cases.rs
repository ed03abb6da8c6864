//! A value of each key that passes and one that fails, and why an outcome cannot be.

use super::Lane;
use super::talks::Talk::{self, Disorderly, Orderly};

pub struct Case {
    pub key: &'static str,
    pub pass: (Talk, &'static str),
    pub fail: Option<(Talk, &'static str)>,
}

/// Passes on the orderly conversation, fails on the other.
const fn case(key: &'static str, pass: &'static str, fail: &'static str) -> Case {
    Case { key, pass: (Orderly, pass), fail: Some((Disorderly, fail)) }
}

/// Holds on every run.
const fn modifier(key: &'static str, value: &'static str) -> Case {
    Case { key, pass: (Orderly, value), fail: None }
}

/// In the order of the reference.
pub const CASES: &[Case] = &[
    case("result", "success", "error"),
    case("transcript_contains", "All done", "never said"),
    case("transcript_not_contains", "never said", "report.md"),
    case("transcript_matches", "'done: the \\w+'", "'^never'"),
    case("transcript_not_matches", "'^never'", "'ann/\\w+'"),
    case("transcript_no_host_path", "true", "true"),
    case("compaction_occurred", "true", "true"),
    case("semantic_matches", "{rubric: [It says where the figures are.]}", "{rubric: [It apologises.]}"),
    case("tool_called", "TaskUpdate", "WebSearch"),
    case("tool_not_called", "WebSearch", "Bash"),
    case("tool_calls_max", "50", "1"),
    case("tool_available", "'^Bash$'", "'^Telephone$'"),
    case("connector_available", "desk", "printer"),
    case("skill_available", "notes", "accounts"),
    case("tool_result_contains", "figures are ready", "never returned"),
    case("tool_result_not_contains", "never returned", "figures are ready"),
    case("tool_result_matches", "'figures \\w+ ready'", "'^never'"),
    case("tool_result_not_matches", "'^never'", "'figures \\w+ ready'"),
    case("tool_no_error", "'^Skill$'", "'^Bash$'"),
    case("tool_no_error_if_called", "'^Bash$'", "'^Bash$'"),
    case("max_tool_errors", "0", "0"),
    case("max_redundant_tool_calls", "0", "0"),
    case("no_mcp_error", "true", "true"),
    case("file_exists", "outputs/a.json", "outputs/never.json"),
    case("file_absent", "outputs/never.json", "outputs/a.json"),
    case("user_visible_artifact", "outputs/a.json", "notes.txt"),
    case(
        "artifact_json",
        "{artifact: outputs/a.json, path: rows, equals: 2}",
        "{artifact: outputs/a.json, path: rows, equals: 3}",
    ),
    case(
        "artifact_text",
        "{artifact: outputs/a.json, not_contains: columns}",
        "{artifact: outputs/a.json, not_contains: rows}",
    ),
    case("no_unexpected_files", "['outputs/**']", "[]"),
    case("input_unmodified", "'data/**'", "'data/**'"),
    // The disorderly agent deletes a file of the outputs, one that it made.
    case("no_delete_in_outputs", "true", "true"),
    case("no_delete_in_mounts", "true", "true"),
    case("question_asked", "format", "colour"),
    case("question_options", "{contains: [HTML]}", "{contains: [PDF]}"),
    case("questions_count_max", "1", "0"),
    case("gate_answers_delivered", "true", "false"),
    case("gate_answer_count_min", "1", "2"),
    case("subagent_dispatched", "look it up", "paint"),
    case("dispatch_count_max", "1", "0"),
    case("subagent_tool_used", "Write", "Edit"),
    case("subagent_tool_absent", "Edit", "Write"),
    case("subagent_output_contains", "{contains: found 42}", "{contains: found 43}"),
    case("subagent_file_write", "{path_suffix: outputs/part.md}", "{path_suffix: never.md}"),
    case("skill_triggered", "'^notes$'", "'^accounts$'"),
    case("no_skill_triggered", "'^accounts$'", "'^notes$'"),
    case("skill_tool_used", "{skill: notes, tool: Bash}", "{skill: notes, tool: Edit}"),
    case("all_tasks_completed", "true", "true"),
    case("task_count_min", "1", "5"),
    case("task_status", "{match: report, status: completed}", "{match: report, status: completed}"),
    Case { key: "hook_blocked", pass: (Disorderly, "'^Bash$'"), fail: Some((Orderly, "'^Bash$'")) },
    case("no_hook_blocked", "true", "true"),
    case("max_cost_usd", "100", "0"),
    case("max_tokens", "1000000", "1"),
    case("max_turns", "50", "1"),
    case("max_peak_rss_bytes", "1099511627776", "1"),
    case("egress_denied", "denied.test", "127.0.0.1"),
    case("egress_allowed", "127.0.0.1", "denied.test"),
    modifier("allow_permissive_auto_allow", "true"),
    modifier("allow_stall", "true"),
    modifier("allow_outputs_delete", "true"),
    modifier("allow_delete_in", "[data]"),
    modifier("allow_missing_capability", "true"),
    modifier("allow_l0_plugin_divergence", "true"),
    modifier("allow_undelivered_deliverables", "true"),
    modifier("allow_without_isolation", "[egress_denied]"),
];

/// Keys that contradict others of the list, and are asked in a list of their own.
pub const APART: [&str; 4] =
    ["hook_blocked", "dispatch_count_max", "questions_count_max", "allow_outputs_delete"];

/// An outcome that no run of this kind has.
pub struct Impossible {
    pub keys: fn(&str) -> bool,
    pub outcome: &'static str,
    pub lanes: &'static [Lane],
    pub why: &'static str,
    /// What the binary says where it was tried.
    pub says: &'static str,
}

const EVERYWHERE: &[Lane] = &[Lane::Run, Lane::Replay, Lane::Protocol];

const fn of_modifiers(outcome: &'static str) -> Impossible {
    let why = "pass only: it softens the verdict and judges nothing";
    Impossible { keys: |key| key.starts_with("allow_"), outcome, lanes: EVERYWHERE, why, says: "lets " }
}

pub const IMPOSSIBLE: &[Impossible] = &[
    of_modifiers("fail"),
    of_modifiers("unknown"),
    Impossible {
        keys: |key| key == "no_delete_in_outputs",
        outcome: "fail",
        lanes: EVERYWHERE,
        why: "no fail: the outputs of a scenario begin empty, and a file that is made and deleted within the run is not seen",
        says: "no file is gone",
    },
    Impossible {
        keys: |key| key == "egress_allowed",
        outcome: "pass",
        lanes: &[Lane::Replay],
        why: "no pass on a replay, which dials nothing; with `--network` it passes",
        says: "`belljar replay --network` does",
    },
    Impossible {
        keys: super::of_the_beginning,
        outcome: "unknown",
        lanes: &[Lane::Replay, Lane::Protocol],
        why: "no unknown on a replay: a tape begins with what the agent was offered",
        says: "was ",
    },
];

pub const INTRODUCTION: &str = "\
# Checks and their evidence

<!-- Written by crates/cli/tests/check_evidence.rs; BELLJAR_BLESS=1 writes it anew. -->

Every key of `assert`, and the outcomes that a test has seen with the real agent: on a *run* in the sandbox, on a *replay* of
its tape with the agent, and on a *protocol replay*, which reads the recorded frames and runs nothing. An outcome that is
missing has its reason in the last column. [What each check means](checks.md) is on a page of its own.

The first value passes in a conversation where everything works, the second fails in one where something of everything goes
wrong. The first value is unknown where a time limit ended the run. The checks of what the agent was offered are unknown on a
run whose conversation belljar did not see, as `belljar judge` finds after `belljar run`.

| key | passes | fails | run | replay | protocol replay | missing, and why |
| --- | --- | --- | --- | --- | --- | --- |
";

pub const REFUSED_HEADING: &str = "
## Keys that are refused

A scenario with one of these keys starts nothing, in any lane.

| key | what belljar says |
| --- | --- |
";
