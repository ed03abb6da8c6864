//! The real agent and the live gateway: a complete run with the key outside, and how the agent handles each refusal of the
//! gateway. The model's host is the scripted model on loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use belljar_contract::{CredentialPlace, Secret, Usd};
use belljar_egress::gateway::{
    AddressScope, FrontLimits, GatewayEvent, GatewaySink, GatewayTrouble, Listen, Live, LiveSetup,
    PriceTable, ProviderTools, Upstream, UpstreamTimes, UsageTotals, find_credential, serve,
};
use belljar_egress::script::{
    ErrorReply, RequestConditions, Script, ScriptedModel, Sender, Transcript, Turn,
};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use belljar_testkit::model_access::model_access;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

const DEADLINE: Duration = Duration::from_secs(120);

/// The placeholder that the agent has.
const PLACEHOLDER: &str = "sk-placeholder";

/// The key that only the host may receive.
const REAL_KEY: &str = "sk-real-key-of-the-user";

#[derive(Default)]
struct Heard(Mutex<Vec<GatewayEvent>>);

impl GatewaySink for Heard {
    fn emit(&self, event: GatewayEvent) -> io::Result<()> {
        self.0.lock().unwrap().push(event);
        Ok(())
    }
}

/// The configuration of a test.
struct Stage {
    directory: TempDir,
    key: Option<Secret>,
    cap: Option<f64>,
    limits: FrontLimits,
}

/// The result of one run of the agent.
struct Run {
    finished: Finished,
    result: Value,
    took: Duration,
    events: Vec<GatewayEvent>,
    totals: UsageTotals,
    transcript: Transcript,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["project", "home", "tmp"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, key: Some(Secret::new(REAL_KEY)), cap: None, limits: FrontLimits::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the agent behind a gateway on a unix socket, with its default number of retries.
    fn run(&mut self, script: Script) -> Run {
        let host = ScriptedModel::start(script, Listen::loopback()).unwrap();
        let heard = Arc::new(Heard::default());
        let key = |place: &CredentialPlace| match place {
            CredentialPlace::ApiKey { .. } => self.key.take(),
            CredentialPlace::Token { .. } | CredentialPlace::Login(_) => None,
        };
        let live = Live::new(LiveSetup {
            upstream: Upstream::parse(&host.base_url(), AddressScope::Private).unwrap(),
            resolver: Arc::new(belljar_egress::resolve::SystemResolver::new(std::time::Duration::from_secs(
                10,
            ))),
            tls: TlsClient::new(&ExtraRoots::default()).unwrap(),
            credential: find_credential(&Arc::new(model_access()), key, SystemTime::now()),
            cap: self.cap.map(|cap| Usd::new(cap).unwrap()),
            prices: PriceTable::built_in(),
            provider_tools: ProviderTools::default(),
            times: UpstreamTimes::default(),
            sink: Arc::<Heard>::clone(&heard),
        });
        let (bound, address) = Listen::unix(self.path("model.sock")).open().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (answer, limits) = (Arc::new(live.clone()), self.limits);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let entered = runtime.enter();
            let listener = bound.listener().unwrap();
            drop(entered);
            runtime.spawn(serve(listener, answer, limits));
            runtime.block_on(stopped).ok();
        });
        let began = Instant::now();
        let finished = run_within(&mut self.agent(), DEADLINE).unwrap();
        let took = began.elapsed();
        drop(stop);
        thread.join().unwrap();
        drop(address);
        let mut lines = finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let result = lines.rfind(|event| event["type"] == "result");
        let result = result.unwrap_or_else(|| panic!("no result: {finished:?}"));
        let events = heard.0.lock().unwrap().clone();
        Run { finished, result, took, events, totals: live.totals(), transcript: host.finish() }
    }

    fn agent(&self) -> Command {
        let mut command = Command::new(agent::real().unwrap());
        command.args(["-p", "--output-format", "stream-json", "--verbose", "--setting-sources", ""]);
        command.args(["--strict-mcp-config", "--model", "claude-opus-4-8"]);
        command.args(["--allowedTools", "Bash,Agent,WebSearch", "--", "do as the script says"]);
        command.current_dir(self.path("project")).env_clear().envs([
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.path("home")),
            ("CLAUDE_CONFIG_DIR", self.path("home/config")),
            ("TMPDIR", self.path("tmp")),
            ("CLAUDE_CODE_TMPDIR", self.path("tmp")),
            ("ANTHROPIC_API_KEY", PLACEHOLDER.into()),
            ("ANTHROPIC_BASE_URL", "http://localhost".into()),
            ("ANTHROPIC_UNIX_SOCKET", self.path("model.sock")),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1".into()),
        ]);
        command
    }
}

impl Run {
    fn assert_good(&self) {
        assert_eq!(self.result["is_error"], false, "{}", self.result);
        assert_eq!(self.finished.status.code(), Some(0), "{:?}", self.finished);
        assert_eq!(self.transcript.unplayed, [0_usize; 0]);
    }

    /// The agent gave up at once and showed this message.
    fn assert_stopped_with(&self, words: &str) {
        assert_eq!(self.result["is_error"], true, "{}", self.result);
        assert_eq!(self.finished.status.code(), Some(1), "{:?}", self.finished);
        assert!(self.result["result"].as_str().unwrap().contains(words), "{}", self.result);
        // Its own retries take three minutes.
        assert!(self.took < Duration::from_secs(60), "{:?}", self.took);
        assert!(!self.finished.stdout.contains("api_retry"), "{}", self.finished.stdout);
    }

    fn troubles(&self) -> Vec<&GatewayTrouble> {
        let troubles = self.events.iter().filter_map(|event| match event {
            GatewayEvent::Trouble(trouble) => Some(trouble),
            GatewayEvent::Started(_) | GatewayEvent::Finished(_) => None,
        });
        troubles.collect()
    }
}

#[test]
fn a_run_to_its_end_with_the_key_outside() {
    require!(Agent);
    let mut stage = Stage::new();
    let task = json!({"description": "d", "prompt": "p", "subagent_type": "general-purpose",
        "run_in_background": false});
    let script = Script::new()
        .turn(Turn::tool_use(
            "Bash",
            json!({"command": "env > environment; cat /proc/$PPID/environ > parent"}),
        ))
        .turn(Turn::tool_use("Agent", task).when(RequestConditions::any().sender(Sender::Main)))
        .turn(Turn::text("sub is done").when(RequestConditions::any().sender(Sender::SubAgent)))
        .turn(Turn::text("done"));
    let run = stage.run(script);
    run.assert_good();
    assert_eq!(run.result["result"], "done");
    assert_eq!(run.transcript.requests.len(), 4);
    for request in &run.transcript.requests {
        assert!(request.sent_secret("x-api-key", REAL_KEY), "{request:?}");
        assert!(!request.sent_secret("x-api-key", PLACEHOLDER));
    }
    for file in ["environment", "parent"] {
        let environment =
            String::from_utf8_lossy(&fs::read(stage.path("project").join(file)).unwrap()).into_owned();
        assert!(environment.contains(PLACEHOLDER), "{environment}");
        assert!(!environment.contains(REAL_KEY));
    }
    assert!(!run.finished.stdout.contains(REAL_KEY) && !run.finished.stderr.contains(REAL_KEY));
    assert!(!format!("{:?}", run.events).contains(REAL_KEY));
    // The gateway and the agent count the same tokens.
    let tokens = run.totals.tokens();
    assert_eq!(run.result["modelUsage"]["claude-opus-4-8"]["outputTokens"], tokens.output, "{}", run.result);
    let cost = run.result["total_cost_usd"].as_f64().unwrap();
    let counted = run.totals.cost().micros() as f64 / 1e6;
    assert!((cost - counted).abs() < 1e-5, "{cost} {counted}");
    let by_agents = run
        .events
        .iter()
        .filter(|event| matches!(event, GatewayEvent::Started(started) if started.agent.is_some()));
    assert_eq!(by_agents.count(), 1);
}

#[test]
fn a_refused_key_ends_the_run_at_once() {
    require!(Agent);
    let script = Script::new().turn(Turn::error(ErrorReply::new(401, "invalid x-api-key")));
    let run = Stage::new().run(script);
    run.assert_stopped_with("does not accept the credential from AGENT_KEY");
    assert_eq!(run.transcript.requests.len(), 1);
    assert!(matches!(run.troubles()[..], [GatewayTrouble::CredentialRefused { .. }]));
}

#[test]
fn a_missing_key_ends_the_run_at_once() {
    require!(Agent);
    let mut stage = Stage::new();
    stage.key = None;
    let run = stage.run(Script::new().turn(Turn::text("never")));
    run.assert_stopped_with("no credential for the model");
    assert_eq!(run.transcript.requests.len(), 0);
}

#[test]
fn a_budget_that_is_reached_ends_the_run_at_once() {
    require!(Agent);
    let mut stage = Stage { cap: Some(0.5), ..Stage::new() };
    let run = stage.run(Script::new().turn(Turn::text("never")));
    run.assert_stopped_with("the budget of $0.5000 is used up");
    assert_eq!(run.transcript.requests.len(), 0);
    assert!(matches!(run.troubles()[..], [GatewayTrouble::BudgetReached { .. }]));
}

#[test]
fn a_search_of_the_provider_fails_and_the_conversation_goes_on() {
    require!(Agent);
    let script = Script::new()
        .turn(Turn::tool_use("WebSearch", json!({"query": "anything at all"})))
        .turn(Turn::text("went on without"));
    let run = Stage::new().run(script);
    run.assert_good();
    assert_eq!(run.result["result"], "went on without");
    // The search request itself never reached the host.
    assert_eq!(run.transcript.requests.len(), 2);
    let results = run.transcript.requests[1].tool_results();
    assert!(results.iter().any(|(_, text)| text.contains("`web_search`")), "{results:?}");
}

#[test]
fn a_connection_that_was_closed_while_a_tool_ran_is_replaced() {
    require!(Agent);
    let mut stage = Stage::new();
    stage.limits.head_within = Duration::from_millis(500);
    let script =
        Script::new().turn(Turn::tool_use("Bash", json!({"command": "sleep 2"}))).turn(Turn::text("done"));
    let run = stage.run(script);
    run.assert_good();
    assert!(!run.finished.stdout.contains("api_retry"), "{}", run.finished.stdout);
}
