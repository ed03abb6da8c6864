//! How the conversation ended.

use super::{Check, Effect, Key, check};
use crate::finding::{Finding, count};
use crate::run::Run;
use belljar_contract::decode::choice;

pub(super) const KEYS: &[Key] = &[Ended::KEY];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Success,
    Error,
}

choice!(Wanted, "a result", { "success" => Wanted::Success, "error" => Wanted::Error });

check! {
    /// The conversation ended as said. A success is a last turn without an error and an agent that then ended with
    /// status 0; everything else is an error.
    ///
    /// `error` also says that a failure of the agent is expected, so that it does not decide the verdict by itself.
    /// A failure of the network or a usage limit is never what was expected. Unknown where a limit or an interrupt ended
    /// the run.
    Ended(Outcome, "result", NotNeeded): Wanted
}

impl Check for Ended {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Some(end) = &run.evidence.end else {
            return Finding::unknown("how the conversation ended is not known");
        };
        if let Err(gap) = run.not_stopped() {
            return Finding::unknown(format!("{gap}, so how the conversation would have ended is not known"));
        }
        if self.0 == Wanted::Error && run.own_error().is_some() {
            return Finding::unknown("the error came from belljar, and not from the model");
        }
        let (is, why) = match &end.failure {
            None => (Wanted::Success, "the last turn succeeded and the agent ended with status 0".to_owned()),
            Some(failure) => (Wanted::Error, failure.to_string()),
        };
        let finding = if is == self.0 { Finding::pass(why) } else { Finding::fail(why) };
        finding.shown(&format!(
            "{} ended, {} of them failed; {}",
            count(usize::try_from(end.results).unwrap_or(usize::MAX), "turn"),
            end.failed_results,
            end.exit
        ))
    }

    fn effect(&self) -> Effect {
        match self.0 {
            Wanted::Success => Effect::None,
            Wanted::Error => Effect::ExpectsError,
        }
    }
}
