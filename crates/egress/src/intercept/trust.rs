//! Makes the programs inside trust the run's authority, besides the authorities of the machine.

mod keystore;

use rustls::pki_types::CertificateDer;

/// Files that programs inside read. None of them holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// The machine's authorities and the run's, as PEM.
    pub bundle: String,
    /// The run's authority alone, as PEM, for programs that add to what they have.
    pub authority: String,
    /// The same as the bundle, as Java keeps it.
    pub keystore: Vec<u8>,
}

/// Joins the machine's authorities and the run's.
#[must_use]
pub fn trust_bundle(machine: &[CertificateDer<'_>], authority: &CertificateDer<'_>) -> TrustBundle {
    let all: Vec<&CertificateDer<'_>> = machine.iter().chain([authority]).collect();
    TrustBundle {
        bundle: all.iter().map(|certificate| pem(certificate)).collect(),
        authority: pem(authority),
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
