//! Values that enter a sandbox as secrets, by name. A plan lists them and records redact them.

use crate::{EnvEntry, EnvGiver, EnvSource, Secret, Unsearchable};
use serde::Serialize;

/// Variables of the host that describe the machine, the user's name or the terminal, with the reason why their values
/// are not secrets. Redacting them would only make records unreadable. `LC_` stands for every name that begins so.
const PLAIN_VARIABLES: [(&str, &str); 14] = [
    ("COLORTERM", "names an ability of the terminal"),
    ("EDITOR", "names a program"),
    ("HOME", "begins every path below it"),
    ("LANG", "names a locale"),
    ("LANGUAGE", "names languages"),
    ("LC_", "names a locale"),
    ("LOGNAME", "is the user's name, which paths contain"),
    ("PAGER", "names a program"),
    ("PATH", "lists directories"),
    ("PWD", "is the working directory"),
    ("SHELL", "names a program"),
    ("TERM", "names a terminal"),
    ("TZ", "names a time zone"),
    ("USER", "is the user's name, which paths contain"),
];

/// A word or number shorter than this is too common to search for, unless its name marks it as a secret.
pub const COMMON_BELOW: usize = 8;

/// The largest user file that is searched for values when it enters a sandbox.
pub const SHARED_FILE_MAX: u64 = 64 << 20;

/// A value that enters the sandbox as a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entering {
    /// Its name inside, or the file and member that hold it.
    pub name: String,
    /// A short description of where it comes from.
    pub source: String,
    /// Why records cannot redact it, if that is known before the launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_redacted: Option<Unsearchable>,
}

impl Entering {
    /// One line for a list: the source, and a warning where the value cannot be redacted.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.not_redacted {
            None => self.source.clone(),
            Some(why) => format!("{}; not redacted: {}", self.source, why.describe()),
        }
    }
}

impl EnvEntry {
    /// A short description of where the value comes from and who gives it; never the value, unless it is a public
    /// constant.
    #[must_use]
    pub fn describe(&self) -> String {
        match (&self.giver, &self.source) {
            (EnvGiver::ByHand, EnvSource::Literal(_)) => "given by hand".to_owned(),
            (EnvGiver::ByHand, source) => format!("{}, by hand", source.describe()),
            (EnvGiver::McpServer(server), source) => {
                format!("{}, for the MCP server {server}", source.describe())
            }
            (EnvGiver::Agent | EnvGiver::Harness(_), source) => source.describe(),
        }
    }

    /// Whether the value enters the sandbox as a secret: it did not come from the manifest's own text, or its name
    /// looks like that of a secret. The audit before a launch lists it, and every record redacts it.
    #[must_use]
    pub fn enters_as_secret(&self) -> bool {
        match &self.source {
            // Values that are made for the run are useless outside it.
            EnvSource::Constant(_) | EnvSource::Run(_) => false,
            EnvSource::Prompt(_) | EnvSource::File(_) | EnvSource::Command(_) => true,
            EnvSource::Literal(_) => self.name.looks_secret(),
            EnvSource::Variable(host) => {
                self.name.looks_secret() || host.looks_secret() || !is_plain(host.as_str())
            }
        }
    }

    /// Why a record cannot redact this value of the entry.
    #[must_use]
    pub fn not_redacted(&self, value: &Secret) -> Option<Unsearchable> {
        let named = match &self.source {
            EnvSource::Variable(host) => self.name.looks_secret() || host.looks_secret(),
            // Files, commands and hidden prompts are used only for secrets.
            EnvSource::Prompt(_) | EnvSource::File(_) | EnvSource::Command(_) => true,
            EnvSource::Literal(_) | EnvSource::Constant(_) | EnvSource::Run(_) => true,
        };
        not_redacted(value, named)
    }
}

/// Why a record cannot redact a value. `named`: its name or its source marks it as a secret.
#[must_use]
pub fn not_redacted(value: &Secret, named: bool) -> Option<Unsearchable> {
    let bytes = value.expose();
    Unsearchable::by_length(bytes.len()).or_else(|| {
        let word = bytes.iter().all(u8::is_ascii_alphabetic);
        let number = bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
        (!named && bytes.len() < COMMON_BELOW && (word || number)).then_some(Unsearchable::Common)
    })
}

/// Whether a variable of the host describes the machine or the terminal, so that its value is not a secret.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    PLAIN_VARIABLES.iter().any(|(plain, _why)| match plain.ends_with('_') {
        true => name.starts_with(plain),
        false => name == *plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnvName;

    fn entry(name: &str, source: EnvSource) -> EnvEntry {
        EnvEntry { name: EnvName::new(name).unwrap(), source, giver: EnvGiver::Agent }
    }

    fn variable(inside: &str, host: &str) -> EnvEntry {
        entry(inside, EnvSource::Variable(EnvName::new(host).unwrap()))
    }

    #[test]
    fn a_variable_of_the_host_is_a_secret_whatever_its_name_inside() {
        for (inside, host) in
            [("GH", "GITHUB_TOKEN"), ("DATABASE_URL", "DATABASE_URL"), ("K", "X"), ("TOKEN", "LANG")]
                .into_iter()
                .chain([("X", "LC_API_TOKEN"), ("X", "LC_KEY")])
        {
            assert!(variable(inside, host).enters_as_secret(), "{inside} from {host}");
        }
        for host in ["LANG", "LC_ALL", "TERM", "HOME"] {
            assert!(!variable("ANY", host).enters_as_secret(), "{host}");
        }
        assert!(variable("ANY", "HOME_ASSISTANT").enters_as_secret());
        assert!(!entry("MODE", EnvSource::Literal("text".into())).enters_as_secret());
    }

    #[test]
    fn a_short_word_is_searched_for_only_where_its_name_says_that_it_is_a_secret() {
        let value = |text: &str| Secret::new(text);
        let plain = variable("REGION", "AWS_REGION");
        assert_eq!(plain.not_redacted(&value("true")), Some(Unsearchable::Short));
        assert_eq!(plain.not_redacted(&value("false")), Some(Unsearchable::Common));
        assert_eq!(plain.not_redacted(&value("13000")), Some(Unsearchable::Common));
        assert_eq!(plain.not_redacted(&value("eu-central-1")), None);
        assert_eq!(plain.not_redacted(&value("hunter2")), None);
        assert_eq!(variable("A", "MY_TOKEN").not_redacted(&value("monkey")), None);
        assert_eq!(entry("A", EnvSource::Prompt("?".into())).not_redacted(&value("monkey")), None);
    }
}
