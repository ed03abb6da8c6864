//! The profile file: what is constant about an agent, as data with a reason for each entry.

use super::HarnessError;
use belljar_contract::{
    Ability, AgentPackage, AgentVersion, AgentVersions, CredentialPlace, EnvName, HarnessProfile, LoginFile,
    ModelAccess, Persisted, PersistedKind, ProfileEnv, SharedEntry,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    program: String,
    install: String,
    package: PackageFile,
    example_model: String,
    config_directory: String,
    state_file: String,
    shared_state: Vec<String>,
    efforts: Vec<String>,
    provider_tools: Vec<String>,
    version_member: String,
    model: ModelFile,
    instructions_file: String,
    read_above: Vec<String>,
    settings_file: String,
    project_settings: Vec<String>,
    settings_commands: Vec<String>,
    reserved_env: Vec<String>,
    skill_directories: Vec<String>,
    plugin_directory: String,
    plugin_file: String,
    marketplace_file: String,
    plugin_marks: Vec<String>,
    plugin_records: Vec<String>,
    plugin_mcp_files: Vec<String>,
    project_mcp_file: String,
    session_flags: Vec<String>,
    newest_session_flags: Vec<String>,
    env: Vec<EnvFile>,
    test_env: Vec<EnvFile>,
    one_message: Vec<String>,
    conversation: Vec<String>,
    tested_versions: Vec<String>,
    ability: Vec<AbilityFile>,
    persist: Vec<PersistFile>,
    shared: Vec<SharedFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackageFile {
    name: String,
    program: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    login_program: String,
    base_url: String,
    output_tokens: String,
    credential: Vec<CredentialFile>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum CredentialFile {
    ApiKey { variable: String },
    Token { variable: String, made_by: String },
    Login { file: String, token: Vec<String>, expires: Vec<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvFile {
    name: String,
    value: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AbilityFile {
    name: String,
    since: String,
    needed: bool,
    #[serde(default)]
    arguments: Vec<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PersistFile {
    name: String,
    kind: KindFile,
    why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindFile {
    Directory,
    File,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedFile {
    name: String,
    why: String,
}

/// Reads a profile that is shipped with belljar.
pub(super) fn parse(harness: &'static str, text: &str) -> Result<HarnessProfile, HarnessError> {
    let broken = |reason: String| HarnessError { harness, reason };
    let file: ProfileFile = toml::from_str(text).map_err(|error| broken(error.to_string()))?;
    let name = |text: String| EnvName::new(text).map_err(|error| broken(error.to_string()));
    let variables = |entries: Vec<EnvFile>| {
        let entry =
            |entry: EnvFile| Ok(ProfileEnv { name: name(entry.name)?, value: entry.value, why: entry.why });
        entries.into_iter().map(entry).collect::<Result<Vec<_>, HarnessError>>()
    };
    let version =
        |text: &String| AgentVersion::parse(text).ok_or_else(|| broken(format!("`{text}` is not a version")));
    let ability = |entry: AbilityFile| {
        let AbilityFile { name, since, needed, arguments, why } = entry;
        Ok(Ability { name, since: version(&since)?, needed, arguments, why })
    };
    let versions = AgentVersions {
        tested: file.tested_versions.iter().map(version).collect::<Result<_, HarnessError>>()?,
        abilities: file.ability.into_iter().map(ability).collect::<Result<_, HarnessError>>()?,
    };
    Ok(HarnessProfile {
        versions,
        name: file.name,
        program: file.program,
        install: file.install,
        package: AgentPackage { name: file.package.name, program: file.package.program },
        example_model: file.example_model,
        config_directory: file.config_directory,
        state_file: file.state_file,
        shared_state: file.shared_state,
        efforts: file.efforts,
        provider_tools: file.provider_tools,
        model: model_access(file.model, name)?,
        version_member: file.version_member,
        instructions_file: file.instructions_file,
        read_above: file.read_above,
        settings_file: file.settings_file,
        project_settings: file.project_settings,
        settings_commands: file.settings_commands,
        env: variables(file.env)?,
        test_env: variables(file.test_env)?,
        one_message: file.one_message,
        conversation: file.conversation,
        reserved_env: file.reserved_env.into_iter().map(name).collect::<Result<_, HarnessError>>()?,
        persist: file
            .persist
            .into_iter()
            .map(|entry| Persisted {
                name: entry.name,
                kind: match entry.kind {
                    KindFile::Directory => PersistedKind::Directory,
                    KindFile::File => PersistedKind::File,
                },
                why: entry.why,
            })
            .collect(),
        shared: file
            .shared
            .into_iter()
            .map(|entry| SharedEntry { name: entry.name, why: entry.why })
            .collect(),
        skill_directories: file.skill_directories,
        plugin_directory: file.plugin_directory,
        plugin_file: file.plugin_file,
        marketplace_file: file.marketplace_file,
        plugin_marks: file.plugin_marks,
        plugin_records: file.plugin_records,
        plugin_mcp_files: file.plugin_mcp_files,
        project_mcp_file: file.project_mcp_file,
        session_flags: file.session_flags,
        newest_session_flags: file.newest_session_flags,
    })
}

fn model_access(
    file: ModelFile,
    name: impl Fn(String) -> Result<EnvName, HarnessError>,
) -> Result<ModelAccess, HarnessError> {
    let place = |entry: CredentialFile| {
        Ok(match entry {
            CredentialFile::ApiKey { variable } => CredentialPlace::ApiKey { variable: name(variable)? },
            CredentialFile::Token { variable, made_by } => {
                CredentialPlace::Token { variable: name(variable)?, made_by }
            }
            CredentialFile::Login { file: path, token, expires } => {
                CredentialPlace::Login(LoginFile { path, token, expires })
            }
        })
    };
    Ok(ModelAccess {
        credentials: file.credential.into_iter().map(place).collect::<Result<_, HarnessError>>()?,
        login_program: file.login_program,
        base_url: name(file.base_url)?,
        output_tokens: name(file.output_tokens)?,
    })
}
