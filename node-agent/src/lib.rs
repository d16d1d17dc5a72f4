//! The agent's side of the fleet: a node says who it is, registers when asked, and beats until it is told otherwise.
//!
//! ```text
//!   muster-agent: agent (flags, state) --+--> facts, conditions: the machine; process: its pods
//!                                        v
//!   owner --report, acknowledged, stop--> Session (one node) ----+
//!   owner --report, stop----------------> AggregatorSession (many nodes) --+--> door of some replica, over TLS
//!   operator --silence, kill, flap------> simulated::Fleet ------+        | Move, silence: next door first
//!     ^                                     (many Sessions)                |
//!     +--------------- SessionState, newest wins <------------------------+
//! ```
//!
//! What to say and when is decided by plain values that are handed the time ([`terms`], the conversation of a session,
//! the conversation of a carrier, the workload of a node: [`pods`]); one task per connection does the waiting. Nothing queues up behind a slow connection: what
//! is outbound is worked out anew each time there is room to say something.

pub mod agent;
pub mod aggregator;
pub mod conditions;
mod connection;
pub mod credentials;
pub mod enrolment;
pub mod facts;
pub mod machine;
pub mod pods;
pub mod process;
pub mod session;
pub mod simulated;

pub use connection::{SessionFailure, SessionSetupError, SessionTerms};
