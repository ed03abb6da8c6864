//! Reads the public key from a key's file without reading the private key.
//!
//! An OpenSSH key file begins with the public key in plain text, whether or not a passphrase protects the rest. It is read
//! byte by byte up to the end of the public key, so that nothing of the private key enters this process.

use belljar_contract::{SshPublicKey, SshPublicKeyError};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const ARMOUR: &[u8] = b"-----BEGIN OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// The longest field before the private key.
const PART_MAX: u32 = 4096;
/// The longest first line, or public key file.
const TEXT_MAX: u64 = 8192;

/// What a key's file reveals without a passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicHalf {
    pub key: SshPublicKey,
    pub private: PrivateHalf,
}

/// Whether and how the file contains the private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateHalf {
    /// The file is a public key. Only an agent can hold the private key.
    Elsewhere,
    Plain,
    Passphrase,
    /// The file contains the private key in a format that does not show whether it is encrypted.
    Unknown,
}

/// Why the public key is not known.
#[derive(Debug, thiserror::Error)]
pub enum PublicHalfError {
    #[error("cannot read the key `{}`", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` contains no key that ssh can use", .path.display())]
    Key {
        path: PathBuf,
        #[source]
        cause: SshPublicKeyError,
    },
    #[error(
        "`{path}` does not contain its public key, and there is no `{path}.pub`; create it with `ssh-keygen -y -f {path} > {path}.pub`"
    )]
    NoPublicFile { path: String },
}

/// Finds the public key for `identity_file`: in the file itself, or in the `.pub` file next to it.
///
/// # Errors
/// See [`PublicHalfError`].
pub fn public_half(identity_file: &Path) -> Result<PublicHalf, PublicHalfError> {
    let read = |cause| PublicHalfError::Read { path: identity_file.to_owned(), cause };
    let key = |cause| PublicHalfError::Key { path: identity_file.to_owned(), cause };
    let mut file = open(identity_file).map_err(read)?;
    let first = first_line(&mut file).map_err(read)?;
    if first == ARMOUR {
        let (cipher, blob) = head(&mut file).map_err(read)?;
        let private = if cipher == b"none" { PrivateHalf::Plain } else { PrivateHalf::Passphrase };
        return Ok(PublicHalf { key: SshPublicKey::from_blob(&blob).map_err(key)?, private });
    }
    if !first.starts_with(b"-----BEGIN") {
        let line = String::from_utf8_lossy(&first);
        return Ok(PublicHalf {
            key: SshPublicKey::parse(&line).map_err(key)?,
            private: PrivateHalf::Elsewhere,
        });
    }
    let mut beside = identity_file.as_os_str().to_owned();
    beside.push(".pub");
    let beside = PathBuf::from(beside);
    let line = match open(&beside).and_then(|mut file| first_line(&mut file)) {
        Ok(line) => line,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            return Err(PublicHalfError::NoPublicFile { path: identity_file.display().to_string() });
        }
        Err(cause) => return Err(PublicHalfError::Read { path: beside, cause }),
    };
    let parsed = SshPublicKey::parse(&String::from_utf8_lossy(&line));
    let key = parsed.map_err(|cause| PublicHalfError::Key { path: beside, cause })?;
    Ok(PublicHalf { key, private: PrivateHalf::Unknown })
}

fn open(path: &Path) -> io::Result<File> {
    // Checked first, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}

/// The first line, without its line ending.
#[expect(clippy::unbuffered_bytes, reason = "a buffer would hold the private half")]
fn first_line(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    for byte in file.take(TEXT_MAX).bytes() {
        match byte? {
            b'\n' => break,
            b'\r' => {}
            byte => line.push(byte),
        }
    }
    Ok(line)
}

/// The name of the cipher and the public key, which follow the first line.
fn head(file: &mut impl Read) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut decoded = Decoded { file, ready: Vec::new() };
    if decoded.exact(MAGIC.len())? != MAGIC {
        return Err(damaged());
    }
    let cipher = decoded.string()?;
    let (_derivation, _salt) = (decoded.string()?, decoded.string()?);
    if decoded.number()? != 1 {
        return Err(damaged());
    }
    Ok((cipher, decoded.string()?))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a complete OpenSSH key")
}

/// Decodes base64, four characters at a time.
struct Decoded<'f, R> {
    file: &'f mut R,
    ready: Vec<u8>,
}

impl<R: Read> Decoded<'_, R> {
    fn exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.ready.len() < count {
            let mut group = Vec::with_capacity(4);
            while group.len() < 4 {
                let mut byte = [0];
                self.file.read_exact(&mut byte)?;
                if !byte[0].is_ascii_whitespace() {
                    group.push(byte[0]);
                }
            }
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(&group);
            self.ready.extend(bytes.ok().ok_or_else(damaged)?);
        }
        let rest = self.ready.split_off(count);
        Ok(std::mem::replace(&mut self.ready, rest))
    }

    fn number(&mut self) -> io::Result<u32> {
        let bytes = self.exact(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().ok().ok_or_else(damaged)?))
    }

    fn string(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()?;
        if length > PART_MAX {
            return Err(damaged());
        }
        self.exact(length as usize)
    }
}
