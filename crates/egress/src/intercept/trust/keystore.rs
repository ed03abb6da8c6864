//! Java's own keystore format (JKS, version 2). Every version of Java reads it, whatever the file is called: it recognises
//! the format by the first bytes.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustls::pki_types::CertificateDer;

/// The password for the digest at the end. The digest protects against damage only: every Java ships its list under this
/// password, and a list of certificates is not secret.
const CUSTOMARY_PASSWORD: &str = "changeit";

pub(super) fn keystore(certificates: &[&CertificateDer<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0xfeed_feed_u32.to_be_bytes());
    out.extend(2_u32.to_be_bytes());
    out.extend(u32::try_from(certificates.len()).unwrap_or(u32::MAX).to_be_bytes());
    for (index, certificate) in certificates.iter().enumerate() {
        // A trusted certificate: its alias, the time it was added (which nothing reads), its type and its bytes.
        out.extend(2_u32.to_be_bytes());
        text(&mut out, &format!("belljar-{index}"));
        out.extend(0_u64.to_be_bytes());
        text(&mut out, "X.509");
        out.extend(u32::try_from(certificate.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let password: Vec<u8> = CUSTOMARY_PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    digest.update(&password);
    digest.update(b"Mighty Aphrodite");
    digest.update(&out);
    out.extend_from_slice(digest.finish().as_ref());
    out
}

/// Writes ASCII text, preceded by its length.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
