//! The files of the made-up user.

use super::{ATTEMPTS, Agents, host_git};
use crate::prove::outside::RULES;
use belljar_contract::{HarnessProfile, WorkspaceMode};
use belljar_sys::process::Prepare;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The placeholder for the credential inside.
const PLACEHOLDER: &str = "stands-for-the-credential";

/// Files that the agent reads on its own: those of the user relative to the home directory, the settings relative to a
/// project.
pub(super) struct AgentFiles {
    pub(super) login: String,
    pub(super) instructions: String,
    pub(super) own_instructions: String,
    pub(super) settings: String,
    pub(super) settings_directory: String,
}

impl AgentFiles {
    pub(super) fn of(profile: &HarnessProfile) -> Self {
        let HarnessProfile { model, instructions_file, config_directory, project_settings, .. } = profile;
        let settings = project_settings.first().cloned().unwrap_or_default();
        let directory = Path::new(&settings).parent().map(|path| path.to_string_lossy().into_owned());
        Self {
            login: model.login_files().next().map(|file| file.path.clone()).unwrap_or_default(),
            instructions: instructions_file.clone(),
            own_instructions: format!("{config_directory}/{instructions_file}"),
            settings_directory: directory.unwrap_or_default(),
            settings,
        }
    }
}

pub(super) fn lay_out(home: &Path, project: &Path, files: &AgentFiles, secret: &str) -> std::io::Result<()> {
    let file = |path: PathBuf, text: &str| -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)
    };
    let line = format!("{secret}\n");
    for name in [
        ".ssh/id_ed25519",
        ".aws/credentials",
        &files.login,
        &files.own_instructions,
        &files.instructions,
        "other/secret.txt",
        "demo/.env",
        "empty/.keep",
    ] {
        file(home.join(name), &line)?;
    }
    file(home.join(".bashrc"), "# a shell\n")?;
    file(home.join(".profile"), "# a login\n")?;
    file(home.join(".git-credentials"), &format!("https://user:{secret}@bound.test\n"))?;
    fs::create_dir_all(home.join(".local/bin"))?;
    file(project.join("readme.txt"), "a project\n")?;
    repository(project, home);
    repository(&project.join("vendor/sub"), home);
    Ok(())
}

/// The made-up user's own manifest: a declared secret, and a toolchain that lies in a home directory.
pub(super) fn manifest(
    home: &Path,
    project: &Path,
    entering: &str,
    agents: &Agents<'_>,
) -> std::io::Result<()> {
    let Agents { profile, backend, workspace, rust } = agents;
    let workspace = match workspace {
        None => "",
        Some(WorkspaceMode::Direct) => "workspace = \"direct\"\n",
        Some(WorkspaceMode::Overlay) => "workspace = \"overlay\"\n",
        Some(WorkspaceMode::Copy) => "workspace = \"copy\"\n",
    };
    let common = format!("harness = \"{}\"\nbackend = \"{}\"\n{workspace}", profile.name, backend.name());
    let script = project.join("scripts/token.sh");
    fs::create_dir_all(project.join("scripts"))?;
    fs::write(&script, "#!/bin/sh\necho token\nexit 0\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let script = script.display();
    let mounts = if rust.starts_with("/usr") {
        String::new()
    } else {
        format!("mounts = [{{ source = \"{}\", mode = \"ro\" }}]\n", rust.display())
    };
    let directory = home.join(".config/belljar");
    fs::create_dir_all(&directory)?;
    fs::write(
        directory.join("belljar.toml"),
        format!(
            "[agents.prove]\n{common}{mounts}\n\
             [agents.prove.env]\nPROVE_TOKEN = \"{entering}\"\n\
             PROVE_SCRIPT = {{ command = [\"{script}\"] }}\n\n\
             [agents.filled]\n{common}limits = {{ tmpfs = \"16M\" }}\n\
             [agents.crowded]\n{common}limits = {{ pids = 40 }}\n\
             [agents.egress]\n{common}\
             [agents.egress.env]\nPROVE_CREDENTIAL = \"{PLACEHOLDER}\"\n\
             [agents.egress.egress]\n{RULES}\n\
             [[agents.egress.credentials]]\nhost = \"bound.test\"\nheader = \"X-Token\"\n\
             value = \"${{PROVE_CREDENTIAL}}\"\n"
        ),
    )
}

/// Creates a repository with a commit and a hook. Without git there is none, and the rows that need it report that.
fn repository(at: &Path, home: &Path) {
    let git = |arguments: &[&str]| {
        let run = host_git(at, home).args(arguments).dies_with_spawner().output();
        run.is_ok_and(|output| output.status.success())
    };
    let made = fs::create_dir_all(at).is_ok()
        && git(&["init", "-q", "."])
        && fs::write(at.join("file.txt"), "tracked\n").is_ok();
    if made {
        let exclude = format!("{ATTEMPTS}\n.env\nvendor/\nreadme.txt\nscripts/\n");
        // A failure of the setup shows as a row without evidence.
        fs::create_dir_all(at.join(".git/info")).ok();
        fs::write(at.join(".git/info/exclude"), exclude).ok();
        git(&["add", "file.txt"]);
        git(&["-c", "user.name=p", "-c", "user.email=p@example.org", "commit", "-qm", "first"]);
        fs::create_dir_all(at.join(".git/hooks")).ok();
        fs::write(at.join(".git/hooks/pre-commit"), "#!/bin/sh\nexit 0\n").ok();
    }
}
