//! TLS interception for the hosts whose requests are checked, or get a credential that the sandbox must not see.
//!
//! TLS to all other hosts passes through unchanged. In an intercepted tunnel the name of the tunnel, the server name of the
//! TLS handshake and the host of each request have to agree. Each request is checked against the rules; then the
//! credential is added, for its own destination and in its own header only. Credentials are redacted from responses,
//! whatever the host did with them.

mod body;
mod ca;
mod counted;
mod credential;
mod head;
mod host_client;
mod service;
mod trust;

pub use ca::{CaError, CertificateAuthority};
pub use credential::{CredentialError, HostCredential, ValuePart};
pub use trust::{TrustBundle, trust_bundle};

use crate::proxy::{Intercept, Tunnel, TunnelEnd};
use crate::tls::TlsClient;
use belljar_contract::{Destination, EgressRule, Host, HostName, HostTarget, Scrubber, requests_matter};
use credential::BoundCredential;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Size of the read buffer under TLS, which by itself reads 4 KiB at a time.
const READ_AHEAD: usize = 64 << 10;

/// The most of a body that is forwarded at once. More is not faster, and the allocator reuses blocks of this size
/// instead of returning them to the system.
const PIECE: usize = 128 << 10;

/// Timeouts towards the host and the client.
#[derive(Debug, Clone, Copy)]
pub struct InterceptTimeouts {
    /// For connecting, and for each handshake.
    pub dial: Duration,
    /// For the head of a response, from the first byte of the request.
    pub answer: Duration,
    /// For the next piece of a body.
    pub stall: Duration,
}

impl Default for InterceptTimeouts {
    /// Long enough for a response that takes a model minutes.
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(15),
            answer: Duration::from_secs(600),
            stall: Duration::from_secs(600),
        }
    }
}

/// Why interception cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum InterceptError {
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// Everything that an [`Interceptor`] needs.
pub struct Interception {
    pub rules: Vec<EgressRule>,
    pub credentials: Vec<HostCredential>,
    /// Signs the certificates that clients see.
    pub ca: Arc<CertificateAuthority>,
    /// The TLS client for connections to hosts.
    pub tls: TlsClient,
    pub timeouts: InterceptTimeouts,
}

/// Intercepts TLS tunnels.
pub struct Interceptor {
    shared: Arc<InterceptState>,
}

struct InterceptState {
    rules: Vec<EgressRule>,
    credentials: Vec<BoundCredential>,
    ca: Arc<CertificateAuthority>,
    tls: TlsClient,
    timeouts: InterceptTimeouts,
    scrubber: Arc<Scrubber>,
}

impl InterceptState {
    fn credentials_for<'s>(
        &'s self,
        destination: &'s Destination,
    ) -> impl Iterator<Item = &'s BoundCredential> {
        self.credentials.iter().filter(move |credential| credential.destination == *destination)
    }
}

impl Interceptor {
    /// Binds the credentials to their destinations.
    ///
    /// # Errors
    /// When a credential cannot be sent in a header, or could not be redacted from responses.
    pub fn new(interception: Interception) -> Result<Self, InterceptError> {
        let Interception { rules, credentials, ca, tls, timeouts } = interception;
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
        Ok(Self { shared: Arc::new(InterceptState { rules, credentials, ca, tls, timeouts, scrubber }) })
    }
}

/// The names that the CA has to sign for: those with a credential, and those whose requests are checked.
#[must_use]
pub fn intercepted_hosts(rules: &[EgressRule], credentials: &[HostCredential]) -> Vec<HostName> {
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
