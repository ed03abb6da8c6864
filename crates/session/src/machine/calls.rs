//! Calls of tools that have not come back.

use belljar_contract::{CallId, SkillWay, Speaker};
use std::collections::BTreeMap;

/// More calls than this are not open at once; what is beyond comes back as a stray.
const MOST_OPEN: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<CallId, OpenCall>);

/// What is kept of a call until it comes back.
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

    /// Who called; the agent itself where the call was not seen.
    pub fn caller(&self, call: &CallId) -> Speaker {
        self.0.get(call).map_or(Speaker::Main, |open| open.by.clone())
    }

    pub fn returned(&mut self, call: &CallId) -> Option<OpenCall> {
        self.0.remove(call)
    }
}
