//! Tool calls without a result yet.

use belljar_contract::{CallId, SkillWay, Speaker};
use std::collections::BTreeMap;

/// Maximum number of open calls; results of further ones count as strays.
const MOST_OPEN: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<CallId, OpenCall>);

/// A call that waits for its result.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub tool: String,
    pub by: Speaker,
    pub uses: Vec<(String, SkillWay)>,
}

impl Calls {
    pub fn called(&mut self, call: &CallId, tool: &str, by: &Speaker, uses: Vec<(String, SkillWay)>) {
        if self.0.len() < MOST_OPEN {
            self.0.insert(call.clone(), OpenCall { tool: tool.to_owned(), by: by.clone(), uses });
        }
    }

    /// The caller; the agent itself if the call was not seen.
    pub fn caller(&self, call: &CallId) -> Speaker {
        self.0.get(call).map_or(Speaker::Main, |open| open.by.clone())
    }

    pub fn returned(&mut self, call: &CallId) -> Option<OpenCall> {
        self.0.remove(call)
    }
}
