//! A plan on one page: what the agent sees and can reach, which secrets it gets, what persists, what is refused.

use crate::{Style, render_open};
use belljar_contract::{
    AbsPath, Access, AgentUsed, Credential, CredentialPart, DefaultLimit, Digest, Entering, EnvEntry,
    EnvGiver, HomeMode, Limits, Mount, MountSource, OpenNeed, OsText, Plan, Purpose, RuleEffect, UsedOutside,
    WorkspaceMode, visible, visible_name,
};

/// The inputs of the page besides the plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanPage<'a> {
    pub plan: &'a Plan,
    /// Where the model's credential was found just now; `None` if nowhere.
    pub credential_found: Option<&'a str>,
    /// The address of the model's service, if it is not the default.
    pub upstream: Option<&'a str>,
    /// Where the agent's program was found just now, or why it cannot be used; `None` if nowhere.
    pub program_found: Option<&'a str>,
    /// The version of the agent, and what names it.
    pub agent: &'a AgentUsed,
    pub entering: &'a [Entering],
    /// Limits that apply by default.
    pub defaults: &'a [DefaultLimit],
    /// What nothing enforces, without a sandbox.
    pub open: &'a [OpenNeed],
    /// The user's home directory, to shorten paths.
    pub home: &'a AbsPath,
    /// The digest that an agreement is bound to: that of the plan without what is given by hand.
    pub digest: Digest,
    /// The keys of values that are given by hand, such as `home` or `env.LOG_LEVEL`.
    pub by_hand: &'a [&'a str],
    /// Arguments for the agent that are given by hand.
    pub arguments: &'a [OsText],
    /// What the user should do before a run, such as agreeing to a project's manifest.
    pub advice: &'a [String],
}

impl PlanPage<'_> {
    /// A text about a value, marked if the value is given by hand.
    fn marked(&self, key: &str, text: &str) -> String {
        match self.by_hand.contains(&key) {
            true => format!("{text}, by hand"),
            false => text.to_owned(),
        }
    }
}

#[must_use]
pub fn render_plan(page: &PlanPage<'_>, style: Style) -> String {
    let plan = page.plan;
    let mut out = Page { style, home: page.home, text: String::new(), rows: Vec::new() };
    head(&mut out, page);
    if !page.open.is_empty() {
        out.text.push_str(&format!("\n{}", render_open(page.open, style)));
    }
    sees(&mut out, page);
    reaches(&mut out, page);
    secrets(&mut out, page);
    environment(&mut out, &plan.env);
    used_outside(&mut out, plan);
    keeps(&mut out, page);
    limits(&mut out, &plan.limits, page.defaults);
    if !plan.refused.is_empty() {
        out.section("Refused");
    }
    for refusal in &plan.refused {
        out.row([&refusal.what, &refusal.why]);
    }
    start(&mut out, page);
    out.flush();
    for advice in page.advice {
        out.text.push_str(&format!("\n{}\n", style.warn(&format!("! {}", visible(advice)))));
    }
    out.text
}

/// A page in sections of aligned rows.
struct Page<'a> {
    style: Style,
    home: &'a AbsPath,
    text: String,
    rows: Vec<Vec<String>>,
}

/// A cell wider than this does not widen its column.
const WIDEST: usize = 52;

impl Page<'_> {
    fn section(&mut self, name: &str) {
        self.flush();
        self.text.push_str(&format!("\n{}\n", self.style.bold(name)));
    }

    fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.iter().map(|cell| visible(cell).into_owned()).collect());
    }

    /// Writes the rows of the section with aligned columns; the last column is not padded.
    fn flush(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells =
                rows.iter().filter(|row| column + 1 < row.len()).map(|row| row[column].chars().count());
            cells.filter(|width| *width <= WIDEST).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in rows {
            let mut line = " ".to_owned();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(&format!(" {cell}"));
                if column + 1 < row.len() {
                    line.push_str(&" ".repeat(widths[column].saturating_sub(cell.chars().count())));
                }
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// A path of the host, with `~` for the home directory.
    fn path(&self, path: &AbsPath) -> String {
        match path.relative_to(self.home) {
            Some(below) if !below.as_os_str().is_empty() => format!("~/{}", visible_name(below)),
            _ => path.to_string(),
        }
    }
}

fn head(out: &mut Page<'_>, page: &PlanPage<'_>) {
    let plan = page.plan;
    let marked = |key: &str, text: &str| match page.by_hand.contains(&key) {
        true => format!("{text} (by hand)"),
        false => text.to_owned(),
    };
    let mut parts = vec![plan.harness.clone()];
    if let Some(model) = &plan.model {
        parts.push(marked("model", model));
    }
    if let Some(effort) = &plan.effort {
        parts.push(format!("effort {effort}"));
    }
    let image = plan.image.iter().map(|image| marked("image", &format!(" of the image {image}")));
    parts.push(std::iter::once(marked("backend", plan.backend.title())).chain(image).collect());
    let title = out.style.bold(&format!("Agent {}", plan.agent));
    out.text.push_str(&format!("{title}  {}\n", visible(&parts.join(", "))));
    let digest = out.style.dim(&page.digest.to_string());
    let apart = if page.digest == plan.digest() { "" } else { ", without what is given by hand" };
    out.text.push_str(&format!("{digest}{apart}\n"));
}

fn sees(out: &mut Page<'_>, page: &PlanPage<'_>) {
    let plan = page.plan;
    out.section(match plan.backend.isolates() {
        true => "Sees, in mount order",
        false => "Is given, beside everything of this machine that you can see",
    });
    for Mount { target, source, access, why } in &plan.mounts {
        let access = match (access, plan.backend.isolates()) {
            (Access::ReadOnly, true) => "ro",
            // Nothing is read-only without a sandbox; a copy keeps its source.
            (Access::ReadOnly, false) => "copy",
            (Access::ReadWrite, _) => "rw",
        };
        let from = match source {
            MountSource::Host(path) if path != target => format!(" (from {})", out.path(path)),
            MountSource::InstanceDirectory(_) | MountSource::InstanceFile(_) => {
                " (in the instance)".to_owned()
            }
            MountSource::Workspace if plan.purpose == Purpose::Test && plan.workspace.source != *target => {
                format!(" (from {})", out.path(&plan.workspace.source))
            }
            MountSource::Workspace if plan.purpose == Purpose::Test => {
                " (a copy, gone after the run)".to_owned()
            }
            MountSource::Workspace => match plan.workspace.mode {
                WorkspaceMode::Direct => match &plan.workspace.unguarded {
                    None => " (changed in place)".to_owned(),
                    Some(lacks) => format!(
                        " (changed in place, without a guard over files that your machine executes; it lacks {})",
                        visible(lacks)
                    ),
                },
                WorkspaceMode::Overlay => " (changes are kept in an overlay)".to_owned(),
                WorkspaceMode::Copy => " (a copy)".to_owned(),
            },
            // The reason beside it says all.
            MountSource::System
            | MountSource::Image
            | MountSource::SyntheticEtc
            | MountSource::Proc
            | MountSource::Devices
            | MountSource::Temporary
            | MountSource::AgentProgram
            | MountSource::Host(_) => String::new(),
        };
        let text = match source {
            MountSource::Workspace => page.marked("workspace", &format!("{why}{from}")),
            MountSource::System
            | MountSource::Image
            | MountSource::SyntheticEtc
            | MountSource::Proc
            | MountSource::Devices
            | MountSource::Temporary
            | MountSource::AgentProgram
            | MountSource::Host(_)
            | MountSource::InstanceDirectory(_)
            | MountSource::InstanceFile(_) => format!("{why}{from}"),
        };
        out.row([access, &target.to_string(), &text]);
    }
    for file in &plan.files {
        out.row(["file", &file.target.to_string(), &file.why]);
    }
    for skill in &plan.skills {
        out.row(["skill", skill.name.as_str(), &skill.description]);
    }
    for server in &plan.mcp {
        let command: Vec<&str> =
            std::iter::once(&server.command).chain(&server.args).map(String::as_str).collect();
        out.row(["mcp", server.name.as_str(), &command.join(" ")]);
    }
    for plugin in &plan.plugins {
        let bundled = match plugin.mcp.as_slice() {
            [] => out.path(&plugin.source),
            servers => format!("{}, brings the MCP servers {}", out.path(&plugin.source), servers.join(", ")),
        };
        out.row(["plugin", plugin.name.as_str(), &bundled]);
    }
}

fn reaches(out: &mut Page<'_>, page: &PlanPage<'_>) {
    let plan = page.plan;
    out.section(match plan.backend.isolates() {
        true => "Reaches",
        false => "Reaches through the proxy, for programs that use it; any host without it",
    });
    if plan.egress.model {
        let elsewhere = page.upstream.map(|upstream| format!("to {upstream}")).unwrap_or_default();
        out.row(["model", "through the gateway", &elsewhere]);
    }
    for rule in &plan.egress.rules {
        let word = match rule.effect {
            RuleEffect::Allow => "allowed",
            RuleEffect::Deny => "never",
        };
        let word = page.marked(&format!("egress.{}", rule.id), word);
        out.row([&rule.id, &rule.host.to_string(), &word]);
    }
    for entry in &plan.ssh {
        out.row(["ssh", &entry.host, &format!("{}@{}:{}", entry.user, entry.hostname, entry.port)]);
    }
}

fn secrets(out: &mut Page<'_>, page: &PlanPage<'_>) {
    let plan = page.plan;
    out.section("Secrets");
    let order = plan.model_credentials.join(", then ");
    let found = page.credential_found.map_or("none is here now".to_owned(), |name| format!("now {name}"));
    out.row(["stays outside", "the model's credential", &format!("{order} ({found})")]);
    for Credential { host, header, value } in &plan.credentials {
        let secret = value.iter().find_map(|part| match part {
            CredentialPart::Secret(source) => Some(source.describe()),
            CredentialPart::Text(_) => None,
        });
        out.row(["stays outside", &format!("{header} for {host}"), &secret.unwrap_or_default()]);
    }
    for name in &plan.redact {
        out.row(["redacted", name.as_str(), "your variable; the agent does not get it from here"]);
    }
    for entry in &plan.ssh {
        let file = out.path(&entry.identity_file);
        out.row(["stays outside", &format!("the key for {}", entry.host), &file]);
    }
    for entry in page.entering {
        out.row(["ENTERS", &entry.name, &entry.describe()]);
    }
}

fn environment(out: &mut Page<'_>, env: &[EnvEntry]) {
    out.section("Environment, all of it");
    let (constant, given): (Vec<&EnvEntry>, Vec<&EnvEntry>) =
        env.iter().partition(|entry| matches!(entry.giver, EnvGiver::Harness(_)));
    for entry in given {
        out.row([entry.name.as_str(), &entry.describe()]);
    }
    let names: Vec<&str> = constant.iter().map(|entry| entry.name.as_str()).collect();
    out.row(["constants", &names.join(" ")]);
}

fn used_outside(out: &mut Page<'_>, plan: &Plan) {
    if plan.used_outside.is_empty() {
        return;
    }
    out.section("Runs or reads outside, files of the project by content");
    for UsedOutside { path, digest } in &plan.used_outside {
        let path = out.path(path);
        out.row([&path, &digest.to_string()]);
    }
}

fn keeps(out: &mut Page<'_>, page: &PlanPage<'_>) {
    let plan = page.plan;
    out.section("Keeps");
    let (mode, text) = match plan.home {
        HomeMode::Clean => ("clean", "nothing persists"),
        HomeMode::Project => ("project", "this project's conversations persist"),
        HomeMode::Shared => {
            ("shared", "your agent configuration is visible; this project's conversations persist")
        }
    };
    out.row([&format!("home = {mode}"), &page.marked("home", text)]);
    if plan.home != HomeMode::Clean {
        let (kept, root) = (out.path(&plan.instance.directory), out.path(&plan.instance.root));
        out.row([&format!("instance {}", plan.instance.key), &kept]);
        out.row(["of the project", &root]);
    }
}

fn limits(out: &mut Page<'_>, limits: &Limits, defaults: &[DefaultLimit]) {
    let Limits { memory, pids, cpu, time, cost_usd, tmpfs, unlimited } = limits;
    let rows = [
        ("memory", memory.map(|v| v.to_string())),
        ("processes", pids.map(|v| v.to_string())),
        ("processors", cpu.map(|v| v.to_string())),
        ("time", time.map(|v| v.to_string())),
        ("cost", cost_usd.map(|v| v.to_string())),
        ("tmpfs", tmpfs.map(|v| v.to_string())),
    ];
    out.section("Limits");
    for (name, value) in &rows {
        if let Some(value) = value {
            out.row([name, value]);
        }
    }
    for kind in unlimited {
        out.row([kind.key(), "none", "declared without a limit"]);
    }
    for DefaultLimit { limit, value, mechanism } in defaults {
        let how = match mechanism {
            Ok(mechanism) => format!("default; {mechanism}"),
            Err(why) => format!("default, NOT ENFORCED: {why}"),
        };
        out.row([limit.key(), value, &how]);
    }
}

fn start(out: &mut Page<'_>, page: &PlanPage<'_>) {
    out.section("Starts");
    out.row(["agent", &page.agent.to_string()]);
    let found = page.program_found.unwrap_or("not found on this machine");
    out.row(["program", found]);
    let directory = out.path(&page.plan.workspace.directory);
    out.row(["in", &directory]);
    // Quoted as in Rust, so that an argument with spaces or quotes is recognisable as one argument.
    let argv: Vec<String> = page.plan.argv.iter().map(|word| format!("{word:?}")).collect();
    out.row(["arguments", &argv.join(" ")]);
    if !page.arguments.is_empty() {
        let words: Vec<String> =
            page.arguments.iter().map(|word| format!("{:?}", word.to_string())).collect();
        out.row(["by hand", &words.join(" ")]);
    } else if let Some(prompt) = &page.plan.prompt {
        let first = prompt.text.lines().next().unwrap_or_default();
        let first: String = first.chars().take(100).collect();
        out.row(["prompt", &format!("{} characters: {first}", prompt.text.chars().count())]);
    }
}
