//! Chooses the turn for a request: the state of a script, without I/O.

use belljar_contract::{SCRIPT_ACCEPTS_NONE, SCRIPT_EXHAUSTED};

use super::format::{Exhausted, Script, SideRequests, Turn};
use super::matching::Tools;
use super::request::MessagesRequest;

/// A script and which turns were played.
#[derive(Debug)]
pub(super) struct Player {
    script: Script,
    played: Vec<bool>,
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    /// This turn, which is now played.
    Turn { index: usize, turn: Turn },
    /// The script's text for requests without tools.
    Side { text: String },
    /// All turns were played, and the script has a text for this case.
    ExhaustedReply { text: String },
    /// All turns were played; the message tells the client so.
    ExhaustedError { message: String },
    /// Turns are left, but none accepts this request; the message tells the client so.
    NoneAccepts { message: String },
}

impl Player {
    pub fn new(script: Script) -> Self {
        let played = vec![false; script.turns.len()];
        Self { script, played }
    }

    /// Chooses the response and marks the turn as played.
    pub fn choose(&mut self, request: &MessagesRequest) -> Choice {
        if let Some(text) = self.side_text(request) {
            // A request without tools only gets a turn that asks for requests without tools.
            let named =
                self.take(|turn| turn.when.tools == Some(Tools::Absent) && turn.when.accepts(request));
            return named.unwrap_or(Choice::Side { text });
        }
        match self.take(|turn| turn.when.accepts(request)) {
            Some(choice) => choice,
            None => self.nothing_left(request),
        }
    }

    /// Positions of the turns that were not played.
    pub fn unplayed(&self) -> Vec<usize> {
        let positions = self.played.iter().enumerate();
        positions.filter(|(_, played)| !**played).map(|(index, _)| index).collect()
    }

    fn side_text(&self, request: &MessagesRequest) -> Option<String> {
        match (&self.script.side_requests, request.tools) {
            (SideRequests::Reply(text), Tools::Absent) => Some(text.clone()),
            (SideRequests::Reply(_), Tools::Present) | (SideRequests::TakeTurns, _) => None,
        }
    }

    fn take(&mut self, accepts: impl Fn(&Turn) -> bool) -> Option<Choice> {
        let turns = self.script.turns.iter().zip(self.played.iter_mut()).enumerate();
        let mut open = turns.filter(|(_, (turn, played))| !**played && accepts(turn));
        let (index, (turn, played)) = open.next()?;
        *played = true;
        Some(Choice::Turn { index, turn: turn.clone() })
    }

    fn nothing_left(&self, request: &MessagesRequest) -> Choice {
        let total = self.script.turns.len();
        let left = self.unplayed().len();
        if left > 0 {
            let played = total - left;
            let message = format!(
                "{SCRIPT_ACCEPTS_NONE} ({played} of {total} turns played); \
                 its last message begins: {}",
                beginning(&request.last_message)
            );
            return Choice::NoneAccepts { message };
        }
        match &self.script.when_exhausted {
            Exhausted::Reply(text) => Choice::ExhaustedReply { text: text.clone() },
            Exhausted::Error => Choice::ExhaustedError {
                message: format!(
                    "{SCRIPT_EXHAUSTED}: this request came after {}",
                    if total == 1 { "its only turn".to_owned() } else { format!("all {total} turns") }
                ),
            },
        }
    }
}

/// The beginning of a text, long enough to recognise it.
fn beginning(text: &str) -> String {
    const CHARS: usize = 80;
    let mut begin: String = text.chars().take(CHARS).collect();
    if text.chars().nth(CHARS).is_some() {
        begin.push('…');
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::super::matching::{RequestConditions, Sender};
    use super::super::request::Delivery;
    use super::*;

    fn request(last_message: &str) -> MessagesRequest {
        MessagesRequest {
            model: "m-large".into(),
            last_message: last_message.into(),
            tools: Tools::Present,
            sender: Sender::Main,
            delivery: Delivery::Whole,
        }
    }

    fn played(choice: Choice) -> usize {
        let Choice::Turn { index, .. } = choice else { panic!("expected a turn, got {choice:?}") };
        index
    }

    #[test]
    fn the_first_unplayed_turn_that_accepts_is_taken() {
        let sub = RequestConditions::any().sender(Sender::SubAgent);
        let script = Script::new()
            .turn(Turn::text("for the sub-agent").when(sub))
            .turn(Turn::text("for main"))
            .turn(Turn::text("large, after red").when(RequestConditions::any().last_message_contains("red")))
            .turn(Turn::text("small").when(RequestConditions::any().model_contains("small")));
        let mut player = Player::new(script);
        assert_eq!(played(player.choose(&request("x"))), 1);
        assert_eq!(played(player.choose(&request("a red one"))), 2);
        assert_eq!(played(player.choose(&MessagesRequest { sender: Sender::SubAgent, ..request("x") })), 0);
        assert_eq!(player.unplayed(), [3]);
        let Choice::NoneAccepts { message } = player.choose(&request(&"é".repeat(100))) else { panic!() };
        assert!(message.contains("3 of 4 turns played"), "{message}");
        assert!(message.ends_with("é…"), "{message}");
        assert_eq!(played(player.choose(&MessagesRequest { model: "m-small".into(), ..request("x") })), 3);
        let Choice::ExhaustedError { message } = player.choose(&request("x")) else { panic!() };
        assert!(message.contains("all 4 turns"), "{message}");
    }

    #[test]
    fn side_requests_spend_no_turn_unless_a_turn_names_them() {
        let toolless = MessagesRequest { tools: Tools::Absent, ..request("x") };
        let named = RequestConditions::any().tools(Tools::Absent);
        let script = Script::new().turn(Turn::text("main")).turn(Turn::text("title").when(named));
        let mut player = Player::new(script.clone());
        assert_eq!(played(player.choose(&toolless)), 1);
        assert_eq!(player.choose(&toolless), Choice::Side { text: "ok".into() });
        assert_eq!(player.unplayed(), [0]);

        let mut player = Player::new(script.side_requests(SideRequests::TakeTurns));
        assert_eq!(played(player.choose(&toolless)), 0);
    }

    #[test]
    fn exhaustion_may_have_a_text() {
        let mut player = Player::new(Script::new().when_exhausted(Exhausted::Reply("enough".into())));
        assert_eq!(player.choose(&request("x")), Choice::ExhaustedReply { text: "enough".into() });
    }
}
