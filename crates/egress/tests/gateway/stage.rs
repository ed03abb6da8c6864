//! A gateway on threads of its own that records its events.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use belljar_contract::{CredentialPlace, Secret, Usd};
use belljar_egress::gateway::{
    AddressScope, FrontLimits, GatewayEvent, GatewaySink, GatewayTrouble, Listen, Live, LiveSetup,
    PriceTable, ProviderTools, RequestFinished, Responder, Upstream, UpstreamTimes, find_credential, serve,
};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use belljar_testkit::model_access::{KEY, model_access};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::client::{Client, DEADLINE, Response};
use crate::host::Host;

/// The key that only the host may receive.
pub const REAL_KEY: &str = "sk-real-key-of-the-user";

/// The events so far.
#[derive(Default)]
pub struct Heard {
    events: Mutex<Vec<GatewayEvent>>,
    grew: Condvar,
    /// Whether events can no longer be kept.
    pub full: Mutex<bool>,
}

impl GatewaySink for Heard {
    fn emit(&self, event: GatewayEvent) -> io::Result<()> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.events.lock().unwrap().push(event);
        self.grew.notify_all();
        Ok(())
    }
}

impl Heard {
    pub fn forget(&self) {
        self.events.lock().unwrap().clear();
    }

    pub fn events(&self) -> Vec<GatewayEvent> {
        self.events.lock().unwrap().clone()
    }

    /// The requests that have ended, once there are this many.
    pub fn finished(&self, count: usize) -> Vec<RequestFinished> {
        let until = Instant::now() + DEADLINE;
        let mut events = self.events.lock().unwrap();
        loop {
            let finished: Vec<RequestFinished> = events
                .iter()
                .filter_map(|event| match event {
                    GatewayEvent::Finished(finished) => Some(finished.clone()),
                    GatewayEvent::Started(_) | GatewayEvent::Trouble(_) => None,
                })
                .collect();
            if finished.len() >= count {
                return finished;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not finished: {events:?}");
            events = self.grew.wait_timeout(events, left).unwrap().0;
        }
    }

    pub fn troubles(&self) -> Vec<GatewayTrouble> {
        let troubles = self.events().into_iter().filter_map(|event| match event {
            GatewayEvent::Trouble(trouble) => Some(trouble),
            GatewayEvent::Started(_) | GatewayEvent::Finished(_) => None,
        });
        troubles.collect()
    }
}

/// The configuration of a test's gateway.
pub struct Stage {
    pub upstream: Upstream,
    pub roots: ExtraRoots,
    /// The value of a place of the made-up agent.
    pub credential: Option<(&'static str, Secret)>,
    pub cap: Option<f64>,
    pub provider_tools: ProviderTools,
    pub times: UpstreamTimes,
    pub limits: FrontLimits,
}

impl Stage {
    pub fn before(host: &Host) -> Self {
        Self::at(&host.url())
    }

    pub fn at(url: &str) -> Self {
        Self {
            upstream: Upstream::parse(url, AddressScope::Private).unwrap(),
            roots: ExtraRoots::default(),
            credential: Some((KEY, Secret::new(REAL_KEY))),
            cap: None,
            provider_tools: ProviderTools::default(),
            times: UpstreamTimes::default(),
            limits: FrontLimits::default(),
        }
    }

    pub fn start(self) -> Gateway {
        self.start_as(|live| Arc::new(live))
    }

    /// Starts a gateway whose backend is wrapped.
    pub fn start_as(self, around: impl FnOnce(Live) -> Arc<dyn Responder>) -> Gateway {
        let heard = Arc::new(Heard::default());
        let mut held = self.credential;
        let value = |place: &CredentialPlace| {
            held.take_if(|(at, _)| *at == place.to_string()).map(|(_, value)| value)
        };
        let live = Live::new(LiveSetup {
            upstream: self.upstream,
            resolver: Arc::new(belljar_egress::resolve::SystemResolver::new(std::time::Duration::from_secs(
                10,
            ))),
            tls: TlsClient::new(&self.roots).unwrap(),
            credential: find_credential(&Arc::new(model_access()), value, SystemTime::now()),
            cap: self.cap.map(|cap| Usd::new(cap).unwrap()),
            prices: PriceTable::built_in(),
            provider_tools: self.provider_tools,
            times: self.times,
            sink: Arc::<Heard>::clone(&heard),
        });
        let (bound, address) = Listen::loopback().open().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let answer = around(live.clone());
        let limits = self.limits;
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let entered = runtime.enter();
            let listener = bound.listener().unwrap();
            drop(entered);
            runtime.spawn(serve(listener, answer, limits));
            runtime.block_on(stopped).ok();
        });
        Gateway { address: address.tcp().unwrap(), live, heard, stop: Some(stop), thread: Some(thread) }
    }
}

/// A gateway, ended with this value.
pub struct Gateway {
    pub address: SocketAddr,
    pub live: Live,
    pub heard: Arc<Heard>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    pub fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Client::Tcp(stream)
    }

    pub fn ask(&self, body: &Value) -> Response {
        self.client().ask(body)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A request as the agent sends it.
pub fn request() -> Value {
    json!({
        "model": "claude-opus-4-8", "max_tokens": 1000, "stream": true,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
    })
}

/// Timeouts short enough for a test.
pub fn impatient() -> UpstreamTimes {
    UpstreamTimes {
        connect_within: DEADLINE,
        first_byte_within: Duration::from_millis(300),
        silent_within: Duration::from_millis(300),
        idle_within: DEADLINE,
    }
}
