//! What the run used, as belljar measured it; the agent's own figures do not count.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::{Count, Decimal};
use belljar_contract::Observation;

pub(super) const KEYS: &[Key] = &[Cost::KEY, Tokens::KEY, Turns::KEY, Memory::KEY];

check! {
    /// The run cost at most so many US dollars, as the gateway counted. For a script or a replay: what the usage that the
    /// answers report would cost.
    Cost(Budgets, "max_cost_usd", ForPass("a program can reach the provider without the gateway")): Decimal
}
check! {
    /// The model read and wrote at most so many tokens, as its answers report, also those of a script or a tape; tokens of
    /// its cache do not count.
    Tokens(Budgets, "max_tokens", ForPass("a program can reach the provider without the gateway")): Count
}
check! {
    /// The model took at most so many steps, in all turns together. Needs the whole conversation.
    Turns(Budgets, "max_turns", NotNeeded): Count
}
check! {
    /// The sandbox held at most so many bytes of memory at once.
    Memory(Budgets, "max_peak_rss_bytes", NotNeeded): Count
}

/// A run that was cut short would have used more.
fn within(run: &Run<'_>, measured: u64, most: u64, message: String) -> Finding {
    let shown = |finding: Finding| finding.shown("as belljar measured it");
    if measured <= most {
        run.unless_cut_short(shown(Finding::pass(message)))
    } else {
        shown(Finding::fail(message))
    }
}

impl Check for Cost {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let metrics = &run.evidence.metrics;
        let reported = metrics.usage.and_then(|usage| usage.cost_micros_usd);
        let Some(micros) = reported.or(metrics.cost_micros_usd) else {
            return Finding::unknown("what the run cost was not measured");
        };
        // Rounded down to millionths; the small addition compensates for decimals that binary cannot represent.
        let most = (self.0.0 * 1_000_000.0 + 1e-6) as u64;
        let message = format!("the run cost {}, at most {} allowed", dollars(micros), dollars(most));
        within(run, micros, most, message)
    }
}

fn dollars(micros: u64) -> String {
    format!("${}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

impl Check for Tokens {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let metrics = &run.evidence.metrics;
        if let Some(usage) = metrics.usage {
            let known = usage.input_tokens.saturating_add(usage.output_tokens);
            return within(run, known, self.0.0, format!("{known} tokens, at most {} allowed", self.0.0));
        }
        let known = metrics.input_tokens.unwrap_or(0).saturating_add(metrics.output_tokens.unwrap_or(0));
        let measured = metrics.input_tokens.is_some() && metrics.output_tokens.is_some();
        if known <= self.0.0 && !measured {
            return Finding::unknown("the tokens of the run were not measured");
        }
        within(run, known, self.0.0, format!("{known} tokens, at most {} allowed", self.0.0))
    }
}

impl Check for Turns {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let mut places = Vec::new();
        let mut steps: u64 = 0;
        let mut unreported = None;
        for seen in &run.evidence.seen {
            let Observation::TurnEnded(outcome) = &seen.what else { continue };
            match outcome.turns {
                Some(turns) => steps = steps.saturating_add(turns),
                None => unreported = Some(seen.seq),
            }
            places.push((seen.seq, format!("{:?} steps", outcome.turns)));
        }
        match unreported {
            Some(seq) if steps <= self.0.0 => {
                Finding::unknown("the agent did not report the steps of a turn").seen(seq, "a turn ended")
            }
            _ if places.is_empty() => Finding::unknown("no turn was seen to end"),
            _ => {
                let finding = run.at_most(steps, self.0.0, "steps of the model", &[]);
                places.iter().fold(finding, |finding, (seq, text)| finding.seen(*seq, text))
            }
        }
    }
}

impl Check for Memory {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Some(peak) = run.evidence.metrics.peak_memory_bytes else {
            return Finding::unknown("the memory of the run was not measured");
        };
        within(run, peak, self.0.0, format!("{peak} bytes at once, at most {} allowed", self.0.0))
    }
}
