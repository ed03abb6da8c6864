//! The complete lists of what runs left in a project; the report at the end of a run shows only the most dangerous
//! entries.

use crate::environment::HostEnvironment;
use crate::store::names::fresh_run_id;
use belljar_contract::{
    AbsPath, Danger, Event, FINDINGS_FORMAT, Finding, Findings, FoundAs, HeldBack, Plan, Purpose, UtcTime,
    visible_name, visible_start,
};
use belljar_record::Redact;
use belljar_sandbox::{BUILD_OUTPUT, Class, Created, Grade, Redirected, RepositoryChanges, Since, short_ref};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most entries that are kept of one run.
const KEPT: usize = 100_000;
/// The largest list; each entry contains a path twice at most.
const LARGEST: u64 = 1 << 30;
const SUFFIX: &str = ".json";

/// Why a list cannot be kept or shown.
#[derive(Debug, thiserror::Error)]
pub enum FindingsError {
    #[error("cannot write the findings to `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
    #[error("cannot read the findings in `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingsEntry {
    /// The name for `belljar findings`.
    pub name: String,
    pub path: AbsPath,
    /// When it was written.
    pub written: SystemTime,
}

/// The lists below belljar's state directory.
#[derive(Debug)]
pub struct FindingsStore {
    directory: AbsPath,
}

impl FindingsStore {
    /// The lists in this state directory.
    #[must_use]
    pub fn new(state: &AbsPath) -> Self {
        Self { directory: state.child("findings") }
    }

    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    /// The lists, the newest last; empty if the directory does not exist yet.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<FindingsEntry>, FindingsError> {
        let failed = |cause| FindingsError::Read { path: self.directory.clone(), cause };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (Some(name), Ok(path)) = (name.strip_suffix(SUFFIX), AbsPath::new(entry.path())) else {
                continue;
            };
            let written = entry.metadata().and_then(|found| found.modified()).map_err(failed)?;
            out.push(FindingsEntry { name: name.to_owned(), path, written });
        }
        out.sort_by(|one, other| (one.written, &one.name).cmp(&(other.written, &other.name)));
        Ok(out)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// If it cannot be read, or has an unknown format.
    pub fn read(&self, entry: &FindingsEntry) -> Result<Findings, FindingsError> {
        let read = || -> std::io::Result<Findings> {
            let mut text = String::new();
            fs::File::open(&entry.path)?.take(LARGEST).read_to_string(&mut text)?;
            let found: Findings = serde_json::from_str(&text)?;
            if found.format != FINDINGS_FORMAT {
                return Err(std::io::Error::other(format!(
                    "its format {} is not supported by this version of belljar",
                    found.format
                )));
            }
            Ok(found)
        };
        read().map_err(|cause| FindingsError::Read { path: entry.path.clone(), cause })
    }

    /// Writes a list, completely or not at all, under the name of the run's directory or a new one; returns its name.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, findings: &Findings, run: Option<String>) -> Result<String, FindingsError> {
        let date = || UtcTime::from_unix_ms(findings.at_ms).compact();
        let name = run.unwrap_or_else(|| format!("{}-{}-{}", date(), findings.agent, fresh_run_id()));
        let path = self.directory.child(&format!("{name}{SUFFIX}"));
        let write = || -> std::io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(&serde_json::to_vec(findings)?)?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|cause| FindingsError::Write { path: path.clone(), cause })?;
        Ok(name)
    }
}

/// Keeps the findings of a run, the most dangerous first; `None` if there are none. A test works on a copy that is
/// removed with it, so its findings are not kept here; its record has the events.
pub(crate) fn keep(
    environment: &HostEnvironment,
    (plan, run): (&Plan, Option<String>),
    found: &mut [Finding],
    held: Vec<HeldBack>,
) -> Result<Option<String>, FindingsError> {
    found.sort_by(|one, other| (one.danger, &one.path).cmp(&(other.danger, &other.path)));
    if (found.is_empty() && held.is_empty()) || plan.purpose == Purpose::Test {
        return Ok(None);
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let kept = found.len().min(KEPT);
    let findings = Findings {
        format: FINDINGS_FORMAT,
        agent: plan.agent.clone(),
        project: plan.workspace.source.clone(),
        at_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        items: found[..kept].to_vec(),
        held,
        dropped: (found.len() - kept) as u64,
    };
    FindingsStore::new(&environment.state).write(&findings, run).map(Some)
}

/// Redacts the part of a finding's path below the project, whose names the run chose.
pub(crate) fn redacted(finding: Finding, project: &AbsPath, redact: &Redact) -> Finding {
    let Finding { danger, path, since, what, target, output } = finding;
    Finding {
        danger,
        path: redacted_path(path, project, redact),
        since,
        what: redact.scrub(&what),
        target: target.map(|target| redact.scrub(&target)),
        output: output.map(|output| redacted_path(output, project, redact)),
    }
}

fn redacted_path(path: AbsPath, project: &AbsPath, redact: &Redact) -> AbsPath {
    let chosen = path.relative_to(project).map(|chosen| chosen.as_os_str().as_encoded_bytes().to_vec());
    let whole = || path.as_path().as_os_str().as_encoded_bytes().to_vec();
    let (above, chosen) = match chosen {
        Some(chosen) => (project.as_path(), chosen),
        None => (Path::new("/"), whole()),
    };
    match redact.scrub_bytes(&chosen) {
        None => path,
        Some(scrubbed) => {
            let below = String::from_utf8_lossy(&scrubbed).into_owned();
            AbsPath::new(above.join(below.trim_start_matches('/'))).unwrap_or_else(|_never| project.clone())
        }
    }
}

/// The event for a finding in the record.
pub(crate) fn event(finding: &Finding) -> Event {
    Event::HostExecutedCreated { path: finding.path.clone(), why: finding.why() }
}

/// The finding for a created entry; `None` for an ordinary file.
pub(crate) fn finding_of(root: &AbsPath, created: Created) -> Option<Finding> {
    let output = build_output(&created.path);
    let (danger, what, target) = match created.class {
        Class::Ordinary => return None,
        Class::HostExecuted { grade: Grade::Guarded, why } => (Danger::Guarded, why, None),
        Class::HostExecuted { grade: Grade::Watched, why } if output.is_some() => {
            (Danger::BuildOutput, why, None)
        }
        Class::HostExecuted { grade: Grade::Watched, why } => (Danger::Watched, why, None),
        Class::EscapingSymlink { target } => {
            (Danger::EscapingLink, "a link that leads out of the project", Some(visible_name(target)))
        }
        Class::Special { .. } => (Danger::Special, "neither a file nor a directory", None),
    };
    let output = output.filter(|_| danger == Danger::BuildOutput);
    Some(Finding {
        danger,
        path: root.join(&created.path).ok()?,
        since: match created.since {
            Since::Appeared => FoundAs::New,
            Since::Changed => FoundAs::Changed,
        },
        what: what.to_owned(),
        target,
        output: output.and_then(|output| root.join(output).ok()),
    })
}

/// The files in new commits and in the index that this machine would execute after a checkout, or that lead out. `git` is the
/// path of the refs, for messages.
pub(crate) fn of_commits(root: &AbsPath, git: &Path, changes: &RepositoryChanges) -> Vec<Finding> {
    let refs = changes.refs.iter().flat_map(|change| {
        let name = visible_name(short_ref(&change.name));
        change.class.iter().map(move |carried| (carried, format!("a commit on `{name}` changes it: ")))
    });
    let staged =
        changes.staged_class.iter().map(|carried| (carried, "the git index changes it: ".to_owned()));
    let mut out: Vec<Finding> = refs
        .chain(staged)
        .filter_map(|(carried, how)| {
            let created =
                Created { path: carried.path.clone(), class: carried.class.clone(), since: Since::Changed };
            let mut finding = finding_of(root, created)?;
            finding.what = format!("{how}{}", finding.what);
            Some(finding)
        })
        .collect();
    let unread =
        changes.refs.iter().filter_map(|change| Some((change.name.as_slice(), change.unread.as_ref()?)));
    let all = changes.unread_refs.iter().map(|why| (&b"refs"[..], why));
    out.extend(unread.chain(all).filter_map(|(name, why)| {
        Some(Finding {
            danger: Danger::Guarded,
            path: root.join(git.join(OsStr::from_bytes(name))).ok()?,
            since: FoundAs::Changed,
            what: format!("the files in its commits are not known: {}", visible_start(why, 200)),
            target: None,
            output: None,
        })
    }));
    out
}

/// A setting that decides where the user's next push goes. Settings that existed before come first: the user relies on
/// them.
pub(crate) fn of_redirection(path: AbsPath, change: Redirected) -> Finding {
    let Redirected { setting, was_set, values } = change;
    let setting = visible_start(&setting, 80);
    let what = match values.as_slice() {
        [] => format!("git configuration: {setting} removed"),
        values => {
            let how = if was_set { "changed to" } else { "set to" };
            format!("git configuration: {setting} {how} {}", visible_start(&values.join(", "), 300))
        }
    };
    let danger = if was_set { Danger::Guarded } else { Danger::Watched };
    Finding { danger, path, since: FoundAs::Changed, what, target: None, output: None }
}

/// A path that the run made unreadable for its owner: its content is not known.
pub(crate) fn hidden(path: AbsPath) -> Finding {
    Finding {
        danger: Danger::Guarded,
        path,
        since: FoundAs::New,
        what: "it could not be examined and may contain anything".to_owned(),
        target: None,
        output: None,
    }
}

/// Shortens the messages about paths that could not be examined to the first few and their number. A command that
/// creates many of them, or some with long names, must not push the findings off the screen.
pub(crate) fn few(places: Vec<String>) -> Vec<String> {
    const PLACES: usize = 5;
    const LETTERS: usize = 300;
    let more = places.len().saturating_sub(PLACES);
    let mut out: Vec<String> =
        places.iter().take(PLACES).map(|place| visible_start(place, LETTERS)).collect();
    if more > 0 {
        out.push(format!("{more} more paths could not be examined; their content is not known"));
    }
    out
}

/// The outermost directory of build output above a path.
fn build_output(path: &Path) -> Option<PathBuf> {
    let above = path.parent()?;
    let is_output = |name: &OsStr| BUILD_OUTPUT.iter().any(|known| OsStr::new(known) == name);
    let at = above.iter().position(is_output)?;
    Some(above.iter().take(at + 1).collect())
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
