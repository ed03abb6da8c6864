//! Names of one agent or one model provider, outside of the places that hold them.
//!
//! The rest of the code asks the `Harness` trait, or the gateway's module for the provider. So a second agent is one
//! more directory, and not a search through every crate.
//!
//! Two kinds of names are searched: the proper names below, in any case; and what the profiles of the agents name, such
//! as variables, files, flags and the program to log in with. The latter are taken from the profiles themselves, so that
//! a new one is searched without a change here. They may not be in the provider's module either.

use std::collections::BTreeSet;
use std::fs;

use belljar_contract::{
    Ability, AgentPackage, AgentVersions, CredentialPlace, EnvName, HarnessProfile, LoginFile, ModelAccess,
    ProfileEnv,
};
use belljar_runner::Harnesses;

use crate::repository::Repository;
use crate::{Findings, TaskError, sizes};

/// In lower case; a file is searched without regard to case.
const NAMES: [&str; 2] = ["claude", "anthropic"];

/// What a place may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// The proper names, and what a profile names.
    Agent,
    /// The proper names alone.
    Provider,
}

/// Where the names may be, and why. A place ends with `/` if it is a directory.
const PLACES: [(&str, Holds, &str); 5] = [
    ("crates/session/src/harness/", Holds::Agent, "the agents themselves"),
    ("crates/egress/src/gateway/messages_api/", Holds::Provider, "the provider of the model"),
    ("crates/plan/src/import/", Holds::Agent, "the file of another tool, which bears the name"),
    (
        "crates/class/src/table.rs",
        Holds::Agent,
        "the guard knows the files of many agents and editors, used here or not",
    ),
    ("crates/testkit/", Holds::Agent, "finds the real agent for the tests"),
];

/// What a profile names and does not belong to one agent, and why.
const COMMON: [(&str, &str); 10] = [
    (".mcp.json", "the file with a project's MCP servers, which the guard protects for every agent"),
    ("mcpServers", "the member of files with MCP servers, in scenarios as well"),
    ("HTTP_PROXY", PROXY),
    ("HTTPS_PROXY", PROXY),
    ("ALL_PROXY", PROXY),
    ("NO_PROXY", PROXY),
    ("http_proxy", PROXY),
    ("https_proxy", PROXY),
    ("all_proxy", PROXY),
    ("no_proxy", PROXY),
];
const PROXY: &str = "a variable of most HTTP clients";

/// Directories whose files are not part of the program.
const NOT_SHIPPED: [&str; 4] = ["tests", "examples", "benches", "fixtures"];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut files = Vec::new();
    for file in repository.files()?.into_iter().filter(|file| is_searched(file)) {
        let content =
            fs::read(repository.path(&file)).map_err(|cause| format!("cannot read {file}: {cause}"))?;
        files.push((file, String::from_utf8_lossy(&content).into_owned()));
    }
    let profiles = Harnesses::built_in().list().into_iter().map(|harness| harness.profile());
    Ok(judge(&files, &profiles.flat_map(named_by).collect()))
}

/// Judges files, each with its content. `own` is what the profiles name.
fn judge(files: &[(String, String)], own: &BTreeSet<String>) -> Findings {
    let mut findings = Findings::default();
    let mut used = [false; PLACES.len()];
    let searched: Vec<&str> = own.iter().map(String::as_str).filter(|name| !is_common(name)).collect();
    for (file, content) in files {
        let place = PLACES.iter().position(|(place, ..)| is_at(file, place));
        for (line, name) in found_in(content) {
            match place {
                Some(at) => used[at] = true,
                None => findings.faults.push(format!(
                    "{file}:{line}: `{name}` belongs to a harness or to the gateway's module for the provider; \
                     take the name from there, or write the sentence without it"
                )),
            }
        }
        if place.is_some_and(|at| PLACES[at].1 == Holds::Agent) {
            continue;
        }
        findings.faults.extend(own_in(content, &searched).into_iter().map(|(line, name)| {
            format!("{file}:{line}: `{name}` is named by the profile of a harness; take it from the profile")
        }));
    }
    let unused = PLACES.iter().zip(used).filter(|(_, used)| !used);
    findings.faults.extend(unused.map(|((place, ..), _)| {
        format!("{place} has none of the names; remove it from the list in xtask/src/harness.rs")
    }));
    let stale = COMMON.iter().filter(|(name, _why)| !own.contains(*name));
    findings.faults.extend(stale.map(|(name, _why)| {
        format!("no profile names `{name}`; remove it from COMMON in xtask/src/harness.rs")
    }));
    findings
}

fn is_at(file: &str, place: &str) -> bool {
    if place.ends_with('/') { file.starts_with(place) } else { file == place }
}

fn is_common(name: &str) -> bool {
    COMMON.iter().any(|(common, _why)| *common == name)
}

/// Tests may use the names: they show what users and agents see.
fn is_searched(file: &str) -> bool {
    file.starts_with("crates/")
        && !file.ends_with("_tests.rs")
        && !file.ends_with("/tests.rs")
        && !file.split('/').any(|part| NOT_SHIPPED.contains(&part))
}

/// Line numbers and the proper names found there.
fn found_in(content: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.to_lowercase();
        found.extend(NAMES.iter().filter(|name| line.contains(**name)).map(|name| (index + 1, *name)));
    }
    found
}

/// Line numbers and the names of profiles found there, outside of tests.
fn own_in<'n>(content: &str, names: &[&'n str]) -> Vec<(usize, &'n str)> {
    let mut found = Vec::new();
    for (index, line) in content.lines().take(sizes::lines_without_tests(content)).enumerate() {
        found.extend(names.iter().filter(|name| has_name(line, name)).map(|name| (index + 1, *name)));
    }
    found
}

/// Whether a line has the name by itself, not as a part of another.
fn has_name(line: &str, name: &str) -> bool {
    let part = |char: char| char.is_alphanumeric() || "_-".contains(char);
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        !before.ends_with(|char: char| part(char) || char == '.') && !after.starts_with(part)
    })
}

/// What a profile names: variables, files, flags, members of files, and programs. Every field is decided here, so that a
/// new one stops the build.
fn named_by(profile: &HarnessProfile) -> BTreeSet<String> {
    let HarnessProfile {
        name,
        program,
        install,
        package: AgentPackage { name: package, program: packed_program },
        // A model belongs to the provider, and so do its tools.
        example_model: _,
        provider_tools: _,
        efforts: _,
        config_directory,
        state_file,
        shared_state,
        model: ModelAccess { credentials, login_program, base_url, output_tokens },
        version_member,
        instructions_file,
        read_above,
        settings_file,
        project_settings,
        settings_commands,
        env,
        test_env,
        one_message,
        conversation,
        versions: AgentVersions { tested: _, abilities },
        reserved_env,
        persist,
        shared,
        skill_directories,
        plugin_directory,
        plugin_file,
        marketplace_file,
        plugin_marks,
        plugin_records,
        plugin_mcp_files,
        session_flags,
        newest_session_flags,
        project_mcp_file,
    } = profile;
    let mut texts: Vec<&str> = vec![
        name,
        install,
        package,
        packed_program,
        config_directory,
        state_file,
        version_member,
        instructions_file,
        settings_file,
        plugin_directory,
        plugin_file,
        marketplace_file,
        project_mcp_file,
    ];
    for list in [
        shared_state,
        read_above,
        project_settings,
        settings_commands,
        one_message,
        conversation,
        skill_directories,
        plugin_marks,
        plugin_records,
        plugin_mcp_files,
        session_flags,
        newest_session_flags,
    ] {
        texts.extend(list.iter().map(String::as_str));
    }
    for place in credentials {
        match place {
            CredentialPlace::ApiKey { variable } => texts.push(variable.as_str()),
            CredentialPlace::Token { variable, made_by } => texts.extend([variable.as_str(), made_by]),
            CredentialPlace::Login(LoginFile { path, token, expires }) => {
                texts.push(path);
                texts.extend(token.iter().chain(expires).map(String::as_str));
            }
        }
    }
    texts.extend([base_url.as_str(), output_tokens.as_str()]);
    texts.extend(env.iter().chain(test_env).map(|ProfileEnv { name, .. }| name.as_str()));
    texts.extend(reserved_env.iter().map(EnvName::as_str));
    texts.extend(abilities.iter().flat_map(|Ability { arguments, .. }| arguments).map(String::as_str));
    texts.extend(persist.iter().map(|entry| entry.name.as_str()));
    texts.extend(shared.iter().map(|entry| entry.name.as_str()));
    let programs = [program, login_program].into_iter().map(String::as_str);
    texts.into_iter().filter(|text| is_distinct(text)).chain(programs).map(str::to_owned).collect()
}

/// Whether a text is more than a word of everyday English, such as `skills`, or a flag of one letter.
fn is_distinct(text: &str) -> bool {
    text.len() > 2 && text.chars().any(|char| !char.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> BTreeSet<String> {
        Harnesses::built_in().list().into_iter().flat_map(|harness| named_by(harness.profile())).collect()
    }

    fn files(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let all_places = PLACES.iter().map(|(place, ..)| {
            let file = if place.ends_with('/') { format!("{place}a.rs") } else { (*place).to_owned() };
            (file, NAMES[0].to_uppercase())
        });
        let more = list.iter().map(|(file, content)| ((*file).to_owned(), (*content).to_owned()));
        all_places.chain(more).collect()
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        for content in ["let a;\n// .Claude/settings\n", "\n\"x-claude-id\"", "\nCLAUDE_X"] {
            assert_eq!(found_in(content), [(2, "claude")]);
        }
        assert_eq!(found_in("Anthropic's Claude"), [(1, "claude"), (1, "anthropic")]);
        assert_eq!(found_in("the agent, the provider, a clause"), []);
    }

    #[test]
    fn a_name_is_refused_outside_of_its_places() {
        assert_eq!(judge(&files(&[]), &own()), Findings::default());
        for file in
            ["crates/plan/src/lib.rs", "crates/class/src/table.rs.bak", "crates/egress/src/gateway/live.rs"]
        {
            let found = judge(&files(&[(file, "of Anthropic")]), &own());
            assert!(
                found.faults.len() == 1 && found.faults[0].starts_with(&format!("{file}:1: ")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_a_profile_names_is_refused_even_beside_the_provider() {
        let file = "crates/egress/src/gateway/messages_api/names.rs";
        for name in [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
            "CLAUDE_CODE_OAUTH_TOKEN",
            ".claude/.credentials.json",
            "claudeAiOauth",
            "claude",
            "claude_code_version",
            "settings.json",
            "--replay-user-messages",
            "MCP_CONNECTION_NONBLOCKING",
        ] {
            let line = format!("const A: &str = \"{name}\";");
            let found = judge(&files(&[(file, &line)]), &own());
            let wanted = format!("{file}:1: `{name}`");
            assert!(found.faults.iter().any(|fault| fault.starts_with(&wanted)), "{name} {found:?}");
        }
        for line in
            ["\"claude-opus-4-8\"", "x-claude-code-id", "coc-settings.json", "Claude Code", ".mcp.json"]
        {
            assert_eq!(judge(&files(&[(file, line)]), &own()), Findings::default(), "{line}");
        }
        let tests = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    // settings.json\n}\n";
        assert_eq!(judge(&files(&[("crates/plan/src/lib.rs", tests)]), &own()), Findings::default());
    }

    #[test]
    fn a_place_without_the_names_is_removed() {
        let found = judge(&files(&[])[1..], &own());
        assert!(found.faults.len() == 1 && found.faults[0].starts_with(PLACES[0].0), "{found:?}");
    }

    #[test]
    fn a_common_name_that_no_profile_has_is_removed() {
        assert_eq!(judge(&files(&[]), &BTreeSet::new()).faults.len(), COMMON.len());
    }

    #[test]
    fn tests_and_other_directories_are_not_searched() {
        assert!(is_searched("crates/plan/defaults.toml") && is_searched("crates/plan/src/lib.rs"));
        for file in [
            "crates/plan/src/lib_tests.rs",
            "crates/plan/src/init/tests.rs",
            "crates/cli/tests/cmd/run.rs",
            "crates/egress/examples/a.rs",
            "docs/gateway.md",
        ] {
            assert!(!is_searched(file), "{file}");
        }
    }
}
