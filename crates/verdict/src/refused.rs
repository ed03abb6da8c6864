//! Keys of the format that mean nothing here, each with the reason.
//!
//! A key that could never be judged is refused before anything runs, instead of being unknown at the end of every run.

/// A key that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub key: &'static str,
    /// Why it is refused.
    pub because: &'static str,
    /// What to write instead.
    pub instead: &'static str,
}

const PATH_GATE: &str = "it looks at the path gate of a desktop application that runs tools outside; here every tool runs inside the sandbox";
const SANDBOX_PATHS: &str = "leave it out; `belljar prove` shows that paths of the machine are closed, `tool_result_matches` shows what a call returned";
const DELIVERY: &str = "it looks at `present_files`, a tool of a desktop application that is not served here";

/// Every key that is refused.
pub const REFUSED: &[Refused] = &[
    Refused {
        key: "computer_links_resolve",
        because: "`computer://` links are opened by a desktop application",
        instead: "check the file itself with `user_visible_artifact`",
    },
    Refused {
        key: "computer_links_resolve_if_present",
        because: "`computer://` links are opened by a desktop application",
        instead: "check the file itself with `user_visible_artifact`",
    },
    Refused {
        key: "present_files_called",
        because: DELIVERY,
        instead: "check the file itself with `user_visible_artifact`",
    },
    Refused {
        key: "no_scratchpad_leak",
        because: DELIVERY,
        instead: "check what is new with `no_unexpected_files`",
    },
    Refused {
        key: "self_heal_ran",
        because: "it looks for a script that repairs the plugin directory of a desktop application",
        instead: "check the call with `tool_called` or what it left with `file_exists`",
    },
    Refused {
        key: "no_lost_write_back",
        because: "it guesses from the text of pages and scripts whether edits are kept, and a guess is not evidence",
        instead: "check the files with `artifact_text` or `artifact_json`",
    },
    Refused {
        key: "subagent_declared_but_unused",
        because: "the agent does not report which tools a sub-agent was given",
        instead: "check what sub-agents call with `subagent_tool_absent`",
    },
    Refused { key: "subagent_dispatch_healthy", because: PATH_GATE, instead: "use `subagent_file_write`" },
    Refused { key: "no_vm_path_file_op", because: PATH_GATE, instead: SANDBOX_PATHS },
    Refused { key: "vm_path_denied", because: PATH_GATE, instead: SANDBOX_PATHS },
    Refused { key: "path_denied", because: PATH_GATE, instead: SANDBOX_PATHS },
    Refused { key: "no_path_denied", because: PATH_GATE, instead: SANDBOX_PATHS },
    Refused {
        key: "replay_protocol_fidelity",
        because: "it is a finding of a replay and cannot be asked for",
        instead: "leave it out; a replay that drifts says so",
    },
];

/// The refusal of a key, where it is one of them.
pub(crate) fn refused(key: &str) -> Option<&'static Refused> {
    REFUSED.iter().find(|refused| refused.key == key)
}
