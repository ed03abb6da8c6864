//! A key that never leaves this machine. The value behind a digest made with it cannot be guessed from the digest, even
//! if there are few possible values.

use aws_lc_rs::hmac;
use belljar_contract::AbsPath;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use zeroize::Zeroizing;

/// The name of the key in belljar's state directory.
pub(crate) const KEY_FILE: &str = "digest.key";
const KEY_BYTES: usize = 32;

pub(crate) type MachineKey = Zeroizing<[u8; KEY_BYTES]>;

/// The key, if it exists. A key that others can read is refused: it would make digests guessable.
pub(crate) fn read_key(state: &AbsPath) -> io::Result<Option<MachineKey>> {
    let path = state.child(KEY_FILE);
    let mut options = File::options();
    options.read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = match options.open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("`{path}` must be a file that only its owner can read")));
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    (&file).read_exact(&mut key[..])?;
    Ok(Some(key))
}

/// Creates the key. Two processes that do so at the same time get the same key.
fn make_key(state: &AbsPath) -> io::Result<MachineKey> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    // Created with permissions for its owner alone.
    let mut draft = tempfile::NamedTempFile::new_in(state)?;
    draft.write_all(&Zeroizing::new(random::<KEY_BYTES>()?)[..])?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(state.child(KEY_FILE)) {
        Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => return Err(failed.error),
        Ok(_) | Err(_) => {}
    }
    read_key(state)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == N { Ok(bytes) } else { Err(io::Error::other("the kernel gave too few random bytes")) }
}

/// The key; it is created if it does not exist.
pub(crate) fn machine_key(state: &AbsPath) -> io::Result<MachineKey> {
    match read_key(state)? {
        Some(key) => Ok(key),
        None => make_key(state),
    }
}

/// HMAC-SHA-256 of the parts of a message.
pub(crate) fn keyed(key: &[u8], message: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    message.iter().for_each(|part| context.update(part));
    let mut out = [0; 32];
    out.copy_from_slice(context.sign().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = AbsPath::new(directory.path().join("state")).unwrap();
        let first = make_key(&state).unwrap();
        assert_eq!(*make_key(&state).unwrap(), *first);
        let path = state.child(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "no draft is left");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, open).unwrap();
        read_key(&state).unwrap_err();
    }
}
