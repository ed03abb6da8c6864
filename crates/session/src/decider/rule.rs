//! Rules that answer questions: their form in a scenario or an answer policy, read from data.

use super::expression::Expression;
use crate::question::Grant;
use belljar_contract::{DataFault, Letters, Pattern};
use serde_json::{Map, Value};

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) then: Then,
    pub(super) why: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Then {
    /// For a question whose text or header matches.
    Choose { when: Pattern, labels: Vec<String> },
    /// The same, in words of one's own.
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

/// More rules than anyone writes.
const MOST_RULES: usize = 10_000;

const KEYS: [&str; 11] = [
    "when_question",
    "choose",
    "answer",
    "when_tool",
    "decide",
    "allow_if",
    "else",
    "grant",
    "allows",
    "denies",
    "why",
];

/// Reads a list of rules, and tells all that is wrong with it.
///
/// # Errors
/// All faults, in the order of the rules.
pub fn parse_rules(list: &Value) -> Result<Vec<Rule>, Vec<DataFault>> {
    let Value::Array(items) = list else {
        return Err(vec![fault("", format!("expected a list of rules, found {}", kind(list)))]);
    };
    if items.len() > MOST_RULES {
        return Err(vec![fault("", format!("a list has at most {MOST_RULES} rules"))]);
    }
    let mut faults = Vec::new();
    let mut rules = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut reader = Reader { path: format!("[{index}]"), faults: Vec::new() };
        let rule = reader.rule(item);
        match rule {
            Some(rule) if reader.faults.is_empty() => rules.push(rule),
            Some(_) | None => faults.append(&mut reader.faults),
        }
    }
    if faults.is_empty() { Ok(rules) } else { Err(faults) }
}

impl Rule {
    /// A rule that chooses, as the command line writes it.
    pub(super) fn choosing(when: Pattern, label: String) -> Self {
        Self { then: Then::Choose { when, labels: vec![label] }, why: None }
    }
}

struct Reader {
    path: String,
    faults: Vec<DataFault>,
}

impl Reader {
    /// A rule, or at least one fault.
    fn rule(&mut self, item: &Value) -> Option<Rule> {
        let Value::Object(members) = item else {
            return self.fault("", format!("a rule is an object, this is {}", kind(item)));
        };
        self.unknown_keys(members);
        let why = self.text(members, "why");
        let then = match (members.contains_key("when_question"), members.contains_key("when_tool")) {
            (true, false) => self.question_rule(members),
            (false, true) => self.tool_rule(members),
            (true, true) => self.fault("", "a rule has one of `when_question` and `when_tool`, not both"),
            (false, false) => self.fault("", "a rule needs `when_question` or `when_tool`"),
        }?;
        Some(Rule { then, why })
    }

    fn unknown_keys(&mut self, members: &Map<String, Value>) {
        for key in members.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            let near = KEYS.iter().min_by_key(|known| strsim::levenshtein(known, key));
            let near = near.filter(|known| strsim::levenshtein(known, key) <= 3);
            let help = near.map(|known| format!("near is `{known}`"));
            let shown: String = key.chars().take(64).collect();
            let path = format!("{}.{shown}", self.path);
            self.faults.push(DataFault {
                path,
                message: "a rule has no such key".to_owned(),
                span: None,
                help,
            });
        }
    }

    fn question_rule(&mut self, members: &Map<String, Value>) -> Option<Then> {
        self.only_with(members, &["decide", "allow_if", "else", "grant", "allows", "denies"], "when_tool");
        let source = self.text(members, "when_question")?;
        let when = match Pattern::new(&source, Letters::AnyCase) {
            Ok(when) => when,
            Err(error) => {
                let mut fault = DataFault::new(format!("{}.when_question", self.path), error.to_string());
                fault.help = error.help().map(str::to_owned);
                self.faults.push(fault);
                return None;
            }
        };
        match (members.get("choose"), members.contains_key("answer")) {
            (Some(choose), false) => {
                let labels = self.labels(choose)?;
                Some(Then::Choose { when, labels })
            }
            (None, true) => {
                let text = self.text(members, "answer")?;
                if text.trim().is_empty() {
                    return self.fault(".answer", "an answer is not empty");
                }
                Some(Then::Say { when, text })
            }
            (Some(_), true) | (None, false) => {
                self.fault("", "a rule with `when_question` has one of `choose` and `answer`")
            }
        }
    }

    fn labels(&mut self, choose: &Value) -> Option<Vec<String>> {
        let one = |value: &Value| match value {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            // Positions are written as numbers.
            Value::Number(number) if number.is_u64() => Some(number.to_string()),
            _ => None,
        };
        let labels = match choose {
            Value::Array(items) => items.iter().map(one).collect::<Option<Vec<_>>>(),
            single => one(single).map(|label| vec![label]),
        };
        match labels {
            Some(labels) if !labels.is_empty() => Some(labels),
            Some(_) | None => self.fault(".choose", "expected a label or a list of labels"),
        }
    }

    fn tool_rule(&mut self, members: &Map<String, Value>) -> Option<Then> {
        self.only_with(members, &["choose", "answer"], "when_question");
        let tool = self.text(members, "when_tool")?;
        if tool.is_empty() {
            return self.fault(".when_tool", "expected the name of a tool");
        }
        let decide = match (members.contains_key("decide"), members.contains_key("allow_if")) {
            (true, false) => {
                self.only_with(members, &["else", "allows", "denies"], "allow_if");
                Decide::Always(self.allowance(members, "decide")?)
            }
            (false, true) => self.condition(members)?,
            (true, true) | (false, false) => {
                return self.fault("", "a rule with `when_tool` has one of `decide` and `allow_if`");
            }
        };
        let grant = self.grant(members, &tool, &decide)?;
        Some(Then::Tool { tool, decide, grant })
    }

    fn condition(&mut self, members: &Map<String, Value>) -> Option<Decide> {
        let text = self.text(members, "allow_if")?;
        let otherwise =
            if members.contains_key("else") { self.allowance(members, "else")? } else { Allowance::Deny };
        let condition = match Expression::parse(&text) {
            Ok(condition) => condition,
            Err(error) => {
                let path = format!("{}.allow_if", self.path);
                let (message, span, help) = (error.message, Some(error.span), error.help);
                self.faults.push(DataFault { path, message, span, help });
                return None;
            }
        };
        let decide = Decide::If { condition, otherwise };
        self.examples(members, "allows", &decide, Allowance::Allow);
        self.examples(members, "denies", &decide, Allowance::Deny);
        Some(decide)
    }

    /// A rule that does not do what its author says it does is not loaded.
    fn examples(&mut self, members: &Map<String, Value>, key: &str, decide: &Decide, wanted: Allowance) {
        let Some(examples) = members.get(key) else { return };
        let Value::Array(examples) = examples else {
            self.fault::<()>(&format!(".{key}"), "expected a list of inputs");
            return;
        };
        for (index, example) in examples.iter().enumerate() {
            let path = format!(".{key}[{index}]");
            let Value::Object(input) = example else {
                self.fault::<()>(&path, "an example is an input of the tool, an object");
                continue;
            };
            match decide.of(input) {
                Ok(found) if found == wanted => {}
                Ok(Allowance::Allow) => {
                    self.fault::<()>(&path, "the rule allows this example");
                }
                Ok(Allowance::Deny) => {
                    self.fault::<()>(&path, "the rule denies this example");
                }
                Err(why) => {
                    self.fault::<()>(&path, format!("the rule does not fit this example: {why}"));
                }
            }
        }
    }

    /// The outer `None` is a fault.
    fn grant(&mut self, members: &Map<String, Value>, tool: &str, decide: &Decide) -> Option<Option<Grant>> {
        if !members.contains_key("grant") {
            return Some(None);
        }
        if !tool.starts_with("webfetch:") || !matches!(decide, Decide::Always(Allowance::Allow)) {
            return self
                .fault(".grant", "`grant` goes with `when_tool: webfetch:<domain>` and `decide: allow`");
        }
        match self.text(members, "grant")?.as_str() {
            "once" => Some(Some(Grant::Once)),
            "domain" => Some(Some(Grant::Domain)),
            other => self.fault(".grant", format!("expected `once` or `domain`, found `{other}`")),
        }
    }

    fn allowance(&mut self, members: &Map<String, Value>, key: &str) -> Option<Allowance> {
        match self.text(members, key)?.as_str() {
            "allow" => Some(Allowance::Allow),
            "deny" => Some(Allowance::Deny),
            other => self.fault(&format!(".{key}"), format!("expected `allow` or `deny`, found `{other}`")),
        }
    }

    /// A text; absent is none without a fault.
    fn text(&mut self, members: &Map<String, Value>, key: &str) -> Option<String> {
        match members.get(key) {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => self.fault(&format!(".{key}"), format!("expected a text, found {}", kind(other))),
        }
    }

    fn only_with(&mut self, members: &Map<String, Value>, keys: &[&str], with: &str) {
        for key in keys.iter().filter(|key| members.contains_key(**key)) {
            self.fault::<()>(&format!(".{key}"), format!("`{key}` goes with `{with}`"));
        }
    }

    fn fault<T>(&mut self, at: &str, message: impl Into<String>) -> Option<T> {
        self.faults.push(fault(&format!("{}{at}", self.path), message.into()));
        None
    }
}

impl Decide {
    /// What it says of an input, or why it says nothing.
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

fn fault(path: &str, message: String) -> DataFault {
    DataFault { path: path.to_owned(), message, span: None, help: None }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
