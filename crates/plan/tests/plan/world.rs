//! A made-up host and a made-up agent.

use belljar_contract::{
    AbsPath, Access, AgentName, AgentPackage, Assembly, CredentialPlace, Diagnostic, Digest, EnvName,
    FileContent, Harness, HarnessProfile, ModelAccess, Persisted, PersistedKind, PersonalFile, PlannedFile,
    ProfileEnv, Prompt, Purpose, RecordedDirectory, SandboxChoice, SessionTuning, SharedEntry, Sources,
    TranscriptEntry, TunedAgent, Wanted,
};
use belljar_plan::{
    Compiled, Compiler, ContentFact, HostFacts, LayerText, Manifest, ManifestLayer, PathFact, ProjectFacts,
    Questions, Request, Rigour, TextFact, UserFacts, further_questions, parse, questions,
};
use std::collections::{BTreeMap, BTreeSet};

pub const FULL: &str = include_str!("full/belljar.toml");

pub fn abs(path: &str) -> AbsPath {
    AbsPath::new(path).unwrap()
}

/// An agent that only these tests know: it writes down what it was asked for.
pub struct Scribe(HarnessProfile);

impl Scribe {
    pub fn new() -> Self {
        let name = |text: &str| EnvName::new(text).unwrap();
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Self(HarnessProfile {
            versions: Default::default(),
            test_env: Vec::new(),
            one_message: Vec::new(),
            conversation: Vec::new(),
            name: "scribe".into(),
            program: "scribe".into(),
            install: "get scribe".into(),
            package: AgentPackage { name: "scribe".into(), program: "package/scribe".into() },
            example_model: "quill".into(),
            config_directory: ".scribe".into(),
            state_file: ".scribe.json".into(),
            shared_state: texts(&["servers"]),
            efforts: texts(&["low", "high"]),
            provider_tools: texts(&["web_search"]),
            model: ModelAccess {
                credentials: vec![CredentialPlace::ApiKey { variable: name("SCRIBE_KEY") }],
                login_program: "scribe".into(),
                base_url: name("SCRIBE_URL"),
                output_tokens: name("SCRIBE_TOKENS"),
            },
            version_member: "scribe_version".into(),
            instructions_file: "SCRIBE.md".into(),
            read_above: vec!["SCRIBE.md".into()],
            settings_file: "settings".into(),
            project_settings: texts(&[".scribe/settings"]),
            settings_commands: Vec::new(),
            env: vec![ProfileEnv {
                name: name("SCRIBE_KEY"),
                value: "placeholder".into(),
                why: "a placeholder".into(),
            }],
            reserved_env: vec![name("SCRIBE_PROXY")],
            persist: vec![
                Persisted {
                    name: "projects".into(),
                    kind: PersistedKind::Directory,
                    why: "conversations".into(),
                },
                Persisted { name: "history".into(), kind: PersistedKind::File, why: "prompts".into() },
            ],
            shared: vec![
                SharedEntry { name: "settings".into(), why: "settings".into() },
                SharedEntry { name: "absent".into(), why: "nothing".into() },
            ],
            skill_directories: texts(&[".scribe/skills"]),
            plugin_directory: ".scribe-plugin".into(),
            plugin_file: "plugin.json".into(),
            marketplace_file: "plugins.json".into(),
            plugin_marks: texts(&["plugin.json"]),
            plugin_records: texts(&["records"]),
            plugin_mcp_files: texts(&["plugin.json"]),
            project_mcp_file: ".mcp.json".into(),
            session_flags: Vec::new(),
            newest_session_flags: Vec::new(),
        })
    }
}

impl Harness for Scribe {
    fn profile(&self) -> &HarnessProfile {
        &self.0
    }

    fn recorded_directories(&self, _record: &str, text: &str) -> Vec<RecordedDirectory> {
        let recorded = |line: &str| RecordedDirectory {
            path: line.to_owned(),
            mark: "mark".to_owned(),
            what: "a place".to_owned(),
        };
        text.lines().map(recorded).collect()
    }

    fn tune(&self, _tuning: &SessionTuning<'_>) -> TunedAgent {
        TunedAgent::default()
    }

    fn personal_files(&self, _project: &str) -> Vec<PersonalFile> {
        Vec::new()
    }

    fn transcript(&self, _text: &str) -> Vec<TranscriptEntry> {
        Vec::new()
    }

    fn assemble(&self, wanted: &Wanted<'_>) -> Assembly {
        let directory = wanted.kit.child("agent");
        let file = |name: &str, text: String| PlannedFile {
            target: directory.child(name),
            content: FileContent::Text(text),
            access: Access::ReadOnly,
            why: "a note".into(),
        };
        let mut files = vec![
            file("note", wanted.note.to_owned()),
            file(
                "rules",
                format!("{:?}\n{:?}\n{:?}", wanted.tools, wanted.permissions, wanted.undeclared_mcp),
            ),
            file("servers", format!("{:?}", wanted.mcp)),
        ];
        files.extend(wanted.role.map(|role| file("role", role.to_owned())));
        let program = wanted.kit.child("bin/scribe");
        Assembly {
            argv: vec![program.to_string(), format!("--model={}", wanted.model.unwrap_or("none"))],
            program,
            files,
            skills_directory: directory.child("skills"),
            prompt: wanted.prompt.map(|text| Prompt {
                text: text.to_owned(),
                file: directory.child("prompt"),
                argument: "do it".into(),
            }),
        }
    }
}

pub fn project() -> ProjectFacts {
    ProjectFacts {
        directory: abs("/srv/project/sub"),
        root: abs("/srv/project"),
        canonical_root: abs("/srv/project"),
        outside_repository: None,
    }
}

pub fn user() -> UserFacts {
    UserFacts {
        home: abs("/home/ann"),
        instances: abs("/home/ann/.local/instances"),
        config: abs("/home/ann/.config"),
    }
}

pub fn layer(layer: ManifestLayer, text: &[u8]) -> LayerText {
    let directory =
        if layer == ManifestLayer::Project { abs("/srv/project") } else { abs("/home/ann/.config") };
    LayerText { layer, name: format!("{layer:?}.toml"), directory, bytes: text.to_vec() }
}

pub fn manifest(text: &str) -> Manifest {
    parse(vec![layer(ManifestLayer::Project, text.as_bytes())])
        .unwrap_or_else(|error| panic!("{:#?}", error.diagnostics))
}

/// The host of these tests: what is on its disk and in its environment.
#[derive(Clone)]
pub struct World {
    pub files: BTreeMap<AbsPath, Option<String>>,
    pub variables: BTreeSet<EnvName>,
    pub project: ProjectFacts,
    pub purpose: Purpose,
    pub rigour: Rigour,
    pub guard_lacks: Option<String>,
}

impl World {
    /// Everything that the full manifest refers to.
    pub fn full() -> Self {
        let skill = |name: &str| Some(format!("---\nname: {name}\ndescription: Does {name}\n---\n"));
        let files = [
            ("/srv/project/skills/changelog", None),
            ("/srv/project/skills/changelog/SKILL.md", skill("changelog")),
            ("/home/ann/.scribe/skills/review", None),
            ("/home/ann/.scribe/skills/review/SKILL.md", skill("review")),
            ("/home/ann/.scribe/settings", Some("mine".into())),
            ("/home/ann/plugins/discord", None),
            ("/home/ann/plugins/discord/plugin.json", Some(r#"{"mcpServers": {"bot": {}}}"#.into())),
            ("/srv/project/roles/reviewer.md", Some("You review.\n".into())),
            ("/srv/project/.mcp.json", Some(r#"{"mcpServers": {"playwright": {}, "sneaky": {}}}"#.into())),
            ("/home/ann/datasets", None),
            ("/srv/project/scratch", None),
            ("/srv/project/licence.key", Some("secret content of a file".into())),
            ("/home/ann/.ssh/forge", Some("secret key".into())),
        ];
        let variables = ["AWS_REGION", "AWS_ZONE", "BROWSER_TOKEN", "GITHUB_TOKEN"];
        Self {
            files: files.into_iter().map(|(path, text)| (abs(path), text)).collect(),
            variables: variables.into_iter().map(|name| EnvName::new(name).unwrap()).collect(),
            project: project(),
            purpose: Purpose::Session,
            rigour: Rigour::Launch,
            guard_lacks: None,
        }
    }

    /// Answers what was asked, and nothing else.
    pub fn answer(&self, asked: Questions) -> HostFacts {
        let path = |path: &AbsPath| match self.files.get(path) {
            None => PathFact::Missing,
            Some(None) => PathFact::Directory(path.clone()),
            Some(Some(_)) => PathFact::File(path.clone()),
        };
        let text = |path: &AbsPath| match self.files.get(path) {
            None => TextFact::Missing,
            Some(None) => TextFact::Unusable("it is a directory".into()),
            Some(Some(text)) => TextFact::Text(text.clone()),
        };
        let content = |path: &AbsPath| match self.files.get(path) {
            Some(Some(text)) if path.is_within(&self.project.root) => {
                ContentFact::Digest(path.clone(), Digest::of(text.as_bytes()))
            }
            None | Some(_) => ContentFact::Elsewhere,
        };
        HostFacts {
            user: user(),
            project: self.project.clone(),
            paths: asked.paths.iter().map(|at| (at.clone(), path(at))).collect(),
            texts: asked.texts.iter().map(|at| (at.clone(), text(at))).collect(),
            contents: asked.contents.keys().map(|at| (at.clone(), content(at))).collect(),
            variables: asked.variables.into_iter().filter(|name| self.variables.contains(name)).collect(),
            guard_lacks: self.guard_lacks.clone(),
        }
    }

    /// Asks, answers and compiles one agent.
    pub fn compile(&self, manifest: &Manifest, agent: &str) -> (Option<Compiled>, Sources, Vec<Diagnostic>) {
        let scribe = Scribe::new();
        let harnesses: [&dyn Harness; 1] = [&scribe];
        let name = AgentName::new(agent).unwrap();
        let asked =
            questions(manifest, Some(std::slice::from_ref(&name)), &harnesses, &user().home, &self.project);
        let mut facts = self.answer(asked);
        facts.extend(self.answer(further_questions(&harnesses, &facts)));
        let sandbox = SandboxChoice::default();
        let mut compiler = Compiler::new(Request {
            sandbox: &sandbox,
            agent: None,
            manifest,
            harnesses: &harnesses,
            facts: &facts,
            purpose: self.purpose,
            rigour: self.rigour,
        });
        let compiled = compiler.agent(&name);
        let (sources, diagnostics) = compiler.finish();
        (compiled, sources, diagnostics)
    }

    /// The plan of an agent that must be good.
    pub fn plan(&self, text: &str, agent: &str) -> Compiled {
        let (compiled, _, diagnostics) = self.compile(&manifest(text), agent);
        compiled.unwrap_or_else(|| panic!("{diagnostics:#?}"))
    }
}
