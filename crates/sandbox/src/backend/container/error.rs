//! Why an engine gave no container or image.

use super::engine::VARIABLE;
use super::recipe;
use belljar_contract::ImageName;
use std::io;
use std::path::PathBuf;

/// Why a container could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// None is installed, or none is running.
    #[error("no container engine was found")]
    Absent {
        /// The places where it was looked for, and what was there.
        tried: Vec<String>,
    },
    /// The one that was named does not answer.
    #[error("the engine at `{socket}` cannot be reached")]
    Unreachable {
        /// The path of its socket.
        socket: String,
        /// Why the connection failed.
        #[source]
        cause: io::Error,
    },
    /// Podman did not begin to serve.
    #[error("`podman system service` does not serve: {message}")]
    Service {
        /// The last lines that podman wrote.
        message: String,
    },
    /// Something of belljar's that an engine needs could not be made.
    #[error("cannot make `{}`", path.display())]
    Make {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// The engine went away, or does not speak as it should.
    #[error("the engine at `{socket}` did not answer: {act}")]
    Talk {
        /// The path of its socket.
        socket: String,
        /// What it was asked for.
        act: &'static str,
        /// What went wrong on the connection.
        #[source]
        cause: io::Error,
    },
    /// The engine says no.
    #[error("the engine refused to {act}: {message}")]
    Refused {
        /// What it was asked for.
        act: &'static str,
        /// The engine's message.
        message: String,
    },
    /// The image that was named is not there.
    #[error("the engine at `{socket}` has no image `{image}`")]
    NoImage {
        /// The path of the engine's socket.
        socket: String,
        /// The name of the image.
        image: ImageName,
        /// The engine's own program.
        program: &'static str,
    },
    /// The image is for another kind of processor.
    #[error("the image `{image}` is made for {architecture}; this machine is {machine}")]
    Foreign {
        /// The name of the image.
        image: ImageName,
        /// What it is made for.
        architecture: String,
        /// What this machine is.
        machine: &'static str,
    },
    /// The image lacks what the command cannot do without.
    #[error("the image `{image}` has no {what}: {loses}")]
    Lacking {
        /// The name of the image.
        image: String,
        /// What the image lacks.
        what: String,
        /// What does not work.
        loses: String,
    },
    /// The container ended before the guest connected.
    #[error("the container ended before the guest spoke: {message}")]
    Silent {
        /// The last output of the container, or the engine's reason.
        message: String,
    },
    /// Another process connected in the guest's place.
    #[error("process {found} took the guest's place, which is process {expected}")]
    Stranger {
        /// The process that connected.
        found: i32,
        /// The first process of the container.
        expected: i64,
    },
}

impl EngineError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = |text: &str| Some(text.to_owned());
        match self {
            EngineError::Absent { .. } => Some(format!(
                "apt install podman, or start Docker; {VARIABLE} names an engine (podman, docker, or a socket)"
            )),
            EngineError::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                text("you may not use that engine; `BELLJAR_ENGINE=podman` uses podman without root")
            }
            EngineError::Unreachable { .. } => {
                Some(format!("start it, or name another one with {VARIABLE} (podman, docker, or a socket)"))
            }
            EngineError::Service { message } if message.contains("too long") => {
                text("set XDG_RUNTIME_DIR to a short path that is yours alone")
            }
            EngineError::Service { .. } => text("`podman info` shows what podman makes of this machine"),
            EngineError::NoImage { image, .. } if image.as_str().starts_with(recipe::REPOSITORY) => {
                text("`belljar image build --from BASE` makes it, of the base that it was made from")
            }
            EngineError::NoImage { image, program, .. } if image.as_str().starts_with("localhost/") => {
                Some(format!("make it with `{program} build -t {image} …` or `{program} load`"))
            }
            EngineError::NoImage { image, program, .. } => Some(format!(
                "belljar fetches nothing by itself: `{program} pull {image}`; `belljar image build --from {image}` \
                 adds what agents need"
            )),
            EngineError::Foreign { machine, .. } => {
                Some(format!("pull or build it for this machine: `--platform linux/{machine}`"))
            }
            EngineError::Lacking { .. } => {
                text("use an image that has it; `belljar doctor` says all that one lacks")
            }
            EngineError::Refused { message, .. } if message.contains("no space left on device") => text(
                "make space where the engine keeps its containers; `belljar gc` removes what is left over",
            ),
            EngineError::Refused { message, .. } if message.contains("cgroups in hybrid mode") => {
                text("crun cannot work on this machine: apt install runc, and leave BELLJAR_ENGINE unset")
            }
            EngineError::Refused { .. }
            | EngineError::Talk { .. }
            | EngineError::Silent { .. }
            | EngineError::Stranger { .. } => text("`belljar doctor` looks at the engine"),
            EngineError::Make { .. } => None,
        }
    }
}
