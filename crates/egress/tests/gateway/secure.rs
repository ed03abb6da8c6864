//! TLS and HTTP/2 to the host.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_egress::gateway::{AddressScope, GatewayTrouble, Upstream};
use belljar_egress::tls::ExtraRoots;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::client::End;
use crate::host::events;
use crate::stage::{REAL_KEY, Stage, request};

/// A host with TLS for `localhost`, and the requests it received.
struct SecureHost {
    port: u16,
    certificate: CertificateDer<'static>,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    /// Ends the host's thread when dropped.
    _stop: tokio::sync::oneshot::Sender<()>,
}

fn start(protocols: &[&str], expected: Version) -> SecureHost {
    let key = rcgen::KeyPair::generate().unwrap();
    let made =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = made.der().clone();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let requests = Arc::new(AtomicUsize::new(0));
    let (connected, asked) = (Arc::clone(&connections), Arc::clone(&requests));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connected.fetch_add(1, Ordering::SeqCst);
                let (acceptor, asked) = (acceptor.clone(), Arc::clone(&asked));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(move |request| respond(request, expected, Arc::clone(&asked)));
                    let stream = TokioIo::new(stream);
                    if expected == Version::HTTP_2 {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        server.serve_connection(stream, answer).await.ok();
                    } else {
                        let server = hyper::server::conn::http1::Builder::new();
                        server.serve_connection(stream, answer).await.ok();
                    }
                });
            }
        });
        runtime.block_on(stopped).ok();
    });
    SecureHost { port, certificate, connections, requests, _stop: stop }
}

async fn respond(
    request: Request<Incoming>,
    expected: Version,
    asked: Arc<AtomicUsize>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    asked.fetch_add(1, Ordering::SeqCst);
    let good = request.version() == expected
        && request.headers()["x-api-key"] == REAL_KEY
        && request.uri().path() == "/v1/messages";
    request.into_body().collect().await.ok();
    let mut response = Response::new(Full::new(Bytes::from(events("hello", 10, 5).concat())));
    *response.status_mut() = if good { hyper::StatusCode::OK } else { hyper::StatusCode::IM_A_TEAPOT };
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    Ok(response)
}

impl SecureHost {
    fn stage(&self) -> Stage {
        let roots = ExtraRoots(vec![self.certificate.clone()]);
        Stage { roots, ..Stage::at(&format!("https://localhost:{}", self.port)) }
    }
}

fn ask_at_once(stage: Stage, times: usize) {
    let gateway = stage.start();
    std::thread::scope(|scope| {
        let ask = || {
            let response = gateway.ask(&request());
            assert_eq!((response.status, response.end), (200, End::Complete), "{response:?}");
        };
        let clients: Vec<_> = (0..times).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    gateway.heard.finished(times);
    assert_eq!(gateway.live.totals().tokens().output, 5 * times as u64);
}

#[test]
fn one_connection_of_http_2_carries_all_requests() {
    let host = start(&["h2", "http/1.1"], Version::HTTP_2);
    ask_at_once(host.stage(), 20);
    assert_eq!((host.requests.load(Ordering::SeqCst), host.connections.load(Ordering::SeqCst)), (20, 1));
}

#[test]
fn a_host_without_http_2_is_spoken_to_in_http_1() {
    for protocols in [&["http/1.1"][..], &[]] {
        let host = start(protocols, Version::HTTP_11);
        ask_at_once(host.stage(), 5);
        assert_eq!(host.requests.load(Ordering::SeqCst), 5);
    }
}

#[test]
fn an_untrusted_certificate_is_refused_before_the_key_is_sent() {
    let host = start(&["h2"], Version::HTTP_2);
    let gateway = Stage { roots: ExtraRoots::default(), ..host.stage() }.start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.header("x-should-retry")), (502, Some("false")), "{response:?}");
    assert!(
        matches!(&gateway.heard.troubles()[..], [GatewayTrouble::Unreachable { cause, .. }] if cause.contains("TLS"))
    );
    assert_eq!(host.requests.load(Ordering::SeqCst), 0);
}

#[test]
fn a_host_on_this_machine_is_not_dialled_unless_that_was_declared() {
    let host = start(&["h2"], Version::HTTP_2);
    let upstream =
        Upstream::parse(&format!("https://localhost:{}", host.port), AddressScope::Public).unwrap();
    let gateway = Stage { upstream, ..host.stage() }.start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.header("x-should-retry")), (502, Some("false")));
    let words = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("has to be declared"), "{words}");
    assert_eq!(host.connections.load(Ordering::SeqCst), 0);
}
