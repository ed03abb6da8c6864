//! Makes and starts a container, and waits for the guest in it to connect.

use super::body::{self, Asked};
use super::engine::{Engine, EnginePlaces};
use super::error::EngineError;
use super::http::{Sent, escaped};
use super::image::Rebuild;
use belljar_contract::{AbsPath, Container, ContainerImage, Launch, LaunchArgument};
use hyper::Method;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the guest may take to connect, once the engine says that it runs.
const CALL_TIME: Duration = Duration::from_secs(20);
/// How often the engine is asked whether the container still runs while the guest has not connected.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// The prefix of the directories of the sockets, by which a sweep finds those that a kill left.
pub const DIRECTORY_PREFIX: &str = "container-";

/// A container. Dropping it removes it, with everything that runs in it.
#[derive(Debug)]
pub(super) struct ContainerHandle {
    engine: Engine,
    id: String,
    /// What the image lacks and the command can do without, one sentence each.
    pub lacks: Vec<String>,
}

impl ContainerHandle {
    /// Makes a container with the guest in it, and returns it with the socket to the guest.
    pub(super) fn launch(
        places: &EnginePlaces,
        launch: &Launch,
        container: &Container,
        run: &str,
    ) -> Result<(Self, OwnedFd), EngineError> {
        let engine = Engine::find(places)?;
        let make = |path: &AbsPath, cause| EngineError::Make { path: path.as_path().to_owned(), cause };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&places.runtime)
            .map_err(|cause| make(&places.runtime, cause))?;
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&places.runtime)
            .map_err(|cause| make(&places.runtime, cause))?;
        let path = AbsPath::new(directory.path().join("s"))
            .map_err(|error| make(&places.runtime, io::Error::other(error)))?;
        let listener = listen(directory.path()).map_err(|cause| make(&path, cause))?;
        let command: Vec<String> = launch
            .command
            .iter()
            .map(|argument| match argument {
                LaunchArgument::Text(text) => text.to_string(),
                LaunchArgument::Program(program) => program.to_string(),
                LaunchArgument::Control => body::CONTROL.to_owned(),
            })
            .filter(|argument| argument != "--")
            .collect();
        let asked =
            Asked { container, image: "", limits: &launch.limits, command: &command, control: &path, run };
        let mut handle = match Self::make(engine, asked) {
            // An engine that ends when it is idle may have ended just now.
            Err(EngineError::Talk { .. }) => Self::make(Engine::find(places)?, asked),
            made => made,
        }?;
        handle.lacks = handle.engine.lacking(&handle.id, container)?;
        let start = format!("/containers/{}/start", handle.id);
        handle.engine.good(Method::POST, &start, Sent::Nothing, "start the container")?;
        let control = handle.accept(&listener)?;
        Ok((handle, control))
    }

    fn make(engine: Engine, asked: Asked<'_>) -> Result<Self, EngineError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let act = "make a container";
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("belljar-{}-{}-{number}", asked.run, std::process::id());
        let target = format!("/containers/create?name={}", escaped(&name));
        let create = |image: &str| {
            let body = body::body(&engine, &Asked { image, ..asked });
            engine.ask(Method::POST, &target, Sent::Json(body), act)
        };
        let answer = match &asked.container.image {
            // By its number: the name may come to mean another image than the one that was looked at.
            ContainerImage::Named(name) => create(&engine.named_image(name)?)?,
            ContainerImage::Empty(name) => match create(name)? {
                missing if missing.status == 404 => {
                    engine.build_image(Rebuild::WhereMissing)?;
                    create(name)?
                }
                answer => answer,
            },
        };
        match answer.json()["Id"].as_str() {
            Some(id) if answer.is_good() => {
                let id = id.to_owned();
                Ok(Self { engine, id, lacks: Vec::new() })
            }
            Some(_) | None => Err(EngineError::Refused { act, message: answer.message() }),
        }
    }

    /// Accepts the one connection that is expected, from the process that the engine started.
    fn accept(&self, listener: &UnixListener) -> Result<OwnedFd, EngineError> {
        let silent = |message: String| EngineError::Silent { message };
        let until = Instant::now() + CALL_TIME;
        loop {
            let mut polled = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&LOOK)) {
                Ok(0) if Instant::now() > until => return Err(silent("it said nothing".to_owned())),
                Ok(0) => {
                    self.first_process()?;
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(silent(errno.to_string())),
            }
        }
        let (stream, _) = listener.accept().map_err(|error| silent(error.to_string()))?;
        let peer =
            rustix::net::sockopt::socket_peercred(&stream).map_err(|errno| silent(errno.to_string()))?;
        let (found, expected) = (peer.pid.as_raw_pid(), self.first_process()?);
        if i64::from(found) == expected {
            Ok(stream.into())
        } else {
            Err(EngineError::Stranger { found, expected })
        }
    }

    /// The container's first process, as it is numbered here.
    fn first_process(&self) -> Result<i64, EngineError> {
        let target = format!("/containers/{}/json", self.id);
        let answer = self.engine.ask(Method::GET, &target, Sent::Nothing, "show the container")?;
        let state = &answer.json()["State"];
        if answer.is_good() && state["Running"].as_bool() == Some(true) {
            return Ok(state["Pid"].as_i64().unwrap_or(0));
        }
        Err(EngineError::Silent { message: self.last_output(&answer.json()) })
    }

    /// Returns what the guest wrote before it gave up, or what the engine knows.
    pub(super) fn complaint(&self) -> String {
        let target = format!("/containers/{}/json", self.id);
        let answer = self.engine.ask(Method::GET, &target, Sent::Nothing, "show the container");
        self.last_output(&answer.map(|answer| answer.json()).unwrap_or_default())
    }

    fn last_output(&self, shown: &serde_json::Value) -> String {
        let target = format!("/containers/{}/logs?stderr=true&stdout=true", self.id);
        let logs = self.engine.good(Method::GET, &target, Sent::Nothing, "show what it said");
        let logs = logs.map(|logs| plain(&logs.body)).unwrap_or_default();
        let error = shown["State"]["Error"].as_str().unwrap_or_default().to_owned();
        [logs, error]
            .into_iter()
            .find(|message| !message.is_empty())
            .unwrap_or("it ended without output".to_owned())
    }
}

impl Drop for ContainerHandle {
    fn drop(&mut self) {
        let target = format!("/containers/{}?force=true&v=true", self.id);
        // A failure cannot be reported from here; `belljar gc` removes what is left.
        let _removed = self.engine.ask_while_busy(&Method::DELETE, &target, "remove the container");
    }
}

/// Opens a socket named `s` in the directory. It is named through a descriptor: the path of a socket must be short, and this
/// one may be long.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    let opened = File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/s", opened.as_raw_fd()))
}

/// Removes the eight bytes that engines put before each piece of a log.
fn plain(mut log: &[u8]) -> String {
    let mut out = Vec::new();
    while let Some((head, rest)) = log.split_at_checked(8) {
        let length = head.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
        let length = usize::try_from(length).unwrap_or(0).min(rest.len());
        out.extend_from_slice(rest.get(..length).unwrap_or_default());
        log = rest.get(length..).unwrap_or_default();
    }
    String::from_utf8_lossy(&out).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn the_headers_of_a_log_are_removed() {
        let log = b"\x02\0\0\0\0\0\0\x03one\x01\0\0\0\0\0\0\x04two\n";
        assert_eq!(plain(log), "onetwo");
        assert_eq!(plain(b"\x02\0\0\0\xff\xff\xff\xffcut"), "cut");
        assert_eq!(plain(b"short"), "");
    }
}
