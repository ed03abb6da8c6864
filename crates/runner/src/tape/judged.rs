//! Whether the judgements on a tape are those of its exchanges with the judge.

use super::Tape;
use crate::suite::recorded_reading;
use belljar_contract::{BodyRef, ClaimAnswer, ClaimStand, ClaimVote, holds_redaction};
use serde_json::Value;

/// Why a judgement in the record is not the one that the judge gave, if that is so.
pub(super) fn misjudged(tape: &Tape, claims: &[ClaimAnswer]) -> Option<String> {
    let decided = |vote: &ClaimVote| vote.stand != ClaimStand::Unclear;
    if !claims.iter().flat_map(|answer| &answer.votes).any(decided) {
        return None;
    }
    let readings: Vec<(u8, Vec<(String, ClaimVote)>)> = tape
        .exchanges
        .iter()
        .filter_map(|exchange| {
            let body = |body: BodyRef| serde_json::from_slice::<Value>(&tape.body(body).ok()?).ok();
            recorded_reading(&body(exchange.request.body)?, &body(exchange.answer.as_ref()?.body)?)
        })
        .collect();
    claims.iter().find_map(|answer| {
        let given = |number: usize, vote: &ClaimVote| {
            let of_it = readings.iter().filter(|(of, _)| usize::from(*of) == number);
            of_it
                .flat_map(|(_, votes)| votes)
                .any(|(text, found)| *text == answer.claim.text && is_same(vote, found))
        };
        let mut votes = answer.votes.iter().zip(1..).filter(|(vote, _)| decided(vote));
        let (_, number) = votes.find(|(vote, number)| !given(*number, vote))?;
        Some(format!("reading {number} of a claim is not what the judge answered in the exchanges"))
    })
}

/// What was redacted in one of them cannot be compared.
fn is_same(recorded: &ClaimVote, given: &ClaimVote) -> bool {
    let redacted =
        |vote: &ClaimVote| vote.quote.as_ref().is_some_and(|text| holds_redaction(text.as_bytes()));
    recorded.stand == given.stand && (recorded.quote == given.quote || redacted(recorded) || redacted(given))
}
