//! Parses what the gateway needs to know of a request: the model, the size, and everything that makes the provider act on
//! its own.
//!
//! Texts are skipped. A body with a repeated member is refused, because the provider may use the other occurrence.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::prices::{CacheWrites, Speed};

/// A token has at least this many bytes of text. If it has fewer, the response corrects the estimate early.
const BYTES_IN_A_TOKEN: u64 = 3;

/// The most tokens of an image, whatever its size.
const IMAGE_TOKENS: u64 = 5_000;

const MODEL_NAME_BYTES: usize = 128;

/// The parsed parts of a request to the model.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) struct MessagesView {
    pub model: String,
    pub max_tokens: Option<u64>,
    pub speed: Speed,
    pub tools: Vec<ToolView>,
    /// The tool that `tool_choice` requires.
    pub forced_tool: Option<String>,
    pub has_mcp_servers: bool,
    pub has_container: bool,
    /// An image or document that the provider would fetch from a URL.
    pub has_url_source: bool,
    /// An image or document that is stored at the provider, or has an unknown source.
    pub has_file_source: bool,
    /// Upper estimate of the input, from its size.
    pub input_tokens: u64,
    pub cache_writes: CacheWrites,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) struct ToolView {
    /// Absent for a tool that the agent defines itself.
    pub kind: Option<String>,
    pub name: Option<String>,
    /// Position in the body.
    pub at: Range<usize>,
}

/// Why a body is not forwarded; the agent sees the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum InvalidRequest {
    #[error("the request body is not a request to the model: {0}")]
    Form(String),
    #[error("model: the name must have at most {MODEL_NAME_BYTES} bytes and no control characters")]
    ModelName,
}

impl MessagesView {
    pub fn read(body: &[u8]) -> Result<Self, InvalidRequest> {
        let text = std::str::from_utf8(body).map_err(|error| InvalidRequest::Form(error.to_string()))?;
        let wire: WireRequest<'_> = serde_json::from_str(text).map_err(form)?;
        if wire.model.len() > MODEL_NAME_BYTES || wire.model.chars().any(char::is_control) {
            return Err(InvalidRequest::ModelName);
        }
        let start = text.as_ptr() as usize;
        let tools = wire.tools.unwrap_or_default().into_iter().map(|raw| {
            let from = raw.get().as_ptr() as usize - start;
            let tool: WireTool = serde_json::from_str(raw.get()).map_err(form)?;
            Ok(ToolView { kind: tool.kind, name: tool.name, at: from..from + raw.get().len() })
        });
        let sources = wire.messages.0.plus(wire.system.0);
        let image_tokens = sources.image_bytes.div_ceil(BYTES_IN_A_TOKEN);
        let image_tokens = image_tokens.min(sources.images.saturating_mul(IMAGE_TOKENS));
        let rest_bytes = (body.len() as u64).saturating_sub(sources.image_bytes);
        Ok(Self {
            tools: tools.collect::<Result<_, _>>()?,
            model: wire.model.into_owned(),
            max_tokens: wire.max_tokens,
            speed: match wire.speed.as_deref() {
                Some("fast") => Speed::Fast,
                Some(_) | None => Speed::Standard,
            },
            forced_tool: wire.tool_choice.and_then(|choice| choice.name),
            has_mcp_servers: wire.mcp_servers.is_some_and(|servers| servers.0 == Filled::Something),
            has_container: wire.container.is_some_and(|container| container.0 == Filled::Something),
            has_url_source: sources.urls > 0,
            has_file_source: sources.files > 0,
            input_tokens: rest_bytes.div_ceil(BYTES_IN_A_TOKEN).saturating_add(image_tokens),
            cache_writes: if text.contains("\"1h\"") {
                CacheWrites::PerhapsHour
            } else {
                CacheWrites::FiveMinutes
            },
        })
    }
}

fn form(error: serde_json::Error) -> InvalidRequest {
    InvalidRequest::Form(error.to_string())
}

#[derive(Deserialize)]
struct WireRequest<'d> {
    #[serde(borrow)]
    model: Cow<'d, str>,
    max_tokens: Option<u64>,
    speed: Option<String>,
    #[serde(borrow)]
    tools: Option<Vec<&'d RawValue>>,
    tool_choice: Option<WireChoice>,
    mcp_servers: Option<Member>,
    container: Option<Member>,
    messages: Content,
    #[serde(default)]
    system: Content,
}

#[derive(Deserialize)]
struct WireTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct WireChoice {
    name: Option<String>,
}

/// Images and documents in the content of a message.
#[derive(Debug, Clone, Copy, Default)]
struct Sources {
    urls: u64,
    files: u64,
    images: u64,
    image_bytes: u64,
}

impl Sources {
    fn plus(self, other: Self) -> Self {
        Self {
            urls: self.urls.saturating_add(other.urls),
            files: self.files.saturating_add(other.files),
            images: self.images.saturating_add(other.images),
            image_bytes: self.image_bytes.saturating_add(other.image_bytes),
        }
    }
}

/// Content: a text, a list of blocks, or messages, which have content themselves.
#[derive(Default)]
struct Content(Sources);

/// A block, or a message. Its parts are found by name: `source` of an image or document, `content` of a message or of a
/// tool's result.
#[derive(Deserialize)]
struct WireBlock {
    #[serde(rename = "type")]
    kind: Option<String>,
    file_id: Option<IgnoredAny>,
    source: Option<Source>,
    #[serde(default)]
    content: Content,
}

impl WireBlock {
    fn sources(self) -> Sources {
        let WireBlock { kind, file_id, source, content } = self;
        let mut sources = content.0;
        // Files that a tool of the provider wrote are named in its results. They are not read for that.
        let written = kind.is_some_and(|kind| kind.ends_with("_output"));
        sources.files += u64::from(file_id.is_some() && !written);
        source.map_or(sources, |Source(own)| sources.plus(own))
    }
}

impl<'d> Deserialize<'d> for Content {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'d> Visitor<'d> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of blocks")
    }

    fn visit_str<E>(self, _: &str) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'d>>(self, mut blocks: A) -> Result<Content, A::Error> {
        let mut sources = Sources::default();
        while let Some(block) = blocks.next_element::<WireBlock>()? {
            sources = sources.plus(block.sources());
        }
        Ok(Content(sources))
    }

    /// The result of a provider tool is a single block, or its error.
    fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<Content, A::Error> {
        Ok(Content(WireBlock::deserialize(MapAccessDeserializer::new(map))?.sources()))
    }
}

/// Source types whose content is in the request itself.
const INLINE_SOURCES: [&str; 3] = ["base64", "text", "content"];

/// The source of an image or document.
struct Source(Sources);

#[derive(Deserialize)]
struct WireSource<'d> {
    #[serde(rename = "type")]
    kind: Option<String>,
    media_type: Option<String>,
    #[serde(borrow)]
    data: Option<&'d RawValue>,
    #[serde(default)]
    content: Content,
}

impl<'d> Deserialize<'d> for Source {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

struct SourceVisitor;

impl<'d> Visitor<'d> for SourceVisitor {
    type Value = Source;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("where a picture or document comes from")
    }

    /// The source of a search result is a text, the URL of the result. Nothing is fetched for it.
    fn visit_str<E>(self, _: &str) -> Result<Source, E> {
        Ok(Source(Sources::default()))
    }

    /// Uses the same deserializer, whose depth is limited.
    fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<Source, A::Error> {
        let wire = WireSource::deserialize(MapAccessDeserializer::new(map))?;
        let mut sources = wire.content.0;
        match wire.kind.as_deref() {
            Some(kind) if INLINE_SOURCES.contains(&kind) => {}
            Some("url") => sources.urls += 1,
            // An unknown source counts as one that the provider fetches.
            Some(_) | None => sources.files += 1,
        }
        if let (Some(data), Some(media)) = (wire.data, wire.media_type)
            && media.starts_with("image/")
        {
            sources.images += 1;
            sources.image_bytes = sources.image_bytes.saturating_add(data.get().len() as u64);
        }
        Ok(Source(sources))
    }
}

/// Whether a member has a value.
struct Member(Filled);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    Nothing,
    Something,
}

impl<'d> Deserialize<'d> for Member {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let empty = ["null", "[]", "{}", "\"\""].contains(&raw.get());
        Ok(Self(if empty { Filled::Nothing } else { Filled::Something }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &str) -> MessagesView {
        MessagesView::read(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_request_is_read() {
        let body = json!({
            "model": "claude-opus-4-8", "max_tokens": 32000, "stream": true, "speed": "fast",
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": [{"type": "text", "text": "n"}]}],
            "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}],
            "tool_choice": {"type": "tool", "name": "Bash"},
            "mcp_servers": [], "container": null,
        })
        .to_string();
        let view = read(&body);
        assert_eq!(
            (view.model.as_str(), view.max_tokens, view.speed),
            ("claude-opus-4-8", Some(32000), Speed::Fast)
        );
        assert_eq!(view.forced_tool.as_deref(), Some("Bash"));
        assert_eq!(view.cache_writes, CacheWrites::PerhapsHour);
        assert_eq!((view.has_mcp_servers, view.has_container, view.has_url_source), (false, false, false));
        assert_eq!(view.input_tokens, (body.len() as u64).div_ceil(3));
        let kinds: Vec<_> = view.tools.iter().map(|tool| tool.kind.as_deref()).collect();
        assert_eq!(kinds, [None, Some("web_search_20250305")]);
        assert_eq!(&body[view.tools[1].at.clone()], r#"{"type":"web_search_20250305","name":"web_search"}"#);
    }

    #[test]
    fn urls_for_the_provider_are_found_at_every_depth() {
        let url = json!({"type": "image", "source": {"type": "url", "url": "https://x.test/?secret"}});
        let base64 =
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}});
        for (content, fetched) in [
            (json!([url]), true),
            (json!([{"type": "tool_result", "tool_use_id": "t", "content": [url]}]), true),
            (json!([{"type": "document", "source": {"type": "content", "content": [url]}}]), true),
            (json!([base64]), false),
            (json!("https://x.test"), false),
            // The arguments of a tool are not searched: nothing fetches them.
            (
                json!([{"type": "tool_use", "id": "t", "name": "n", "input": {"source": {"type": "url"}}}]),
                false,
            ),
            (json!([{"type": "search_result", "source": "https://x.test", "content": []}]), false),
            // The result of a provider tool may be a single block.
            (
                json!([{"type": "web_fetch_tool_result", "content": {"type": "web_fetch_result", "content": {"type": "document", "source": {"type": "url"}}}}]),
                true,
            ),
            (
                json!([{"type": "web_search_tool_result", "content": {"type": "error", "error_code": "x"}}]),
                false,
            ),
        ] {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string();
            assert_eq!(read(&body).has_url_source, fetched, "{body}");
        }
        let system = json!({"model": "m", "messages": [], "system": [url]}).to_string();
        assert!(read(&system).has_url_source);
    }

    #[test]
    fn files_at_the_provider_are_found_at_every_depth() {
        let file = json!({"type": "document", "source": {"type": "file", "file_id": "file_1"}});
        for (content, found) in [
            (json!([file]), true),
            (json!([{"type": "tool_result", "tool_use_id": "t", "content": [file]}]), true),
            (json!([{"type": "container_upload", "file_id": "file_1"}]), true),
            (json!([{"type": "image", "source": {"type": "brand_new", "at": "x"}}]), true),
            (json!([{"type": "document", "source": {"type": "text", "data": "x"}}]), false),
            (json!([{"type": "code_execution_output", "file_id": "file_1"}]), false),
            (json!([{"type": "tool_use", "id": "t", "name": "n", "input": {"file_id": "x"}}]), false),
        ] {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string();
            assert_eq!(read(&body).has_file_source, found, "{body}");
        }
    }

    #[test]
    fn an_image_is_not_reckoned_by_its_bytes() {
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a".repeat(3_000_000)}});
        let body = json!({"model": "m", "messages": [{"role": "user", "content": [image]}]}).to_string();
        assert!(read(&body).input_tokens < IMAGE_TOKENS + 200, "{}", read(&body).input_tokens);
    }

    #[test]
    fn ambiguous_bodies_are_refused() {
        for body in [
            r#"{"model":"m","messages":[],"tools":[],"tools":[{"type":"web_search_20250305"}]}"#,
            r#"{"model":"m","messages":[],"model":"n"}"#,
            r#"{"model":"m","messages":[],"tools":[{"type":"custom","type":"web_search_20250305"}]}"#,
            r#"{"model":"m","messages":[{"content":"x","content":[{"source":{"type":"url"}}]}]}"#,
            r#"{"model":"m","messages":[]} x"#,
            r#"{"model":"m"}"#,
            r#"{"messages":[]}"#,
            r#"{"model":"m","messages":[],"max_tokens":-1}"#,
            r#"{"model":"a\nb","messages":[]}"#,
            "[]",
            "",
        ] {
            assert!(MessagesView::read(body.as_bytes()).is_err(), "{body}");
        }
        let deep = r#"{"model":"m","messages":[{"content":[{"source":{"content":["#.to_owned()
            + &r#"{"source":{"content":["#.repeat(200_000);
        assert!(MessagesView::read(deep.as_bytes()).is_err());
        assert!(MessagesView::read(b"{\"model\":\"\xff\",\"messages\":[]}").is_err());
        // A name written with escapes is the same name.
        let escaped =
            "{\"model\":\"m\",\"messages\":[],\"to\\u006fls\":[{\"type\":\"web_search_20250305\"}]}";
        assert_eq!(read(escaped).tools.len(), 1);
    }

    #[test]
    fn fuzz_messages_view() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            if let Ok(view) = MessagesView::read(bytes) {
                assert!(view.tools.iter().all(|tool| bytes.get(tool.at.clone()).is_some()));
            }
        });
    }
}
