//! A plan on one page: what the agent sees, what it can reach, which secrets, what persists, what is refused.

use crate::Style;
use belljar_contract::{
    Access, BackendKind, Credential, CredentialPart, EnvEntry, EnvGiver, HomeMode, Limits, Mount,
    MountSource, Plan, Purpose, RuleEffect, WorkspaceMode,
};

/// What the page is made of, beside the plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanPage<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Where the model's credential was found just now.
    pub credential_found: Option<&'a str>,
    /// Where the agent's program was found just now.
    pub program_found: Option<&'a str>,
    /// What the user should do before a run, such as agreeing to a project's manifest.
    pub advice: &'a [String],
}

/// The page.
#[must_use]
pub fn render_plan(page: &PlanPage<'_>, style: Style) -> String {
    let plan = page.plan;
    let mut out = Lines { style, text: String::new() };
    head(&mut out, plan);
    sees(&mut out, plan);
    reaches(&mut out, page);
    environment(&mut out, &plan.env);
    keeps(&mut out, plan);
    limits(&mut out, &plan.limits);
    out.section("Refused");
    for refusal in &plan.refused {
        out.row(&[&refusal.what, &refusal.why]);
    }
    start(&mut out, page);
    for advice in page.advice {
        out.text.push('\n');
        out.text.push_str(&style.warn(&format!("! {advice}")));
        out.text.push('\n');
    }
    out.text
}

struct Lines {
    style: Style,
    text: String,
}

impl Lines {
    fn section(&mut self, name: &str) {
        self.text.push('\n');
        self.text.push_str(&self.style.bold(name));
        self.text.push('\n');
    }

    /// Cells in columns; the last one is not padded.
    fn row(&mut self, cells: &[&str]) {
        let mut line = " ".to_owned();
        for (index, cell) in cells.iter().enumerate() {
            line.push(' ');
            line.push_str(&clean(cell));
            if index + 1 < cells.len() {
                let width = if cells.len() > 2 && index == 0 { 8 } else { 34 };
                let pad = usize::saturating_sub(width, cell.chars().count());
                line.push_str(&" ".repeat(pad));
            }
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// Text from a manifest cannot forge a line of the page.
fn clean(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn head(out: &mut Lines, plan: &Plan) {
    let mut parts = vec![plan.harness.clone()];
    if let Some(model) = &plan.model {
        parts.push(model.clone());
    }
    if let Some(effort) = &plan.effort {
        parts.push(format!("effort {effort}"));
    }
    parts.push(
        match plan.backend {
            BackendKind::Host => "no sandbox (host)",
            BackendKind::Bwrap => "bubblewrap",
            BackendKind::Container => "container",
            BackendKind::Microvm => "virtual machine",
        }
        .to_owned(),
    );
    let title = out.style.bold(&format!("Agent {}", plan.agent));
    out.text.push_str(&format!("{title}  {}\n", clean(&parts.join(", "))));
    let digest = out.style.dim(&plan.digest().to_string());
    out.text.push_str(&format!("{digest}\n"));
}

fn sees(out: &mut Lines, plan: &Plan) {
    out.section("Sees, in the order it is laid");
    for Mount { target, source, access, why } in &plan.mounts {
        let access = match access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        let from = match source {
            MountSource::Host(path)
            | MountSource::InstanceDirectory(path)
            | MountSource::InstanceFile(path)
                if path != target =>
            {
                format!(" (from {path})")
            }
            MountSource::Workspace if plan.purpose == Purpose::Test => {
                format!(" (from {})", plan.workspace.source)
            }
            MountSource::Workspace => match plan.workspace.mode {
                WorkspaceMode::Direct => " (changed in place)".to_owned(),
                WorkspaceMode::Overlay => " (changes are kept aside)".to_owned(),
                WorkspaceMode::Copy => " (a copy)".to_owned(),
            },
            _ => String::new(),
        };
        out.row(&[access, &target.to_string(), &format!("{why}{from}")]);
    }
    for file in &plan.files {
        out.row(&["file", &file.target.to_string(), &file.why]);
    }
    for skill in &plan.skills {
        out.row(&["skill", skill.name.as_str(), &skill.description]);
    }
    for server in &plan.mcp {
        let words: Vec<&str> =
            std::iter::once(&server.command).chain(&server.args).map(String::as_str).collect();
        out.row(&["mcp", server.name.as_str(), &words.join(" ")]);
    }
    for plugin in &plan.plugins {
        let bundled = match plugin.mcp.as_slice() {
            [] => plugin.source.to_string(),
            servers => format!("{}, brings the MCP servers {}", plugin.source, servers.join(", ")),
        };
        out.row(&["plugin", plugin.name.as_str(), &bundled]);
    }
}

fn reaches(out: &mut Lines, page: &PlanPage<'_>) {
    let plan = page.plan;
    out.section("Reaches");
    if plan.egress.model {
        let order = plan.model_credentials.join(", then ");
        out.row(&["model", "through the gateway", &format!("credential from {order}")]);
        let found = page
            .credential_found
            .map_or("none of them is here now".to_owned(), |name| format!("here now: {name}"));
        out.row(&["", "", &format!("{found}; it stays outside")]);
    }
    for rule in &plan.egress.rules {
        let word = match rule.effect {
            RuleEffect::Allow => "allowed",
            RuleEffect::Deny => "never",
        };
        out.row(&[&rule.id, &rule.host.to_string(), word]);
    }
    for Credential { host, header, value } in &plan.credentials {
        let secret = value.iter().find_map(|part| match part {
            CredentialPart::Secret(source) => Some(clean(&source.describe())),
            CredentialPart::Text(_) => None,
        });
        let text = format!("{header} from {}; it stays outside", secret.unwrap_or_default());
        out.row(&["signs in", host.as_str(), &text]);
    }
    for entry in &plan.ssh {
        let target = format!("{}@{}:{}", entry.user, entry.hostname, entry.port);
        out.row(&["ssh", &entry.host, &format!("{target}, key {} stays outside", entry.identity_file)]);
    }
}

fn environment(out: &mut Lines, env: &[EnvEntry]) {
    out.section("Environment, all of it");
    let (harness, given): (Vec<&EnvEntry>, Vec<&EnvEntry>) =
        env.iter().partition(|entry| matches!(entry.giver, EnvGiver::Harness(_)));
    for entry in given {
        let mut text = clean(&entry.source.describe());
        if let EnvGiver::McpServer(server) = &entry.giver {
            text.push_str(&format!(", for the MCP server {server}"));
        }
        if entry.enters_as_secret() {
            text = out.style.warn(&format!("! a secret that enters the sandbox: {text}"));
        }
        let name = entry.name.as_str();
        let pad = " ".repeat(usize::saturating_sub(34, name.len()));
        out.text.push_str(&format!("  {name}{pad} {text}\n"));
    }
    let names: Vec<&str> = harness.iter().map(|entry| entry.name.as_str()).collect();
    out.row(&["constants", &names.join(" ")]);
}

fn keeps(out: &mut Lines, plan: &Plan) {
    out.section("Keeps");
    let (mode, text) = match plan.home {
        HomeMode::Clean => ("clean", "nothing persists"),
        HomeMode::Project => ("project", "this project's conversations persist"),
        HomeMode::Shared => {
            ("shared", "your agent configuration is visible; this project's conversations persist")
        }
    };
    out.row(&[&format!("home = {mode}"), text]);
    if plan.home != HomeMode::Clean {
        out.row(&[&format!("instance {}", plan.instance.key), &plan.instance.directory.to_string()]);
        out.row(&["of the project", &plan.instance.root.to_string()]);
    }
}

fn limits(out: &mut Lines, limits: &Limits) {
    let Limits { memory, pids, cpu, time, cost_usd } = limits;
    let rows = [
        ("memory", memory.map(|v| v.to_string())),
        ("processes", pids.map(|v| v.to_string())),
        ("processors", cpu.map(|v| v.to_string())),
        ("time", time.map(|v| v.to_string())),
        ("cost", cost_usd.map(|v| v.to_string())),
    ];
    if rows.iter().any(|(_, value)| value.is_some()) {
        out.section("Limits");
    }
    for (name, value) in &rows {
        if let Some(value) = value {
            out.row(&[name, value]);
        }
    }
}

fn start(out: &mut Lines, page: &PlanPage<'_>) {
    out.section("Starts");
    let found = page.program_found.unwrap_or("not found on this machine");
    out.row(&["program", found]);
    out.row(&["in", &page.plan.workspace.directory.to_string()]);
    // Quoted the way Rust does: an argument with spaces or quotes is seen to be one argument.
    let argv: Vec<String> = page.plan.argv.iter().map(|word| format!("{word:?}")).collect();
    out.row(&["arguments", &argv.join(" ")]);
    if let Some(prompt) = &page.plan.prompt {
        let first = prompt.text.lines().next().unwrap_or_default();
        let first: String = first.chars().take(100).collect();
        out.row(&["prompt", &format!("{} characters: {first}", prompt.text.chars().count())]);
    }
}
