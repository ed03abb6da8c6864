//! What is said before and after a command that `run`, `exec` or `shell` started.

use crate::output::Output;
use belljar_contract::{AgentName, Destination, EgressRule, Entering, RuleEffect, visible, visible_start};
use belljar_runner::changes::KeptSummary;
use belljar_runner::{Denied, Planned, Planner, Spent};

/// Prints refused connections, each with the line that would allow it.
pub fn report_denied(denied: &[Denied], output: &Output) {
    const SHOWN: usize = 20;
    for Denied { sentence, advice, times } in denied.iter().take(SHOWN) {
        let often = if *times > 1 { format!(" ({times} times)") } else { String::new() };
        output.say(&format!("{} {}{often}", output.err_style().warn("refused:"), visible(sentence)));
        if let Some(advice) = advice {
            output.say(&format!("  to allow it, {}", visible(advice)));
        }
    }
    if denied.len() > SHOWN {
        output.say(&format!("  and {} more, in the egress log", denied.len() - SHOWN));
    }
}

/// The lines that would allow what was asked for. Whether it should be is for the user to say.
pub fn proposal(planned: &Planned, needed: &[Destination], denied: &[Denied]) -> String {
    let agent = &planned.compiled.plan.agent;
    if needed.is_empty() {
        return match denied.is_empty() {
            true => "belljar: nothing was asked for that the rules do not allow",
            false => "belljar: no further host would allow what was refused",
        }
        .to_owned();
    }
    let mut text = format!(
        "belljar: to allow what was asked for, add to the manifest what you agree with:\n\n  [agents.{agent}.egress]\n"
    );
    let rules = &planned.compiled.plan.egress.rules;
    let own = |rule: &&EgressRule| rule.effect == RuleEffect::Allow && !rule.id.starts_with("ssh-");
    text.push_str("  allow = [\n");
    for rule in rules.iter().filter(own) {
        text.push_str(&format!("      {:?},\n", rule.host.to_string()));
    }
    for destination in needed {
        text.push_str(&format!("      {:?}, # new\n", destination.pattern()));
    }
    text.push_str("  ]");
    text
}

/// What is kept beside the project, where, and what to do with it.
pub fn keeping(kept: &KeptSummary, planner: &Planner) -> String {
    let KeptSummary { name, called, ambiguous, directory, files, guarded, commits, refs } = kept;
    let (agent, layer) = (called.as_ref().map(AgentName::as_str), ambiguous.then_some(name.as_str()));
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![plural(*files, "changed file")];
    // An agent can make any number of branches, of any name.
    const BRANCHES: usize = 3;
    const LETTERS: usize = 60;
    let named = commits.iter().take(BRANCHES);
    parts.extend(named.map(|(branch, count)| {
        format!("{} on {}", plural(*count, "commit"), visible_start(branch, LETTERS))
    }));
    if commits.len() > BRANCHES {
        parts.push(format!("commits on {} more branches", commits.len() - BRANCHES));
    }
    if *refs > 0 {
        parts.push(format!("{} moved", plural(*refs, "ref")));
    }
    let mut text =
        format!("belljar: {} kept in {}", parts.join(", "), planner.environment().shown(directory));
    match guarded {
        0 => {}
        1 => text.push_str("; 1 needs confirmation"),
        count => text.push_str(&format!("; {count} need confirmation")),
    }
    for verb in ["diff", "apply", "discard"] {
        text.push_str(&format!("\n  {}", crate::cmd::changes::command(verb, agent, layer)));
    }
    text
}

pub fn spending(spent: Spent) -> String {
    let Spent { input_tokens, output_tokens, cost_micros } = spent;
    let cents = cost_micros.div_ceil(10_000);
    format!("{input_tokens} tokens read, {output_tokens} written, ${}.{:02}", cents / 100, cents % 100)
}

/// Secrets that would enter the sandbox are named before they do.
pub fn audit(planned: &Planned, output: &Output) {
    let line = |entry: &Entering| format!("{} ({})", entry.name, entry.describe());
    let lines: Vec<String> = planned.entering.iter().map(line).collect();
    if !lines.is_empty() {
        output.say(&format!("belljar: secrets that enter the sandbox: {}", visible(&lines.join(", "))));
    }
}
