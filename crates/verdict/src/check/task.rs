//! The agent's list of tasks, from the calls that keep it.

use super::{Check, Key, check};
use crate::finding::{Finding, count, excerpt};
use crate::run::Run;
use crate::value::{Count, Text, Yes};
use belljar_contract::Pattern;
use belljar_contract::decode::table;
use serde_json::Value;

pub(super) const KEYS: &[Key] = &[AllCompleted::KEY, TasksMin::KEY, Status::KEY];

check! {
    /// The agent created at least one task, and each is completed at the end. Needs the whole conversation.
    AllCompleted(Tasks, "all_tasks_completed", NotNeeded): Yes
}
check! {
    /// The agent created at least this many tasks.
    TasksMin(Tasks, "task_count_min", NotNeeded): Count
}

table! {
    "`task_status`"
    struct StatusSpec {
        /// Which task: its subject or its number matches.
        which as "match": Pattern,
        /// The status as the agent writes it, such as `completed`, `in_progress` or `pending`.
        status: Text,
    }
}

check! {
    /// A task whose subject or number matches has this status at the end. Needs the whole conversation.
    Status(Tasks, "task_status", NotNeeded): StatusSpec
}

/// A task as the calls leave it.
struct Task {
    number: String,
    subject: String,
    status: String,
    /// The events that say so.
    made: u64,
    changed: u64,
}

/// The tasks, or what of them cannot be read.
fn tasks(run: &Run<'_>) -> Result<Vec<Task>, Finding> {
    let mut tasks: Vec<Task> = Vec::new();
    for call in run.calls() {
        let Some(back) = call.back.filter(|back| !back.is_error) else { continue };
        match call.tool {
            "TaskCreate" => {
                let number = back.text.split_once("Task #").map(|(_, rest)| rest);
                let number = number.and_then(|rest| rest.split(|char: char| !char.is_ascii_digit()).next());
                let Some(number) = number.filter(|number| !number.is_empty()) else {
                    return Err(Finding::unknown("a task was created, but its number cannot be read")
                        .seen(back.seq, back.text));
                };
                let subject = call.text("subject").unwrap_or_default().to_owned();
                let (number, status) = (number.to_owned(), "pending".to_owned());
                tasks.push(Task { number, subject, status, made: back.seq, changed: back.seq });
            }
            "TaskUpdate" => {
                let id = match call.input.get("taskId") {
                    Some(Value::String(text)) => text.trim_start_matches('#').to_owned(),
                    Some(other) => other.to_string(),
                    None => continue,
                };
                let task = tasks.iter_mut().find(|task| task.number == id);
                if let (Some(task), Some(status)) = (task, call.text("status")) {
                    status.clone_into(&mut task.status);
                    task.changed = back.seq;
                }
            }
            _ => {}
        }
    }
    // A task that was removed from the list does not count.
    tasks.retain(|task| task.status != "deleted");
    Ok(tasks)
}

impl Task {
    fn line(&self) -> String {
        format!("task {} is {}: {}", self.number, self.status, self.subject)
    }
}

impl Check for AllCompleted {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        let tasks = match tasks(run) {
            Ok(tasks) => tasks,
            Err(unknown) => return unknown,
        };
        if tasks.is_empty() {
            return run.fails_if_whole("no task was created");
        }
        if let Some(open) = tasks.iter().find(|task| task.status != "completed") {
            return run.fails_if_whole(excerpt(&open.line())).seen(open.changed, &open.line());
        }
        let finding = run.holds_if_whole(format!("{}, all completed", count(tasks.len(), "task")));
        tasks.iter().fold(finding, |finding, task| finding.seen(task.changed, &task.line()))
    }
}

impl Check for TasksMin {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let tasks = match tasks(run) {
            Ok(tasks) => tasks,
            Err(unknown) => return unknown,
        };
        let message = format!("{}, at least {} wanted", count(tasks.len(), "task"), self.0.0);
        if (tasks.len() as u64) < self.0.0 {
            return run.fails_if_whole(message);
        }
        // A task may be taken from the list later on, so the end must have been seen.
        let finding = run.holds_if_whole(message);
        tasks.iter().fold(finding, |finding, task| finding.seen(task.made, &task.line()))
    }
}

impl Check for Status {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let StatusSpec { which, status } = &self.0;
        let tasks = match tasks(run) {
            Ok(tasks) => tasks,
            Err(unknown) => return unknown,
        };
        let meant: Vec<&Task> = tasks
            .iter()
            .filter(|task| which.is_match(&task.subject) || which.is_match(&task.number))
            .collect();
        match meant.iter().find(|task| task.status == status.0) {
            Some(task) => run.holds_if_whole(excerpt(&task.line())).seen(task.changed, &task.line()),
            None => {
                let finding = run.fails_if_whole(format!("no task that matches is {}", excerpt(&status.0)));
                meant.iter().fold(finding, |finding, task| finding.seen(task.changed, &task.line()))
            }
        }
    }
}
