//! Totals of a run.

use std::collections::BTreeMap;

use super::TokenCount;
use crate::gateway::money::Cost;

/// How many models are counted separately. The names come from the agent and the host, so there has to be a limit.
const MAX_MODELS: usize = 64;

/// The name for the total of all further models.
const OTHER_MODELS: &str = "(other models)";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageTotals {
    pub models: BTreeMap<String, ModelTotals>,
    /// Responses whose tokens could not be counted.
    pub uncounted: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelTotals {
    /// Responses with a token count.
    pub answers: u64,
    pub tokens: TokenCount,
    /// The cost of the responses with a known price.
    pub cost: Cost,
    /// Responses without a known price.
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

    pub fn tokens(&self) -> TokenCount {
        self.models.values().fold(TokenCount::default(), |sum, model| sum.plus(model.tokens))
    }

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
