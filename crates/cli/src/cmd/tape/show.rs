use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Lane, TapeLeak, TapeLeaks, TapeNormaliser, visible};
use belljar_report::{Style, Trace, human_size, render_trace};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::evidence;
use belljar_runner::tape::{ExchangeView, Tape, exchange_views};
use serde_json::json;
use std::path::PathBuf;

/// Show what is on a tape
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape show scenarios/hello.tape\n  \
    $ belljar tape show --json scenarios/hello.tape\n")]
pub struct TapeShowArgs {
    /// Tape to show
    tape: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeShowArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let unread =
        |error: &(dyn std::error::Error + 'static)| CliError::from_chain(ExitCode::Unverified, error);
    let tape = super::open(&args.tape, environment)?;
    let views = exchange_views(&tape).map_err(|error| unread(&error))?;
    let (_, seen) = evidence(tape.directory(), Lane::Local).map_err(|error| unread(&error))?;
    let trace = Trace::of(&seen);
    if output.json {
        let data = json!({"tape": tape.directory(), "head": tape.head, "exchanges": views, "trace": trace});
        output.envelope(&Envelope::new("tape", ExitCode::Passed, data));
    } else {
        let style = output.out_style();
        let text = head(&tape, style) + &exchanges(&views, style) + &render_trace(&trace, style);
        output.result(&text);
    }
    Ok(ExitCode::Passed)
}

fn head(tape: &Tape, style: Style) -> String {
    let head = &tape.head;
    let agent = head.agent.version.as_deref().unwrap_or("of an unknown version");
    let agent = visible(agent);
    let place = |name: &str| head.environment.get(name).map(|value| visible(value)).unwrap_or_default();
    let (name, file, harness) =
        (visible(&head.scenario.name), visible(&head.scenario.file), visible(&head.agent.harness));
    format!(
        "{}\n  scenario    {} ({})\n  agent       {} {agent}\n  recorded on {} {}, kernel {}, in {}\n  normalised  {}\n{}  leaks       {}\n\n",
        style.bold(&name),
        name,
        file,
        harness,
        place("os"),
        place("arch"),
        place("kernel"),
        place("backend"),
        visible(&head.normalisers.join(" ")),
        head.scenario.normalise.iter().map(of_the_suite).collect::<String>(),
        visible(&leaks(head.leaks.as_ref())),
    )
}

fn of_the_suite(one: &TapeNormaliser) -> String {
    let (sentence, pattern) = (one.sentence(), &one.pattern);
    format!("  of the suite {}\n    /{}/ {}\n", visible(&sentence), visible(pattern), one.digest)
}

/// What of the user and the machine was sent to the model.
fn leaks(found: Option<&TapeLeaks>) -> String {
    let Some(TapeLeaks { sought, found }) = found else { return "were not looked for".to_owned() };
    let sought: Vec<&str> = sought.iter().map(String::as_str).collect();
    if found.is_empty() {
        return format!("none; looked for: {}", sought.join(", "));
    }
    let one = |leak: &TapeLeak| format!("{} in exchange {}", leak.kind, leak.exchange);
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn exchanges(views: &[ExchangeView], style: Style) -> String {
    let mut text = format!("{}\n", style.bold("Exchanges"));
    for view in views {
        let status = view.status.map_or("-".to_owned(), |status| status.to_string());
        let sizes =
            format!("{} asked, {} answered", human_size(view.request_bytes), human_size(view.answer_bytes));
        let line = format!(
            "{:>3}  {}  {status} {}  {}\n",
            view.exchange,
            visible(&view.conversation.to_string()),
            view.ended,
            style.dim(&sizes)
        );
        text.push_str(&line);
        for (mark, lines) in [("?", &view.asked), ("!", &view.answered)] {
            lines.iter().for_each(|line| text.push_str(&format!("     {mark} {}\n", visible(line))));
        }
    }
    text + "\n"
}
