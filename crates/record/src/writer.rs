//! Writing a run, a line at a time.

use crate::disk::{make_private, write_atomically, write_whole};
use crate::error::WriteError;
use crate::line::{self, LINE_MAX, LOG_MAX};
use crate::listing::{Unguessable, hide_digests, redact_names};
use crate::redact::{Redact, redact_event, redact_text, redact_value};
use belljar_contract::{
    AbsPath, Digest, Event, FilesSeen, Metrics, PatientScrubStream, RUN_FORMAT, RunHead, RunResult,
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

/// What is kept of the agent's standard error; what is beyond is dropped.
pub const STDERR_MAX: u64 = 16 << 20;

/// A run that is going on. The kernel lets its lock go when the process dies, however it dies.
#[derive(Debug)]
pub struct RunWriter {
    directory: AbsPath,
    log: Log,
    redact: Redact,
    _lock: File,
}

#[derive(Debug)]
struct Log {
    path: AbsPath,
    file: File,
    /// How many bytes are whole lines.
    length: u64,
    /// A line may stand half behind them.
    torn: bool,
    seq: u64,
    chain: Digest,
}

/// A new file that only the user can read.
pub(crate) fn new_file(path: &AbsPath) -> Result<File, WriteError> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|cause| WriteError::Write { path: path.clone(), cause })
}

/// What `run.json` holds. The head's own words have closed alphabets and stand in the folder's name anyway; what is
/// free text is redacted.
pub(crate) fn head_text(head: &RunHead, redact: &Redact) -> String {
    let mut head = head.clone();
    redact_value(&mut head.plan, redact);
    head.versions.values_mut().for_each(|text| redact_text(text, redact));
    head.host.values_mut().for_each(|value| redact_value(value, redact));
    document(&head)
}

/// A file that people look at.
fn document(value: &impl Serialize) -> String {
    // What has only texts for names can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

impl RunWriter {
    /// Takes over a folder in which `lock` is held and `run.json` stands.
    pub(crate) fn begin(
        directory: AbsPath,
        head: &RunHead,
        head_text: &str,
        redact: Redact,
        lock: File,
    ) -> Result<Self, WriteError> {
        let path = directory.child("events.jsonl");
        let log = Log {
            file: new_file(&path)?,
            path,
            length: 0,
            torn: false,
            seq: 0,
            chain: Digest::of(head_text.as_bytes()),
        };
        let mut writer = Self { directory, log, redact, _lock: lock };
        let RunHead { id, name, agent, backend, purpose, started_at_ms, versions, plan_digest, .. } = head;
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

    /// The run's folder.
    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    pub(crate) fn moved_to(&mut self, directory: AbsPath) {
        self.log.path = directory.child("events.jsonl");
        self.directory = directory;
    }

    /// Appends an event that happened `offset_ms` after the start. When this returns, the death of this process
    /// cannot undo it.
    ///
    /// # Errors
    /// When it cannot be written. The log then ends with the event before; a later attempt may succeed.
    pub fn emit(&mut self, offset_ms: u64, event: &Event) -> Result<(), WriteError> {
        let mut value = json!(event);
        redact_event(&mut value, &self.redact);
        self.log.append(offset_ms, &value)
    }

    /// Keeps a text among the artifacts, redacted like everything else, its name included. Its parts are redacted each by itself.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, name: &str, parts: &[&str]) -> Result<(), WriteError> {
        let path = self.artifacts()?.child(&self.redact.scrub(name).replace('/', "_"));
        let parts: Vec<Cow<'_, [u8]>> = parts.iter().map(|part| self.scrubbed(part.as_bytes())).collect();
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        write_whole(&path, &parts).map_err(|cause| WriteError::Write { path, cause })
    }

    fn scrubbed<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        self.redact.scrub_bytes(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// Keeps the listing of a workspace, and the contents that it holds; gives the digest of the listing. Names and contents
    /// are redacted, and no content can be guessed from a digest.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_files(&self, mut files: FilesSeen) -> Result<Digest, WriteError> {
        let kept = self.artifacts()?.child("files");
        let key = Unguessable::new().map_err(|cause| WriteError::Write { path: kept.clone(), cause })?;
        redact_names(&mut files, &self.redact);
        let mut as_they_were = BTreeSet::new();
        for (name, file) in &mut files.after {
            // Unchanged files are where they came from.
            let fresh = files.before.get(name).is_none_or(|before| before.digest != file.digest);
            let (Some(body), true) = (file.body.take(), fresh) else { continue };
            let path = kept.child(name);
            let made = path.parent().map_or(Ok(()), |parent| make_private(parent.as_path()));
            let scrubbed = self.redact.scrub_bytes(&body);
            file.kept = scrubbed.as_deref().map(Digest::of);
            if scrubbed.is_none() {
                as_they_were.insert(name.clone());
            }
            // The listing has its digest and the log has the listing's: a power cut cannot pass one off for another.
            made.and_then(|()| write_whole(&path, &[scrubbed.as_deref().unwrap_or(&body)]))
                .map_err(|cause| WriteError::Write { path, cause })?;
        }
        hide_digests(&mut files, &as_they_were, &key);
        let text = document(&json!(files));
        let path = self.directory.child("files.json");
        write_whole(&path, &[text.as_bytes()]).map_err(|cause| WriteError::Write { path, cause })?;
        Ok(Digest::of(text.as_bytes()))
    }

    /// The folder for what the agent wrote, made when it is first wanted.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn artifacts(&self) -> Result<AbsPath, WriteError> {
        let path = self.directory.child("artifacts");
        match make_private(path.as_path()) {
            Ok(()) => Ok(path),
            Err(cause) => Err(WriteError::Make { path, cause }),
        }
    }

    /// The place for what the agent writes to standard error. There is one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn agent_stderr(&self) -> Result<AgentStderr, WriteError> {
        let file = new_file(&self.directory.child("agent.stderr"))?;
        Ok(AgentStderr { file, scrubbed: self.redact.patient_stream(), left: STDERR_MAX })
    }

    /// The place for the frames of the conversation. There is one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn frames(&self) -> Result<FrameLog, WriteError> {
        let path = self.directory.child("frames.jsonl");
        let redact = Arc::clone(&self.redact);
        Ok(FrameLog { file: new_file(&path)?, path, redact, left: LOG_MAX, head: None })
    }

    /// The file of the egress log, whose rows the services of the run write. There is one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn egress_log(&self) -> Result<File, WriteError> {
        new_file(&self.directory.child("egress.jsonl"))
    }

    /// The file of the model log, whose rows the services of the run write. There is one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn model_log(&self) -> Result<File, WriteError> {
        new_file(&self.directory.child("model.jsonl"))
    }

    /// Ends the run: the last event, then the result. The folder's path is returned, to be shown.
    ///
    /// # Errors
    /// When either cannot be written; the run then reads as incomplete.
    pub fn finish(
        mut self,
        duration_ms: u64,
        status: RunStatus,
        metrics: Metrics,
    ) -> Result<AbsPath, WriteError> {
        self.emit(duration_ms, &Event::RunEnded { status: status.clone(), duration_ms })?;
        let failed = |path: &AbsPath, cause| WriteError::Write { path: path.clone(), cause };
        self.log.file.sync_all().map_err(|cause| failed(&self.log.path, cause))?;
        let Log { seq: events, chain, .. } = self.log;
        let result = RunResult { format: RUN_FORMAT, status, duration_ms, metrics, events, chain };
        let mut value = json!(result);
        // The one free text in it is why a command was not started.
        redact_value(&mut value["status"], &self.redact);
        let path = self.directory.child("result.json");
        write_atomically(&path, document(&value).as_bytes()).map_err(|cause| failed(&path, cause))?;
        Ok(self.directory)
    }
}

impl Log {
    fn append(&mut self, offset_ms: u64, event: &Value) -> Result<(), WriteError> {
        let (line, chain) = line::encode(&self.chain, self.seq, offset_ms, event);
        let bytes = line.len();
        if bytes > LINE_MAX {
            return Err(WriteError::TooLong { path: self.path.clone(), bytes, limit: LINE_MAX });
        }
        if self.length + bytes as u64 > LOG_MAX {
            return Err(WriteError::TooLarge { path: self.path.clone(), limit: LOG_MAX });
        }
        // In one write, so that a reader finds whole lines, and without a buffer that would die with the process.
        let written = self.mend().and_then(|()| self.file.write_all(line.as_bytes()));
        if let Err(cause) = written {
            self.torn = true;
            // Tried again before the next line if it fails now.
            self.mend().ok();
            return Err(WriteError::Write { path: self.path.clone(), cause });
        }
        self.length += bytes as u64;
        self.seq += 1;
        self.chain = chain;
        Ok(())
    }

    /// Takes away what a failed write left.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Whose frame it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameWay {
    /// The agent's.
    In,
    /// belljar's.
    Out,
}

/// The frames of a conversation, as they went over the wire but for secrets, a line each.
#[derive(Debug)]
pub struct FrameLog {
    path: AbsPath,
    file: File,
    redact: Redact,
    left: u64,
    head: Option<Digest>,
}

impl FrameLog {
    /// The chain of the last line, once there is one.
    #[must_use]
    pub const fn head(&self) -> Option<Digest> {
        self.head
    }

    /// Appends a frame that came or went `offset_ms` after the start.
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

/// Takes what the agent writes to standard error, redacts it as it comes, and keeps [`STDERR_MAX`] bytes of it.
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

    /// Writes what was held back as well: for the end of the stream.
    fn flush(&mut self) -> io::Result<()> {
        let rest = self.scrubbed.finish();
        self.put(&rest)
    }
}
