//! An engine makes a container without a network, from an image that is nothing but empty directories or that the user
//! named, and shows in it what the plan needs of the host. The guest builds the same root in it as with bubblewrap, in namespaces of its own
//! within the container's: files, owners and modes are the same whatever the engine, and what the engine showed is
//! compared with what was meant.

mod body;
mod contents;
mod engine;
mod http;
mod image;
mod lower;
mod monitor;
mod orphans;
mod recipe;
mod service;
mod tar;
mod unfinished;
mod vessel;

pub use contents::wanted as wanted_of_images;
pub use engine::{Engine, EngineError, EnginePlaces, ServiceEnd, VARIABLE as ENGINE_VARIABLE};
pub use image::{BuiltImage, Image, Rebuild};
pub(super) use lower::lower;
pub use orphans::OrphanContainer;
pub use recipe::{FromError, ImageAct, ImageNews};
pub use unfinished::UnfinishedImage;
pub use vessel::FOLDER_PREFIX as CONTAINER_FOLDER_PREFIX;
pub(super) use vessel::Vessel;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod recipe_tests;
