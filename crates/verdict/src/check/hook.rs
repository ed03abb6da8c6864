//! Hooks that blocked a tool.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::Yes;
use belljar_contract::{Observation, Pattern};
use serde_json::Value;

pub(super) const KEYS: &[Key] = &[Blocked::KEY, NotBlocked::KEY];

check! {
    /// A hook before a tool blocked it, and the tool's name matches. A hook blocks by status 2, or by saying `block` or
    /// `deny`. Unknown if the agent reports no hook at all.
    Blocked(Hooks, "hook_blocked", NotNeeded): Pattern
}
check! {
    /// No hook blocked a tool. Needs the whole conversation, and an agent that reports its hooks: if none was seen to run,
    /// the check is unknown.
    NotBlocked(Hooks, "no_hook_blocked", NotNeeded): Yes
}

/// A hook before a tool.
struct Hook<'a> {
    seq: u64,
    tool: &'a str,
    text: &'a str,
    blocked: bool,
}

/// The hooks before tools, and the event of the first hook of any kind.
fn hooks<'a>(run: &Run<'a>) -> (Vec<Hook<'a>>, Option<u64>) {
    let mut reported = None;
    let mut hooks = Vec::new();
    for seen in &run.evidence.seen {
        let Observation::HookRan { event, name, outcome, exit_code, text } = &seen.what else { continue };
        reported = reported.or(Some(seen.seq));
        if event != "PreToolUse" {
            continue;
        }
        // As in `PreToolUse:Bash`.
        let tool = name.split_once(':').map_or(name.as_str(), |(_, tool)| tool);
        let blocked = *exit_code == Some(2)
            || matches!(outcome.as_deref(), Some("blocked" | "blocking" | "deny"))
            || text.lines().chain([text.as_str()]).any(says_block);
        hooks.push(Hook { seq: seen.seq, tool, text, blocked });
    }
    (hooks, reported)
}

/// Whether a hook's output says to block the tool.
fn says_block(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return false };
    let decision = value.get("decision").and_then(Value::as_str);
    let permission = value.pointer("/hookSpecificOutput/permissionDecision").and_then(Value::as_str);
    decision == Some("block") || permission == Some("deny")
}

const NO_HOOKS: &str = "the agent reported no hook, so what hooks did cannot be seen";

impl Check for Blocked {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let (hooks, reported) = hooks(run);
        match (hooks.iter().find(|hook| hook.blocked && self.0.is_match(hook.tool)), reported) {
            (Some(hook), _) => {
                Finding::pass(format!("a hook blocked {}", hook.tool)).seen(hook.seq, hook.text)
            }
            (None, None) => Finding::unknown(NO_HOOKS),
            (None, Some(seq)) => {
                run.fails_if_whole("no hook blocked such a tool").seen(seq, "a hook that the agent reported")
            }
        }
    }
}

impl Check for NotBlocked {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        let (hooks, reported) = hooks(run);
        match (hooks.iter().find(|hook| hook.blocked), reported) {
            (Some(hook), _) => {
                Finding::fail(format!("a hook blocked {}", hook.tool)).seen(hook.seq, hook.text)
            }
            (None, None) => Finding::unknown(NO_HOOKS),
            (None, Some(seq)) => {
                run.holds_if_whole("no hook blocked a tool").seen(seq, "a hook that the agent reported")
            }
        }
    }
}
