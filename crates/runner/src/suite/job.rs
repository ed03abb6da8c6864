//! What came of the jobs of a suite, read from the output of their workers.

use super::schedule::{SuiteEnd, WorkerOutcome};
use belljar_contract::{AbsPath, ErrorText, ExitCode, ScenarioResult, SuiteCount};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A verb that runs many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuiteVerb {
    Test,
    Record,
    Replay,
    Refresh,
}

impl SuiteVerb {
    /// The verb as it is typed.
    #[must_use]
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Test => &["test"],
            Self::Record => &["record"],
            Self::Replay => &["replay"],
            Self::Refresh => &["tape", "refresh"],
        }
    }

    /// What its files are called in a list of them.
    #[must_use]
    pub const fn files(self) -> &'static str {
        match self {
            Self::Test | Self::Record => "scenarios",
            Self::Replay | Self::Refresh => "tapes",
        }
    }

    /// The row of a file that could not be used.
    #[must_use]
    pub fn row_of_error(self, file: &AbsPath, exit: ExitCode, line: &str) -> Value {
        let what = match self {
            Self::Test | Self::Record => "file",
            Self::Replay | Self::Refresh => "tape",
        };
        json!({what: file, "exit_code": exit.code(), "error": line})
    }

    /// Whether a row may belong to a worker that ended with this code.
    fn may_end_with(self, row: &Value, exit: ExitCode) -> bool {
        let same = row["exit_code"] == exit.code();
        match self {
            Self::Test | Self::Replay => same,
            // A tape of a failing run, which the user wanted.
            Self::Record | Self::Refresh => same || (exit == ExitCode::Passed && row["tape"].is_string()),
        }
    }
}

/// What came of one job.
#[derive(Debug, Clone)]
pub struct JobResult {
    pub exit: ExitCode,
    /// As `--json` prints it.
    pub row: Value,
    /// The run, or why there was none; `None` if none was needed.
    pub run: Option<ScenarioResult>,
}

/// What came of the jobs of a suite, in their order.
#[derive(Debug)]
pub struct SuiteOutcome {
    pub jobs: Vec<JobResult>,
    pub end: SuiteEnd,
}

impl SuiteOutcome {
    /// A suite of one job, which ran in this process.
    #[must_use]
    pub fn alone(exit: ExitCode, row: Value) -> Self {
        let end = SuiteEnd { not_started: 0, interrupted: exit == ExitCode::Interrupted };
        Self { jobs: vec![JobResult { exit, row, run: None }], end }
    }

    #[must_use]
    pub fn exit(&self) -> ExitCode {
        ExitCode::of_all(self.exits(), self.count().interrupted)
    }

    #[must_use]
    pub fn count(&self) -> SuiteCount {
        SuiteCount::of(self.exits(), self.end.not_started, self.end.interrupted)
    }

    fn exits(&self) -> impl Iterator<Item = ExitCode> {
        self.jobs.iter().map(|job| job.exit)
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let SuiteCount { passed, failed, ended_early: _, not_started, interrupted } = self.count();
        let rows: Vec<&Value> = self.jobs.iter().map(|job| &job.row).collect();
        json!({"results": rows, "passed": passed, "failed": failed,
            "interrupted": interrupted, "not_started": not_started})
    }
}

/// The part of a worker's output that a suite reads.
#[derive(Deserialize)]
struct WorkerEnvelope {
    /// Results, or what belongs to an error.
    #[serde(default)]
    data: Value,
    error: Option<ErrorText>,
    #[serde(default)]
    diagnostics: Vec<Value>,
}

/// A row of a verb that says more about a run than its result.
#[derive(Deserialize)]
struct WorkerRow {
    #[serde(flatten)]
    run: ScenarioResult,
    #[serde(flatten)]
    _more: Map<String, Value>,
}

impl WorkerOutcome {
    /// The row that a worker printed, or why there is none. `name` is that of the job.
    #[must_use]
    pub fn job(self, verb: SuiteVerb, (file, name): (&AbsPath, &str)) -> JobResult {
        let Self { status, output, complaints, duration, interrupted } = self;
        // A worker without a status of belljar's own was killed, or could not be started properly.
        let lost = if interrupted { ExitCode::Interrupted } else { ExitCode::LaunchFailed };
        let exit = status.and_then(ExitCode::from_status).unwrap_or(lost);
        // A worker that printed an error, no result, or one that contradicts its status has not passed.
        let not_run = if exit == ExitCode::Passed { ExitCode::Bug } else { exit };
        let took_ms = Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let failed = |error: ErrorText, diagnostics: Vec<Value>| {
            let line: Vec<&str> =
                std::iter::once(&error.message).chain(&error.causes).map(|text| text.trim_end()).collect();
            let row = verb.row_of_error(file, not_run, &line.join(": "));
            let run =
                ScenarioResult { diagnostics, took_ms, ..ScenarioResult::not_run(name, not_run, error) };
            let row = if verb == SuiteVerb::Test { json!(run) } else { row };
            JobResult { exit: not_run, row, run: Some(run) }
        };
        let found = serde_json::from_slice::<WorkerEnvelope>(&output).ok();
        if let Some(WorkerEnvelope { error: Some(error), diagnostics, .. }) = found {
            return failed(error, diagnostics);
        }
        let row = found.and_then(|found| the_one_row(found.data)).filter(|row| verb.may_end_with(row, exit));
        row.and_then(|row| read(verb, (row, exit), took_ms))
            .unwrap_or_else(|| failed(ErrorText { message: complaints, ..ErrorText::default() }, Vec::new()))
    }
}

fn the_one_row(mut data: Value) -> Option<Value> {
    let rows = data.get_mut("results")?.as_array_mut()?;
    let last = rows.pop()?;
    rows.is_empty().then_some(last)
}

fn read(verb: SuiteVerb, (row, exit): (Value, ExitCode), took_ms: Option<u64>) -> Option<JobResult> {
    let timed = |run: ScenarioResult| ScenarioResult { took_ms, ..run };
    match verb {
        SuiteVerb::Test => {
            let run = timed(serde_json::from_value(row).ok()?);
            Some(JobResult { exit, row: json!(run), run: Some(run) })
        }
        SuiteVerb::Record | SuiteVerb::Replay => {
            let WorkerRow { run, .. } = WorkerRow::deserialize(&row).ok()?;
            Some(JobResult { exit, row, run: Some(timed(run)) })
        }
        // A tape that was current has no run.
        SuiteVerb::Refresh => {
            let run = WorkerRow::deserialize(&row).ok().map(|WorkerRow { run, .. }| timed(run));
            Some(JobResult { exit, row, run })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::Conclusion;
    use std::time::Duration;

    fn job(verb: SuiteVerb, status: Option<i32>, output: &str) -> JobResult {
        let (output, complaints) = (output.as_bytes().to_vec(), "it broke".to_owned());
        let duration = Duration::from_millis(7);
        let file = AbsPath::new("/a.yaml").unwrap();
        WorkerOutcome { status, output, complaints, duration, interrupted: false }
            .job(verb, (&file, "a.yaml"))
    }

    fn outcome(status: Option<i32>, output: &str) -> ScenarioResult {
        job(SuiteVerb::Test, status, output).run.unwrap()
    }

    #[test]
    fn a_worker_that_the_suite_ended_was_interrupted() {
        for (status, interrupted, expected) in [
            (None, true, ExitCode::Interrupted),
            (Some(130), true, ExitCode::Interrupted),
            (None, false, ExitCode::LaunchFailed),
            // One that had ended by itself before.
            (Some(2), true, ExitCode::Invalid),
        ] {
            let (output, complaints, duration) = (Vec::new(), String::new(), Duration::ZERO);
            let outcome = WorkerOutcome { status, output, complaints, duration, interrupted };
            let job = outcome.job(SuiteVerb::Test, (&AbsPath::new("/a.yaml").unwrap(), "a.yaml"));
            assert_eq!(job.exit, expected, "{status:?} {interrupted}");
            assert_eq!(job.row["exit_code"], expected.code(), "{status:?} {interrupted}");
        }
    }

    #[test]
    fn a_worker_that_printed_no_result_has_not_passed() {
        for (status, output, expected) in [
            (Some(0), "", ExitCode::Bug),
            (Some(0), "{}", ExitCode::Bug),
            (Some(0), r#"{"data": {"results": [], "passed": 0, "failed": 0}}"#, ExitCode::Bug),
            (Some(1), "not JSON", ExitCode::Failed),
            (None, "", ExitCode::LaunchFailed),
            (Some(2), r#"{"data": null, "error": {"message": "bad file"}}"#, ExitCode::Invalid),
            (Some(2), r#"{"data": {"wishes": []}, "error": {"message": "not agreed"}}"#, ExitCode::Invalid),
            (Some(0), r#"{"data": null, "error": {"message": "bad file"}}"#, ExitCode::Bug),
        ] {
            let result = outcome(status, output);
            assert_eq!(result.exit_code, expected.code(), "{status:?} {output}");
            assert_eq!((result.conclusion, result.took_ms), (None, Some(7)));
        }
    }

    #[test]
    fn a_result_that_contradicts_the_status_is_not_believed() {
        let mut passed = ScenarioResult::not_run("a", ExitCode::Passed, ErrorText::default());
        (passed.error, passed.conclusion) = (None, Some(Conclusion::Passed));
        let text = json!({"data": {"results": [passed]}}).to_string();
        assert!(outcome(Some(0), &text).passed());
        assert_eq!(outcome(Some(1), &text).exit_code, 1);
        assert_eq!(outcome(None, &text).exit_code, ExitCode::LaunchFailed.code());
    }

    #[test]
    fn the_row_of_a_verb_is_kept_with_all_that_it_says() {
        let mut failed = ScenarioResult::not_run("a", ExitCode::Failed, ErrorText::default());
        (failed.error, failed.conclusion) = (None, Some(Conclusion::Failed));
        let mut row = json!(failed);
        (row["tape"], row["replay"]) = (json!("/a.tape"), json!({"exact": 2}));
        let text = json!({"data": {"results": [row]}}).to_string();
        let replayed = job(SuiteVerb::Replay, Some(1), &text);
        assert_eq!((&replayed.row, replayed.run.unwrap().took_ms), (&row, Some(7)));
        // Only a recording passes with the tape of a run that failed.
        for (verb, expected) in [
            (SuiteVerb::Replay, ExitCode::Bug),
            (SuiteVerb::Test, ExitCode::Bug),
            (SuiteVerb::Record, ExitCode::Passed),
            (SuiteVerb::Refresh, ExitCode::Passed),
        ] {
            assert_eq!(job(verb, Some(0), &text).exit, expected, "{verb:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_in_the_form_of_its_verb() {
        let text = r#"{"data": null, "error": {"message": "bad file", "causes": ["line 3"]}}"#;
        for (verb, what) in
            [(SuiteVerb::Record, "file"), (SuiteVerb::Replay, "tape"), (SuiteVerb::Refresh, "tape")]
        {
            let row = job(verb, Some(2), text).row;
            assert_eq!(row, json!({what: "/a.yaml", "exit_code": 2, "error": "bad file: line 3"}));
        }
        assert_eq!(job(SuiteVerb::Test, Some(2), text).row["error"]["causes"], json!(["line 3"]));
    }
}
