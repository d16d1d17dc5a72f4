//! Node agent: registers a node, beats, reports its status and runs its pods.
//!
//! ```text
//!   muster-agent: agent (flags, state) --+--> facts, conditions: the machine; process: its pods
//!                                        v
//!   owner --report, acknowledged, stop--> Session (one node) -------------+
//!   owner --report, stop----------------> AggregatorSession (many nodes) -+--> connection to one replica, over TLS
//!   operator --silence, kill, flap------> SimulatedFleet (Sessions) ------+        | Move, silence: attach elsewhere
//!     ^                                                                            |
//!     +--------------- SessionState, newest wins <---------------------------------+
//! ```
//!
//! Plain values decide what to send and when; the time is an argument ([`SessionTerms`], the conversation of a session
//! or an aggregator, the pods of a node: [`pods`]). One task per connection does the waiting. Nothing queues up behind
//! a slow connection: what is due is worked out anew whenever there is room to send.

pub mod agent;
pub mod aggregator;
pub mod conditions;
mod connection;
pub mod credentials;
mod durable;
pub mod enrolment;
pub mod facts;
pub mod machine;
pub mod pods;
pub mod process;
pub mod session;
pub mod simulated;

pub use connection::{SessionFailure, SessionSetupError, SessionTerms};
