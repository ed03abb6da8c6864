//! A host on the network: TLS on loopback, with a CA of its own.

use aws_lc_rs::rand;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SerialNumber};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

/// A request as the host received it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Which protocol a host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Http1,
    Http2,
}

/// A host.
pub struct World {
    pub address: SocketAddr,
    pub root: CertificateDer<'static>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub connections: Arc<AtomicUsize>,
    /// Lets a waiting response continue.
    pub go_on: Arc<Notify>,
}

impl World {
    /// Starts a host with a certificate for these names.
    pub async fn start(names: &[&str], speaks: Speaks) -> Self {
        let (config, root) = config(names, speaks);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = Self {
            address: listener.local_addr().unwrap(),
            root,
            seen: Arc::default(),
            connections: Arc::default(),
            go_on: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (seen, connections, go_on) =
            (Arc::clone(&world.seen), Arc::clone(&world.connections), Arc::clone(&world.go_on));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, seen, go_on) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&go_on));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service =
                        service_fn(|request| answer(request, Arc::clone(&seen), Arc::clone(&go_on)));
                    let stream = TokioIo::new(stream);
                    match speaks {
                        Speaks::Http1 => http1::Builder::new().serve_connection(stream, service).await.ok(),
                        Speaks::Http2 => http2::Builder::new(TokioExecutor::new())
                            .serve_connection(stream, service)
                            .await
                            .ok(),
                    };
                });
            }
        });
        world
    }

    /// The requests received so far, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn config(names: &[&str], speaks: Speaks) -> (ServerConfig, CertificateDer<'static>) {
    let mut serial = [0_u8; 8];
    rand::fill(&mut serial).unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, format!("world {serial:?}"));
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap().der().clone();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut leaf = CertificateParams::new(names).unwrap();
    leaf.serial_number = Some(SerialNumber::from_slice(&serial));
    let certificate = leaf.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = match speaks {
        Speaks::Http1 => vec![b"http/1.1".to_vec()],
        Speaks::Http2 => vec![b"h2".to_vec()],
    };
    (config, root)
}

/// A body that is written piece by piece.
pub struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context)
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    go_on: Arc<Notify>,
) -> Result<Response<Pieces>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let target = parts.uri.path_and_query().unwrap().to_string();
    seen.lock().unwrap().push(Seen { target, headers: parts.headers.clone(), body: body.clone() });
    let sent =
        parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let (sender, receiver) = mpsc::channel(16);
    let mut response = Response::builder();
    let mut pieces: Vec<Bytes> = Vec::new();
    match parts.uri.path() {
        "/literal" => pieces.push(format!("you sent {sent}, thank you").into()),
        "/header" => response = response.header("x-echo", &sent).header("location", format!("/?t={sent}")),
        "/base64" => {
            use base64::Engine;
            let text = format!("user:{}", sent.trim_start_matches("Bearer "));
            pieces.push(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text)).into());
        }
        "/split" => pieces.extend(sent.as_bytes().chunks(3).map(Bytes::copy_from_slice)),
        "/gzip" => {
            response = response.header("content-encoding", "gzip");
            pieces.push(Bytes::from_static(b"\x1f\x8b not really"));
        }
        "/coded-as-the-value" => {
            response = response.header("content-encoding", sent.trim_start_matches("Bearer "));
        }
        "/redirect" => response = response.status(302).header("location", "https://elsewhere.test/"),
        "/nothing" => response = response.status(204),
        "/length" => {
            response = response.header(CONTENT_LENGTH, "5");
            if parts.method != hyper::Method::HEAD {
                pieces.push(Bytes::from_static(b"hello"));
            }
        }
        "/echo" => pieces.push(body),
        "/repo.git/info/refs" => {
            response = response.header("content-type", "application/x-git-upload-pack-advertisement");
            let line = format!("{} refs/heads/main\0agent=test\n", "1".repeat(40));
            pieces
                .push(format!("001e# service=git-upload-pack\n0000{:04x}{line}0000", line.len() + 4).into());
        }
        "/events" | "/late" | "/cut" | "/trailers" => {}
        _ => pieces.push(Bytes::from_static(b"{}")),
    }
    let path = parts.uri.path().to_owned();
    if path == "/late" {
        go_on.notified().await;
    }
    tokio::spawn(async move {
        for piece in pieces {
            // Each piece is flushed before the next one is written.
            sender.send(Ok(Frame::data(piece))).await.ok();
            tokio::task::yield_now().await;
        }
        match path.as_str() {
            "/events" => {
                for event in ["data: one\n\n", "data: two\n\n"] {
                    sender.send(Ok(Frame::data(Bytes::from_static(event.as_bytes())))).await.ok();
                    go_on.notified().await;
                }
            }
            "/cut" => {
                sender.send(Ok(Frame::data(Bytes::from_static(b"half")))).await.ok();
                go_on.notified().await;
                sender.send(Err(std::io::Error::other("cut"))).await.ok();
            }
            "/trailers" => {
                sender.send(Ok(Frame::data(Bytes::from_static(b"body")))).await.ok();
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", sent.parse().unwrap());
                sender.send(Ok(Frame::trailers(trailers))).await.ok();
            }
            _ => {}
        }
    });
    if parts.uri.path() == "/trailers" {
        response = response.header("trailer", "x-sum");
    }
    Ok(response.body(Pieces(receiver)).unwrap())
}
