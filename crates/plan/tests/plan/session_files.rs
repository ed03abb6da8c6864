//! The JSON files that a session leads to: servers and marketplaces.

use crate::scenarios::{refusal, text};
use belljar_plan::{McpEnv, PluginReference, PluginSource, parse_marketplace, parse_mcp_config};

fn servers(json: &str, enabled: &[&str]) -> Result<Vec<String>, String> {
    let enabled: Vec<String> = enabled.iter().map(|name| (*name).to_owned()).collect();
    match parse_mcp_config(text("mcp.json", json), &enabled) {
        Ok(entries) => Ok(entries.iter().map(|entry| entry.name.to_string()).collect()),
        Err(error) => Err(refusal(&error)),
    }
}

const SERVERS: &str = r#"{"mcpServers": {
  "files": {"command": "files", "args": ["-v"], "env": {"A": "x", "B": "${HOST_B}"}},
  "web": {"type": "http", "url": "https://mcp.example.org"}
}}"#;

#[test]
fn servers_that_are_enabled() {
    assert_eq!(servers(SERVERS, &["files"]), Ok(vec!["files".to_owned()]));
    let entries = parse_mcp_config(text("mcp.json", SERVERS), &["files".to_owned()]).unwrap();
    assert_eq!(entries[0].args, ["-v"]);
    assert_eq!(entries[0].env[0].1, McpEnv::Literal("x".to_owned()));
    assert!(matches!(&entries[0].env[1].1, McpEnv::Variable(name) if name.as_str() == "HOST_B"));
    assert_eq!(servers(r#"{"mcpServers": {}}"#, &[]), Ok(Vec::new()));
}

#[test]
fn servers_that_are_not_there_or_not_started() {
    assert_eq!(
        servers(SERVERS, &["fils"]).unwrap_err(),
        "error[dangling-reference]: `mcp.json` has no server `fils`\n  help: did you mean `files`? it has `files` and `web`\n"
    );
    for enabled in [&["web"][..], &[]] {
        let error = servers(SERVERS, enabled).unwrap_err();
        assert!(
            error.starts_with("error[refused]: a server on the network is not started by belljar\n"),
            "{error}"
        );
    }
}

/// The agent would pass over each of these in silence.
#[test]
fn every_fault_of_a_server_is_reported() {
    for (json, message) in [
        (r#"{"mcpservers": {}}"#, "unknown key `mcpservers` in the file"),
        ("{}", "the file lacks `mcpServers`"),
        ("[]", "expected a table, found a list"),
        (r#"{"mcpServers": []}"#, "expected a table, found a list"),
        (r#"{"mcpServers": {"a": {}}}"#, "an MCP server lacks `command`"),
        (r#"{"mcpServers": {"a": {"command": ""}}}"#, "expected a program, found an empty string"),
        (r#"{"mcpServers": {"a": {"command": "x", "arg": []}}}"#, "unknown key `arg` in an MCP server"),
        (r#"{"mcpServers": {"a": {"command": "x", "args": "y"}}}"#, "expected a list, found a string"),
        (
            r#"{"mcpServers": {"a": {"command": "x", "args": ["${HOME}"]}}}"#,
            "`${…}` would be expanded by the agent",
        ),
        (r#"{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}"#, "expected a string, found a number"),
        (
            r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "${B:-c}"}}}}"#,
            "expected `${NAME}` and nothing else, or text without `${`",
        ),
        (
            r#"{"mcpServers": {"a": {"type": "sse", "command": "x"}}}"#,
            "a server on the network is not started by belljar",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "url": "u"}}}"#,
            "a server on the network is not started by belljar",
        ),
        (r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#, "the key `a` is there twice"),
        (r#"{"mcpServers": {"a b": {"command": "x"}}}"#, "' ' cannot be part of"),
        ("{\"mcpServers\": {},}", "not JSON: trailing comma"),
        ("", "not JSON: EOF while parsing a value"),
    ] {
        let error = servers(json, &[]).unwrap_err();
        assert!(error.split_once("]: ").unwrap().1.starts_with(message), "{json}\n{error}");
    }
}

/// People keep secrets in such files.
#[test]
fn no_value_of_a_server_is_printed() {
    let json = r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "hunter2"}}}}"#;
    let entries = parse_mcp_config(text("mcp.json", json), &[]).unwrap();
    assert!(!format!("{entries:?}").contains("hunter2"));
}

#[test]
fn a_marketplace_lists_directories() {
    let json = r#"{"name": "my-tools", "owner": {"name": "Ann"}, "version": 3, "plugins": [
        {"name": "formatter", "source": "./plugins/formatter/", "description": "x"},
        {"name": "self", "source": "./"},
        {"name": "bare", "source": "bare"},
        {"name": "far", "source": {"source": "github", "repo": "a/b"}}
    ]}"#;
    let market = parse_marketplace(text("marketplace.json", json)).unwrap();
    assert_eq!(market.name.as_str(), "my-tools");
    let sources: Vec<&PluginSource> = market.plugins.iter().map(|plugin| &plugin.source).collect();
    let directory = |path: &str| PluginSource::Directory(path.to_owned());
    assert_eq!(
        sources,
        [&directory("plugins/formatter"), &directory("."), &directory("bare"), &PluginSource::Elsewhere]
    );
    let rooted = r#"{"name": "m", "metadata": {"pluginRoot": "./plugins"}, "plugins": [
        {"name": "a", "source": "a"}, {"name": "b", "source": "./b"}]}"#;
    let market = parse_marketplace(text("marketplace.json", rooted)).unwrap();
    let sources: Vec<&PluginSource> = market.plugins.iter().map(|plugin| &plugin.source).collect();
    assert_eq!(sources, [&directory("plugins/a"), &directory("b")]);
}

#[test]
fn a_marketplace_leads_nowhere_else() {
    for source in
        ["/etc", "~/x", "..", "./a/../../b", "https://a.example.org/x.git", "git@h:a/b", "", "a\\u0000b"]
    {
        let json = format!(r#"{{"name": "m", "plugins": [{{"name": "a", "source": "{source}"}}]}}"#);
        assert!(parse_marketplace(text("marketplace.json", json.clone())).is_err(), "{json}");
        let json = format!(
            r#"{{"name": "m", "metadata": {{"pluginRoot": "{source}"}}, "plugins": [{{"name": "a", "source": "b"}}]}}"#
        );
        assert!(parse_marketplace(text("marketplace.json", json.clone())).is_err(), "{json}");
    }
    let all = r#"{"plugins": [{"source": 1}, {"name": "a b", "source": "./x"}, 3, {"name": "c"},
        {"name": "d", "source": "d"}, {"name": "d", "source": "e"}]}"#;
    let error = parse_marketplace(text("marketplace.json", all)).unwrap_err();
    assert_eq!(error.diagnostics.len(), 7, "{}", refusal(&error));
}

#[test]
fn plugin_references() {
    let reference: PluginReference = "formatter@my-tools".parse().unwrap();
    assert_eq!((reference.plugin.as_str(), reference.marketplace.as_str()), ("formatter", "my-tools"));
    assert_eq!(reference.to_string(), "formatter@my-tools");
    for bad in ["formatter", "@m", "a@", "a@b@c", "a/b@c", ""] {
        assert!(bad.parse::<PluginReference>().is_err(), "{bad}");
    }
}
