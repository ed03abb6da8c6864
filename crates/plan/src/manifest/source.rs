//! Where values come from, as a manifest writes it: variables of the environment and credentials.

use super::value::{Line, PathText, Text, nul};
use belljar_contract::EnvName;
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, Scalar, choices};
use serde_json::{Value, json};

/// Where a value comes from, as written: short as a string, or as a table with one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvText {
    /// `"text"` or `{ value = "text" }`.
    Literal(String),
    /// `"${NAME}"` or `{ env = "NAME" }`.
    Variable(EnvName),
    /// `"?message"` or `{ prompt = "message" }`.
    Prompt(String),
    /// `{ file = "path" }`.
    File(PathText),
    /// `{ command = ["program", "argument"] }`.
    Command(Vec<String>),
}

const ENV_FORMS: &str = "write `\"text\"`, `\"${NAME}\"`, `\"?question\"`, `{ file = \"path\" }` or `{ command = [\"program\"] }`";
const SOURCE_KEYS: [&str; 5] = ["value", "env", "prompt", "file", "command"];

impl EnvText {
    fn parse_short(text: &str) -> Result<Self, Fault> {
        nul(text, "a value of the environment")?;
        if let Some(message) = text.strip_prefix('?') {
            if message.trim().is_empty() {
                return Err(Fault::new("a `?` asks at the terminal; the question is missing")
                    .help("write the question behind it, or `{ value = \"?\" }` for the text itself"));
            }
            return Line::parse(message).map(|Line(message)| Self::Prompt(message)).map_err(|fault| {
                fault.help("a `?` asks a question of one line; for text that begins with `?` write `{ value = \"?…\" }`")
            });
        }
        if let Some(rest) = text.strip_prefix("${") {
            let Some(name) = rest.strip_suffix('}') else {
                return Err(Fault::new("expected `${NAME}` and nothing else")
                    .help("a value is either one variable of the host or text; for text that begins with `${` write `{ value = \"${…\" }`"));
            };
            return Ok(Self::Variable(variable(name)?));
        }
        Ok(Self::Literal(text.to_owned()))
    }

    fn decode_key(key: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match key {
            "value" => Text::decode(node, faults).map(|Text(text)| Self::Literal(text)),
            "env" => VariableName::decode(node, faults).map(|VariableName(name)| Self::Variable(name)),
            "prompt" => Line::decode(node, faults).map(|Line(message)| Self::Prompt(message)),
            "file" => PathText::decode(node, faults).map(Self::File),
            _ => command(node, faults).map(Self::Command),
        }
    }

    /// `keys` are the forms of the value, `extra` the other known keys, `forms` the help of a fault.
    fn decode_table(
        node: &Node,
        (keys, extra, forms): (&[&str], &[&str], &str),
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let Kind::Table(table) = &node.kind else {
            return faults.mismatch(node, "a string or a table");
        };
        let known = [keys, extra].concat();
        let mut found = None;
        let mut count = 0;
        for (key, value) in &table.0 {
            if extra.contains(&key.text.as_str()) {
                continue;
            }
            if !keys.contains(&key.text.as_str()) {
                faults.unknown_key(key, "a value", &known);
                count += 1;
                continue;
            }
            count += 1;
            found = Self::decode_key(&key.text, value, faults);
        }
        if count != 1 {
            let found = if count == 0 { "none".to_owned() } else { count.to_string() };
            let fault = Fault::new(format!("expected exactly one of {}, found {found}", choices(keys)));
            return faults.invalid(node, fault.help(forms));
        }
        found
    }

    fn source_schema() -> serde_json::Map<String, Value> {
        let text = |description: &str| json!({"type": "string", "description": description});
        let command = json!({
            "type": "array",
            "minItems": 1,
            "items": {"type": "string"},
            "description": "The output of this program, run on the host at launch; no shell sees it.",
        });
        let schemas = [
            text("The text itself."),
            text("The host's variable of this name."),
            text("Asked at the terminal, every time, without echo."),
            text("The content of this file, read at launch."),
            command,
        ];
        SOURCE_KEYS.iter().map(|key| (*key).to_owned()).zip(schemas).collect()
    }
}

/// Reports a value that is neither the short form nor a table.
fn neither<T>(node: &Node, forms: &str, faults: &mut Faults<'_>) -> Option<T> {
    let message = format!("expected a string or a table, found {}", node.describe());
    faults.wrong_type(node, Fault::new(message).help(forms))
}

struct VariableName(EnvName);

impl Scalar for VariableName {
    const EXPECTED: &'static str = "the name of a variable";
    fn parse(text: &str) -> Result<Self, Fault> {
        variable(text).map(Self)
    }
}

fn variable(name: &str) -> Result<EnvName, Fault> {
    EnvName::new(name).map_err(|error| Fault::new(error.to_string()))
}

fn command(node: &Node, faults: &mut Faults<'_>) -> Option<Vec<String>> {
    let Kind::Array(items) = &node.kind else {
        return faults.mismatch(node, "a list: the program and its arguments");
    };
    if items.is_empty() {
        return faults.invalid(node, Fault::new("expected a program and its arguments, found an empty list"));
    }
    let words: Vec<Option<Text>> = items.iter().map(|item| Text::decode(item, faults)).collect();
    words.into_iter().map(|word| word.map(|Text(text)| text)).collect()
}

impl Decode for EnvText {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(text) => {
                Self::parse_short(text).map_or_else(|fault| faults.invalid(node, fault), Some)
            }
            Kind::Table(_) => Self::decode_table(node, (&SOURCE_KEYS, &[], ENV_FORMS), faults),
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => neither(node, ENV_FORMS, faults),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": Self::source_schema(),
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]})
    }
}

/// The value of a credential: public text around exactly one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialText {
    /// In front of the secret.
    pub prefix: String,
    /// The secret; never a literal.
    pub secret: EnvText,
    pub suffix: String,
}

const CREDENTIAL_FORMS: &str = "write `\"Bearer ${NAME}\"`, or `{ prefix = \"Bearer \", file = \"path\" }` with `env`, `prompt`, `file` or `command`";

impl CredentialText {
    fn parse_short(text: &str) -> Result<Self, Fault> {
        if text.chars().any(char::is_control) {
            return Err(Fault::new("the value of a header cannot hold control characters"));
        }
        let plain = || {
            Fault::new("a credential that is written in the manifest is not a secret")
                .label("no `${NAME}` in here")
                .help(CREDENTIAL_FORMS)
        };
        let (prefix, rest) = text.split_once("${").ok_or_else(plain)?;
        let (name, suffix) =
            rest.split_once('}').ok_or_else(|| Fault::new("`${` without `}`").help(CREDENTIAL_FORMS))?;
        if suffix.contains("${") {
            return Err(Fault::new("a credential holds one secret, not several").help(CREDENTIAL_FORMS));
        }
        let secret = EnvText::Variable(variable(name)?);
        Ok(Self { prefix: prefix.to_owned(), secret, suffix: suffix.to_owned() })
    }

    fn decode_table(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Table(table) = &node.kind else { return None };
        if table.get("value").is_some() {
            let fault = Fault::new("a credential that is written in the manifest is not a secret");
            return faults.invalid(node, fault.help(CREDENTIAL_FORMS));
        }
        let prefix = match table.get("prefix") {
            None => String::new(),
            Some(prefix) if matches!(&prefix.kind, Kind::String(text) if !text.chars().any(char::is_control)) =>
            {
                let Kind::String(text) = &prefix.kind else { return None };
                text.clone()
            }
            Some(prefix) => return faults.mismatch(prefix, "a line of text"),
        };
        let forms = (&SOURCE_KEYS[1..], &["prefix"][..], CREDENTIAL_FORMS);
        let secret = EnvText::decode_table(node, forms, faults)?;
        Some(Self { prefix, secret, suffix: String::new() })
    }
}

impl Decode for CredentialText {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(text) => {
                Self::parse_short(text).map_or_else(|fault| faults.invalid(node, fault), Some)
            }
            Kind::Table(_) => Self::decode_table(node, faults),
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => neither(node, CREDENTIAL_FORMS, faults),
        }
    }

    fn schema() -> Value {
        let mut properties = EnvText::source_schema();
        properties.remove("value");
        properties.insert(
            "prefix".to_owned(),
            json!({"type": "string", "description": "Public text in front of the secret."}),
        );
        json!({"oneOf": [
            {"type": "string", "pattern": "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}"},
            {"type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1},
        ]})
    }
}
