//! The keys of a script file. Its hints and its JSON Schema come from this definition; `serde` reads the values.
#![expect(
    dead_code,
    reason = "the fields name keys; the values are read from the same text by `Script::parse`"
)]

use belljar_contract::decode::{
    Decode, Fault, Faults, Kind, Many, Node, Value, choice, choices, shown, table, whole_number,
    whole_number_schema,
};
use belljar_contract::nearest;
use serde_json::{Map, json};
use std::ops::RangeInclusive;

use super::check::LONGEST_SILENCE_MS;
use super::format::{CutEnd, StopReason};
use super::matching::{Sender, Tools};

table! {
    /// A script: what the model answers, in order, and to which requests.
    "a script"
    pub(super) struct ScriptSpec {
        /// The schema of this file, for editors; not read.
        schema as "$schema": Option<OrNull<String>>,
        /// Version of the format: 1.
        version: Version,
        /// A remark for people; not played.
        note: Option<OrNull<String>>,
        /// The answers, in order. Each request takes the first turn that was not played and accepts it.
        turns: Many<TurnSpec>,
        /// What is answered to a request without tools, such as one for a session title: `{"reply": TEXT}` plays no turn,
        /// `"take_turns"` treats it like any other; `{"reply": "ok"}` when absent.
        side_requests: Option<SideRequestsSpec>,
        /// What is answered after the last turn: `"error"` is a status 400, `{"reply": TEXT}` a message; `"error"` when absent.
        when_exhausted: Option<ExhaustedSpec>,
    }
}

table! {
    /// One answer of the model, and the requests that it is for.
    "a turn"
    pub(super) struct TurnSpec {
        /// A remark for people; not played.
        note: Option<OrNull<String>>,
        /// The requests that this turn accepts; all when absent.
        when: Option<ConditionsSpec>,
        /// Time before the first byte, in milliseconds; 0 when absent.
        delay_ms: Option<Silence>,
        /// `{"reply": …}`, `{"error": …}`, or `"hang_up"` to close the connection without a byte.
        answer: AnswerSpec,
    }
}

table! {
    /// Conditions on a request; all that are written must hold.
    "`when`"
    pub(super) struct ConditionsSpec {
        /// A text in the last message, which is the prompt or a tool's result.
        last_message_contains: Option<OrNull<String>>,
        /// A text in the name of the requested model.
        model_contains: Option<OrNull<String>>,
        /// Whether the request carries tools: `present` or `absent`.
        tools: Option<OrNull<Tools>>,
        /// The conversation of the request: `main` or `sub_agent`.
        sender: Option<OrNull<Sender>>,
    }
}

table! {
    /// A message of the model, and how it is delivered.
    "a reply"
    pub(super) struct ReplySpec {
        /// The blocks of the message, at least one.
        content: ContentSpec,
        /// Why the model stopped; when absent, `tool_use` if a tool is called, otherwise `end_turn`.
        stop_reason: Option<OrNull<StopReason>>,
        /// The token counts that the model reports.
        usage: Option<UsageSpec>,
        /// Name of the model that is reported; the requested one when absent.
        model: Option<OrNull<String>>,
        /// Time between two events of a stream, in milliseconds; 0 when absent.
        pause_ms: Option<Silence>,
        /// Longest piece of a text in a stream, in characters; a block is one piece when absent.
        delta_chars: Option<OrNull<Characters>>,
        /// Where the delivery is cut off; it is complete when absent.
        cut: Option<OrNull<CutSpec>>,
    }
}

table! {
    /// A block of reasoning.
    "a thinking block"
    pub(super) struct ThinkingSpec {
        /// The reasoning.
        text: String,
        /// Any text; the agent sends it back unchanged.
        signature: String,
    }
}

table! {
    /// A call of one of the agent's tools.
    "a tool call"
    pub(super) struct ToolUseSpec {
        /// Name of the tool, such as `Bash`.
        name: ToolName,
        /// Arguments of the call, a table.
        input: Arguments,
        /// Id of the call, which no other call has; made from its position when absent.
        id: Option<OrNull<String>>,
    }
}

table! {
    /// The token counts that the model reports.
    "`usage`"
    pub(super) struct UsageSpec {
        /// Tokens read that were not cached; 10 when absent.
        input_tokens: Option<Tokens>,
        /// Tokens written; 5 when absent.
        output_tokens: Option<Tokens>,
        /// Tokens written to the prompt cache; 0 when absent.
        cache_creation_input_tokens: Option<Tokens>,
        /// Tokens read from the prompt cache; 0 when absent.
        cache_read_input_tokens: Option<Tokens>,
    }
}

table! {
    /// A cut in the delivery.
    "`cut`"
    pub(super) struct CutSpec {
        /// Events before the cut. A reply that is not streamed loses the second half of its body.
        after_events: Tokens,
        /// How the connection ends: `close`, `reset`, or `end_of_body`, where only the message is incomplete; `close` when
        /// absent.
        end: Option<CutEnd>,
    }
}

table! {
    /// An HTTP error.
    "an error"
    pub(super) struct ErrorSpec {
        /// HTTP status, 400 to 599.
        status: Status,
        /// The error's type; derived from the status when absent.
        kind as "type": Option<OrNull<String>>,
        /// Text for people; empty when absent.
        message: Option<String>,
        /// Further response headers, such as `retry-after`.
        headers: Option<Headers>,
    }
}

choice!(Tools, "whether the request carries tools", { "present" => Tools::Present, "absent" => Tools::Absent });
choice!(Sender, "a conversation", { "main" => Sender::Main, "sub_agent" => Sender::SubAgent });
choice!(CutEnd, "an end of the connection", {
    "close" => CutEnd::Close,
    "reset" => CutEnd::Reset,
    "end_of_body" => CutEnd::EndOfBody,
});
choice!(StopReason, "a stop reason", {
    "end_turn" => StopReason::EndTurn,
    "tool_use" => StopReason::ToolUse,
    "max_tokens" => StopReason::MaxTokens,
    "stop_sequence" => StopReason::StopSequence,
    "pause_turn" => StopReason::PauseTurn,
    "refusal" => StopReason::Refusal,
});

/// A value, or `null` in the place of an absent one: a script that is written by a program has it.
#[derive(Debug, Clone)]
pub(super) struct OrNull<T>(Option<T>);

impl<T: Decode> Decode for OrNull<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        if node.kind == Kind::Null {
            return Some(Self(None));
        }
        T::decode(node, faults).map(|value| Self(Some(value)))
    }

    fn schema() -> Value {
        json!({"anyOf": [T::schema(), {"type": "null"}]})
    }
}

/// Defines a whole number of a range.
macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $name:ident, $expected:literal, $range:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone)]
        pub(super) struct $name(i64);

        impl Decode for $name {
            fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
                whole_number(node, $expected, &$range, faults).map(Self)
            }

            fn schema() -> Value {
                whole_number_schema(&$range)
            }
        }
    )+};
}

/// The times that a script may ask for.
#[expect(clippy::cast_possible_wrap, reason = "ten minutes")]
const SILENCES: RangeInclusive<i64> = 0..=LONGEST_SILENCE_MS as i64;

numbers! {
    /// The version of the format.
    Version, "the version of the format", 1..=1;
    /// A time without a byte.
    Silence, "a time in milliseconds", SILENCES;
    /// A count of tokens or events.
    Tokens, "a whole number", 0..=i64::from(u32::MAX);
    /// A length of pieces.
    Characters, "a number of characters", 1..=i64::from(u32::MAX);
    /// The status of an error.
    Status, "an HTTP status", 400..=599;
}

/// The name of a tool.
#[derive(Debug, Clone)]
pub(super) struct ToolName(String);

impl Decode for ToolName {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let name = String::decode(node, faults)?;
        if name.is_empty() {
            return faults.invalid(node, Fault::new("expected the name of a tool, found an empty string"));
        }
        Some(Self(name))
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// The arguments of a call.
#[derive(Debug, Clone)]
pub(super) struct Arguments(Value);

impl Decode for Arguments {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match node.kind {
            Kind::Table(_) => Some(Self(node.to_value())),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => faults.mismatch(node, "a table"),
        }
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}

/// The headers of an error; whether a header can be sent is checked with the script.
#[derive(Debug, Clone)]
pub(super) struct Headers;

impl Decode for Headers {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Table(table) = &node.kind else { return faults.mismatch(node, "a table") };
        let read: Vec<Option<String>> =
            table.0.iter().map(|(_, value)| String::decode(value, faults)).collect();
        read.iter().all(Option::is_some).then_some(Self)
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}

/// The blocks of a message.
#[derive(Debug, Clone)]
pub(super) struct ContentSpec;

impl Decode for ContentSpec {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Many(_) = Many::<BlockSpec>::decode(node, faults)?;
        match node.items() {
            Some([]) => {
                faults.invalid(node, Fault::new("expected at least one block, found none").help(BLOCK_HELP))
            }
            Some(_) | None => Some(Self),
        }
    }

    fn schema() -> Value {
        let mut schema = Many::<BlockSpec>::schema();
        schema["minItems"] = json!(1);
        schema
    }
}

const BLOCK_HELP: &str = "a block is `{\"text\": \"…\"}`, `{\"tool_use\": {…}}` or `{\"thinking\": {…}}`";

/// One way to write a value that has several.
struct Way {
    /// The key of a table with one entry, or the word itself.
    name: &'static str,
    /// The schema of the key's value and how it is decoded; `None` for a word.
    value: Option<WayValue>,
}

type WayValue = (fn(&Node, &mut Faults<'_>) -> bool, fn() -> Value);

fn key<T: Decode>(name: &'static str) -> Way {
    Way { name, value: Some((|node, faults| T::decode(node, faults).is_some(), T::schema)) }
}

const fn word(name: &'static str) -> Way {
    Way { name, value: None }
}

/// Decodes a value that is a word, or a table with one of several keys.
fn one_of(node: &Node, what: &str, ways: &[Way], faults: &mut Faults<'_>) -> Option<()> {
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    match &node.kind {
        Kind::String(text) => match ways.iter().find(|way| way.name == text) {
            Some(Way { value: None, .. }) => Some(()),
            Some(Way { name, value: Some(_) }) => faults.invalid(
                node,
                Fault::new(format!("`{name}` needs a value")).help(format!("write `{{\"{name}\": …}}`")),
            ),
            None => {
                let mut fault = Fault::new(format!("expected {what}, found `{}`", shown(text)))
                    .help(format!("write {}", forms(ways)));
                if let Some(near) = nearest(text, names) {
                    fault = fault.label(format!("did you mean `{near}`?"));
                }
                faults.invalid(node, fault)
            }
        },
        Kind::Table(table) => {
            let [(key, value)] = table.0.as_slice() else {
                let found = table.0.len();
                let fault = Fault::new(format!("expected {what} with one key, found {found} keys"))
                    .help(format!("write {}", forms(ways)));
                let place = table.0.get(1).map_or(&node.span, |(key, _)| &key.span);
                faults.push("invalid-value", place, fault);
                return None;
            };
            match ways.iter().find(|way| way.name == key.text) {
                Some(Way { value: Some((decode, _)), .. }) => decode(value, faults).then_some(()),
                Some(Way { name, value: None }) => faults.invalid(
                    node,
                    Fault::new(format!("`{name}` has no value")).help(format!("write `\"{name}\"`")),
                ),
                None => {
                    faults.unknown_key(key, what, &names);
                    None
                }
            }
        }
        Kind::Null
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Foreign(_) => faults.mismatch(node, &format!("{what}: {}", choices(&names))),
    }
}

fn forms(ways: &[Way]) -> String {
    let one = |way: &Way| match way.value {
        Some(_) => format!("`{{\"{}\": …}}`", way.name),
        None => format!("`\"{}\"`", way.name),
    };
    ways.iter().map(one).collect::<Vec<_>>().join(" or ")
}

fn ways_schema(ways: &[Way]) -> Value {
    let one = |way: &Way| match way.value {
        None => json!({"const": way.name}),
        Some((_, schema)) => {
            let properties: Map<String, Value> = [(way.name.to_owned(), schema())].into_iter().collect();
            json!({"type": "object", "properties": properties, "required": [way.name], "additionalProperties": false})
        }
    };
    json!({"oneOf": ways.iter().map(one).collect::<Vec<_>>()})
}

/// Defines a value with several ways to write it.
macro_rules! ways {
    ($($(#[doc = $doc:literal])+ $name:ident, $what:literal, [$($way:expr),+];)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone)]
        pub(super) struct $name;

        impl Decode for $name {
            fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
                one_of(node, $what, &[$($way),+], faults).map(|()| Self)
            }

            fn schema() -> Value {
                ways_schema(&[$($way),+])
            }
        }
    )+};
}

ways! {
    /// The answer of a turn.
    AnswerSpec, "an answer", [key::<ReplySpec>("reply"), key::<ErrorSpec>("error"), word("hang_up")];
    /// A block of a message.
    BlockSpec, "a block", [key::<String>("text"), key::<ToolUseSpec>("tool_use"), key::<ThinkingSpec>("thinking")];
    /// What is answered to a request without tools.
    SideRequestsSpec, "an answer to requests without tools", [key::<String>("reply"), word("take_turns")];
    /// What is answered after the last turn.
    ExhaustedSpec, "an answer after the last turn", [word("error"), key::<String>("reply")];
}
