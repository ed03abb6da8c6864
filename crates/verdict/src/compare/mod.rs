//! Compares the agent's frames with what the gateway served.
//!
//! The agent runs inside the sandbox, so its frames may be forged; the gateway runs outside. Every message, call and result
//! that a frame claims is looked up in the model's log, within the conversation that it belongs to. What the agent itself
//! produces (messages of the model `<synthetic>`, hooks, system notes) proves nothing.

mod index;
mod input;
mod speaker;

use belljar_contract::{
    CallId, ClaimedResult, Digest, EgressLogReading, EgressRow, EgressVerdict, EgressWay, Evidence,
    ExchangeEnd, FrameClaim, FrameSeen, ModelEvidence, ModelExchange,
};
use index::Index;
use speaker::{EndedTurn, Framed, Speakers};
use std::collections::BTreeSet;

/// Maximum number of differences that are listed.
const NAMED: usize = 5;

/// Why the conversation of a run cannot be trusted: its frames claim something that the gateway did not serve, or cannot
/// be compared. `None` if it can be.
#[must_use]
pub fn unvouched(evidence: &Evidence) -> Option<String> {
    match &evidence.model {
        ModelEvidence::NotKept => None,
        ModelEvidence::Broken { why } => Some(why.clone()),
        ModelEvidence::Kept { frames, exchanges } => {
            differences(frames, exchanges, evidence.egress.as_ref()).into_iter().next()
        }
    }
}

/// What the frames claim otherwise than it was served, each in a line that names the frame.
pub(crate) fn differences(
    frames: &[FrameSeen],
    exchanges: &[ModelExchange],
    egress: Option<&EgressLogReading>,
) -> Vec<String> {
    let index = Index::new(exchanges);
    let mut comparison = Comparison {
        speakers: Speakers::new(&index),
        index: &index,
        reached: reached(egress),
        turn: Turn::default(),
        out: Vec::new(),
    };
    for frame in frames {
        comparison.take(frame);
        if comparison.out.len() == NAMED {
            return comparison.out;
        }
    }
    comparison.hidden();
    comparison.out
}

/// What came since the last result.
#[derive(Default)]
struct Turn {
    began_ms: u64,
    /// Frames in the user's place for the agent itself.
    user_frames: u64,
    /// Lines of results that no request carries.
    undelivered: Vec<(u64, CallId)>,
}

struct Comparison<'a> {
    index: &'a Index<'a>,
    speakers: Speakers<'a>,
    reached: BTreeSet<String>,
    turn: Turn,
    out: Vec<String>,
}

impl<'a> Comparison<'a> {
    fn differ(&mut self, line: u64, what: impl std::fmt::Display) {
        if self.out.len() < NAMED {
            self.out.push(format!("frames.jsonl:{line}: {what}"));
        }
    }

    fn take(&mut self, frame: &'a FrameSeen) {
        let line = frame.line;
        match &frame.claim {
            FrameClaim::Sent { text, is_command } => self.speakers.sent(*text, *is_command),
            FrameClaim::Interrupted => self.speakers.interrupted(),
            FrameClaim::Compacted => self.speakers.compacted(),
            FrameClaim::Spoken { .. } => {
                if let Err(what) = self.speakers.spoke(frame) {
                    self.differ(line, what);
                }
            }
            FrameClaim::User { parent, results } => {
                self.turn.user_frames += u64::from(parent.is_none());
                for result in results {
                    self.returned(frame, parent.as_ref(), result);
                }
            }
            FrameClaim::Ended { .. } => self.ended(frame),
            FrameClaim::About { call } => {
                let served = self.index.served(call.as_str());
                if served.is_none_or(|exchange| self.index.exchanges[exchange].at_ms > frame.offset_ms) {
                    self.differ(
                        line,
                        format_args!("it speaks of the call {call}, which the model did not make"),
                    );
                }
            }
        }
    }

    fn returned(&mut self, frame: &FrameSeen, parent: Option<&CallId>, result: &ClaimedResult) {
        let ClaimedResult { call, text, is_error } = result;
        let line = frame.line;
        let Some(framed) = self.speakers.framed.get_mut(call.as_str()) else {
            return self
                .differ(line, format_args!("a result of the call {call}, which no frame before shows"));
        };
        let (by_another, again) = (framed.parent != parent, framed.is_returned);
        framed.is_returned = true;
        let host = framed.host;
        if by_another {
            return self.differ(line, format_args!("the result of the call {call} of another agent"));
        }
        if again {
            return self.differ(line, format_args!("the call {call} returned a second time"));
        }
        let served = self.index.served(call.as_str());
        if served.is_some_and(|exchange| !self.index.is_in_session(exchange, frame.session.as_deref())) {
            return self.differ(line, format_args!("the result of the call {call} in another session"));
        }
        match self.index.delivered(call.as_str(), frame.session.as_deref()) {
            Some(delivered) => {
                if delivered.is_error != *is_error {
                    self.differ(
                        line,
                        format_args!("whether the call {call} failed is not what the model received"),
                    );
                } else if delivered.text != *text && delivered.bare != Some(*text) {
                    self.differ(
                        line,
                        format_args!("the result of the call {call} is not what the model received"),
                    );
                }
            }
            None if parent.is_none() => self.turn.undelivered.push((line, call.clone())),
            None => {}
        }
        if let (Some(host), false) = (host, *is_error)
            && !self.was_reached(host)
        {
            self.differ(
                line,
                format_args!("the call {call} claims to have fetched from {host}, which was not reached"),
            );
        }
    }

    fn was_reached(&self, host: &str) -> bool {
        self.reached.contains(&host.to_ascii_lowercase())
    }

    fn ended(&mut self, frame: &FrameSeen) {
        let FrameClaim::Ended { text, has_text, is_error, is_of_service, stop, turns, status } = &frame.claim
        else {
            return;
        };
        let turn = std::mem::replace(&mut self.turn, Turn { began_ms: frame.offset_ms, ..Turn::default() });
        let line = frame.line;
        // As the agent counts: one, and one for each frame in the user's place. A message may be taken up meanwhile.
        if turns.is_some_and(|turns| turns > turn.user_frames + 2) {
            self.differ(line, "the result counts more steps than the frames show");
        }
        let EndedTurn { is_command, own_texts, spoken } = self.speakers.end_turn();
        if *is_error {
            let by_itself = spoken.as_ref().is_some_and(|spoken| spoken.stop == Some("end_turn"));
            let unexplained = *is_of_service && by_itself && !self.failed_since(turn.began_ms, None);
            if unexplained || status.is_some_and(|status| !self.failed_since(turn.began_ms, Some(status))) {
                self.differ(line, "the result names a failure of the model's service that did not happen");
            }
            return;
        }
        match spoken {
            // The agent answers some slash commands by itself, and shows the text that it gives as the result.
            None if is_command && *turns == Some(0) => {
                if *has_text && !text.is_some_and(|text| own_texts.contains(&text)) {
                    self.differ(line, "the result's text is not that of the command");
                }
                if self.was_refused_since(turn.began_ms) {
                    self.differ(line, "a success without an answer, though the model's service failed");
                }
            }
            None => self.differ(line, "a result without an answer of the model"),
            Some(spoken) => {
                if !self.index.is_in_session(spoken.exchange, frame.session.as_deref()) {
                    self.differ(line, "the result of another session");
                }
                if *has_text && !text.is_some_and(|text: Digest| spoken.texts.contains(&text)) {
                    self.differ(line, "the result's text is not the model's last");
                }
                if stop.is_some() && spoken.stop != stop.as_deref() {
                    self.differ(line, "the result's reason to stop is not the model's");
                }
                if let Some(what) = spoken.unshown {
                    self.differ(line, what);
                }
                if stop.as_deref() != Some("tool_use")
                    && let Some((line, call)) = turn.undelivered.first()
                {
                    self.differ(*line, format_args!("the result of the call {call} never went to the model"));
                }
            }
        }
    }

    /// Whether the model's service failed since then, with this status where one is named.
    fn failed_since(&self, began_ms: u64, status: Option<u64>) -> bool {
        let mut since = self.index.exchanges.iter().filter(|exchange| exchange.at_ms >= began_ms);
        since.any(|exchange| {
            let answer = exchange.answer.as_ref();
            let found = answer.and_then(|answer| answer.status).map(u64::from);
            let whole =
                answer.is_some_and(|answer| answer.end == ExchangeEnd::Complete && answer.message.is_some());
            match status {
                Some(status) => found == Some(status),
                None => !whole,
            }
        })
    }

    /// Whether the model's service answered with an error since then, or broke off.
    fn was_refused_since(&self, began_ms: u64) -> bool {
        let mut since = self.index.exchanges.iter().filter(|exchange| exchange.at_ms >= began_ms);
        since.any(|exchange| {
            exchange.answer.as_ref().is_some_and(|answer| {
                answer.end == ExchangeEnd::Broken
                    || answer.status.is_some_and(|status| !(200..300).contains(&status))
            })
        })
    }

    /// Calls that the model made in the conversation, and results that it received, which no frame shows.
    fn hidden(&mut self) {
        let Speakers { framed, sessions, was_interrupted, .. } = &self.speakers;
        let shown = |call: &str| framed.get(call).is_some_and(|framed: &Framed<'_>| framed.parent.is_none());
        let call = self.index.continued(sessions).find(|call| !shown(call));
        // An interrupted call gets a result that the agent makes up for the model alone.
        let silent = framed.iter().find(|(call, framed)| {
            let received =
                || sessions.iter().any(|session| self.index.delivered(call, Some(session)).is_some());
            !was_interrupted && !framed.is_returned && received()
        });
        let hidden =
            [call.map(|call| ("the call", call)), silent.map(|(call, _)| ("the result of the call", *call))];
        for (what, call) in hidden.into_iter().flatten() {
            if self.out.len() < NAMED {
                self.out.push(format!("frames.jsonl: no frame shows {what} {call}, which the gateway saw"));
            }
        }
    }
}

/// The hosts to which a connection was made: it ended without a failure, or after the host had sent something. A gateway
/// never runs without an egress log, so a missing log shows no connection.
fn reached(log: Option<&EgressLogReading>) -> BTreeSet<String> {
    let rows = log.map_or(&[][..], |log| &log.rows);
    let connected: BTreeSet<u64> = rows.iter().filter_map(connected).collect();
    let host = |row: &EgressRow| {
        let EgressRow::Decided { seq, decision, .. } = row else { return None };
        let travels = !matches!(decision.way, EgressWay::Lookup | EgressWay::Ssh | EgressWay::Model);
        let allowed = decision.verdict == EgressVerdict::Allowed;
        let to = decision.destination.rsplit_once(':').map_or(decision.destination.as_str(), |(to, _)| to);
        (travels && allowed && connected.contains(seq)).then(|| to.to_ascii_lowercase())
    };
    rows.iter().filter_map(host).collect()
}

fn connected(row: &EgressRow) -> Option<u64> {
    match row {
        EgressRow::Finished { seq, end, .. } => (end.failure.is_none() || end.received > 0).then_some(*seq),
        EgressRow::Opened { .. } | EgressRow::Decided { .. } | EgressRow::Closed { .. } => None,
    }
}
