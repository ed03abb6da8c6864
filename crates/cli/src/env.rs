//! Every environment variable that belljar itself reads, and the user's environment made from them.

use crate::error::CliError;
use belljar_contract::{AbsPath, ExitCode};
use belljar_runner::{GuestImage, GuestProgram, HostEnvironment, PrivateValues};
use std::env;
use std::path::{Path, PathBuf};

/// Search path for programs.
pub const PATH: &str = "PATH";
/// The user's home.
pub const HOME: &str = "HOME";
/// Configuration directory; `~/.config` when not set.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Data directory; `~/.local/share` when not set.
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// State directory; `~/.local/state` when not set.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Where sockets and locks lie; below the state when not set or not there.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Disables colours if it is not empty.
pub const NO_COLOR: &str = "NO_COLOR";

/// The guest, built and embedded by the build script.
const GUEST: GuestImage =
    GuestImage { bytes: include_bytes!(env!("BELLJAR_GUEST_FILE")), digest: env!("BELLJAR_GUEST_DIGEST") };

/// Whether colours are unwanted.
pub fn no_color() -> bool {
    env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty())
}

/// Collects the user's environment, starting from `directory` or the working directory.
pub fn environment(directory: Option<&Path>) -> Result<HostEnvironment, CliError> {
    let directory = match directory {
        Some(directory) => directory.to_path_buf(),
        None => {
            env::current_dir().map_err(|cause| CliError::io("cannot find the working directory", cause))?
        }
    };
    let directory = canonical(&directory)?;
    let home = home()?;
    let base = |name: &str, default: &str| base(&home, name, default);
    let state = base(XDG_STATE_HOME, ".local/state").child("belljar");
    // A variable that outlived its session, as in a container or after `su`, names a directory that is not there.
    let runtime = env::var_os(XDG_RUNTIME_DIR).map(PathBuf::from).filter(|path| path.is_dir());
    let runtime = match runtime.map(AbsPath::new) {
        Some(Ok(path)) => path.child("belljar"),
        _ => state.child("run"),
    };
    let data = data(&home);
    Ok(HostEnvironment {
        config: base(XDG_CONFIG_HOME, ".config").child("belljar"),
        guest: GuestProgram::new(&data, GUEST),
        data,
        state,
        runtime,
        variables: env::vars_os().collect(),
        private: PrivateValues::default(),
        directory,
        home,
    })
}

/// The program that finishes a sandbox from inside.
pub fn guest() -> Result<GuestProgram, CliError> {
    Ok(GuestProgram::new(&data(&home()?), GUEST))
}

fn home() -> Result<AbsPath, CliError> {
    let home = env::var_os(HOME).map(PathBuf::from).filter(|home| home.is_absolute()).ok_or_else(|| {
        CliError::new(ExitCode::Invalid, "HOME is not set to an absolute path")
            .hint("export HOME=/path/to/your/home")
    })?;
    canonical(&home)
}

fn base(home: &AbsPath, name: &str, default: &str) -> AbsPath {
    match env::var_os(name).map(PathBuf::from) {
        // The specification of these variables: a relative path counts as not set.
        Some(path) if path.is_absolute() => AbsPath::new(path).unwrap_or_else(|_| home.child(default)),
        _ => home.child(default),
    }
}

fn data(home: &AbsPath) -> AbsPath {
    base(home, XDG_DATA_HOME, ".local/share").child("belljar")
}

/// belljar's own program.
pub fn own() -> Result<AbsPath, CliError> {
    let own = env::current_exe().map_err(|cause| CliError::io("cannot find belljar's own program", cause))?;
    canonical(&own)
}

fn canonical(path: &Path) -> Result<AbsPath, CliError> {
    let found = path.canonicalize();
    let real = found.map_err(|cause| CliError::io(format!("cannot find `{}`", path.display()), cause))?;
    AbsPath::new(real).map_err(|error| CliError::new(ExitCode::Invalid, error.to_string()))
}
