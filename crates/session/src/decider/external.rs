//! The protocol of external deciders: requests and replies, one JSON object a line. The caller starts the program, writes
//! to it and ends it.

use super::label::{LabelError, LabelReading, choose};
use crate::question::{Answer, AnswerValue, By, Chosen, Grant, Question};
use belljar_contract::{AfterDeny, AskedQuestion, DialogReply, ElicitationReply};
use serde_json::{Map, Value, json};

/// Characters of the transcript that are sent, counted from its end.
const CONTEXT: usize = 1000;

/// Maximum size of a reply, in bytes.
const LONGEST_REPLY: usize = 1024 * 1024;

/// A question for a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalRequest<'a> {
    /// The id that the reply must repeat.
    pub id: &'a str,
    pub run: &'a str,
    /// The name of the scenario, if there is one.
    pub scenario: Option<&'a str>,
    /// The conversation so far; only its end is sent.
    pub transcript: &'a str,
    pub question: &'a Question,
}

/// The answer in a program's reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalReply(pub Answer);

/// Why a reply is invalid. Any of these ends the program: what it meant cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    #[error("the reply has {bytes} bytes, more than the maximum of {LONGEST_REPLY}")]
    TooLong { bytes: usize },
    #[error("the reply is not a JSON object: {why}")]
    Syntax { why: String },
    #[error("the reply has the wrong id: expected {expected:?}, found {found}")]
    WrongId {
        expected: String,
        /// The id of the reply, as JSON; `null` if there is none.
        found: String,
    },
    #[error("unknown member {key:?} in the reply")]
    UnknownMember { key: String },
    /// A member is missing or has the wrong type.
    #[error("{member:?}: {why}")]
    Member { member: String, why: String },
    #[error("invalid choice in the reply")]
    Label(#[source] LabelError),
    #[error("a question about {about} cannot be answered by a program")]
    NotForPrograms { about: &'static str },
}

impl ExternalRequest<'_> {
    /// The request as a line without its newline; `None` for questions that programs are not asked.
    #[must_use]
    pub fn to_line(&self) -> Option<String> {
        let (kind, asked, example) = asked(self.question)?;
        let cut = self.transcript.char_indices().rev().nth(CONTEXT - 1).map_or(0, |(at, _)| at);
        let mut example = example;
        example["id"] = json!(self.id);
        let mut line = json!({
            "type": "decision_request", "id": self.id, "runId": self.run, "kind": kind,
            "context": self.transcript[cut..],
        });
        if let Some(scenario) = self.scenario {
            line["scenario"] = json!(scenario);
        }
        if let (Value::Object(line), Value::Object(asked)) = (&mut line, asked) {
            line.extend(asked);
            line.insert("reply_with".to_owned(), example);
        }
        Some(line.to_string())
    }

    /// Parses the reply to this request.
    ///
    /// # Errors
    /// If the reply is invalid, or has another request's id or an unknown member.
    pub fn read_reply(&self, line: &str) -> Result<ExternalReply, ReplyError> {
        if line.len() > LONGEST_REPLY {
            return Err(ReplyError::TooLong { bytes: line.len() });
        }
        let value: Value =
            serde_json::from_str(line).map_err(|error| ReplyError::Syntax { why: error.to_string() })?;
        let Value::Object(mut members) = value else {
            return Err(ReplyError::Syntax { why: "it is another type of value".to_owned() });
        };
        let id = members.remove("id").unwrap_or_default();
        if id != json!(self.id) {
            let found: String = id.to_string().chars().take(100).collect();
            return Err(ReplyError::WrongId { expected: self.id.to_owned(), found });
        }
        let mut reply = Members(members);
        let (value, grant) = reply.answer(self.question)?;
        if let Some(key) = reply.0.keys().next() {
            return Err(ReplyError::UnknownMember { key: key.chars().take(64).collect() });
        }
        let reason = "the program said so".to_owned();
        Ok(ExternalReply(Answer { value, by: By::External, reason, grant }))
    }
}

/// The kind of the question, its members in the request, and an example of a reply.
fn asked(question: &Question) -> Option<(&'static str, Value, Value)> {
    Some(match question {
        Question::Choice { questions, .. } => {
            let answers: Map<String, Value> = questions
                .iter()
                .map(|asked| (asked.question.clone(), json!(asked.options.first().map(|first| &first.label))))
                .collect();
            ("question", json!({"questions": questions}), json!({"answers": answers}))
        }
        Question::Permission(request) => (
            "permission",
            json!({"tool": request.tool, "input": request.input, "options": ["allow", "deny"]}),
            json!({"behavior": "allow"}),
        ),
        Question::Dialog(request) => (
            "dialog",
            json!({"dialogKind": request.kind, "payload": request.payload}),
            json!({"behavior": "cancelled"}),
        ),
        Question::Elicitation(request) => (
            "elicit",
            json!({"server": request.server, "prompt": request.message, "schema": request.schema}),
            json!({"action": "decline"}),
        ),
        Question::Unreadable { .. } | Question::Hook(_) | Question::Mcp(_) => return None,
    })
}

/// Members of a reply. Each is removed as it is read, so that those that remain are unknown.
struct Members(Map<String, Value>);

impl Members {
    fn answer(&mut self, question: &Question) -> Result<(AnswerValue, Option<Grant>), ReplyError> {
        let plain = |value| Ok((value, None));
        match question {
            Question::Choice { questions, .. } => {
                let Value::Object(mut answers) = self.take("answers") else {
                    return Err(member("answers", "expected an object from questions to choices"));
                };
                let mut chosen = Vec::new();
                for asked in questions {
                    chosen.push(chosen_of(asked, answers.remove(&asked.question).unwrap_or_default())?);
                }
                match answers.keys().next() {
                    Some(key) => Err(member(key, "this was not asked")),
                    None => plain(AnswerValue::Choices(chosen)),
                }
            }
            Question::Permission(request) => self.permission(&request.tool),
            Question::Dialog(_) => match self.text("behavior")?.as_str() {
                "ok" => plain(AnswerValue::Dialog(DialogReply::Completed(self.take("choice")))),
                "cancelled" => plain(AnswerValue::Dialog(DialogReply::Cancelled)),
                _ => Err(member("behavior", "expected `ok` or `cancelled`")),
            },
            Question::Elicitation(_) => {
                let reply = match self.text("action")?.as_str() {
                    "accept" => {
                        ElicitationReply::Accept(self.optional_object("content")?.unwrap_or_default())
                    }
                    "decline" => ElicitationReply::Decline,
                    "cancel" => ElicitationReply::Cancel,
                    _ => return Err(member("action", "expected `accept`, `decline` or `cancel`")),
                };
                plain(AnswerValue::Elicitation(reply))
            }
            Question::Unreadable { .. } | Question::Hook(_) | Question::Mcp(_) => {
                Err(ReplyError::NotForPrograms { about: question.about() })
            }
        }
    }

    fn permission(&mut self, tool: &str) -> Result<(AnswerValue, Option<Grant>), ReplyError> {
        match self.text("behavior")?.as_str() {
            "allow" => {
                let grant = self.take("grant");
                if !grant.is_null() && !tool.starts_with("webfetch:") {
                    return Err(member("grant", "only a `WebFetch` call can have a grant"));
                }
                let grant = match grant.as_str() {
                    None if grant.is_null() => None,
                    Some("once") => Some(Grant::Once),
                    Some("domain") => Some(Grant::Domain),
                    Some(_) | None => return Err(member("grant", "expected `once` or `domain`")),
                };
                Ok((AnswerValue::Allow { input: None, permissions: Vec::new() }, grant))
            }
            "deny" => {
                let message = match self.take("message") {
                    Value::Null => "denied by the decider".to_owned(),
                    Value::String(text) if !text.trim().is_empty() => text,
                    Value::String(_)
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => return Err(member("message", "expected a text that is not empty")),
                };
                Ok((AnswerValue::Deny { message, then: AfterDeny::GoOn }, None))
            }
            _ => Err(member("behavior", "expected `allow` or `deny`")),
        }
    }

    fn take(&mut self, key: &str) -> Value {
        self.0.remove(key).unwrap_or_default()
    }

    fn text(&mut self, key: &str) -> Result<String, ReplyError> {
        let Value::String(text) = self.take(key) else { return Err(member(key, "expected a text")) };
        Ok(text)
    }

    fn optional_object(&mut self, key: &str) -> Result<Option<Map<String, Value>>, ReplyError> {
        match self.take(key) {
            Value::Null => Ok(None),
            Value::Object(object) => Ok(Some(object)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(member(key, "expected an object"))
            }
        }
    }
}

/// The answer to one question: labels, or an object with a text of one's own.
fn chosen_of(asked: &AskedQuestion, value: Value) -> Result<Chosen, ReplyError> {
    let fault = |why| member(&asked.question, why);
    if let Value::Object(mut own) = value {
        let text = own.remove("text").and_then(|text| text.as_str().map(str::to_owned));
        return match text.filter(|text| own.is_empty() && !text.trim().is_empty()) {
            Some(text) => Ok(Chosen::Text(text)),
            None => Err(fault("expected `text` alone, and not empty")),
        };
    }
    let wanted = labels(value)
        .ok_or_else(|| fault("expected a label, a position, a list of them, or an object with `text`"))?;
    choose(asked, &wanted, LabelReading::External).map_err(ReplyError::Label)
}

/// A label, a position, or a list of them.
fn labels(value: Value) -> Option<Vec<String>> {
    let one = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if let Value::Array(items) = value {
        return items.into_iter().map(one).collect();
    }
    one(value).map(|label| vec![label])
}

fn member(member: &str, why: &str) -> ReplyError {
    ReplyError::Member { member: member.chars().take(64).collect(), why: why.to_owned() }
}
