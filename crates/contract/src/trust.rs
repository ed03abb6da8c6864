//! The files that make programs inside trust the run's CA, and the variables that name them.

use serde::Serialize;

/// A file with CA certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustFile {
    /// The machine's CAs and the run's CA, as PEM.
    Bundle,
    /// The run's CA alone, as PEM, for programs that add it to their own.
    Authority,
    /// The same as the bundle, as a Java keystore.
    Keystore,
}

/// A variable that makes a program read one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustVariable {
    pub name: &'static str,
    /// The file that it names.
    pub file: TrustFile,
    /// Text before the file's path.
    prefix: &'static str,
    /// The programs that read it.
    pub why: &'static str,
}

impl TrustFile {
    /// Its file name.
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
    /// The value of the variable if the file has this path inside.
    #[must_use]
    pub fn value(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

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
