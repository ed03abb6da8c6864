//! The note in the agent's memory that describes its sandbox.

use belljar_contract::{
    AbsPath, BackendKind, Egress, HomeMode, Limits, Purpose, RuleEffect, Workspace, WorkspaceMode,
};
use std::fmt::Write as _;

/// The facts that the note is made of.
pub(super) struct Facts<'a> {
    pub workspace: &'a Workspace,
    pub home_directory: &'a AbsPath,
    pub home: HomeMode,
    pub egress: &'a Egress,
    pub limits: &'a Limits,
    pub credentials: &'a [String],
    pub ssh: &'a [String],
    pub backend: BackendKind,
    pub purpose: Purpose,
}

/// Whether the backend isolates the agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Isolation {
    Sandboxed,
    None,
}

/// The note, as Markdown.
pub(super) fn write(facts: &Facts<'_>) -> String {
    let Facts { workspace, home_directory, home, egress, limits, credentials, ssh, backend, purpose } = facts;
    let isolation = if backend.isolates() { Isolation::Sandboxed } else { Isolation::None };
    let mut lines = vec![format!(
        "The project is at `{}`. {}",
        workspace.target,
        match workspace.mode {
            WorkspaceMode::Direct => "What you change there is changed for the user at once.",
            WorkspaceMode::Overlay =>
                "What you change there, commits and branches included, is kept apart until the user applies it.",
            WorkspaceMode::Copy =>
                "It is a copy; what you change there, commits included, is kept apart until the user applies it.",
        }
    )];
    let guarded = workspace.mode == WorkspaceMode::Direct && workspace.unguarded.is_none();
    if guarded && isolation == Isolation::Sandboxed && *purpose == Purpose::Session {
        lines.push("Files there that the user's machine would execute later are held back: git hooks and configuration that names programs, settings of editors and agents, `.envrc`, `.mcp.json` and the like, wherever they lie. Creating, changing, moving or linking one fails with \"Permission denied\" or \"Read-only file system\", and the attempt is reported to the user; ask the user to make such a change. `git init`, `commit`, `remote add` and `push -u` work; `clone` and `worktree add` work where no such file is checked out.".to_owned());
    }
    let kept = match home {
        HomeMode::Clean => "",
        HomeMode::Project | HomeMode::Shared => ", but for your conversations and memory of this project",
    };
    match isolation {
        Isolation::Sandboxed => {
            lines.push(format!("Your home `{home_directory}` and `/tmp` are empty at every start{kept}."));
            lines.push("Nothing else of the user's machine is here: do not look for keys, other projects or programs in homes.".to_owned());
        }
        Isolation::None => {
            lines.push(format!(
                "Your home `{home_directory}` is empty at every start{kept}; `/tmp` is the machine's own."
            ));
            lines.push("Nothing keeps you from the rest of the user's machine, and it is not yours: stay in the project, and do not look for keys or other projects.".to_owned());
        }
    }
    lines.push(network(egress, isolation));
    let denied = hosts(egress, RuleEffect::Deny);
    if !denied.is_empty() {
        lines.push(match isolation {
            Isolation::Sandboxed => format!("Never reachable: {}.", denied.join(", ")),
            Isolation::None => format!("Never to be reached: {}.", denied.join(", ")),
        });
    }
    if !credentials.is_empty() {
        lines.push(format!(
            "Requests to {} are signed in for you; you hold no token and need none.",
            credentials.join(", ")
        ));
    }
    if !ssh.is_empty() {
        lines.push(format!("`ssh` works for {}; the keys are not here.", ssh.join(", ")));
    }
    let Limits { memory, pids, cpu, time, cost_usd: _, tmpfs, unlimited: _ } = limits;
    let shown = [
        memory.map(|v| format!("{v} of memory")),
        pids.map(|v| format!("{v} processes")),
        cpu.map(|v| format!("{v} processors")),
        time.map(|v| format!("{v} of time")),
        tmpfs.map(|v| format!("{v} for files in memory")),
    ];
    let shown: Vec<String> = shown.into_iter().flatten().collect();
    if !shown.is_empty() {
        lines.push(format!("You have {}.", shown.join(", ")));
    }
    lines.push("When something is refused, say so to the user and what would have to be declared; do not work around it.".to_owned());
    let mut out = match isolation {
        Isolation::Sandboxed => "# You are in a sandbox\n\n".to_owned(),
        Isolation::None => "# You are not in a sandbox\n\n".to_owned(),
    };
    for line in lines {
        // Writing to a `String` cannot fail.
        writeln!(out, "- {line}").ok();
    }
    out
}

fn hosts(egress: &Egress, effect: RuleEffect) -> Vec<String> {
    let rules = egress.rules.iter().filter(|rule| rule.effect == effect);
    rules.map(|rule| format!("`{}`", rule.host)).collect()
}

fn network(egress: &Egress, isolation: Isolation) -> String {
    let allowed = hosts(egress, RuleEffect::Allow);
    match (isolation, allowed.is_empty()) {
        (Isolation::Sandboxed, true) => {
            "There is no network. Do not try to download or install anything from it.".to_owned()
        }
        (Isolation::Sandboxed, false) => format!(
            "The network reaches only {}; everything else is refused, and trying again does not help.",
            allowed.join(", ")
        ),
        (Isolation::None, true) => {
            "The user declared no host: do not use the network, though nothing keeps you from it.".to_owned()
        }
        (Isolation::None, false) => {
            format!("Of the network use only {}, though nothing keeps you from the rest.", allowed.join(", "))
        }
    }
}
