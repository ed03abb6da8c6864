//! Finding an engine, and asking it.

use super::error::EngineError;
use super::http::{self, Answer, Heard, Sent};
use super::service;
use belljar_contract::AbsPath;
use hyper::Method;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The oldest version of the interface that has everything; Podman 4 and Docker 20.10 speak it.
pub(super) const VERSION: &str = "/v1.40";
/// Longer than any engine takes on a machine that works.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an engine may be busy with something that it refuses to be asked about meanwhile, and how often it is asked.
const BUSY: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The variable that chooses an engine.
pub const VARIABLE: &str = "BELLJAR_ENGINE";

/// Where an engine is looked for.
#[derive(Debug, Clone)]
pub struct EnginePlaces {
    /// What the user named: `podman`, `docker`, or the path of a socket.
    pub named: Option<OsString>,
    /// The user's runtime directory.
    pub user_runtime: Option<PathBuf>,
    /// belljar's own runtime directory.
    pub runtime: AbsPath,
    /// When a podman that is started in it ends.
    pub service: ServiceEnd,
    /// The path of podman, if it is installed.
    pub podman: Option<AbsPath>,
    /// The path of runc, if it is installed.
    pub runc: Option<AbsPath>,
    /// The environment; what an engine needs of it is handed on.
    pub variables: Vec<(OsString, OsString)>,
}

/// When a podman that belljar starts to serve ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceEnd {
    /// When it has had no request for a while; other processes may use it meanwhile.
    WhenIdle,
    /// With the thread that started it: no other process knows its socket.
    WithCaller,
}

/// An engine that answers.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
    /// Whether it has the power of the superuser.
    rootful: bool,
}

impl Engine {
    /// The engine that was named, or the first that answers; podman is started where it is only installed.
    ///
    /// # Errors
    /// Lists the places where it was looked for.
    pub fn find(places: &EnginePlaces) -> Result<Self, EngineError> {
        let mut tried = Vec::new();
        let found = match places.named.as_ref().and_then(|named| named.to_str()) {
            Some("podman") => first(&places.podman_sockets(), &mut tried),
            Some("docker") => first(&places.docker_sockets(), &mut tried),
            Some(path) if path.starts_with('/') => {
                return Self::at(Path::new(path))
                    .map_err(|cause| EngineError::Unreachable { socket: path.to_owned(), cause });
            }
            None if places.named.is_none() => {
                let sockets = [places.podman_sockets(), places.docker_sockets()].concat();
                first(&sockets, &mut tried)
            }
            Some(_) | None => {
                tried.push(format!("{VARIABLE} is neither podman, docker nor an absolute path"));
                return Err(EngineError::Absent { tried });
            }
        };
        if let Some(engine) = found {
            return Ok(engine);
        }
        let wanted = places.named.as_ref().is_none_or(|named| named == "podman");
        match &places.podman {
            Some(podman) if wanted => service::start(podman, places),
            Some(_) => Err(EngineError::Absent { tried }),
            None => {
                tried.push("`podman` is not on PATH".to_owned());
                Err(EngineError::Absent { tried })
            }
        }
    }

    /// The engine that would be used, where it runs; podman is started where belljar started it before.
    ///
    /// # Errors
    /// When it should be there, and is not.
    pub fn running(places: &EnginePlaces) -> Result<Option<Self>, EngineError> {
        if places.named.is_none() && !service::was_used(places) {
            let sockets = [places.podman_sockets(), places.docker_sockets()].concat();
            return Ok(first(&sockets, &mut Vec::new()));
        }
        match Self::find(places) {
            Err(EngineError::Absent { .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns the engine behind a socket, if one listens there.
    pub(super) fn at(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let listener = rustix::net::sockopt::socket_peercred(&stream)?;
        Ok(Self { socket: socket.to_owned(), rootful: listener.uid.is_root() })
    }

    /// The path of its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether it runs as the superuser: a container then has to be started as the user.
    #[must_use]
    pub fn is_rootful(&self) -> bool {
        self.rootful
    }

    /// Returns its name and version, and the runtime of its containers.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn version(&self) -> Result<String, EngineError> {
        let answer = self.good(Method::GET, "/version", Sent::Nothing, "say its version")?.json();
        let components = answer["Components"].as_array().cloned().unwrap_or_default();
        let named = |part: &serde_json::Value| {
            let version = part["Version"].as_str()?.lines().next()?.to_owned();
            Some((part["Name"].as_str()?.to_owned(), version))
        };
        let parts: Vec<(String, String)> = components.iter().filter_map(named).collect();
        let engine = parts.iter().find(|(name, _)| name.contains("Engine"));
        let runtime = parts.iter().find(|(name, _)| name.contains("runc") || name.contains("crun"));
        let engine =
            engine.map_or_else(|| "unknown".to_owned(), |(name, version)| format!("{name} {version}"));
        let power = if self.rootful { "rootful" } else { "rootless" };
        Ok(match runtime {
            Some((_, version)) => format!("{engine}, {power}, {version}"),
            None => format!("{engine}, {power}"),
        })
    }

    /// The program that it is asked with by hand.
    pub(super) fn program(&self) -> Result<&'static str, EngineError> {
        let podman = self.version()?.to_lowercase().contains("podman");
        Ok(if podman { "podman" } else { "docker" })
    }

    /// Keeps an engine that ends when it is idle from ending, until the result is dropped.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn hold(&self) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)?;
        // A request that the engine answers for as long as the connection is open.
        let question = format!("GET {VERSION}/events HTTP/1.1\r\nHost: engine\r\n\r\n");
        stream.write_all(question.as_bytes())?;
        Ok(stream)
    }

    pub(super) fn ask(
        &self,
        method: Method,
        target: &str,
        sent: Sent,
        act: &'static str,
    ) -> Result<Answer, EngineError> {
        self.ask_at(method, &format!("{VERSION}{target}"), sent, act)
    }

    /// Asks; the target names the version of the interface.
    pub(super) fn ask_at(
        &self,
        method: Method,
        target: &str,
        sent: Sent,
        act: &'static str,
    ) -> Result<Answer, EngineError> {
        http::ask(&self.socket, method, target, sent, PATIENCE).map_err(self.silent(act))
    }

    /// Asks for something that takes long, and hands on what the engine says meanwhile line by line. The target names the
    /// version of the interface.
    pub(super) fn follow(
        &self,
        target: &str,
        sent: Sent,
        act: &'static str,
        each: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), EngineError> {
        done(http::follow(&self.socket, target, sent, each).map_err(self.silent(act))?, act).map(drop)
    }

    /// The error of a request without an answer.
    fn silent(&self, act: &'static str) -> impl Fn(io::Error) -> EngineError {
        let socket = self.socket.display().to_string();
        move |cause| EngineError::Talk { socket: socket.clone(), act, cause }
    }

    /// Asks for something that does no harm twice, until it is done or the engine has been busy for too long. Podman
    /// refuses to list images while one is being made, and to remove a container that it is removing already.
    pub(super) fn ask_while_busy(
        &self,
        method: &Method,
        target: &str,
        act: &'static str,
    ) -> Result<Answer, EngineError> {
        let until = Instant::now() + BUSY;
        loop {
            let answer = self.ask(method.clone(), target, Sent::Nothing, act)?;
            if answer.is_good() || answer.status == 404 || Instant::now() > until {
                return Ok(answer);
            }
            thread::sleep(BUSY_PAUSE);
        }
    }

    /// Asks for something that is an error if it is not done.
    pub(super) fn good(
        &self,
        method: Method,
        target: &str,
        sent: Sent,
        act: &'static str,
    ) -> Result<Answer, EngineError> {
        done(self.ask(method, target, sent, act)?, act)
    }
}

impl EnginePlaces {
    fn podman_sockets(&self) -> Vec<PathBuf> {
        let user = self.user_runtime.iter().map(|runtime| runtime.join("podman/podman.sock"));
        user.chain([PathBuf::from("/run/podman/podman.sock")]).collect()
    }

    fn docker_sockets(&self) -> Vec<PathBuf> {
        let user = self.user_runtime.iter().map(|runtime| runtime.join("docker.sock"));
        user.chain([PathBuf::from("/var/run/docker.sock")]).collect()
    }

    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Returns the answer, or an error if the engine refused.
pub(super) fn done(answer: Answer, act: &'static str) -> Result<Answer, EngineError> {
    if answer.is_good() { Ok(answer) } else { Err(EngineError::Refused { act, message: answer.message() }) }
}

fn first(sockets: &[PathBuf], tried: &mut Vec<String>) -> Option<Engine> {
    sockets.iter().find_map(|socket| match Engine::at(socket) {
        Ok(engine) => Some(engine),
        Err(cause) => {
            #[expect(clippy::wildcard_enum_match_arm, reason = "the kinds of the standard library are many")]
            let why = match cause.kind() {
                io::ErrorKind::NotFound => "is not there".to_owned(),
                io::ErrorKind::ConnectionRefused => "has no listener".to_owned(),
                io::ErrorKind::PermissionDenied => "is not for you".to_owned(),
                _ => cause.to_string(),
            };
            tried.push(format!("`{}` {why}", socket.display()));
            None
        }
    })
}
