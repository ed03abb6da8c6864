//! Where the agent believes the model is.

mod answer;
mod front;
mod listen;
mod observe;
mod transport;

pub use answer::{Answer, AnswerBody, Answering, Asked, BodyFault, Broken, HangUp};
pub use front::{FrontLimits, serve};
pub use listen::{Address, Bound, Listen, ListenError, Listener};
pub use observe::{AnswerEnd, Observe, ObserveAnswer, Observed};
