use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::report::human_size;
use belljar_runner::{BuiltImage, Engine, EngineError, Image, Rebuild, Surroundings, engine_places};
use serde_json::json;

/// Look after the image that containers are made from
///
/// It is made here, of empty directories, and needs no registry: the system comes from this machine, read-only. A run
/// makes it where it is missing. The engine is the one that a run would use; BELLJAR_ENGINE names another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar image build\n  $ belljar image list --json\n")]
pub struct Args {
    #[command(subcommand)]
    deed: Deed,
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.deed {
            Deed::Build(args) => args.json,
            Deed::List(args) | Deed::Prune(args) => args.json,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
enum Deed {
    /// Make the image; one that is there stays
    #[command(after_help = "Examples:\n  $ belljar image build\n  $ belljar image build --rebuild --json\n")]
    Build(BuildArgs),
    /// List belljar's images, and which one is used
    #[command(after_help = "Examples:\n  $ belljar image list\n")]
    List(ListArgs),
    /// Remove belljar's images that are not used any more
    #[command(after_help = "Examples:\n  $ belljar image prune --json\n")]
    Prune(ListArgs),
}

#[derive(Debug, clap::Args)]
struct BuildArgs {
    /// Make it even if it is there
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

pub fn run(args: &Args, surroundings: &Surroundings, output: &Output) -> Result<ExitCode, CliError> {
    let engine = Engine::find(&engine_places(surroundings)).map_err(|error| failure(&error))?;
    match &args.deed {
        Deed::Build(args) => build(&engine, args.rebuild, output),
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

fn build(engine: &Engine, rebuild: bool, output: &Output) -> Result<(), EngineError> {
    let done = engine.build_image(if rebuild { Rebuild::Always } else { Rebuild::WhereMissing })?;
    let image = engine.images()?.into_iter().find(|image| image.current);
    if output.json {
        let data = json!({"outcome": done, "image": image});
        output.envelope(&Envelope::new("image", ExitCode::Passed, data));
        return Ok(());
    }
    let name = image.map(|image| image.name).unwrap_or_default();
    output.result(&match done {
        BuiltImage::Made => format!("made {name}\n"),
        BuiltImage::There => format!("{name} is there\n"),
    });
    Ok(())
}

fn list(engine: &Engine, output: &Output) -> Result<(), EngineError> {
    let images = engine.images()?;
    if output.json {
        output.envelope(&Envelope::new("image", ExitCode::Passed, json!({"images": images})));
        return Ok(());
    }
    for Image { name, id, bytes, current } in &images {
        let id = id.trim_start_matches("sha256:");
        let used = if *current { "used" } else { "not used" };
        output.result(&format!("{name}  {}  {}  {used}\n", id.get(..12).unwrap_or(id), human_size(*bytes)));
    }
    if images.is_empty() {
        output.say("There is none yet; a run makes it.");
    }
    Ok(())
}

fn prune(engine: &Engine, output: &Output) -> Result<(), EngineError> {
    let old: Vec<Image> = engine.images()?.into_iter().filter(|image| !image.current).collect();
    for image in &old {
        engine.remove_image(image)?;
        if !output.json {
            output.result(&format!("removed {}\n", image.name));
        }
    }
    if output.json {
        output.envelope(&Envelope::new("image", ExitCode::Passed, json!({"removed": old})));
    } else if old.is_empty() {
        output.say("There is nothing to remove.");
    }
    Ok(())
}
