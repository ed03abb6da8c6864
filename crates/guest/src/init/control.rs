//! The control socket, in typed messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use belljar_contract::{
    GUEST_REPORT_MAX, GUEST_SPEC_MAX, GuestCodecError, GuestListener, GuestOrder, GuestReport, GuestSpec,
    GuestStep,
};
use belljar_sys::message::{self, Bounds, MessageError};

use super::Refusal;

/// The socket to the supervisor.
#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
}

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error("the control socket failed")]
    Message(#[source] MessageError),
    #[error("invalid message on the control socket")]
    Codec(#[source] GuestCodecError),
}

impl Control {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Control { socket }
    }

    /// Receives the first message, with the streams and the content of files attached to it. It waits as long as the
    /// supervisor lives: the plan may not be ready yet, and the user may have to agree to it.
    pub(super) fn spec(&self) -> Result<(GuestSpec, Vec<OwnedFd>), Refusal> {
        let bounds = Bounds { bytes: GUEST_SPEC_MAX, descriptors: 4, within: None };
        let received = message::receive(self.socket.as_fd(), bounds)
            .map_err(|error| Refusal::new(GuestStep::Spec, &error))?;
        let spec =
            GuestSpec::from_bytes(&received.body).map_err(|error| Refusal::new(GuestStep::Spec, &error))?;
        Ok((spec, received.descriptors))
    }

    pub(super) fn order(&self, within: Duration) -> Result<GuestOrder, ControlError> {
        let bounds = Bounds { bytes: GUEST_REPORT_MAX, descriptors: 0, within: Some(within) };
        let received = message::receive(self.socket.as_fd(), bounds).map_err(ControlError::Message)?;
        GuestOrder::from_bytes(&received.body).map_err(ControlError::Codec)
    }

    pub(super) fn report(&self, report: &GuestReport, with: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        let body = report.to_bytes().map_err(ControlError::Codec)?;
        message::send(self.socket.as_fd(), &body, with).map_err(ControlError::Message)
    }

    /// Sends the controlling end to the supervisor and keeps no copy.
    pub(super) fn report_terminal(&self, controller: OwnedFd) -> Result<(), Refusal> {
        self.report(&GuestReport::Terminal, &[controller.as_fd()])
            .map_err(|error| Refusal::new(GuestStep::Terminal, &error))
    }

    pub(super) fn report_listeners(&self, specs: &[GuestListener], open: &[OwnedFd]) -> Result<(), Refusal> {
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        let descriptors: Vec<_> = open.iter().map(AsFd::as_fd).collect();
        self.report(&GuestReport::Listening { names }, &descriptors)
            .map_err(|error| Refusal::new(GuestStep::Listeners, &error))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
