//! A conversation with an agent in its sandbox: the streams, the protocol's state machine, and the deciders.
//!
//! This code never blocks. Deciders that take time run in their own threads, so that deadlines, signals and withdrawals
//! of the agent are handled meanwhile.

mod console;
mod external;
mod model_line;
mod request;
mod streams;
mod texts;

pub use external::{ExternalDecider, Pending, Spoken, Stopper};
pub(crate) use external::{Incoming, Mailbox};
pub(crate) use model_line::ModelCall;
pub use model_line::{ModelCalls, ModelLine};
pub(crate) use request::ConversationRecord;
pub use request::{ConversationRequest, ConversationTimes, Deciders, React, Then};
pub(crate) use texts::Keeping;

use crate::session::console::Emit;
use belljar_contract::{
    Deadline, Digest, Event, Frame, FrameWay, MessageId, Observation, ProtocolFlaw, RequestId, SessionState,
    Speaker, UserMessage,
};
use belljar_sandbox::{StreamEnd, Streams};
use belljar_session::decider::{Chain, Unanswered};
use belljar_session::{Answer, Command, Decoder, Item, Machine, Output, Question, encode};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use streams::{Ours, Taken, take, write_some};
use texts::shortened;

/// How much of the conversation a decider receives, in bytes.
const TRANSCRIPT: usize = 16 << 10;

/// A running conversation.
pub(crate) struct Talk {
    machine: Machine,
    decoder: Option<Decoder>,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    unsent: VecDeque<u8>,
    close_when_sent: bool,
    messages: VecDeque<String>,
    said: u64,
    mailbox: Mailbox,
    chain: Chain,
    /// The name of the scenario, for deciders.
    scenario: Option<String>,
    react: Option<React>,
    record: ConversationRecord,
    record_failed: bool,
    times: ConversationTimes,
    handshake: Option<Instant>,
    exit: Option<Instant>,
    stalled: Option<Instant>,
    dismissed: bool,
    not_kept: u64,
    keeping: Keeping,
    transcript: String,
}

impl Talk {
    /// Opens the streams; the first frames are sent with the first pump.
    pub fn open(
        request: ConversationRequest,
        record: ConversationRecord,
    ) -> std::io::Result<(Self, Streams)> {
        let ConversationRequest { config, messages, then, deciders, react, times } = request;
        let (input, stdin) = streams::open(Ours::Write)?;
        let (output, stdout) = streams::open(Ours::Read)?;
        let (errors, stderr) = streams::open(Ours::Read)?;
        let Deciders { chain, outside, scenario } = deciders;
        let talk = Self {
            machine: Machine::new(config),
            decoder: Some(Decoder::default()),
            input: Some(input),
            output: Some(output),
            errors: Some(errors),
            unsent: VecDeque::new(),
            close_when_sent: false,
            messages: messages.into(),
            said: 0,
            mailbox: Mailbox::new(outside, then)?,
            chain,
            scenario,
            react,
            record,
            record_failed: false,
            times,
            handshake: None,
            exit: None,
            stalled: None,
            dismissed: false,
            not_kept: 0,
            keeping: Keeping::default(),
            transcript: String::new(),
        };
        let streams = Streams {
            stdin: StreamEnd::Open(stdin),
            stdout: StreamEnd::Open(stdout),
            stderr: StreamEnd::Open(stderr),
        };
        Ok((talk, streams))
    }

    /// Sends the first frames.
    pub fn begin(&mut self, emit: Emit<'_>) {
        self.handshake = Some(Instant::now() + self.times.handshake);
        let begun = self.machine.on_command(Command::Begin);
        self.carry_out(begun, emit);
        self.next_message(emit);
    }

    fn offset_ms(&self) -> u64 {
        u64::try_from(self.record.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A frame that cannot be recorded ends the run: an incomplete record would be judged as if it were complete.
    fn keep(&mut self, direction: FrameWay, frame: serde_json::Value, emit: Emit<'_>) {
        let kept = self.record.frames.line(self.offset_ms(), direction, frame);
        if let (Err(error), false) = (kept, self.record_failed) {
            self.record_failed = true;
            self.dismissed = true;
            self.not_kept += 1;
            emit(&Event::Notice { text: format!("the conversation cannot be recorded: {error}") });
        }
    }

    fn next_message(&mut self, emit: Emit<'_>) {
        match self.messages.pop_front() {
            Some(text) => self.say(text, emit),
            None if self.mailbox.listens() => self.mailbox.ready(),
            None => {
                let outputs = self.machine.on_command(Command::EndInput);
                self.carry_out(outputs, emit);
            }
        }
    }

    fn say(&mut self, text: String, emit: Emit<'_>) {
        self.said += 1;
        // The agent expects a UUID, and a continued conversation must not receive the same one twice.
        let hash = Digest::of(format!("{} {}", self.record.run, self.said).as_bytes()).to_string();
        let hex = &hash[hash.len() - 32..];
        let id = format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        if let Ok(id) = MessageId::new(id) {
            let outputs = self.machine.on_command(Command::Say(UserMessage { id, text }));
            self.carry_out(outputs, emit);
        }
    }

    fn take_item(&mut self, item: Item, emit: Emit<'_>) {
        let outputs = match item {
            Item::Frame(frame) => {
                let Frame { raw, body } = *frame;
                let outputs = self.machine.on_frame(body);
                self.watch_stall(&outputs);
                self.keep(FrameWay::In, raw, emit);
                outputs
            }
            Item::Noise { line, why } => {
                let text = String::from_utf8_lossy(&line).into_owned();
                self.keep(FrameWay::In, serde_json::json!({"unread": shortened(&text, 4096).0}), emit);
                self.machine.on_unread(why)
            }
            Item::Oversized { head: _, bytes } => {
                self.machine.on_unread(format!("a line of {bytes} bytes was not kept"))
            }
            Item::CutOff { line } => {
                self.machine.on_unread(format!("the output ended in the middle of a line of {}", line.len()))
            }
        };
        self.carry_out(outputs, emit);
    }

    /// Sets a deadline for an agent that reports to be idle although something is still expected of it: it either
    /// continues soon or never.
    fn watch_stall(&mut self, outputs: &[Output]) {
        let idle = |output: &Output| {
            matches!(output, Output::Observe(Observation::StateChanged { state: SessionState::Idle }))
        };
        let stalls = self.exit.is_none() && outputs.iter().any(idle) && !outputs.contains(&Output::Idle);
        self.stalled = stalls.then(|| Instant::now() + self.times.stalled);
    }

    fn carry_out(&mut self, outputs: Vec<Output>, emit: Emit<'_>) {
        for output in outputs {
            match output {
                Output::Send(frame) => {
                    self.unsent.extend(encode(&frame));
                    self.keep(FrameWay::Out, frame.to_json(), emit);
                }
                Output::Ask { request, question } => self.ask(request, question, emit),
                Output::Withdrawn { request } => self.mailbox.withdraw(&request),
                Output::Dropped(dropped) => emit(&Event::Notice { text: dropped.to_string() }),
                Output::Observe(what) => self.observe(what, emit),
                Output::Idle => self.next_message(emit),
                Output::CloseInput => {
                    self.close_when_sent = true;
                    self.exit = Some(Instant::now() + self.times.exit);
                }
                Output::Terminate => self.dismissed = true,
                Output::Ended(mut end) => {
                    if let Some(head) = self.record.frames.head() {
                        emit(&Event::FramesLogged { head });
                    }
                    end.unread += self.not_kept + u64::from(self.keeping.fit_end(&mut end) > 0);
                    emit(&Event::ConversationEnded { end: Box::new(end) });
                }
            }
        }
    }

    fn observe(&mut self, mut what: Observation, emit: Emit<'_>) {
        if let Observation::Ready { .. } = what {
            self.handshake = None;
        }
        if let Observation::Said { by: Speaker::Main, text } = &what {
            self.transcript.push_str(text);
            self.transcript.push('\n');
            let cut = self.transcript.len().saturating_sub(TRANSCRIPT);
            let cut = (cut..=self.transcript.len()).find(|at| self.transcript.is_char_boundary(*at));
            self.transcript.drain(..cut.unwrap_or(0));
        }
        let commands = self.react.as_mut().map(|react| react(&what)).unwrap_or_default();
        let lost = self.keeping.fit(&mut what);
        emit(&Event::Seen { what: Box::new(what) });
        if lost > 0 {
            self.not_kept += 1;
            let flaw = Observation::Flawed(ProtocolFlaw::NotKept { bytes: lost });
            emit(&Event::Seen { what: Box::new(flaw) });
        }
        for command in commands {
            let outputs = self.machine.on_command(command);
            self.carry_out(outputs, emit);
        }
    }

    fn ask(&mut self, request: RequestId, question: Question, emit: Emit<'_>) {
        match self.chain.decide(&question) {
            Ok(answer) => self.answer(request, answer, emit),
            Err(unanswered) => {
                let pending = Pending {
                    request: request.clone(),
                    question,
                    run: self.record.run.to_string(),
                    scenario: self.scenario.clone(),
                    transcript: self.transcript.clone(),
                };
                if let Err(why) = self.mailbox.ask(pending) {
                    self.unanswered(request, unanswered, why, emit);
                }
            }
        }
    }

    fn answer(&mut self, request: RequestId, answer: Answer, emit: Emit<'_>) {
        let outputs = self.machine.on_command(Command::Answer { request: request.clone(), answer });
        let unfit = outputs.iter().find_map(|output| match output {
            Output::Dropped(dropped @ belljar_session::Dropped::Unfit { cause, .. }) => {
                Some(format!("{dropped}: {cause}"))
            }
            Output::Send(_)
            | Output::Ask { .. }
            | Output::Withdrawn { .. }
            | Output::Dropped(_)
            | Output::Observe(_)
            | Output::Idle
            | Output::CloseInput
            | Output::Terminate
            | Output::Ended(_) => None,
        });
        self.carry_out(outputs, emit);
        if let Some(why) = unfit {
            let unanswered = Unanswered { about: "it", notes: Vec::new(), paste: None };
            self.unanswered(request, unanswered, Some(why), emit);
        }
    }

    /// An open question ends the run: the agent's further actions would not be those that the test is about.
    fn unanswered(
        &mut self,
        request: RequestId,
        unanswered: Unanswered,
        why: Option<String>,
        emit: Emit<'_>,
    ) {
        let Unanswered { about: _, mut notes, paste } = unanswered;
        notes.extend(why);
        self.observe(Observation::Unanswered { request, notes, paste }, emit);
        self.dismissed = true;
    }

    fn hear(&mut self, emit: Emit<'_>) {
        while let Some(heard) = self.mailbox.next() {
            match heard {
                Incoming::Answer { request, answer: Ok(answer) } => self.answer(request, answer, emit),
                Incoming::Answer { request, answer: Err(why) } => {
                    let unanswered = Unanswered { about: "it", notes: Vec::new(), paste: None };
                    self.unanswered(request, unanswered, Some(why), emit);
                }
                Incoming::Message(text) => self.say(text, emit),
                Incoming::End => {
                    let outputs = self.machine.on_command(Command::EndInput);
                    self.carry_out(outputs, emit);
                }
            }
        }
    }

    fn read_output(&mut self, emit: Emit<'_>) {
        let (bytes, open) = take(&mut self.output);
        if let Some(decoder) = &mut self.decoder {
            for item in decoder.push(&bytes) {
                self.take_item(item, emit);
            }
        }
        if open == Taken::Ended
            && let Some(item) = self.decoder.take().and_then(Decoder::finish)
        {
            self.take_item(item, emit);
        }
    }

    fn read_errors(&mut self) {
        let (bytes, open) = take(&mut self.errors);
        // Standard error is for people; a failure to record it changes no verdict.
        self.record.stderr.write_all(&bytes).ok();
        if open == Taken::Ended {
            self.record.stderr.flush().ok();
        }
    }

    fn write_input(&mut self) {
        let Some(input) = &self.input else { return };
        let open = write_some(input.as_fd(), &mut self.unsent);
        if !open || (self.close_when_sent && self.unsent.is_empty()) {
            self.input = None;
            self.unsent.clear();
        }
    }

    fn watch_time(&mut self, emit: Emit<'_>) {
        let now = Instant::now();
        let due = |deadline: &mut Option<Instant>| deadline.take_if(|deadline| now >= *deadline).is_some();
        let passed = [(due(&mut self.handshake), Deadline::Handshake), (due(&mut self.exit), Deadline::Exit)];
        for (_, kind) in passed.into_iter().filter(|(due, _)| *due) {
            let outputs = self.machine.on_deadline(kind);
            self.carry_out(outputs, emit);
        }
        if due(&mut self.stalled) {
            let outputs = self.machine.on_deadline(Deadline::Turn);
            self.carry_out(outputs, emit);
            self.dismissed = true;
        }
    }
}
