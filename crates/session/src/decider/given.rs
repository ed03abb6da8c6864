//! Writes the answers that were given in a run as options and rules, so that the next run needs no one to ask.

use super::paste::{quoted, when_tool};
use belljar_contract::{AskedQuestion, Observation, Pattern, RequestId, holds_redaction, visible};
use std::collections::BTreeMap;

/// Answers of a run that no rule gave, written as rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenAnswers {
    /// Options of the command line, quoted for a shell. Answers that have no such form are only in `rules`.
    pub options: Vec<String>,
    /// Rules for the list `answers` of a scenario or an answer policy, as YAML.
    pub rules: Vec<String>,
    /// What cannot be written as one rule.
    pub notes: Vec<String>,
}

/// Deciders whose answers the next run does not have by itself.
const SOURCES: [&str; 5] = ["person", "model", "external", "first", "parity"];

/// What one rule decides.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Given {
    Tool { allowed: bool },
    Labels { labels: Vec<String> },
    Text { text: String },
}

impl Given {
    fn texts(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::Tool { .. } => [].iter(),
            Self::Labels { labels } => labels.iter(),
            Self::Text { text } => std::slice::from_ref(text).iter(),
        }
    }
}

/// Collects the answers that a person, a model, a program, a directory or the setting for unnamed tools gave.
pub fn given_answers<'a>(seen: impl IntoIterator<Item = &'a Observation>) -> GivenAnswers {
    given_answers_by(seen, |by| SOURCES.contains(&by))
}

/// Collects the answers of the deciders that `wanted` accepts by name. A denial of the setting for unnamed tools is not an
/// answer that a rule needs to repeat.
pub fn given_answers_by<'a>(
    seen: impl IntoIterator<Item = &'a Observation>,
    wanted: impl Fn(&str) -> bool,
) -> GivenAnswers {
    let mut asked: BTreeMap<&RequestId, (Option<&str>, &[AskedQuestion])> = BTreeMap::new();
    let mut given: Vec<(String, Given)> = Vec::new();
    let mut out = GivenAnswers::default();
    for what in seen {
        if let Observation::Asked { request, tool, questions, .. } = what {
            asked.insert(request, (tool.as_deref(), questions));
        }
        let Observation::Answered { request, answer, chosen, by, .. } = what else { continue };
        let Some((tool, questions)) = asked.get(request) else { continue };
        if !wanted(by) || (by == "parity" && answer != "allow") {
            continue;
        }
        let answers = questions
            .iter()
            .zip(chosen)
            .map(|(asked, chosen)| (asked.question.clone(), choice(asked, chosen)));
        let permission = match (tool, answer.as_str()) {
            (Some(tool), "allow") if questions.is_empty() => Some((*tool, true)),
            (Some(tool), "deny") if questions.is_empty() => Some((*tool, false)),
            (Some(_) | None, _) => None,
        };
        let permission = permission.map(|(tool, allowed)| (tool.to_owned(), Given::Tool { allowed }));
        for (about, one) in answers.chain(permission) {
            match given.iter().find(|(known, _)| *known == about) {
                None => given.push((about, one)),
                Some((_, known)) if *known == one => {}
                Some(_) => out.notes.push(format!("{} was answered in different ways", visible(&about))),
            }
        }
    }
    for (about, one) in &given {
        if one.texts().chain([about]).any(|text| holds_redaction(text.as_bytes())) {
            out.notes.push("an answer contains a secret and is left out".to_owned());
            continue;
        }
        out.options.extend(option(about, one).filter(|line| visible(line) == *line));
        out.rules.push(rule(about, one));
    }
    out.notes.dedup();
    out
}

/// Distinguishes labels from free text: the record joins several labels with a comma.
fn choice(asked: &AskedQuestion, chosen: &str) -> Given {
    let mut labels = Vec::new();
    let mut rest = chosen;
    while !rest.is_empty() {
        let fits = |label: &&str| {
            rest == *label || rest.strip_prefix(*label).is_some_and(|more| more.starts_with(", "))
        };
        let found = asked
            .options
            .iter()
            .map(|option| option.label.as_str())
            .filter(fits)
            .max_by_key(|label| label.len());
        let Some(label) = found else { break };
        labels.push(label.to_owned());
        rest = rest[label.len()..].strip_prefix(", ").unwrap_or_default();
    }
    match rest.is_empty() && !labels.is_empty() && (asked.multi_select || labels.len() == 1) {
        true => Given::Labels { labels },
        false => Given::Text { text: chosen.to_owned() },
    }
}

fn option(about: &str, given: &Given) -> Option<String> {
    let pattern = || {
        let escaped = Pattern::quoted(about).replace('=', "\\=").replace('\n', "\\n");
        format!("^{escaped}$")
    };
    match given {
        Given::Tool { allowed: true } => Some(format!("--allow-tool {}", for_shell(about))),
        Given::Tool { allowed: false } => Some(format!("--deny-tool {}", for_shell(about))),
        // An option of the command line names one label, and `=` before it begins free text.
        Given::Labels { labels } => match labels.as_slice() {
            [label] if !label.trim_start().starts_with('=') => {
                Some(format!("--answer {}", for_shell(&format!("{}={label}", pattern()))))
            }
            _ => None,
        },
        Given::Text { text } => Some(format!("--answer {}", for_shell(&format!("{}=={text}", pattern())))),
    }
}

fn rule(about: &str, given: &Given) -> String {
    let question = || quoted(&format!("^{}$", Pattern::quoted(about)));
    match given {
        Given::Tool { allowed } => {
            let decide = if *allowed { "allow" } else { "deny" };
            format!("{}\n  decide: {decide}\n", when_tool(about))
        }
        Given::Labels { labels } => {
            let labels: Vec<String> = labels.iter().map(|label| quoted(label)).collect();
            let choose = match labels.as_slice() {
                [only] => only.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            format!("- when_question: {}\n  choose: {choose}\n", question())
        }
        Given::Text { text } => format!("- when_question: {}\n  answer: {}\n", question(), quoted(text)),
    }
}

/// Quotes a word for a shell.
fn for_shell(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:@".contains(char);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decider::{Chain, Scripted, allow_tool_rule, parse_answer_flag};
    use crate::question::{By, Question};
    use belljar_contract::{AskedOption, PermissionRequest, Speaker};

    fn asked(multi_select: bool, question: &str, labels: &[&str]) -> AskedQuestion {
        let option = |label: &&str| AskedOption { label: (*label).to_owned(), description: String::new() };
        let options = labels.iter().map(option).collect();
        AskedQuestion { question: question.to_owned(), header: String::new(), options, multi_select }
    }

    fn exchange(asked: &AskedQuestion, chosen: &str, by: &str) -> [Observation; 2] {
        let request = RequestId::new("r1").unwrap();
        let (about, tool) = ("can_use_tool".to_owned(), Some("AskUserQuestion".to_owned()));
        let questions = vec![asked.clone()];
        let by_main = Speaker::Main;
        [
            Observation::Asked { request: request.clone(), about, tool, call: None, by: by_main, questions },
            Observation::Answered {
                request,
                answer: "choices".to_owned(),
                chosen: vec![chosen.to_owned()],
                by: by.to_owned(),
                reason: String::new(),
            },
        ]
    }

    /// A shell reads the words of an option as they were meant.
    fn unquoted(option: &str) -> String {
        let (_, word) = option.split_once(' ').unwrap();
        match word.strip_prefix('\'').and_then(|word| word.strip_suffix('\'')) {
            Some(quoted) => quoted.replace("'\\''", "'"),
            None => word.to_owned(),
        }
    }

    #[test]
    fn a_pasted_option_gives_the_same_answer() {
        for (question, labels, chosen) in [
            ("Which format?", &["PDF", "HTML"][..], "PDF"),
            ("a=b (or it's $HOME)? [x]*", &["It's", "= odd"], "It's"),
            ("two\nlines \\ end\\", &["A, b", "A"], "A, b"),
            ("Which?", &["PDF", "HTML"], "my own = text"),
            ("Your name?", &[], "Nobody"),
        ] {
            let asked = asked(false, question, labels);
            let given = given_answers(&exchange(&asked, chosen, "person"));
            let [option] = given.options.as_slice() else { panic!("{given:?}") };
            let rule = parse_answer_flag(&unquoted(option)).unwrap();
            let chain = Chain::default().then(Scripted::default().with(vec![rule], By::CommandLine));
            let request = PermissionRequest::of("AskUserQuestion", serde_json::Map::new());
            let answer = chain.decide(&Question::Choice { request, questions: vec![asked] }).unwrap();
            assert_eq!(answer.value.chosen(), [chosen], "{option}");
        }
    }

    #[test]
    fn several_labels_are_a_rule_only() {
        let asked = asked(true, "Which?", &["S", "M", "L"]);
        let given = given_answers(&exchange(&asked, "S, L", "external"));
        assert_eq!(given.options, Vec::<String>::new());
        assert_eq!(given.rules, ["- when_question: \"^Which\\\\?$\"\n  choose: [\"S\", \"L\"]\n"]);
        assert_eq!(given_answers(&exchange(&asked, "S", "scenario")), GivenAnswers::default());
    }

    #[test]
    fn an_answer_with_a_secret_taken_out_is_not_given_again() {
        for (question, chosen) in [("Key?", "it is [redacted:KEY]"), ("Is it [redacted:KEY]?", "yes")] {
            let given = given_answers(&exchange(&asked(false, question, &["yes"]), chosen, "person"));
            let note = "an answer contains a secret and is left out".to_owned();
            assert_eq!(given, GivenAnswers { notes: vec![note], ..GivenAnswers::default() });
        }
    }

    #[test]
    fn an_empty_tool_is_refused() {
        assert!(allow_tool_rule(" ").is_err());
    }
}
