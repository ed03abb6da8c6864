//! Frames of the agent's own protocol: one JSON object a line, in both directions.
//!
//! Reading is tolerant of what is new and strict about what is known: a frame of an unknown type is kept as it came,
//! an unknown member is ignored and still stands in [`Frame::raw`], but a member that decides something (an id, an
//! error flag) and has the wrong type makes the frame [`Inbound::Malformed`], which is never taken for its better half.
//! Writing knows only the frames that belljar means to send.

mod content;
mod control;
mod id;
mod inbound;
mod members;
mod outbound;
mod unique;

pub use content::{Block, Usage};
pub use control::{
    AgentRequest, AskedOption, AskedQuestion, DialogRequest, ElicitationRequest, HookCall, HostReply,
    McpMessage, PermissionRequest,
};
pub use id::{CallId, IdError, MessageId, RequestId, SessionId};
pub use inbound::{
    AssistantFrame, Frame, FrameError, Inbound, InitFrame, ResultFrame, SessionState, TaskFrame, TaskStep,
    UserFrame,
};
pub use outbound::{
    AfterDeny, DialogReply, ElicitationReply, HookPermission, HookReply, HookSubscription, HostRequest,
    Initialize, Outbound, PermissionMode, PermissionReply, Reply, UserMessage,
};
