//! What a run has used so far.

use std::collections::BTreeMap;

use super::TokenCount;
use crate::gateway::money::Cost;

/// Models that are told apart. Their names come from the agent and from upstream, so there is an end to them.
const MAX_MODELS: usize = 64;

/// The name under which further models are summed.
const OTHER_MODELS: &str = "(other models)";

/// Sums of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageTotals {
    /// By model.
    pub models: BTreeMap<String, ModelTotals>,
    /// Answers whose tokens could not be read.
    pub uncounted: u64,
}

/// Sums of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelTotals {
    /// Answers with tokens.
    pub answers: u64,
    /// Their tokens.
    pub tokens: TokenCount,
    /// What those of known price cost.
    pub cost: Cost,
    /// Answers of unknown price.
    pub unpriced: u64,
}

impl UsageTotals {
    pub(in crate::gateway) fn add(&mut self, model: &str, tokens: TokenCount, cost: Option<Cost>) {
        let room = self.models.len() < MAX_MODELS || self.models.contains_key(model);
        let name = if room { model } else { OTHER_MODELS };
        let totals = self.models.entry(name.to_owned()).or_default();
        totals.answers += 1;
        totals.tokens = totals.tokens.plus(tokens);
        match cost {
            Some(cost) => totals.cost = totals.cost.plus(cost),
            None => totals.unpriced += 1,
        }
    }

    pub(in crate::gateway) fn add_uncounted(&mut self) {
        self.uncounted += 1;
    }

    /// All tokens.
    pub fn tokens(&self) -> TokenCount {
        self.models.values().fold(TokenCount::default(), |sum, model| sum.plus(model.tokens))
    }

    /// What all answers of known price cost.
    pub fn cost(&self) -> Cost {
        self.models.values().fold(Cost::ZERO, |sum, model| sum.plus(model.cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_end_do_not_grow_without_end() {
        let mut totals = UsageTotals::default();
        let one = TokenCount { input: 1, ..TokenCount::default() };
        for number in 0..1000 {
            totals.add(&format!("m{number}"), one, (number % 2 == 0).then_some(Cost::of(1, 1)));
        }
        totals.add("m0", one, None);
        assert_eq!(totals.models.len(), MAX_MODELS + 1);
        assert_eq!(totals.tokens().input, 1001);
        assert_eq!(totals.cost(), Cost::of(500, 1));
        assert_eq!(totals.models["m0"].answers, 2);
        assert_eq!(totals.models.values().map(|model| model.unpriced).sum::<u64>(), 501);
    }
}
