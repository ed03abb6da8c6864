//! The complete environment of the agent, and the source of each value.

use super::{Compiler, Reasons, Rigour, Wanted};
use crate::explain::Origin;
use crate::facts::{ContentFact, ProjectFacts};
use crate::manifest::{EnvText, Layered, McpSpec};
use belljar_contract::decode::{At, Named, Place};
use belljar_contract::{
    AbsPath, EnvEntry, EnvGiver, EnvName, EnvSource, HarnessProfile, LibraryName, McpLaunch, McpServer,
    Purpose, SSH_AGENT_SOCKET, SshEntry, UsedOutside, may_use, path_words,
};
use std::collections::BTreeSet;

/// Set by belljar for every agent; a manifest may replace those that are marked so.
const BASE: [(&str, &str, bool, &str); 3] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        true,
        "programs of the system are found",
    ),
    ("LANG", "C.UTF-8", true, "text is UTF-8 on every machine"),
    ("SHELL", "/bin/bash", true, "the shell that the agent's tools start"),
];
/// Variables that belljar makes for itself, such as those that carry the values of MCP servers.
const OWN_PREFIX: &str = "BELLJAR_";
const RESERVED: [&str; 3] = ["HOME", "USER", "LOGNAME"];

/// Properties of the sandbox that the environment variables depend on.
pub(super) struct EnvBase<'a> {
    pub home: &'a AbsPath,
    /// The directory for temporary files, where `/tmp` is the machine's own.
    pub temporary: Option<&'a AbsPath>,
    /// The keys that ssh inside can sign with.
    pub ssh: &'a [SshEntry],
}

impl Compiler<'_> {
    /// The agent's own variables, those of its servers, those of the harness and belljar's own.
    pub(super) fn environment(
        &mut self,
        written: &[Named<EnvName, EnvText>],
        servers: Vec<EnvEntry>,
        profile: &HarnessProfile,
        env_base: &EnvBase<'_>,
        reasons: &mut Reasons,
    ) -> Vec<EnvEntry> {
        let mut out = Vec::new();
        let tested = match self.request.purpose {
            Purpose::Session => &[][..],
            Purpose::Test => &profile.test_env,
        };
        let constants = base(env_base).into_iter().chain(
            profile
                .env
                .iter()
                .chain(tested)
                .map(|entry| (entry.name.clone(), entry.value.clone(), false, entry.why.clone())),
        );
        for (name, value, replaceable, why) in constants {
            let by_hand = written.iter().find(|entry| entry.name == name);
            match by_hand {
                Some(_) if replaceable => {}
                Some(entry) => self.reserved(&entry.name, &entry.name_place, &why),
                None => {
                    reasons.add(format!("env.{name}"), "constant", Origin::Harness(why.clone()));
                    out.push(EnvEntry {
                        name,
                        source: EnvSource::Constant(value),
                        giver: EnvGiver::Harness(why),
                    });
                }
            }
        }
        for entry in written {
            if entry.name.as_str().starts_with(OWN_PREFIX) {
                self.reserved(&entry.name, &entry.name_place, "names of this form are belljar's own");
                continue;
            }
            if profile.reserved_env.contains(&entry.name) {
                self.reserved(&entry.name, &entry.name_place, "it would lead the agent around the sandbox");
                continue;
            }
            let Some(source) = self.source(&entry.value, &entry.place) else { continue };
            let by_hand = self.request.manifest.given_with(&entry.place).is_some();
            let giver = if by_hand { EnvGiver::ByHand } else { EnvGiver::Agent };
            let (key, place) = (format!("env.{}", entry.name), entry.name_place.clone());
            let entry = EnvEntry { name: entry.name.clone(), source, giver };
            reasons.add(key, entry.describe(), Origin::Written(place));
            out.push(entry);
        }
        out.extend(servers);
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out
    }

    fn reserved(&mut self, name: &EnvName, place: &Place, why: &str) {
        let message = format!("`{name}` is set by belljar and cannot be set here: {why}");
        self.report("reserved-variable", message, place, "leave this out");
    }

    /// Where a value comes from, checked as far as this machine can tell.
    pub(super) fn source(&mut self, value: &EnvText, place: &Place) -> Option<EnvSource> {
        match value {
            EnvText::Literal(text) => Some(EnvSource::Literal(text.clone())),
            EnvText::Prompt(message) => Some(EnvSource::Prompt(message.clone())),
            EnvText::Command(argv) => self.command(argv, place).map(EnvSource::Command),
            EnvText::Variable(name) => {
                self.variable(name, place);
                Some(EnvSource::Variable(name.clone()))
            }
            EnvText::File(path) => {
                let path = self.resolve(&At { value: path.clone(), place: place.clone() })?;
                let real = self.existing(&path, place, "the file of a value", Wanted::File)?;
                self.use_outside(&path, place);
                Some(EnvSource::File(real))
            }
        }
    }

    /// Reports a variable that is not set on this machine.
    fn variable(&mut self, name: &EnvName, place: &Place) {
        if self.request.facts.variables.contains(name) {
            return;
        }
        let message = format!("the variable `{name}` is not set in this shell");
        let finding = match self.request.rigour {
            Rigour::Launch => self.report("unset-variable", message, place, "read from here"),
            Rigour::Check => self.warn("unset-variable", message, place, "read from here"),
        };
        finding.help =
            Some(format!("`export {name}=…` before you start belljar, or write it to a file for --dotenv"));
    }

    /// The variables whose values are redacted, each once.
    pub(super) fn redacted(&mut self, written: &[At<EnvName>], reasons: &mut Reasons) -> Vec<EnvName> {
        for At { value, place } in written {
            self.variable(value, place);
            reasons.add(format!("redact.{value}"), value.as_str(), Origin::Written(place.clone()));
        }
        let names: BTreeSet<EnvName> = written.iter().map(|name| name.value.clone()).collect();
        names.into_iter().collect()
    }

    /// A command with its paths written out: it runs in `/`, where nothing is an agent's.
    fn command(&mut self, argv: &[String], place: &Place) -> Option<Vec<String>> {
        let argv = written_out(argv, self.request.manifest.directory(place)?);
        let ProjectFacts { root, directory, .. } = self.request.facts.project.clone();
        for path in may_use(&argv, &directory) {
            self.use_outside(&path, place);
        }
        let words = argv.iter().flat_map(|argument| path_words(argument.as_bytes()));
        if words.filter_map(|word| fixed_part(&word)).any(|path| path == root || path == directory) {
            let message = "the command names the whole project, whose content cannot be agreed to";
            let finding = self.report("whole-project-command", message, place, "run outside the sandbox");
            finding.help = Some("name the files that it uses, as in `./scripts/token.sh`".to_owned());
        }
        Some(argv)
    }

    /// Makes the content of a file of the project part of the plan.
    fn use_outside(&mut self, path: &AbsPath, place: &Place) {
        match self.request.facts.content(path) {
            ContentFact::Elsewhere => {}
            ContentFact::Digest(path, digest) => {
                self.used_outside.insert(UsedOutside { path, digest });
            }
            ContentFact::Unusable(why) => {
                let message = format!("`{path}` is used outside the sandbox and cannot be read: {why}");
                self.report("unreadable-source", message, place, "named here");
            }
        }
    }

    /// An MCP server: what the agent starts, and the variables it needs in the agent's environment.
    ///
    /// The values travel as variables of the agent under names of ours, so that no file holds them.
    pub(super) fn server(
        &mut self,
        name: &LibraryName,
        number: usize,
        server: &Layered<McpSpec>,
    ) -> (McpServer, McpLaunch, Vec<EnvEntry>) {
        let McpSpec { command, args, env } = &server.spec;
        let mut entries = Vec::new();
        let mut pairs = Vec::new();
        for entry in env {
            let carrier = EnvName::new(format!("BELLJAR_MCP_{number}_{}", entry.name));
            let (Some(source), Ok(carrier)) = (self.source(&entry.value, &entry.place), carrier) else {
                continue;
            };
            entries.push(EnvEntry {
                name: carrier.clone(),
                source,
                giver: EnvGiver::McpServer(name.clone()),
            });
            pairs.push((entry.name.clone(), carrier));
        }
        let args: Vec<String> = args.iter().map(|arg| arg.value.0.clone()).collect();
        let shown = McpServer {
            name: name.clone(),
            command: command.value.0.clone(),
            args: args.clone(),
            env: pairs.iter().map(|(name, _)| name.clone()).collect(),
        };
        let launch = McpLaunch { name: name.to_string(), command: command.value.0.clone(), args, env: pairs };
        (shown, launch, entries)
    }
}

fn base(env_base: &EnvBase<'_>) -> Vec<(EnvName, String, bool, String)> {
    let EnvBase { home, temporary, ssh } = env_base;
    let home_text = home.as_path().to_string_lossy().into_owned();
    let own = RESERVED.iter().map(|name| {
        let value = if *name == "HOME" { home_text.clone() } else { "agent".to_owned() };
        (*name, value, false, "the agent has a home and a name of its own")
    });
    let rest =
        BASE.iter().map(|(name, value, replaceable, why)| (*name, (*value).to_owned(), *replaceable, *why));
    let socket = (!ssh.is_empty()).then(|| {
        ("SSH_AUTH_SOCK", SSH_AGENT_SOCKET.to_owned(), false, "ssh signs through it with the declared keys")
    });
    let temporary = temporary.map(|path| {
        let path = path.as_path().to_string_lossy().into_owned();
        ("TMPDIR", path, false, "temporary files are removed with the run")
    });
    own.chain(rest)
        .chain(socket)
        .chain(temporary)
        .filter_map(|(name, value, replaceable, why)| {
            Some((EnvName::new(name).ok()?, value, replaceable, why.to_owned()))
        })
        .collect()
}

/// A command with its relative paths made absolute, starting from the manifest's directory: arguments that begin with
/// `./` or `../`, and a program with a slash.
pub(super) fn written_out(argv: &[String], directory: &AbsPath) -> Vec<String> {
    let one = |(number, word): (usize, &String)| {
        let is_path =
            word.starts_with("./") || word.starts_with("../") || (number == 0 && word.contains('/'));
        let whole = is_path.then(|| directory.join(word).ok()).flatten();
        whole.and_then(|path| path.as_path().to_str().map(str::to_owned)).unwrap_or_else(|| word.clone())
    };
    argv.iter().enumerate().map(one).collect()
}

/// The part of an absolute path before the first name that is a pattern.
fn fixed_part(word: &[u8]) -> Option<AbsPath> {
    let is_pattern = |name: &&[u8]| !name.iter().any(|byte| b"*?[".contains(byte));
    let names: Vec<&[u8]> =
        word.strip_prefix(b"/")?.split(|byte| *byte == b'/').take_while(is_pattern).collect();
    let path = [b"/", names.join(&b'/').as_slice()].concat();
    AbsPath::new(std::path::Path::new(std::str::from_utf8(&path).ok()?)).ok()
}
