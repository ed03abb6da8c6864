//! Token counts of responses, and their totals by model.

mod document;
mod meter;
mod sse;
mod totals;

pub(in crate::gateway) use meter::{Meter, Reading};
pub use totals::{ModelTotals, UsageTotals};

use serde::Deserialize;

use super::prices::Speed;

/// The tokens of a response, by price category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCount {
    /// Read by the model, and neither written to the cache nor read from it.
    pub input: u64,
    pub output: u64,
    pub cache_creation: u64,
    /// The part of [`TokenCount::cache_creation`] that is kept for an hour.
    pub cache_creation_hour: u64,
    pub cache_read: u64,
    /// Web searches by the provider.
    pub web_searches: u64,
}

impl TokenCount {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// The larger of two counts of the same response. Counts in a stream are cumulative.
    fn latest(self, other: Self) -> Self {
        self.each(other, u64::max)
    }

    /// All input, cached or not.
    pub fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cache_creation).saturating_add(self.cache_read)
    }

    fn each(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            input: join(self.input, other.input),
            output: join(self.output, other.output),
            cache_creation: join(self.cache_creation, other.cache_creation),
            cache_creation_hour: join(self.cache_creation_hour, other.cache_creation_hour),
            cache_read: join(self.cache_read, other.cache_read),
            web_searches: join(self.web_searches, other.web_searches),
        }
    }
}

/// `usage` in the format of the API. Missing members and null count as zero.
#[derive(Debug, Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<WireCacheCreation>,
    server_tool_use: Option<WireServerToolUse>,
    speed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireCacheCreation {
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct WireServerToolUse {
    web_search_requests: Option<u64>,
}

impl WireUsage {
    fn tokens(&self) -> TokenCount {
        let hour = self.cache_creation.as_ref().and_then(|cache| cache.ephemeral_1h_input_tokens);
        let searches = self.server_tool_use.as_ref().and_then(|tools| tools.web_search_requests);
        TokenCount {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_creation: self.cache_creation_input_tokens.unwrap_or(0),
            cache_creation_hour: hour.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            web_searches: searches.unwrap_or(0),
        }
    }

    fn speed(&self) -> Option<Speed> {
        match self.speed.as_deref() {
            Some("fast") => Some(Speed::Fast),
            Some(_) => Some(Speed::Standard),
            None => None,
        }
    }
}
