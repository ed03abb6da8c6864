use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible, visible_lines};
use belljar_report::Style;
use belljar_runner::HostEnvironment;
use belljar_runner::tape::{Difference, TapeDifference, compare};
use serde_json::json;
use std::path::PathBuf;

/// Show what changed between two tapes
///
/// The status is 1 if the tapes differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape diff scenarios/hello.tape scenarios/hello.tape\n  \
    $ belljar tape diff --json scenarios/hello.tape scenarios/hello.tape\n")]
pub struct TapeDiffArgs {
    /// First tape
    left: PathBuf,
    /// Second tape
    right: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeDiffArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let (left, right) = (super::open(&args.left, environment)?, super::open(&args.right, environment)?);
    let found = compare(&left, &right).map_err(|error| CliError::from_chain(ExitCode::Unverified, &error))?;
    let exit = if found.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let data = json!({"left": left.directory(), "right": right.directory(), "difference": found});
        output.envelope(&Envelope::new("tape", exit, data));
    } else {
        output.result(&text(&found, output.out_style()));
    }
    Ok(exit)
}

fn text(found: &TapeDifference, style: Style) -> String {
    let mut out = String::new();
    let mut section = |title: &str, list: &[Difference]| {
        if !list.is_empty() {
            out.push_str(&format!("{}\n", style.bold(title)));
            list.iter().for_each(|one| out.push_str(&lines(one, style)));
        }
    };
    section("Environment", &found.environment);
    for one in &found.exchanges {
        let title = format!("Exchange {} of {}", one.place, visible(&one.conversation.to_string()));
        match one.on {
            "both" => {
                section(&format!("{title}, what was asked"), &one.request);
                section(&format!("{title}, what was answered"), &one.answer);
            }
            side => out_of(&mut section, &title, side),
        }
    }
    section("Files", &found.files);
    section("Egress", &found.egress);
    if found.is_empty() { "nothing changed\n".to_owned() } else { out }
}

/// An exchange that one of them has.
fn out_of(section: &mut dyn FnMut(&str, &[Difference]), title: &str, side: &str) {
    let only = Difference {
        pointer: format!("only the {side} tape has it"),
        recorded: None,
        present: None,
        agent_texts: false,
        call: None,
    };
    section(title, &[only]);
}

fn lines(one: &Difference, style: Style) -> String {
    let mut text = format!("  {}\n", visible(&one.pointer));
    let value = |value: &String| visible_lines(value, "      ");
    if let Some(left) = &one.recorded {
        text.push_str(&format!("    {}\n", style.removed(&format!("- {}", value(left)))));
    }
    if let Some(right) = &one.present {
        text.push_str(&format!("    {}\n", style.added(&format!("+ {}", value(right)))));
    }
    text
}
