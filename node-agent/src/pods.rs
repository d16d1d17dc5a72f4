//! Pods of a node, on the node's side: what the cluster ordered, what runs, and what must still be reported.
//!
//! ```text
//!   PodOrders ---> NodePods --start, stop, kill--> Runtime (processes, a simulation)
//!   PodsReport <---  |  ^                             |
//!   PodsTaken ------>+  +-- PodInbox <-- PodUpdate ---+   newest per pod wins
//! ```
//!
//! [`NodePods`] is a plain value; the time is an argument. Its runtime may be slow: nothing waits for it, and its
//! updates gather in the inbox until the session's task reads them.

pub(crate) use ended::ENDED_PODS_MAX;
pub use node_pods::PodSnapshot;
pub(crate) use node_pods::{NodePods, PodsFate, StaleOrders};
pub use run_journal::{RunJournal, RunRecorder, read_runs};
pub use runtime::{DurableNote, PodName, PodToStart, RecalledNotes, Runtime};
pub use status::{LocalPodStatus, PodPhase};
pub use uid::PodUid;
pub(crate) use updates::PodListener;
pub use updates::{PodInbox, PodUpdate, PodUpdateSender, PodUpdates};

mod ended;
mod node_pods;
mod reports;
mod run_journal;
mod runtime;
mod status;
mod uid;
mod updates;
