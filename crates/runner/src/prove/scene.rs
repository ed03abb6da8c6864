//! A made-up user with a home, secrets, a project and services, so that no file of the real user is touched.

mod files;

use super::ProveError;
use super::outside::{HostServices, NAIVE, NAIVE_TOKEN};
use super::stranger;
use super::table::{Listener, Row};
use crate::store::leftovers::{self, MARK, PROVE_PREFIX, Scratch, control_group, mark};
use belljar_contract::{AbsPath, Attempt, BackendKind, EnvName, HarnessProfile, WorkspaceMode};
use belljar_sys::process::Prepare;
use belljar_sys::segment::Segment;
use files::{AgentFiles, lay_out, manifest};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The search path, outside as well as inside.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file in the project with the list of attempts.
pub(super) const ATTEMPTS: &str = ".attempts.json";

/// Longer than a stage may take.
const SLEEP_SECONDS: u32 = 600;
/// The variable that points programs inside to the run's CA.
const TRUSTED: &str = "SSL_CERT_FILE";

/// The scene for one side.
pub(super) struct Scene {
    pub home: PathBuf,
    pub project: PathBuf,
    pub secret: String,
    pub entering: String,
    pub key: String,
    pub abstract_name: String,
    pub pid: u32,
    pub segment: Option<Segment>,
    pub credential: String,
    /// The variables that the agent looks for its model's credential in.
    model_variables: Vec<EnvName>,
    /// The made-up internet, or why there is none.
    pub outside: Result<HostServices, String>,
    /// Whether changes are kept beside the project.
    pub keeps_changes: bool,
    marks: u64,
    names: BTreeMap<&'static str, String>,
    listeners: Listeners,
    _temporary: Scratch,
    sleeper: Child,
    _sleeper_input: Option<ChildStdin>,
}

/// The contents of the made-up user's manifest.
pub(super) struct Agents<'a> {
    /// The kind of agent, whose files a user has.
    pub profile: &'a HarnessProfile,
    pub backend: BackendKind,
    pub workspace: Option<WorkspaceMode>,
    /// The directory of a Rust toolchain.
    pub rust: &'a Path,
}

/// Services of the made-up user; one that could not be started receives nothing, on both sides.
struct Listeners {
    temporary: Option<UnixListener>,
    home: Option<UnixListener>,
    named: Option<UnixListener>,
    tcp: Option<TcpListener>,
    tcp6: Option<TcpListener>,
    udp: Option<UdpSocket>,
}

/// A random number, unique on this machine in practice.
pub(super) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Scene {
    /// Builds everything below `root`, which exists and is empty.
    pub fn build(
        root: &Path,
        side: &'static str,
        agents: &Agents<'_>,
        mut outside: Result<HostServices, String>,
    ) -> Result<Self, ProveError> {
        let failed = |cause| ProveError::Scene { path: root.to_owned(), cause };
        let number = random();
        let unique = leftovers::unique().map_err(failed)?;
        let secret = format!("belljar-secret-{number:016x}");
        let entering = format!("belljar-entering-{number:016x}");
        let credential = format!("belljar-credential-{number:016x}");
        let cmdsecret = format!("belljar-argument-{number:016x}");
        let home = root.join("user");
        let project = home.join("demo");
        let files = AgentFiles::of(agents.profile);
        lay_out(&home, &project, &files, &secret).map_err(failed)?;
        manifest(&home, &project, &entering, agents).map_err(failed)?;
        stranger::make(&home, &agents.profile.program).map_err(failed)?;
        if let Ok(outside) = &mut outside {
            outside.open()?;
        }
        let temporary = Scratch::temporary(PROVE_PREFIX).map_err(failed)?;
        let abstract_name = format!("{PROVE_PREFIX}{unique}");
        let listeners = Listeners::open(&home, temporary.path(), &abstract_name);
        // Waits for input that never comes, with a secret on its command line and others in its environment.
        // outside: prove-sleeper
        let mut sleeper = Command::new("cat")
            .args(["-", &cmdsecret])
            .current_dir("/")
            .env_clear()
            .env("GITHUB_TOKEN", &secret)
            .env("PATH", SYSTEM_PATH)
            .env(MARK, mark())
            .dies_with_spawner()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let names = BTreeMap::from([
            ("home", text(&home)),
            ("project", text(&project)),
            ("tmp", text(temporary.path())),
            ("secret", secret.clone()),
            ("cmdsecret", cmdsecret),
            ("entering", entering.clone()),
            ("unique", unique.clone()),
            ("pid", sleeper.id().to_string()),
            ("tcp", port(listeners.tcp.as_ref())),
            ("tcp6", port(listeners.tcp6.as_ref())),
            (
                "udp",
                listeners
                    .udp
                    .as_ref()
                    .map_or("1".into(), |s| s.local_addr().map_or("1".into(), |a| a.port().to_string())),
            ),
            ("cgroup", text(&control_group())),
            ("rust", text(agents.rust)),
            ("credential", credential.clone()),
            ("side", side.to_owned()),
            ("login_file", files.login),
            ("instructions", files.instructions),
            ("own_instructions", files.own_instructions),
            ("settings", files.settings),
            ("settings_directory", files.settings_directory),
        ]);
        Ok(Scene {
            key: abstract_name.clone(),
            pid: sleeper.id(),
            // A kernel without shared memory segments has none to find.
            segment: Segment::create(i32::try_from(number & 0x3fff_ffff).unwrap_or(1) | 1).ok(),
            marks: number % 1_000_000_000,
            _sleeper_input: sleeper.stdin.take(),
            sleeper,
            home,
            project,
            secret,
            entering,
            abstract_name,
            credential,
            model_variables: agents.profile.model.variables().cloned().collect(),
            outside,
            keeps_changes: side == "inside"
                && matches!(agents.workspace, Some(WorkspaceMode::Overlay | WorkspaceMode::Copy)),
            names,
            listeners,
            _temporary: temporary,
        })
    }

    /// The duration that the process of a row sleeps, which also identifies it: longer than a stage takes, unique by
    /// its fraction, and short enough to end soon if it is left over.
    pub fn mark(&self, row: &Row) -> String {
        let offset: u64 = row.id.bytes().map(u64::from).sum();
        format!("{SLEEP_SECONDS}.{:09}", (self.marks + offset) % 1_000_000_000)
    }

    /// Replaces the names in braces.
    pub fn text(&self, text: &str, row: &Row) -> String {
        let named = self
            .names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value));
        named.replace("{mark}", &self.mark(row)).replace("{id}", &row.id)
    }

    /// The attempt of a row, with the names of this scene.
    pub fn attempt(&self, row: &Row) -> Result<Attempt, ProveError> {
        // All values are paths and texts without quotes or backslashes; `build` checks that.
        let json = serde_json::json!(row.attempt).to_string();
        serde_json::from_str(&self.text(&json, row)).map_err(ProveError::Table)
    }

    /// Whether a listener has received something since the last call.
    pub fn heard(&self, listener: Listener) -> bool {
        let unix = |socket: &Option<UnixListener>| socket.as_ref().is_some_and(|s| s.accept().is_ok());
        match listener {
            Listener::Temporary => unix(&self.listeners.temporary),
            Listener::Home => unix(&self.listeners.home),
            Listener::Abstract => unix(&self.listeners.named),
            Listener::Tcp => self.listeners.tcp.as_ref().is_some_and(|s| s.accept().is_ok()),
            Listener::Tcp6 => self.listeners.tcp6.as_ref().is_some_and(|s| s.accept().is_ok()),
            Listener::Udp => {
                self.listeners.udp.as_ref().is_some_and(|socket| socket.recv(&mut [0; 64]).is_ok())
            }
        }
    }

    /// The environment of the made-up user's shell.
    pub fn environment(&self, path: &std::ffi::OsStr) -> Vec<(&str, std::ffi::OsString)> {
        let model = self.model_variables.iter().map(|name| (name.as_str(), self.secret.clone().into()));
        let mut all = vec![
            ("HOME", self.home.clone().into()),
            ("PATH", path.to_owned()),
            ("GITHUB_TOKEN", self.secret.clone().into()),
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone().into()),
            ("PROVE_TOKEN", self.entering.clone().into()),
            ("SSH_AUTH_SOCK", self.home.join("agent.sock").into()),
            (MARK, mark().into()),
        ];
        all.extend(model);
        all
    }
}

impl Scene {
    /// Further variables of the made-up user's shell for probes of egress.
    pub fn egress_environment(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let trusted = self.outside.iter().map(|outside| (TRUSTED, outside.trusted.clone().into()));
        trusted.chain([("PROVE_CREDENTIAL", self.credential.clone().into())]).collect()
    }

    /// The same variables in a careless setup: the credential itself, a proxy without rules, and a CA whose key lies
    /// beside its certificate.
    pub fn careless_egress_environment(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let url = format!("http://belljar:{NAIVE_TOKEN}@{NAIVE}");
        let trusted = self.outside.iter().map(|outside| outside.trusted.clone());
        let trusted = trusted.inspect(|file| {
            // Without it the row proves nothing.
            fs::write(file.with_extension("key"), "-----BEGIN PRIVATE KEY-----\n").ok();
        });
        let bundle = trusted.map(|file| ("CURL_CA_BUNDLE", file.into()));
        let mut all = self.egress_environment();
        all.extend(bundle);
        all.extend([
            ("http_proxy", url.clone().into()),
            ("https_proxy", url.into()),
            ("BELLJAR_PROXY", NAIVE.to_string().into()),
            ("BELLJAR_PROXY_TOKEN", NAIVE_TOKEN.into()),
        ]);
        all
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        self.sleeper.kill().ok();
        self.sleeper.wait().ok();
    }
}

impl Listeners {
    fn open(home: &Path, temporary: &Path, name: &str) -> Self {
        let unix =
            |path: PathBuf| UnixListener::bind(path).and_then(|s| s.set_nonblocking(true).map(|()| s)).ok();
        let tcp = |at: &str| TcpListener::bind(at).and_then(|s| s.set_nonblocking(true).map(|()| s)).ok();
        Listeners {
            temporary: unix(temporary.join("host.sock")),
            home: unix(home.join("agent.sock")),
            named: SocketAddr::from_abstract_name(name)
                .and_then(|at| UnixListener::bind_addr(&at))
                .and_then(|s| s.set_nonblocking(true).map(|()| s))
                .ok(),
            tcp: tcp("127.0.0.1:0"),
            tcp6: tcp("[::1]:0"),
            udp: UdpSocket::bind("127.0.0.1:0").and_then(|s| s.set_nonblocking(true).map(|()| s)).ok(),
        }
    }
}

fn port(listener: Option<&TcpListener>) -> String {
    listener.and_then(|l| l.local_addr().ok()).map_or_else(|| "1".to_owned(), |at| at.port().to_string())
}

/// The directory of a Rust toolchain: the system's, or the one on the search path. No program is asked: a toolchain
/// that a program such as rustup selects at each start would have to run with the user's own settings.
pub(super) fn toolchain(path: &OsStr) -> PathBuf {
    let system = PathBuf::from("/usr");
    if system.join("bin/cargo").is_file() {
        return system;
    }
    let compiler = belljar_sys::spawn::find(b"rustc", path.as_bytes()).ok();
    let compiler = compiler.and_then(|file| Path::new(OsStr::from_bytes(&file)).canonicalize().ok());
    let top = compiler
        .as_deref()
        .filter(|file| file.ends_with("bin/rustc"))
        .and_then(|file| file.ancestors().nth(2));
    let whole = |top: &&Path| top.join("lib/rustlib").is_dir() && top.join("bin/cargo").is_file();
    let fit = |path: &PathBuf| AbsPath::new(path).is_ok_and(|path| is_plain(&path));
    top.filter(whole).map(Path::to_owned).filter(fit).unwrap_or(system)
}

/// git on the host, as the made-up user, without executing programs of the repository.
pub(super) fn host_git(at: &Path, home: &Path) -> Command {
    // outside: prove-git
    let mut git = Command::new("git");
    git.env_clear().env("HOME", home).env("PATH", SYSTEM_PATH).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null());
    git.arg("-C").arg(at).args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]);
    git
}

/// Whether a path can be used in a script and in JSON without quoting.
pub(super) fn is_plain(path: &AbsPath) -> bool {
    path.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(byte))
}
