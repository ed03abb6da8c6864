//! Sub-agents: each is seen to start and to end, once.

use belljar_contract::{CallId, Observation, TaskFrame, TaskStep};
use std::collections::BTreeMap;

/// Maximum number of sub-agents that are followed.
const MOST_RUNNING: usize = 65_536;

/// The agent's name for a task that is a sub-agent, not a background command.
const SUB_AGENT: &str = "local_agent";

#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<String, Option<CallId>>);

impl Tasks {
    pub fn on_frame(&mut self, frame: TaskFrame) -> Option<Observation> {
        let TaskFrame { task, call, step } = frame;
        match step {
            TaskStep::Started { kind, agent, description } => {
                let is_sub_agent = kind.as_deref() == Some(SUB_AGENT) || (kind.is_none() && agent.is_some());
                if !is_sub_agent || self.0.contains_key(&task) || self.0.len() >= MOST_RUNNING {
                    return None;
                }
                self.0.insert(task.clone(), call.clone());
                Some(Observation::SubAgentStarted { task, call, agent, description })
            }
            TaskStep::Progressed => None,
            TaskStep::Notified { status } => {
                let begun_by = self.0.remove(&task)?;
                Some(Observation::SubAgentEnded { task, call: call.or(begun_by), status })
            }
        }
    }

    /// How many have not ended.
    pub fn running(&self) -> usize {
        self.0.len()
    }
}
