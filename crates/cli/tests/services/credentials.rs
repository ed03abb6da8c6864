//! A credential that the manifest binds to a host: the host gets the value, the inside a placeholder.

use super::{log, one, plain, run_directory, with_names};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

const VALUE: &str = "ghp_real-0123456789-outside-only";
const PLACEHOLDER: &str = "stands-for-the-token";

/// A host that speaks TLS by a certificate of its own authority, and repeats what it is sent, also in base64.
struct TlsHost {
    port: u16,
    authority: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TlsHost {
    fn start(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::from_params(&params, &key);
        let own = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&own, &issuer);
        let private = rustls::pki_types::PrivatePkcs8KeyDer::from(own.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.unwrap().der().clone()], private)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (config, heard) = (Arc::new(config), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = rustls::StreamOwned::new(session, stream);
                let answer = |head: &str, _: &[u8]| {
                    heard.lock().unwrap().push(head.to_owned());
                    plain(&format!("{head}\nencoded: {}\n", encoded(VALUE)), "text/plain")
                };
                // A client that leaves in the middle is none of the server's business.
                one(&mut stream, &answer).ok();
                stream.conn.send_close_notify();
                stream.conn.complete_io(&mut stream.sock).ok();
            }
        });
        Self { port, authority, heads }
    }
}

fn encoded(text: &str) -> String {
    let output = Command::new("sh").args(["-c", "printf %s \"$0\" | base64 -w0", text]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A credential for `api.test`, and a second host that gets none.
struct World {
    stage: Stage,
    api: TlsHost,
    other: TlsHost,
}

impl World {
    fn new() -> Self {
        let (api, other) = (TlsHost::start("api.test"), TlsHost::start("other.test"));
        let (port, second) = (api.port, other.port);
        let stage = Stage::with(&format!(
            "[agents.a.env]\nAPI_TOKEN = \"{PLACEHOLDER}\"\n\
             [agents.a.egress]\nallow = [\"api.test:{port}\", \"other.test:{second}\", \"127.0.0.1:{port}\", \"127.0.0.1:{second}\"]\n\
             [[agents.a.credentials]]\nhost = \"api.test\"\nheader = \"Authorization\"\nvalue = \"Bearer ${{API_TOKEN}}\"\n"
        ));
        stage.write("roots.pem", format!("{}{}", api.authority, other.authority));
        Self { stage, api, other }
    }

    fn run(&self, script: &str) -> Finished {
        let mut command = super::named(
            &self.stage,
            "api.test other.test",
            "true",
            &["exec", "--yes", "--", "sh", "-c", script],
        );
        command.env("API_TOKEN", VALUE).env("SSL_CERT_FILE", self.stage.path("roots.pem"));
        self.stage.finish(&mut command)
    }

    /// What the host got, what came back, and what the run left.
    fn check(&self, found: &Finished) {
        assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
        let heads = std::mem::take(&mut *self.api.heads.lock().unwrap());
        let wanted = format!("authorization: bearer {}", VALUE.to_ascii_lowercase());
        assert_eq!(heads.len(), 1, "{heads:?}");
        let lower = heads[0].to_ascii_lowercase();
        assert!(lower.contains(&wanted) && !lower.contains(PLACEHOLDER), "{heads:?}");
        // Said back as it is and in base64, it is taken out of both.
        assert_eq!(found.stdout.matches("[redacted:").count(), 2, "{}", found.stdout);
        for text in [&found.stdout, &found.stderr] {
            assert!(!text.contains(VALUE) && !text.contains(&encoded(VALUE)), "{text}");
        }
        let left = Command::new("grep")
            .args(["-rlF", "-e", VALUE, "-e", &encoded(VALUE)])
            .args([run_directory(&self.stage), self.stage.path("data"), self.stage.path("project")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&left.stdout), "", "the value is in what the run left");
        assert!(
            log(&self.stage).iter().any(|row| row["decision"]["credential"] == "api.test Authorization"),
            "{:?}",
            log(&self.stage)
        );
    }
}

#[test]
fn the_host_gets_the_value_and_the_inside_only_its_placeholder() {
    require!(Bwrap, Curl, Python, Root);
    let world = World::new();
    let port = world.api.port;
    let clients = [
        format!("curl -sS -m 20 -H \"Authorization: Bearer $API_TOKEN\" https://api.test:{port}/"),
        // Without a word of the client's own about it.
        format!("curl -sS -m 20 https://api.test:{port}/"),
        format!(
            "python3 -c 'import os, urllib.request as u; r = u.Request(\"https://api.test:{port}/\", headers={{\"Authorization\": \"Bearer \" + os.environ[\"API_TOKEN\"]}}); print(u.urlopen(r).read().decode())'"
        ),
    ];
    for client in clients {
        let found = world.run(&format!("[ \"$API_TOKEN\" = {PLACEHOLDER} ] && {client}"));
        world.check(&found);
    }
    // Another host that is allowed gets what the client sends, and nothing else.
    let second = world.other.port;
    let found = world
        .run(&format!("curl -sS -m 20 -H \"Authorization: Bearer $API_TOKEN\" https://other.test:{second}/"));
    assert_ne!(
        found.status.code(),
        Some(0),
        "its authority is not trusted inside, because its TLS is not opened"
    );
    let found = world.run(&format!(
        "curl -sSk -m 20 -H \"Authorization: Bearer $API_TOKEN\" https://other.test:{second}/ > /dev/null"
    ));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let heads = world.other.heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.contains(PLACEHOLDER) && !head.contains(VALUE)), "{heads:?}");
    assert!(!heads.is_empty());
}

#[test]
fn node_gets_the_same_and_the_value_is_nowhere_inside() {
    require!(Bwrap, Node, Root);
    let world = World::new();
    let port = world.api.port;
    let found = world.run(&format!(
        "node -e 'fetch(\"https://api.test:{port}/\", {{headers: {{authorization: \"Bearer \" + process.env.API_TOKEN}}}})\
         .then(r => r.text()).then(console.log)'"
    ));
    world.check(&found);
    let found = world.run(&format!(
        "{{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; find / -xdev -type f -size -200k -not -path '/usr/*' \
         -not -path '/proc/*' -exec cat {{}} +; }} > seen.txt 2>/dev/null; grep -c {PLACEHOLDER} seen.txt"
    ));
    assert_eq!(found.status.code(), Some(0), "the search sees what is there: {}", found.stderr);
    let seen = std::fs::read(world.stage.path("project/seen.txt")).unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains(VALUE) && !seen.contains("PRIVATE KEY"));
}

#[test]
fn a_credential_that_is_not_there_stops_the_run_before_anything() {
    require!(Bwrap, Root);
    let world = World::new();
    let found = with_names(&world.stage, "api.test", &["exec", "--yes", "--", "touch", "made"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("the variable `API_TOKEN` is not set in this shell"), "{}", found.stderr);
    assert!(!world.stage.path("project/made").exists());
}
