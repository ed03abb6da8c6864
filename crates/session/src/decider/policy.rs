//! The answer-policy file: rules, or a table with rules under `answers`.

use super::rule::{Rule, parse_rules};
use belljar_contract::decode::{Decode, Faults, Node, Value, table, titled};
use serde_json::json;

table! {
    "an answer policy"
    struct PolicyTable {
        /// Rules that answer the agent's questions; the first that matches decides.
        answers: Rules,
    }
}

#[derive(Debug, Clone)]
struct Rules(Vec<Rule>);

impl Decode for Rules {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let items = node.items().or_else(|| faults.mismatch(node, "a list of rules"))?;
        parse_rules(items, faults).map(Self)
    }

    fn schema() -> Value {
        json!({"type": "array", "items": Rule::schema()})
    }
}

/// Reads an answer-policy file. `None` after a fault.
pub fn parse_policy(file: &Node, faults: &mut Faults<'_>) -> Option<Vec<Rule>> {
    if let Some(items) = file.items() {
        return parse_rules(items, faults);
    }
    faults.whole(|faults| PolicyTable::decode(file, faults)).map(|PolicyTable { answers }| answers.0)
}

/// The JSON Schema of one rule.
#[must_use]
pub fn rule_schema() -> Value {
    Rule::schema()
}

/// The JSON Schema of an answer-policy file.
#[must_use]
pub fn policy_schema() -> Value {
    let schema = json!({
        "description": "Rules that answer the agent's questions.",
        "oneOf": [Rules::schema(), PolicyTable::schema()],
    });
    titled("belljar answer policy", schema)
}
