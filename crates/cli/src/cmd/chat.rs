use super::scenario_options::{LastWord, TryOptions, failure, limit_time, show, warn};
use super::skill::SubjectOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::{Output, prompt};
use belljar_contract::{ConversationFailure, Envelope, Event, ExitCode, Observation, RunVerb, visible};
use belljar_runner::suite::{Keep, Trial, TrialRequest, TrialUse, Tried};
use belljar_runner::tape::Taping;
use belljar_runner::{HostEnvironment, Spoken, Then};
use serde_json::json;
use std::io::{BufRead, IsTerminal};

/// Talk to the agent with a skill, a plugin or a marketplace
///
/// Type a message and read what the agent says and does. Ctrl-C stops the turn; at the prompt it ends the
/// conversation, as `/exit` and the end of the input do. Nothing is judged. The status is 1 if a question was left without
/// an answer, 5 if the agent failed or the model's service refused the last turn, and 3 if the frames differ from the
/// gateway's log.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ echo /exit | belljar chat skills/changelog --say Hello --script hello.json\n"
)]
pub struct ChatArgs {
    #[command(flatten)]
    subject: SubjectOptions,
    /// Send this as the first message
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    #[command(flatten)]
    pub options: TryOptions,
}

impl Command for ChatArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment_with(&self.options.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &ChatArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let options = &args.options;
    let first = match &args.say {
        Some(text) => text.clone(),
        None => next_line().ok_or_else(|| CliError::new(ExitCode::Invalid, "the first message is empty"))?,
    };
    let trial = args.subject.trial(options, first, (environment, output))?;
    let mut trial = Trial { cost: options.max_cost_usd, untracked: options.untracked(), ..trial };
    limit_time(&mut trial, options.timeout);
    let consent = &options.consent([&trial], TrialUse::Run, environment, output)?;
    warn(&trial, output);
    options.say_where_to_answer(output);
    let detail = options.detail();
    let tried = trial
        .run(TrialRequest {
            verb: RunVerb::Chat,
            environment,
            model: options.model(environment)?,
            sandbox: options.sandbox.asked(),
            agent: options.agent.asked(),
            consent,
            name: None,
            answering: options.deciders.answering(environment, LastWord::PersonAtTerminal)?,
            then: Then::Listen(Spoken(Box::new(next_line))),
            conversation: args.subject.conversation()?,
            keep: if options.keep { Keep::Workspace } else { Keep::Changes },
            taping: Taping::Off,
            watch: &mut |event| show(event, detail, output),
        })
        .map_err(|error| failure(error, environment))?;
    let exit = exit(&tried);
    if output.json {
        let why = tried.unvouched();
        let data = json!({
            "directory": tried.directory,
            "verified": why.is_none(),
            "why": why,
            "not_isolated": tried.not_isolated(),
        });
        output.envelope(&Envelope::new("chat", exit, data));
        return Ok(exit);
    }
    output.say(&format!("the conversation is recorded in {}", environment.shown_from_home(&tried.directory)));
    if let Some(why) = tried.unvouched() {
        output.say(&not_verified(why));
    }
    Ok(exit)
}

/// A conversation has no checks; it fails by how it ended.
fn exit(tried: &Tried) -> ExitCode {
    if tried.unvouched().is_some() {
        return ExitCode::Unverified;
    }
    let events = || tried.run.events.iter().filter_map(|record| record.event.known());
    let is_open = |event: &Event| {
        let Event::Seen { what } = event else { return false };
        matches!(**what, Observation::Unanswered { .. })
    };
    if events().any(is_open) {
        return ExitCode::Failed;
    }
    let failure = events().find_map(|event| {
        let Event::ConversationEnded { end } = event else { return None };
        end.failure.as_ref()
    });
    match failure {
        // So ends a turn that the person stopped; where the model's service failed there is a status.
        None | Some(ConversationFailure::ResultIsError { api_error_status: None, .. }) => ExitCode::Passed,
        Some(_) => tried.judgement.conclusion.exit(),
    }
}

/// The agent chooses some of the words, such as ids of calls.
fn not_verified(why: &str) -> String {
    format!("the conversation is not verified: {}", visible(why))
}

/// The next message; none at the end.
fn next_line() -> Option<String> {
    loop {
        if std::io::stdin().is_terminal() {
            prompt("\n> ");
        }
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let text = line.trim();
        match (read, text) {
            (Ok(0) | Err(_), _) | (Ok(_), "/exit" | "/quit") => return None,
            (Ok(_), "") => {}
            (Ok(_), "/help") => {
                prompt("type a message; /exit ends, Ctrl-C stops the turn\n");
            }
            (Ok(_), text) => return Some(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_stays_on_its_line() {
        let line = not_verified("frames.jsonl:3: a result of the call c1\nall checks passed\u{1b}[2K");
        assert!(line.starts_with("the conversation is not verified: frames.jsonl:3:"), "{line:?}");
        assert!(!line.contains(['\n', '\u{1b}']), "{line:?}");
    }
}
