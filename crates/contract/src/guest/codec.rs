//! Messages as bytes, and checks that the types cannot express.

use serde::{Deserialize, Serialize};

use super::{
    GUEST_GUARD_PATHS_MAX, GUEST_LISTENERS_MAX, GUEST_PROTOCOL, GUEST_REPORT_MAX, GUEST_SPEC_MAX,
    GuestAddress, GuestGuard, GuestOrder, GuestPart, GuestReport, GuestRoot, GuestSpec, OsText,
};

/// Why bytes are not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum GuestCodecError {
    #[error("a guest message of {length} bytes is longer than {limit}")]
    TooLong { length: usize, limit: usize },
    /// The bytes are not this message as JSON.
    #[error("not a valid guest message")]
    Json(#[source] serde_json::Error),
    /// The other side has a different version.
    #[error("guest protocol {found} instead of {GUEST_PROTOCOL}")]
    Protocol { found: u32 },
    /// A value that the types allow and the protocol does not.
    #[error("guest message: `{field}` {fault}")]
    Value {
        field: &'static str,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl GuestSpec {
    /// Encodes the body of the frame.
    ///
    /// # Errors
    /// Fails if it is longer than [`GUEST_SPEC_MAX`] or breaks a rule of the protocol.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GuestCodecError> {
        self.check()?;
        encode(self, GUEST_SPEC_MAX)
    }

    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// Fails on anything but a valid spec of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GuestCodecError> {
        let spec: Self = decode(bytes, GUEST_SPEC_MAX)?;
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), GuestCodecError> {
        let require = |holds: bool, field, fault| {
            if holds { Ok(()) } else { Err(GuestCodecError::Value { field, fault }) }
        };
        if self.protocol != GUEST_PROTOCOL {
            return Err(GuestCodecError::Protocol { found: self.protocol });
        }
        require(!self.program.is_empty(), "program", "is empty")?;
        require(!self.argv.is_empty(), "argv", "is empty")?;
        require(self.directory.is_absolute(), "directory", "is not absolute")?;
        require(self.listeners.len() <= GUEST_LISTENERS_MAX, "listeners", "are too many")?;
        let mut names: Vec<_> = self.listeners.iter().map(|listener| &listener.name).collect();
        names.sort();
        require(
            names.windows(2).all(|pair| pair.first() != pair.last()),
            "listeners",
            "have a duplicate name",
        )?;
        for variable in &self.environment {
            let name = variable.name.as_bytes();
            require(!name.is_empty() && !name.contains(&b'='), "environment", "has an invalid name")?;
        }
        if let GuestRoot::Built { ground: _, parts, user: _, bounds: _ } = &self.root {
            require(parts.iter().all(GuestPart::is_absolute), "root", "has a relative path")?;
        }
        if let Some(GuestGuard { roots, apart, allowed, on_held: _ }) = &self.guard {
            require(!roots.is_empty(), "guard", "has no root")?;
            let paths = roots.iter().map(|root| &root.path).chain(apart).chain(allowed);
            require(paths.clone().all(OsText::is_absolute), "guard", "has a relative path")?;
            require(paths.clone().all(|path| path.as_bytes() != b"/"), "guard", "must not be `/`")?;
            let count = roots.iter().map(|root| root.aliases.len() + root.named.len()).sum::<usize>();
            let count = count + allowed.len();
            require(count <= GUEST_GUARD_PATHS_MAX, "guard", "has too many paths")?;
        }
        let reserved = self.range.is_none_or(|range| range.is_reserved());
        require(reserved, "range", "would hide real hosts")?;
        for listener in &self.listeners {
            match &listener.at {
                GuestAddress::Tcp { address } | GuestAddress::Udp { address } => {
                    let in_range = self.range.is_some_and(|range| range.contains(address.ip()));
                    require(address.ip().is_loopback() || in_range, "listeners", "are outside the sandbox")?;
                }
                GuestAddress::Unix { path, mode: _ } => {
                    require(path.is_absolute(), "listeners", "have a relative path")?;
                }
            }
        }
        require(
            self.limits.iter().all(|limit| limit.soft <= limit.hard),
            "limits",
            "have a soft limit above the hard one",
        )
    }
}

impl GuestReport {
    /// Encodes the body of the frame.
    ///
    /// # Errors
    /// Fails if it is longer than [`GUEST_REPORT_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, GuestCodecError> {
        encode(self, GUEST_REPORT_MAX)
    }

    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// Fails on anything but a valid report.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GuestCodecError> {
        decode(bytes, GUEST_REPORT_MAX)
    }
}

impl GuestOrder {
    /// Encodes the body of the frame.
    ///
    /// # Errors
    /// Never: an order is short.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GuestCodecError> {
        encode(self, GUEST_REPORT_MAX)
    }

    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// Fails on anything but a valid order.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GuestCodecError> {
        let order = decode(bytes, GUEST_REPORT_MAX)?;
        match order {
            GuestOrder::Signal { signal } if !(1..=64).contains(&signal) => {
                Err(GuestCodecError::Value { field: "signal", fault: "is not a signal number" })
            }
            GuestOrder::Start | GuestOrder::Stop | GuestOrder::Signal { .. } | GuestOrder::Answer { .. } => {
                Ok(order)
            }
        }
    }
}

fn encode<T: Serialize>(message: &T, limit: usize) -> Result<Vec<u8>, GuestCodecError> {
    let bytes = serde_json::to_vec(message).map_err(GuestCodecError::Json)?;
    bounded(bytes.len(), limit)?;
    Ok(bytes)
}

fn decode<'bytes, T: Deserialize<'bytes>>(bytes: &'bytes [u8], limit: usize) -> Result<T, GuestCodecError> {
    bounded(bytes.len(), limit)?;
    serde_json::from_slice(bytes).map_err(GuestCodecError::Json)
}

fn bounded(length: usize, limit: usize) -> Result<(), GuestCodecError> {
    if length > limit { Err(GuestCodecError::TooLong { length, limit }) } else { Ok(()) }
}
