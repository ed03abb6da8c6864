//! The answer-policy file: rules, or an object with rules under `answers`.

use super::rule::{Rule, parse_rules};
use belljar_contract::DataFault;
use serde_json::Value;

/// Reads the data of an answer-policy file.
///
/// # Errors
/// All that is wrong with it.
pub fn parse_policy(file: &Value) -> Result<Vec<Rule>, Vec<DataFault>> {
    let Value::Object(members) = file else { return parse_rules(file) };
    let mut faults = Vec::new();
    for key in members.keys().filter(|key| *key != "answers") {
        faults.push(DataFault {
            path: key.chars().take(64).collect(),
            message: "an answer policy has only `answers`".to_owned(),
            span: None,
            help: None,
        });
    }
    let rules = match members.get("answers") {
        Some(list) => parse_rules(list),
        None => Err(vec![DataFault {
            path: "answers".to_owned(),
            message: "an answer policy needs `answers`".to_owned(),
            span: None,
            help: None,
        }]),
    };
    match rules {
        Ok(rules) if faults.is_empty() => return Ok(rules),
        Ok(_) => {}
        Err(more) => faults.extend(more.into_iter().map(|fault| match fault.path.as_str() {
            "answers" => fault,
            path => DataFault { path: format!("answers{path}"), ..fault },
        })),
    }
    Err(faults)
}
