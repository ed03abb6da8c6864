//! The version of the agent that a tape was recorded with.

use crate::agents::{ChooseError, known_agent};
use belljar_contract::{AbsPath, AgentChoice, AgentRelease, NamedBy, PublishedVersion};
use belljar_record::tape::Tape;

/// Why a tape's version of the agent cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedAgentError {
    #[error("the tape `{tape}` was recorded with an agent that this belljar cannot start")]
    Unknown {
        tape: AbsPath,
        #[source]
        cause: Box<ChooseError>,
    },
    #[error("the tape `{tape}` does not name the version of the agent that it was recorded with")]
    NoVersion { tape: AbsPath },
    #[error(
        "the tape `{tape}` names `{}` as the version of the agent, which is none",
        belljar_contract::visible(version)
    )]
    NotAVersion { tape: AbsPath, version: String },
}

/// The version of the agent that a tape names.
///
/// # Errors
/// If it names none, or an agent that is not known.
pub fn recorded_agent(tape: &Tape) -> Result<AgentChoice, RecordedAgentError> {
    let (agent, path) = (&tape.head.agent, || tape.directory().clone());
    let known = known_agent(&agent.harness);
    let profile =
        known.map_err(|cause| RecordedAgentError::Unknown { tape: path(), cause: Box::new(cause) })?;
    let Some(text) = &agent.version else { return Err(RecordedAgentError::NoVersion { tape: path() }) };
    let version = PublishedVersion::parse(text)
        .ok_or_else(|| RecordedAgentError::NotAVersion { tape: path(), version: text.clone() })?;
    let release = AgentRelease { name: profile.name.clone(), version };
    Ok(AgentChoice { release, named_by: NamedBy::Tape })
}
