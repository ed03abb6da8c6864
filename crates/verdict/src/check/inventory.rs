//! The tools, servers and skills that the agent reported when the conversation began.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use belljar_contract::{Observation, Pattern, ServerSeen};

pub(super) const KEYS: &[Key] = &[Tool::KEY, Connector::KEY, Skill::KEY];

check! {
    /// The agent was offered a tool whose name matches, called or not.
    Tool(Tools, "tool_available", NotNeeded): Pattern
}
check! {
    /// The agent was connected to an MCP server whose name matches, used or not. A server that failed or waits for a
    /// login is not available; of one that was still starting nothing is known.
    Connector(Tools, "connector_available", NotNeeded): Pattern
}
check! {
    /// The agent was offered a skill whose name matches, used or not.
    Skill(Skills, "skill_available", NotNeeded): Pattern
}

/// The inventory of a conversation.
struct Inventory<'a> {
    seq: u64,
    tools: &'a [String],
    servers: &'a [ServerSeen],
    skills: &'a [String],
}

fn inventories<'a>(run: &Run<'a>) -> Vec<Inventory<'a>> {
    let began = run.evidence.seen.iter().filter_map(|seen| {
        let Observation::ConversationBegan { tools, servers, skills, .. } = &seen.what else { return None };
        Some(Inventory { seq: seen.seq, tools, servers, skills })
    });
    began.collect()
}

/// Whether a name is in one of the inventories.
fn offered(run: &Run<'_>, what: &str, names: impl Fn(&Inventory<'_>) -> Option<String>) -> Finding {
    let all = inventories(run);
    for inventory in &all {
        if let Some(name) = names(inventory) {
            return Finding::pass(format!("the {what} {name} was offered")).seen(inventory.seq, &name);
        }
    }
    match all.first() {
        Some(first) => {
            Finding::fail(format!("no {what} matches")).seen(first.seq, "what the agent was offered")
        }
        None => Finding::unknown(format!("the agent did not report which {what}s it was offered")),
    }
}

impl Check for Tool {
    fn judge(&self, run: &Run<'_>) -> Finding {
        offered(run, "tool", |inventory| inventory.tools.iter().find(|name| self.0.is_match(name)).cloned())
    }
}

impl Check for Skill {
    fn judge(&self, run: &Run<'_>) -> Finding {
        offered(run, "skill", |inventory| inventory.skills.iter().find(|name| self.0.is_match(name)).cloned())
    }
}

impl Check for Connector {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let all = inventories(run);
        let named: Vec<(u64, &ServerSeen)> = all
            .iter()
            .flat_map(|inventory| inventory.servers.iter().map(|server| (inventory.seq, server)))
            .filter(|(_, server)| self.0.is_match(&server.name))
            .collect();
        let with = |word: &str| named.iter().find(|(_, server)| server.status.as_deref() == Some(word));
        if let Some((seq, server)) = with("connected") {
            return Finding::pass(format!("the server {} was connected", server.name))
                .seen(*seq, &server.name);
        }
        let open =
            named.iter().find(|(_, server)| matches!(server.status.as_deref(), None | Some("pending")));
        match (named.first(), all.first()) {
            _ if open.is_some() => {
                Finding::unknown("the server was still starting when the agent reported it")
            }
            (Some((seq, server)), _) => {
                let status = server.status.as_deref().unwrap_or_default();
                let line = format!("{}: {status}", server.name);
                Finding::fail(format!("the server {} was not connected", server.name)).seen(*seq, &line)
            }
            (None, Some(first)) => {
                Finding::fail("no server matches").seen(first.seq, "the servers the agent found")
            }
            (None, None) => Finding::unknown("the agent did not report which servers it found"),
        }
    }
}
