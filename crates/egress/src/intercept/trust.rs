//! Files that make programs in the sandbox trust the run's CA as well as the CAs of the machine.

mod keystore;

use rustls::pki_types::CertificateDer;

/// Files for programs in the sandbox. None of them holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// The machine's CA certificates and the run's, as PEM.
    pub bundle: String,
    /// The run's CA certificate alone, as PEM, for programs that add it to their own list.
    pub ca: String,
    /// The same certificates as the bundle, as a Java keystore.
    pub keystore: Vec<u8>,
}

/// Combines the machine's CA certificates and the run's.
#[must_use]
pub fn trust_bundle(machine: &[CertificateDer<'_>], ca: &CertificateDer<'_>) -> TrustBundle {
    let all: Vec<&CertificateDer<'_>> = machine.iter().chain([ca]).collect();
    TrustBundle {
        bundle: all.iter().map(|certificate| pem(certificate)).collect(),
        ca: pem(ca),
        keystore: keystore::keystore(&all),
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    lines.fold("-----BEGIN CERTIFICATE-----\n".to_owned(), |pem, line| pem + &line)
        + "-----END CERTIFICATE-----\n"
}
