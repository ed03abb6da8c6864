//! Deciders that are programs: what they are asked and what they may reply, a JSON object a line. Starting, feeding
//! and ending such a program is not done here.

use super::label::{LabelError, LabelReading, choose};
use crate::question::{Answer, AnswerValue, By, Grant, Question};
use belljar_contract::{AfterDeny, DialogReply, ElicitationReply};
use serde_json::{Map, Value, json};

/// What is kept of the conversation so far, in characters from its end.
const CONTEXT: usize = 1000;

/// Bytes of a reply.
const LONGEST_REPLY: usize = 1024 * 1024;

/// A question on its way to a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalRequest<'a> {
    /// What the reply must name.
    pub id: &'a str,
    /// The run.
    pub run: &'a str,
    /// What was said so far; its end is passed on.
    pub transcript: &'a str,
    /// The question.
    pub question: &'a Question,
}

/// A reply of a program, understood.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalReply(pub Answer);

/// Why a reply is none. Each of these ends the conversation with the program: it cannot be known what it meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Too much.
    #[error("a reply has at most {LONGEST_REPLY} bytes, this one has {bytes}")]
    TooLong {
        /// How much.
        bytes: usize,
    },
    /// Not a JSON object.
    #[error("the reply is no JSON object: {why}")]
    Syntax {
        /// Why not.
        why: String,
    },
    /// An answer to something else, or to nothing.
    #[error("the reply must name the id {expected:?}, it names {found}")]
    WrongId {
        /// What was asked.
        expected: String,
        /// What was answered, as JSON.
        found: String,
    },
    /// A member too many.
    #[error("a reply to this question has no member {key:?}")]
    UnknownMember {
        /// Which.
        key: String,
    },
    /// A member too few, or of the wrong kind.
    #[error("{member:?}: {why}")]
    Member {
        /// Which.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// A label that is none.
    #[error("a choice does not fit")]
    Label(#[source] LabelError),
    /// No program is asked this.
    #[error("a question about {about} is not for a program")]
    NotForPrograms {
        /// What about.
        about: &'static str,
    },
}

impl ExternalRequest<'_> {
    /// The line for the program, without its end; nothing for what no program is asked.
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
        if let (Value::Object(line), Value::Object(asked)) = (&mut line, asked) {
            line.extend(asked);
            line.insert("reply_with".to_owned(), example);
        }
        Some(line.to_string())
    }

    /// Reads the reply to this request.
    ///
    /// # Errors
    /// When it is not exactly one.
    pub fn read_reply(&self, line: &str) -> Result<ExternalReply, ReplyError> {
        if line.len() > LONGEST_REPLY {
            return Err(ReplyError::TooLong { bytes: line.len() });
        }
        let value: Value =
            serde_json::from_str(line).map_err(|error| ReplyError::Syntax { why: error.to_string() })?;
        let Value::Object(mut members) = value else {
            return Err(ReplyError::Syntax { why: "it is something else".to_owned() });
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

/// Kind, members and an example of a reply.
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

/// Members of a reply; each is taken out as it is read, so that what remains was not asked for.
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
                    let wanted =
                        labels(answers.remove(&asked.question).unwrap_or_default()).ok_or_else(|| {
                            member(&asked.question, "expected a label, a position or a list of them")
                        })?;
                    chosen.push(choose(asked, &wanted, LabelReading::External).map_err(ReplyError::Label)?);
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
                let input = self.optional_object("updatedInput")?;
                let grant = match self.take("grant") {
                    Value::Null => None,
                    _ if !tool.starts_with("webfetch:") => return Err(member("grant", "this is no fetch")),
                    Value::String(word) if word == "once" => Some(Grant::Once),
                    Value::String(word) if word == "domain" => Some(Grant::Domain),
                    _ => return Err(member("grant", "expected `once` or `domain`")),
                };
                Ok((AnswerValue::Allow { input, permissions: Vec::new() }, grant))
            }
            "deny" => {
                let message = match self.take("message") {
                    Value::Null => "denied by the decider".to_owned(),
                    Value::String(text) if !text.trim().is_empty() => text,
                    _ => return Err(member("message", "expected a text that is not empty")),
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
        match self.take(key) {
            Value::String(text) => Ok(text),
            _ => Err(member(key, "expected a text")),
        }
    }

    fn optional_object(&mut self, key: &str) -> Result<Option<Map<String, Value>>, ReplyError> {
        match self.take(key) {
            Value::Null => Ok(None),
            Value::Object(object) => Ok(Some(object)),
            _ => Err(member(key, "expected an object")),
        }
    }
}

/// A label, a position, or a list of them.
fn labels(value: Value) -> Option<Vec<String>> {
    let one = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    };
    match value {
        Value::Array(items) => items.into_iter().map(one).collect(),
        single => one(single).map(|label| vec![label]),
    }
}

fn member(member: &str, why: &str) -> ReplyError {
    ReplyError::Member { member: member.chars().take(64).collect(), why: why.to_owned() }
}
