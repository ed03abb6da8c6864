//! Parses the data that an agent is asked to sign: a user's login, or a message such as a commit.

use super::wire::Reader;

const MAGIC: &[u8] = b"SSHSIG";
const USERAUTH_REQUEST: u8 = 50;
const PLAIN: &[u8] = b"publickey";
const HOST_BOUND: &[u8] = b"publickey-hostbound-v00@openssh.com";

/// Data to sign, parsed to its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signable<'a> {
    Login(Login<'a>),
    Message(Message<'a>),
}

/// A login as `user` in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Login<'a> {
    pub session: &'a [u8],
    pub user: &'a [u8],
    pub service: &'a [u8],
    pub algorithm: &'a [u8],
    pub key: &'a [u8],
    /// The host's key, if the method includes it.
    pub host_key: Option<&'a [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub namespace: &'a [u8],
}

impl<'a> Signable<'a> {
    /// Parses the data. It cannot be both: as a login, the magic word would be a length of more than a gigabyte.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        match data.strip_prefix(MAGIC) {
            Some(rest) => message(rest).map(Signable::Message),
            None => login(data).map(Signable::Login),
        }
    }
}

fn login(data: &[u8]) -> Option<Login<'_>> {
    let mut reader = Reader::new(data);
    let session = reader.string()?;
    if reader.byte()? != USERAUTH_REQUEST {
        return None;
    }
    let (user, service, method) = (reader.string()?, reader.string()?, reader.string()?);
    // This byte says whether a signature follows; without one there is nothing to sign.
    if reader.byte()? != 1 {
        return None;
    }
    let (algorithm, key) = (reader.string()?, reader.string()?);
    let host_key = match method {
        PLAIN => None,
        HOST_BOUND => Some(reader.string()?),
        _ => return None,
    };
    reader.end()?;
    Some(Login { session, user, service, algorithm, key, host_key })
}

fn message(rest: &[u8]) -> Option<Message<'_>> {
    let mut reader = Reader::new(rest);
    let (namespace, reserved) = (reader.string()?, reader.string()?);
    let (hash, digest) = (reader.string()?, reader.string()?);
    reader.end()?;
    let length = match hash {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    (reserved.is_empty() && digest.len() == length).then_some(Message { namespace })
}

#[cfg(test)]
mod tests {
    use super::super::wire::Writer;
    use super::*;

    fn login_bytes(login: &Login<'_>, method: &[u8]) -> Vec<u8> {
        let out = Writer::default()
            .string(login.session)
            .byte(USERAUTH_REQUEST)
            .string(login.user)
            .string(login.service)
            .string(method)
            .byte(1)
            .string(login.algorithm)
            .string(login.key);
        login.host_key.into_iter().fold(out, Writer::string).finish()
    }

    fn message_bytes(namespace: &[u8], reserved: &[u8], hash: &[u8], digest: &[u8]) -> Vec<u8> {
        let rest = Writer::default().string(namespace).string(reserved).string(hash).string(digest).finish();
        [MAGIC, &rest].concat()
    }

    const LOGIN: Login<'static> = Login {
        session: b"session",
        user: b"git",
        service: b"ssh-connection",
        algorithm: b"ssh-ed25519",
        key: b"key",
        host_key: None,
    };

    #[test]
    fn logins_are_read_to_the_last_byte() {
        let bound = Login { host_key: Some(b"host"), ..LOGIN };
        for (login, method) in [(LOGIN, PLAIN), (bound, HOST_BOUND)] {
            let bytes = login_bytes(&login, method);
            assert_eq!(Signable::parse(&bytes), Some(Signable::Login(login)));
            for length in 0..bytes.len() {
                assert_eq!(Signable::parse(&bytes[..length]), None);
            }
            assert_eq!(Signable::parse(&[&bytes[..], &[0]].concat()), None);
        }
        for (login, method) in
            [(bound, PLAIN), (LOGIN, HOST_BOUND), (LOGIN, b"password"), (LOGIN, b"hostbased")]
        {
            assert_eq!(Signable::parse(&login_bytes(&login, method)), None);
        }
    }

    #[test]
    fn messages_are_read_to_the_last_byte() {
        let bytes = message_bytes(b"git", b"", b"sha512", &[7; 64]);
        assert_eq!(Signable::parse(&bytes), Some(Signable::Message(Message { namespace: b"git" })));
        for length in 0..bytes.len() {
            assert_eq!(Signable::parse(&bytes[..length]), None);
        }
        for bytes in [
            message_bytes(b"git", b"x", b"sha512", &[7; 64]),
            message_bytes(b"git", b"", b"sha512", &[7; 32]),
            message_bytes(b"git", b"", b"sha1", &[7; 20]),
            [&bytes[..], &[0]].concat(),
        ] {
            assert_eq!(Signable::parse(&bytes), None);
        }
    }

    #[test]
    fn fuzz_ssh_userauth() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let magic = [MAGIC, bytes].concat();
            let third = bytes.len() / 3;
            let strings = Writer::default()
                .string(&bytes[..third])
                .byte(USERAUTH_REQUEST)
                .string(b"git")
                .string(b"ssh-connection")
                .string(if third.is_multiple_of(2) { PLAIN } else { HOST_BOUND })
                .byte(1)
                .finish();
            for data in [bytes, &magic, &[&strings, &bytes[third..]].concat()] {
                match Signable::parse(data) {
                    Some(Signable::Login(login)) => {
                        let method = if login.host_key.is_some() { HOST_BOUND } else { PLAIN };
                        assert_eq!(login_bytes(&login, method), data, "a login has one spelling");
                    }
                    Some(Signable::Message(message)) => {
                        assert!(data.starts_with(MAGIC) && message.namespace.len() < data.len());
                    }
                    None => {}
                }
            }
        });
    }
}
