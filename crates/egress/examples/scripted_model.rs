//! Serves a script as a model on loopback, for programs outside of this workspace. Prints the base URL and serves until
//! standard input ends. Called by `scripts/record-sdks`.

#![expect(clippy::print_stdout, reason = "the caller reads the address from standard output")]

use belljar_egress::script::{Listen, Script, ScriptedModel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("name a script")?;
    let model = ScriptedModel::start(Script::load(path.as_ref())?, Listen::loopback())?;
    println!("{}", model.base_url());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
