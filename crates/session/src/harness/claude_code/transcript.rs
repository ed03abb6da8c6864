//! The agent's own transcript of a conversation: one JSON object a line.
//!
//! Seen in versions 2.1.197 and 2.1.325: `type` is `user` or `assistant` for a message, which has `message.content`, a
//! text or a list of blocks; other types are notes of the agent for itself. A sub-agent writes a file of its own, whose
//! lines have `isSidechain` and its `agentId`. The answers to a question are in `toolUseResult.answers`, by the text of
//! the question.

use belljar_contract::{
    AskedOption, AskedQuestion, CallId, MessageId, Observation, RequestId, Speaker, TranscriptEntry, UtcTime,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const ASKS: &str = "AskUserQuestion";

pub(super) fn entries(text: &str) -> Vec<TranscriptEntry> {
    let mut reading = Reading::default();
    for line in text.lines() {
        if let Ok(Value::Object(line)) = serde_json::from_str(line) {
            reading.line(&line);
        }
    }
    reading.out
}

#[derive(Default)]
struct Reading {
    out: Vec<TranscriptEntry>,
    /// The tools of the calls so far, and the questions that they asked.
    calls: BTreeMap<String, (String, Vec<AskedQuestion>)>,
}

impl Reading {
    fn line(&mut self, line: &Map<String, Value>) {
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        let is_set = |name: &str| line.get(name).and_then(Value::as_bool) == Some(true);
        let at_ms = text("timestamp").and_then(UtcTime::parse_unix_ms);
        let by = match (is_set("isSidechain"), text("agentId").and_then(|id| CallId::new(id).ok())) {
            (true, Some(call)) => Speaker::SubAgent { call },
            (true, None) | (false, _) => Speaker::Main,
        };
        let content = line.get("message").and_then(|message| message.get("content"));
        let (Some(kind), Some(content)) = (text("type"), content) else { return };
        let whole = content.as_str().map(|text| serde_json::json!({"type": "text", "text": text}));
        let blocks = whole.iter().chain(content.as_array().into_iter().flatten());
        for block in blocks.filter_map(Value::as_object) {
            let member = |name: &str| block.get(name).and_then(Value::as_str).map(str::to_owned);
            let found = match (kind, member("type").as_deref()) {
                // Texts that the agent adds in the user's place are not the user's.
                ("user", Some("text")) if !is_set("isMeta") => {
                    let id = text("uuid").and_then(|id| MessageId::new(id).ok());
                    id.zip(member("text")).map(|(message, text)| Observation::MessageSent { message, text })
                }
                ("assistant", Some("text")) => {
                    member("text").map(|text| Observation::Said { by: by.clone(), text })
                }
                ("assistant", Some("thinking")) => {
                    member("thinking").map(|text| Observation::Thought { by: by.clone(), text })
                }
                ("assistant", Some("tool_use")) => {
                    self.call(block, &by, at_ms);
                    None
                }
                ("user", Some("tool_result")) => {
                    self.result(block, line.get("toolUseResult"), &by, at_ms);
                    None
                }
                _ => None,
            };
            self.out.extend(found.map(|what| TranscriptEntry { at_ms, what }));
        }
    }

    fn call(&mut self, block: &Map<String, Value>, by: &Speaker, at_ms: Option<u64>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str);
        let (Some(id), Some(tool)) = (text("id"), text("name")) else { return };
        let (Ok(call), Ok(request)) = (CallId::new(id), RequestId::new(id)) else { return };
        let input = block.get("input").and_then(Value::as_object).cloned().unwrap_or_default();
        let questions = if tool == ASKS { questions(&input) } else { Vec::new() };
        self.calls.insert(id.to_owned(), (tool.to_owned(), questions.clone()));
        let (tool, by) = (tool.to_owned(), by.clone());
        let called =
            Observation::ToolCalled { by: by.clone(), call: call.clone(), tool: tool.clone(), input };
        self.out.push(TranscriptEntry { at_ms, what: called });
        if !questions.is_empty() {
            let about = "can_use_tool".to_owned();
            let (tool, call) = (Some(tool), Some(call));
            let what = Observation::Asked { request, about, tool, call, by, questions };
            self.out.push(TranscriptEntry { at_ms, what });
        }
    }

    fn result(
        &mut self,
        block: &Map<String, Value>,
        details: Option<&Value>,
        by: &Speaker,
        at_ms: Option<u64>,
    ) {
        let Some(id) = block.get("tool_use_id").and_then(Value::as_str) else { return };
        let (Ok(call), Ok(request)) = (CallId::new(id), RequestId::new(id)) else { return };
        let (tool, questions) = self.calls.get(id).cloned().unzip();
        let given = details.and_then(|details| details.get("answers")).and_then(Value::as_object);
        if let (Some(questions), Some(given)) = (questions.filter(|list| !list.is_empty()), given) {
            let answer = |asked: &AskedQuestion| {
                given.get(&asked.question).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let what = Observation::Answered {
                request,
                answer: "answered".to_owned(),
                chosen: questions.iter().map(answer).collect(),
                by: "person".to_owned(),
                reason: "answered in the agent's own interface".to_owned(),
            };
            self.out.push(TranscriptEntry { at_ms, what });
        }
        let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
        let text = block.get("content").map(result_text).unwrap_or_default();
        let what = Observation::ToolReturned { by: by.clone(), call, tool, text, is_error };
        self.out.push(TranscriptEntry { at_ms, what });
    }
}

fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn questions(input: &Map<String, Value>) -> Vec<AskedQuestion> {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let option = |value: &Value| {
        let description = text(value, "description").unwrap_or_default();
        Some(AskedOption { label: text(value, "label")?, description })
    };
    let question = |value: &Value| {
        let options = value.get("options").and_then(Value::as_array).into_iter().flatten();
        Some(AskedQuestion {
            question: text(value, "question")?,
            header: text(value, "header").unwrap_or_default(),
            options: options.filter_map(option).collect(),
            multi_select: value.get("multiSelect").and_then(Value::as_bool) == Some(true),
        })
    };
    input.get("questions").and_then(Value::as_array).into_iter().flatten().filter_map(question).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_calls_and_results_come_in_their_order() {
        let lines = [
            json!({"type": "queue-operation", "content": "write it", "timestamp": "2026-11-18T09:30:07.500Z"}),
            json!({"type": "user", "uuid": "u1", "timestamp": "2026-11-18T09:30:07.504Z",
                "message": {"role": "user", "content": "write it"}}),
            json!({"type": "user", "uuid": "u2", "isMeta": true, "message": {"content": "of the agent"}}),
            json!({"type": "assistant", "timestamp": "2026-11-18T09:30:07.600Z", "message": {"content": [
                {"type": "text", "text": "I write."},
                {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]}}),
            json!({"type": "user", "message": {"content": [
                {"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": [{"text": "no"}]}]}}),
            json!({"type": "assistant", "isSidechain": true, "agentId": "a7",
                "message": {"content": [{"type": "text", "text": "below"}]}}),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\nnot JSON\n")).collect();
        let found = entries(&text);
        let call = CallId::new("c1").unwrap();
        let input = json!({"command": "ls"}).as_object().cloned().unwrap();
        let tool = "Bash".to_owned();
        let by = Speaker::SubAgent { call: CallId::new("a7").unwrap() };
        let expected = [
            Observation::MessageSent { message: MessageId::new("u1").unwrap(), text: "write it".to_owned() },
            Observation::Said { by: Speaker::Main, text: "I write.".to_owned() },
            Observation::ToolCalled { by: Speaker::Main, call: call.clone(), tool: tool.clone(), input },
            Observation::ToolReturned {
                by: Speaker::Main,
                call,
                tool: Some(tool),
                text: "no".to_owned(),
                is_error: true,
            },
            Observation::Said { by, text: "below".to_owned() },
        ];
        assert_eq!(found.iter().map(|entry| &entry.what).collect::<Vec<_>>(), expected.each_ref());
        assert_eq!(found[0].at_ms, Some(1_794_994_207_504));
    }

    #[test]
    fn a_question_has_its_answer() {
        let asked = json!({"questions": [{"question": "Which?", "options": [{"label": "A"}]}]});
        let lines = [
            json!({"type": "assistant", "message": {"content": [
                {"type": "tool_use", "id": "c1", "name": ASKS, "input": asked}]}}),
            json!({"type": "user", "toolUseResult": {"answers": {"Which?": "A"}}, "message": {"content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "The user chose A"}]}}),
        ];
        let found = entries(&lines.map(|line| format!("{line}\n")).concat());
        assert_eq!(found.len(), 4, "{found:#?}");
        let Observation::Asked { questions, .. } = &found[1].what else { panic!("{found:#?}") };
        assert_eq!(questions[0].options[0].label, "A");
        let Observation::Answered { chosen, .. } = &found[2].what else { panic!("{found:#?}") };
        assert_eq!(chosen, &["A"]);
    }

    #[test]
    fn what_is_not_a_transcript_has_no_entries() {
        for text in ["", "[]", "{}", r#"{"type": "user"}"#, r#"{"type": 1, "message": {"content": [7]}}"#] {
            assert_eq!(entries(text), [], "{text}");
        }
    }
}
