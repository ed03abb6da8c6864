//! What a session asks of the agent: flags and variables that no file of settings can hold.

use super::background;
use belljar_contract::{
    ConversationChoice, EnvName, PermissionMode, SessionTuning, ThinkingLimit, TunedAgent,
};

pub(super) fn tuned(tuning: &SessionTuning<'_>) -> TunedAgent {
    TunedAgent { arguments: arguments(tuning), variables: variables(tuning) }
}

fn arguments(tuning: &SessionTuning<'_>) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    match tuning.conversation {
        ConversationChoice::Fresh => {}
        ConversationChoice::Named(id) => flag("--session-id", id.to_owned()),
        ConversationChoice::Resumed(id) => flag("--resume", id.to_owned()),
    }
    match tuning.permission_mode {
        PermissionMode::Default => flag("--permission-mode", "default".to_owned()),
        PermissionMode::AcceptEdits => flag("--permission-mode", "acceptEdits".to_owned()),
        PermissionMode::Plan => flag("--permission-mode", "plan".to_owned()),
        PermissionMode::DontAsk => flag("--permission-mode", "dontAsk".to_owned()),
        // The manifest says it, and the agent takes it only from there.
        PermissionMode::BypassPermissions => {}
    }
    match tuning.thinking {
        None => {}
        Some(ThinkingLimit::Tokens(tokens)) => flag("--max-thinking-tokens", tokens.to_string()),
        Some(ThinkingLimit::Disabled) => flag("--thinking", "disabled".to_owned()),
    }
    if let Some(display) = tuning.thinking_display {
        flag("--thinking-display", display.to_owned());
    }
    if let Some(turns) = tuning.max_turns {
        flag("--max-turns", turns.to_string());
    }
    arguments
}

fn variables(tuning: &SessionTuning<'_>) -> Vec<(EnvName, String)> {
    let search = tuning.tool_search.map(|search| if search { "auto" } else { "false" });
    let variables = [
        ("CLAUDE_CODE_SUBAGENT_MODEL", tuning.subagent_model.map(str::to_owned)),
        ("ENABLE_TOOL_SEARCH", search.map(str::to_owned)),
        ("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", tuning.stable_api_only.then(|| "1".to_owned())),
        ("CLAUDE_CODE_AUTO_COMPACT_WINDOW", tuning.compact_after.map(|tokens| tokens.to_string())),
        (background::VARIABLE, tuning.foreground_only.then(|| "1".to_owned())),
    ];
    // The names are constants, and the test below uses each.
    variables.into_iter().filter_map(|(name, value)| Some((EnvName::new(name).ok()?, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: SessionTuning<'_> = SessionTuning {
        conversation: ConversationChoice::Fresh,
        permission_mode: PermissionMode::Default,
        thinking: None,
        thinking_display: None,
        max_turns: None,
        subagent_model: None,
        tool_search: None,
        stable_api_only: false,
        compact_after: None,
        foreground_only: false,
    };

    #[test]
    fn each_wish_has_its_flag() {
        let plan = PermissionMode::Plan;
        for (tuning, flags) in [
            (NOTHING, "--permission-mode default"),
            (SessionTuning { permission_mode: PermissionMode::BypassPermissions, ..NOTHING }, ""),
            (
                SessionTuning { conversation: ConversationChoice::Named("a"), ..NOTHING },
                "--session-id a --permission-mode default",
            ),
            (
                SessionTuning { conversation: ConversationChoice::Resumed("a"), ..NOTHING },
                "--resume a --permission-mode default",
            ),
            (
                SessionTuning { thinking: Some(ThinkingLimit::Tokens(31_999)), ..NOTHING },
                "--permission-mode default --max-thinking-tokens 31999",
            ),
            (
                SessionTuning { thinking: Some(ThinkingLimit::Disabled), ..NOTHING },
                "--permission-mode default --thinking disabled",
            ),
            (
                SessionTuning {
                    permission_mode: plan,
                    thinking: Some(ThinkingLimit::Tokens(9)),
                    thinking_display: Some("omitted"),
                    max_turns: Some(7),
                    ..NOTHING
                },
                "--permission-mode plan --max-thinking-tokens 9 --thinking-display omitted --max-turns 7",
            ),
        ] {
            assert_eq!(tuned(&tuning).arguments.join(" "), flags);
        }
    }

    #[test]
    fn each_wish_has_its_variable() {
        let variables = |tuning: &SessionTuning<'_>| -> Vec<String> {
            tuned(tuning).variables.iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        assert_eq!(variables(&NOTHING), [""; 0]);
        let all = SessionTuning {
            subagent_model: Some("m"),
            tool_search: Some(false),
            stable_api_only: true,
            compact_after: Some(100_000),
            foreground_only: true,
            ..NOTHING
        };
        assert_eq!(
            variables(&all),
            [
                "CLAUDE_CODE_SUBAGENT_MODEL=m",
                "ENABLE_TOOL_SEARCH=false",
                "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1",
                "CLAUDE_CODE_AUTO_COMPACT_WINDOW=100000",
                "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1"
            ]
        );
        let auto = SessionTuning { tool_search: Some(true), ..NOTHING };
        assert_eq!(variables(&auto), ["ENABLE_TOOL_SEARCH=auto"]);
    }
}
