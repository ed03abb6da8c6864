//! Opens TLS to the hosts whose requests are looked at, or get a credential that the sandbox must not see.
//!
//! Exactly those hosts: every other tunnel passes unopened. What comes in is held to one name from end to end (the
//! tunnel's, the one in the TLS handshake and the one in each request), each request is held to the rules, and the
//! credential is put in behind that, for its own destination and in its own header. What comes back has the values
//! taken out, whatever the other side did with them.

mod authority;
mod body;
mod counted;
mod credential;
mod head;
mod service;
mod trust;
mod upstream;

pub use authority::{Authority, AuthorityError};
pub use credential::{CredentialError, CredentialSpec, ValuePart};
pub use trust::{TrustBundle, trust_bundle};

use crate::proxy::{Intercept, Tunnel, TunnelEnd};
use crate::tls::TlsClient;
use belljar_contract::{Destination, EgressRule, Host, HostName, HostTarget, Scrubber, requests_matter};
use credential::BoundCredential;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Read from a socket at once. TLS alone asks for 4 KiB at a time.
const READ_AHEAD: usize = 64 << 10;

/// Of a body, the most that is passed on at once. More is not faster, and the allocator keeps blocks of this size for the
/// next instead of giving them back.
const PIECE: usize = 128 << 10;

/// How long the other side is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For a connection, and for each handshake.
    pub dial: Duration,
    /// For the head of an answer, from the first byte of the request.
    pub answer: Duration,
    /// For the next piece of a body.
    pub stall: Duration,
}

impl Default for Waits {
    /// Long enough for an answer that takes thinking.
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(15),
            answer: Duration::from_secs(600),
            stall: Duration::from_secs(600),
        }
    }
}

/// Why tunnels cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum InterceptError {
    /// A credential.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// What an [`Interceptor`] is made of.
pub struct Interception {
    /// The rules of the run.
    pub rules: Vec<EgressRule>,
    /// The credentials.
    pub credentials: Vec<CredentialSpec>,
    /// Signs for the hosts.
    pub authority: Arc<Authority>,
    /// TLS towards the world.
    pub tls: TlsClient,
    /// How long is waited.
    pub waits: Waits,
}

/// Opens tunnels.
pub struct Interceptor {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Vec<EgressRule>,
    credentials: Vec<BoundCredential>,
    authority: Arc<Authority>,
    tls: TlsClient,
    waits: Waits,
    scrubber: Arc<Scrubber>,
}

impl Shared {
    fn credentials_for<'s>(
        &'s self,
        destination: &'s Destination,
    ) -> impl Iterator<Item = &'s BoundCredential> {
        self.credentials.iter().filter(move |credential| credential.destination == *destination)
    }
}

impl Interceptor {
    /// Takes the rules and binds the credentials.
    ///
    /// # Errors
    /// When a credential cannot be sent, or could not be kept out of what comes back.
    pub fn new(interception: Interception) -> Result<Self, InterceptError> {
        let Interception { rules, credentials, authority, tls, waits } = interception;
        let credentials: Vec<BoundCredential> =
            credentials.into_iter().map(BoundCredential::new).collect::<Result<_, _>>()?;
        let secrets = credentials.iter().flat_map(|credential| {
            credential.secrets.iter().map(|secret| (credential.name.as_str(), secret.as_ref()))
        });
        let (scrubber, unsearched) = Scrubber::new(secrets);
        if let Some(one) = unsearched.into_iter().next() {
            return Err(CredentialError::Unsearchable { name: one.name }.into());
        }
        let scrubber = Arc::new(scrubber);
        Ok(Self { shared: Arc::new(Shared { rules, credentials, authority, tls, waits, scrubber }) })
    }
}

/// The names that an authority has to sign for: those with a credential, and those whose requests are looked at.
#[must_use]
pub fn intercepted_hosts(rules: &[EgressRule], credentials: &[CredentialSpec]) -> Vec<HostName> {
    let bound = credentials.iter().filter_map(|credential| match &credential.destination.host {
        Host::Name(name) => Some(name.clone()),
        Host::Address(_) => None,
    });
    let ruled =
        rules.iter().filter(|rule| rule.request.is_some()).filter_map(|rule| match &rule.host.target {
            HostTarget::Exact(name) | HostTarget::AnyUnder(name) => Some(name.clone()),
            HostTarget::Address(_) | HostTarget::Range(_) => None,
        });
    let mut hosts: Vec<HostName> = bound.chain(ruled).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

impl Intercept for Interceptor {
    fn wants(&self, destination: &Destination) -> bool {
        self.shared.credentials_for(destination).next().is_some()
            || requests_matter(&self.shared.rules, destination)
    }

    fn serve(&self, tunnel: Tunnel) -> Pin<Box<dyn Future<Output = TunnelEnd> + Send>> {
        Box::pin(service::serve(Arc::clone(&self.shared), tunnel))
    }
}
