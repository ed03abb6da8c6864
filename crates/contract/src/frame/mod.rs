//! Frames of the agent's protocol: one JSON object per line, in both directions.
//!
//! Parsing tolerates what is new and is strict about what is known. A frame of an unknown type is kept as received;
//! an unknown member is ignored but remains in [`Frame::raw`]. A member that decides something (an id, an error flag)
//! and has the wrong type makes the frame [`Inbound::Malformed`]; the rest of such a frame is not used. belljar can
//! write only the frames that it means to send.

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
