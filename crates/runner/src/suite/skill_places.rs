//! Where the agent sees the skills of a plan.

use belljar_contract::{AbsPath, MountSource, Plan};
use belljar_session::SkillPlace;

/// The directories of skills as the agent sees them, so that their use is noticed. Names of a plugin's skills have the
/// plugin's name as prefix.
pub(crate) fn skill_places(plan: &Plan) -> Vec<SkillPlace> {
    let inside = |source: &AbsPath| {
        let mount = plan.mounts.iter().find(|mount| mount.source == MountSource::Host(source.clone()));
        mount.map(|mount| mount.target.clone())
    };
    let own = plan.skills.iter().filter_map(|skill| {
        let directories = vec![inside(&skill.source)?.to_string()];
        Some(SkillPlace { name: skill.name.to_string(), directories })
    });
    let of_plugins = plan.plugins.iter().flat_map(|plugin| {
        let skills = plugin.source.child("skills");
        let entries = std::fs::read_dir(&skills).into_iter().flatten().flatten();
        let place = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let directory = inside(&plugin.source)?.child("skills").child(&name);
            Some(SkillPlace {
                name: format!("{}:{name}", plugin.name),
                directories: vec![directory.to_string()],
            })
        };
        entries.filter_map(place).collect::<Vec<_>>()
    });
    own.chain(of_plugins).collect()
}
