//! A person at the terminal who answers the agent's questions.

use super::run_end::{RunEnd, Woken};
use crate::session::conversation::{ExternalDecider, Pending, Stopper};
use belljar_contract::{AfterDeny, AskedQuestion, DialogReply, ElicitationReply};
use belljar_contract::{visible, visible_lines, visible_page, visible_start};
use belljar_session::decider::{LabelReading, choose};
use belljar_session::{Answer, AnswerValue, By, Chosen, Question};
use rustix::event::PollFlags;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;

/// Characters of a tool's input that are shown.
const INPUT_SHOWN: usize = 400;

/// Asks at the terminal that belljar was started from, even if its streams are redirected.
pub struct Person {
    terminal: BufReader<File>,
    run_end: RunEnd,
}

impl Person {
    /// The person at the terminal.
    ///
    /// # Errors
    /// If there is no terminal.
    pub fn new() -> std::io::Result<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty")?;
        Ok(Self { terminal: BufReader::new(terminal), run_end: RunEnd::new()? })
    }

    fn say(&mut self, text: &str) -> Result<(), String> {
        // Control characters are escaped: an agent's question could otherwise change the screen.
        self.terminal
            .get_mut()
            .write_all(visible_page(text, &[]).as_bytes())
            .map_err(|error| error.to_string())
    }

    fn line(&mut self, prompt: &str) -> Result<String, String> {
        self.say(prompt)?;
        let mut line = String::new();
        if self.terminal.buffer().is_empty() {
            let woken = self.run_end.wait(self.terminal.get_ref().as_fd(), PollFlags::IN, None);
            match woken.map_err(|error| error.to_string())? {
                Woken::RunEnded => return Err("the run ended before the question was answered".to_owned()),
                Woken::Ready | Woken::Late => {}
            }
        }
        match self.terminal.read_line(&mut line) {
            Ok(0) => Err("the input of the terminal was closed".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn choice(&mut self, asked: &AskedQuestion) -> Result<Chosen, String> {
        let mut text = format!("\n? {}\n", visible(&asked.question));
        for (at, option) in asked.options.iter().enumerate() {
            let (label, about) = (visible(&option.label), visible(&option.description));
            text.push_str(&format!("  {}. {label}  {about}\n", at + 1));
        }
        self.say(&text)?;
        loop {
            let hint = match (asked.options.is_empty(), asked.multi_select) {
                (true, _) => "answer: ",
                (false, true) => "numbers or labels, comma between them, or = and your own text: ",
                (false, false) => "number or label, or = and your own text: ",
            };
            let line = self.line(hint)?;
            if let Some(own) = line.strip_prefix('=').map(str::trim).filter(|own| !own.is_empty()) {
                return Ok(Chosen::Text(own.to_owned()));
            }
            let parts = if asked.multi_select { line.split(',').collect() } else { vec![line.as_str()] };
            let wanted: Vec<String> =
                parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
            match choose(asked, &wanted, LabelReading::External) {
                Ok(chosen) if !wanted.is_empty() => return Ok(chosen),
                Ok(_) => {}
                Err(error) => self.say(&format!("  {}\n", visible(&error.to_string())))?,
            }
        }
    }

    fn yes(&mut self, question: &str) -> Result<bool, String> {
        loop {
            match self.line(&format!("\n? {question} [y/n] "))?.as_str() {
                "y" | "Y" | "yes" => return Ok(true),
                "n" | "N" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}

impl ExternalDecider for Person {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        let value = match &pending.question {
            Question::Permission(request) => {
                let input = serde_json::Value::Object(request.input.clone()).to_string();
                let more = match input.chars().count().saturating_sub(INPUT_SHOWN) {
                    0 => String::new(),
                    more => format!(" (and {more} more characters)"),
                };
                let (tool, input) = (visible(&request.tool), visible_start(&input, INPUT_SHOWN));
                if self.yes(&format!("May `{tool}` run with {input}{more}?"))? {
                    AnswerValue::Allow { input: None, permissions: Vec::new() }
                } else {
                    let message = "the user does not allow it".to_owned();
                    AnswerValue::Deny { message, then: AfterDeny::GoOn }
                }
            }
            Question::Choice { questions, .. } => AnswerValue::Choices(
                questions.iter().map(|asked| self.choice(asked)).collect::<Result<_, _>>()?,
            ),
            Question::Elicitation(request) => {
                let message = visible_lines(&request.message, "    ");
                self.say(&format!("\n{} asks: {message}\n", visible(&request.server)))?;
                self.say("  an answer in its own form cannot be given here; it is declined\n")?;
                AnswerValue::Elicitation(ElicitationReply::Decline)
            }
            Question::Dialog(_) => AnswerValue::Dialog(DialogReply::Cancelled),
            Question::Unreadable { why, .. } => return Err(why.clone()),
            Question::Hook(_) | Question::Mcp(_) => {
                return Err(format!("a person at the terminal cannot answer {}", pending.question.about()));
            }
        };
        Ok(Answer {
            value,
            by: By::Person,
            reason: "answered by the person at the terminal".to_owned(),
            grant: None,
        })
    }

    fn stopper(&self) -> Option<Stopper> {
        Some(self.run_end.stopper())
    }
}
