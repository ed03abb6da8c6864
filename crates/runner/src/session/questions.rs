//! Passes the guard's questions from the guest to the user's terminal, and the answers back.

use crate::environment::HostEnvironment;
use crate::plan::allowances::Allowances;
use crate::session::console::{Console, Emit};
use belljar_contract::{
    AbsPath, Event, GuestAct, GuestAnswer, GuestOrder, GuestYes, HeldAnswer, OsText, Plan, visible,
    visible_start,
};
use belljar_sandbox::Running;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// After this many consecutive questions without a yes, no further question is asked: an agent can invent any number of
/// names.
const MOST_REFUSALS: usize = 8;
/// The longest path, in characters, that a user can be expected to read to its end. Longer paths are refused without a
/// question: the important part could be out of view.
const LONGEST_PATH: usize = 300;
const LONGEST_REASON: usize = 700;

/// A question of the guest.
pub(crate) struct Question {
    pub number: u64,
    /// The path on the host.
    pub path: AbsPath,
    pub act: GuestAct,
    pub why: String,
    pub yes: GuestYes,
}

/// The path on the host for a path that the guest reports; `None` if it is not valid.
pub(crate) fn place(plan: &Plan, path: &OsText) -> Option<AbsPath> {
    let path = AbsPath::new(OsStr::from_bytes(path.as_bytes())).ok()?;
    Some(crate::launch::workspace::outside(plan, &path))
}

/// The questions of one run.
pub(crate) struct Questions<'a> {
    environment: &'a HostEnvironment,
    allowances: Allowances,
    open: Option<Question>,
    /// Consecutive questions without a yes.
    refusals: usize,
}

impl<'a> Questions<'a> {
    pub fn new(environment: &'a HostEnvironment, allowances: Allowances) -> Self {
        Questions { environment, allowances, open: None, refusals: 0 }
    }

    /// Asks the user, or answers immediately if no user can be asked.
    pub fn ask(&mut self, question: Question, running: &Running, console: &mut dyn Console, emit: Emit<'_>) {
        let shown = self.environment.shown(&question.path);
        let readable = shown.chars().count() <= LONGEST_PATH;
        if self.refusals < MOST_REFUSALS && readable && console.ask(&text(&shown, &question), question.yes) {
            let Question { number: _, path, act, why, yes: _ } = &question;
            emit(&Event::HostExecutedAsked { path: path.clone(), act: *act, why: why.clone() });
            self.open = Some(question);
            return;
        }
        let answer = if readable { GuestAnswer::NoMore } else { GuestAnswer::No };
        send(running, question.number, answer);
    }

    /// Passes on the user's answer, if there is one.
    pub fn settle(&mut self, running: &Running, console: &mut dyn Console, emit: Emit<'_>) {
        let Some(answer) = console.answer() else { return };
        let Some(question) = self.open.take() else { return };
        let (answer, failure) = match answer {
            HeldAnswer::Always => match self.allowances.add(&question.path) {
                Ok(()) => (answer, None),
                Err(error) => (HeldAnswer::Run, Some(format!("it is allowed in this run only: {error}"))),
            },
            HeldAnswer::No | HeldAnswer::Once | HeldAnswer::Run | HeldAnswer::Unanswered => (answer, None),
        };
        let number = question.number;
        self.end(question, answer, failure, console, emit);
        send(running, number, self.for_guest(answer));
    }

    fn for_guest(&self, answer: HeldAnswer) -> GuestAnswer {
        match answer {
            HeldAnswer::Once => GuestAnswer::Once,
            HeldAnswer::Run | HeldAnswer::Always => GuestAnswer::Path,
            HeldAnswer::No | HeldAnswer::Unanswered if self.refusals < MOST_REFUSALS => GuestAnswer::No,
            HeldAnswer::No | HeldAnswer::Unanswered => GuestAnswer::NoMore,
        }
    }

    fn end(
        &mut self,
        question: Question,
        answer: HeldAnswer,
        failure: Option<String>,
        console: &mut dyn Console,
        emit: Emit<'_>,
    ) {
        self.refusals = if answer.is_yes() { 0 } else { self.refusals + 1 };
        let said = failure.or_else(|| (self.refusals == MOST_REFUSALS).then(no_more));
        let line = said.as_ref().map(|text| format!("belljar: {}", visible(text)));
        console.settle(answer, line.as_deref());
        let Question { number: _, path, act, why: _, yes: _ } = question;
        emit(&Event::HostExecutedAnswered { path, act, answer });
        said.into_iter().for_each(|text| emit(&Event::Notice { text }));
    }

    /// Closes the question because the process that caused it has ended.
    pub fn withdraw(&mut self, number: u64, console: &mut dyn Console, emit: Emit<'_>) {
        if self.open.as_ref().is_some_and(|question| question.number == number) {
            self.close(console, emit);
        }
    }

    /// Closes an open question: the run ends, or no process waits for the answer.
    pub fn close(&mut self, console: &mut dyn Console, emit: Emit<'_>) {
        if let Some(question) = self.open.take() {
            self.end(question, HeldAnswer::Unanswered, None, console, emit);
        }
    }
}

fn text(shown: &str, question: &Question) -> String {
    let Question { number: _, path: _, act, why, yes } = question;
    let other = match act {
        GuestAct::Link => "\n  the file keeps its other name and can be written under that name",
        GuestAct::Make | GuestAct::Write | GuestAct::Move => "",
    };
    let choices = match yes {
        GuestYes::Content => "[n]o, [o]nce",
        GuestYes::File => "[n]o, [o]nce, for this [r]un, [a]lways in this project",
    };
    format!(
        "belljar: the command wants to {} {shown}\n  on this machine {}{other}\n  allow it? {choices}: ",
        act.word(),
        visible_start(why, LONGEST_REASON),
    )
}

fn send(running: &Running, number: u64, answer: GuestAnswer) {
    // A guest that has ended does not wait for an answer.
    running.order(GuestOrder::Answer { number, answer }).ok();
}

fn no_more() -> String {
    format!(
        "{MOST_REFUSALS} questions in a row were not answered with yes; nothing more is asked in this run"
    )
}
