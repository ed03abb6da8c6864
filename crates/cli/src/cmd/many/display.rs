//! The progress of a suite: a line for each job that ended, and on a terminal a line with the running ones.

use super::Suite;
use belljar_contract::{AbsPath, ExitCode};
use belljar_report::{Moment, render_open, render_result};
use belljar_runner::suite::{JobResult, SuiteNews};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Instant;

pub(super) struct Display<'a> {
    suite: &'a Suite<'a>,
    jobs: &'a [(&'a AbsPath, u32)],
    names: &'a [String],
    /// Whether it was printed what nothing enforces.
    unsealed_shown: bool,
    running: BTreeMap<usize, Instant>,
    results: Vec<(usize, JobResult)>,
}

impl<'a> Display<'a> {
    pub(super) fn new(suite: &'a Suite<'a>, jobs: &'a [(&'a AbsPath, u32)], names: &'a [String]) -> Self {
        let (running, results) = (BTreeMap::new(), Vec::new());
        Self { suite, jobs, names, unsealed_shown: false, running, results }
    }

    /// What came of each job, in the order in which they ended.
    pub(super) fn into_results(self) -> Vec<(usize, JobResult)> {
        self.results
    }

    pub(super) fn take(&mut self, news: SuiteNews) {
        match news {
            SuiteNews::Began { job } => {
                self.running.insert(job, Instant::now());
            }
            SuiteNews::Ended { job, outcome } => {
                self.running.remove(&job);
                let result = outcome.job(self.suite.verb, (self.jobs[job].0, &self.names[job]));
                self.clear();
                if !self.suite.output.json {
                    self.print(job, &result);
                }
                self.results.push((job, result));
            }
            SuiteNews::Tick => {}
            SuiteNews::Stopping => {
                self.clear();
                self.suite.output.say("belljar: interrupted; those that run are ended");
            }
        }
        self.status();
    }

    fn print(&mut self, job: usize, result: &JobResult) {
        let Suite { quiet, output, print, .. } = *self.suite;
        if let Some(run) =
            result.run.as_ref().filter(|run| !self.unsealed_shown && !run.not_isolated.is_empty())
        {
            self.unsealed_shown = true;
            output.say(&render_open(&run.not_isolated, output.err_style()));
        }
        if quiet && result.exit == ExitCode::Passed {
            return;
        }
        let moment = if quiet { Moment::Hidden } else { Moment::Shown };
        if let Some(run) = &result.run {
            output.say(&render_result(&self.names[job], run, moment, output.err_style()));
        }
        print(self.jobs[job].0, result);
    }

    fn live(&self) -> bool {
        !self.suite.output.json && !self.suite.quiet && std::io::stderr().is_terminal()
    }

    fn clear(&self) {
        if self.live() {
            self.suite.output.paint("");
        }
    }

    fn status(&self) {
        if !self.live() || self.running.is_empty() {
            return;
        }
        let oldest = self.running.iter().min_by_key(|(_, since)| **since);
        let (name, seconds) = oldest
            .map(|(job, since)| (self.names[*job].as_str(), since.elapsed().as_secs()))
            .unwrap_or_default();
        let (done, all, running) = (self.results.len(), self.names.len(), self.running.len());
        self.suite.output.paint(&format!("{done}/{all} done, {running} running, {name} for {seconds} s"));
    }
}
