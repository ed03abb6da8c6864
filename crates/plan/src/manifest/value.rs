//! The values a manifest holds, each parsed once into a type.

use crate::decode::{Fault, Faults, NameKey, Scalar, Shape, decode_choice, shown};
use crate::syntax::{Kind, Node};
use belljar_contract::{
    AbsPath, AgentName, BackendKind, ByteSize, Cpus, EnvName, HomeMode, Host, HostName, HostPattern,
    HostPatternError, HostTarget, ImageName, ImageNameError, LibraryName, PathError, Port, QuantityError,
    SshPublicKey, SshPublicKeyError, TimeSpan, Usd, WorkspaceMode,
};
use serde_json::{Value, json};

pub(super) fn nul(text: &str, what: &str) -> Result<(), Fault> {
    if text.contains('\0') {
        return Err(Fault::new(format!("{what} cannot hold a NUL character")).label("a `\\u0000` is in here"));
    }
    Ok(())
}

/// Text of any length and any number of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl Scalar for Text {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "a text")?;
        Ok(Self(text.to_owned()))
    }
}

/// Text on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line(pub String);

impl Scalar for Line {
    const EXPECTED: &'static str = "a line of text";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            return Err(Fault::new("expected a line of text, found an empty one"));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => {
                Err(Fault::new(format!("expected a line of text, found the control character {c:?} in it")))
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// A word that goes to the agent's command line: not empty, no control character, not a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(pub String);

impl Scalar for Word {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        let Line(text) = Line::parse(text)?;
        if text.starts_with('-') {
            return Err(Fault::new(format!(
                "`{}` begins with `-`; the agent would read it as a flag",
                shown(&text)
            )));
        }
        Ok(Self(text))
    }
}

/// An argument of a command: anything but NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument(pub String);

impl Scalar for Argument {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "an argument")?;
        // The agent expands `${NAME}` in the configuration of a server; what is written here must arrive as it is.
        if text.contains("${") {
            return Err(Fault::new("`${…}` would be expanded by the agent").help(
                "give the server a variable under `env`, where `\"${NAME}\"` reads the host's variable",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The program of a command: an argument that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(pub String);

impl Scalar for Program {
    const EXPECTED: &'static str = "a program";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            return Err(Fault::new("expected a program, found an empty string"));
        }
        Argument::parse(text).map(|Argument(text)| Self(text))
    }
    fn pattern() -> Option<&'static str> {
        Some("[^ ]")
    }
}

/// A path as it is written: absolute, below the home with `~`, or below the folder of the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathText {
    /// `/…`
    Absolute(AbsPath),
    /// `~` or `~/…`
    Home(String),
    /// Below the folder of the file it is written in.
    Beside(String),
}

impl PathText {
    /// The path, given the home and the folder of the file it is written in.
    ///
    /// # Errors
    /// Never for a value that was parsed; the types cannot say so.
    pub fn resolve(&self, home: &AbsPath, beside: &AbsPath) -> Result<AbsPath, PathError> {
        match self {
            PathText::Absolute(path) => Ok(path.clone()),
            PathText::Home(rest) => home.join(rest),
            PathText::Beside(rest) => beside.join(rest),
        }
    }
}

impl Scalar for PathText {
    const EXPECTED: &'static str = "a path";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "a path")?;
        if text.is_empty() {
            return Err(Fault::new("expected a path, found an empty string")
                .help("write `.` for the folder of the file itself"));
        }
        if let Some(rest) = text.strip_prefix('~') {
            return match rest.strip_prefix('/') {
                Some(rest) => Ok(Self::Home(rest.to_owned())),
                None if rest.is_empty() => Ok(Self::Home(String::new())),
                None => Err(Fault::new("`~` means your own home; another user's cannot be named")
                    .help("write the absolute path")),
            };
        }
        Ok(AbsPath::new(text).map_or_else(|_relative| Self::Beside(text.to_owned()), Self::Absolute))
    }
}

/// An absolute path inside the sandbox.
impl Scalar for AbsPath {
    const EXPECTED: &'static str = "an absolute path";
    fn parse(text: &str) -> Result<Self, Fault> {
        AbsPath::new(text)
            .map_err(|error| Fault::new(error.to_string()).help("a path inside the sandbox begins with `/`"))
    }
    fn pattern() -> Option<&'static str> {
        Some("^/")
    }
}

fn quantity(error: &QuantityError) -> Fault {
    Fault::new(error.to_string())
}

impl Scalar for ByteSize {
    const EXPECTED: &'static str = "a size such as `\"4G\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        ByteSize::parse(text).map_err(|error| quantity(&error))
    }
    fn pattern() -> Option<&'static str> {
        Some("^[0-9]+ ?([KkMGT](iB)?|B)?$")
    }
}

impl Scalar for TimeSpan {
    const EXPECTED: &'static str = "a time such as `\"30m\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        TimeSpan::parse(text).map_err(|error| quantity(&error))
    }
    fn pattern() -> Option<&'static str> {
        Some("^([0-9]+[smhd])+$")
    }
}

impl Scalar for HostPattern {
    const EXPECTED: &'static str = "a host or `*.domain`";
    fn parse(text: &str) -> Result<Self, Fault> {
        HostPattern::parse(text).map_err(|error| {
            let fault = Fault::new(error.to_string());
            match error.instead() {
                Some(host) => {
                    fault.help(format!("write `{}`; an egress rule names hosts and ports only", shown(host)))
                }
                None => match error {
                    HostPatternError::Wildcard if text == "*" => {
                        fault.help("there is no rule that opens everything; name the hosts")
                    }
                    _ => fault,
                },
            }
        })
    }
}

impl Scalar for ImageName {
    const EXPECTED: &'static str = "the name of an image";
    fn parse(text: &str) -> Result<Self, Fault> {
        ImageName::parse(text).map_err(|error| {
            let fault = Fault::new(error.to_string());
            match error {
                ImageNameError::Scheme => match text.split_once("://").map(|(_, rest)| rest) {
                    Some(rest) if ImageName::parse(rest).is_ok() => fault.help(format!("write `{rest}`")),
                    Some(_) | None => fault,
                },
                ImageNameError::Capital if ImageName::parse(&text.to_lowercase()).is_ok() => {
                    fault.help(format!("write `{}`", text.to_lowercase()))
                }
                ImageNameError::Empty
                | ImageNameError::Capital
                | ImageNameError::Part
                | ImageNameError::Host
                | ImageNameError::Tag
                | ImageNameError::Digest
                | ImageNameError::Long => fault.help("write it as `podman images` does: `debian:12`"),
            }
        })
    }
    fn pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$")
    }
}

impl Scalar for HostName {
    const EXPECTED: &'static str = "a host name";
    fn parse(text: &str) -> Result<Self, Fault> {
        HostName::new(text).map_err(|error| {
            let fault = Fault::new(error.to_string());
            // What a rule of egress would take, and this place does not, is named for what it is.
            match HostPattern::parse(text) {
                Ok(HostPattern { target: HostTarget::Exact(host), .. }) => {
                    Fault::new("expected a host name, found a port behind it")
                        .help(format!("write `{host}`; a port has no place here"))
                }
                Ok(HostPattern { target: HostTarget::AnyUnder(_), .. }) => {
                    Fault::new("expected a host name, found a pattern for several")
                        .help("name one host; repeat the entry for each of several")
                }
                Ok(HostPattern { target: HostTarget::Address(_) | HostTarget::Range(_), .. }) => {
                    Fault::new("expected a host name, found an address").help("name the host")
                }
                Err(HostPatternError::Scheme { instead }) => {
                    let fault = Fault::new("expected a host name, found a URL");
                    let host = instead.and_then(|host| Some(HostPattern::parse(&host).ok()?.target));
                    match host {
                        Some(HostTarget::Exact(host)) => fault.help(format!("write `{host}`")),
                        _ => fault,
                    }
                }
                Err(HostPatternError::Path { instead }) => {
                    Fault::new("expected a host name, found a path behind it")
                        .help(format!("write `{}`", shown(&instead)))
                }
                Err(_) => fault,
            }
        })
    }
}

/// An alias or a user of ssh: it is written to a configuration file, so its alphabet is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshWord(pub String);

impl Scalar for SshWord {
    const EXPECTED: &'static str = "a word of letters, digits, `.`, `_` and `-`";
    fn parse(text: &str) -> Result<Self, Fault> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() || text.starts_with('-') || !text.chars().all(allowed) {
            return Err(Fault::new(format!("expected {}, found `{}`", Self::EXPECTED, shown(text))));
        }
        Ok(Self(text.to_owned()))
    }
    fn pattern() -> Option<&'static str> {
        Some("^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    }
}

impl Scalar for Host {
    const EXPECTED: &'static str = "a host name or an address";
    fn parse(text: &str) -> Result<Self, Fault> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Host::of(address));
        }
        if let Ok(HostPattern { target: HostTarget::Address(address), .. }) = HostPattern::parse(text) {
            return Err(Fault::new("expected an address, found a port behind it")
                .help(format!("write `{address}`; a port has no place here")));
        }
        <HostName as Scalar>::parse(text).map(Host::Name)
    }
}

impl Scalar for SshPublicKey {
    const EXPECTED: &'static str = "a public key such as `ssh-ed25519 AAAA…`";
    fn parse(text: &str) -> Result<Self, Fault> {
        let parsed = match text.chars().any(char::is_control) {
            true => Err(SshPublicKeyError::Form),
            false => SshPublicKey::parse(text),
        };
        parsed.map_err(|error| {
            let fault = match error {
                SshPublicKeyError::Form => {
                    Fault::new(format!("expected {}, found `{}`", Self::EXPECTED, shown(text)))
                }
                other => Fault::new(other.to_string()),
            };
            fault.help(
                "`ssh-keyscan HOST` prints the keys of a host; compare them with what its owner publishes",
            )
        })
    }
}

/// The name of an HTTP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderName(pub String);

impl Scalar for HeaderName {
    const EXPECTED: &'static str = "the name of a header";
    fn parse(text: &str) -> Result<Self, Fault> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if text.is_empty() || !text.bytes().all(token) {
            return Err(Fault::new(format!("`{}` is not the name of a header", shown(text))));
        }
        Ok(Self(text.to_owned()))
    }
}

macro_rules! number {
    ($type:ty, $expected:literal, $min:literal, $convert:expr) => {
        impl Shape for $type {
            fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
                #[expect(clippy::cast_precision_loss, reason = "far beyond any sensible limit")]
                let number = match node.kind {
                    Kind::Integer(number) => number as f64,
                    Kind::Float(number) => number,
                    _ => return faults.mismatch(node, $expected),
                };
                let convert: fn(f64) -> Result<$type, QuantityError> = $convert;
                convert(number).map_err(|error| faults.push("invalid-value", &node.span, quantity(&error))).ok()
            }
            fn schema() -> Value {
                json!({"type": "number", "exclusiveMinimum": $min})
            }
        }
    };
}
number!(Cpus, "a number of processors", 0, Cpus::new);
number!(Usd, "an amount in dollars", 0, Usd::new);

macro_rules! integer {
    ($type:ty, $expected:literal, $min:literal ..= $max:literal, $convert:expr) => {
        impl Shape for $type {
            fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
                let Kind::Integer(number) = node.kind else {
                    return faults.mismatch(node, $expected);
                };
                let convert: fn(i64) -> Option<$type> = $convert;
                let value = convert(number);
                if value.is_none() {
                    let range = format!("expected {} between {} and {}, found {number}", $expected, $min, $max);
                    faults.push("invalid-value", &node.span, Fault::new(range));
                }
                value
            }
            fn schema() -> Value {
                json!({"type": "integer", "minimum": $min, "maximum": $max})
            }
        }
    };
}
pub(crate) use integer;
integer!(Port, "a port", 1..=65535, |n| u16::try_from(n).ok().and_then(Port::new));
integer!(u32, "a whole number", 1..=4_194_304, |n| u32::try_from(n)
    .ok()
    .filter(|n| (1..=4_194_304).contains(n)));

macro_rules! names {
    ($($type:ty => $pattern:literal),*) => {$(
        impl NameKey for $type {
            fn parse_key(text: &str) -> Result<Self, Fault> {
                <$type>::new(text).map_err(|error| Fault::new(error.to_string()))
            }
            fn pattern() -> &'static str {
                $pattern
            }
        }
    )*};
}
names!(
    AgentName => "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    LibraryName => "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    EnvName => "^[A-Za-z_][A-Za-z0-9_]{0,255}$"
);

impl Scalar for LibraryName {
    const EXPECTED: &'static str = "the name of a library entry";
    fn parse(text: &str) -> Result<Self, Fault> {
        Self::parse_key(text)
    }
}

crate::decode::choice!(HomeMode, "a home mode", {
    "clean" => HomeMode::Clean,
    "project" => HomeMode::Project,
    "shared" => HomeMode::Shared,
});
crate::decode::choice!(WorkspaceMode, "a workspace mode", {
    "direct" => WorkspaceMode::Direct,
    "overlay" => WorkspaceMode::Overlay,
    "copy" => WorkspaceMode::Copy,
});
impl Shape for BackendKind {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
        decode_choice(node, faults, "a backend", &BackendKind::ALL.map(|kind| (kind.name(), kind)))
    }

    fn schema() -> Value {
        json!({"enum": BackendKind::ALL.map(BackendKind::name)})
    }
}
crate::decode::choice!(belljar_contract::Access, "a mount mode", {
    "ro" => belljar_contract::Access::ReadOnly,
    "rw" => belljar_contract::Access::ReadWrite,
});
