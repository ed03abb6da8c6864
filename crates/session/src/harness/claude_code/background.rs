//! Sub-agents that would go on in the background.

use crate::machine::{Hook, HookAnswering};
use belljar_contract::{HookReply, HookSubscription};

/// The variable that takes background tasks away from the agent, shells included.
pub(super) const VARIABLE: &str = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS";

/// Blocks a sub-agent that is to run in the background, under either name of the tool. The callback's name and the
/// reason are those that the desktop application uses.
pub fn background_hook() -> Hook {
    Hook {
        subscription: HookSubscription {
            event: "PreToolUse".to_owned(),
            matcher: Some("Task|Agent".to_owned()),
            callback: "cowork-task-bg-block".to_owned(),
            timeout_seconds: None,
        },
        answering: HookAnswering::InBackground(HookReply::Block {
            reason: "Background agents disabled".to_owned(),
        }),
    }
}
