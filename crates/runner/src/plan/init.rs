//! Writes a first manifest: from the files of the project and of the user's agent directory, or from another tool's
//! file. An existing file is never overwritten.

use crate::plan::manifests::{MANIFEST_NAME, read_bounded};
use crate::plan::planned::PlanningError;
use crate::plan::planner::Planner;
use belljar_contract::{AbsPath, HarnessProfile};
use belljar_plan::{
    BOTTLE_NAME, Found, FoundPlugin, FoundServer, FoundSkill, HarnessFacts, ImportText, Imported,
    ManifestError, starting_manifest,
};
use belljar_session::Harnesses;
use belljar_sys::regular::open_regular;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// More entries than a user lists by hand; further entries of a directory are ignored.
const ENTRIES: usize = 500;

/// Why no manifest was written.
#[derive(Debug, thiserror::Error)]
pub enum StartingError {
    #[error("`{path}` already exists")]
    Exists { path: AbsPath },
    /// Writing failed; no partial file is left.
    #[error("cannot write `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// The path of the project's manifest, and a text to start it with.
#[must_use]
pub fn starting(planner: &Planner) -> (AbsPath, String) {
    let path = planner.project().root.child(MANIFEST_NAME);
    let profile = Harnesses::built_in().usual().profile();
    let version = profile.versions.tested.last().map(ToString::to_string).unwrap_or_default();
    let harness = HarnessFacts {
        name: &profile.name,
        example_version: &version,
        example_model: &profile.example_model,
        instructions_file: &profile.instructions_file,
    };
    (path, starting_manifest(&found(planner, profile), &harness))
}

/// Writes `text` to `path`, completely or not at all, and never over an existing file.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write_new(path: &AbsPath, text: &str) -> Result<(), StartingError> {
    let failed = |cause: std::io::Error| {
        if cause.kind() == std::io::ErrorKind::AlreadyExists {
            return StartingError::Exists { path: path.clone() };
        }
        StartingError::Write { path: path.clone(), cause }
    };
    let directory = path.parent().unwrap_or_else(|| path.clone());
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist_noclobber(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn found(planner: &Planner, profile: &HarnessProfile) -> Found {
    let root = &planner.project().root;
    let home = &planner.environment().home;
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut project_skills = Vec::new();
    for directory in profile.skill_directories.iter().map(String::as_str).chain(["skills"]) {
        project_skills.extend(skills(&root.child(directory), directory, Some(root)));
    }
    let user_skills = profile.skill_directories.first().map(|own| {
        let shown = format!("~/{own}");
        skills(&home.child(own), &shown, None)
    });
    let markers = ["Cargo.toml", "package.json", "pyproject.toml", "go.mod", "Gemfile", "pom.xml"];
    Found {
        project_name: name,
        project_skills,
        user_skills: user_skills.unwrap_or_default(),
        project_mcp: servers(&root.child(&profile.project_mcp_file), root),
        plugins: plugins(&root.child("plugins"), "plugins", (root, profile)),
        has_instructions: root.child(&profile.instructions_file).as_path().is_file(),
        markers: markers
            .iter()
            .filter(|file| root.child(file).as_path().is_file())
            .map(|file| (*file).to_owned())
            .collect(),
        git_remote_host: remote_host(&root.child(".git/config"), root),
    }
}

/// The names of the subdirectories, sorted.
fn subdirectories(directory: &AbsPath, within: Option<&AbsPath>) -> Vec<String> {
    if !is_inside(directory.as_path(), within) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.take(ENTRIES).filter_map(|entry| {
        let entry = entry.ok()?;
        entry.path().is_dir().then(|| entry.file_name().into_string().ok())?
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn skills(directory: &AbsPath, shown: &str, within: Option<&AbsPath>) -> Vec<FoundSkill> {
    let skill = |name: String| {
        let file = directory.child(&name).child("SKILL.md");
        let text = small_text(file.as_path(), within)?;
        let line = text.lines().find_map(|line| line.strip_prefix("description:"));
        let description =
            line.map(|line| line.trim().trim_matches(['"', '\'']).to_owned()).filter(|line| !line.is_empty());
        Some(FoundSkill { path_text: format!("{shown}/{name}"), name, description })
    };
    subdirectories(directory, within).into_iter().filter_map(skill).collect()
}

fn plugins(
    directory: &AbsPath,
    shown: &str,
    (root, profile): (&AbsPath, &HarnessProfile),
) -> Vec<FoundPlugin> {
    let is_plugin = |name: &String| directory.child(name).child(&profile.plugin_file).as_path().is_file();
    let plugin = |name: String| FoundPlugin { path_text: format!("{shown}/{name}"), name };
    subdirectories(directory, Some(root)).into_iter().filter(is_plugin).map(plugin).collect()
}

fn servers(file: &AbsPath, root: &AbsPath) -> Vec<FoundServer> {
    let value = small_text(file.as_path(), Some(root))
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let Some(servers) = value.as_ref().and_then(|value| value.get("mcpServers")?.as_object()) else {
        return Vec::new();
    };
    let server = |(name, value): (&String, &serde_json::Value)| {
        let args = value.get("args").and_then(serde_json::Value::as_array);
        let env = value.get("env").and_then(serde_json::Value::as_object);
        Some(FoundServer {
            name: name.clone(),
            command: value.get("command")?.as_str()?.to_owned(),
            args: args
                .map(|args| args.iter().filter_map(|arg| arg.as_str().map(str::to_owned)).collect())
                .unwrap_or_default(),
            env_names: env.map(|env| env.keys().cloned().collect()).unwrap_or_default(),
        })
    };
    servers.iter().filter_map(server).collect()
}

/// The host of the remote `origin`, from `user@host:path` or a URL.
fn remote_host(config: &AbsPath, root: &AbsPath) -> Option<String> {
    let text = small_text(config.as_path(), Some(root))?;
    let section = text.split("[remote \"origin\"]").nth(1)?;
    let url = section.lines().find_map(|line| line.trim().strip_prefix("url =")).map(str::trim)?;
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', ':']).next()?.rsplit('@').next()?;
    (!host.is_empty() && host.contains('.')).then(|| host.to_owned())
}

/// Whether a path lies below a directory, with links resolved: a link in a project can lead to any file of the user.
fn is_inside(path: &Path, within: Option<&AbsPath>) -> bool {
    let Some(directory) = within else { return true };
    match (fs::canonicalize(path), fs::canonicalize(directory)) {
        (Ok(path), Ok(directory)) => path.starts_with(directory),
        (Ok(_), Err(_)) | (Err(_), _) => false,
    }
}

fn small_text(path: &Path, within: Option<&AbsPath>) -> Option<String> {
    if !is_inside(path, within) {
        return None;
    }
    let mut text = String::new();
    open_regular(path).ok()?.take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportFailure {
    /// A file cannot be read.
    #[error("cannot read the file")]
    Read(#[source] Box<PlanningError>),
    /// There is no such file.
    #[error("`{0}` does not exist")]
    Missing(AbsPath),
    /// The file is not a valid manifest of the other tool.
    #[error("the file cannot be imported")]
    Invalid(Box<ManifestError>),
}

/// Turns another tool's file into the text of a manifest. If the user's home directory has a file of the same name, it
/// is the base. Also returns the names of the files that were read.
///
/// # Errors
/// If a file cannot be read or is not valid.
pub fn import(planner: &Planner, file: &AbsPath) -> Result<(Imported, Vec<String>), ImportFailure> {
    let base = planner.environment().home.child(BOTTLE_NAME);
    let wanted: Vec<&AbsPath> = if base == *file { vec![file] } else { vec![&base, file] };
    let mut texts = Vec::new();
    for path in wanted {
        not_a_link(path).map_err(|error| ImportFailure::Read(Box::new(error)))?;
        let bytes = read_bounded(path).map_err(|error| ImportFailure::Read(Box::new(error)))?;
        match bytes {
            Some(bytes) => texts.push(ImportText { name: planner.environment().shown(path), bytes }),
            None if path == file => return Err(ImportFailure::Missing(file.clone())),
            None => {}
        }
    }
    let names = texts.iter().map(|text| text.name.clone()).collect();
    let imported = belljar_plan::import(texts).map_err(|error| ImportFailure::Invalid(Box::new(error)))?;
    Ok((imported, names))
}

/// Refuses a symbolic link: an error message quotes lines of the file, and a link in a foreign project could lead to
/// any file of the user.
fn not_a_link(path: &AbsPath) -> Result<(), PlanningError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            let cause = std::io::Error::other("it is a symbolic link; name the file that it leads to");
            Err(PlanningError::Read { path: path.clone(), cause })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_read_through_a_link_out_of_the_project() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let root = top.child("project");
        fs::create_dir_all(root.child(".git")).unwrap();
        fs::create_dir_all(top.child("home/skills/notes")).unwrap();
        fs::write(top.child("home/skills/notes/SKILL.md"), "description: x\n").unwrap();
        fs::write(top.child("home/mcp.json"), r#"{"mcpServers": {"x": {"command": "y"}}}"#).unwrap();
        fs::write(top.child("home/config"), "[remote \"origin\"]\n\turl = https://a.test/b\n").unwrap();
        let home = top.child("home");
        assert_eq!(servers(&home.child("mcp.json"), &home).len(), 1);
        assert_eq!(skills(&home.child("skills"), "skills", Some(&home)).len(), 1);
        assert_eq!(remote_host(&home.child("config"), &home).as_deref(), Some("a.test"));
        symlink("../home/mcp.json", root.child(".mcp.json")).unwrap();
        symlink("../home/skills", root.child("skills")).unwrap();
        symlink("../../home/config", root.child(".git/config")).unwrap();
        assert_eq!(servers(&root.child(".mcp.json"), &root).len(), 0);
        assert_eq!(skills(&root.child("skills"), "skills", Some(&root)).len(), 0);
        assert_eq!(remote_host(&root.child(".git/config"), &root), None);
        // The user's own skills may be links.
        assert_eq!(skills(&root.child("skills"), "skills", None).len(), 1);
    }
}
