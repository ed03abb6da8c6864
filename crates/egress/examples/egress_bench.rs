//! The parts of `scripts/bench-egress`: a host on loopback, belljar's proxy as a process, and a client that measures. The
//! script starts the other proxies and prints the table.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for measuring, not a library")]

use belljar_contract::{
    AgentName, Destination, Egress, EgressPolicy, EgressRule, HostPattern, RuleEffect, Secret,
};
use belljar_egress::intercept::{
    CertificateAuthority, HostCredential, InterceptTimeouts, Interception, Interceptor, ValuePart,
    intercepted_hosts,
};
use belljar_egress::log::{EgressLog, LogOpening};
use belljar_egress::proxy::{EgressMode, Intercept, ProxyConfig, ProxyLimits, Reach, serve};
use belljar_egress::resolve::SystemResolver;
use belljar_egress::tls::{ExtraRoots, TlsClient};
use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Every proxy resolves it without a resolver.
const HOST: &str = "localhost";
/// Size of the client's read buffer, so that the client and the host are faster than the proxy.
const READ_AHEAD: usize = 64 << 10;
/// How much the host writes at once.
const WRITTEN: usize = 256 << 10;
/// Bytes are fetched over this many connections at once, so that a proxy never waits for the client or the host.
const STREAMS: usize = 4;
/// The token of belljar's proxy; the others need none.
const TOKEN: &str = "Proxy-Authorization: Basic YmVsbGphcjpiZW5jaA==\r\n";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["origin", certificate] => origin(certificate),
        ["proxy", roots, authority, log, plain, tls] => proxy(roots, authority, log, plain, tls),
        ["load", kind, proxy, target, count, roots] => {
            load(kind, proxy, target, count.parse().unwrap(), roots)
        }
        other => panic!("not understood: {other:?}"),
    }
}

// --- the host ---------------------------------------------------------------------------------------------

/// Serves on two ports, prints them, and runs until its standard input ends.
fn origin(certificate: &str) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let own = params.self_signed(&key).unwrap();
    fs::write(certificate, own.pem()).unwrap();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], private)
        .unwrap();
    config.ignore_client_order = true;
    let config = Arc::new(config);
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    for (secure, listener) in [false, true].into_iter().zip(listeners) {
        let config = Arc::clone(&config);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, config) = (stream.unwrap(), Arc::clone(&config));
                std::thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    // A client may close the connection at any time.
                    if secure {
                        let mut session = rustls::ServerConnection::new(config).unwrap();
                        session.set_buffer_limit(Some(WRITTEN));
                        answer(rustls::StreamOwned::new(session, stream)).ok();
                    } else {
                        answer(stream).ok();
                    }
                });
            }
        });
    }
    println!("{} {}", ports[0], ports[1]);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// `/bytes/N` is answered with N bytes, everything else with two.
fn answer(stream: impl Read + Write) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let chunk = vec![b'x'; WRITTEN];
    loop {
        let head = head(&mut stream)?;
        let mut left: usize =
            head.split(' ').nth(1).and_then(|path| path.strip_prefix("/bytes/")?.parse().ok()).unwrap_or(2);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n");
        let mut first = answer.into_bytes();
        let small = left.min(1024);
        first.extend_from_slice(&chunk[..small]);
        left -= small;
        stream.get_mut().write_all(&first)?;
        while left > 0 {
            let part = left.min(chunk.len());
            stream.get_mut().write_all(&chunk[..part])?;
            left -= part;
        }
        stream.get_mut().flush()?;
    }
}

fn head(stream: &mut impl BufRead) -> std::io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

// --- belljar's proxy --------------------------------------------------------------------------------------

/// Serves with a log, as in a run, prints its port, and runs until it is killed. TLS to one of the ports is intercepted.
fn proxy(roots: &str, authority: &str, log: &str, plain: &str, tls: &str) {
    let rule = |id: &str, text: String| EgressRule {
        id: id.to_owned(),
        effect: RuleEffect::Allow,
        host: HostPattern::parse(&text).unwrap(),
        request: None,
    };
    let rules: Vec<EgressRule> = [plain, tls]
        .iter()
        .flat_map(|port| {
            [rule("name", format!("{HOST}:{port}")), rule("address", format!("127.0.0.1:{port}"))]
        })
        .collect();
    let credential = HostCredential {
        name: "bench".to_owned(),
        destination: Destination::parse_authority(format!("{HOST}:{tls}").as_bytes()).unwrap(),
        header: "x-bench-token".parse().unwrap(),
        value: vec![ValuePart::Secret(Arc::new(Secret::new(b"a-value-that-is-added".as_slice())))],
    };
    let hosts = intercepted_hosts(&rules, std::slice::from_ref(&credential));
    let own = Arc::new(CertificateAuthority::new(&hosts, SystemTime::now()).unwrap());
    fs::write(authority, own.pem()).unwrap();
    let interceptor = Interceptor::new(Interception {
        rules: rules.clone(),
        credentials: vec![credential],
        ca: own,
        tls: TlsClient::new(&ExtraRoots(certificates(roots))).unwrap(),
        timeouts: InterceptTimeouts::default(),
    });
    let policy = Arc::new(EgressPolicy::new(&Egress { model: false, rules }));
    let opening = LogOpening {
        run: belljar_contract::RunId::parse("be9c4000").unwrap(),
        opened_at_ms: 0,
        policy: policy.digest(),
        listeners: Vec::new(),
        enforcement: belljar_contract::Enforcement::Enforced,
        limit: 1 << 30,
    };
    let log = EgressLog::open(fs::File::create(log).unwrap(), opening, Arc::new(str::to_owned)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let config = ProxyConfig {
        listeners: vec![listener],
        transparent: None,
        policy,
        resolver: Arc::new(SystemResolver::new(Duration::from_secs(10))),
        log,
        token: Arc::new(Secret::new(b"bench".as_slice())),
        agent: AgentName::new("bench").unwrap(),
        mode: EgressMode::Enforce,
        reach: Reach::AsRuled,
        intercept: Some(Arc::new(interceptor.unwrap()) as Arc<dyn Intercept>),
        raw: std::collections::BTreeSet::new(),
        on_refusal: Arc::new(|_| {}),
        limits: ProxyLimits::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(config, std::future::pending())).unwrap();
}

// --- the client -------------------------------------------------------------------------------------------

/// Prints a number: seconds for bytes, the median in microseconds for requests.
fn load(kind: &str, proxy: &str, target: &str, count: usize, roots: &str) {
    let client = (roots != "-").then(|| {
        let mut trusted = rustls::RootCertStore::empty();
        trusted.add_parsable_certificates(certificates(roots));
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Arc::new(config)
    });
    let secure = || {
        let name = ServerName::try_from(HOST).unwrap();
        let session = rustls::ClientConnection::new(Arc::clone(client.as_ref().unwrap()), name).unwrap();
        BufReader::new(rustls::StreamOwned::new(session, Ahead(tunnel(proxy, target))))
    };
    let share = count.div_ceil(STREAMS);
    let number = match kind {
        "tunnel-bytes" => at_once(|| ask(&mut tunnel(proxy, target), target, share)),
        "tls-bytes" => at_once(|| ask(&mut secure(), target, share)),
        "tunnel" => median(count, || ask(&mut tunnel(proxy, target), target, 0)),
        "page" => median(count, || page(proxy, target)),
        "tls" => median(count, || ask(&mut secure(), target, 0)),
        "tls-kept" => {
            let mut stream = secure();
            ask(&mut stream, target, 0);
            median(count, || ask(&mut stream, target, 0))
        }
        other => panic!("no load {other}"),
    };
    println!("{number}");
}

fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn at_once(work: impl Fn() + Sync) -> f64 {
    seconds(|| {
        std::thread::scope(|scope| {
            for _ in 0..STREAMS {
                scope.spawn(&work);
            }
        });
    })
}

/// A socket with a read buffer; rustls alone reads 4 KiB at a time.
struct Ahead(BufReader<TcpStream>);

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Ahead {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn write_vectored(&mut self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
        self.0.get_mut().write_vectored(parts)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.get_mut().flush()
    }
}

fn median(count: usize, mut work: impl FnMut()) -> f64 {
    let mut all: Vec<f64> = (0..count).map(|_| seconds(&mut work)).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2] * 1e6
}

fn connection(proxy: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::with_capacity(READ_AHEAD, stream)
}

fn tunnel(proxy: &str, target: &str) -> BufReader<TcpStream> {
    let mut stream = connection(proxy);
    // Without a proxy, to measure the host itself.
    if proxy != target {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{TOKEN}\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let answer = head(&mut stream).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
    stream
}

fn ask<S: Read + Write>(stream: &mut BufReader<S>, target: &str, bytes: usize) {
    let path = if bytes > 0 { format!("/bytes/{bytes}") } else { "/".to_owned() };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    take(stream);
}

fn page(proxy: &str, target: &str) {
    let mut stream = connection(proxy);
    let url = if proxy == target { "/".to_owned() } else { format!("http://{target}/") };
    let request = format!("GET {url} HTTP/1.1\r\nHost: {target}\r\n{TOKEN}Connection: close\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    take(&mut stream);
}

/// Reads a response to its end.
fn take(stream: &mut BufReader<impl Read>) {
    let answer = head(stream).unwrap().to_ascii_lowercase();
    assert!(answer.contains(" 200 "), "{answer}");
    let mut buffer = vec![0; 256 << 10];
    if answer.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            // Each chunk, the last one too, ends with an empty line.
            exactly(stream, length + 2, &mut buffer);
            if length == 0 {
                return;
            }
        }
    }
    let length = answer.lines().find_map(|line| line.strip_prefix("content-length: "));
    exactly(stream, length.map_or(0, |length| length.trim().parse().unwrap()), &mut buffer);
}

fn exactly(stream: &mut impl Read, mut left: usize, buffer: &mut [u8]) {
    while left > 0 {
        let part = left.min(buffer.len());
        let count = stream.read(&mut buffer[..part]).unwrap();
        assert!(count > 0, "the answer broke off");
        left -= count;
    }
}

fn certificates(file: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
}

/// For the client and the host. Both prefer the same cipher, so that every proxy has the same work.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
