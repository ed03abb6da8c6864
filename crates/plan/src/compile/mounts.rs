//! The view of the file system, in order: a later mount lies over an earlier one.

use super::{Compiler, Reasons, Wanted, defaults};
use crate::explain::Origin;
use crate::facts::{PathFact, UserFacts};
use crate::manifest::MountSpec;
use belljar_contract::decode::{At, Place};
use belljar_contract::{
    AbsPath, Access, Assembly, Harness, HarnessProfile, HomeMode, Instance, Mount, MountSource,
    PersistedKind, PlannedFile, Plugin, Skill, Workspace,
};

/// How the reason of a mount of the user's own configuration begins.
pub const OF_THE_USER: &str = "yours: ";

/// Paths inside the sandbox.
pub(super) struct Inside {
    pub home: AbsPath,
    pub kit: AbsPath,
    /// The directory for temporary files, where `/tmp` is the machine's own.
    pub temporary: Option<AbsPath>,
}

/// Where programs and libraries come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Machine,
    /// From the image of the container.
    Image,
    /// There is no sandbox: everything of the machine is where it is.
    Unsealed,
}

/// The parts that the list of mounts is made from.
pub(super) struct Parts<'a> {
    pub inside: &'a Inside,
    pub system: System,
    pub workspace: &'a Workspace,
    pub instance: &'a Instance,
    pub home: HomeMode,
    pub harness: &'a dyn Harness,
    /// Where it is written that the user's own configuration is shared.
    pub shared_by: Option<&'a Place>,
    pub assembly: &'a Assembly,
    pub skills: &'a [Skill],
    pub plugins: &'a [(Plugin, AbsPath)],
    pub ssh: &'a [PlannedFile],
    pub declared: &'a [At<MountSpec>],
}

/// Where no declared mount may go, and why.
pub(super) const RESERVED: [(&str, &str); 13] = [
    ("/proc", "the sandbox has its own processes"),
    ("/sys", "it is not there"),
    ("/dev", "the sandbox has a handful of devices"),
    ("/etc", "belljar generates it"),
    ("/usr", "it is the system's, read-only"),
    ("/bin", "it is the system's, read-only"),
    ("/sbin", "it is the system's, read-only"),
    ("/lib", "it is the system's, read-only"),
    ("/lib32", "it is the system's, read-only"),
    ("/lib64", "it is the system's, read-only"),
    ("/libx32", "it is the system's, read-only"),
    ("/run", "sockets of the host never appear there"),
    ("/tmp", "it is private and empty at every start"),
];

/// Paths of the host that are never shown, and why.
const KEPT_OUT: [(&str, &str); 4] = [
    ("/proc", "through it every process of this machine could be seen"),
    ("/sys", "it is this machine's kernel"),
    ("/dev", "it holds this machine's devices"),
    ("/run/user", "it holds the sockets of your session"),
];

pub(super) fn mount(target: &AbsPath, source: MountSource, access: Access, why: impl Into<String>) -> Mount {
    Mount { target: target.clone(), source, access, why: why.into() }
}

impl Compiler<'_> {
    /// All mounts, in order.
    pub(super) fn mounts(&mut self, parts: &Parts<'_>, reasons: &mut Reasons) -> Vec<Mount> {
        let Parts { inside, workspace, instance, home, assembly, skills, plugins, declared, .. } = parts;
        let profile = parts.harness.profile();
        let mut out = skeleton(inside, parts.system);
        if *home == HomeMode::Shared {
            // Below the project, which may be a part of one of them.
            out.extend(self.recorded(parts));
        }
        if let Some(repository) = &self.request.facts.project.outside_repository {
            let why = "the repository of this worktree";
            out.push(mount(repository, MountSource::Host(repository.clone()), Access::ReadWrite, why));
        }
        out.push(mount(&workspace.target, MountSource::Workspace, Access::ReadWrite, "the project"));
        let agent_directory = inside.home.child(&profile.config_directory);
        match home {
            HomeMode::Clean => {}
            HomeMode::Project => out.extend(persisted(profile, instance, &agent_directory)),
            HomeMode::Shared => {
                out.extend(persisted(profile, instance, &agent_directory));
                out.extend(self.shared(profile, &agent_directory));
            }
        }
        for skill in *skills {
            let target = assembly.skills_directory.child(skill.name.as_str());
            let why = format!("the skill `{}`", skill.name);
            out.push(mount(&target, MountSource::Host(skill.source.clone()), Access::ReadOnly, why));
        }
        for (plugin, target) in *plugins {
            let why = format!("the plugin `{}`", plugin.name);
            out.push(mount(target, MountSource::Host(plugin.source.clone()), Access::ReadOnly, why));
        }
        out.push(mount(&assembly.program, MountSource::AgentProgram, Access::ReadOnly, "the agent"));
        self.declared(declared, parts, &mut out, reasons);
        out
    }

    fn shared(&self, profile: &HarnessProfile, agent_directory: &AbsPath) -> Vec<Mount> {
        let facts = self.request.facts;
        let own = facts.user.home.child(&profile.config_directory);
        let entry = |entry: &belljar_contract::SharedEntry| match facts.path(&own.child(&entry.name)) {
            PathFact::Directory(real) | PathFact::File(real) => {
                let target = agent_directory.child(&entry.name);
                Some(mount(
                    &target,
                    MountSource::Host(real),
                    Access::ReadOnly,
                    format!("{OF_THE_USER}{}", entry.why),
                ))
            }
            PathFact::Missing | PathFact::Special | PathFact::Loop | PathFact::Unreadable(_) => None,
        };
        profile.shared.iter().filter_map(entry).collect()
    }

    fn declared(
        &mut self,
        specs: &[At<MountSpec>],
        parts: &Parts<'_>,
        out: &mut Vec<Mount>,
        reasons: &mut Reasons,
    ) {
        for spec in specs {
            let MountSpec { source, target, mode } = &spec.value;
            let Some(path) = self.resolve(source) else { continue };
            let Some(real) = self.existing(&path, &source.place, "a mount", Wanted::Either) else { continue };
            let by_hand = self.request.manifest.given_with(&source.place).is_some();
            if !self.source_is_fit(&real, &source.place)
                || (by_hand && !self.is_where_it_seems(&path, &real, &source.place))
            {
                continue;
            }
            let (target, place) = match target {
                Some(target) => (target.value.clone(), &target.place),
                None => (path, &source.place),
            };
            if !self.target_is_free(&target, place, parts, out) {
                continue;
            }
            let access = mode.as_ref().map_or(defaults::MOUNT_MODE, |mode| mode.value);
            reasons.add(format!("mounts.{target}"), real.to_string(), Origin::Written(source.place.clone()));
            let why = if by_hand { "given by hand" } else { "declared" };
            out.push(mount(&target, MountSource::Host(real), access, why));
        }
    }

    /// Refuses the whole home, or a directory above it: keeping it out is the purpose of the sandbox.
    fn source_is_fit(&mut self, real: &AbsPath, place: &Place) -> bool {
        let Some(why) = kept_out(real, &self.request.facts.user) else { return true };
        let message = format!("`{real}` cannot be mounted: {why}");
        self.report("forbidden-mount", message, place, "").help =
            Some("mount the directory that is needed".to_owned());
        false
    }

    /// Refuses a link of the project that leads out of it: an agent may have made it. Without an agreement nobody would
    /// see where it leads.
    fn is_where_it_seems(&mut self, path: &AbsPath, real: &AbsPath, place: &Place) -> bool {
        let root = &self.request.facts.project.root;
        if !path.is_within(root) || real.is_within(root) {
            return true;
        }
        let message = format!("`{path}` is a link that leads out of the project, to `{real}`");
        self.report("forbidden-mount", message, place, "").help =
            Some("name that path itself if it is meant".to_owned());
        false
    }

    fn target_is_free(&mut self, target: &AbsPath, place: &Place, parts: &Parts<'_>, out: &[Mount]) -> bool {
        let reserved = RESERVED.iter().find(|(path, _)| target.as_path().starts_with(path));
        let problem = if let Some((path, why)) = reserved {
            Some(format!("`{path}` belongs to the sandbox: {why}"))
        } else if parts.workspace.target.is_within(target) || parts.inside.home.is_within(target) {
            Some("it would hide the project or the agent's home".to_owned())
        } else if target.is_within(&parts.inside.kit) || parts.inside.kit.is_within(target) {
            Some("that directory belongs to belljar".to_owned())
        } else if out.iter().any(|mount| mount.target == *target) {
            Some("something is mounted there already".to_owned())
        } else if let Some(hidden) = out.iter().find(|mount| mount.target.is_within(target)) {
            Some(format!("it would hide `{}`", hidden.target))
        } else if parts
            .assembly
            .files
            .iter()
            .chain(parts.ssh)
            .any(|file| file.target.is_within(target) || target.is_within(&file.target))
        {
            Some("belljar makes a file there".to_owned())
        } else {
            None
        };
        if let Some(problem) = problem {
            let message = format!("nothing can be mounted at `{target}`: {problem}");
            self.report("forbidden-mount", message, place, "").help =
                Some("give another `target`".to_owned());
            return false;
        }
        true
    }
}

/// Why a path of the host is never shown; `None` if it may be.
pub(super) fn kept_out(real: &AbsPath, user: &UserFacts) -> Option<&'static str> {
    let kept_out = KEPT_OUT.iter().find(|(path, _)| {
        real.as_path().starts_with(path) || std::path::Path::new(path).starts_with(real.as_path())
    });
    if user.home.is_within(real) {
        Some("it holds your whole home")
    } else if [&user.instances, &user.config].iter().any(|own| own.is_within(real) || real.is_within(own)) {
        Some("it holds belljar's own state")
    } else {
        kept_out.map(|(_, why)| *why)
    }
}

fn skeleton(inside: &Inside, system: System) -> Vec<Mount> {
    let path = |text: &str| AbsPath::new(text).unwrap_or_else(|_| inside.home.clone());
    let (target, source, why, etc) = match system {
        System::Machine => (
            "/usr",
            MountSource::System,
            "programs and libraries of the system",
            "users, hosts and TLS roots, generated",
        ),
        System::Image => (
            "/",
            MountSource::Image,
            "everything that the image holds",
            "users and hosts, generated; the rest is the image's",
        ),
        System::Unsealed => return unsealed(inside),
    };
    vec![
        mount(&path(target), source, Access::ReadOnly, why),
        mount(&path("/etc"), MountSource::SyntheticEtc, Access::ReadOnly, etc),
        mount(&path("/proc"), MountSource::Proc, Access::ReadWrite, "processes of the sandbox"),
        mount(&path("/dev"), MountSource::Devices, Access::ReadWrite, "null, zero, random, a terminal"),
        mount(&path("/tmp"), MountSource::Temporary, Access::ReadWrite, "private, gone after the run"),
        mount(
            &inside.home,
            MountSource::Temporary,
            Access::ReadWrite,
            "the agent's home, gone after the run",
        ),
    ]
}

/// What is made without a sandbox. The rest of the machine is visible as it is, and is not listed.
fn unsealed(inside: &Inside) -> Vec<Mount> {
    let made = |target: &AbsPath, why: &str| mount(target, MountSource::Temporary, Access::ReadWrite, why);
    let temporary = inside.temporary.iter().map(|path| made(path, "temporary files, gone after the run"));
    std::iter::once(made(&inside.home, "the agent's home, empty at every start")).chain(temporary).collect()
}

fn persisted(profile: &HarnessProfile, instance: &Instance, agent_directory: &AbsPath) -> Vec<Mount> {
    let kept = instance.directory.child(&profile.name);
    profile
        .persist
        .iter()
        .map(|entry| {
            let source = kept.child(&entry.name);
            let source = match entry.kind {
                PersistedKind::Directory => MountSource::InstanceDirectory(source),
                PersistedKind::File => MountSource::InstanceFile(source),
            };
            mount(
                &agent_directory.child(&entry.name),
                source,
                Access::ReadWrite,
                format!("persists: {}", entry.why),
            )
        })
        .collect()
}
