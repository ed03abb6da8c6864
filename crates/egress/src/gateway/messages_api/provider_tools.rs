//! Provider tools: what a request makes the provider do on its own, such as searching, fetching and executing. That is
//! egress that no proxy sees, so it is refused unless the manifest allows it by name.

use std::collections::BTreeSet;

use super::messages::{MessagesView, ToolView};

/// The known abilities of the provider: the name that allows them, and the types of the tools that use them.
///
/// A type is a name and a date (`web_search_20250305`). A tool without a type, or with `custom`, is the agent's own.
const ABILITIES: [(&str, &[&str]); 3] = [
    ("web_search", &["web_search"]),
    ("web_fetch", &["web_fetch"]),
    ("code_execution", &["code_execution", "bash_code_execution", "text_editor_code_execution"]),
];

/// Types of tools that the agent executes itself, or that only concern the request.
const OWN_TYPES: [&str; 6] =
    ["bash", "computer", "memory", "text_editor", "tool_search_tool_bm25", "tool_search_tool_regex"];

/// The member `mcp_servers`, and tools that belong to it.
const MCP_SERVERS: &str = "mcp_servers";
const CONTAINER: &str = "container";
/// Images and documents by URL.
const URL_SOURCES: &str = "url_sources";
/// Images and documents that are stored at the provider.
const FILE_SOURCES: &str = "file_sources";

/// The provider tools that a run may use. None, unless named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderTools {
    allowed: BTreeSet<String>,
}

/// The name is not an ability of the provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a tool of the provider; known are {}", ProviderTools::known().join(", "))]
pub struct UnknownProviderTool {
    pub name: String,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Screening {
    /// Forward it unchanged.
    Pass,
    /// Remove these tools and report their names.
    Strip { tools: Vec<usize>, names: Vec<String> },
    /// Refuse it because of this tool.
    Refuse { name: String },
}

impl ProviderTools {
    /// Allows provider tools by name.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn allowing<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, UnknownProviderTool> {
        let mut allowed = BTreeSet::new();
        for name in names {
            if !Self::known().contains(&name) {
                return Err(UnknownProviderTool { name: name.to_owned() });
            }
            allowed.insert(name.to_owned());
        }
        Ok(Self { allowed })
    }

    pub fn known() -> Vec<&'static str> {
        let tools = ABILITIES.iter().map(|(name, _)| *name);
        tools.chain([MCP_SERVERS, CONTAINER, URL_SOURCES, FILE_SOURCES]).collect()
    }

    /// Checks a request.
    ///
    /// A request is refused if it would make the provider act in a way that cannot be removed from it. It is also refused if
    /// all of its tools are forbidden: the agent sends such a request for a tool of its own, whose call then fails with our
    /// message. Otherwise the forbidden tools are removed, so that the conversation continues.
    pub(in crate::gateway) fn screen(&self, view: &MessagesView) -> Screening {
        let members = [
            (view.has_mcp_servers, MCP_SERVERS),
            (view.has_container, CONTAINER),
            (view.has_url_source, URL_SOURCES),
            (view.has_file_source, FILE_SOURCES),
        ];
        if let Some((_, name)) =
            members.iter().find(|(present, name)| *present && !self.allowed.contains(*name))
        {
            return Screening::Refuse { name: (*name).to_owned() };
        }
        let closed = |tool: &ToolView| ability(tool).filter(|name| !self.allowed.contains(name));
        let wanted: Vec<(usize, String)> =
            view.tools.iter().enumerate().filter_map(|(at, tool)| Some((at, closed(tool)?))).collect();
        let Some((_, first)) = wanted.first() else { return Screening::Pass };
        let forced = view
            .forced_tool
            .as_ref()
            .is_some_and(|forced| wanted.iter().any(|(at, _)| view.tools[*at].name.as_ref() == Some(forced)));
        if forced || wanted.len() == view.tools.len() {
            return Screening::Refuse { name: first.clone() };
        }
        let (tools, names) = wanted.into_iter().unzip();
        Screening::Strip { tools, names }
    }
}

/// The ability that a tool uses; `None` for the agent's own tools. An unknown type stands for itself and cannot be
/// allowed.
fn ability(tool: &ToolView) -> Option<String> {
    let kind = tool.kind.as_deref().filter(|kind| *kind != "custom")?;
    let undated = undated(kind);
    if OWN_TYPES.contains(&undated) && undated != kind {
        return None;
    }
    if kind == "mcp_toolset" {
        return Some(MCP_SERVERS.to_owned());
    }
    let known = ABILITIES.iter().find(|(_, types)| types.contains(&undated));
    Some(known.map_or_else(|| kind.chars().take(64).collect(), |(name, _)| (*name).to_owned()))
}

/// The type without its date.
fn undated(kind: &str) -> &str {
    match kind.rsplit_once('_') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => kind,
    }
}

/// The body without some of its tools; every other byte is unchanged.
pub(in crate::gateway) fn strip(body: &[u8], all: &[ToolView], tools: &[usize]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(body.len());
    let mut from = 0;
    for at in tools {
        let gone = &all[*at].at;
        // The comma before a removed element is removed too, or the one after it for the first element. Between elements
        // there is only white space.
        let first_kept = (0..*at).all(|before| tools.contains(&before));
        let (start, end) = if first_kept {
            (gone.start, all.get(at + 1).map_or(gone.end, |next| next.at.start))
        } else {
            (all[at - 1].at.end.max(from), gone.end)
        };
        kept.extend_from_slice(&body[from.min(start)..start]);
        from = end;
    }
    kept.extend_from_slice(&body[from..]);
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(body: &Value) -> MessagesView {
        MessagesView::read(body.to_string().as_bytes()).unwrap()
    }

    fn with(extra: Value) -> Value {
        let mut body = json!({"model": "m", "messages": []});
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    fn own() -> Value {
        json!({"name": "Bash", "input_schema": {}})
    }

    #[test]
    fn provider_tools_are_refused_unless_named() {
        let none = ProviderTools::default();
        let refused = |name: &str| Screening::Refuse { name: name.into() };
        for (body, expected) in [
            (with(json!({})), Screening::Pass),
            (
                with(json!({"tools": [own(), {"type": "custom", "name": "x"}, {"type": "bash_20250124"}]})),
                Screening::Pass,
            ),
            (
                with(json!({"tools": [{"type": "computer_20250124"}, {"type": "text_editor_20250728"}]})),
                Screening::Pass,
            ),
            (with(json!({"tools": [{"type": "web_search_20250305"}]})), refused("web_search")),
            (with(json!({"tools": [{"type": "web_fetch_20250910"}]})), refused("web_fetch")),
            (with(json!({"tools": [{"type": "code_execution_20250825"}]})), refused("code_execution")),
            (with(json!({"tools": [{"type": "bash_code_execution_20250825"}]})), refused("code_execution")),
            (
                with(json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]})),
                refused("mcp_servers"),
            ),
            (with(json!({"tools": [{"type": "brand_new_20990101"}]})), refused("brand_new_20990101")),
            (with(json!({"tools": [{"type": "bash"}]})), refused("bash")),
            (with(json!({"tools": [{"type": "WEB_SEARCH_20250305"}]})), refused("WEB_SEARCH_20250305")),
            (
                with(json!({"mcp_servers": [{"type": "url", "url": "https://x.test"}]})),
                refused("mcp_servers"),
            ),
            (with(json!({"container": {"skills": []}})), refused("container")),
            (with(json!({"tools": [own()], "container": "c"})), refused("container")),
            (
                with(json!({"tools": [own(), {"type": "web_search_20250305", "name": "web_search"}]})),
                Screening::Strip { tools: vec![1], names: vec!["web_search".into()] },
            ),
            (
                with(json!({"tools": [own(), {"type": "web_search_20250305", "name": "s"}],
                    "tool_choice": {"type": "tool", "name": "s"}})),
                refused("web_search"),
            ),
        ] {
            assert_eq!(none.screen(&view(&body)), expected, "{body}");
        }
    }

    #[test]
    fn only_named_provider_tools_pass() {
        let search = ProviderTools::allowing(["web_search"]).unwrap();
        let asks = |kind: &str| search.screen(&view(&with(json!({"tools": [{"type": kind}]}))));
        assert_eq!(asks("web_search_20250305"), Screening::Pass);
        assert_eq!(asks("web_search_20990101"), Screening::Pass);
        assert_eq!(asks("web_fetch_20250910"), Screening::Refuse { name: "web_fetch".into() });
        let error = ProviderTools::allowing(["web_serach"]).unwrap_err();
        assert!(error.to_string().contains("known are web_search,"), "{error}");
        let all = ProviderTools::allowing(ProviderTools::known()).unwrap();
        let everything = with(
            json!({"mcp_servers": [1], "container": "c", "tools": [{"type": "code_execution_20250825"}]}),
        );
        assert_eq!(all.screen(&view(&everything)), Screening::Pass);
    }

    #[test]
    fn stripping_tools_changes_nothing_else() {
        let tool = |number: usize| json!({"name": format!("t{number}"), "note": "a, b ] }"});
        for count in 1..=4_usize {
            for gone in 1..(1_usize << count) - 1 {
                let gone: Vec<usize> = (0..count).filter(|at| gone & (1 << at) != 0).collect();
                let list: Vec<Value> = (0..count).map(tool).collect();
                let kept: Vec<Value> = (0..count).filter(|at| !gone.contains(at)).map(tool).collect();
                for pretty in [false, true] {
                    let body = with(json!({"tools": list, "after": [1, "tools"]}));
                    let text = if pretty { format!("{body:#}") } else { body.to_string() };
                    let view = MessagesView::read(text.as_bytes()).unwrap();
                    let stripped = strip(text.as_bytes(), &view.tools, &gone);
                    let stripped: Value = serde_json::from_slice(&stripped)
                        .unwrap_or_else(|error| panic!("{gone:?} of {count}: {error}\n{text}"));
                    assert_eq!(stripped, with(json!({"tools": kept, "after": [1, "tools"]})));
                }
            }
        }
    }
}
