//! The way out of the sandbox.

mod intercept;

pub use intercept::{Intercept, InterceptedRequest, RequestSink, Stream, Tunnel, TunnelEnd};
