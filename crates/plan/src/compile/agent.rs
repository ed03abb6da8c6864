//! Compiles one agent of the manifest to a plan.

use super::env::EnvBase;
use super::library::server_names;
use super::mounts::{Inside, Parts, System};
use super::{Compiled, Compiler, Reasons, access, defaults, git, network, note, ssh};
use crate::explain::Origin;
use crate::facts::{PathFact, TextFact};
use crate::manifest::{AgentSpec, Layered, PathText, PermissionsSpec, ToolsSpec, Word};
use belljar_contract::decode::{At, Place, list};
use belljar_contract::nearest;
use belljar_contract::{
    AbsPath, AgentName, AgentRelease, BackendKind, Egress, EnvEntry, Harness, HarnessProfile, HomeMode,
    ImageName, Instance, InstanceKey, LibraryName, McpLaunch, McpServer, PLAN_FORMAT, PermissionRules, Plan,
    Plugin, PublishedVersion, Purpose, Refusal, Skill, SyntheticAddresses, ToolRules, Wanted, WantedPlugin,
    WantedSkill, Workspace, WorkspaceMode,
};
use std::collections::BTreeMap;

/// Path of the project in tests.
pub(crate) const TEST_WORKSPACE: &str = "/workspace";
/// The agent's home, unless the user's own configuration is shared.
const AGENT_HOME: &str = "/home/agent";
/// belljar's own directory inside.
const KIT: &str = "/opt/belljar";
/// The option that asks for a version of the agent.
const AGENT_OPTION: &str = "--agent";

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    name: &AgentName,
    agent: &Layered<AgentSpec>,
) -> Option<Compiled> {
    // Destructured in full: a key that is added to the schema stops this function from compiling.
    let AgentSpec {
        harness,
        agent: release,
        model,
        effort,
        role,
        prompt,
        skills,
        mcp,
        plugins,
        tools,
        permissions,
        home,
        workspace,
        backend,
        image,
        mounts,
        env,
        egress,
        credentials,
        redact,
        ssh: ssh_entries,
        git: git_spec,
        limits,
    } = &agent.spec;
    let request = compiler.request;
    let facts = request.facts;
    let mut reasons = Reasons::default();
    reasons.add("agent", name.as_str(), Origin::Written(agent.place.clone()));

    let harness = compiler.harness((harness.as_ref(), release.as_ref()), &mut reasons)?;
    let profile = harness.profile();
    let agent_version = compiler.agent_version(release.as_ref(), profile, &agent.place, &mut reasons);
    let model = word("model", model.as_ref(), &mut reasons);
    let effort = compiler.effort(effort.as_ref(), profile, &mut reasons);
    let backend = match request.sandbox.backend {
        Some(asked) => {
            reasons.add("backend", asked.name(), Origin::Option("--backend"));
            asked
        }
        None => reasons.choose("backend", backend.as_ref(), defaults::BACKEND, shown),
    };
    let image = compiler.image(image.as_ref(), backend, &agent.place, &mut reasons);
    let home = reasons.choose("home", home.as_ref(), defaults::HOME, shown);
    let lacks = request
        .facts
        .guard_lacks
        .as_ref()
        .filter(|_| backend.isolates() && request.purpose == Purpose::Session);
    let default = if lacks.is_some() { defaults::WORKSPACE_UNGUARDED } else { defaults::WORKSPACE };
    let mode = reasons.choose("workspace", workspace.as_ref(), default, shown);

    let picked_skills = compiler.pick(name, "skill", skills, &request.manifest.skills);
    let picked_plugins = compiler.pick(name, "plugin", plugins, &request.manifest.plugins);
    let picked_mcp = compiler.pick(name, "MCP server", mcp, &request.manifest.mcp);
    explain_picks("skills", skills, &request.manifest.skills, &mut reasons);
    explain_picks("plugins", plugins, &request.manifest.plugins, &mut reasons);
    explain_picks("mcp", mcp, &request.manifest.mcp, &mut reasons);
    let skills: Vec<Skill> = picked_skills.iter().filter_map(|name| compiler.skill(name)).collect();
    let plugins: Vec<Plugin> = picked_plugins.iter().filter_map(|name| compiler.plugin(name)).collect();
    let (servers, launches, server_env) = compiler.servers(&picked_mcp);

    let instance = instance(compiler, &mut reasons);
    let inside = inside(compiler, home, backend, &instance);
    let workspace = project(compiler, mode, lacks, backend);
    if facts.user.home.is_within(&workspace.source) {
        let message = format!("the project would be `{}`, which holds your whole home", workspace.source);
        compiler.report("whole-home", message, &agent.place, "this agent").help =
            Some("go into the project's own directory; `-C DIR` does that too".to_owned());
    }
    let role = compiler.role(role.as_ref(), &mut reasons);
    let egress_place = egress.as_ref().map_or(&agent.place, |egress| &egress.place);
    let written_egress = egress.as_ref();
    let mut egress = access::egress(written_egress, &mut reasons);
    compiler.allowed_in_vain(written_egress, &egress);
    compiler.hosts_without_address(&egress, egress_place);
    let credentials = compiler.credentials(credentials, &egress, &mut reasons);
    let redact = compiler.redacted(redact, &mut reasons);
    let ssh_entries = compiler.ssh(ssh_entries, &mut egress, &mut reasons);
    let ssh_files = ssh::files(&inside.home, &ssh_entries);
    let mut git_files = git::files(git_spec.as_ref(), request.purpose, &inside.home, &mut reasons);
    let limits = access::limits(limits.as_ref(), &mut reasons);
    let mut env = compiler.environment(
        env,
        server_env,
        profile,
        &EnvBase { home: &inside.home, temporary: inside.temporary.as_ref(), ssh: &ssh_entries },
        &mut reasons,
    );
    network::add_proxy_variables(&egress, (backend, request.purpose), &mut env, &mut reasons);
    let trust_files = network::trust(&egress, &credentials, &inside.home, &mut env, &mut reasons);
    env.sort_by(|a, b| a.name.cmp(&b.name));
    let provider_tools = compiler.provider_tools(tools.as_ref(), profile, &mut reasons);
    let tools = tool_rules(tools.as_ref(), &mut reasons);
    let permissions = permission_rules(permissions.as_ref(), &mut reasons);
    let undeclared = compiler.undeclared_servers(profile, &launches);
    if let Some(prompt) = prompt {
        reasons.add(
            "prompt",
            format!("{} characters", prompt.value.0.chars().count()),
            Origin::Written(prompt.place.clone()),
        );
    }

    let note = note::write(&note::Facts {
        workspace: &workspace,
        home_directory: &inside.home,
        home,
        egress: &egress,
        limits: &limits,
        credentials: &credentials.iter().map(|entry| format!("`{}`", entry.host)).collect::<Vec<_>>(),
        ssh: &ssh_entries.iter().map(|entry| format!("`{}`", entry.host)).collect::<Vec<_>>(),
        backend,
        purpose: request.purpose,
    });
    let plugin_targets: Vec<(Plugin, AbsPath)> = plugins
        .iter()
        .map(|plugin| (plugin.clone(), inside.kit.child("plugins").child(plugin.name.as_str())))
        .collect();
    let assembly = harness.assemble(&Wanted {
        agent: name,
        purpose: request.purpose,
        home,
        home_directory: &inside.home,
        host_home: &facts.user.home,
        host_state: matches!(facts.path(&facts.user.home.child(&profile.state_file)), PathFact::File(_)),
        kit: &inside.kit,
        project: &workspace.target,
        role: role.as_deref(),
        model: model.as_deref(),
        effort: effort.as_deref(),
        tools: &tools,
        permissions: &permissions,
        skills: &skills
            .iter()
            .map(|skill| WantedSkill { name: &skill.name, description: &skill.description })
            .collect::<Vec<_>>(),
        mcp: &launches,
        plugins: &plugin_targets
            .iter()
            .map(|(plugin, directory)| WantedPlugin { name: &plugin.name, directory })
            .collect::<Vec<_>>(),
        undeclared_mcp: &undeclared,
        prompt: prompt.as_ref().map(|prompt| prompt.value.0.as_str()),
        note: &note,
    });
    let mounts = compiler.mounts(
        &Parts {
            inside: &inside,
            system: match (backend.isolates(), &image) {
                (false, _) => System::Unsealed,
                (true, Some(_)) => System::Image,
                (true, None) => System::Machine,
            },
            workspace: &workspace,
            instance: &instance,
            home,
            harness,
            shared_by: agent.spec.home.as_ref().map(|home| &home.place),
            assembly: &assembly,
            skills: &skills,
            plugins: &plugin_targets,
            ssh: &ssh_files,
            declared: mounts,
        },
        &mut reasons,
    );
    // A configuration that the manifest mounts there counts, and no file must be made in it.
    git_files.retain(|file| !git::is_covered(file, &inside.home, &mounts));
    let plan = Plan {
        format: PLAN_FORMAT,
        agent: name.clone(),
        harness: profile.name.clone(),
        agent_version,
        purpose: request.purpose,
        backend,
        image,
        model,
        effort,
        instance,
        home,
        home_directory: inside.home,
        workspace,
        mounts,
        files: assembly.files.into_iter().chain(ssh_files).chain(trust_files).chain(git_files).collect(),
        env,
        refused: refusals(backend, &egress, &tools, &permissions, &undeclared),
        egress,
        model_credentials: profile.model.credentials.iter().map(ToString::to_string).collect(),
        provider_tools,
        credentials,
        redact,
        ssh: ssh_entries,
        limits,
        skills,
        mcp: servers,
        plugins,
        prompt: assembly.prompt,
        argv: assembly.argv,
        used_outside: std::mem::take(&mut compiler.used_outside).into_iter().collect(),
    };
    Some(Compiled { plan, reasons: reasons.0, takes_from_project: compiler.takes_from_project })
}

/// Checks only what an agent picks from the library, for an agent whose table could not be read completely.
pub(super) fn references(compiler: &mut Compiler<'_>, name: &AgentName, spec: &AgentSpec) {
    let manifest = compiler.request.manifest;
    compiler.pick(name, "skill", &spec.skills, &manifest.skills);
    compiler.pick(name, "plugin", &spec.plugins, &manifest.plugins);
    compiler.pick(name, "MCP server", &spec.mcp, &manifest.mcp);
    let mut reasons = Reasons::default();
    if let Some(harness) = compiler.harness((spec.harness.as_ref(), spec.agent.as_ref()), &mut reasons) {
        compiler.effort(spec.effort.as_ref(), harness.profile(), &mut reasons);
    }
}

impl<'a> Compiler<'a> {
    /// The kind of agent: as written, or the one that a version is named of.
    fn harness(
        &mut self,
        (written, release): (Option<&At<Word>>, Option<&At<AgentRelease>>),
        reasons: &mut Reasons,
    ) -> Option<&'a dyn Harness> {
        let known = self.request.harnesses;
        let written = written.map(|at| (at.value.0.as_str(), &at.place, "harness"));
        let released = release.map(|at| (at.value.name.as_str(), &at.place, "agent"));
        if let (Some((harness, place, _)), Some((name, named, _))) = (written, released)
            && harness != name
        {
            let harness = belljar_contract::decode::shown(harness);
            let message = format!("`agent` is a version of `{name}`, but `harness` is `{harness}`");
            let found = self.report("contradiction", message, named, "another kind of agent");
            found.help = Some("leave `harness` out: `agent` names it too".to_owned());
            found.related.push(place.label("the harness"));
            return None;
        }
        let asked = self.request.agent.map(|asked| asked.release.name.as_str());
        let asked = asked.filter(|name| known.iter().any(|harness| harness.profile().name == *name));
        let (name, origin) = match (written.or(released), asked) {
            (Some((name, place, _)), _) => (name, Origin::Written(place.clone())),
            (None, Some(name)) => (name, Origin::Option(AGENT_OPTION)),
            (None, None) => (known.first()?.profile().name.as_str(), Origin::Default(defaults::HARNESS)),
        };
        let found = known.iter().find(|harness| harness.profile().name == name);
        if let Some(harness) = found {
            reasons.add("harness", name, origin);
            return Some(*harness);
        }
        let (name, place, what) = written.or(released)?;
        let known: Vec<&str> = known.iter().map(|harness| harness.profile().name.as_str()).collect();
        let label = nearest(name, known.iter().copied())
            .map_or(String::new(), |near| format!("did you mean `{near}`?"));
        let message = format!("no {what} is called `{}`", belljar_contract::decode::shown(name));
        self.report("unknown-harness", message, place, &label).help =
            Some(format!("known: {}", list(&known)));
        None
    }

    /// The version of the agent that is started; `None` is the program on the search path.
    fn agent_version(
        &mut self,
        written: Option<&At<AgentRelease>>,
        profile: &HarnessProfile,
        agent: &Place,
        reasons: &mut Reasons,
    ) -> Option<PublishedVersion> {
        let (release, origin) = match (self.request.agent, written) {
            (Some(asked), _) => (&asked.release, Origin::Option(AGENT_OPTION)),
            (None, Some(at)) => (&at.value, Origin::Written(at.place.clone())),
            (None, None) => {
                reasons.add("agent_version", "any", Origin::Default(defaults::AGENT_VERSION));
                return None;
            }
        };
        if release.name != profile.name {
            let message =
                format!("`{AGENT_OPTION} {release}` is a version of another agent than `{}`", profile.name);
            self.report("contradiction", message, agent, "this agent").help =
                Some(format!("name a version of {}", profile.name));
        }
        reasons.add("agent_version", release.version.as_str(), origin);
        Some(release.version.clone())
    }

    fn effort(
        &mut self,
        written: Option<&At<Word>>,
        profile: &HarnessProfile,
        reasons: &mut Reasons,
    ) -> Option<String> {
        let at = written?;
        if !profile.efforts.contains(&at.value.0) {
            let known: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
            let label = nearest(&at.value.0, known.iter().copied())
                .map_or(String::new(), |near| format!("did you mean `{near}`?"));
            let message = format!(
                "`{}` is not an effort of {}",
                belljar_contract::decode::shown(&at.value.0),
                profile.name
            );
            self.report("invalid-value", message, &at.place, &label).help =
                Some(format!("write {}", belljar_contract::decode::choices(&known)));
        }
        word("effort", written, reasons)
    }

    /// The container image. Other backends have none: they show this machine's system instead.
    fn image(
        &mut self,
        written: Option<&At<ImageName>>,
        backend: BackendKind,
        agent: &Place,
        reasons: &mut Reasons,
    ) -> Option<ImageName> {
        let (image, place, origin) = match (&self.request.sandbox.image, written) {
            (Some(asked), _) => (asked, agent, Origin::Option("--image")),
            (None, Some(at)) => (&at.value, &at.place, Origin::Written(at.place.clone())),
            (None, None) => return None,
        };
        if !backend.takes_image() {
            let message = format!("the image `{image}` is for containers; the backend is {}", backend.name());
            let help = match origin {
                Origin::Option(option) => format!("add `--backend container`, or leave `{option}` out"),
                Origin::Written(_) | Origin::Default(_) | Origin::Harness(_) | Origin::Host(_) => {
                    "write `backend = \"container\"`, or leave `image` out".to_owned()
                }
            };
            self.report("needless-image", message, place, "").help = Some(help);
        }
        reasons.add("image", image.as_str(), origin);
        Some(image.clone())
    }

    /// Programs that do not use the proxy reach a host by its address inside, and there are only so many.
    fn hosts_without_address(&mut self, egress: &Egress, place: &Place) {
        let left_out = SyntheticAddresses::of(egress).left_out;
        let Some(first) = left_out.first() else { return };
        let message = format!(
            "{} of the allowed hosts, from `{first}` on, are reached only by programs that use the proxy",
            left_out.len()
        );
        let help = "the others have addresses inside; a rule `*.domain` stands for many hosts".to_owned();
        self.warn("hosts-without-address", message, place, "more hosts than addresses").help = Some(help);
    }

    /// What the provider may do on its own machines.
    fn provider_tools(
        &mut self,
        written: Option<&At<ToolsSpec>>,
        profile: &HarnessProfile,
        reasons: &mut Reasons,
    ) -> Vec<String> {
        let known: Vec<&str> = profile.provider_tools.iter().map(String::as_str).collect();
        let written = written.map_or(&[][..], |spec| spec.value.provider.as_slice());
        for at in written {
            reasons.add("tools.provider", at.value.0.clone(), Origin::Written(at.place.clone()));
            if !known.contains(&at.value.0.as_str()) {
                let label = nearest(&at.value.0, known.iter().copied())
                    .map_or(String::new(), |near| format!("did you mean `{near}`?"));
                let message = format!(
                    "`{}` is not a tool of the model's provider",
                    belljar_contract::decode::shown(&at.value.0)
                );
                self.report("invalid-value", message, &at.place, &label).help =
                    Some(format!("write {}", belljar_contract::decode::choices(&known)));
            }
        }
        words(written)
    }

    fn servers(&mut self, picked: &[LibraryName]) -> (Vec<McpServer>, Vec<McpLaunch>, Vec<EnvEntry>) {
        let (mut servers, mut launches, mut env) = (Vec::new(), Vec::new(), Vec::new());
        for (index, name) in picked.iter().enumerate() {
            let server = self.request.manifest.mcp.get(name).filter(|server| !server.broken);
            let Some(layered) = server else { continue };
            let (server, launch, entries) = self.server(name, index + 1, layered);
            servers.push(server);
            launches.push(launch);
            env.extend(entries);
        }
        (servers, launches, env)
    }

    /// Servers that the project's own file would start, though the agent does not declare them.
    fn undeclared_servers(&self, profile: &HarnessProfile, declared: &[McpLaunch]) -> Vec<String> {
        let file = self.request.facts.project.root.child(&profile.project_mcp_file);
        let TextFact::Text(text) = self.request.facts.text(&file) else { return Vec::new() };
        let names = server_names(&text).unwrap_or_default();
        names.into_iter().filter(|name| !declared.iter().any(|server| server.name == *name)).collect()
    }

    fn role(&mut self, written: Option<&At<PathText>>, reasons: &mut Reasons) -> Option<String> {
        let at = written?;
        let path = self.resolve(at)?;
        let root = &self.request.facts.project.root;
        let is_of_project = path.is_within(root);
        self.takes_from_project |= is_of_project;
        // The text is shown when it changed since an agreement.
        let leads_out =
            matches!(self.request.facts.path(&path), PathFact::File(real) if !real.is_within(root));
        if is_of_project && leads_out {
            let message = format!("the role: `{path}` is a link that leads out of the project");
            self.report("no-such-source", message, &at.place, "this path");
            return None;
        }
        match self.request.facts.text(&path) {
            TextFact::Text(text) => {
                reasons.add("role", path.to_string(), Origin::Written(at.place.clone()));
                return Some(text);
            }
            TextFact::Missing => {
                self.report(
                    "no-such-source",
                    format!("the role: `{path}` does not exist"),
                    &at.place,
                    "this path",
                );
            }
            TextFact::Unusable(why) => {
                self.report(
                    "no-such-source",
                    format!("the role: `{path}` cannot be read: {why}"),
                    &at.place,
                    "this path",
                );
            }
        }
        None
    }
}

fn word(key: &str, written: Option<&At<Word>>, reasons: &mut Reasons) -> Option<String> {
    let at = written?;
    reasons.add(key, at.value.0.clone(), Origin::Written(at.place.clone()));
    Some(at.value.0.clone())
}

/// Where a name is picked, and where the library has it from: the two may be in different files.
fn explain_picks<T>(
    family: &str,
    picked: &[At<LibraryName>],
    library: &BTreeMap<LibraryName, Layered<T>>,
    reasons: &mut Reasons,
) {
    for name in picked {
        reasons.add(format!("{family}.{}", name.value), "picked", Origin::Written(name.place.clone()));
        if let Some(entry) = library.get(&name.value) {
            let key = format!("library.{family}.{}", name.value);
            reasons.add(key, "declared", Origin::Written(entry.place.clone()));
        }
    }
}

fn shown<T: serde::Serialize>(value: &T) -> String {
    serde_json::json!(value).as_str().unwrap_or_default().to_owned()
}

fn instance(compiler: &Compiler<'_>, reasons: &mut Reasons) -> Instance {
    let facts = compiler.request.facts;
    let root = facts.project.canonical_root.clone();
    let key = InstanceKey::of(&root);
    reasons.add("instance", key.as_str(), Origin::Host(format!("from the project root {root}")));
    Instance { directory: facts.user.instances.child(key.as_str()), key, root }
}

fn inside(compiler: &Compiler<'_>, home: HomeMode, backend: BackendKind, instance: &Instance) -> Inside {
    if !backend.isolates() {
        // Without a sandbox nothing can be mounted at a path of our choice, so the file lies in the instance.
        return Inside {
            home: instance.directory.child("host/home"),
            kit: instance.directory.child("host/kit"),
            temporary: match compiler.request.purpose {
                Purpose::Test => Some(instance.directory.child("host/tmp")),
                Purpose::Session => None,
            },
        };
    }
    let fixed = |path: &str| AbsPath::new(path).unwrap_or_else(|_| instance.directory.clone());
    let home = match (home, compiler.request.purpose) {
        // The user's configuration holds absolute paths of the user's home.
        (HomeMode::Shared, Purpose::Session) => compiler.request.facts.user.home.clone(),
        (HomeMode::Shared, Purpose::Test) | (HomeMode::Clean | HomeMode::Project, _) => fixed(AGENT_HOME),
    };
    Inside { home, kit: fixed(KIT), temporary: None }
}

fn project(
    compiler: &Compiler<'_>,
    mode: WorkspaceMode,
    lacks: Option<&String>,
    backend: BackendKind,
) -> Workspace {
    let facts = &compiler.request.facts.project;
    let target = match compiler.request.purpose {
        Purpose::Test if backend.isolates() => {
            AbsPath::new(TEST_WORKSPACE).unwrap_or_else(|_| facts.root.clone())
        }
        // Without a sandbox nothing can be mounted elsewhere.
        Purpose::Test | Purpose::Session => facts.root.clone(),
    };
    let directory = match facts.directory.relative_to(&facts.root) {
        Some(below) => target.join(below).unwrap_or_else(|_| target.clone()),
        None => target.clone(),
    };
    let unguarded = lacks.filter(|_| mode == WorkspaceMode::Direct).cloned();
    Workspace { mode, source: facts.root.clone(), target, directory, unguarded }
}

fn words(list: &[At<Word>]) -> Vec<String> {
    list.iter().map(|word| word.value.0.clone()).collect()
}

fn tool_rules(written: Option<&At<ToolsSpec>>, reasons: &mut Reasons) -> ToolRules {
    let Some(spec) = written else { return ToolRules::default() };
    // The provider's own tools do not belong to the agent; the gateway enforces them.
    let ToolsSpec { allow, deny, provider: _ } = &spec.value;
    reasons.add("tools", "restricted", Origin::Written(spec.place.clone()));
    ToolRules { allow: allow.as_ref().map(|list| words(&list.value.0)), deny: words(deny) }
}

fn permission_rules(written: Option<&At<PermissionsSpec>>, reasons: &mut Reasons) -> PermissionRules {
    let Some(spec) = written else {
        reasons.add("permissions", "the agent asks", Origin::Default("absence is not permission"));
        return PermissionRules::default();
    };
    let PermissionsSpec { skip_prompts, allow, deny } = &spec.value;
    let skip = skip_prompts.as_ref().is_some_and(|skip| skip.value);
    let value = if skip { "the agent does not ask" } else { "the agent asks" };
    reasons.add("permissions", value, Origin::Written(spec.place.clone()));
    PermissionRules { skip_prompts: skip, allow: words(allow), deny: words(deny) }
}

fn refusals(
    backend: BackendKind,
    egress: &belljar_contract::Egress,
    tools: &ToolRules,
    permissions: &PermissionRules,
    undeclared: &[String],
) -> Vec<Refusal> {
    let refusal = |what: String, why: &str| Refusal { what, why: why.to_owned() };
    let network =
        if egress.rules.is_empty() { "every host but the model" } else { "every host that is not listed" };
    let isolated = [
        refusal("everything of this machine that is not listed".to_owned(), "it is not there"),
        refusal(network.to_owned(), "nothing is reachable unless it is declared"),
    ];
    let mut out: Vec<Refusal> = isolated.into_iter().filter(|_| backend.isolates()).collect();
    out.extend(tools.deny.iter().map(|tool| refusal(format!("the tool {tool}"), "tools.deny")));
    out.extend(permissions.deny.iter().map(|rule| refusal(rule.clone(), "permissions.deny")));
    out.extend(undeclared.iter().map(|name| {
        refusal(format!("the MCP server {name} of the project's own file"), "the agent does not declare it")
    }));
    out
}
