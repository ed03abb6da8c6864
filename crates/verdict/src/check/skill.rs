//! The use of skills.

use super::{Check, Key, Search, check};
use crate::finding::Finding;
use crate::run::Run;
use belljar_contract::decode::table;
use belljar_contract::{Observation, Pattern, SkillWay};

pub(super) const KEYS: &[Key] = &[Triggered::KEY, NotTriggered::KEY, SkillToolUsed::KEY];

check! {
    /// The model used a skill whose name matches: with the `Skill` tool, or by reading or running its files. A message of
    /// the user that names the skill does not count.
    Triggered(Skills, "skill_triggered", NotNeeded): Pattern
}
check! {
    /// The model used no skill whose name matches. Needs the whole conversation, and an agent that was offered the
    /// tool for skills; otherwise the check is unknown.
    NotTriggered(Skills, "no_skill_triggered", NotNeeded): Pattern
}

table! {
    "`skill_tool_used`"
    struct UsedSpec {
        /// The skill: its name matches.
        skill: Pattern,
        /// The tool: its name matches.
        tool: Pattern,
    }
}

check! {
    /// A tool was called while a skill was in use: after its first use, and before another skill was used. Needs the
    /// whole conversation.
    SkillToolUsed(Skills, "skill_tool_used", NotNeeded): UsedSpec
}

/// The uses, in order.
fn uses<'a>(run: &Run<'a>) -> Vec<(u64, &'a str, SkillWay)> {
    let uses = run.evidence.seen.iter().filter_map(|seen| {
        let Observation::SkillActivated { skill, way, by: _, call: _ } = &seen.what else { return None };
        Some((seen.seq, skill.as_str(), *way))
    });
    uses.collect()
}

const fn by_the_model(way: SkillWay) -> bool {
    match way {
        SkillWay::Tool | SkillWay::Read | SkillWay::ShellRead | SkillWay::Script => true,
        SkillWay::Message => false,
    }
}

/// The event that shows that the agent has the `Skill` tool.
fn has_the_tool(run: &Run<'_>) -> Option<u64> {
    run.evidence.seen.iter().find_map(|seen| {
        let Observation::ConversationBegan { tools, .. } = &seen.what else { return None };
        tools.iter().any(|tool| tool == "Skill").then_some(seen.seq)
    })
}

const UNOBSERVABLE: &str =
    "the agent did not report that it has the tool for skills, so their use cannot be seen";

impl Check for Triggered {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let mut used = uses(run).into_iter();
        match used.find(|(_, skill, way)| by_the_model(*way) && self.0.is_match(skill)) {
            Some((seq, skill, _)) => Finding::pass(format!("the skill {skill} was used")).seen(seq, skill),
            None if has_the_tool(run).is_none() => Finding::unknown(UNOBSERVABLE),
            None => run.fails_if_whole("no skill that matches was used"),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(uses(run).into_iter().map(|(_, skill, _)| skill))
    }
}

impl Check for NotTriggered {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let mut used = uses(run).into_iter();
        match used.find(|(_, skill, way)| by_the_model(*way) && self.0.is_match(skill)) {
            Some((seq, skill, _)) => Finding::fail(format!("the skill {skill} was used")).seen(seq, skill),
            None => match has_the_tool(run) {
                Some(seq) => {
                    run.holds_if_whole("no skill that matches was used").seen(seq, "the tool was offered")
                }
                None => Finding::unknown(UNOBSERVABLE),
            },
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(uses(run).into_iter().map(|(_, skill, _)| skill))
    }
}

impl Check for SkillToolUsed {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let UsedSpec { skill, tool } = &self.0;
        let uses = uses(run);
        for (at, (from, name, _)) in uses.iter().enumerate() {
            let to = uses.get(at + 1).map_or(u64::MAX, |(next, _, _)| *next);
            let mut within = run.calls().iter().filter(|call| call.seq > *from && call.seq < to);
            if skill.is_match(name)
                && let Some(call) = within.find(|call| tool.is_match(call.tool))
            {
                // Another skill may have been put to use in between, so all must have been seen.
                return run
                    .holds_if_whole(format!("{} was called while {name} was in use", call.tool))
                    .seen(*from, name)
                    .seen(call.seq, &call.line());
            }
        }
        run.fails_if_whole("no such call was made while the skill was in use")
    }
}
