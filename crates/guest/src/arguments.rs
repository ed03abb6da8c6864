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
    /// Be the first process.
    Init(Line),
    /// Be the proxy command of ssh.
    Connect(ConnectRequest),
    /// Try what should be closed.
    Probe {
        /// Which.
        which: Which,
        /// What some probes look for.
        context: ProbeContext,
    },
    /// Say which version of the protocol is spoken.
    Version,
}

/// How the supervisor is reached.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// By a socket that was inherited under this number.
    Inherited(i32),
    /// By a socket at this path.
    At(PathBuf),
}

/// Why the command line was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// There is no verb.
    #[error("a verb is missing")]
    NoVerb,
    /// There is no such verb.
    #[error("`{0}` is no verb of the guest")]
    UnknownVerb(String),
    /// Something more, or something unknown.
    #[error("`{0}` is not expected here")]
    Unexpected(String),
    /// An argument or the value of an option is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value cannot be used.
    #[error("`{value}` is not {expected}")]
    Value {
        /// As given.
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
        let mut words = arguments.map(|word| word.to_string_lossy().into_owned());
        let verb = words.next().ok_or(UsageError::NoVerb)?;
        match verb.as_str() {
            "init" => init(&mut words),
            "connect" => connect(&mut words),
            "probe" => probe(&mut words),
            "--version" => Ok(Arguments::Version),
            _ => Err(UsageError::UnknownVerb(verb)),
        }
    }
}

type Words<'words> = &'words mut dyn Iterator<Item = String>;

fn init(words: Words<'_>) -> Result<Arguments, UsageError> {
    let mut line = None;
    while let Some(word) = words.next() {
        line = Some(match (word.as_str(), line) {
            ("--control", None) => Line::Inherited(number(words, "a descriptor number")?),
            ("--connect", None) => {
                Line::At(words.next().ok_or(UsageError::Missing("the value of --connect"))?.into())
            }
            _ => return Err(UsageError::Unexpected(word)),
        });
    }
    let usable = |line: &Line| !matches!(line, Line::Inherited(..=2));
    let line = line.filter(usable).ok_or(UsageError::Missing("--control FD (above 2) or --connect PATH"))?;
    Ok(Arguments::Init(line))
}

fn connect(words: Words<'_>) -> Result<Arguments, UsageError> {
    let (mut host, mut port, mut proxy) = (None, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--proxy" => {
                let value = words.next().ok_or(UsageError::Missing("the value of --proxy"))?;
                proxy = Some(parsed::<SocketAddr>(value, "an address and port")?);
            }
            _ if word.starts_with("--") => return Err(UsageError::Unexpected(word)),
            _ if host.is_none() => host = Some(word),
            _ if port.is_none() => port = Some(parsed::<u16>(word, "a port")?),
            _ => return Err(UsageError::Unexpected(word)),
        }
    }
    let host = host.ok_or(UsageError::Missing("HOST"))?;
    let port = port.ok_or(UsageError::Missing("PORT"))?;
    Ok(Arguments::Connect(ConnectRequest { host, port, proxy }))
}

fn probe(words: Words<'_>) -> Result<Arguments, UsageError> {
    let (mut names, mut all, mut attempts) = (Vec::new(), false, None);
    let mut context = ProbeContext::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--all" => all = true,
            "--attempts" => {
                attempts = Some(words.next().ok_or(UsageError::Missing("the value of --attempts"))?);
            }
            // The only form there is; accepted so that the caller says what it parses.
            "--json" => {}
            "--key" => context.key = words.next().ok_or(UsageError::Missing("the value of --key"))?,
            "--abstract" => {
                context.abstract_name = words.next().ok_or(UsageError::Missing("the value of --abstract"))?;
            }
            "--segment" => context.segment = number(words, "the key of a segment")?,
            "--pid" => context.pid = Some(number(words, "a process number")?),
            "--trace" => context.trace = Some(number(words, "a process number")?),
            _ if word.starts_with("--") => return Err(UsageError::Unexpected(word)),
            _ => names.push(word),
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

fn number(words: Words<'_>, expected: &'static str) -> Result<i32, UsageError> {
    parsed(words.next().ok_or(UsageError::Missing(expected))?, expected)
}

fn parsed<T: std::str::FromStr>(value: String, expected: &'static str) -> Result<T, UsageError> {
    value.parse().map_err(|_unparsed| UsageError::Value { value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, UsageError> {
        Arguments::parse(line.split(' ').filter(|word| !word.is_empty()).map(OsString::from))
    }

    #[test]
    fn each_verb_is_understood() {
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
    fn what_does_not_fit_is_named() {
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
