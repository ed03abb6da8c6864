//! Containers whose supervisor is gone.

use super::body::{OWNER, RUN, SUPERVISOR};
use super::engine::{Engine, done};
use super::error::EngineError;
use super::http::{Sent, escaped};
use super::monitor;
use belljar_sys::birth::{Birth, Standing};
use hyper::Method;
use serde_json::{Value, json};

/// A container of belljar whose supervisor has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanContainer {
    /// The number that the engine gave it.
    pub id: String,
    /// The run that it belonged to.
    pub run: String,
}

/// Whose containers they are: this user's, among the processes that can be seen from here. An engine may serve others.
pub(super) fn owner() -> String {
    let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", rustix::process::geteuid().as_raw(), processes.display())
}

/// This process, distinguishable from a later one with the same number. Empty without `/proc`.
pub(super) fn this_process() -> String {
    Birth::own().map_or_else(|_| String::new(), |own| own.to_string())
}

/// Whether the process that a label names is still the one that wrote it.
pub(super) fn lives(label: &str) -> bool {
    Birth::parse(label).is_some_and(|birth| birth.standing() == Standing::Runs)
}

/// Whether a container of a list is belljar's own, of this user, and has lost its supervisor. Images have no label of a
/// run, so no container that the user made from one inherits it.
pub(super) fn is_orphan(container: &Value) -> bool {
    let label = |name: &str| container["Labels"][name].as_str().unwrap_or_default();
    label(OWNER) == owner() && !label(RUN).is_empty() && !lives(label(SUPERVISOR))
}

impl Engine {
    /// belljar's containers that have lost their supervisor.
    ///
    /// # Errors
    /// When the engine does not say.
    pub fn orphans(&self) -> Result<Vec<OrphanContainer>, EngineError> {
        let filters = json!({ "label": [format!("{OWNER}={}", owner()), RUN] });
        let mut out = Vec::new();
        for container in &self.containers(&filters)? {
            if is_orphan(container) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                out.push(OrphanContainer {
                    id: text(&container["Id"]),
                    run: text(&container["Labels"][RUN]),
                });
            }
        }
        Ok(out)
    }

    /// All containers, running or not, that a filter includes.
    pub(super) fn containers(&self, filters: &Value) -> Result<Vec<Value>, EngineError> {
        // Podman's answer to the common request is an error for as long as one container of the list is being removed: for ever,
        // if podman was killed meanwhile.
        let list = if self.program()? == "podman" {
            "/v4.0.0/libpod/containers/json"
        } else {
            "/v1.40/containers/json"
        };
        let target = format!("{list}?all=true&filters={}", escaped(&filters.to_string()));
        let act = "list containers";
        let answer = done(self.ask_at(Method::GET, &target, Sent::Nothing, act)?, act)?.json();
        match answer {
            Value::Array(all) => Ok(all),
            Value::Null => Ok(Vec::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(EngineError::Refused { act, message: "the answer is not a list".to_owned() })
            }
        }
    }

    /// Removes a container, with what runs in it.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn remove_orphan(&self, orphan: &OrphanContainer) -> Result<(), EngineError> {
        let target = format!("/containers/{}?force=true&v=true", orphan.id);
        let act = "remove a container";
        let answer = self.ask_while_busy(&Method::DELETE, &target, act)?;
        // It may have gone by itself, or with another sweep.
        if answer.is_good() || answer.status == 404 {
            monitor::end_monitors(&orphan.id);
            return Ok(());
        }
        Err(EngineError::Refused { act, message: answer.message() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_is_known_by_its_number_and_its_birth() {
        let own = this_process();
        assert!(lives(&own), "{own}");
        let (process, _) = own.rsplit_once('.').unwrap();
        assert!(!lives(&format!("{process}.1")));
        assert!(!lives("") && !lives(process));
    }
}
