//! An npm registry on the loopback, as much of one as an installation asks for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_runner::agents::Platform;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use tar::{Builder, EntryType, Header};

pub const PACKAGE: &str = "@anthropic-ai/claude-code";

/// The package of this machine's platform.
pub fn platform_package() -> String {
    format!("{PACKAGE}-linux-{}", Platform::here().cpu)
}

/// The path of a package's metadata.
pub fn at(package: &str) -> String {
    format!("/{}", package.replace('/', "%2f"))
}

/// The path of the archive of a version.
pub fn archive_at(version: &str) -> String {
    format!("/archives/{version}.tgz")
}

/// Entries of an archive: name, kind and content.
pub fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    packed(entries, Compression::fast())
}

fn packed(entries: &[(&str, EntryType, &[u8])], how: Compression) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), how));
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        // As it is: the library would refuse some of these names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

pub fn integrity(bytes: &[u8]) -> String {
    format!("sha512-{}", STANDARD.encode(Sha512::digest(bytes)))
}

#[derive(Clone)]
pub enum Answer {
    Whole(Vec<u8>),
    /// The head promises this many bytes.
    Claims(Vec<u8>, u64),
    /// The head, these bytes, and then nothing until the registry is released.
    Stalls(Vec<u8>),
    Redirect(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub path: String,
    pub authorization: Option<String>,
}

/// It serves until the test ends.
pub struct Registry {
    /// Where it listens.
    pub address: String,
    /// The beginning of the addresses of archives.
    base: String,
    shelf: Arc<Shelf>,
}

#[derive(Default)]
struct Shelf {
    served: Mutex<BTreeMap<String, Answer>>,
    heard: Mutex<Vec<Heard>>,
    arrived: Condvar,
    released: Mutex<bool>,
    release: Condvar,
}

impl Registry {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(listener, base, |shelf, mut stream| shelf.answer(&mut stream))
    }

    /// The same with TLS, under a name that only a proxy knows; also returns the certificate of its CA.
    pub fn start_secured(name: &str) -> (Self, String) {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![own.cert.der().clone()], key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = Self::serve(listener, format!("https://{name}"), move |shelf, stream| {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream);
            shelf.answer(&mut stream);
            stream.conn.send_close_notify();
            // The client may have closed the connection.
            stream.flush().ok();
        });
        (registry, own.cert.pem())
    }

    fn serve(
        listener: TcpListener,
        base: String,
        answer: impl Fn(&Shelf, TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let shelf = Arc::new(Shelf::default());
        let (own, answer) = (Arc::clone(&shelf), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shelf, answer) = (Arc::clone(&own), Arc::clone(&answer));
                std::thread::spawn(move || answer(&shelf, stream.unwrap()));
            }
        });
        Self { address, base, shelf }
    }

    pub fn url(&self) -> String {
        format!("{}/", self.base)
    }

    pub fn put(&self, path: &str, answer: Answer) {
        self.shelf.served.lock().unwrap().insert(path.to_owned(), answer);
    }

    /// Publishes versions with this program each; the last is the latest.
    pub fn publish(&self, versions: &[&str], program: &[u8]) {
        let bytes = archive(&[
            ("package/package.json", EntryType::Regular, b"{}"),
            ("package/claude", EntryType::Regular, program),
        ]);
        self.publish_archive(versions, &bytes, json!(integrity(&bytes)));
    }

    /// Publishes a version with a large program, which is not compressed.
    pub fn publish_large(&self, version: &str, program: &[u8]) {
        let bytes = packed(&[("package/claude", EntryType::Regular, program)], Compression::none());
        self.publish_archive(&[version], &bytes, json!(integrity(&bytes)));
    }

    /// The same with any archive, and any integrity for it.
    pub fn publish_archive(&self, versions: &[&str], bytes: &[u8], integrity: Value) {
        let platform = Platform::here();
        let main = |version: &&str| {
            let named = [(format!("{PACKAGE}-darwin-arm64"), *version), (platform_package(), *version)];
            ((*version).to_owned(), json!({"optionalDependencies": BTreeMap::from(named)}))
        };
        let own = |version: &&str| {
            let tarball = format!("{}{}", self.base, archive_at(version));
            let mut dist = json!({"tarball": tarball, "shasum": "80792ecdc90019b226e558dea6d10c6f7f03f29c"});
            if !integrity.is_null() {
                dist["integrity"] = integrity.clone();
            }
            let release = json!({"os": ["linux"], "cpu": [platform.cpu], "dist": dist});
            ((*version).to_owned(), release)
        };
        let document = |versions: BTreeMap<String, Value>, latest: &str| {
            let time = json!({latest: "2026-11-15T22:30:43.120Z"});
            let tags = json!({"latest": latest});
            Answer::Whole(
                json!({"dist-tags": tags, "versions": versions, "time": time}).to_string().into_bytes(),
            )
        };
        let latest = versions.last().unwrap();
        self.put(&at(PACKAGE), document(versions.iter().map(main).collect(), latest));
        self.put(&at(&platform_package()), document(versions.iter().map(own).collect(), latest));
        for version in versions {
            self.put(&archive_at(version), Answer::Whole(bytes.to_vec()));
        }
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.shelf.heard.lock().unwrap().clone()
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.heard().iter().filter(|heard| heard.path == path).count()
    }

    /// Waits until a path was asked for more often than `times`.
    pub fn wait_for(&self, path: &str, times: usize) {
        let heard = self.shelf.heard.lock().unwrap();
        let count = |heard: &[Heard]| heard.iter().filter(|heard| heard.path == path).count();
        drop(self.shelf.arrived.wait_while(heard, |heard| count(heard) <= times).unwrap());
    }

    /// Lets stalled answers go on: what they still owe is sent.
    pub fn release(&self) {
        *self.shelf.released.lock().unwrap() = true;
        self.shelf.release.notify_all();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shelf {
    fn answer(&self, stream: &mut (impl Read + Write)) {
        let head = head_of(stream);
        let mut lines = head.lines();
        let Some(request) = lines.next() else { return };
        let path = request.split(' ').nth(1).unwrap().to_owned();
        let authorization = header(&head, "authorization");
        self.heard.lock().unwrap().push(Heard { path: path.clone(), authorization });
        self.arrived.notify_all();
        let found = self.served.lock().unwrap().get(&path).cloned();
        let head = |status: &str, length: u64, more: &str| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n")
        };
        let (head, first, rest) = match found {
            Some(Answer::Whole(body)) => (head("200 OK", body.len() as u64, ""), body, Vec::new()),
            Some(Answer::Claims(body, length)) => (head("200 OK", length, ""), body, Vec::new()),
            Some(Answer::Stalls(body)) => {
                let half = body.len() / 2;
                (head("200 OK", body.len() as u64, ""), body[..half].to_vec(), body[half..].to_vec())
            }
            Some(Answer::Redirect(to)) => {
                (head("302 Found", 0, &format!("Location: {to}\r\n")), Vec::new(), Vec::new())
            }
            None => (head("404 Not Found", 0, ""), Vec::new(), Vec::new()),
        };
        // The client may have closed the connection.
        stream.write_all(head.as_bytes()).ok();
        stream.write_all(&first).ok();
        if !rest.is_empty() {
            let released = self.released.lock().unwrap();
            drop(self.release.wait_while(released, |released| !*released).unwrap());
            stream.write_all(&rest).ok();
        }
    }
}

/// The head of a request; nothing if the client closes the connection.
fn head_of(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn header(head: &str, wanted: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case(wanted).then(|| value.to_owned())
    })
}

/// The first line of a request to a proxy, and its credential.
type Asked = (String, Option<String>);

/// A proxy that connects every client with `to`, whatever name it asks for.
pub struct Proxy {
    pub address: String,
    pub heard: Arc<Mutex<Vec<Asked>>>,
}

impl Proxy {
    pub fn start(to: &Registry) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (to, own) = (to.address.clone(), Arc::clone(&heard));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let head = head_of(&mut client);
                let request = head.lines().next().unwrap_or_default().to_owned();
                own.lock().unwrap().push((request, header(&head, "proxy-authorization")));
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                let server = TcpStream::connect(&to).unwrap();
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    std::thread::spawn(move || {
                        // Either side may close the connection.
                        std::io::copy(&mut from, &mut to).ok();
                        to.shutdown(std::net::Shutdown::Write).ok();
                    });
                }
            }
        });
        Self { address, heard }
    }
}
