//! Names of the API that other modules use.

/// The base URL if the user configures none.
pub(in crate::gateway) const DEFAULT_URL: &str = "https://api.anthropic.com";

/// A model for short questions: fast and cheap.
pub const CHEAP_MODEL: &str = "claude-haiku-4-5";

/// The model that judges what no rule can check. Pinned: another model is another judge.
pub const JUDGE_MODEL: &str = "claude-opus-4-8";

pub(crate) const BETA_HEADER: &str = "anthropic-beta";
pub(crate) const VERSION_HEADER: &str = "anthropic-version";

/// The header that identifies a conversation.
pub(crate) const SESSION_ID_HEADER: &str = "x-claude-code-session-id";

/// The header that marks requests of a sub-agent.
pub(crate) const AGENT_ID_HEADER: &str = "x-claude-code-agent-id";

/// The prefix of response headers about rate limits.
pub(crate) const RATE_LIMIT_PREFIX: &str = "anthropic-ratelimit-";

/// The start of the system block in which the agent reports data for billing. It differs between runs.
pub(crate) const BILLING_PREFIX: &str = "x-anthropic-billing-header:";

#[cfg(test)]
mod tests {
    use crate::gateway::Upstream;

    #[test]
    fn the_default_host_is_reached_by_https() {
        assert_eq!(Upstream::default().destination().to_string(), "api.anthropic.com:443");
    }
}
