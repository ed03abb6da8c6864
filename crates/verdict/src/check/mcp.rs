//! Failures of MCP servers.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::Yes;
use belljar_contract::Observation;

pub(super) const KEYS: &[Key] = &[NoMcpError::KEY];

check! {
    /// No MCP server failed to connect and no call of its tools failed. Needs the whole conversation, from its beginning.
    NoMcpError(Tools, "no_mcp_error", NotNeeded): Yes
}

impl Check for NoMcpError {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        let mut began = None;
        for seen in &run.evidence.seen {
            if let Observation::ConversationBegan { servers, .. } = &seen.what {
                began = Some(seen.seq);
                if let Some(server) = servers.iter().find(|server| server.status.as_deref() == Some("failed"))
                {
                    return Finding::fail(format!("the server {} failed", server.name))
                        .seen(seen.seq, &server.name);
                }
            }
        }
        let failed = run.returns().find(|(back, tool)| back.is_error && tool.starts_with("mcp__"));
        if let Some((back, tool)) = failed {
            return Finding::fail(format!("{tool} failed")).seen(back.seq, back.text);
        }
        match began {
            Some(seq) => run.holds_if_whole("no MCP server failed").seen(seq, "the servers the agent found"),
            None => Finding::unknown("the agent did not report which servers it found"),
        }
    }
}
