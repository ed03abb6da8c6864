//! TLS inside tunnels has to be for the name of the tunnel.

use crate::ask::{rest, tunnel};
use crate::peers::{ALLOWED, Peer};
use crate::plain::proxy_for;
use crate::world::{Proxy, Setup};
use belljar_contract::{Destination, EgressRefusal, EgressRow, EgressVerdict};
use belljar_egress::proxy::{ByteStream, Intercept, InterceptedRequest, Tunnel, TunnelEnd};
use belljar_testkit::require;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Settings of a TLS server with a self-signed certificate.
fn server_config() -> Arc<rustls::ServerConfig> {
    let made =
        rcgen::generate_simple_self_signed(["allowed.test".to_owned(), "evil.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Arc::new(config)
}

/// Speaks TLS and answers one request with the name that the handshake asked for.
pub fn tls_server() -> impl Fn(TcpStream) + Send + Sync + 'static {
    let config = server_config();
    move |stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut request = [0; 4096];
        if tls.read(&mut request).is_err() {
            return;
        }
        let name = tls.conn.server_name().unwrap_or("(none)").to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nfor {name}", name.len() + 4);
        tls.write_all(answer.as_bytes()).ok();
        tls.conn.send_close_notify();
        tls.flush().ok();
    }
}

/// Trusts every certificate: these tests are about the requested name only.
#[derive(Debug)]
struct TrustsAll;

impl rustls::client::danger::ServerCertVerifier for TrustsAll {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Requests a page over TLS for this name; for an address no name is sent.
fn ask(stream: TcpStream, name: &str) -> String {
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsAll))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tls = rustls::StreamOwned::new(connection, stream);
    if tls.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").is_err() {
        return String::new();
    }
    let mut answer = Vec::new();
    tls.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

fn refusals(proxy: &Proxy) -> Vec<EgressRefusal> {
    let reason = |row: &EgressRow| match row {
        EgressRow::Decided { decision, .. } => match &decision.verdict {
            EgressVerdict::Denied { reason } => Some(reason.clone()),
            EgressVerdict::Allowed => None,
        },
        _ => None,
    };
    proxy.rows().iter().filter_map(reason).collect()
}

#[test]
fn tls_is_for_the_name_that_was_asked_for() {
    let peer = Peer::start(ALLOWED, tls_server());
    let naive = crate::naive::start({
        let names = crate::world::Names::default();
        names.add("allowed.test", &[&[ALLOWED]]);
        Arc::new(names)
    });
    let (proxy, authority) = proxy_for(&peer);
    assert!(ask(tunnel(proxy.address, &authority), "allowed.test").ends_with("for allowed.test"));
    assert!(
        ask(tunnel(naive, &authority), "evil.test").ends_with("for evil.test"),
        "the probe does not fire"
    );
    assert_eq!(ask(tunnel(proxy.address, &authority), "evil.test"), "");
    assert_eq!(ask(tunnel(proxy.address, &authority), "192.0.2.1"), "");
    let found = |name: &str| EgressRefusal::Sni { found: Some(name.to_owned()) };
    assert_eq!(refusals(&proxy), [found("evil.test"), EgressRefusal::Sni { found: None }]);
    let rows = proxy.rows();
    let sent = rows.iter().filter_map(|row| match row {
        EgressRow::Finished { end, .. } => Some(end.sent),
        _ => None,
    });
    assert_eq!(sent.skip(1).collect::<Vec<_>>(), [0, 0], "no byte went to the host: {rows:#?}");
}

/// A host on port 443 of a loopback address that only this process uses.
fn at_443(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (Peer, String) {
    let id = std::process::id().to_be_bytes();
    let address = format!("127.{}.{}.{}", 128 | id[1] & 0x7f, id[2], id[3].max(1));
    let listener = std::net::TcpListener::bind((address.as_str(), 443)).unwrap();
    (Peer::on(listener, serve), address)
}

#[test]
fn a_tunnel_to_443_is_tls_or_nothing() {
    require!(Root);
    let (notify, got) = std::sync::mpsc::channel();
    let (_peer, address) = at_443(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        notify.send(all).ok();
    });
    let rules = ["allowed.test", "forge.test", &address];
    let mut setup = Setup::allowing(&rules).name("allowed.test", &address).name("forge.test", &address);
    setup.raw.insert(Destination::parse_authority(b"forge.test:443").unwrap());
    let proxy = setup.start();
    for bytes in [
        &b"SSH-2.0-x\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16",
    ] {
        let mut stream = tunnel(proxy.address, "allowed.test:443");
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(rest(&mut stream), "");
        assert_eq!(got.recv().unwrap(), b"", "{:?} reached the host", String::from_utf8_lossy(bytes));
    }
    assert_eq!(refusals(&proxy), vec![EgressRefusal::NotTls; 4]);
    let mut stream = tunnel(proxy.address, "forge.test:443");
    stream.write_all(b"SSH-2.0-x\r\n").unwrap();
    drop(stream);
    assert_eq!(got.recv().unwrap(), b"SSH-2.0-x\r\n", "a name that is declared raw may speak as it likes");
    // An address has no name that the TLS name could differ from.
    let mut stream = tunnel(proxy.address, &format!("{address}:443"));
    stream.write_all(b"anything").unwrap();
    drop(stream);
    assert_eq!(got.recv().unwrap(), b"anything");
}

#[test]
fn a_handshake_in_small_pieces_is_one_handshake() {
    let (notify, got) = std::sync::mpsc::channel();
    let peer = Peer::start(ALLOWED, move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        notify.send(all).ok();
    });
    let (proxy, authority) = proxy_for(&peer);
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &[0, 18, 0, 0, 0, 14, 0, 12, 0, 0, 9],
        b"evil.test",
    ]
    .concat();
    let length = u8::try_from(body.len()).unwrap();
    let message = [&[1, 0, 0, length][..], &body].concat();
    let records: Vec<u8> = message
        .chunks(5)
        .flat_map(|part| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat())
        .collect();
    let mut stream = tunnel(proxy.address, &authority);
    for byte in records {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
    }
    assert_eq!(rest(&mut stream), "");
    assert_eq!(got.recv().unwrap(), b"", "not even the first of the pieces was sent on");
    assert_eq!(refusals(&proxy), [EgressRefusal::Sni { found: Some("evil.test".to_owned()) }]);
}

/// Takes over a tunnel and echoes its first bytes.
struct Echoing {
    wanted: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Intercept for Echoing {
    fn wants(&self, destination: &Destination) -> bool {
        destination.to_string() == self.wanted
    }

    fn serve(&self, tunnel: Tunnel) -> Pin<Box<dyn Future<Output = TunnelEnd> + Send>> {
        let seen = Arc::clone(&self.seen);
        Box::pin(async move {
            seen.lock().unwrap().push(format!("{} {} {}", tunnel.destination, tunnel.address, tunnel.rule));
            let request = InterceptedRequest {
                method: "GET".to_owned(),
                path: "/x".to_owned(),
                rule: None,
                allowed: true,
                reason: None,
                credential: Some("key".to_owned()),
            };
            let logged = tunnel.log.decided(&request);
            let mut client: Box<dyn ByteStream> = tunnel.client;
            let mut first = [0; 5];
            client.read_exact(&mut first).await.unwrap();
            client.write_all(&first).await.unwrap();
            client.shutdown().await.unwrap();
            TunnelEnd { sent: 3, received: 4, failure: logged.err().map(|error| error.to_string()) }
        })
    }
}

#[test]
fn an_intercepted_tunnel_is_handed_over_complete() {
    let port = 4433;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let mut setup = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    let wanted = format!("allowed.test:{port}");
    setup.intercept = Some(Arc::new(Echoing { wanted: wanted.clone(), seen: Arc::clone(&seen) }));
    let proxy = setup.start();
    // The start of a handshake for this name.
    let mut hello = Vec::new();
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("allowed.test").unwrap();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    let mut stream = tunnel(proxy.address, &wanted);
    stream.write_all(&hello).unwrap();
    let mut first = [0; 5];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, hello[..5]);
    // Only TLS for this name is handed over.
    let mut stream = tunnel(proxy.address, &wanted);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rest(&mut stream), "");
    assert_eq!(*seen.lock().unwrap(), [format!("{wanted} {ALLOWED}:{port} allow-2")]);
    let (_, _, reading) = proxy.finish();
    let within: Vec<Option<u64>> = reading
        .rows
        .iter()
        .filter_map(|row| match row {
            EgressRow::Decided { decision, .. } => Some(decision.within),
            _ => None,
        })
        .collect();
    assert_eq!(within, [None, Some(1), None, Some(3)]);
}
