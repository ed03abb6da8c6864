//! Finds out whether a tape still matches its scenario, skills and plan.

use super::facts::{Changed, TapeFacts, content};
use super::make::scenario_changes;
use crate::environment::HostEnvironment;
use crate::suite::{Consent, Conversation, Planning, Trial, TrialError, skill_places};
use belljar_contract::{SandboxChoice, TapeHead};

/// The facts that changed since the tape was recorded. No agent runs.
///
/// # Errors
/// If the scenario cannot be planned here.
pub fn stale(
    trial: &Trial,
    head: &TapeHead,
    environment: &HostEnvironment,
    consent: &Consent,
) -> Result<Vec<Changed>, TrialError> {
    let sandbox = SandboxChoice::default();
    let planning = Planning { environment, sandbox: &sandbox, conversation: &Conversation::Fresh, consent };
    let (_stage, planned) = trial.planned(&planning)?;
    let facts = TapeFacts::at(&planned, &skill_places(&planned.compiled.plan), environment);
    let mut out = scenario_changes(trial, head);
    out.extend(facts.changed_since(head, None));
    // An agent that is not installed here may be the same.
    let program = facts.program.and_then(|path| content(path.as_path()).ok());
    if let (Some(recorded), Some(present)) = (head.agent.program, program)
        && recorded != present
    {
        out.push(Changed {
            cause: "agent",
            what: "the agent's program".to_owned(),
            recorded: recorded.to_string(),
            present: present.to_string(),
        });
    }
    Ok(out)
}
