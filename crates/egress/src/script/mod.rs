//! A Messages API server that answers from a script.
//!
//! A [`Script`] is data: ordered turns, the response to side requests, and what happens when all turns are played. A
//! [`ScriptedModel`] plays it. Each request to `/v1/messages` takes *the first unplayed turn that accepts it*. Choosing a
//! turn and writing the log entry are one step under one lock, so that parallel sub-agents can neither play a turn twice
//! nor disagree with the log about the order.
//!
//! ```
//! use std::time::Duration;
//! use belljar_egress::script::{Listen, Script, ScriptedModel, Turn};
//!
//! let script = Script::new()
//!     .turn(Turn::tool_use("Bash", serde_json::json!({"command": "touch here"})))
//!     .turn(Turn::text("done"));
//! let model = ScriptedModel::start(script, Listen::loopback())?;
//! // … run an agent whose model's API is at model.base_url() …
//! assert_eq!(model.unplayed(), [0, 1]);
//! assert!(model.wait_for_requests(1, Duration::ZERO).is_err());
//! # Ok::<(), belljar_egress::script::StartError>(())
//! ```

mod body;
mod builder;
mod check;
mod diagnose;
mod document;
mod format;
mod log;
mod matching;
mod parse;
mod player;
mod recorded;
mod reference;
mod request;
mod server;
mod service;
mod spec;
mod wire;

pub use check::{ScriptFault, ScriptFaults};
pub use diagnose::script_schema;
pub use document::JsonText;
pub(crate) use document::Skimmed;
pub use format::{
    Cut, CutEnd, ErrorReply, Exhausted, Script, ScriptBlock, ScriptReply, ScriptUsage, SideRequests,
    StopReason, Turn, TurnAnswer,
};
pub use log::{
    AnsweredBy, BodySeen, Fingerprint, HeaderSeen, HeaderText, LoggedRequest, Transcript, WaitTimedOut,
};
pub use matching::{RequestConditions, Sender, Tools};
pub use parse::{LoadScriptError, MAX_FILE_BYTES, ParseScriptError};
pub use recorded::{FromRecorded, last_message};
pub use reference::script_reference;
pub use server::{Playing, ScriptedModel, StartError};

pub use crate::gateway::{Listen, ListenError};
