//! The agent of a starting manifest: every key, grouped by the question it answers.

use super::page::Page;
use super::toml_text::{key, quote};
use super::{HarnessFacts, Shelf};
use belljar_contract::HostName;

pub(super) struct AgentSection<'a> {
    pub name: String,
    /// The families of the library, under the agent's key for each.
    pub shelves: [(&'static str, Shelf); 3],
    pub harness: &'a HarnessFacts<'a>,
    pub has_instructions: bool,
    pub markers: &'a [String],
    pub remote: Option<HostName>,
}

pub(super) fn write(page: &mut Page, parts: &AgentSection<'_>) {
    let AgentSection { name, shelves, harness, has_instructions, markers, remote } = parts;
    let table = format!("agents.{}", key(name));
    page.title(&format!("The agent `{name}`"));
    page.blank();
    page.line(&format!("[{table}]"));
    character(page, harness, *has_instructions);
    page.title("What it uses from the library");
    for (family, shelf) in shelves {
        page.explain(&format!("agents.{family}"));
        picks(page, family, shelf);
    }
    freedom(page);
    environment(page);
    reach(page, markers, remote.as_ref());
    limits(page);
    git(page);
    page.title("What it gets from this machine");
    mounts(page, &table);
    credentials(page, &table);
    ssh(page, &table, remote.as_ref());
}

fn character(page: &mut Page, harness: &HarnessFacts<'_>, has_instructions: bool) {
    page.key("harness", &quote(harness.name));
    page.key("agent", &quote(&format!("{}@{}", harness.name, harness.example_version)));
    page.key("model", &quote(harness.example_model));
    page.key("effort", "\"high\"");
    if has_instructions {
        page.say(&format!(
            "The project's own `{}` is read as usual; a role is added to it.",
            harness.instructions_file
        ));
    }
    page.key("role", "\"roles/coder.md\"");
    page.key("prompt", "\"Review the diff against main.\"");
}

fn picks(page: &mut Page, family: &str, shelf: &Shelf) {
    page.line(&format!("{family} = ["));
    for name in &shelf.live {
        page.line(&format!("    {},", quote(name)));
    }
    for name in &shelf.shown {
        page.line(&format!("    #{},", quote(name)));
    }
    page.line("]");
}

fn freedom(page: &mut Page) {
    page.title("What it asks you about");
    page.explain("agents.permissions.skip_prompts");
    page.line("permissions.skip_prompts = true");
    page.key("permissions.allow", "[\"Bash(git log *)\"]");
    page.key("permissions.deny", "[\"Bash(rm -rf *)\"]");
    page.title("Its tools");
    page.key("tools.allow", "[\"Read\", \"Grep\", \"Edit\", \"Bash\"]");
    page.key("tools.deny", "[\"WebSearch\"]");
    page.key("tools.provider", "[\"web_search\"]");
    page.title("Where it works");
    page.key("home", "\"project\"");
    page.key("workspace", "\"direct\"");
    page.key("backend", "\"bwrap\"");
    page.key("image", "\"debian:12\"");
}

fn environment(page: &mut Page) {
    page.title("Its environment");
    page.explain("agents.env");
    for (example, about) in [
        ("env.LOG_LEVEL = \"debug\"", "this text"),
        ("env.REGION = \"${REGION}\"", "from your own environment"),
        ("env.ZONE = { env = \"REGION\" }", "the same in the long form"),
        ("env.DB_PASSWORD = \"?Database password\"", "asked at the terminal, never stored"),
        ("env.LICENCE = { file = \"~/licence.txt\" }", "the content of a file on your machine"),
        (
            "env.REVISION = { command = [\"git\", \"rev-parse\", \"HEAD\"] }",
            "the output of a program on your machine",
        ),
        ("env.PATTERN = { value = \"?*.txt\" }", "this text, although it begins with `?`"),
    ] {
        page.example(&format!("{example}  # {about}"));
    }
    page.key("redact", "[\"NPM_TOKEN\"]");
}

fn reach(page: &mut Page, markers: &[String], remote: Option<&HostName>) {
    page.title("What it can reach");
    page.explain("agents.egress.allow");
    if !markers.is_empty() {
        let some: Vec<&String> = markers.iter().take(8).collect();
        page.say(&format!(
            "Found here: {}. Add the hosts that the build downloads from.",
            belljar_contract::decode::list(&some)
        ));
    }
    page.say("`belljar run --learn` lists the hosts that were refused.");
    page.line("egress.allow = [");
    page.line("    #\"api.example.org\",");
    page.line("    #\"*.example.net\",");
    page.line("    #\"db.internal:5432\",");
    page.line("    #{ host = \"api.example.com\", methods = [\"GET\"], paths = [\"/v1/**\"] },");
    if let Some(host) = remote {
        page.line(&format!("    #{},  # where the repository's remote is", quote(host.as_str())));
    }
    page.line("]");
    page.key("egress.deny", "[\"telemetry.example.net\"]");
}

fn limits(page: &mut Page) {
    page.title("Limits of a run");
    page.key("limits.memory", "\"4G\"");
    page.key("limits.pids", "512");
    page.key("limits.cpu", "1.5");
    page.key("limits.time", "\"30m\"");
    page.key("limits.cost_usd", "5.0");
    page.key("limits.tmpfs", "\"2G\"");
}

fn git(page: &mut Page) {
    page.title("Author of its commits");
    page.key("git.identity", "false");
    page.key("git.name", "\"Coder\"");
    page.key("git.email", "\"coder@example.org\"");
}

fn mounts(page: &mut Page, table: &str) {
    page.block(
        "agents.mounts",
        &format!("[[{table}.mounts]]"),
        &[("source", "\"~/datasets\""), ("target", "\"/data\""), ("mode", "\"ro\"")],
    );
}

fn credentials(page: &mut Page, table: &str) {
    let header = format!("[[{table}.credentials]]");
    page.block(
        "agents.credentials",
        &header,
        &[
            ("host", "\"api.example.org\""),
            ("header", "\"Authorization\""),
            ("value", "\"Bearer ${API_TOKEN}\""),
        ],
    );
    page.blank();
    page.say("Another one; a program on your machine prints the secret.");
    page.example(&header);
    page.example("host = \"api.example.net\"");
    page.example("value = { prefix = \"Bearer \", command = [\"pass\", \"show\", \"api-token\"] }");
}

fn ssh(page: &mut Page, table: &str, remote: Option<&HostName>) {
    let hostname = quote(remote.map_or("git.example.org", HostName::as_str));
    page.block(
        "agents.ssh",
        &format!("[[{table}.ssh]]"),
        &[
            ("host", "\"forge\""),
            ("hostname", &hostname),
            ("user", "\"git\""),
            ("port", "22"),
            ("identity_file", "\"~/.ssh/id_ed25519\""),
            ("known_host_key", "\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f put-the-key-of-your-host-here\""),
            ("sign_commits", "true"),
        ],
    );
}
