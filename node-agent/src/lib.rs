//! The agent's side of the fleet: a node says who it is, registers when asked, and beats until it is told otherwise.
//!
//! ```text
//!   muster-agent: agent (flags, state) --+--> facts, conditions: the machine; process: its pods
//!                                        v
//!   owner --report, acknowledged, stop--> Session (one node) ----+
//!   owner --report, stop----------------> Carrier (many nodes) --+--> door of some replica, over TLS
//!   operator --silence, kill, flap------> simulated::Fleet ------+        | Move, silence: next door first
//!     ^                                     (many Sessions)                |
//!     +--------------- SessionState, newest wins <------------------------+
//! ```
//!
//! What to say and when is decided by plain values that are handed the time ([`terms`], the conversation of a session,
//! the roster of a carrier, the workload of a node: [`pods`]); one task per connection does the waiting. Nothing queues up behind a slow connection: what
//! is owed is worked out anew each time there is room to say something.

pub mod agent;
mod attachment;
mod backoff;
pub mod carrier;
pub mod conditions;
pub mod credentials;
mod dial;
mod door;
pub mod enrolment;
pub mod facts;
mod failure;
mod introduction;
mod link;
pub mod machine;
pub mod pods;
pub mod process;
mod pursuit;
pub mod session;
pub mod simulated;
mod status;
pub mod terms;
mod tether;
mod vigil;

pub use door::SetupError;
pub use failure::Failure;
