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

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustFile {
    /// [`TrustBundle::bundle`].
    Bundle,
    /// [`TrustBundle::authority`].
    Authority,
    /// [`TrustBundle::keystore`].
    Keystore,
}

/// A variable that makes a program read one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustVariable {
    /// Its name.
    pub name: &'static str,
    /// The file that it names.
    pub file: TrustFile,
    /// What stands before the file's path.
    prefix: &'static str,
    /// Who reads it.
    pub why: &'static str,
}

impl TrustVariable {
    /// The value, when the file is at this path inside.
    #[must_use]
    pub fn value(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
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

/// The variables, each for the programs that read it.
#[must_use]
pub fn trust_variables() -> Vec<TrustVariable> {
    let bundle = |name, why| TrustVariable { name, file: TrustFile::Bundle, prefix: "", why };
    vec![
        bundle("SSL_CERT_FILE", "OpenSSL and what is built on it: Python, Ruby, wget; also Go and rustls"),
        bundle("CURL_CA_BUNDLE", "curl"),
        bundle("GIT_SSL_CAINFO", "git over https"),
        bundle("REQUESTS_CA_BUNDLE", "Python's requests, which brings authorities of its own"),
        bundle("PIP_CERT", "pip, which brings authorities of its own"),
        bundle("CARGO_HTTP_CAINFO", "cargo"),
        bundle("NPM_CONFIG_CAFILE", "npm"),
        TrustVariable {
            name: "NODE_EXTRA_CA_CERTS",
            file: TrustFile::Authority,
            prefix: "",
            why: "Node, which adds these to its own",
        },
        TrustVariable {
            name: "JAVA_TOOL_OPTIONS",
            file: TrustFile::Keystore,
            prefix: "-Djavax.net.ssl.trustStore=",
            why: "Java, which reads neither variables nor PEM files",
        },
    ]
}
