//! The egress services of one run: prepared before the sandbox is built, serving before the command starts.

mod credentials;
mod services;
mod sinks;
mod sockets;
mod thread;

pub(crate) use credentials::{first_place, upstream_shown};
pub(crate) use services::{EgressEnd, Serving, ServingRequest};
pub use sinks::Denied;
pub(crate) use thread::answer_calls;

use crate::environment::HostEnvironment;
use crate::launch::{Ask, Model};
use crate::store::runtime::{RuntimeDirectory, RuntimeError};
use belljar_contract::{
    AbsPath, EgressPolicy, EnvSource, FileContent, GuestVariable, OsText, Plan, PlannedFile, RunFiles,
    RunValue, Secret, SshFound, TrustFile,
};
use belljar_egress::gateway::{ModelCredentialError, UpstreamError};
use belljar_egress::intercept::{CaError, CertificateAuthority, InterceptError, Interceptor, TrustBundle};
use belljar_egress::log::LogError;
use belljar_egress::proxy::{EgressMode, ProxyError, Reach, USER};
use belljar_egress::ssh::{Asking, HeldKeys, HoldError, HoldRequest, LookUpError, SshTools};
use belljar_egress::tape::OnDrift;
use belljar_egress::tls::{ExtraRoots, TlsClient, TlsClientError};
use belljar_sandbox::PROXY_ADDRESS;
use services::LiveModel;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long unlocking a key may take if no user can be asked.
const KEY_PATIENCE: Duration = Duration::from_secs(20);

/// Why the egress services could not be started. The command was not started.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("cannot read random bytes from the system")]
    Random(#[source] std::io::Error),
    /// A value of a credential could not be found.
    #[error("cannot find the credential for `{host}`: {what}")]
    Value {
        host: String,
        /// The place that was searched; never the value.
        what: String,
        #[source]
        cause: std::io::Error,
    },
    /// The plan is not one of this version of belljar.
    #[error("the harness `{0}` is unknown, so that the credential for its model cannot be found")]
    Harness(String),
    /// The model's own credential.
    #[error(transparent)]
    ModelCredential(ModelCredentialError),
    /// The address of the model's provider, from the user's environment.
    #[error("the variable {variable} does not hold a valid address")]
    Upstream {
        variable: String,
        #[source]
        cause: UpstreamError,
    },
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsClientError),
    #[error(transparent)]
    Authority(#[from] CaError),
    /// Credentials cannot be added.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    #[error(transparent)]
    SshKeys(#[from] LookUpError),
    #[error(transparent)]
    SshHold(#[from] HoldError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A file of the plan was not filled in; a bug in belljar.
    #[error("a file of the run is missing; this is a bug in belljar")]
    File(#[source] belljar_plan::SshNotFound),
    #[error("cannot open the egress log; refusing to start")]
    Log(#[source] LogError),
    #[error("cannot serve the sandbox's sockets")]
    Proxy(#[source] ProxyError),
    #[error("cannot start the egress services")]
    Start(#[source] std::io::Error),
}

/// What the egress services are prepared from.
pub(crate) struct EgressRequest<'a> {
    pub plan: &'a Plan,
    pub environment: &'a HostEnvironment,
    pub model: &'a Model,
    pub mode: EgressMode,
    pub reach: Reach,
    pub ask: Ask<'a>,
}

/// The egress services of a run, before its sandbox exists.
pub(crate) struct EgressServices {
    pub(super) mode: EgressMode,
    pub(super) reach: Reach,
    pub(super) policy: Arc<EgressPolicy>,
    pub(super) token: Arc<Secret>,
    pub(super) interceptor: Option<Arc<Interceptor>>,
    pub(super) live: Option<LiveModel>,
    pub(super) keys: Option<HeldKeys>,
    trust: Option<TrustBundle>,
    ssh_found: Vec<SshFound>,
    named: Vec<(String, Arc<Secret>)>,
}

impl EgressServices {
    /// Does everything that can fail before the sandbox is built.
    pub fn prepare(request: EgressRequest<'_>) -> Result<Self, EgressError> {
        let EgressRequest { plan, environment, model, mode, reach, ask } = request;
        let policy = Arc::new(EgressPolicy::new(&plan.egress));
        let token = Arc::new(random_token()?);
        let mut named = Vec::new();
        let bound = credentials::bound(plan, environment, ask, &mut named)?;
        let hosts = belljar_egress::intercept::intercepted_hosts(&plan.egress.rules, &bound);
        let (interceptor, trust) = if hosts.is_empty() {
            (None, None)
        } else {
            let ca = Arc::new(CertificateAuthority::new(&hosts, SystemTime::now())?);
            let trust = belljar_egress::intercept::trust_bundle(
                &belljar_egress::tls::machine_roots(),
                ca.certificate(),
            );
            let interceptor = Interceptor::new(belljar_egress::intercept::Interception {
                rules: plan.egress.rules.clone(),
                credentials: bound,
                ca,
                tls: TlsClient::new(&ExtraRoots::default())?,
                timeouts: belljar_egress::intercept::InterceptTimeouts::default(),
            })?;
            (Some(Arc::new(interceptor)), Some(trust))
        };
        let live = match model {
            Model::Live => Some(credentials::live_model(plan, environment)?),
            Model::Replay(replay) if replay.on_drift == OnDrift::Live => {
                Some(credentials::live_model(plan, environment)?)
            }
            Model::Absent | Model::Script(_) | Model::Replay(_) => None,
        };
        let (ssh_found, keys) = if plan.ssh.is_empty() {
            (Vec::new(), None)
        } else {
            let (found, keys) = hold_keys(plan, environment)?;
            (found, Some(keys))
        };
        Ok(Self { mode, reach, policy, token, interceptor, live, keys, trust, ssh_found, named })
    }

    /// Adds the contents of the plan's files that depend on the CA of the run and on keys of ssh.
    pub fn files(&self, plan: &Plan, out: &mut RunFiles) -> Result<(), EgressError> {
        belljar_plan::ssh_files(&plan.files, &plan.ssh, &self.ssh_found, out).map_err(EgressError::File)?;
        let Some(trust) = &self.trust else { return Ok(()) };
        for PlannedFile { content, .. } in &plan.files {
            let bytes = match content {
                FileContent::Trust(TrustFile::Bundle) => trust.bundle.clone().into_bytes(),
                FileContent::Trust(TrustFile::Authority) => trust.ca.clone().into_bytes(),
                FileContent::Trust(TrustFile::Keystore) => trust.keystore.clone(),
                FileContent::Text(_)
                | FileContent::JsonFrom { .. }
                | FileContent::SshKnownHosts { .. }
                | FileContent::SshPublicKey { .. }
                | FileContent::Git(_) => continue,
            };
            out.add(content, bytes);
        }
        Ok(())
    }

    /// The variables whose values were generated for the run.
    pub fn variables(&self, plan: &Plan) -> Vec<GuestVariable> {
        let token = String::from_utf8_lossy(self.token.expose());
        let value = |value: RunValue| match value {
            RunValue::ProxyUrl => format!("http://{USER}:{token}@{PROXY_ADDRESS}"),
            RunValue::ProxyAddress => PROXY_ADDRESS.to_string(),
            RunValue::ProxyToken => token.to_string(),
        };
        let variable = |entry: &belljar_contract::EnvEntry| match entry.source {
            EnvSource::Run(run) => Some(GuestVariable {
                name: OsText::new(entry.name.as_str()).ok()?,
                value: OsText::new(value(run)).ok()?,
            }),
            EnvSource::Literal(_)
            | EnvSource::Constant(_)
            | EnvSource::Variable(_)
            | EnvSource::Prompt(_)
            | EnvSource::File(_)
            | EnvSource::Command(_) => None,
        };
        plan.env.iter().filter_map(variable).collect()
    }

    /// Values that no record may contain, by name.
    pub fn secrets(&self) -> Vec<(String, &Secret)> {
        let bound = self.named.iter().map(|(name, secret)| (name.clone(), secret.as_ref()));
        let model =
            self.live.iter().map(|live| (live.found.source.to_string(), live.found.credential.secret()));
        bound.chain(model).chain([(PROXY_TOKEN.to_owned(), self.token.as_ref())]).collect()
    }
}

/// The name of the secret that the run's proxy requires.
pub(crate) const PROXY_TOKEN: &str = "proxy token";

/// 32 random bytes, encoded for use in a URL.
fn random_token() -> Result<Secret, EgressError> {
    let mut bytes = [0_u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| EgressError::Random(errno.into()))?;
    if filled < bytes.len() {
        return Err(EgressError::Random(std::io::Error::other("the system returned too few bytes")));
    }
    Ok(Secret::new(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect::<Vec<u8>>()))
}

/// The keys of the plan's hosts, and an ssh agent outside the sandbox that holds the user's keys.
fn hold_keys(plan: &Plan, environment: &HostEnvironment) -> Result<(Vec<SshFound>, HeldKeys), EgressError> {
    let files = belljar_egress::ssh::known_hosts_files(environment.home.as_path());
    let tools = SshTools::on(environment.outside_path());
    let found = belljar_egress::ssh::look_up(&plan.ssh, &files, &tools)?;
    let runtime = RuntimeDirectory::open(&environment.runtime)?;
    let directory: AbsPath = runtime.path().child(&format!("ssh-{}", std::process::id()));
    let variable = |name: &str| environment.variables.get(std::ffi::OsStr::new(name));
    let terminal = rustix::termios::isatty(std::io::stdin());
    let keys = belljar_egress::ssh::hold(
        &plan.ssh,
        &found,
        &HoldRequest {
            tools: &tools,
            user_agent: variable("SSH_AUTH_SOCK").map(Path::new),
            directory: directory.as_path(),
            asking: if terminal { Asking::Terminal } else { Asking::NoTerminal },
            askpass: variable("SSH_ASKPASS").cloned(),
            patience: KEY_PATIENCE,
        },
    )?;
    Ok((found, keys))
}
