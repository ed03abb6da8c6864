//! The files that make programs inside trust the authority of the run, and the variables that name them.

use serde::Serialize;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustFile {
    /// The machine's authorities and the run's, as PEM.
    Bundle,
    /// The run's authority alone, as PEM, for programs that add to what they have.
    Authority,
    /// The same as the bundle, as Java keeps it.
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

impl TrustFile {
    /// Its name in a folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TrustFile::Bundle => "bundle.pem",
            TrustFile::Authority => "authority.pem",
            TrustFile::Keystore => "java.jks",
        }
    }
}

impl TrustVariable {
    /// The value, when the file is at this path inside.
    #[must_use]
    pub fn value(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
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
