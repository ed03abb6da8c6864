//! The guest program, for tests of crates that cannot depend on it.
//!
//! The build script of the command line builds it. A test uses that build if it is not older than the sources.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The crates that it is built from.
const SOURCES: [&str; 3] = ["guest/src", "contract/src", "sys/src"];

/// The guest program in the same target directory as this test.
///
/// # Errors
/// When it does not exist or is older than its sources; the text is for people.
pub fn built() -> Result<PathBuf, String> {
    let own =
        env::current_exe().map_err(|error| format!("cannot find the test's own executable: {error}"))?;
    // <target>/<profile>/deps/<test>, and <target>/<profile>/build/<package>-<hash>/out/<program>
    let profile = own.ancestors().nth(2).ok_or("the test's executable is not in a target directory")?;
    let builds = fs::read_dir(profile.join("build")).into_iter().flatten().flatten();
    let programs = builds
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("belljar-cli-"))
        .map(|entry| entry.path().join("out/belljar-guest"))
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)));
    let advice = "`cargo build -p belljar-cli` builds it";
    let Some((time, program)) = programs.max() else {
        return Err(format!("no guest was built below {}; {advice}", profile.display()));
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match SOURCES.iter().filter_map(|source| newest(&crates.join(source))).max() {
        Some(changed) if changed > time => Err(format!("the guest is older than its sources; {advice}")),
        Some(_) | None => Ok(program),
    }
}

/// The time of the last change below a directory.
fn newest(directory: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let times = entries.filter_map(|entry| match entry.file_type().ok()?.is_dir() {
        true => newest(&entry.path()),
        false => entry.metadata().ok()?.modified().ok(),
    });
    times.max()
}
