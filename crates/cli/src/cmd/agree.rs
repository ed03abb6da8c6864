//! Agreement to what a suite asks for beyond its own directory: asked once, before anything is staged or started.

use super::scenario_options::TryOptions;
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, ExitCode, SandboxChoice, Wish, Wishes, visible};
use belljar_runner::suite::{Consent, LoadError, Permit, Trial, TrialUse};
use belljar_runner::{AgreementStanding, Agreements, HostEnvironment};
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
        self.agreed(wishes, Known::Whole)
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
        let permit = |wishes: &Wishes| {
            // What --agree-to names is compared once everything is known; nothing is staged or printed before.
            self.options.yes
                || self.options.agree_to.is_some()
                || matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed))
        };
        loop {
            match load(&permit) {
                Err(LoadError::Asks { wishes }) => self.agreed(vec![*wishes], Known::InPart)?,
                loaded => return Ok(loaded),
            };
        }
    }

    fn agreed(&self, all: Vec<Wishes>, known: Known) -> Result<Consent, CliError> {
        let mut wishes: Vec<Wishes> = Vec::new();
        for one in all.into_iter().filter(|one| !one.is_empty()) {
            if !wishes.contains(&one) {
                wishes.push(one);
            }
        }
        let digest = Wishes::digest_of_all(&wishes);
        if let Some(pinned) = self.options.agree_to {
            if wishes.is_empty() {
                let text = format!("--agree-to {pinned}: the files ask for nothing");
                return Err(CliError::new(ExitCode::Invalid, text).hint("leave --agree-to out"));
            }
            if pinned != digest {
                return Err(differs(pinned, &wishes, self.environment));
            }
            return Ok(Consent::to(self.used_for, wishes));
        }
        if self.options.yes && !wishes.is_empty() && !self.output.json && known == Known::Whole {
            let all = wishes.iter().flat_map(|one| one.list());
            self.output.say(&format!("--yes agrees to {}", Wishes::count_by_kind(all)));
        }
        if wishes.is_empty() || self.options.yes {
            return Ok(Consent::to(self.used_for, wishes));
        }
        let agreements = Agreements::new(&self.environment.config);
        let open = not_agreed(&wishes, &agreements)?;
        if open.is_empty() {
            return Ok(Consent::to(self.used_for, wishes));
        }
        let lines = listed(&open, self.environment);
        if self.output.json || !std::io::stdin().is_terminal() {
            return Err(refusal((&wishes, known), lines, self.environment));
        }
        let lines = [lines, summary(&open)].concat();
        self.output
            .say(&format!("These files ask for more than their own directory:\n{}\n", lines.join("\n")));
        if !confirmed("Agree to this?", "`--yes` agrees for this call")? {
            return Err(CliError::new(ExitCode::Invalid, "not agreed to; nothing was started"));
        }
        match known {
            Known::Whole => open.iter().try_for_each(|(one, _)| agreements.agree(one).map(drop))?,
            Known::InPart => {
                for (one, before) in &open {
                    agreements.agree_further(one, before.as_ref())?;
                }
            }
        }
        Ok(Consent::to(self.used_for, wishes))
    }
}

/// Whether all that the files ask for is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Whole,
    /// A file beyond the suite, which was not read, may ask for more.
    InPart,
}

/// Those that no agreement covers, with what was agreed to before.
pub fn not_agreed(
    wishes: &[Wishes],
    agreements: &Agreements,
) -> Result<Vec<(Wishes, Option<Value>)>, CliError> {
    let mut open = Vec::new();
    for one in wishes.iter().filter(|one| !one.is_empty()) {
        match agreements.standing(one)? {
            AgreementStanding::Agreed => {}
            AgreementStanding::Never => open.push((one.clone(), None)),
            AgreementStanding::Changed(before) => open.push((one.clone(), Some(before.shown))),
        }
    }
    Ok(open)
}

/// The wishes of each suite, the most dangerous first; what was agreed to before is not repeated.
pub fn listed(open: &[(Wishes, Option<Value>)], environment: &HostEnvironment) -> Vec<String> {
    let mut lines = Vec::new();
    for (wishes, before) in open {
        lines.push(format!("  {}", environment.shown(&wishes.suite)));
        // All of them: behind "and more" the one that matters could hide.
        let (new, before) = not_agreed_before(wishes, before.as_ref());
        let mark = if before { "new: " } else { "" };
        lines.extend(new.iter().map(|wish| format!("    {mark}{wish}")));
        let same = wishes.list().len() - new.len();
        if same > 0 {
            lines.push(format!("    and {same} that you agreed to before"));
        }
    }
    lines
}

/// The wishes that were not agreed to before, and whether others were.
fn not_agreed_before<'a>(wishes: &'a Wishes, before: Option<&Value>) -> (Vec<&'a Wish>, bool) {
    // What was agreed to for another directory says nothing about this one.
    let before = before.filter(|before| before.get("root") == Some(&json!(wishes.root)));
    let agreed = before.and_then(|before| before.get("wishes")?.as_array());
    let known = |wish: &Wish| agreed.is_some_and(|agreed| agreed.contains(&json!(wish)));
    (wishes.list().iter().filter(|wish| !known(wish)).collect(), before.is_some())
}

/// What stands right above the question: how much is asked for, and, where the list is long, the worst of it again.
pub fn summary(open: &[(Wishes, Option<Value>)]) -> Vec<String> {
    const LONG: usize = 12;
    const WORST: usize = 5;
    let new = open.iter().flat_map(|(wishes, before)| not_agreed_before(wishes, before.as_ref()).0);
    let mut new: Vec<&Wish> = new.collect();
    new.sort();
    let mut lines = vec![format!("  in all: {}", Wishes::count_by_kind(new.iter().copied()))];
    if new.len() > LONG {
        lines.push("  the most dangerous of it:".to_owned());
        lines.extend(new.iter().take(WORST).map(|wish| format!("    {wish}")));
    }
    lines
}

fn refusal(
    (wishes, known): (&[Wishes], Known),
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
        Known::Whole => error.hint(format!("--agree-to {digest} agrees to exactly this")),
        Known::InPart => error
            .hint(format!("--agree-to {digest} agrees to this, if what is read asks for nothing more"))
            .hint("what it asks for itself is shown once you agreed to read it"),
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
fn shell_word(path: &AbsPath, shown: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./+,@%:-".contains(c);
    if !shown.is_empty() && !shown.starts_with('-') && shown.chars().all(plain) {
        return Some(shown.to_owned());
    }
    let whole = path.as_path().to_str().filter(|text| visible(text) == **text)?;
    Some(format!("'{}'", whole.replace('\'', r"'\''")))
}

fn flags(suites: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut flags: Vec<String> = suites.iter().take(SHOWN).map(|suite| format!("--suite {suite}")).collect();
    flags.extend((suites.len() > SHOWN).then(|| "…".to_owned()));
    flags.join(" ")
}

fn differs(pinned: Digest, wishes: &[Wishes], environment: &HostEnvironment) -> CliError {
    let digest = Wishes::digest_of_all(wishes);
    let open: Vec<_> = wishes.iter().map(|one| (one.clone(), None)).collect();
    let text = format!("--agree-to names {pinned}, but what is asked for is {digest}");
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

    /// Has the user agree to what these trials ask for when they run.
    pub fn consent<'t>(
        &self,
        trials: impl IntoIterator<Item = &'t Trial>,
        used_for: TrialUse,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Consent, CliError> {
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
        let first = summary(&[(Wishes::new(path("/a.yaml"), None, list[..2].to_vec()), None)]);
        assert_eq!(first, ["  in all: 2 hosts"]);
        list.push(Wish::Backend { backend: BackendKind::Host });
        let lines = summary(&[(Wishes::new(path("/a.yaml"), None, list), None)]);
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
