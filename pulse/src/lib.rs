//! Pulse: when each node was last heard, and through which replica.
//!
//! ```text
//!   session --beat--> own PulseTable --DigestOutbox--> digest parts --> a peer's DigestInbox --> its copy of the table
//!                          |                                                              |
//!                          +---------------------- PulseTables ---------------------------+
//!                                                       |
//!                        Blindness (excuses) ------> Sweep ------> PulseChange: fell silent, was heard again
//!                                                                    |
//!                                             NodeWatch::judge <-- Candidates
//! ```
//!
//! A replica holds its tables and its excuses in one [`monitor::PulseMonitor`].
//!
//! A beat awaits nothing, takes no lock and reads no clock; only the first beat into a chunk allocates. A table is
//! written by many sessions and read by sweeps and digests at the same time; every cell is one atomic word, so that no
//! reader ever sees half a beat. Ticks are this replica's own monotonic time and never leave it: between replicas only
//! ages travel.

pub mod blindness;
pub mod by_replica;
pub mod digest;
pub mod excuse;
pub mod inbox;
pub mod moment;
pub mod monitor;
pub mod node_watch;
pub mod observation;
pub mod outbox;
pub mod sweep;
pub mod table;
pub mod tick;
mod varint;
