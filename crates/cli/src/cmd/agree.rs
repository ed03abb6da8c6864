//! Agreement to what a suite asks for beyond its own directory: asked once, before anything is staged or started.

use super::scenario_options::TryOptions;
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, ExitCode, SandboxChoice, Wish, Wishes, visible};
use belljar_runner::suite::{
    AgreedBy, Consent, ConsentDecision, KnownPart, LoadError, OpenWishes, Permit, Trial, TrialUse,
};
use belljar_runner::{Agreements, HostEnvironment};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// How the user agrees to what a suite asks for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AgreeOptions {
    /// Agree to what the files ask for beyond their directory
    #[arg(long, conflicts_with = "agree_to")]
    pub yes: bool,
    /// Agree to the request with this digest, and refuse any other
    #[arg(long, value_name = "DIGEST", value_parser = digest, hide_short_help = true)]
    pub agree_to: Option<Digest>,
}

impl AgreeOptions {
    fn agreed_by(&self) -> AgreedBy {
        match (self.agree_to, self.yes) {
            (Some(digest), _) => AgreedBy::Digest(digest),
            (None, true) => AgreedBy::Yes,
            (None, false) => AgreedBy::Agreements,
        }
    }
}

/// Reads a digest as belljar prints it.
pub fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| "expected a digest, as in sha256:0123…".to_owned())
}

/// What is about to be done with trials.
pub struct Agreeing<'a> {
    pub options: &'a AgreeOptions,
    pub sandbox: &'a SandboxChoice,
    pub used_for: TrialUse,
    pub environment: &'a HostEnvironment,
    pub output: &'a Output,
}

impl Agreeing<'_> {
    /// Collects what all trials ask for and has the user agree to it, once.
    ///
    /// # Errors
    /// When the user did not agree, or cannot be asked. Nothing has been staged or started.
    pub fn ask<'t>(&self, trials: impl IntoIterator<Item = &'t Trial>) -> Result<Consent, CliError> {
        let wishes: Vec<Wishes> =
            trials.into_iter().map(|trial| trial.wishes(self.sandbox, self.used_for)).collect();
        let consent = self.agreed(wishes, KnownPart::Whole)?;
        if self.options.yes && !self.output.json && !consent.given().is_empty() {
            let all = consent.given().iter().flat_map(Wishes::list);
            self.output.say(&format!("--yes agrees to {}", Wishes::count_by_kind(all)));
        }
        Ok(consent)
    }

    /// Loads files. Before one beyond the suite is opened, the user agrees to that; what it asks for comes after it.
    ///
    /// # Errors
    /// When the user did not agree, or cannot be asked. The inner error is that of the files.
    pub fn load<T>(
        &self,
        load: impl Fn(Permit<'_>) -> Result<T, LoadError>,
    ) -> Result<Result<T, LoadError>, CliError> {
        let agreements = Agreements::new(&self.environment.config);
        let permit = |wishes: &Wishes| self.options.agreed_by().permits(wishes, &agreements);
        loop {
            match load(&permit) {
                Err(LoadError::Asks { wishes }) => self.agreed(vec![*wishes], KnownPart::InPart)?,
                loaded => return Ok(loaded),
            };
        }
    }

    fn agreed(&self, all: Vec<Wishes>, known: KnownPart) -> Result<Consent, CliError> {
        let agreements = Agreements::new(&self.environment.config);
        let open = match self.options.agreed_by().decide(all, self.used_for, known, &agreements)? {
            ConsentDecision::Given(consent) => return Ok(consent),
            ConsentDecision::NothingAsked { pinned } => {
                let text = format!("--agree-to {pinned}: the files ask for nothing");
                return Err(CliError::new(ExitCode::Invalid, text).hint("leave --agree-to out"));
            }
            ConsentDecision::Differs { pinned, found, wishes } => {
                return Err(differs(pinned, found, &wishes, self.environment));
            }
            ConsentDecision::Open(open) => open,
        };
        let lines = listed(&open.open, self.environment);
        if self.output.json || !std::io::stdin().is_terminal() {
            return Err(refusal(&open.all, known, lines, self.environment));
        }
        let lines = [lines, summary(&open.open)].concat();
        self.output
            .say(&format!("These files ask for more than their own directory:\n{}\n", lines.join("\n")));
        if !confirmed("Agree to this?", "`--yes` agrees for this call")? {
            return Err(CliError::new(ExitCode::Invalid, "not agreed to; nothing was started"));
        }
        Ok(open.agree(&agreements)?)
    }
}

/// The wishes of each suite, the most dangerous first; what was agreed to before is not repeated.
pub fn listed(open: &[OpenWishes], environment: &HostEnvironment) -> Vec<String> {
    let mut lines = Vec::new();
    for one in open {
        lines.push(format!("  {}", environment.shown(&one.wishes.suite)));
        // All of them: behind "and more" the one that matters could hide.
        let new = one.new_ones();
        let mark = if one.has_earlier_agreement() { "new: " } else { "" };
        lines.extend(new.iter().map(|wish| format!("    {mark}{wish}")));
        let same = one.wishes.list().len() - new.len();
        if same > 0 {
            lines.push(format!("    and {same} that you agreed to before"));
        }
    }
    lines
}

/// What stands right above the question: how much is asked for, and, where the list is long, the worst of it again.
pub fn summary(open: &[OpenWishes]) -> Vec<String> {
    const LONG: usize = 12;
    const WORST: usize = 5;
    let mut new: Vec<&Wish> = open.iter().flat_map(OpenWishes::new_ones).collect();
    new.sort();
    let mut lines = vec![format!("  in all: {}", Wishes::count_by_kind(new.iter().copied()))];
    if new.len() > LONG {
        lines.push("  the most dangerous of it:".to_owned());
        lines.extend(new.iter().take(WORST).map(|wish| format!("    {wish}")));
    }
    lines
}

fn refusal(
    wishes: &[Wishes],
    known: KnownPart,
    lines: Vec<String>,
    environment: &HostEnvironment,
) -> CliError {
    let digest = Wishes::digest_of_all(wishes);
    let text = "the files ask for more than their own directory, and no agreement covers it";
    let error = CliError::new(ExitCode::Invalid, text)
        .details(lines)
        .data(data(wishes))
        .hint("--yes agrees to all of it, for this call");
    let error = match known {
        KnownPart::Whole => error.hint(format!("--agree-to {digest} agrees to exactly this")),
        KnownPart::InPart => error
            .hint(format!("--agree-to {digest} agrees to this; if a file that is read then asks for more, nothing starts"))
            .hint("what it asks for itself is shown once you have agreed to read it"),
    };
    // A directory is a skill or a plugin, which is tried by hand.
    let files = wishes.iter().filter(|one| one.suite.as_path().is_file());
    let files: Vec<String> =
        files.filter_map(|one| shell_word(&one.suite, &environment.shown(&one.suite))).collect();
    match files.as_slice() {
        [] => error,
        files => error.hint(format!("`belljar trust {}` agrees once, for all calls", flags(files))),
    }
}

/// A path as a shell takes it, to be copied: as it is shown, or whole in quotes. None where it cannot be printed as it is.
pub fn shell_word(path: &AbsPath, shown: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./+,@%:-".contains(c);
    if !shown.is_empty() && !shown.starts_with('-') && shown.chars().all(plain) {
        return Some(shown.to_owned());
    }
    let whole = path.as_path().to_str().filter(|text| visible(text) == **text)?;
    Some(format!("'{}'", whole.replace('\'', r"'\''")))
}

/// A path in a command to be copied.
pub fn to_type(path: &AbsPath, environment: &HostEnvironment) -> String {
    let shown = environment.shown(path);
    shell_word(path, &shown).unwrap_or(shown)
}

fn flags(suites: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut flags: Vec<String> = suites.iter().take(SHOWN).map(|suite| format!("--suite {suite}")).collect();
    flags.extend((suites.len() > SHOWN).then(|| "…".to_owned()));
    flags.join(" ")
}

fn differs(pinned: Digest, found: Digest, wishes: &[Wishes], environment: &HostEnvironment) -> CliError {
    let open: Vec<OpenWishes> = wishes.iter().cloned().map(OpenWishes::of).collect();
    let text = format!("--agree-to names {pinned}, but what is asked for is {found}");
    CliError::new(ExitCode::Invalid, text)
        .details(listed(&open, environment))
        .data(data(wishes))
        .hint("look at what is asked for, then name its digest")
}

/// The wishes for machines.
pub fn data(wishes: &[Wishes]) -> Value {
    let one = |one: &Wishes| json!({"suite": one.suite, "root": one.root, "wishes": one.list(), "digest": one.digest()});
    json!({"asks": wishes.iter().map(one).collect::<Vec<_>>(), "digest": Wishes::digest_of_all(wishes)})
}

/// The plan's digest, where the command line pins it.
pub fn pinned(wanted: Option<Digest>, found: Digest) -> Result<bool, CliError> {
    match wanted {
        None => Ok(false),
        Some(wanted) if wanted == found => Ok(true),
        Some(wanted) => {
            let text = format!("--agree-to names {wanted}, but the plan is {found}");
            Err(CliError::new(ExitCode::LaunchFailed, text).hint("`belljar plan` shows what it asks for"))
        }
    }
}

impl TryOptions {
    /// Loads files as [`Agreeing::load`] does.
    pub fn loaded<T>(
        &self,
        environment: &HostEnvironment,
        output: &Output,
        load: impl Fn(Permit<'_>) -> Result<T, LoadError>,
    ) -> Result<Result<T, LoadError>, CliError> {
        let (sandbox, used_for) = (self.sandbox.asked(), TrialUse::Run);
        Agreeing { options: &self.agree, sandbox: &sandbox, used_for, environment, output }.load(load)
    }

    /// Makes sure that their versions of the agent are there, and has the user agree to what these trials ask for when
    /// they run.
    pub fn consent<'t>(
        &self,
        trials: impl IntoIterator<Item = &'t Trial>,
        used_for: TrialUse,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Consent, CliError> {
        let trials: Vec<&Trial> = trials.into_iter().collect();
        let asked = self.agent.asked();
        if used_for != TrialUse::Inspect || self.agent.installs() {
            let wanted = trials.iter().filter_map(|trial| trial.release(asked.as_ref()));
            self.agent.ready(wanted, environment, output)?;
        }
        let sandbox = self.sandbox.asked();
        Agreeing { options: &self.agree, sandbox: &sandbox, used_for, environment, output }.ask(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{BackendKind, HostPattern};

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn the_worst_stands_right_above_the_question() {
        let hosts = (0..500).map(|number| HostPattern::parse(&format!("h{number}.test")).unwrap());
        let mut list: Vec<Wish> = hosts.map(|host| Wish::Host { host }).collect();
        let first = summary(&[OpenWishes::of(Wishes::new(path("/a.yaml"), None, list[..2].to_vec()))]);
        assert_eq!(first, ["  in all: 2 hosts"]);
        list.push(Wish::Backend { backend: BackendKind::Host });
        let lines = summary(&[OpenWishes::of(Wishes::new(path("/a.yaml"), None, list))]);
        assert_eq!(lines[0], "  in all: 1 weaker backend, 500 hosts");
        assert_eq!((lines.len(), lines[2].as_str()), (7, "    backend `host`: runs without isolation"));
    }

    #[test]
    fn a_file_name_is_quoted_for_a_shell() {
        for (name, word) in [
            ("/s/tests/a.yaml", Some("/s/tests/a.yaml")),
            ("/s/a b.yaml", Some("'/s/a b.yaml'")),
            ("/s/$(touch x).yaml", Some("'/s/$(touch x).yaml'")),
            ("/s/it's;.yaml", Some(r"'/s/it'\''s;.yaml'")),
            ("/s/a\nb.yaml", None),
            ("/s/a\u{202e}b.yaml", None),
        ] {
            let whole = path(name);
            assert_eq!(shell_word(&whole, &whole.to_string()).as_deref(), word, "{name:?}");
        }
        assert_eq!(shell_word(&path("/s/-x.yaml"), "-x.yaml").as_deref(), Some("'/s/-x.yaml'"));
    }
}
