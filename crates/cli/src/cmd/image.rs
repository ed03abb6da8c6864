use crate::cmd::{Call, Cleanup, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, ImageName, visible};
use belljar_report::human_size;
use belljar_runner::{
    BuiltImage, Engine, EngineError, FromError, HostEnvironment, Image, ImageAct, ImageNews, Rebuild, Rest,
    engine_places, remove_build_leftovers,
};
use serde_json::json;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A progress line is shown after this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Manage the images that containers start from
///
/// The default image consists of empty directories and needs no registry: the system comes from this machine, read-only. A
/// run builds it if it is missing. `build --from` builds another from a base image, for `image = "…"` in a manifest. The
/// engine is the one that a run would use; BELLJAR_ENGINE names another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar image build\n  $ belljar image list --json\n")]
pub struct ImageArgs {
    #[command(subcommand)]
    deed: Deed,
}

#[derive(Debug, clap::Subcommand)]
enum Deed {
    /// Build the image unless it exists
    ///
    /// With --from, the image is built from a base: bash, git and the CA certificates are installed by the package manager of
    /// the base if they are missing. The engine fetches a base that it does not have; a run never does. The name of the image
    /// is a digest of its inputs, so the same base gives the same name.
    #[command(
        after_help = "Examples:\n  $ belljar image build\n  $ belljar image build --rebuild --json\n  \
                      $ belljar image build --from debian:12-slim\n"
    )]
    Build(BuildArgs),
    /// List belljar's images, which one is used, and the bases of the others
    #[command(after_help = "Examples:\n  $ belljar image list\n")]
    List(ListArgs),
    /// Remove belljar's images that are no longer used
    ///
    /// An image with a base is kept as long as the engine has that base under the same name, and this version of belljar would
    /// build it the same way.
    #[command(after_help = "Examples:\n  $ belljar image prune --json\n")]
    Prune(ListArgs),
}

#[derive(Debug, clap::Args)]
struct BuildArgs {
    /// Build from this base image, adding what agents need
    #[arg(long, value_name = "IMAGE", value_parser = ImageName::parse)]
    from: Option<ImageName>,
    /// Build even if the image exists
    #[arg(long)]
    rebuild: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Command for ImageArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        match &self.deed {
            Deed::Build(args) => args.json,
            Deed::List(args) | Deed::Prune(args) => args.json,
        }
    }

    fn cleanup(&self) -> Option<Cleanup> {
        match &self.deed {
            Deed::Build(_) => Some((Rest::AllButEngines, remove_build_leftovers)),
            Deed::List(_) | Deed::Prune(_) => None,
        }
    }
}

fn run(args: &ImageArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let engine = Engine::find(&engine_places(environment)).map_err(|error| failure(&error))?;
    match &args.deed {
        Deed::Build(args) => {
            let rebuild = if args.rebuild { Rebuild::Always } else { Rebuild::WhereMissing };
            match &args.from {
                Some(base) => return build_from(&engine, base, rebuild, output),
                None => build(&engine, rebuild, output),
            }
        }
        Deed::List(_) => list(&engine, output),
        Deed::Prune(_) => prune(&engine, output),
    }
    .map_err(|error| failure(&error))?;
    Ok(ExitCode::Passed)
}

fn failure(error: &EngineError) -> CliError {
    let mut out = CliError::from_chain(ExitCode::Unsupported, error);
    if let EngineError::Absent { tried } = error {
        out = tried.iter().fold(out, CliError::hint);
    }
    error.hint().into_iter().fold(out, CliError::hint)
}

fn build(engine: &Engine, rebuild: Rebuild, output: &Output) -> Result<(), EngineError> {
    let done = engine.build_image(rebuild)?;
    let image = engine.images()?.into_iter().find(|image| image.current && image.base.is_none());
    if output.json {
        let data = json!({"outcome": done, "image": image});
        output.envelope(&Envelope::new("image", ExitCode::Passed, data));
        return Ok(());
    }
    let name = image.map(|image| image.name).unwrap_or_default();
    output.result(&outcome_line(done, &name));
    Ok(())
}

fn outcome_line(done: BuiltImage, name: &str) -> String {
    match done {
        BuiltImage::Made => format!("made {name}\n"),
        BuiltImage::There => format!("{name} already exists\n"),
    }
}

fn build_from(
    engine: &Engine,
    base: &ImageName,
    rebuild: Rebuild,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let mut wait = Wait { output, base, since: Instant::now(), shown: None };
    let built = engine.build_from(base, rebuild, &mut |news| wait.take(news));
    wait.end();
    let (done, name) = built.map_err(|error| match &error {
        FromError::Engine(error) => failure(error),
        FromError::Fetch { .. }
        | FromError::NoShell { .. }
        | FromError::Build { .. }
        | FromError::StillLacks { .. } => {
            let out = CliError::from_chain(ExitCode::Unsupported, &error);
            error.hint().into_iter().fold(out, CliError::hint)
        }
    })?;
    let line = format!("image = \"{name}\"");
    if output.json {
        let images = engine.images().map_err(|error| failure(&error))?;
        let image = images.into_iter().find(|image| image.name == name);
        let data = json!({"outcome": done, "image": image, "manifest": line});
        output.envelope(&Envelope::new("image", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    output.result(&format!("{}{line}\n", outcome_line(done, &name)));
    output.say("The second line is for an agent with `backend = \"container\"` in belljar.toml.");
    Ok(ExitCode::Passed)
}

/// Progress while the engine works: on a terminal one line that is updated, elsewhere a line for each act.
struct Wait<'a> {
    output: &'a Output,
    base: &'a ImageName,
    since: Instant,
    /// The act of the last line that was printed.
    shown: Option<ImageAct>,
}

impl Wait<'_> {
    fn take(&mut self, ImageNews { act, line }: ImageNews<'_>) {
        if self.output.json || self.since.elapsed() < PATIENCE {
            return;
        }
        let doing = match act {
            ImageAct::Fetch => format!("fetching {}", self.base),
            ImageAct::Build => format!("building an image from {}", self.base),
        };
        if self.live() {
            let text = format!("{doing} for {} s: {line}", self.since.elapsed().as_secs());
            self.output.paint(text.trim_end_matches([':', ' ']));
        } else if self.shown != Some(act) {
            self.output.say(&format!("belljar: {doing} …"));
        }
        self.shown = Some(act);
    }

    fn live(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    fn end(&self) {
        if self.shown.is_some() && self.live() {
            self.output.paint("");
        }
    }
}

fn list(engine: &Engine, output: &Output) -> Result<(), EngineError> {
    let images = engine.images()?;
    if output.json {
        output.envelope(&Envelope::new("image", ExitCode::Passed, json!({"images": images})));
        return Ok(());
    }
    for Image { name, id, bytes, current, base } in &images {
        let id = id.trim_start_matches("sha256:");
        let standing = match (base, current) {
            (None, true) => "used".to_owned(),
            (None, false) => "not used".to_owned(),
            (Some(base), true) => format!("made from {base}"),
            (Some(base), false) => format!("made from {base}, not current"),
        };
        let id = id.get(..12).unwrap_or(id);
        output.result(&format!(
            "{}  {}  {}  {}\n",
            visible(name),
            visible(id),
            human_size(*bytes),
            visible(&standing)
        ));
    }
    if images.is_empty() {
        output.say("No image yet; the first run in a container builds it.");
    }
    Ok(())
}

fn prune(engine: &Engine, output: &Output) -> Result<(), EngineError> {
    let old: Vec<Image> = engine.images()?.into_iter().filter(|image| !image.current).collect();
    for image in &old {
        engine.remove_image(image)?;
        if !output.json {
            output.result(&format!("removed {}\n", visible(&image.name)));
        }
    }
    if output.json {
        output.envelope(&Envelope::new("image", ExitCode::Passed, json!({"removed": old})));
    } else if old.is_empty() {
        output.say("There is nothing to remove.");
    }
    Ok(())
}
