//! A registry of images on the loopback, as much of one as an engine asks for.

use belljar_contract::Digest;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// It serves until the test ends.
pub struct Registry {
    pub address: String,
    shelf: Arc<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// What is served, with its kind, by its path.
    served: Mutex<BTreeMap<String, (&'static str, Vec<u8>)>>,
    heard: Mutex<Vec<String>>,
    /// Whether blobs are kept back.
    kept_back: Mutex<bool>,
    released: Condvar,
}

impl Registry {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shelf = Arc::new(Shelf::default());
        let own = Arc::clone(&shelf);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shelf = Arc::clone(&own);
                std::thread::spawn(move || shelf.answer(stream.unwrap()));
            }
        });
        Self { address, shelf }
    }

    /// Puts an image of one layer on the shelf; gives its name.
    pub fn publish(&self, name: &str, archive: &Path, architecture: &str) -> String {
        let manifest = self.manifest(name, archive, architecture);
        self.put(name, "manifests", "1", MANIFEST, manifest);
        format!("{}/{name}:1", self.address)
    }

    /// The same as the only one in a list of images for several kinds of machines.
    pub fn publish_listed(&self, name: &str, archive: &Path, architecture: &str) -> String {
        let manifest = self.manifest(name, archive, architecture);
        let digest = Digest::of(&manifest).to_string();
        let listed = json!({
            "mediaType": MANIFEST, "digest": digest, "size": manifest.len(),
            "platform": {"architecture": architecture, "os": "linux"},
        });
        self.put(name, "manifests", &digest, MANIFEST, manifest);
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]});
        self.put(name, "manifests", "1", INDEX, index.to_string().into_bytes());
        format!("{}/{name}:1", self.address)
    }

    fn manifest(&self, name: &str, archive: &Path, architecture: &str) -> Vec<u8> {
        let layer = std::fs::read(archive).unwrap();
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer).to_string()]},
        });
        let config = config.to_string().into_bytes();
        let part = |kind: &'static str, bytes: Vec<u8>| {
            let (digest, size) = (Digest::of(&bytes).to_string(), bytes.len());
            self.put(name, "blobs", &digest, kind, bytes);
            json!({"mediaType": kind, "digest": digest, "size": size})
        };
        let (config, layer) = (part(CONFIG, config), part(LAYER, layer));
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        manifest.to_string().into_bytes()
    }

    fn put(&self, name: &str, shelf: &str, reference: &str, kind: &'static str, bytes: Vec<u8>) {
        let path = format!("/v2/{name}/{shelf}/{reference}");
        self.shelf.served.lock().unwrap().insert(path, (kind, bytes));
    }

    /// How often somebody asked.
    pub fn asked(&self) -> usize {
        self.shelf.heard.lock().unwrap().len()
    }

    /// Keeps back what images are made of, or gives it out.
    pub fn keep_back(&self, kept_back: bool) {
        *self.shelf.kept_back.lock().unwrap() = kept_back;
        self.shelf.released.notify_all();
    }
}

impl Shelf {
    fn answer(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let Some(request) = lines.next() else { return };
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        self.heard.lock().unwrap().push(path.to_owned());
        if path.contains("/blobs/") {
            let kept = self.kept_back.lock().unwrap();
            drop(self.released.wait_while(kept, |kept| *kept).unwrap());
        }
        let found = self.served.lock().unwrap().get(path).cloned();
        let (status, kind, body) = match found {
            Some((kind, body)) => ("200 OK", kind, body),
            None if path == "/v2/" => ("200 OK", "application/json", b"{}".to_vec()),
            None => {
                let words = json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
                ("404 Not Found", "application/json", words.to_string().into_bytes())
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Docker-Content-Digest: {}\r\n\r\n",
            body.len(),
            Digest::of(&body)
        );
        let mut stream = stream;
        // The client may have closed the connection.
        stream.write_all(head.as_bytes()).ok();
        if method != "HEAD" {
            stream.write_all(&body).ok();
        }
    }
}
