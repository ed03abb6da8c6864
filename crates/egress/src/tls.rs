//! TLS towards the world: which authorities are trusted, and the handshake with a host whose address was checked.
//!
//! Types of rustls stay in this module and in the one that intercepts; the rest of the crate sees streams.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Authorities that are trusted besides those of the machine, such as a company's or a test's.
#[derive(Debug, Default, Clone)]
pub struct ExtraRoots(pub Vec<rustls::pki_types::CertificateDer<'static>>);

/// The authorities that this machine trusts, for the bundle that programs inside get; none where it names none.
#[must_use]
pub fn machine_roots() -> Vec<rustls::pki_types::CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The cryptography of all TLS here. AES-128 comes before AES-256, as in browsers: it takes less processor time for bytes in
/// bulk, and no attack on it is known to be practical.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 0,
        _ => 1,
    });
    Arc::new(provider)
}

/// The protocols that are offered in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// HTTP/2, then HTTP/1.1.
    Http2And1,
    /// HTTP/1.1 alone.
    Http1,
}

/// The protocol that the other side chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// HTTP/2.
    Http2,
    /// HTTP/1.1, or nothing was said.
    Http1,
}

/// Why a TLS client cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsClientError {
    /// Neither this machine nor the build knows an authority.
    #[error("no certificate authority is trusted on this machine")]
    NoRoots,
    /// The library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// Speaks TLS to hosts.
#[derive(Debug, Clone)]
pub struct TlsClient {
    http2: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts what this machine trusts, the well-known authorities where it names none, and `extra`.
    ///
    /// # Errors
    /// When nothing is trusted, or TLS cannot be set up.
    pub fn new(extra: &ExtraRoots) -> Result<Self, TlsClientError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(machine_roots());
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        roots.add_parsable_certificates(extra.0.iter().cloned());
        if roots.is_empty() {
            return Err(TlsClientError::NoRoots);
        }
        let plain = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsClientError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let offering = |protocols: &[&[u8]]| {
            let mut config = plain.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self { http2: offering(&[b"h2", b"http/1.1"]), http1: offering(&[b"http/1.1"]) })
    }

    /// Makes a connection that was dialled speak TLS, as `name`.
    ///
    /// # Errors
    /// When the other side is not who it should be, or breaks off.
    pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: ServerName<'static>,
        offer: Offer,
    ) -> io::Result<(TlsStream<S>, Chosen)> {
        let config = match offer {
            Offer::Http2And1 => &self.http2,
            Offer::Http1 => &self.http1,
        };
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        let chosen = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Chosen::Http2,
            Some(_) | None => Chosen::Http1,
        };
        Ok((stream, chosen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_is_preferred() {
        let preferred = provider().cipher_suites.first().map(|suite| suite.suite());
        assert_eq!(preferred, Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
    }
}
