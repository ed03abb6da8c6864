//! An engine makes a container without a network, from an image of empty directories or from the image that the user named,
//! and shows in it what the plan needs of the host. The guest builds the same root in it as with bubblewrap, in namespaces of
//! its own within the container's: files, owners and modes are the same with every engine, and the guest compares what the
//! engine showed with what was meant.

mod body;
mod contents;
mod engine;
mod error;
mod handle;
mod holder;
mod http;
mod image;
mod lower;
mod monitor;
mod orphans;
mod recipe;
mod service;
mod tar;
mod unfinished;

pub use contents::wanted as wanted_of_images;
pub use engine::{Engine, EnginePlaces, ServiceEnd, VARIABLE as ENGINE_VARIABLE};
pub use error::EngineError;
pub use handle::DIRECTORY_PREFIX as CONTAINER_DIRECTORY_PREFIX;
pub use image::{BuiltImage, Image, Rebuild};
pub use orphans::OrphanContainer;
pub use recipe::{FromError, ImageAct, ImageNews};
pub use unfinished::UnfinishedImage;

use super::defaults::{self, Capacity, ProcessLimit, TMPFS_MECHANISM};
use super::registry::Backend;
use super::request::Unused;
use super::shared::guest_root::{self, RootSources};
use super::shared::guest_session::{GuestCommand, Unsealed};
use super::shared::{files, guest_inside};
use super::{LaunchError, LaunchRequest, Lowering, NeedsMet, Running};
use belljar_contract::{AbsPath, GuestGround, Launch, Unmet};
use belljar_sys::message;
use handle::ContainerHandle;
use holder::HeldContainer;
use std::os::fd::AsFd;

/// The backend of containers.
#[derive(Debug)]
pub(super) struct ContainerBackend;

impl Backend for ContainerBackend {
    fn check_needs(&self, lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
        lower::check_needs(lowering)
    }

    fn lower(&self, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, Vec<Unmet>> {
        lower::lower(self, lowering, met)
    }

    fn launch(&self, request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
        let LaunchRequest {
            launch,
            waiting,
            variables,
            streams,
            name,
            overlays,
            engine,
            identities,
            run_files,
        } = request;
        let (Some(container), Some(places)) = (&launch.container, engine) else {
            return Err(EngineError::Absent { tried: Vec::new() }.into());
        };
        launch.made.iter().try_for_each(|made| files::make(made, run_files))?;
        // bubblewrap is not used; what was started early ends while the container is made.
        let unused = Unused::new(waiting);
        let image = &container.image;
        let overlays = overlays.iter().map(|overlay| guest_root::layers(overlay, image, identities));
        let ground = GuestGround::Container { overlays: overlays.collect::<Result<_, _>>()? };
        let sources = RootSources { ground, image: Some(image), identities, run_files };
        let root = guest_root::prepare(sources, &launch.root, launch.bounds)?;
        let (handle, control) = ContainerHandle::launch(places, launch, container, name)?;
        message::ask_for_senders(control.as_fd()).map_err(LaunchError::talk)?;
        let holder = HeldContainer::new(handle, unused);
        Unsealed { holder, control, root }.seal(GuestCommand { launch, variables, streams, run: name })
    }

    fn guest_path(&self, on_host: &AbsPath) -> AbsPath {
        guest_inside(on_host)
    }

    fn default_processes(&self, pids: u32, capacity: Capacity) -> Result<ProcessLimit, String> {
        // An engine without the superuser's power may be unable to set the group.
        Ok(match defaults::in_namespaces(pids, capacity) {
            Ok(ProcessLimit::Resource(_)) => ProcessLimit::EngineAndResource(pids),
            Ok(ProcessLimit::Numbers(_) | ProcessLimit::Engine(_) | ProcessLimit::EngineAndResource(_))
            | Err(_) => ProcessLimit::Engine(pids),
        })
    }

    fn default_tmpfs(&self) -> Result<&'static str, String> {
        Ok(TMPFS_MECHANISM)
    }
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod recipe_tests;
