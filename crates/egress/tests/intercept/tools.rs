//! Real programs accept the run's CA with the bundle, and refuse it without.

use crate::stage::{Stage, VALUE, bearer};
use crate::world::{Speaks, World};
use belljar_contract::{TrustFile, trust_variables};
use belljar_egress::intercept::trust_bundle;
use belljar_egress::tls::machine_roots;
use belljar_testkit::require;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that asks `https://api.test` for something.
struct Tool {
    /// The command line; `PROXY` and `PORT` are replaced by those of the front.
    command: Vec<String>,
    /// The path that it requests first.
    path: &'static str,
    /// Whether it succeeds with what it finds there.
    succeeds: bool,
    /// The variables of the bundle that it gets.
    variables: &'static [&'static str],
}

struct Bench {
    directory: tempfile::TempDir,
    stage: Stage,
    port: u16,
}

impl Bench {
    async fn new() -> Self {
        let world = World::start(&["api.test"], Speaks::Http1).await;
        let stage = Stage::new(&world, vec![crate::stage::allow("api.test")], vec![bearer("api.test:443")]);
        let port = stage.front().await.port();
        let directory = tempfile::tempdir().unwrap();
        let bundle = trust_bundle(&machine_roots(), stage.ca.certificate());
        fs::write(directory.path().join("bundle.pem"), &bundle.bundle).unwrap();
        fs::write(directory.path().join("authority.pem"), &bundle.ca).unwrap();
        fs::write(directory.path().join("java.jks"), &bundle.keystore).unwrap();
        Self { directory, stage, port }
    }

    fn file(&self, file: TrustFile) -> PathBuf {
        self.directory.path().join(match file {
            TrustFile::Bundle => "bundle.pem",
            TrustFile::Authority => "authority.pem",
            TrustFile::Keystore => "java.jks",
        })
    }

    /// Runs a command with these variables of the bundle only.
    async fn run(&self, command: &[String], variables: &[&str]) -> Output {
        let proxy = format!("http://127.0.0.1:{}", self.port);
        let words = |word: &String| word.replace("PROXY", &proxy).replace("PORT", &self.port.to_string());
        let mut words = command.iter().map(words);
        // The home directory of a user without settings; the search path is the machine's.
        let home = self.directory.path().join("home");
        fs::create_dir_all(&home).unwrap();
        let mut run = Command::new("timeout");
        run.arg("100").arg(words.next().unwrap()).args(words).current_dir(&home).env_clear();
        run.env("HOME", &home).env("PATH", std::env::var_os("PATH").unwrap()).env("HTTPS_PROXY", &proxy);
        // Version managers look in the home directory of the user who installed them.
        for name in ["PYENV_ROOT", "JAVA_HOME"] {
            if let Some(value) = std::env::var_os(name) {
                run.env(name, value);
            }
        }
        for variable in trust_variables().iter().filter(|variable| variables.contains(&variable.name)) {
            run.env(variable.name, variable.value(self.file(variable.file).to_str().unwrap()));
        }
        tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap()
    }
}

async fn accepts_with_the_bundle_and_not_without(tool: Tool) {
    let bench = Bench::new().await;
    try_out(&bench, tool).await;
}

async fn try_out(bench: &Bench, tool: Tool) {
    let without = bench.run(&tool.command, &[]).await;
    assert!(!without.status.success() && bench.stage.rows().is_empty(), "{:?}: {without:?}", tool.command);
    let with = bench.run(&tool.command, tool.variables).await;
    let rows = bench.stage.rows();
    // Some versions of a tool add a query of their own.
    let first = rows.first().and_then(|row| row.path.split('?').next());
    assert_eq!(first, Some(tool.path), "{:?}: {with:?}", tool.command);
    assert!(!tool.succeeds || with.status.success(), "{:?}: {with:?}", tool.command);
    let said = [with.stdout, with.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(VALUE));
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn curl() {
    require!(Curl);
    for variables in [&["CURL_CA_BUNDLE"][..], &["SSL_CERT_FILE"]] {
        for version in ["--http1.1", "--http2"] {
            let command = words(&["curl", "-sSf", version, "--max-time", "30", "https://api.test/x"]);
            accepts_with_the_bundle_and_not_without(Tool { command, path: "/x", succeeds: true, variables })
                .await;
        }
    }
}

#[tokio::test]
async fn git() {
    require!(Git);
    let command = words(&["git", "-c", "http.proxy=PROXY", "ls-remote", "https://api.test/repo.git"]);
    let tool = Tool { command, path: "/repo.git/info/refs", succeeds: true, variables: &["GIT_SSL_CAINFO"] };
    accepts_with_the_bundle_and_not_without(tool).await;
}

#[tokio::test]
async fn python() {
    require!(Python);
    let urllib = "import urllib.request as r, ssl\n\
                  c = ssl.create_default_context()\n\
                  c.verify_flags |= getattr(ssl, 'VERIFY_X509_STRICT', 0)\n\
                  print(r.urlopen('https://api.test/x', context=c, timeout=30).read())";
    let command = words(&["python3", "-c", urllib]);
    let tool = Tool { command, path: "/x", succeeds: true, variables: &["SSL_CERT_FILE"] };
    accepts_with_the_bundle_and_not_without(tool).await;
}

#[tokio::test]
async fn pip() {
    require!(Pip);
    // The client that pip contains: the same code, with CAs of its own.
    let requests =
        "from pip._vendor import requests; print(requests.get('https://api.test/x', timeout=30).text)";
    let command = words(&["python3", "-c", requests]);
    let tool = Tool { command, path: "/x", succeeds: true, variables: &["REQUESTS_CA_BUNDLE"] };
    accepts_with_the_bundle_and_not_without(tool).await;
    let pip = [
        "python3",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--retries",
        "0",
        "--index-url",
        "https://api.test/simple/",
        "nothing",
    ];
    let tool =
        Tool { command: words(&pip), path: "/simple/nothing/", succeeds: false, variables: &["PIP_CERT"] };
    accepts_with_the_bundle_and_not_without(tool).await;
}

#[tokio::test]
async fn node() {
    require!(Node);
    // Node's own client does not support proxies; agents create the tunnel like this.
    let script = "const http = require('http'), https = require('https');
        http.request({host: '127.0.0.1', port: PORT, method: 'CONNECT', path: 'api.test:443'})
            .on('connect', (_, socket) => https.get('https://api.test/x', {socket, agent: false}, answer => {
                answer.resume().on('end', () => process.exit(0));
            }).on('error', error => { console.error(error); process.exit(1); }))
            .end();";
    let command = words(&["node", "-e", script]);
    let tool = Tool { command, path: "/x", succeeds: true, variables: &["NODE_EXTRA_CA_CERTS"] };
    accepts_with_the_bundle_and_not_without(tool).await;
}

#[tokio::test]
async fn npm() {
    require!(Npm);
    let command = words(&[
        "npm",
        "ping",
        "--registry",
        "https://api.test/",
        "--https-proxy",
        "PROXY",
        "--fetch-retries",
        "0",
    ]);
    let tool = Tool { command, path: "/-/ping", succeeds: true, variables: &["NPM_CONFIG_CAFILE"] };
    accepts_with_the_bundle_and_not_without(tool).await;
}

#[tokio::test]
async fn cargo() {
    let bench = Bench::new().await;
    let project = bench.directory.path().join("project");
    fs::create_dir_all(project.join("src")).unwrap();
    fs::create_dir_all(project.join(".cargo")).unwrap();
    fs::write(project.join("src/lib.rs"), "").unwrap();
    let manifest = "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                    [dependencies]\nx = { version = \"1\", registry = \"here\" }\n";
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let config = "[registries.here]\nindex = \"sparse+https://api.test/index/\"\n[net]\nretry = 0\n";
    fs::write(project.join(".cargo/config.toml"), config).unwrap();
    let manifest = project.join("Cargo.toml");
    let script =
        format!("cd {} && exec {} fetch --manifest-path {}", show(&project), env!("CARGO"), show(&manifest));
    let command = words(&["sh", "-c", &script]);
    let tool =
        Tool { command, path: "/index/config.json", succeeds: false, variables: &["CARGO_HTTP_CAINFO"] };
    try_out(&bench, tool).await;
}

fn show(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn java() {
    require!(Java);
    let bench = Bench::new().await;
    let source = bench.directory.path().join("Get.java");
    let program = "public class Get {
        public static void main(String[] words) throws Exception {
            var connection = new java.net.URL(\"https://api.test/x\").openConnection();
            connection.setReadTimeout(30000);
            System.out.println(new String(connection.getInputStream().readAllBytes()));
        }
    }";
    fs::write(&source, program).unwrap();
    let command = words(&["java", "-Dhttps.proxyHost=127.0.0.1", "-Dhttps.proxyPort=PORT", show(&source)]);
    let tool = Tool { command, path: "/x", succeeds: true, variables: &["JAVA_TOOL_OPTIONS"] };
    try_out(&bench, tool).await;
}

/// OpenSSL reads the certificates and enforces the name constraints of the CA.
#[tokio::test]
async fn openssl() {
    require!(Openssl, Curl);
    let bench = Bench::new().await;
    let connect = |name: &str| {
        words(&[
            "sh",
            "-c",
            &format!(
                "openssl s_client -proxy 127.0.0.1:PORT -connect {name}:443 -servername {name} -verify_hostname {name} \
                 -x509_strict -verify_return_error -showcerts </dev/null"
            ),
        ])
    };
    let output = bench.run(&connect("api.test"), &["SSL_CERT_FILE"]).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("Verify return code: 0 (ok)"), "{output:?}");
    let authority = show(&bench.file(TrustFile::Authority)).to_owned();
    let output = bench.run(&words(&["openssl", "x509", "-in", &authority, "-noout", "-text"]), &[]).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in ["CA:TRUE, pathlen:0", "DNS:api.test", "Permitted:", "Excluded:", "ASN1 OID: prime256v1"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    // All files for programs in the sandbox are public.
    for file in fs::read_dir(bench.directory.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("PRIVATE"), "{}", path.display());
        }
    }
}
