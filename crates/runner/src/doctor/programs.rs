//! Starts programs to see what they print.

use belljar_contract::AbsPath;
use belljar_sys::process::{self, Prepare};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than a program takes to print its version, or a sandbox to be built.
const PATIENCE: Duration = Duration::from_secs(30);
const OUTPUT_LIMIT: u64 = 64 << 10;

/// The first line that a program prints for these arguments.
pub(super) fn version(program: &AbsPath, arguments: &[&str]) -> Option<String> {
    // outside: doctor-version
    let mut command = Command::new(program.as_path());
    // The output must not depend on the user's environment.
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    first_line(command)
}

/// The first line of a command's output, if the command succeeds.
pub(crate) fn first_line(command: Command) -> Option<String> {
    let (success, stdout, _) = output(command)?;
    let line = stdout.lines().next()?.trim().to_owned();
    (success && !line.is_empty()).then_some(line)
}

/// The success and both outputs; `None` if it cannot be started or does not end.
pub(super) fn output(mut command: Command) -> Option<(bool, String, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.dies_with_spawner().spawn().ok()?;
    let (stdout, stderr) = (child.stdout.take()?, child.stderr.take()?);
    let read = |stream: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes that were read before an error count.
            stream.take(OUTPUT_LIMIT).read_to_end(&mut bytes).ok();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let status = process::end_in_time(&mut child, PATIENCE)?;
    Some((status.success(), stdout.join().ok()?, stderr.join().ok()?))
}
