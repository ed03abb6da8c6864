//! Finds the values of a run in the sources that the plan names. Every value is handled as a secret; the caller decides
//! which ones are public.

use crate::environment::HostEnvironment;
use crate::launch::{Ask, RunError};
use crate::plan::agreed_files::AgreedFiles;
use belljar_contract::{AbsPath, EnvName, EnvSource, GuestVariable, OsText, Plan, Secret};
use belljar_sys::regular::open_regular;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

/// Longer than any secret, and the longest text that can be searched for.
const VALUE_LIMIT: usize = belljar_contract::SCRUBBED_MAX;

/// The value of a variable, and where it came from.
pub(crate) struct FoundValue {
    pub name: EnvName,
    pub value: Secret,
}

/// The values of all variables that are not constants.
pub(crate) fn values(
    plan: &Plan,
    environment: &HostEnvironment,
    ask: Ask<'_>,
) -> Result<Vec<FoundValue>, RunError> {
    let agreed = AgreedFiles::of(plan, &environment.state);
    let mut out = Vec::new();
    for entry in &plan.env {
        if matches!(entry.source, EnvSource::Constant(_) | EnvSource::Run(_)) {
            continue;
        }
        let value = find(&entry.source, agreed, environment, ask).map_err(|cause| RunError::Value {
            name: entry.name.to_string(),
            what: entry.source.describe(),
            cause,
        })?;
        out.push(FoundValue { name: entry.name.clone(), value });
    }
    Ok(out)
}

/// The value of one source.
pub(crate) fn find(
    source: &EnvSource,
    agreed: AgreedFiles<'_>,
    environment: &HostEnvironment,
    ask: Ask<'_>,
) -> io::Result<Secret> {
    match source {
        EnvSource::Constant(text) | EnvSource::Literal(text) => Ok(Secret::new(text.as_bytes())),
        EnvSource::Variable(name) => {
            environment.secret(name.as_str()).ok_or_else(|| io::Error::other("it is not set"))
        }
        EnvSource::Prompt(message) => ask(message).map(Secret::new),
        EnvSource::File(path) => Ok(secret(agreed.read(path, &environment.directory)?)),
        EnvSource::Command(argv) => {
            agreed.check_command(source, &environment.directory)?;
            let name = argv.first().ok_or_else(|| io::Error::other("the command is empty"))?;
            let program = environment.program_of(name)?;
            agreed.check_program(&program)?;
            output_of(&program, argv, &environment.outside_path())
        }
        EnvSource::Run(_) => {
            Err(io::Error::other("belljar generates it for each run, so that it cannot be looked up"))
        }
    }
}

/// The variables for the guest, the only receiver of values of the environment.
pub(crate) fn for_the_guest(values: &[FoundValue]) -> Result<Vec<GuestVariable>, RunError> {
    let pair = |found: &FoundValue| {
        let failed = |error| RunError::Value {
            name: found.name.to_string(),
            what: "the value contains a NUL byte".to_owned(),
            cause: io::Error::other(error),
        };
        let name = OsText::new(found.name.as_str()).map_err(failed)?;
        Ok(GuestVariable { name, value: OsText::new(found.value.expose()).map_err(failed)? })
    };
    values.iter().map(pair).collect()
}

/// Reads everything, up to the limit.
fn read(source: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocated at its final size: a growing buffer would leave copies of the secret in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(VALUE_LIMIT + 64));
    source.take(VALUE_LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > VALUE_LIMIT {
        return Err(io::Error::other(format!("it is longer than {VALUE_LIMIT} bytes")));
    }
    Ok(bytes)
}

/// Strips the newlines at the end, which are not part of a value.
fn secret(mut bytes: Zeroizing<Vec<u8>>) -> Secret {
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    Secret::new(bytes.as_slice())
}

/// The content of a regular file, unchanged.
pub(crate) fn read_value(path: &AbsPath) -> io::Result<Zeroizing<Vec<u8>>> {
    read(open_regular(path.as_path())?)
}

pub(crate) fn read_file(path: &AbsPath) -> io::Result<Secret> {
    read_value(path).map(secret)
}

/// Runs in a directory that agents cannot write to, with a search path without programs of the project.
fn output_of(program: &AbsPath, argv: &[String], path: &OsStr) -> io::Result<Secret> {
    let name = argv.first().map_or("", String::as_str);
    // outside: value-command
    let mut child = Command::new(program.as_path())
        .arg0(name)
        .args(argv.iter().skip(1))
        .current_dir("/")
        .env("PATH", path)
        .env_remove("PWD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the command has no standard output"))?;
    let value = read(stdout).map(secret).inspect_err(|_| {
        // The command may write without end; it is not waited for.
        child.kill().ok();
    });
    let status = child.wait()?;
    let value = value?;
    if status.success() {
        Ok(value)
    } else {
        Err(io::Error::other(format!("the command ended with {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> io::Result<Secret> {
        output_of(
            &AbsPath::new("/bin/sh").unwrap(),
            &["sh".to_owned(), "-c".to_owned(), script.to_owned()],
            OsStr::new("/usr/bin:/bin"),
        )
    }

    #[test]
    fn the_last_newline_is_not_part_of_it() {
        assert_eq!(command("printf 'a\\nb\\r\\n\\n'").unwrap().expose(), b"a\nb");
    }

    #[test]
    fn too_much_is_an_error_and_ends_the_command() {
        let error = command("while :; do echo 0123456789012345678901234567890123456789; done").unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 65536 bytes");
        let error = read(&vec![b'x'; VALUE_LIMIT + 1][..]).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 65536 bytes");
        assert_eq!(read(&vec![b'x'; VALUE_LIMIT][..]).unwrap().len(), VALUE_LIMIT);
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let pipe = AbsPath::new(directory.path().join("pipe")).unwrap();
        mknodat(CWD, pipe.as_path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read_file(&pipe).unwrap_err().to_string(), "it is not a regular file");
    }

    #[test]
    fn a_failed_command_has_no_value() {
        let error = command("echo half-a-secret; exit 3").unwrap_err();
        assert_eq!(error.to_string(), "the command ended with exit status: 3");
    }
}
