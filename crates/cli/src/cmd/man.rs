use super::Arguments;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use belljar_contract::{Envelope, ExitCode};
use clap::CommandFactory;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Print a manual page, or write them all into a directory
#[derive(Debug, clap::Args)]
// The list of verbs fills a screen; `./dev install` and packages call this one.
#[command(
    hide = true,
    after_help = "Examples:\n  $ belljar man > belljar.1\n  $ belljar man tape show > belljar-tape-show.1\n  $ belljar man --dir man1\n"
)]
pub struct ManArgs {
    /// Verb to print the page of [default: the page of belljar itself]
    #[arg(value_name = "VERB")]
    verb: Vec<String>,
    /// Write every page into this directory, which is created, and print its names
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A page and the name of its file.
struct Page {
    name: String,
    text: String,
}

impl Command for ManArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let pages = match &self.dir {
            Some(directory) => write_all(call, directory)?,
            None => vec![of_verb(&self.verb)?],
        };
        if call.output.json {
            let pages: Vec<_> =
                pages.iter().map(|Page { name, text }| json!({"name": name, "text": text})).collect();
            call.output.envelope(&Envelope::new("man", ExitCode::Passed, json!({"pages": pages})));
        } else if self.dir.is_some() {
            pages.iter().for_each(|page| call.output.result(&format!("{}\n", page.name)));
        } else {
            pages.iter().for_each(|page| call.output.file(&page.text));
        }
        Ok(ExitCode::Passed.code())
    }

    fn json(&self) -> bool {
        self.json
    }
}

/// The command line, without the verb `help`, of which nobody reads a page.
fn command() -> clap::Command {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    command
}

fn of_verb(words: &[String]) -> Result<Page, CliError> {
    let mut command = command();
    for word in words {
        command = match command.find_subcommand(word) {
            Some(found) => found.clone(),
            None => {
                let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
                let name = command.get_bin_name().unwrap_or("belljar");
                let error = CliError::new(ExitCode::Invalid, format!("`{name}` has no verb `{word}`"));
                return Err(match known.as_slice() {
                    [] => error,
                    known => error.hint(format!("known are: {}", known.join(", "))),
                });
            }
        };
    }
    Ok(page(command))
}

fn write_all(call: &Call<'_>, directory: &Path) -> Result<Vec<Page>, CliError> {
    let directory = call.directory.unwrap_or(".".as_ref()).join(directory);
    let io = |what: &Path| {
        let message = format!("cannot write {}", what.display());
        move |cause| CliError::io(message, cause)
    };
    std::fs::create_dir_all(&directory).map_err(io(&directory))?;
    let pages = all(command());
    for Page { name, text } in &pages {
        let file = directory.join(name);
        replace(&file, text).map_err(io(&file))?;
    }
    Ok(pages)
}

/// Writes a file in the place of another. A link is replaced, not followed.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(cause),
        Ok(()) | Err(_) => {}
    }
    std::fs::File::create_new(file)?.write_all(text.as_bytes())
}

/// The page of a command, then those of the commands below it.
fn all(command: clap::Command) -> Vec<Page> {
    let below: Vec<Page> = command.get_subcommands().cloned().flat_map(all).collect();
    std::iter::once(page(command)).chain(below).collect()
}

fn page(command: clap::Command) -> Page {
    let examples = command.get_after_help().map(ToString::to_string);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let version = command.get_version().unwrap_or_default().to_owned();
    let man = Man::new(command.after_help(Resettable::Reset))
        .title(name.to_uppercase())
        // A page that is written twice is the same twice.
        .date("\"\"")
        .source(format!("belljar {version}"))
        .manual("belljar");
    let mut text = Vec::new();
    // Writing to memory does not fail.
    man.render(&mut text).ok();
    let mut rest = Roff::new();
    examples.iter().for_each(|text| as_it_is(&mut rest, text));
    if name == "belljar" {
        exit_status(&mut rest);
    } else {
        rest.control("SH", ["SEE ALSO"]).text([bold("belljar"), roman("(1)")]);
    }
    let rest = rest.render();
    // What an empty page begins with is at the beginning already.
    let rest = rest.strip_prefix(&Roff::new().render()).unwrap_or(&rest);
    Page { name: format!("{name}.1"), text: format!("{}{rest}", String::from_utf8_lossy(&text)) }
}

/// A section for each heading of the text below the help, with its lines unbroken.
fn as_it_is(page: &mut Roff, text: &str) {
    for part in text.trim().split("\n\n") {
        let (heading, lines) = part.split_once('\n').unwrap_or(("", part));
        page.control("SH", [heading.trim_end_matches(':').to_uppercase().as_str()]);
        page.control("nf", []);
        for line in lines.lines() {
            page.text([roman(line.trim())]);
        }
        page.control("fi", []);
    }
}

fn exit_status(page: &mut Roff) {
    page.control("SH", ["EXIT STATUS"]);
    for code in ExitCode::ALL {
        page.control("TP", []);
        page.text([bold(code.code().to_string())]);
        page.text([roman(code.meaning())]);
    }
}
