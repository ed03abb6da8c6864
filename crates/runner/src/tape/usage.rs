//! Whether the usage on a tape is that of its answers.

use super::{Bodies, Tape};
use crate::launch::model_usage;
use crate::suite::is_reading;
use belljar_contract::{Metrics, ModelUsage};
use belljar_egress::gateway::{PriceTable, UsageTally};
use belljar_egress::tape::TapeBodies;
use std::sync::Arc;

/// Why the usage in the result is not that of the exchanges, if that is so. The cost is compared if the prices are those of
/// the recording.
pub(super) fn wrong_usage(tape: &Arc<Tape>, metrics: &Metrics, same_prices: bool) -> Option<String> {
    let found = match of_exchanges(tape) {
        Ok(found) => found?,
        Err(why) => return Some(why),
    };
    let tokens = |usage: &ModelUsage| (usage.input_tokens, usage.cached_tokens, usage.output_tokens);
    let differs = match &metrics.usage {
        Some(usage) => {
            tokens(usage) != tokens(&found) || (same_prices && usage.cost_micros_usd != found.cost_micros_usd)
        }
        // An older recording has only what was paid for.
        None => metrics.input_tokens.is_some_and(|paid| paid < found.input_tokens),
    };
    differs.then(|| "the usage in result.json is not that of the recorded answers".to_owned())
}

/// The usage that the answers report; `None` if one reports none.
fn of_exchanges(tape: &Arc<Tape>) -> Result<Option<ModelUsage>, String> {
    let tally = UsageTally::new(PriceTable::built_in());
    let bodies = Bodies(Arc::clone(tape));
    for exchange in &tape.exchanges {
        let path = exchange.request.path.split('?').next().unwrap_or_default();
        let Some(answer) = &exchange.answer else { continue };
        let is_message = exchange.request.method == "POST" && path.ends_with("/v1/messages");
        if !is_message || !(200..300).contains(&answer.status) {
            continue;
        }
        let failed = |error| format!("cannot read a body of exchange {}: {error}", exchange.seq);
        let asked = bodies.body(exchange.request.body).map_err(failed)?;
        if serde_json::from_slice(&asked).is_ok_and(|request| is_reading(&request)) {
            continue;
        }
        let body = bodies.body(answer.body).map_err(failed)?;
        let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        tally.count(kind.map_or("", |(_, value)| value), &body);
    }
    Ok(model_usage(&tally.totals()))
}
