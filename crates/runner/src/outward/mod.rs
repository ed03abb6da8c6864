//! What stands between one run and the world: made before the sandbox is built, serving before the command starts.

mod credentials;
mod serving;
mod sinks;

pub(crate) use credentials::upstream_shown;
pub(crate) use serving::{OutwardEnd, Serving, ServingRequest};
pub use sinks::Denied;

use crate::launching::{Ask, Model};
use crate::planning::Surroundings;
use crate::runtime::{RuntimeDirectory, RuntimeError};
use belljar_contract::{
    AbsPath, EgressPolicy, EnvSource, FileContent, GuestVariable, OsText, Plan, PlannedFile, RunValue,
    Secret, SshFound, TrustFile,
};
use belljar_egress::gateway::{ModelCredentialError, UpstreamError};
use belljar_egress::intercept::{CaError, CertificateAuthority, InterceptError, Interceptor, TrustBundle};
use belljar_egress::log::LogError;
use belljar_egress::proxy::{Mode, ProxyError, Reach, USER};
use belljar_egress::ssh::{Asking, HeldKeys, HoldError, HoldRequest, LookUpError, SshTools};
use belljar_egress::tape::OnDrift;
use belljar_egress::tls::{ExtraRoots, TlsClient, TlsClientError};
use belljar_sandbox::PROXY_ADDRESS;
use serving::LiveModel;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a key may take to be held where nobody can be asked.
const KEY_PATIENCE: Duration = Duration::from_secs(20);

/// Why a run cannot be given its way out. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub enum OutwardError {
    /// No token can be made.
    #[error("the system gives no random bytes")]
    Random(#[source] std::io::Error),
    /// A value of a credential could not be found.
    #[error("cannot find the credential for `{host}`: {what}")]
    Value {
        /// The host it is for.
        host: String,
        /// Where it was looked for; never the value.
        what: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The model's own credential.
    #[error(transparent)]
    ModelCredential(ModelCredentialError),
    /// The model's host, as the user's variable names it.
    #[error("the variable {variable} is not usable")]
    Upstream {
        /// Which.
        variable: String,
        /// Why.
        #[source]
        cause: UpstreamError,
    },
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsClientError),
    /// The run's authority.
    #[error(transparent)]
    Authority(#[from] CaError),
    /// Credentials cannot be added.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    /// Keys of ssh and of its hosts.
    #[error(transparent)]
    SshKeys(#[from] LookUpError),
    /// Keys of ssh cannot be held ready.
    #[error(transparent)]
    SshHold(#[from] HoldError),
    /// There is no place for what belongs to the run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Something of the plan was not filled in; a fault of belljar.
    #[error("a file of the run was not made")]
    File(#[source] belljar_plan::SshNotFound),
    /// The log cannot be begun.
    #[error("nothing may leave without a log")]
    Log(#[source] LogError),
    /// A socket that the sandbox handed out cannot be served.
    #[error("the sandbox's sockets cannot be served")]
    Proxy(#[source] ProxyError),
    /// The services cannot be started.
    #[error("the way out cannot be served")]
    Start(#[source] std::io::Error),
}

/// What the way out is made from.
pub(crate) struct OutwardRequest<'a> {
    pub plan: &'a Plan,
    pub surroundings: &'a Surroundings,
    pub model: &'a Model,
    pub mode: Mode,
    pub reach: Reach,
    pub ask: Ask<'a>,
}

/// The way out of a run, before there is a sandbox.
pub(crate) struct Outward {
    pub(super) mode: Mode,
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

impl Outward {
    /// Finds and makes everything that can fail before anything is built.
    pub fn prepare(request: OutwardRequest<'_>) -> Result<Self, OutwardError> {
        let OutwardRequest { plan, surroundings, model, mode, reach, ask } = request;
        let policy = Arc::new(EgressPolicy::new(&plan.egress));
        let token = Arc::new(random_token()?);
        let mut named = Vec::new();
        let bound = credentials::bound(plan, surroundings, ask, &mut named)?;
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
            Model::Live => Some(credentials::live_model(plan, surroundings)?),
            Model::Replay(replay) if replay.on_drift == OnDrift::Live => {
                Some(credentials::live_model(plan, surroundings)?)
            }
            Model::Absent | Model::Script(_) | Model::Replay(_) => None,
        };
        let (ssh_found, keys) = if plan.ssh.is_empty() {
            (Vec::new(), None)
        } else {
            let (found, keys) = hold_keys(plan, surroundings)?;
            (found, Some(keys))
        };
        Ok(Self { mode, reach, policy, token, interceptor, live, keys, trust, ssh_found, named })
    }

    /// Puts what was made for the run into the files of its plan.
    pub fn fill(&self, plan: &mut Plan) -> Result<(), OutwardError> {
        belljar_plan::fill_ssh(&mut plan.files, &plan.ssh, &self.ssh_found).map_err(OutwardError::File)?;
        let Some(trust) = &self.trust else { return Ok(()) };
        for PlannedFile { content, .. } in &mut plan.files {
            let bytes = match content {
                FileContent::Trust(TrustFile::Bundle) => trust.bundle.clone().into_bytes(),
                FileContent::Trust(TrustFile::Authority) => trust.ca.clone().into_bytes(),
                FileContent::Trust(TrustFile::Keystore) => trust.keystore.clone(),
                FileContent::Text(_)
                | FileContent::JsonFrom { .. }
                | FileContent::SshKnownHosts { .. }
                | FileContent::SshPublicKey { .. }
                | FileContent::Git(_)
                | FileContent::Bytes(_) => continue,
            };
            *content = FileContent::Bytes(bytes);
        }
        Ok(())
    }

    /// The variables whose values were made for the run.
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
            _ => None,
        };
        plan.env.iter().filter_map(variable).collect()
    }

    /// Values that no record may hold, by name.
    pub fn secrets(&self) -> Vec<(String, &Secret)> {
        let bound = self.named.iter().map(|(name, secret)| (name.clone(), secret.as_ref()));
        let model =
            self.live.iter().map(|live| (live.found.source.to_string(), live.found.credential.secret()));
        bound.chain(model).chain([(PROXY_TOKEN.to_owned(), self.token.as_ref())]).collect()
    }
}

/// The name of the secret that the run's proxy asks for.
pub(crate) const PROXY_TOKEN: &str = "proxy token";

/// 32 random bytes as text that can stand in a URL.
fn random_token() -> Result<Secret, OutwardError> {
    let mut bytes = [0_u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| OutwardError::Random(errno.into()))?;
    if filled < bytes.len() {
        return Err(OutwardError::Random(std::io::Error::other("too few")));
    }
    Ok(Secret::new(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect::<Vec<u8>>()))
}

/// The keys of the plan's hosts, and an agent outside that holds the user's.
fn hold_keys(plan: &Plan, surroundings: &Surroundings) -> Result<(Vec<SshFound>, HeldKeys), OutwardError> {
    let files = belljar_egress::ssh::known_hosts_files(surroundings.home.as_path());
    let tools = SshTools::on(surroundings.outside_path());
    let found = belljar_egress::ssh::look_up(&plan.ssh, &files, &tools)?;
    let runtime = RuntimeDirectory::open(&surroundings.runtime)?;
    let folder: AbsPath = runtime.path().child(&format!("ssh-{}", std::process::id()));
    let variable = |name: &str| surroundings.variables.get(std::ffi::OsStr::new(name));
    let terminal = rustix::termios::isatty(std::io::stdin());
    let keys = belljar_egress::ssh::hold(
        &plan.ssh,
        &found,
        &HoldRequest {
            tools: &tools,
            user_agent: variable("SSH_AUTH_SOCK").map(Path::new),
            directory: folder.as_path(),
            asking: if terminal { Asking::Terminal } else { Asking::NoTerminal },
            askpass: variable("SSH_ASKPASS").cloned(),
            patience: KEY_PATIENCE,
        },
    )?;
    Ok((found, keys))
}
