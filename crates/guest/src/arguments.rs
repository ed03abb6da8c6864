//! The command line. It is written by the supervisor and by ssh configurations, not by people.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::connect::ConnectRequest;
use crate::probe::{ProbeContext, Which};

/// Shown after a usage error.
pub(crate) const USAGE: &str = "usage: belljar-guest init --control FD|--connect PATH
       belljar-guest connect HOST PORT [--proxy ADDRESS:PORT]
       belljar-guest probe NAME...|--all|--attempts FILE [--json] [--key NAME] [--segment KEY] [--pid PID] [--trace PID] [--abstract NAME]
       belljar-guest --version";

/// A command line, parsed.
#[derive(Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Run as the first process of the sandbox.
    Init(Line),
    /// Run as ssh's `ProxyCommand`.
    Connect(ConnectRequest),
    /// Run probes.
    Probe {
        /// The probes to run.
        which: Which,
        /// What some probes look for.
        context: ProbeContext,
    },
    /// Print the version of the guest and of its protocol.
    Version,
}

/// How the supervisor is reached.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Through an inherited socket with this descriptor number.
    Inherited(i32),
    /// Through the socket at this path.
    At(PathBuf),
}

/// Why the command line could not be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The command line is empty.
    #[error("missing subcommand")]
    NoVerb,
    /// The first argument does not name a subcommand.
    #[error("unknown subcommand `{0}`")]
    UnknownVerb(String),
    /// An unknown option, or an argument too many.
    #[error("unexpected argument `{0}`")]
    Unexpected(String),
    /// An argument or the value of an option is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value has the wrong type.
    #[error("`{value}` is not {expected}")]
    Value {
        /// The value as given.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl Arguments {
    /// Parses the arguments after the name of the program.
    ///
    /// # Errors
    /// Names the first argument that does not fit.
    pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
        let verb = arguments.next().ok_or(UsageError::NoVerb)?;
        match verb.as_str() {
            "init" => init(&mut arguments),
            "connect" => connect(&mut arguments),
            "probe" => probe(&mut arguments),
            "--version" => Ok(Arguments::Version),
            _ => Err(UsageError::UnknownVerb(verb)),
        }
    }
}

type Remaining<'arguments> = &'arguments mut dyn Iterator<Item = String>;

fn init(arguments: Remaining<'_>) -> Result<Arguments, UsageError> {
    let mut line = None;
    while let Some(argument) = arguments.next() {
        line = Some(match (argument.as_str(), line) {
            ("--control", None) => Line::Inherited(number(arguments, "a descriptor number")?),
            ("--connect", None) => {
                Line::At(arguments.next().ok_or(UsageError::Missing("the value of --connect"))?.into())
            }
            _ => return Err(UsageError::Unexpected(argument)),
        });
    }
    let usable = |line: &Line| !matches!(line, Line::Inherited(..=2));
    let line = line.filter(usable).ok_or(UsageError::Missing("--control FD (above 2) or --connect PATH"))?;
    Ok(Arguments::Init(line))
}

fn connect(arguments: Remaining<'_>) -> Result<Arguments, UsageError> {
    let (mut host, mut port, mut proxy) = (None, None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--proxy" => {
                let value = arguments.next().ok_or(UsageError::Missing("the value of --proxy"))?;
                proxy = Some(parsed::<SocketAddr>(value, "an address and port")?);
            }
            _ if argument.starts_with("--") => return Err(UsageError::Unexpected(argument)),
            _ if host.is_none() => host = Some(argument),
            _ if port.is_none() => port = Some(parsed::<u16>(argument, "a port")?),
            _ => return Err(UsageError::Unexpected(argument)),
        }
    }
    let host = host.ok_or(UsageError::Missing("HOST"))?;
    let port = port.ok_or(UsageError::Missing("PORT"))?;
    Ok(Arguments::Connect(ConnectRequest { host, port, proxy }))
}

fn probe(arguments: Remaining<'_>) -> Result<Arguments, UsageError> {
    let (mut names, mut all, mut attempts) = (Vec::new(), false, None);
    let mut context = ProbeContext::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--all" => all = true,
            "--attempts" => {
                attempts = Some(arguments.next().ok_or(UsageError::Missing("the value of --attempts"))?);
            }
            // JSON is the only output format; the option lets callers state what they parse.
            "--json" => {}
            "--key" => context.key = arguments.next().ok_or(UsageError::Missing("the value of --key"))?,
            "--abstract" => {
                context.abstract_name =
                    arguments.next().ok_or(UsageError::Missing("the value of --abstract"))?;
            }
            "--segment" => context.segment = number(arguments, "the key of a segment")?,
            "--pid" => context.pid = Some(number(arguments, "a process number")?),
            "--trace" => context.trace = Some(number(arguments, "a process number")?),
            _ if argument.starts_with("--") => return Err(UsageError::Unexpected(argument)),
            _ => names.push(argument),
        }
    }
    let which = match (all, names.is_empty(), attempts) {
        (true, true, None) => Which::All,
        (false, false, None) => Which::Names(names),
        (false, true, Some(file)) => Which::Attempts(file),
        _ => return Err(UsageError::Missing("NAME, --all or --attempts")),
    };
    Ok(Arguments::Probe { which, context })
}

fn number(arguments: Remaining<'_>, expected: &'static str) -> Result<i32, UsageError> {
    parsed(arguments.next().ok_or(UsageError::Missing(expected))?, expected)
}

fn parsed<T: std::str::FromStr>(value: String, expected: &'static str) -> Result<T, UsageError> {
    value.parse().map_err(|_unparsed| UsageError::Value { value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, UsageError> {
        Arguments::parse(line.split(' ').filter(|argument| !argument.is_empty()).map(OsString::from))
    }

    #[test]
    fn parses_each_subcommand() {
        assert_eq!(parse("init --control 7"), Ok(Arguments::Init(Line::Inherited(7))));
        assert_eq!(parse("init --connect /run/c"), Ok(Arguments::Init(Line::At("/run/c".into()))));
        let request = ConnectRequest {
            host: "git.example.org".to_owned(),
            port: 22,
            proxy: Some("127.0.0.1:3128".parse().unwrap()),
        };
        assert_eq!(
            parse("connect git.example.org 22 --proxy 127.0.0.1:3128"),
            Ok(Arguments::Connect(request))
        );
        assert!(
            matches!(parse("probe bpf mount --json"), Ok(Arguments::Probe { which: Which::Names(names), .. }) if names.len() == 2)
        );
        assert!(matches!(parse("probe --all --pid 4"), Ok(Arguments::Probe { which: Which::All, .. })));
    }

    #[test]
    fn names_the_first_invalid_argument() {
        assert_eq!(parse(""), Err(UsageError::NoVerb));
        assert_eq!(parse("exec"), Err(UsageError::UnknownVerb("exec".to_owned())));
        assert_eq!(parse("init"), Err(UsageError::Missing("--control FD (above 2) or --connect PATH")));
        assert_eq!(
            parse("init --control 1"),
            Err(UsageError::Missing("--control FD (above 2) or --connect PATH"))
        );
        let twice = UsageError::Unexpected("--connect".to_owned());
        assert_eq!(parse("init --control 4 --connect /run/c"), Err(twice));
        assert_eq!(parse("connect a 22 b"), Err(UsageError::Unexpected("b".to_owned())));
        let fault = UsageError::Value { value: "99999".to_owned(), expected: "a port" };
        assert_eq!(parse("connect a 99999"), Err(fault));
        assert_eq!(parse("probe"), Err(UsageError::Missing("NAME, --all or --attempts")));
        assert_eq!(parse("probe bpf --all"), Err(UsageError::Missing("NAME, --all or --attempts")));
    }
}
