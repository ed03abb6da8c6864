//! The deciders of a trial or a rehearsal, in the order in which they are asked.

use super::denials::{self, Denials};
use super::{Answering, LastResort, ModelDecider, ModelWish};
use crate::session::conversation::{Deciders, ExternalDecider};
use crate::tape::RecordedAnswers;
use belljar_plan::{OnUnanswered, PermissionParity};
use belljar_session::By;
use belljar_session::decider::{Chain, First, Rule, Scripted};

fn scripted(flags: Vec<Rule>, rules: &[Rule], policy: Vec<Rule>) -> Scripted {
    Scripted::default()
        .with(flags, By::CommandLine)
        .with(rules.to_vec(), By::Scenario)
        .with(policy, By::Policy)
}

/// What a scenario and its session say about answers.
pub(super) struct ScenarioAnswers<'a> {
    pub rules: &'a [Rule],
    pub on_unanswered: Option<OnUnanswered>,
    pub parity: PermissionParity,
    /// The name of the scenario.
    pub name: Option<&'a str>,
}

impl ScenarioAnswers<'_> {
    /// What they deny, whether the agent asks or not.
    pub fn denials(&self, answering: &Answering) -> Denials {
        let Answering { flags, policy, outside, model: _, last } = answering;
        // An external decider is asked about tools in the place of the parity.
        let outside =
            outside.is_some() || matches!(last, LastResort::Person(_)) && self.on_unanswered.is_none();
        let parity = if outside { PermissionParity::Cowork } else { self.parity };
        let rules = scripted(flags.clone(), self.rules, policy.clone());
        Denials { rules, parity: denials::parity(parity) }
    }

    /// The deciders of the scenario, with those of the command line.
    pub fn deciders(self, answering: Answering, recorded: Option<RecordedAnswers>) -> Deciders {
        let Self { rules, on_unanswered, parity, name } = self;
        let Answering { flags, policy, outside, model, last } = answering;
        let scripted = scripted(flags, rules, policy);
        let mut chain = Chain::default().then(scripted);
        if let Some(recorded) = recorded {
            chain = chain.then(recorded);
        }
        // The scenario's own `on_unanswered` wins over the last resort of the command line.
        let (first, person) = match (on_unanswered, last) {
            (Some(_), _) | (None, LastResort::Fail) => (false, None),
            (None, LastResort::First) => (true, None),
            (None, LastResort::Person(person)) => (false, Some(person)),
        };
        let outside = outside.or(person);
        // An external decider is asked about tools as well.
        if outside.is_none() {
            chain = chain.then(denials::parity(parity));
        }
        // A model that the command line names overrides the scenario.
        let (first, model) = match (on_unanswered, model) {
            (_, Some(wish)) => (false, Some(wish)),
            (Some(OnUnanswered::First), None) => (true, None),
            (Some(OnUnanswered::Llm), None) => (false, Some(ModelWish::default())),
            // `prompt` was refused earlier for runs without a terminal.
            (Some(OnUnanswered::Fail | OnUnanswered::Prompt), None) => (false, None),
            (None, None) => (first, None),
        };
        if first && outside.is_none() {
            chain = chain.then(First);
        }
        let outside = outside
            .or_else(|| model.map(|wish| Box::new(ModelDecider::new(wish)) as Box<dyn ExternalDecider>));
        Deciders { chain, outside, scenario: name.map(str::to_owned) }
    }
}
