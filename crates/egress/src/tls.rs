//! The TLS client: which CAs are trusted, and the handshake with a host whose address was checked.
//!
//! Types of rustls stay in this module and in [`crate::intercept`]; the rest of the crate sees streams.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// CA certificates that are trusted in addition to those of the machine, such as a company's or a test's.
#[derive(Debug, Default, Clone)]
pub struct ExtraRoots(pub Vec<CertificateDer<'static>>);

impl ExtraRoots {
    /// The certificates of a PEM file. Other parts of it are skipped.
    ///
    /// # Errors
    /// When the text is not PEM, or has no certificate.
    pub fn from_pem(text: &[u8]) -> Result<Self, NotPem> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        found.ok().filter(|list| !list.is_empty()).map(Self).ok_or(NotPem)
    }
}

/// A file of CA certificates without a certificate in PEM form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected certificates in PEM form")]
pub struct NotPem;

/// The CA certificates that this machine trusts, for the bundle of programs in the sandbox.
#[must_use]
pub fn machine_roots() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The cryptography of all TLS here. AES-128 comes before AES-256, as in browsers: it takes less processor time for bytes in
/// bulk, and no attack on it is known to be practical.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let first = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    provider.cipher_suites.sort_by_key(|suite| !first.contains(&suite.suite()));
    Arc::new(provider)
}

/// The protocols that a handshake offers with ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// HTTP/2, then HTTP/1.1.
    Http2And1,
    Http1,
}

/// The protocol that the host chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenProtocol {
    Http2,
    /// HTTP/1.1, also if the host did not choose.
    Http1,
}

/// Why a TLS client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsClientError {
    /// Neither this machine nor the build has a CA certificate.
    #[error("this machine has no trusted CA certificates")]
    NoRoots,
    /// rustls rejected its default settings.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

#[derive(Debug, Clone)]
pub struct TlsClient {
    http2: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts the CAs of this machine, or the well-known ones if it has none, and `extra`.
    ///
    /// # Errors
    /// When no CA is trusted, or TLS cannot be set up.
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

    /// Performs the TLS handshake with the host `name` on a connected stream.
    ///
    /// # Errors
    /// When the host's certificate is not valid, or the connection ends.
    pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: ServerName<'static>,
        offer: Offer,
    ) -> io::Result<(TlsStream<S>, ChosenProtocol)> {
        let config = match offer {
            Offer::Http2And1 => &self.http2,
            Offer::Http1 => &self.http1,
        };
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        let chosen = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => ChosenProtocol::Http2,
            Some(_) | None => ChosenProtocol::Http1,
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
