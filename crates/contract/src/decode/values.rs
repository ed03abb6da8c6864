//! How the nouns of this crate are written in a file.

use super::{
    Decode, Fault, Faults, Kind, NameKey, Node, Scalar, choice, choice_schema, choice_text, shown,
    whole_number, whole_number_schema,
};
use crate::{
    AbsPath, Access, AgentName, AgentRelease, AgentReleaseError, BackendKind, ByteSize, Cpus, EnvName,
    HomeMode, Host, HostName, HostPattern, HostPatternError, HostTarget, ImageName, ImageNameError, Lane,
    Letters, LibraryName, Method, PathPattern, Pattern, PermissionMode, Port, QuantityError, SshPublicKey,
    SshPublicKeyError, TimeSpan, Usd, WorkspaceMode,
};
use serde_json::{Value, json};
use std::ops::RangeInclusive;

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
                    fault.help(format!("write `{}`: the host, without scheme and path", shown(host)))
                }
                None if matches!(error, HostPatternError::Wildcard) && text == "*" => {
                    fault.help("one rule cannot open everything; name the hosts")
                }
                None => fault,
            }
        })
    }
}

impl Scalar for AgentRelease {
    const EXPECTED: &'static str = "a version of an agent, as in `\"NAME@2.1.197\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        AgentRelease::parse(text).map_err(|error| {
            let help = match error {
                AgentReleaseError::NoVersion | AgentReleaseError::Name => {
                    "write the kind of agent, `@` and an exact version"
                }
                AgentReleaseError::Version(_) => {
                    "a tag such as `latest` means another version every time; name an exact one"
                }
            };
            Fault::new(error.to_string()).help(help)
        })
    }
    fn pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9][a-zA-Z0-9_-]*@[0-9]+\\.[0-9]+\\.[0-9]+([-+][a-zA-Z0-9.+-]*)?$")
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
                    if let Some(HostTarget::Exact(host)) = host {
                        return fault.help(format!("write `{host}`"));
                    }
                    fault
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
                SshPublicKeyError::Base64
                | SshPublicKeyError::Blob
                | SshPublicKeyError::Algorithm { .. }
                | SshPublicKeyError::Certificate => Fault::new(error.to_string()),
            };
            fault.help(
                "`ssh-keyscan HOST` prints the keys of a host; compare them with what its owner publishes",
            )
        })
    }
}

macro_rules! number {
    ($type:ty, $expected:literal) => {
        impl Decode for $type {
            fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
                let Some(number) = node.as_number() else {
                    return faults.mismatch(node, $expected);
                };
                <$type>::new(number).map_or_else(|error| faults.invalid(node, quantity(&error)), Some)
            }

            fn schema() -> Value {
                json!({"type": "number", "exclusiveMinimum": 0})
            }
        }
    };
}
number!(Cpus, "a number of processors");
number!(Usd, "an amount in dollars");

const PORTS: RangeInclusive<i64> = 1..=65535;

impl Decode for Port {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let number = whole_number(node, "a port", &PORTS, faults)?;
        u16::try_from(number).ok().and_then(Port::new)
    }

    fn schema() -> Value {
        whole_number_schema(&PORTS)
    }
}

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

impl Scalar for EnvName {
    const EXPECTED: &'static str = "the name of a variable";
    fn parse(text: &str) -> Result<Self, Fault> {
        Self::parse_key(text)
    }
}

impl Scalar for Method {
    const EXPECTED: &'static str = "a method such as `\"GET\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        Method::new(text).map_err(|error| Fault::new(error.to_string()))
    }
}

impl Scalar for PathPattern {
    const EXPECTED: &'static str = "a path such as `\"/v1/**\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        PathPattern::parse(text).map_err(|error| Fault::new(error.to_string()))
    }
}

/// Letter case is ignored.
impl Decode for Pattern {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a pattern");
        };
        if text.is_empty() {
            return faults.invalid(node, Fault::new("an empty pattern matches every text"));
        }
        Pattern::new(text, Letters::AnyCase).map_or_else(
            |error| {
                let mut fault = Fault::new(error.to_string());
                fault.help = error.help().map(str::to_owned);
                faults.invalid(node, fault)
            },
            Some,
        )
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "regex", "minLength": 1})
    }
}

choice!(HomeMode, "a home mode", {
    "clean" => HomeMode::Clean,
    "project" => HomeMode::Project,
    "shared" => HomeMode::Shared,
});
choice!(WorkspaceMode, "a workspace mode", {
    "direct" => WorkspaceMode::Direct,
    "overlay" => WorkspaceMode::Overlay,
    "copy" => WorkspaceMode::Copy,
});
impl Decode for BackendKind {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let name = choice_text(node, "a backend", &Self::ALL.map(Self::name), faults)?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn schema() -> Value {
        choice_schema(&Self::ALL.map(Self::name))
    }
}
choice!(Access, "a mount mode", {
    "ro" => Access::ReadOnly,
    "rw" => Access::ReadWrite,
});
choice!(Lane, "a lane", { "local" => Lane::Local, "remote" => Lane::Remote });
choice!(PermissionMode, "a permission mode", {
    "default" => PermissionMode::Default,
    "acceptEdits" => PermissionMode::AcceptEdits,
    "plan" => PermissionMode::Plan,
    "bypassPermissions" => PermissionMode::BypassPermissions,
});
