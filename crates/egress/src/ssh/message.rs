//! Messages of the ssh agent protocol.

use super::wire::{Reader, Writer};
use belljar_contract::SshPublicKey;

/// The longest frame that OpenSSH accepts.
pub(super) const FRAME_MAX: usize = 256 * 1024;
/// The extension that binds a connection to a host.
pub(super) const BIND: &[u8] = b"session-bind@openssh.com";

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;

/// A request, as far as the broker distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// List the keys.
    Identities,
    Sign(SignRequest<'a>),
    /// Bind the connection to a host.
    Bind(Bind<'a>),
    /// Another extension, by name.
    Extension(&'a [u8]),
    /// Another request, by number.
    Other(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignRequest<'a> {
    pub key: &'a [u8],
    pub data: &'a [u8],
    pub flags: u32,
}

/// The host's signature of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bind<'a> {
    pub host_key: &'a [u8],
    pub session: &'a [u8],
    pub signature: &'a [u8],
    pub forwarding: bool,
}

impl<'a> Request<'a> {
    /// Parses a frame without its length. `None` if the frame is incomplete or has extra bytes.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(frame);
        let request = match reader.byte()? {
            REQUEST_IDENTITIES => Request::Identities,
            SIGN_REQUEST => Request::Sign(SignRequest {
                key: reader.string()?,
                data: reader.string()?,
                flags: reader.number()?,
            }),
            EXTENSION => match reader.string()? {
                BIND => Request::Bind(Bind {
                    host_key: reader.string()?,
                    session: reader.string()?,
                    signature: reader.string()?,
                    forwarding: reader.byte()? != 0,
                }),
                name => return Some(Request::Extension(name)),
            },
            number => return Some(Request::Other(number)),
        };
        reader.end()?;
        Some(request)
    }
}

impl SignRequest<'_> {
    pub fn frame(&self) -> Vec<u8> {
        Writer::default().byte(SIGN_REQUEST).string(self.key).string(self.data).number(self.flags).frame()
    }
}

impl Bind<'_> {
    pub fn frame(&self) -> Vec<u8> {
        Writer::default()
            .byte(EXTENSION)
            .string(BIND)
            .string(self.host_key)
            .string(self.session)
            .string(self.signature)
            .byte(u8::from(self.forwarding))
            .frame()
    }
}

pub(super) fn failure() -> Vec<u8> {
    Writer::default().byte(FAILURE).frame()
}

pub(super) fn success() -> Vec<u8> {
    Writer::default().byte(SUCCESS).frame()
}

/// The response with the keys, each with a comment.
pub(super) fn identities(keys: &[(&SshPublicKey, &str)]) -> Vec<u8> {
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let head = Writer::default().byte(IDENTITIES).number(count);
    keys.iter().fold(head, |out, (key, name)| out.string(key.blob()).string(name.as_bytes())).frame()
}

pub(super) fn request_identities() -> Vec<u8> {
    Writer::default().byte(REQUEST_IDENTITIES).frame()
}

/// The keys in an agent's response, without those of unknown types; `None` if it is another response.
pub(super) fn parse_identities(frame: &[u8]) -> Option<Vec<SshPublicKey>> {
    let mut reader = Reader::new(frame);
    if reader.byte()? != IDENTITIES {
        return None;
    }
    let mut out = Vec::new();
    for _ in 0..reader.number()? {
        let (key, _comment) = (reader.string()?, reader.string()?);
        out.extend(SshPublicKey::from_blob(key));
    }
    Some(out)
}

/// The signature in an agent's response, framed for the client; `None` if there is none.
pub(super) fn pass_signature(frame: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(frame);
    if reader.byte()? != SIGN_RESPONSE {
        return None;
    }
    let signature = reader.string()?;
    reader.end()?;
    Some(Writer::default().byte(SIGN_RESPONSE).string(signature).frame())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(frame: &[u8]) -> &[u8] {
        &frame[4..]
    }

    #[test]
    fn requests_round_trip() {
        let sign = SignRequest { key: b"key", data: b"data", flags: 4 };
        assert_eq!(Request::parse(body(&sign.frame())), Some(Request::Sign(sign)));
        let bind = Bind { host_key: b"host", session: b"id", signature: b"signed", forwarding: true };
        assert_eq!(Request::parse(body(&bind.frame())), Some(Request::Bind(bind)));
        assert_eq!(Request::parse(body(&request_identities())), Some(Request::Identities));
        assert_eq!(Request::parse(&[17, 1, 2]), Some(Request::Other(17)));
        let other = Writer::default().byte(EXTENSION).string(b"query").byte(9).finish();
        assert_eq!(Request::parse(&other), Some(Request::Extension(b"query")));
    }

    #[test]
    fn incomplete_requests_and_extra_bytes_are_rejected() {
        let sign = SignRequest { key: b"key", data: b"data", flags: 4 }.frame();
        let bind =
            Bind { host_key: b"host", session: b"id", signature: b"signed", forwarding: false }.frame();
        for frame in [body(&sign), body(&bind), body(&request_identities())] {
            for length in 0..frame.len() {
                let cut = Request::parse(&frame[..length]);
                // A truncated extension name is another name.
                assert!(matches!(cut, None | Some(Request::Extension(_))), "{cut:?}");
            }
            assert_eq!(Request::parse(&[frame, &[0]].concat()), None);
        }
    }

    #[test]
    fn fuzz_ssh_agent_frames() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            for kind in [None, Some(SIGN_REQUEST), Some(EXTENSION), Some(IDENTITIES), Some(SIGN_RESPONSE)] {
                let frame: Vec<u8> = kind.into_iter().chain(bytes.iter().copied()).collect();
                match Request::parse(&frame) {
                    Some(Request::Sign(sign)) => assert_eq!(body(&sign.frame()), frame),
                    Some(Request::Bind(bind)) => {
                        assert_eq!(Request::parse(body(&bind.frame())), Some(Request::Bind(bind)));
                    }
                    Some(Request::Identities | Request::Extension(_) | Request::Other(_)) | None => {}
                }
                parse_identities(&frame);
                if let Some(passed) = pass_signature(&frame) {
                    assert_eq!(body(&passed), frame);
                }
            }
            let name = Writer::default().byte(EXTENSION).string(BIND).finish();
            Request::parse(&[&name, bytes].concat());
        });
    }
}
