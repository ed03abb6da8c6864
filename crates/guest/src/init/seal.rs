//! Applies the restrictions, in an order in which each is still possible.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use belljar_contract::{
    GuestFiles, GuestFilter, GuestLandlock, GuestRestriction, GuestSpec, GuestStep, OsText,
};
use belljar_sys::landlock::{self, Enforced, FileRules, Restriction};
use belljar_sys::{caps, keyring, privs, seccomp};

use super::Refusal;

/// Applies every restriction, or returns the step that failed.
pub(super) fn close_all(spec: &GuestSpec) -> Result<GuestLandlock, Refusal> {
    keyring::join_fresh().map_err(|error| Refusal::new(GuestStep::Keyring, &error))?;
    caps::drop_all().map_err(|error| Refusal::new(GuestStep::Capabilities, &error))?;
    privs::no_new_privs().map_err(|error| Refusal::new(GuestStep::Privileges, &error))?;
    let enforced =
        landlock::restrict(&rules(&spec.files)).map_err(|error| Refusal::new(GuestStep::Landlock, &error))?;
    let filter = match (spec.filter, &spec.guard) {
        (GuestFilter::Standard, None) => seccomp::Filter::standard(),
        (GuestFilter::Apart, None) => seccomp::Filter::apart(),
        (GuestFilter::Standard, Some(_)) => seccomp::Filter::with_a_guard(seccomp::entries()),
        (GuestFilter::Apart, Some(_)) => seccomp::Filter::with_a_guard(seccomp::apart_entries()),
    };
    filter.and_then(|filter| filter.install()).map_err(|error| Refusal::new(GuestStep::Filter, &error))?;
    Ok(facts(enforced))
}

fn rules(files: &GuestFiles) -> FileRules {
    match files {
        GuestFiles::AsMounted => FileRules::AsMounted,
        GuestFiles::ProcessesApart => FileRules::Apart,
        GuestFiles::Roots { read_only, read_write } => {
            FileRules::Roots { read_only: paths(read_only), read_write: paths(read_write) }
        }
    }
}

fn paths(texts: &[OsText]) -> Vec<PathBuf> {
    texts.iter().map(|text| PathBuf::from(OsStr::from_bytes(text.as_bytes()))).collect()
}

fn facts(enforced: Enforced) -> GuestLandlock {
    let Enforced { abi, files, signals, abstract_sockets } = enforced;
    GuestLandlock {
        abi,
        files: reported(files),
        signals: reported(signals),
        abstract_sockets: reported(abstract_sockets),
    }
}

fn reported(restriction: Restriction) -> GuestRestriction {
    match restriction {
        Restriction::Standing => GuestRestriction::Standing,
        Restriction::NotAsked => GuestRestriction::NotAsked,
        Restriction::Missing => GuestRestriction::Missing,
    }
}
