//! The program inside the sandbox: the first process, the proxy command for ssh, and the probes.
//!
//! No runtime, no TLS, no C library beyond the system's; one thread, and two more where a project is guarded: it must
//! start in any image, and it is the last trusted code before the command. If a restriction cannot be applied, the
//! command does not start. Only Landlock is best effort, and what it enforces is reported.

mod arguments;
mod connect;
mod guard;
mod init;
mod probe;

use std::ffi::OsString;
use std::io::Write;

use belljar_contract::{ExitCode, GUEST_PROTOCOL, with_causes};

pub use arguments::{Arguments, UsageError};
pub use connect::{ConnectError, ConnectRequest, ProxyAnswer, parse_proxy_answer};
pub use probe::{Outcome, ProbeContext, Which, probe_all, probe_names, probe_one};

/// Runs one command line, without the name of the program, and gives the status to exit with.
#[must_use]
pub fn run(arguments: impl Iterator<Item = OsString>) -> u8 {
    let outcome = match Arguments::parse(arguments) {
        Ok(Arguments::Init(line)) => return init::run(line),
        Ok(Arguments::Connect(request)) => connect::run(&request).map_err(|error| with_causes(&error)),
        Ok(Arguments::Probe { which, context }) => {
            probe::run(&which, &context).map_err(|error| with_causes(&error))
        }
        Ok(Arguments::Version) => {
            let line = format!("belljar-guest {} protocol {GUEST_PROTOCOL}", env!("CARGO_PKG_VERSION"));
            writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())
        }
        Err(error) => {
            complain(&format!("{}\n{}", with_causes(&error), arguments::USAGE));
            return ExitCode::Invalid.code();
        }
    };
    match outcome {
        Ok(()) => ExitCode::Passed.code(),
        Err(message) => {
            complain(&message);
            ExitCode::Failed.code()
        }
    }
}

/// Prints to standard error; if that is closed, there is no other place to report to.
fn complain(message: &str) {
    writeln!(std::io::stderr(), "belljar-guest: {message}").ok();
}
