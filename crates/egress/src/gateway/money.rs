//! Amounts of money small enough for a single token.

use std::fmt;

use belljar_contract::Usd;

const PICOS_IN_MICRO: u64 = 1_000_000;

/// US dollars in units of 10⁻¹²: the price of one token is a whole number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cost(u64);

impl Cost {
    pub const ZERO: Self = Self(0);

    /// This many tokens at a price per million.
    pub(super) fn of(tokens: u64, micros_for_a_million: u64) -> Self {
        Self(tokens.saturating_mul(micros_for_a_million))
    }

    /// In millionths of a dollar, rounded up.
    pub fn micros(self) -> u64 {
        self.0.div_ceil(PICOS_IN_MICRO)
    }

    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, saturating at zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Usd> for Cost {
    fn from(amount: Usd) -> Self {
        Self(amount.micros().saturating_mul(PICOS_IN_MICRO))
    }
}

impl fmt::Display for Cost {
    /// In dollars with four decimals, rounded up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.micros().div_ceil(100);
        write!(f, "${}.{:04}", hundredths / 10_000, hundredths % 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_lost_to_rounding() {
        // Half a dollar per million: half a millionth each.
        let one = Cost::of(1, 500_000);
        assert_eq!((one.plus(one).micros(), one.micros()), (1, 1));
        assert_eq!(Cost::of(1_000_000, 6_250_000).to_string(), "$6.2500");
        assert_eq!(one.to_string(), "$0.0001");
        assert_eq!(Cost::from(Usd::new(5.0).unwrap()), Cost::of(1_000_000, 5_000_000));
        assert_eq!(one.minus(Cost::of(2, 500_000)), Cost::ZERO);
    }
}
