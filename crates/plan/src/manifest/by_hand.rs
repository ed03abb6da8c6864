//! What the command line gives an agent for one run: a layer above the user's file and the project's.

use super::layers::{Manifest, ManifestLayer};
use super::{AllowText, EgressSpec, EnvText, MountSpec, PathText, Word};
use belljar_contract::decode::{At, Fault, Named, Place, Scalar};
use belljar_contract::{
    AbsPath, Access, AgentName, EnvName, HomeMode, HostPattern, SourceFile, WorkspaceMode, visible,
};
use std::collections::BTreeSet;

/// The name of the source that diagnostics point into.
const SOURCE: &str = "command line";
const ALLOW: &str = "--allow";
const ENV: &str = "--env";
const MOUNT: &str = "--mount";
const WORKSPACE: &str = "--workspace";
const HOME: &str = "--home";
const MODEL: &str = "--model";
const OPTIONS: [&str; 6] = [ALLOW, ENV, MOUNT, WORKSPACE, HOME, MODEL];

/// What is given by hand. It is the user's own word: no agreement is needed for it, and none comes from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByHand {
    /// Added to the hosts that the manifest allows.
    pub allow: Vec<HostPattern>,
    /// Each replaces a variable of the same name.
    pub env: Vec<GivenVariable>,
    /// Added to the mounts of the manifest.
    pub mounts: Vec<GivenMount>,
    pub workspace: Option<WorkspaceMode>,
    pub home: Option<HomeMode>,
    pub model: Option<GivenWord>,
}

/// A variable that is given by hand.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenVariable {
    pub name: EnvName,
    /// The value; `None` takes it from the calling shell.
    value: Option<String>,
}

impl std::fmt::Debug for GivenVariable {
    /// Leaves the value out: it may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GivenVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl GivenVariable {
    /// Parses `NAME` or `NAME=VALUE`.
    ///
    /// # Errors
    /// If the name is not that of a variable. The message does not contain the value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let name = EnvName::new(name).map_err(|error| error.to_string())?;
        Ok(Self { name, value })
    }

    fn source(&self) -> EnvText {
        match &self.value {
            Some(value) => EnvText::Literal(value.clone()),
            None => EnvText::Variable(self.name.clone()),
        }
    }
}

/// A word for the agent's command line that is given by hand: not empty, no control character, not a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenWord(Word);

impl GivenWord {
    /// Parses a word.
    ///
    /// # Errors
    /// If the agent would take it for something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        Word::parse(text).map(Self).map_err(said)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.0
    }
}

/// A mount that is given by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenMount {
    source: PathText,
    target: Option<AbsPath>,
    access: Option<Access>,
    /// As it was typed, for messages.
    text: String,
}

impl GivenMount {
    /// Parses `SOURCE[:TARGET][:ro|rw]`. In a path, `\:` is a colon and `\\` a backslash.
    ///
    /// # Errors
    /// If a part is missing, or there is one too many.
    pub fn parse(text: &str) -> Result<Self, String> {
        const COLON: &str = r"; a colon in a path is written `\:`";
        let mut parts = parts(text);
        let access = match parts.last().map(String::as_str) {
            Some("ro") if parts.len() > 1 => Some(Access::ReadOnly),
            Some("rw") if parts.len() > 1 => Some(Access::ReadWrite),
            Some(_) | None => None,
        };
        if access.is_some() {
            parts.pop();
        }
        let mut parts = parts.into_iter();
        let (source, target, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if let Some(more) = more {
            return Err(format!("expected `ro` or `rw` at the end, found `{}`{COLON}", visible(&more)));
        }
        let target = target.map(|target| {
            let problem = format!("the target `{}` is not an absolute path{COLON}", visible(&target));
            AbsPath::new(&target).map_err(|_relative| problem)
        });
        let source = PathText::parse(&source).map_err(|fault| format!("the source: {}", said(fault)))?;
        Ok(Self { source, target: target.transpose()?, access, text: text.to_owned() })
    }
}

/// The parts between colons.
fn parts(text: &str) -> Vec<String> {
    let (mut out, mut part) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            ':' => out.push(std::mem::take(&mut part)),
            '\\' => part.push(rest.next_if(|next| matches!(next, ':' | '\\')).unwrap_or(letter)),
            other => part.push(other),
        }
    }
    out.push(part);
    out
}

fn said(fault: Fault) -> String {
    match fault.help {
        Some(help) => format!("{}; {help}", fault.message),
        None => fault.message,
    }
}

impl ByHand {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A variable that is given twice.
    #[must_use]
    pub fn given_twice(&self) -> Option<&EnvName> {
        let mut seen = BTreeSet::new();
        self.env.iter().map(|given| &given.name).find(|name| !seen.insert(*name))
    }
}

/// The options as a text, one a line, so that diagnostics can underline them.
struct Lines {
    file: usize,
    text: String,
}

impl Lines {
    fn add(&mut self, option: &str, value: &str) -> Place {
        let start = self.text.len() + option.len() + 1;
        let value = visible(value);
        self.text.push_str(&format!("{option} {value}\n"));
        Place { file: self.file, span: start..start + value.len() }
    }

    fn at<T>(&mut self, option: &str, value: &str, of: T) -> At<T> {
        At { value: of, place: self.add(option, value) }
    }
}

impl Manifest {
    /// The manifest with what is given by hand laid over one agent. Relative paths begin at `directory`.
    #[must_use]
    pub fn with_by_hand(&self, agent: &AgentName, given: &ByHand, directory: &AbsPath) -> Self {
        let mut out = self.clone();
        let mut lines = Lines { file: out.files.len(), text: String::new() };
        if let Some(layered) = out.agents.get_mut(agent) {
            // Destructured in full: an option that is added stops this function from compiling.
            let ByHand { allow, env, mounts, workspace, home, model } = given;
            let spec = &mut layered.spec;
            for host in allow {
                let of = AllowText { host: host.clone(), request: None };
                let rule = lines.at(ALLOW, &host.to_string(), of);
                let place = rule.place.clone();
                let none = || At { value: EgressSpec { allow: Vec::new(), deny: Vec::new() }, place };
                spec.egress.get_or_insert_with(none).value.allow.push(rule);
            }
            for variable in env {
                let GivenVariable { name, value } = variable;
                spec.env.retain(|entry| entry.name != *name);
                let shown = if value.is_some() { format!("{name}=…") } else { name.to_string() };
                let place = lines.add(ENV, &shown);
                spec.env.push(Named {
                    name: name.clone(),
                    name_place: place.clone(),
                    value: variable.source(),
                    place,
                    broken: false,
                });
            }
            for GivenMount { source, target, access, text } in mounts {
                let place = lines.add(MOUNT, text);
                let source = At { value: source.clone(), place: place.clone() };
                let target = target.clone().map(|value| At { value, place: place.clone() });
                let mode = access.map(|value| At { value, place: place.clone() });
                spec.mounts.push(At { value: MountSpec { source, target, mode }, place });
            }
            if let Some(mode) = workspace {
                spec.workspace = Some(lines.at(WORKSPACE, &word(mode), *mode));
            }
            if let Some(mode) = home {
                spec.home = Some(lines.at(HOME, &word(mode), *mode));
            }
            if let Some(GivenWord(name)) = model {
                spec.model = Some(lines.at(MODEL, &name.0, name.clone()));
            }
        }
        out.sources.push(SourceFile { name: SOURCE.to_owned(), text: lines.text });
        out.files.push((ManifestLayer::ByHand, directory.clone()));
        out
    }

    /// The option that a value was given with, if it was given by hand.
    #[must_use]
    pub fn given_with(&self, place: &Place) -> Option<&'static str> {
        if self.layer(place) != ManifestLayer::ByHand {
            return None;
        }
        let before = self.sources.get(place.file)?.text.get(..place.span.start)?;
        let option = before.rsplit('\n').next()?.trim_end();
        OPTIONS.into_iter().find(|known| *known == option)
    }
}

fn word<T: serde::Serialize>(mode: &T) -> String {
    serde_json::json!(mode).as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(text: &str) -> Result<(String, Option<String>, Option<Access>), String> {
        GivenMount::parse(text).map(|GivenMount { source, target, access, text: _ }| {
            let (home, beside) = (AbsPath::new("/home/u").unwrap(), AbsPath::new("/here").unwrap());
            let source = source.resolve(&home, &beside).unwrap().to_string();
            (source, target.map(|path| path.to_string()), access)
        })
    }

    #[test]
    fn a_mount_has_a_source_and_perhaps_a_target_and_a_mode() {
        let (ro, rw) = (Some(Access::ReadOnly), Some(Access::ReadWrite));
        for (text, source, target, access) in [
            ("data", "/here/data", None, None),
            ("~/data", "/home/u/data", None, None),
            ("/srv/data:rw", "/srv/data", None, rw),
            ("/srv/data:/data", "/srv/data", Some("/data"), None),
            ("/srv/data:/data:ro", "/srv/data", Some("/data"), ro),
            ("ro", "/here/ro", None, None),
            ("rw:ro", "/here/rw", None, ro),
            (r"/srv/a\:b:/c\:d", "/srv/a:b", Some("/c:d"), None),
            (r"/srv/a\\:/data", r"/srv/a\", Some("/data"), None),
            (r"/srv/a\b", r"/srv/a\b", None, None),
            (r"/srv/a\:ro", "/srv/a:ro", None, None),
        ] {
            assert_eq!(mount(text), Ok((source.into(), target.map(Into::into), access)), "{text}");
        }
    }

    #[test]
    fn a_mount_that_cannot_be_meant_is_refused() {
        for (text, why) in [
            ("", "the source: expected a path, found an empty string"),
            (":/data", "the source: expected a path, found an empty string"),
            ("/a:", "the target `` is not an absolute path"),
            ("/a:b", "the target `b` is not an absolute path; a colon in a path is written `\\:`"),
            ("/a:/b:/c", "expected `ro` or `rw` at the end, found `/c`; a colon in a path is written `\\:`"),
            ("/a:/b:rwx", "expected `ro` or `rw` at the end, found `rwx`"),
            ("/a:/b:ro:ro", "expected `ro` or `rw` at the end, found `ro`"),
            ("~other/data", "the source: `~` means your own home"),
        ] {
            let found = mount(text).expect_err(text);
            assert!(found.starts_with(why), "{text}: {found}");
        }
    }

    #[test]
    fn a_variable_has_a_value_or_takes_the_one_of_the_shell() {
        let parsed = |text| GivenVariable::parse(text).map(|given| (given.name.to_string(), given.value));
        assert_eq!(parsed("A"), Ok(("A".into(), None)));
        assert_eq!(parsed("A="), Ok(("A".into(), Some(String::new()))));
        assert_eq!(parsed("A=${B}=?c"), Ok(("A".into(), Some("${B}=?c".into()))));
        let refused = parsed("1x=hunter2").unwrap_err();
        assert!(!refused.contains("hunter2"), "{refused}");
        let shown = format!("{:?}", GivenVariable::parse("A=hunter2").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn fuzz_given_mount() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(GivenMount { target: Some(target), .. }) = GivenMount::parse(text) {
                assert!(target.to_string().starts_with('/'), "{text:?}");
            }
        });
    }
}
