//! An interceptor with a host behind it.

use crate::world::World;
use belljar_contract::{
    Destination, EgressRule, HostPattern, Method, Methods, PathPattern, Paths, RequestRule, RuleEffect,
    Secret,
};
use belljar_egress::intercept::{
    CertificateAuthority, HostCredential, InterceptTimeouts, Interception, Interceptor, ValuePart,
    intercepted_hosts,
};
use belljar_egress::proxy::{Intercept, InterceptedRequest, RequestSink, Tunnel, TunnelEnd};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub const VALUE: &str = "ghp_0123456789abcdefXYZ";

/// Keeps the logged requests, and can refuse to.
#[derive(Default)]
pub struct Rows {
    pub rows: Mutex<Vec<InterceptedRequest>>,
    pub full: Mutex<bool>,
}

impl RequestSink for Rows {
    fn decided(&self, request: &InterceptedRequest) -> io::Result<()> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.rows.lock().unwrap().push(request.clone());
        Ok(())
    }
}

pub struct Stage {
    pub interceptor: Arc<Interceptor>,
    pub ca: Arc<CertificateAuthority>,
    pub rows: Arc<Rows>,
    pub address: SocketAddr,
}

pub fn destination(text: &str) -> Destination {
    Destination::parse_authority(text.as_bytes()).unwrap()
}

pub fn allow(host: &str) -> EgressRule {
    let host = HostPattern::parse(host).unwrap();
    EgressRule { id: "allow-1".to_owned(), effect: RuleEffect::Allow, host, request: None }
}

pub fn allow_only(host: &str, methods: &[&str], paths: &[&str]) -> EgressRule {
    let methods = Methods::Only(methods.iter().map(|method| Method::new(method).unwrap()).collect());
    let paths = Paths::Only(paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect());
    EgressRule { request: Some(RequestRule { methods, paths }), ..allow(host) }
}

pub fn bearer(host: &str) -> HostCredential {
    HostCredential {
        name: "TOKEN".to_owned(),
        destination: destination(host),
        header: "Authorization".to_owned(),
        value: vec![ValuePart::Text("Bearer ".to_owned()), ValuePart::Secret(Arc::new(Secret::new(VALUE)))],
    }
}

pub fn timeouts() -> InterceptTimeouts {
    InterceptTimeouts {
        dial: Duration::from_secs(10),
        answer: Duration::from_secs(30),
        stall: Duration::from_secs(30),
    }
}

impl Stage {
    /// Rules and credentials for a trusted host.
    pub fn new(world: &World, rules: Vec<EgressRule>, credentials: Vec<HostCredential>) -> Self {
        Self::waiting(world, rules, credentials, timeouts(), vec![world.root.clone()])
    }

    pub fn waiting(
        world: &World,
        rules: Vec<EgressRule>,
        credentials: Vec<HostCredential>,
        timeouts: InterceptTimeouts,
        roots: Vec<rustls::pki_types::CertificateDer<'static>>,
    ) -> Self {
        let hosts = intercepted_hosts(&rules, &credentials);
        let ca = Arc::new(CertificateAuthority::new(&hosts, SystemTime::now()).unwrap());
        let tls = TlsClient::new(&ExtraRoots(roots)).unwrap();
        let interception = Interception { rules, credentials, ca: Arc::clone(&ca), tls, timeouts };
        Self {
            interceptor: Arc::new(Interceptor::new(interception).unwrap()),
            ca,
            rows: Arc::default(),
            address: world.address,
        }
    }

    /// The setup that most tests need: a credential for `api.test` without further rules.
    pub fn with_credential(world: &World) -> Self {
        Self::new(world, vec![allow("api.test")], vec![bearer("api.test:443")])
    }

    /// An accepted tunnel: the client's end, and the result.
    pub fn tunnel(&self, to: &str) -> (DuplexStream, JoinHandle<TunnelEnd>) {
        let (client, inside) = tokio::io::duplex(64 << 10);
        let tunnel = Tunnel {
            client: Box::new(inside),
            destination: destination(to),
            address: self.address,
            rule: "allow-1".to_owned(),
            log: Arc::clone(&self.rows) as Arc<dyn RequestSink>,
        };
        (client, tokio::spawn(self.interceptor.serve(tunnel)))
    }

    /// A proxy for real programs. It supports CONNECT only, and every name leads to the one host.
    pub async fn front(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = listener.local_addr().unwrap();
        let (interceptor, rows, address) =
            (Arc::clone(&self.interceptor), Arc::clone(&self.rows), self.address);
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (interceptor, rows) = (Arc::clone(&interceptor), Arc::clone(&rows));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = client.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
                    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                    let destination = destination(target);
                    let tunnel = Tunnel {
                        client: Box::new(client),
                        destination,
                        address,
                        rule: "allow-1".to_owned(),
                        log: rows as Arc<dyn RequestSink>,
                    };
                    interceptor.serve(tunnel).await;
                });
            }
        });
        front
    }

    pub fn rows(&self) -> Vec<InterceptedRequest> {
        self.rows.rows.lock().unwrap().clone()
    }
}
