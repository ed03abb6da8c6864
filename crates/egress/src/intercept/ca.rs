//! The certificate authority of one run. Its key is generated in memory, is never written anywhere, and ends with the run.

use aws_lc_rs::rand;
use belljar_contract::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use zeroize::{Zeroize, Zeroizing};

/// Clocks differ, so that a certificate is valid from a little before it was made.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// Validity of all certificates; no run lasts longer.
const VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Limit of the certificate cache: with a wildcard rule the agent can use any number of names.
const CERTIFICATES_MAX: usize = 256;

/// Why the CA cannot make a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// rcgen failed.
    #[error("cannot make a certificate for {what}")]
    Certificate {
        what: String,
        #[source]
        cause: rcgen::Error,
    },
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    Random,
    /// rustls rejected the certificate or key.
    #[error("TLS cannot be set up for {what}")]
    Tls {
        what: String,
        #[source]
        cause: rustls::Error,
    },
}

/// Signs certificates for the hosts of one run. Name constraints limit the CA to those hosts.
pub struct CertificateAuthority {
    params: CertificateParams,
    key: KeyPair,
    certificate: CertificateDer<'static>,
    pem: String,
    leaves: Mutex<HashMap<HostName, Arc<ServerConfig>>>,
}

impl CertificateAuthority {
    /// Makes a CA for these hosts and the names below them. Clients enforce the name constraints of its certificate.
    ///
    /// # Errors
    /// When a key or certificate cannot be made.
    pub fn new(hosts: &[HostName], now: SystemTime) -> Result<Self, CaError> {
        let failed = |cause| CaError::Certificate { what: "the run's CA".to_owned(), cause };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        let serial = serial()?;
        // Each run's CA has its own name, so that a client that meets two runs does not confuse their CAs.
        let name = serial
            .to_bytes()
            .iter()
            .take(4)
            .fold("belljar run ".to_owned(), |name, byte| format!("{name}{byte:02x}"));
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(serial);
        limit(&mut params, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: hosts.iter().map(|host| GeneralSubtree::DnsName(host.to_string())).collect(),
            // A kind of name without constraints is unrestricted, so that all addresses are excluded explicitly.
            excluded_subtrees: vec![
                GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
                GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
            ],
        });
        let certificate = params.self_signed(&key).map_err(failed)?;
        let pem = certificate.pem();
        Ok(Self { certificate: certificate.der().clone(), pem, params, key, leaves: Mutex::default() })
    }

    /// The CA certificate, which is public.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The CA certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The TLS server configuration with a certificate for this host.
    pub(super) fn server(&self, host: &HostName) -> Result<Arc<ServerConfig>, CaError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = leaves.get(host) {
            return Ok(Arc::clone(known));
        }
        if leaves.len() >= CERTIFICATES_MAX {
            leaves.clear();
        }
        let config = Arc::new(self.leaf(host)?);
        leaves.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }

    /// Serves a blocking connection as this host, with HTTP/1.1 only. For the hosts of `belljar prove` and of tests.
    ///
    /// # Errors
    /// When no certificate can be made, or the client aborts the handshake or rejects the certificate.
    pub fn answer_as(
        &self,
        host: &HostName,
        mut stream: std::net::TcpStream,
    ) -> std::io::Result<impl std::io::Read + std::io::Write + use<>> {
        let mut config = self.leaf(host).map_err(std::io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut session = rustls::ServerConnection::new(Arc::new(config)).map_err(std::io::Error::other)?;
        session.complete_io(&mut stream)?;
        Ok(rustls::StreamOwned::new(session, stream))
    }

    fn leaf(&self, host: &HostName) -> Result<ServerConfig, CaError> {
        let failed = |cause| CaError::Certificate { what: host.to_string(), cause };
        let refused = |cause| CaError::Tls { what: host.to_string(), cause };
        let mut key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        // A common name is limited to 64 characters, a host name is not. Clients use the subject alternative name.
        params.distinguished_name.push(DnType::CommonName, "belljar");
        params.subject_alt_names = vec![SanType::DnsName(host.as_str().try_into().map_err(failed)?)];
        params.serial_number = Some(serial()?);
        // The same validity as the CA, whenever the certificate is made.
        (params.not_before, params.not_after) = (self.params.not_before, self.params.not_after);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        let der = Zeroizing::new(key.serialize_der());
        key.zeroize();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.as_slice()));
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private).map_err(refused)?;
        let certified = CertifiedKey::new(vec![certificate.der().clone(), self.certificate.clone()], signer);
        let mut config = ServerConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // The client runs on this machine: the cipher that is fast here is fast for it too.
        config.ignore_client_order = true;
        Ok(config)
    }
}

impl Drop for CertificateAuthority {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CertificateAuthority(…)")
    }
}

/// A positive random serial number. Some clients refuse a serial number that they have already seen.
fn serial() -> Result<SerialNumber, CaError> {
    let mut bytes = [0_u8; 16];
    rand::fill(&mut bytes).map_err(|_unspecified| CaError::Random)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Sets the validity. rcgen's own dates are 1975 and 4096, which some clients refuse.
fn limit(params: &mut CertificateParams, now: SystemTime) {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + since + VALIDITY;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{ExtraRoots, Offer, TlsClient};
    use rustls::pki_types::ServerName;
    use tokio_rustls::TlsAcceptor;

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    async fn handshake(authority: &CertificateAuthority, name: &str) -> Result<(), String> {
        let (client, server) = tokio::io::duplex(64 << 10);
        let acceptor = TlsAcceptor::from(authority.server(&host(name)).unwrap());
        tokio::spawn(async move { acceptor.accept(server).await.is_ok() });
        let tls = TlsClient::new(&ExtraRoots(vec![authority.certificate().clone()])).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        tls.handshake(client, name, Offer::Http1).await.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_ca_can_sign_for_its_names_only() {
        let authority =
            CertificateAuthority::new(&[host("api.test"), host("b.test")], SystemTime::now()).unwrap();
        assert_eq!(handshake(&authority, "api.test").await, Ok(()));
        assert_eq!(handshake(&authority, "deep.b.test").await, Ok(()));
        let refused = handshake(&authority, "evil.test").await.unwrap_err();
        assert!(refused.contains("NameConstraintViolation"), "{refused}");
    }

    #[tokio::test]
    async fn certificates_expire_after_a_week() {
        let week = Duration::from_secs(7 * 24 * 3600);
        for (age, good) in [
            (Duration::ZERO, true),
            (week - Duration::from_secs(60), true),
            (week + Duration::from_secs(60), false),
        ] {
            let authority = CertificateAuthority::new(&[host("api.test")], SystemTime::now() - age).unwrap();
            let handshake = handshake(&authority, "api.test").await;
            assert_eq!(handshake.is_ok(), good, "{age:?}: {handshake:?}");
        }
    }

    #[test]
    fn certificates_are_cached_up_to_a_limit() {
        let authority = CertificateAuthority::new(&[host("test")], SystemTime::now()).unwrap();
        let first = authority.server(&host("a.test")).unwrap();
        assert!(Arc::ptr_eq(&first, &authority.server(&host("a.test")).unwrap()));
        for number in 0..CERTIFICATES_MAX + 10 {
            authority.server(&host(&format!("h{number}.test"))).unwrap();
        }
        assert!(authority.leaves.lock().unwrap().len() <= CERTIFICATES_MAX);
    }

    #[test]
    fn serial_numbers_differ_and_are_positive() {
        let numbers: std::collections::BTreeSet<Vec<u8>> =
            (0..100).map(|_| serial().unwrap().to_bytes()).collect();
        assert_eq!(numbers.len(), 100);
        assert!(numbers.iter().all(|number| number[0] & 0x80 == 0 && number[0] != 0));
    }
}
