//! Writes a run, one line at a time.

use crate::disk::{make_private, write_atomically, write_whole};
use crate::error::WriteError;
use crate::line::{self, LINE_MAX, LOG_MAX};
use crate::listing::{Unguessable, hide_digests, redact_names};
use crate::redact::{Redact, redact_event, redact_text, redact_value};
use belljar_contract::{
    AbsPath, Digest, Event, FilesSeen, FrameWay, Metrics, PatientScrubStream, RUN_FORMAT, RunHead, RunResult,
    RunStatus, frames_chain,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The maximum number of bytes kept of the agent's standard error.
pub const STDERR_MAX: u64 = 16 << 20;

/// The file with the text of the scenario.
pub const SCENARIO: &str = "scenario.yaml";
/// The file with a session that no file had before the run. Its paths are absolute.
pub const SESSION: &str = "session.yaml";

/// A run in progress. The kernel releases its lock when the process dies, however it dies.
#[derive(Debug)]
pub struct RunWriter {
    directory: AbsPath,
    log: LogFile,
    redact: Redact,
    _lock: File,
}

#[derive(Debug)]
struct LogFile {
    path: AbsPath,
    file: File,
    /// The length of all complete lines in bytes.
    length: u64,
    /// Whether an incomplete line may follow them.
    torn: bool,
    seq: u64,
    chain: Digest,
}

/// Creates a file that only the user can read.
pub(crate) fn new_file(path: &AbsPath) -> Result<File, WriteError> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|cause| WriteError::Write { path: path.clone(), cause })
}

/// The content of `run.json`. Names in it have closed alphabets and are part of the directory's name anyway; free
/// text is redacted.
pub(crate) fn head_text(head: &RunHead, redact: &Redact) -> String {
    let mut head = head.clone();
    redact_value(&mut head.plan, redact);
    head.versions.values_mut().for_each(|text| redact_text(text, redact));
    head.host.values_mut().for_each(|value| redact_value(value, redact));
    document(&head)
}

/// A file that people read, so it is indented.
pub(crate) fn document(value: &impl Serialize) -> String {
    // All keys are strings, so serialising does not fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

impl RunWriter {
    /// Takes over a directory in which `lock` is held and `run.json` exists.
    pub(crate) fn begin(
        directory: AbsPath,
        head: &RunHead,
        head_text: &str,
        redact: Redact,
        lock: File,
    ) -> Result<Self, WriteError> {
        let path = directory.child("events.jsonl");
        let log = LogFile {
            file: new_file(&path)?,
            path,
            length: 0,
            torn: false,
            seq: 0,
            chain: Digest::of(head_text.as_bytes()),
        };
        let mut writer = Self { directory, log, redact, _lock: lock };
        let RunHead {
            format: _,
            event_format: _,
            id,
            name,
            agent,
            instance: _,
            backend,
            purpose,
            started_at_ms,
            versions,
            host: _,
            plan_digest,
            plan: _,
        } = head;
        writer.emit(
            0,
            &Event::RunStarted {
                run: id.clone(),
                name: name.clone(),
                agent: agent.clone(),
                plan: *plan_digest,
                backend: *backend,
                purpose: *purpose,
                belljar: versions.get("belljar").cloned().unwrap_or_default(),
                started_at_ms: *started_at_ms,
            },
        )?;
        Ok(writer)
    }

    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    pub(crate) fn moved_to(&mut self, directory: AbsPath) {
        self.log.path = directory.child("events.jsonl");
        self.directory = directory;
    }

    /// Appends an event that happened `offset_ms` after the start. Once this returns, the event survives the death of
    /// this process.
    ///
    /// # Errors
    /// When it cannot be written. The log then ends with the previous event; a later attempt may succeed.
    pub fn emit(&mut self, offset_ms: u64, event: &Event) -> Result<(), WriteError> {
        let mut value = json!(event);
        redact_event(&mut value, &self.redact);
        self.log.append(offset_ms, &value)
    }

    /// Stores a text among the artifacts. Its name and each of its parts are redacted separately.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, name: &str, parts: &[&str]) -> Result<(), WriteError> {
        let path = self.artifacts()?.child(&self.redact.scrub(name).replace('/', "_"));
        let parts: Vec<Cow<'_, [u8]>> = parts.iter().map(|part| self.scrubbed(part.as_bytes())).collect();
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        write_whole(&path, &parts).map_err(|cause| WriteError::Write { path, cause })
    }

    /// Stores the text of the scenario as it is used, redacted; returns whether a secret was replaced in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_scenario(&self, text: &[u8]) -> Result<bool, WriteError> {
        self.keep_input(SCENARIO, text)
    }

    /// Stores the text of a session that the command line described, redacted; returns whether a secret was replaced in
    /// it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_session(&self, text: &[u8]) -> Result<bool, WriteError> {
        self.keep_input(SESSION, text)
    }

    fn keep_input(&self, name: &str, text: &[u8]) -> Result<bool, WriteError> {
        let path = self.directory.child(name);
        let scrubbed = self.redact.scrub_bytes(text);
        write_whole(&path, &[scrubbed.as_deref().unwrap_or(text)])
            .map_err(|cause| WriteError::Write { path, cause })?;
        Ok(scrubbed.is_some())
    }

    fn scrubbed<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        self.redact.scrub_bytes(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// Stores the listing of a workspace and the contents in it; returns the digest of the listing. Names and
    /// contents are redacted, and contents cannot be guessed from the digests.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_files(&self, mut files: FilesSeen) -> Result<Digest, WriteError> {
        let kept = self.artifacts()?.child("files");
        let key = Unguessable::new().map_err(|cause| WriteError::Write { path: kept.clone(), cause })?;
        redact_names(&mut files, &self.redact);
        let mut as_they_were = BTreeSet::new();
        for (name, file) in &mut files.after {
            // An unchanged file can be taken from its source.
            let fresh = files.before.get(name).is_none_or(|before| before.digest != file.digest);
            let (Some(body), true) = (file.body.take(), fresh) else { continue };
            let path = kept.child(name);
            let made = path.parent().map_or(Ok(()), |parent| make_private(parent.as_path()));
            let scrubbed = self.redact.scrub_bytes(&body);
            file.kept = scrubbed.as_deref().map(Digest::of);
            if scrubbed.is_none() {
                as_they_were.insert(name.clone());
            }
            // The listing has the file's digest and the log has the listing's, so a truncated file after a power
            // failure is detected.
            made.and_then(|()| write_whole(&path, &[scrubbed.as_deref().unwrap_or(&body)]))
                .map_err(|cause| WriteError::Write { path, cause })?;
        }
        hide_digests(&mut files, &as_they_were, &key);
        let text = document(&json!(files));
        let path = self.directory.child("files.json");
        write_whole(&path, &[text.as_bytes()]).map_err(|cause| WriteError::Write { path, cause })?;
        Ok(Digest::of(text.as_bytes()))
    }

    /// The directory for artifacts, created when it is first needed.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn artifacts(&self) -> Result<AbsPath, WriteError> {
        let path = self.directory.child("artifacts");
        match make_private(path.as_path()) {
            Ok(()) => Ok(path),
            Err(cause) => Err(WriteError::Make { path, cause }),
        }
    }

    /// Creates the file for the agent's standard error. Can be called once.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn agent_stderr(&self) -> Result<AgentStderr, WriteError> {
        let file = new_file(&self.directory.child("agent.stderr"))?;
        Ok(AgentStderr { file, scrubbed: self.redact.patient_stream(), left: STDERR_MAX })
    }

    /// Creates the record of the conversation's frames. Can be called once.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn frames(&self) -> Result<FrameLog, WriteError> {
        let path = self.directory.child("frames.jsonl");
        let redact = Arc::clone(&self.redact);
        Ok(FrameLog { file: new_file(&path)?, path, redact, left: LOG_MAX, head: None })
    }

    /// Creates the file of the egress log; the run's services write its rows. Can be called once.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn egress_log(&self) -> Result<File, WriteError> {
        new_file(&self.directory.child("egress.jsonl"))
    }

    /// Creates the file of the model log; the run's services write its rows. Can be called once.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn model_log(&self) -> Result<File, WriteError> {
        new_file(&self.directory.child("model.jsonl"))
    }

    /// Ends the run: writes the last event, then the result. Returns the path of the directory.
    ///
    /// # Errors
    /// When either cannot be written; the run then counts as incomplete.
    pub fn finish(
        mut self,
        duration_ms: u64,
        status: RunStatus,
        metrics: Metrics,
    ) -> Result<AbsPath, WriteError> {
        self.emit(duration_ms, &Event::RunEnded { status: status.clone(), duration_ms })?;
        let failed = |path: &AbsPath, cause| WriteError::Write { path: path.clone(), cause };
        self.log.file.sync_all().map_err(|cause| failed(&self.log.path, cause))?;
        let LogFile { seq: events, chain, .. } = self.log;
        let result = RunResult { format: RUN_FORMAT, status, duration_ms, metrics, events, chain };
        let mut value = json!(result);
        // The only free text in it is the reason why a command was not started.
        redact_value(&mut value["status"], &self.redact);
        let path = self.directory.child("result.json");
        write_atomically(&path, document(&value).as_bytes()).map_err(|cause| failed(&path, cause))?;
        Ok(self.directory)
    }
}

impl LogFile {
    fn append(&mut self, offset_ms: u64, event: &Value) -> Result<(), WriteError> {
        let (line, chain) = line::encode(&self.chain, self.seq, offset_ms, event);
        let bytes = line.len();
        if bytes > LINE_MAX {
            return Err(WriteError::TooLong { path: self.path.clone(), bytes, limit: LINE_MAX });
        }
        if self.length + bytes as u64 > LOG_MAX {
            return Err(WriteError::TooLarge { path: self.path.clone(), limit: LOG_MAX });
        }
        // A single unbuffered write, so that a reader finds complete lines and nothing is lost with the process.
        let written = self.mend().and_then(|()| self.file.write_all(line.as_bytes()));
        if let Err(cause) = written {
            self.torn = true;
            // Repeated before the next line if it fails now.
            self.mend().ok();
            return Err(WriteError::Write { path: self.path.clone(), cause });
        }
        self.length += bytes as u64;
        self.seq += 1;
        self.chain = chain;
        Ok(())
    }

    /// Removes the rest of a failed write.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// The frames of a conversation as sent and received, redacted, one per line.
#[derive(Debug)]
pub struct FrameLog {
    path: AbsPath,
    file: File,
    redact: Redact,
    left: u64,
    head: Option<Digest>,
}

impl FrameLog {
    /// The chain of the last line; `None` before the first.
    #[must_use]
    pub const fn head(&self) -> Option<Digest> {
        self.head
    }

    /// Appends a frame that was sent or received `offset_ms` after the start.
    ///
    /// # Errors
    /// When it cannot be written, or the log is full.
    pub fn line(&mut self, offset_ms: u64, way: FrameWay, mut frame: Value) -> Result<(), WriteError> {
        let way = match way {
            FrameWay::In => "in",
            FrameWay::Out => "out",
        };
        redact_value(&mut frame, &self.redact);
        let frame = line::text(&frame);
        let line = format!("{{\"offset_ms\":{offset_ms},\"way\":\"{way}\",\"frame\":{frame}}}\n");
        let Some(left) = self.left.checked_sub(line.len() as u64) else {
            return Err(WriteError::TooLarge { path: self.path.clone(), limit: LOG_MAX });
        };
        self.left = left;
        self.head = Some(frames_chain(self.head, line.as_bytes()));
        self.file
            .write_all(line.as_bytes())
            .map_err(|cause| WriteError::Write { path: self.path.clone(), cause })
    }
}

/// Stores the agent's standard error, redacted as it arrives, up to [`STDERR_MAX`] bytes.
#[derive(Debug)]
pub struct AgentStderr {
    file: File,
    scrubbed: PatientScrubStream,
    left: u64,
}

impl AgentStderr {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() || self.left == 0 {
            return Ok(());
        }
        let cut = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.file.write_all(&bytes[..cut])?;
        self.left -= cut as u64;
        if self.left == 0 {
            self.file.write_all(b"\n[belljar: the rest was not kept]\n")?;
        }
        Ok(())
    }
}

impl Write for AgentStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let scrubbed = self.scrubbed.push(bytes);
        self.put(&scrubbed)?;
        Ok(bytes.len())
    }

    /// Also writes the bytes that were held back; for the end of the stream.
    fn flush(&mut self) -> io::Result<()> {
        let rest = self.scrubbed.finish();
        self.put(&rest)
    }
}
