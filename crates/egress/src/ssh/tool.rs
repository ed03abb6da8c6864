//! Starts OpenSSH's programs from a given search path, in `/`, and with the few variables that they need to ask for a
//! passphrase. The working directory may be untrusted.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Variables for their files, their language and their windows.
const HANDED_ON: [&str; 15] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "SSH_PKCS11_HELPER",
    "SSH_SK_HELPER",
    "SSH_SK_PROVIDER",
    "TERM",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// Finds and starts OpenSSH's programs.
#[derive(Debug, Clone)]
pub struct SshTools {
    path: OsString,
}

impl SshTools {
    /// Uses this search path, which must not lead to programs that an agent can write. Relative entries are ignored.
    #[must_use]
    pub fn on(path: OsString) -> Self {
        Self { path }
    }

    /// The command for a program.
    pub(super) fn tool(&self, name: &str) -> io::Result<Command> {
        let variables = HANDED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        started_with(name, &self.path, variables)
    }
}

fn started_with(
    name: &str,
    path: &OsStr,
    variables: impl Iterator<Item = (&'static str, OsString)>,
) -> io::Result<Command> {
    let directories: Vec<PathBuf> = std::env::split_paths(path).filter(|entry| entry.is_absolute()).collect();
    let executable = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let program = directories.iter().map(|directory| directory.join(name)).find(executable);
    let program = program.ok_or(io::ErrorKind::NotFound)?;
    // outside: ssh-tool
    let mut command = Command::new(program);
    command.arg0(name).env_clear().envs(variables).current_dir("/");
    command.env("PATH", std::env::join_paths(directories).map_err(io::Error::other)?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_the_working_directory_are_not_started() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("project/ssh-add", "#!/bin/sh\necho planted\n");
        write("bin/ssh-add", "#!/bin/sh\necho \"$PWD $PATH ${LD_PRELOAD-none} $TERM\"\n");
        let bin = place.path().join("bin");
        let path = format!(".::project:{}", bin.display());
        let given = [("TERM", OsString::from("dumb"))];
        let mut command = started_with("ssh-add", OsStr::new(&path), given.into_iter()).unwrap();
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(said, format!("/ {} none dumb\n", bin.display()));
        let nothing = started_with("ssh-add", OsStr::new(".:project:"), std::iter::empty());
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
