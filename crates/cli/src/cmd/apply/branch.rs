//! `--as-branch`: the agent's commits beside those of the user.

use super::super::changes::{Naming, Options, reason, shown};
use super::refused_machine;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible_name};
use belljar_runner::changes::{
    ApplyConsent, ApplyMode, BranchRequest, Branched, KeptChanges, KeptLayer, KeptRepository, NewBranch,
    bad_branch, short_ref,
};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Refuses a name that git does not accept for a branch, before anything is read.
pub fn check(name: &OsStr) -> Result<(), CliError> {
    match bad_branch(name.as_bytes()) {
        None => Ok(()),
        Some(why) => {
            let message = format!("`{}` is not a valid branch name: {why}", visible_name(name));
            Err(CliError::new(ExitCode::Invalid, message).hint("try letters, digits, `-` and `/`"))
        }
    }
}

/// What is to be done.
pub struct AsBranch<'a> {
    pub name: &'a OsStr,
    pub naming: Naming<'a>,
    pub consent: ApplyConsent,
    pub mode: ApplyMode,
    pub options: &'a Options,
}

impl AsBranch<'_> {
    pub fn run(&self, kept_layer: &KeptLayer, output: &Output) -> Result<ExitCode, CliError> {
        let meant = match self.options.paths.as_slice() {
            [] => None,
            [one] => Some(self.naming.reference(one)?),
            _several => {
                let message = "`--as-branch` makes a branch of one ref, and several paths are named";
                return Err(CliError::new(ExitCode::Invalid, message));
            }
        };
        let request = BranchRequest {
            name: self.name.as_bytes(),
            repository: meant.as_ref().map(|(path, _)| path.as_path()),
            of: meant.as_ref().and_then(|(_, of)| of.as_deref()),
            consent: &self.consent,
            mode: self.mode,
        };
        let name = visible_name(self.name);
        let invalid = |message: String| CliError::new(ExitCode::Invalid, message);
        match kept_layer.make_branch(&request)? {
            Branched::Made(made) => Ok(self.made(&made, output)),
            Branched::Refused(refused) => {
                let exit = ExitCode::Failed;
                if output.json {
                    let refused = refused_machine(&refused, self.options);
                    let data = json!({"dry_run": self.is_dry(), "branch": null, "refused": refused});
                    output.envelope(&Envelope::new("apply", exit, data));
                    return Ok(exit);
                }
                for refused in &refused {
                    output.say(&format!(
                        "not applied: {}: {}",
                        shown(&refused.path),
                        reason(refused, self.options)
                    ));
                }
                output.say("No branch was made.");
                Ok(exit)
            }
            Branched::Several(names) => {
                let error = invalid("both sides moved several refs, and none was named".to_owned());
                let hint = |out: CliError, path: &PathBuf| out.hint(command(self.options, &name, path));
                Err(names.iter().fold(error, hint))
            }
            Branched::NoCommits => {
                Err(invalid("the agent has no commits there that you have not".to_owned()))
            }
            Branched::Taken(other) => {
                let other = visible_name(short_ref(&other));
                let error = invalid(format!("cannot create the branch `{name}`: `{other}` exists"));
                Err(error.hint("choose another name"))
            }
        }
    }

    fn is_dry(&self) -> bool {
        self.mode == ApplyMode::DryRun
    }

    /// Prints what was done.
    fn made(&self, made: &NewBranch, output: &Output) -> ExitCode {
        let NewBranch { repository, of, commit, count, files } = made;
        let (name, exit) = (visible_name(self.name), ExitCode::Passed);
        if output.json {
            let files: Vec<_> = files.iter().map(|path| shown(path)).collect();
            let branch = json!({
                "name": name, "repository": repository_name(repository), "of": String::from_utf8_lossy(of),
                "commit": commit.hex(), "commit_count": count, "no_longer_kept": files,
            });
            let data = json!({"dry_run": self.is_dry(), "branch": branch, "refused": []});
            output.envelope(&Envelope::new("apply", exit, data));
            return exit;
        }
        let title = if repository.as_os_str().is_empty() {
            String::new()
        } else {
            format!("{}: ", shown(repository))
        };
        let commits = if *count == 1 { "1 new commit".to_owned() } else { format!("{count} new commits") };
        let of = visible_name(short_ref(of));
        let (word, hold) = if self.is_dry() { ("would make", "would hold") } else { ("made", "holds") };
        output.result(&format!(
            "{word} {title}branch {name} at {}, {commits} of the agent's {of}\n",
            commit.short()
        ));
        output.say("your branches, index and files are as they were");
        match files.len() {
            0 => {}
            1 => output.say(&format!("1 file that {name} {hold} is not kept any more")),
            count => output.say(&format!("{count} files that {name} {hold} are not kept any more")),
        }
        if !self.is_dry() && is_plain(repository) && is_plain(Path::new(self.name)) {
            let at = if title.is_empty() { String::new() } else { format!(" -C {}", shown(repository)) };
            output.say(&format!("  hint: `git{at} merge {name}` merges it with yours"));
        }
        exit
    }
}

fn repository_name(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { shown(path) }
}

/// Whether a shell takes it for one word that is itself. An agent chooses the names of its refs.
fn is_plain(path: &Path) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    path.as_os_str().as_bytes().iter().all(plain)
}

/// The command that makes a branch of what a ref leads to.
fn command(options: &Options, name: &str, of: &Path) -> String {
    let of = if is_plain(of) { shown(of) } else { "REF".to_owned() };
    format!("`{} --as-branch {name} -- {of}`", options.command("apply"))
}

/// The same for a ref that both sides moved, with a name that is free; `None` where the agent has no commits there.
pub fn proposed(found: &KeptChanges, name: &[u8], path: &Path, options: &Options) -> Option<String> {
    let is_it = |repository: &&KeptRepository| {
        let named = OsStr::from_bytes(name);
        repository.file_of(Path::new(named)) == path || repository.label.join(named) == path
    };
    let repository = found.repositories.iter().find(is_it)?;
    let change = repository.changes.refs.iter().find(|change| change.name == name && change.count > 0)?;
    let short = short_ref(&change.name).as_bytes();
    let plain = |byte: u8| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') { byte as char } else { '-' }
    };
    let short: String = short.iter().copied().map(plain).collect();
    let agent = options.agent.as_deref().unwrap_or("agent");
    let first = format!("{agent}-{}", short.trim_matches(['-', '.']));
    let is_free = |name: &String| {
        let whole = format!("refs/heads/{name}").into_bytes();
        let below = [whole.as_slice(), b"/"].concat();
        let is_taken =
            repository.refs.contains(&whole) || repository.refs.iter().any(|one| one.starts_with(&below));
        !is_taken && bad_branch(name.as_bytes()).is_none()
    };
    let mut names = std::iter::once(first.clone()).chain((2..100).map(|number| format!("{first}-{number}")));
    let of = repository.label.join(OsStr::from_bytes(name));
    Some(command(options, &names.find(is_free)?, &of))
}
