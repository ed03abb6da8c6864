//! Rules that answer questions, as a scenario or an answer policy has them.

use super::expression::Expression;
use super::rule_table::{AnswerRule, ChooseRule, ConditionRule, DecideRule, Input};
use crate::question::Grant;
use belljar_contract::Pattern;
use belljar_contract::decode::{At, Decode, Fault, Faults, Kind, Node, Value, list};
use serde_json::{Map, json};

#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) then: Then,
    pub(super) why: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Then {
    /// For a question whose text or header matches.
    Choose { when: Pattern, labels: Vec<String> },
    /// The same with a text instead of a label.
    Say { when: Pattern, text: String },
    /// For a tool of this name.
    Tool { tool: String, decide: Decide, grant: Option<Grant> },
}

#[derive(Debug, Clone)]
pub(super) enum Decide {
    Always(Allowance),
    If { condition: Expression, otherwise: Allowance },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowance {
    Allow,
    Deny,
}

const MOST_RULES: usize = 10_000;

/// The key that says what a rule does; each has a table of its own.
const ACTIONS: [&str; 4] = ["choose", "answer", "decide", "allow_if"];

/// Reads the items of a list of rules. `None` after a fault.
pub fn parse_rules(items: &[Node], faults: &mut Faults<'_>) -> Option<Vec<Rule>> {
    if let Some(beyond) = items.get(MOST_RULES) {
        let message = format!("the list has {} rules, more than the maximum of {MOST_RULES}", items.len());
        return faults.invalid(beyond, Fault::new(message).label("one too many"));
    }
    faults.whole(|faults| Some(items.iter().filter_map(|item| Rule::decode(item, faults)).collect()))
}

impl Rule {
    /// A rule of the command line, which chooses an option.
    pub(super) fn choosing(when: Pattern, label: String) -> Self {
        Self { then: Then::Choose { when, labels: vec![label] }, why: None }
    }

    /// A rule of the command line, which answers with a text.
    pub(super) fn saying(when: Pattern, text: String) -> Self {
        Self { then: Then::Say { when, text }, why: None }
    }

    /// A rule of the command line, which decides about a tool.
    pub(super) fn for_tool(tool: String, allowance: Allowance) -> Self {
        Self { then: Then::Tool { tool, decide: Decide::Always(allowance), grant: None }, why: None }
    }
}

impl Decode for Rule {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Table(table) = &node.kind else {
            return faults.mismatch(node, "a rule");
        };
        let actions: Vec<&str> = ACTIONS.into_iter().filter(|key| table.get(key).is_some()).collect();
        faults.whole(|faults| match actions.as_slice() {
            ["choose"] => ChooseRule::decode(node, faults).map(Self::from),
            ["answer"] => AnswerRule::decode(node, faults).map(Self::from),
            ["decide"] => decided(DecideRule::decode(node, faults)?, faults),
            ["allow_if"] => conditional(ConditionRule::decode(node, faults)?, faults),
            [] => without_action(node, faults),
            several => {
                let message =
                    format!("expected one of {} in a rule, found {}", list(&ACTIONS), list(several));
                faults.invalid(node, Fault::new(message).help("write one rule for each"))
            }
        })
    }

    fn schema() -> Value {
        json!({"oneOf": [
            ChooseRule::schema(),
            AnswerRule::schema(),
            DecideRule::schema(),
            ConditionRule::schema(),
        ]})
    }
}

/// Reports a rule that does nothing: a key is misspelt, or missing.
fn without_action(node: &Node, faults: &mut Faults<'_>) -> Option<Rule> {
    let Kind::Table(table) = &node.kind else { return None };
    let tables = [ChooseRule::KEYS, AnswerRule::KEYS, DecideRule::KEYS, ConditionRule::KEYS];
    let mut known: Vec<&str> = tables.iter().flat_map(|keys| keys.iter().map(|key| key.name)).collect();
    known.sort_unstable();
    known.dedup();
    let unknown: Vec<_> = table.0.iter().filter(|(key, _)| !known.contains(&key.text.as_str())).collect();
    for (key, _) in &unknown {
        faults.unknown_key(key, "a rule", &known);
    }
    if unknown.is_empty() {
        let needs = match (table.get("when_question"), table.get("when_tool")) {
            (Some(_), None) => "a rule with `when_question` lacks `choose` or `answer`",
            (None, Some(_)) => "a rule with `when_tool` lacks `decide` or `allow_if`",
            (Some(_), Some(_)) | (None, None) => {
                "a rule needs `when_question` with `choose` or `answer`, or `when_tool` with `decide` or `allow_if`"
            }
        };
        faults.push("missing-key", &node.span, Fault::new(needs));
    }
    None
}

impl From<ChooseRule> for Rule {
    fn from(rule: ChooseRule) -> Self {
        let ChooseRule { when_question, choose, why } = rule;
        Self { then: Then::Choose { when: when_question.0, labels: choose.0 }, why }
    }
}

impl From<AnswerRule> for Rule {
    fn from(rule: AnswerRule) -> Self {
        let AnswerRule { when_question, answer, why } = rule;
        Self { then: Then::Say { when: when_question.0, text: answer.0 }, why }
    }
}

fn decided(rule: DecideRule, faults: &mut Faults<'_>) -> Option<Rule> {
    let DecideRule { when_tool, why, decide, grant } = rule;
    let fetch = when_tool.0.starts_with("webfetch:") && decide == Allowance::Allow;
    if let Some(grant) = grant.as_ref().filter(|_| !fetch) {
        let fault = Fault::new("`grant` goes with `when_tool: webfetch:<domain>` and `decide: allow` only")
            .help("leave `grant` out");
        faults.push("invalid-value", &grant.place.span, fault);
    }
    let grant = grant.map(|at| at.value);
    Some(Rule { then: Then::Tool { tool: when_tool.0, decide: Decide::Always(decide), grant }, why })
}

fn conditional(rule: ConditionRule, faults: &mut Faults<'_>) -> Option<Rule> {
    let ConditionRule { when_tool, why, allow_if, otherwise, allows, denies } = rule;
    let decide = Decide::If { condition: allow_if.0, otherwise: otherwise.unwrap_or(Allowance::Deny) };
    check_examples(&allows, &decide, Allowance::Allow, faults);
    check_examples(&denies, &decide, Allowance::Deny, faults);
    Some(Rule { then: Then::Tool { tool: when_tool.0, decide, grant: None }, why })
}

/// Refuses a rule that contradicts its own examples.
fn check_examples(examples: &[At<Input>], decide: &Decide, wanted: Allowance, faults: &mut Faults<'_>) {
    for example in examples {
        let message = match decide.of(&example.value.0) {
            Ok(found) if found == wanted => continue,
            Ok(Allowance::Allow) => "the rule allows this example".to_owned(),
            Ok(Allowance::Deny) => "the rule denies this example".to_owned(),
            Err(why) => format!("the rule does not fit this example: {why}"),
        };
        faults.push("invalid-value", &example.place.span, Fault::new(message));
    }
}

impl Decide {
    /// The decision on an input, or why there is none.
    pub(super) fn of(&self, input: &Map<String, Value>) -> Result<Allowance, String> {
        match self {
            Self::Always(allowance) => Ok(*allowance),
            Self::If { condition, otherwise } => match condition.holds(input) {
                Ok(true) => Ok(Allowance::Allow),
                Ok(false) => Ok(*otherwise),
                Err(error) => Err(format!("`{}`: {error}", &condition.text()[error.span.clone()])),
            },
        }
    }
}
