//! The keys of a rule: four tables, by what the rule does.

use super::expression::Expression;
use super::rule::Allowance;
use crate::question::Grant;
use belljar_contract::decode::{At, Decode, Fault, Faults, Kind, Node, Scalar, Value, choice, table};
use belljar_contract::{Letters, Pattern};
use serde_json::{Map, json};

table! {
    /// Chooses an option of a question.
    "a rule with `choose`"
    pub(super) struct ChooseRule {
        /// A pattern, letter case ignored; the question's text, then its header.
        when_question: QuestionPattern,
        /// A label, or a list of them where several may be chosen.
        choose: Labels,
        /// Recorded as the reason.
        why: Option<String>,
    }
}

table! {
    /// Answers a question with a text.
    "a rule with `answer`"
    pub(super) struct AnswerRule {
        /// A pattern, letter case ignored; the question's text, then its header.
        when_question: QuestionPattern,
        /// The text, sent unchanged.
        answer: AnswerText,
        /// Recorded as the reason.
        why: Option<String>,
    }
}

table! {
    /// Allows or denies a tool.
    "a rule with `decide`"
    pub(super) struct DecideRule {
        /// The tool's exact name.
        when_tool: ToolName,
        /// Recorded as the reason.
        why: Option<String>,
        /// `allow` or `deny`.
        decide: Allowance,
        /// Scope of an allowed fetch, with `webfetch:<domain>`: `once` or `domain`.
        grant: Option<At<Grant>>,
    }
}

table! {
    /// Allows or denies a tool by its input.
    "a rule with `allow_if`"
    pub(super) struct ConditionRule {
        /// The tool's exact name.
        when_tool: ToolName,
        /// Recorded as the reason.
        why: Option<String>,
        /// An expression on the tool's input.
        allow_if: Condition,
        /// The decision otherwise; `deny` when absent.
        otherwise as "else": Option<Allowance>,
        /// Inputs that the rule must allow.
        allows: Vec<At<Input>>,
        /// Inputs that the rule must deny.
        denies: Vec<At<Input>>,
    }
}

choice!(Allowance, "a decision", { "allow" => Allowance::Allow, "deny" => Allowance::Deny });
choice!(Grant, "a grant", { "once" => Grant::Once, "domain" => Grant::Domain });

/// A pattern; an empty one matches every question.
#[derive(Debug, Clone)]
pub(super) struct QuestionPattern(pub Pattern);

impl Decode for QuestionPattern {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let every = || Pattern::new("", Letters::AnyCase).ok();
        let pattern = if node.kind == Kind::String(String::new()) { every() } else { None };
        pattern.or_else(|| Pattern::decode(node, faults)).map(Self)
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "regex"})
    }
}

/// One label or several. A number is the position of an option.
#[derive(Debug, Clone)]
pub(super) struct Labels(pub Vec<String>);

impl Labels {
    fn one(node: &Node, faults: &mut Faults<'_>) -> Option<String> {
        match &node.kind {
            Kind::String(text) if !text.trim().is_empty() => Some(text.clone()),
            Kind::String(_) => faults.invalid(node, Fault::new("expected a label, found an empty one")),
            Kind::Integer(position @ 1..) => Some(position.to_string()),
            Kind::Integer(position) => {
                faults.invalid(node, Fault::new(format!("positions count from 1, found {position}")))
            }
            Kind::Null
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, "a label or a position"),
        }
    }
}

impl Decode for Labels {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match node.items() {
            Some([]) => {
                faults.invalid(node, Fault::new("expected a label or a list of labels, found an empty list"))
            }
            Some(items) => Some(Self(items.iter().filter_map(|item| Self::one(item, faults)).collect())),
            None => Self::one(node, faults).map(|label| Self(vec![label])),
        }
    }

    fn schema() -> Value {
        let label = json!({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]});
        json!({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1},
            {"type": "array", "minItems": 1, "items": label}]})
    }
}

/// An answer that is not blank.
#[derive(Debug, Clone)]
pub(super) struct AnswerText(pub String);

impl Scalar for AnswerText {
    const EXPECTED: &'static str = "a text";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            return Err(Fault::new("expected an answer, found an empty one"));
        }
        Ok(Self(text.to_owned()))
    }
}

#[derive(Debug, Clone)]
pub(super) struct ToolName(pub String);

impl Decode for ToolName {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(text) if text.is_empty() => {
                faults.invalid(node, Fault::new("expected the name of a tool, found an empty one"))
            }
            Kind::String(text) => Some(Self(text.clone())),
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, "the name of a tool"),
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// The expression of `allow_if`.
#[derive(Debug, Clone)]
pub(super) struct Condition(pub Expression);

impl Decode for Condition {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "an expression");
        };
        Expression::parse(text).map_or_else(
            |error| {
                let fault = Fault { message: error.message, label: String::new(), help: error.help };
                faults.invalid_part(node, &error.span, fault)
            },
            |condition| Some(Self(condition)),
        )
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// An input of a tool, as an example.
#[derive(Debug, Clone)]
pub(super) struct Input(pub Map<String, Value>);

impl Decode for Input {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Value::Object(input) = node.to_value() else {
            return faults.mismatch(node, "an input of the tool");
        };
        Some(Self(input))
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}
