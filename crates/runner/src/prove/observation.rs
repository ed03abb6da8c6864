//! Collects what was observed, from the enforcing side or from the host's own state, and judges it.

use super::scene::{Scene, host_git};
use super::stage::{StageRun, none_left};
use super::stranger;
use super::table::{Evidence, ProbeKind, ProbeStage, Row};
use belljar_contract::{ExitCode, ProbeFinding, ProbeOutcome, ProbeResult, Verdict};
use belljar_sys::process::Prepare;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The content of a file of the host at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot(Option<Vec<u8>>);

pub(super) fn snapshot(path: &Path) -> Snapshot {
    let Ok(found) = path.symlink_metadata() else { return Snapshot(None) };
    Snapshot(Some(if found.is_symlink() {
        fs::read_link(path).map(|to| to.into_os_string().into_encoded_bytes()).unwrap_or_default()
    } else if found.is_file() {
        fs::read(path).unwrap_or_default()
    } else {
        // Reading a pipe would block.
        Vec::new()
    }))
}

/// The file of the host that a row watches.
pub(super) fn watched(row: &Row, scene: &Scene) -> Option<PathBuf> {
    match &row.seen {
        Evidence::Unchanged(path) | Evidence::Changed(path) | Evidence::Reported(path) => {
            Some(PathBuf::from(scene.text(path, row)))
        }
        Evidence::Answer
        | Evidence::NotSetuid(_)
        | Evidence::Quiet(_)
        | Evidence::NoProcess
        | Evidence::CleanProject
        | Evidence::Unheard(_)
        | Evidence::Heard(_)
        | Evidence::Unrecorded(_)
        | Evidence::Escaped(_) => None,
    }
}

fn open(how: impl Into<String>) -> ProbeResult {
    ProbeResult::Open { how: how.into() }
}

fn closed(how: impl Into<String>) -> ProbeResult {
    ProbeResult::Closed { how: how.into() }
}

fn answer(finding: &ProbeFinding) -> ProbeResult {
    match finding.outcome {
        ProbeOutcome::Open => open(&finding.detail),
        ProbeOutcome::Closed { .. } => closed(&finding.detail),
        ProbeOutcome::Unsupported => ProbeResult::Unseen { why: finding.detail.clone() },
    }
}

/// What a stage showed about a row.
pub(super) fn observe(row: &Row, scene: &Scene, before: &Snapshot, run: &StageRun) -> ProbeResult {
    let Some(finding) = run.findings.get(&row.id) else {
        let status = run.status.map_or("no status".to_owned(), |status| format!("status {status}"));
        let last_line = run.stderr.lines().last().unwrap_or_default();
        if refused(row, run) {
            let error = run.stderr.lines().find(|line| line.starts_with("error")).unwrap_or(last_line);
            return closed(format!("the launch was refused: {error}"));
        }
        return ProbeResult::Unseen { why: format!("the prober printed nothing ({status}) {last_line}") };
    };
    let said = &finding.detail;
    let path = watched(row, scene);
    let changed = path.as_deref().is_some_and(|path| snapshot(path) != *before);
    match &row.seen {
        Evidence::Answer => answer(finding),
        Evidence::Unchanged(_) if changed => open("the file on the host changed"),
        Evidence::Unchanged(_) => closed(format!("unchanged on the host; {said}")),
        // The project itself is not changed: what counts is that the change was possible.
        Evidence::Changed(_) if scene.keeps_changes => answer(finding),
        Evidence::Changed(_) if changed => open("the file on the host changed"),
        Evidence::Changed(_) => closed(format!("unchanged on the host; {said}")),
        Evidence::Reported(_) if !changed => closed(format!("unchanged on the host; {said}")),
        Evidence::Reported(_) => {
            let name = path.as_deref().and_then(|path| path.strip_prefix(&scene.project).ok());
            let named = name.is_some_and(|name| run.stderr.contains(&*name.to_string_lossy()));
            if named {
                ProbeResult::Reported { how: "it is on the host, and the supervisor reported it".to_owned() }
            } else {
                open("it is on the host, unreported")
            }
        }
        Evidence::NotSetuid(path) => {
            let file = PathBuf::from(scene.text(path, row));
            let set = file.symlink_metadata().is_ok_and(|found| found.permissions().mode() & 0o4000 != 0);
            if set {
                open("the bit is set on the host")
            } else {
                closed(format!("not set on the host; {said}"))
            }
        }
        Evidence::Quiet(listener) if scene.heard(*listener) => open("the host's listener heard it"),
        Evidence::Quiet(_) => closed(format!("the host's listener heard nothing; {said}")),
        Evidence::NoProcess if finding.outcome != ProbeOutcome::Open => {
            none_left(&scene.mark(row));
            ProbeResult::Unseen { why: format!("the process never existed: {said}") }
        }
        Evidence::NoProcess if none_left(&scene.mark(row)) => closed("no such process on the host"),
        Evidence::NoProcess => open("the process lives on"),
        Evidence::CleanProject => clean(scene),
        Evidence::Unrecorded(text) if stranger::recorded(&scene.home, &scene.text(text, row)) => {
            open("the record holds it")
        }
        Evidence::Unrecorded(_) => closed(format!("the record does not hold it; {said}")),
        Evidence::Escaped(name) => match shown(&run.stderr, &scene.text(name, row)) {
            // Kept changes are shown on request, by `diff`.
            ProbeResult::Unseen { .. } if scene.keeps_changes => {
                closed("the end of the run does not show it")
            }
            shown @ (ProbeResult::Open { .. }
            | ProbeResult::Reported { .. }
            | ProbeResult::Closed { .. }
            | ProbeResult::Unseen { .. }) => shown,
        },
        Evidence::Unheard(text) | Evidence::Heard(text) => match &scene.outside {
            Ok(outside) if outside.heard(&scene.text(text, row)) => open("a host heard it"),
            Ok(_) => closed(format!("no host heard it; {said}")),
            Err(why) => ProbeResult::Unseen { why: why.clone() },
        },
    }
}

/// Whether a name is shown with characters that a terminal would obey.
fn shown(lines: &str, name: &str) -> ProbeResult {
    // Split at newlines only: other control characters may end a line for `lines`.
    let naming: Vec<&str> = lines.split('\n').filter(|line| line.contains(name)).collect();
    let obeyed = |line: &&str| line.chars().any(char::is_control);
    match naming.as_slice() {
        [] => ProbeResult::Unseen { why: "nothing names it".to_owned() },
        lines if lines.iter().any(obeyed) => open("it is shown with its escape sequences"),
        _ => closed("it is shown without its escape sequences"),
    }
}

/// A refusal to start is an observation of the enforcing side.
fn refused(row: &Row, run: &StageRun) -> bool {
    let codes: &[ExitCode] = match row.stage {
        // A limit that cannot be enforced is refused as well.
        ProbeStage::Directory | ProbeStage::Unbuilt | ProbeStage::Filled | ProbeStage::Crowded => {
            &[ExitCode::LaunchFailed]
        }
        ProbeStage::Misspelt | ProbeStage::Widened => &[ExitCode::LaunchFailed, ExitCode::Invalid],
        ProbeStage::Idle
        | ProbeStage::Plain
        | ProbeStage::Terminal
        | ProbeStage::Killed
        | ProbeStage::Egress
        | ProbeStage::Stranger => &[],
    };
    codes.iter().any(|code| run.status == Some(code.code().into()))
}

fn clean(scene: &Scene) -> ProbeResult {
    let status =
        host_git(&scene.project, &scene.home).args(["status", "--porcelain"]).dies_with_spawner().output();
    match status {
        Ok(output) if output.status.success() && output.stdout.is_empty() => open("git finds nothing new"),
        Ok(output) => closed(String::from_utf8_lossy(&output.stdout).trim().replace('\n', " | ")),
        Err(error) => ProbeResult::Unseen { why: error.to_string() },
    }
}

/// The verdict on a row.
pub(super) fn judge(kind: ProbeKind, host: &ProbeResult, inside: &ProbeResult) -> Verdict {
    match (kind, host, inside) {
        (ProbeKind::Given, _, _) => Verdict::Given,
        (ProbeKind::Blocked, _, ProbeResult::Open { .. }) => Verdict::Open,
        (ProbeKind::Blocked, _, ProbeResult::Reported { .. }) => Verdict::Reported,
        (
            ProbeKind::Blocked,
            ProbeResult::Open { .. } | ProbeResult::Reported { .. },
            ProbeResult::Closed { .. },
        ) => Verdict::Closed,
        (
            ProbeKind::Blocked,
            ProbeResult::Open { .. } | ProbeResult::Reported { .. },
            ProbeResult::Unseen { .. },
        ) => Verdict::Unseen,
        (ProbeKind::Blocked, ProbeResult::Closed { .. } | ProbeResult::Unseen { .. }, _) => {
            Verdict::ProvesNothing
        }
        (ProbeKind::Control, _, ProbeResult::Open { .. } | ProbeResult::Reported { .. }) => Verdict::Works,
        (
            ProbeKind::Control,
            ProbeResult::Open { .. } | ProbeResult::Reported { .. },
            ProbeResult::Closed { .. } | ProbeResult::Unseen { .. },
        ) => Verdict::Broken,
        (ProbeKind::Control, ProbeResult::Closed { .. } | ProbeResult::Unseen { .. }, _) => {
            Verdict::ProvesNothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_counts_only_where_it_was_open_without_isolation() {
        let unseen = || ProbeResult::Unseen { why: String::new() };
        let reported = || ProbeResult::Reported { how: String::new() };
        let cases = [
            (ProbeKind::Blocked, open(""), closed(""), Verdict::Closed),
            (ProbeKind::Blocked, open(""), open(""), Verdict::Open),
            (ProbeKind::Blocked, open(""), reported(), Verdict::Reported),
            (ProbeKind::Blocked, closed(""), reported(), Verdict::Reported),
            (ProbeKind::Blocked, open(""), unseen(), Verdict::Unseen),
            (ProbeKind::Blocked, closed(""), closed(""), Verdict::ProvesNothing),
            (ProbeKind::Blocked, unseen(), closed(""), Verdict::ProvesNothing),
            (ProbeKind::Blocked, closed(""), open(""), Verdict::Open),
            (ProbeKind::Control, open(""), open(""), Verdict::Works),
            (ProbeKind::Control, open(""), closed(""), Verdict::Broken),
            (ProbeKind::Control, open(""), unseen(), Verdict::Broken),
            (ProbeKind::Control, unseen(), unseen(), Verdict::ProvesNothing),
        ];
        for (kind, host, inside, expected) in cases {
            assert_eq!(judge(kind, &host, &inside), expected, "{kind:?} {host:?} {inside:?}");
        }
    }
}
