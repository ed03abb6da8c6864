//! What the user was asked.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, excerpt};
use crate::run::Run;
use crate::value::{Count, NonEmpty, Text};
use belljar_contract::decode::{choice, table};
use belljar_contract::{AskedQuestion, Pattern};

pub(super) const KEYS: &[Key] = &[Asked::KEY, Options::KEY, QuestionsMax::KEY];

check! {
    /// The user was asked a question whose text or header matches.
    Asked(Questions, "question_asked", NotNeeded): Pattern
}
check! {
    /// The user was asked at most this many questions. A call that asks three at once counts three. Needs the whole
    /// conversation.
    QuestionsMax(Questions, "questions_count_max", NotNeeded): Count
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Exact,
    Any,
}

choice!(Order, "an order", { "exact" => Order::Exact, "any" => Order::Any });

table! {
    "`question_options`"
    struct OptionsSpec {
        /// Pattern for the text or header of the question; the only one when absent.
        when as "when_question": Option<Pattern>,
        /// The labels that could be chosen, no more and no fewer.
        equals: Option<NonEmpty<Text>>,
        /// Labels that could be chosen, among others.
        contains: Option<NonEmpty<Text>>,
        /// Whether the order of the labels matters; `any` when absent.
        order: Option<Order>,
    }
}

check! {
    /// A question offered these labels, as it was asked. One of `equals` and `contains` is given. Without `when_question`
    /// exactly one question must have been asked; with it, each that matches must have the labels.
    Options(Questions, "question_options", NotNeeded): OptionsSpec
}

/// Every question with the event that asked.
fn questions<'a>(run: &Run<'a>) -> Vec<(u64, &'a AskedQuestion)> {
    let gates = run.gates();
    gates.iter().flat_map(|gate| gate.questions.iter().map(|question| (gate.asked_at, question))).collect()
}

fn fits(pattern: &Pattern, question: &AskedQuestion) -> bool {
    pattern.is_match(&question.question) || pattern.is_match(&question.header)
}

impl Check for Asked {
    fn judge(&self, run: &Run<'_>) -> Finding {
        match questions(run).into_iter().find(|(_, question)| fits(&self.0, question)) {
            Some((seq, question)) => Finding::pass("the question was asked").seen(seq, &question.question),
            None => run.fails_if_whole("no question that matches was asked"),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        let texts = |(_, question): (u64, &'a AskedQuestion)| [question.question.as_str(), &question.header];
        Search::wanted(questions(run).into_iter().flat_map(texts))
    }
}

impl Check for QuestionsMax {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let asked: Vec<(u64, String)> =
            questions(run).into_iter().map(|(seq, question)| (seq, question.question.clone())).collect();
        run.at_most(asked.len() as u64, self.0.0, "questions", &asked)
    }
}

impl Check for Options {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let OptionsSpec { when, equals, contains, order } = &self.0;
        let all = questions(run);
        let chosen: Vec<&(u64, &AskedQuestion)> = all
            .iter()
            .filter(|(_, question)| when.as_ref().is_none_or(|when| fits(when, question)))
            .collect();
        if chosen.is_empty() {
            return run.fails_if_whole("no such question was asked");
        }
        if when.is_none() && chosen.len() > 1 {
            let finding =
                Finding::fail("several questions were asked, and `when_question` does not say which");
            return chosen
                .iter()
                .fold(finding, |finding, (seq, question)| finding.seen(*seq, &question.question));
        }
        let order = order.unwrap_or(Order::Any);
        for (seq, question) in &chosen {
            let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
            let holds = equals.as_ref().is_none_or(|wanted| same(&labels, &wanted.0, order))
                && contains.as_ref().is_none_or(|wanted| within(&labels, &wanted.0, order));
            if !holds {
                let message = format!("the question offered {}", excerpt(&labels.join(", ")));
                return Finding::fail(message).seen(*seq, &question.question);
            }
        }
        // "Each that matches" and "the only one" are both said of a whole conversation.
        let finding = run.holds_if_whole("the question offered these labels");
        chosen.iter().fold(finding, |finding, (seq, question)| finding.seen(*seq, &question.question))
    }

    fn misuse(&self) -> Option<String> {
        let one = self.0.equals.is_some() != self.0.contains.is_some();
        (!one).then(|| "one of `equals` and `contains` is needed, not both".to_owned())
    }
}

fn same(labels: &[&str], wanted: &[Text], order: Order) -> bool {
    let mut labels = labels.to_vec();
    let mut wanted: Vec<&str> = wanted.iter().map(|text| text.0.as_str()).collect();
    if order == Order::Any {
        labels.sort_unstable();
        wanted.sort_unstable();
    }
    labels == wanted
}

fn within(labels: &[&str], wanted: &[Text], order: Order) -> bool {
    match order {
        Order::Any => wanted.iter().all(|text| labels.contains(&text.0.as_str())),
        Order::Exact => {
            let mut rest = labels.iter();
            wanted.iter().all(|text| rest.any(|label| *label == text.0))
        }
    }
}
