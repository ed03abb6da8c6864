//! What to type after an apply that left something.

use super::branch::proposed;
use super::{is_conflict, is_of_git, needs_yes, overlaps};
use crate::cmd::changes::Options;
use crate::output::Output;
use belljar_runner::changes::{Applied, KeptChanges, RefusedBecause, RefusedChange};

/// An agent can move any number of refs.
const PROPOSALS: usize = 3;

/// Says what to type next.
pub fn print(done: &Applied, found: &KeptChanges, options: &Options, output: &Output) {
    let apply = options.command("apply");
    let is = |wanted: fn(&RefusedBecause) -> bool| done.refused.iter().any(|refused| wanted(&refused.why));
    if is(needs_yes) {
        let diff = options.command("diff");
        output.say(&format!("  hint: look at them with `{diff}`, then name each: `{apply} --allow PATH`"));
    }
    let is_file = |refused: &&RefusedChange| {
        let changed = matches!(refused.why, RefusedBecause::ChangedSince | RefusedBecause::Unmerged { .. });
        changed && !is_of_git(found, &refused.path)
    };
    if done.refused.iter().any(|refused| is_file(&refused)) {
        output.say(&format!(
            "  hint: `{apply} --take theirs -- PATH` writes the agent's version, `--take ours` keeps yours"
        ));
    }
    let proposals = done.refused.iter().filter_map(|refused| {
        let (RefusedBecause::Moved { name } | RefusedBecause::InUse { name, .. }) = &refused.why else {
            return None;
        };
        proposed(found, name, &refused.path, options)
    });
    for proposal in proposals.take(PROPOSALS) {
        output.say(&format!(
            "  hint: {proposal} makes a branch of the agent's commits and leaves your branches, index and files alone"
        ));
    }
    if done.refused.iter().any(|refused| is_conflict(&refused.why) && !is_file(&refused)) {
        output.say(&format!(
            "  hint: of git's files, `{apply} --take theirs -- REF` moves a ref to the agent's commit, and \
             `-- .git/index` writes the agent's index"
        ));
    }
    if is(overlaps) {
        output.say(&format!("  hint: `{apply} --take markers -- PATH` writes both, with conflict markers"));
    }
}
