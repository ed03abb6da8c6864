//! The decisions on one connection. They depend on the messages of the connection only, not on I/O or time.

use super::grant::SshGrant;
use super::message::{Bind, SignRequest};
use super::signable::{Login, Message, Signable};
use belljar_contract::SshPublicKey;

/// Session ids are digests of 20 to 64 bytes.
const SESSION_MAX: usize = 64;
const SESSION_MIN: usize = 20;
const SERVICE: &[u8] = b"ssh-connection";
/// The namespace of commits, tags and signed pushes.
const GIT: &[u8] = b"git";
/// How many bytes of untrusted text are quoted.
const SHOWN: usize = 64;

/// Flags that ask an agent for SHA-2 instead of SHA-1 with an RSA key.
const RSA_SHA2_256: u32 = 2;
const RSA_SHA2_512: u32 = 4;

/// Why a connection cannot be bound to a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindRefusal {
    /// The agent would be forwarded to the host.
    #[error("forwarding the agent to a host is not allowed")]
    Forwarded,
    #[error("the connection is already bound, or a binding was refused")]
    Again,
    #[error("no declared host has the key {0}")]
    UnknownHost(String),
    #[error("the session id must have 20 to 64 bytes")]
    Session,
    #[error("the host's signature of the session is invalid")]
    Signature,
}

/// Why a signature is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignRefusal {
    #[error("the key is not declared")]
    UnknownKey,
    #[error("the data to sign is neither a login nor a message")]
    Unreadable,
    #[error("the connection is not bound to a host; ssh before 8.9 cannot bind it")]
    Unbound,
    #[error("the connection's binding to a host was refused")]
    BindRefused,
    #[error("the login is for another session than the one that the host signed")]
    OtherSession,
    #[error("the login names another host than the one that signed the session")]
    OtherHost,
    #[error("the login names another key than the one that should sign")]
    OtherKey,
    #[error("the login is for the service `{0}` instead of `ssh-connection`")]
    Service(String),
    /// The algorithm does not fit the key, or is too weak.
    #[error("the algorithm `{0}` is not allowed for this key")]
    Algorithm(String),
    /// The host and the key are declared, but not for this user or not together.
    #[error("this key is not declared for `{0}` at this host")]
    User(String),
    #[error("messages in the namespace `{0}` are not signed")]
    Namespace(String),
    #[error("this key does not sign commits; set `sign_commits = true` in the entry to allow it")]
    Commits,
}

/// The host that a connection is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Binding {
    Unbound,
    Bound {
        host_key: SshPublicKey,
        session: Vec<u8>,
        frame: Vec<u8>,
    },
    /// A binding was refused. Nothing is signed on this connection any more.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Login,
    Commit,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Approved<'g> {
    pub grant: &'g SshGrant,
    pub purpose: Purpose,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct SigningGate<'g> {
    grants: &'g [SshGrant],
    binding: Binding,
}

impl<'g> SigningGate<'g> {
    pub fn new(grants: &'g [SshGrant]) -> Self {
        Self { grants, binding: Binding::Unbound }
    }

    /// The declared keys without duplicates; on a bound connection, those of its host.
    pub fn keys(&self) -> Vec<(&'g SshPublicKey, &'g str)> {
        let mut out: Vec<(&SshPublicKey, &str)> = Vec::new();
        for grant in self.grants.iter().filter(|grant| self.is_for(grant)) {
            if !out.iter().any(|(key, _)| **key == grant.key) {
                out.push((&grant.key, &grant.host));
            }
        }
        out
    }

    fn is_for(&self, grant: &SshGrant) -> bool {
        match &self.binding {
            Binding::Bound { host_key, .. } => knows(grant, host_key),
            Binding::Unbound | Binding::Refused => true,
        }
    }

    /// The bind request for the agent outside, which may also restrict keys to hosts.
    pub fn bind_frame(&self) -> Option<&[u8]> {
        match &self.binding {
            Binding::Bound { frame, .. } => Some(frame),
            Binding::Unbound | Binding::Refused => None,
        }
    }

    /// Binds the connection to a host. This is possible only once.
    pub fn bind(&mut self, bind: &Bind<'_>) -> Result<(), BindRefusal> {
        let decided = self.check_bind(bind);
        self.binding = match &decided {
            Ok(host_key) => Binding::Bound {
                host_key: host_key.clone(),
                session: bind.session.to_vec(),
                frame: bind.frame(),
            },
            Err(_) => Binding::Refused,
        };
        decided.map(drop)
    }

    fn check_bind(&self, bind: &Bind<'_>) -> Result<SshPublicKey, BindRefusal> {
        if bind.forwarding {
            return Err(BindRefusal::Forwarded);
        }
        if self.binding != Binding::Unbound {
            return Err(BindRefusal::Again);
        }
        if !(SESSION_MIN..=SESSION_MAX).contains(&bind.session.len()) {
            return Err(BindRefusal::Session);
        }
        let pinned = self.grants.iter().flat_map(|grant| &grant.host_keys);
        let Some(key) = pinned.into_iter().find(|key| key.public().blob() == bind.host_key) else {
            let named = SshPublicKey::from_blob(bind.host_key).map(|key| key.fingerprint());
            return Err(BindRefusal::UnknownHost(named.unwrap_or_else(|_| "(invalid)".to_owned())));
        };
        if !key.verifies(bind.session, bind.signature) {
            return Err(BindRefusal::Signature);
        }
        Ok(key.public().clone())
    }

    pub fn sign(&self, request: &SignRequest<'_>) -> Result<Approved<'g>, SignRefusal> {
        let with_key: Vec<&SshGrant> =
            self.grants.iter().filter(|grant| grant.key.blob() == request.key).collect();
        let key = &with_key.first().ok_or(SignRefusal::UnknownKey)?.key;
        match Signable::parse(request.data).ok_or(SignRefusal::Unreadable)? {
            Signable::Login(login) => {
                check_algorithm(key, login.algorithm, request.flags)?;
                let grant = self.check_login(&login, request, &with_key)?;
                Ok(Approved { grant, purpose: Purpose::Login })
            }
            Signable::Message(message) => {
                let grant = self.check_message(&message, &with_key)?;
                check_message_algorithm(key, request.flags)?;
                Ok(Approved { grant, purpose: Purpose::Commit })
            }
        }
    }

    fn check_login(
        &self,
        login: &Login<'_>,
        request: &SignRequest<'_>,
        with_key: &[&'g SshGrant],
    ) -> Result<&'g SshGrant, SignRefusal> {
        let (host_key, session) = match &self.binding {
            Binding::Unbound => return Err(SignRefusal::Unbound),
            Binding::Refused => return Err(SignRefusal::BindRefused),
            Binding::Bound { host_key, session, frame: _ } => (host_key, session),
        };
        if login.session != session {
            return Err(SignRefusal::OtherSession);
        }
        if login.host_key.is_some_and(|named| named != host_key.blob()) {
            return Err(SignRefusal::OtherHost);
        }
        if login.key != request.key {
            return Err(SignRefusal::OtherKey);
        }
        if login.service != SERVICE {
            return Err(SignRefusal::Service(shown(login.service)));
        }
        let allowed = with_key
            .iter()
            .find(|grant| knows(grant, host_key) && grant.user.as_bytes() == login.user)
            .copied();
        allowed.ok_or_else(|| SignRefusal::User(shown(login.user)))
    }

    /// Messages are signed on unbound connections only: a bound connection may be under the control of the host.
    fn check_message(
        &self,
        message: &Message<'_>,
        with_key: &[&'g SshGrant],
    ) -> Result<&'g SshGrant, SignRefusal> {
        if self.binding != Binding::Unbound {
            return Err(SignRefusal::BindRefused);
        }
        if message.namespace != GIT {
            return Err(SignRefusal::Namespace(shown(message.namespace)));
        }
        with_key.iter().find(|grant| grant.sign_commits).copied().ok_or(SignRefusal::Commits)
    }
}

fn knows(grant: &SshGrant, host_key: &SshPublicKey) -> bool {
    grant.host_keys.iter().any(|known| known.public() == host_key)
}

/// The algorithm that the login names must be the one that the agent will use. SHA-1 is refused.
fn check_algorithm(key: &SshPublicKey, named: &[u8], flags: u32) -> Result<(), SignRefusal> {
    let wanted: &[(&str, u32)] = match key.algorithm() {
        "ssh-rsa" => &[("rsa-sha2-256", RSA_SHA2_256), ("rsa-sha2-512", RSA_SHA2_512)],
        own => &[(own, 0)],
    };
    let fits = wanted.iter().any(|(name, flag)| name.as_bytes() == named && *flag == flags);
    if fits { Ok(()) } else { Err(SignRefusal::Algorithm(shown(named))) }
}

/// A message does not name its algorithm; the flags do.
fn check_message_algorithm(key: &SshPublicKey, flags: u32) -> Result<(), SignRefusal> {
    let fits = match key.algorithm() {
        "ssh-rsa" => matches!(flags, RSA_SHA2_256 | RSA_SHA2_512),
        _ => flags == 0,
    };
    if fits { Ok(()) } else { Err(SignRefusal::Algorithm(key.algorithm().to_owned())) }
}

/// Untrusted text, shortened and on one line.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes));
    text.escape_debug().to_string()
}
