//! The pods of a node, on the node's side: what the fleet ordered, what runs, and what the fleet has yet to hear of it.
//!
//! ```text
//!   PodOrders ---> Workload --start, stop, kill--> Runtime (processes, a simulation)
//!   PodsReport <---  |  ^                             |
//!   PodsTaken ------>+  +---- Inbox <---- News -------+   newest per pod wins
//! ```
//!
//! The workload is a plain value that is handed the time. Its runtime may be slow: nothing waits for it, and what it has
//! to say gathers in the inbox until the session's task looks.

pub(crate) use ended::REMEMBERED;
pub(crate) use news::Listener;
pub use news::{Gathered, Inbox, News, PodNews};
pub use runtime::{Note, PodName, PodSpec, Recollection, Runtime};
pub use status::{Phase, PodStatus};
pub use uid::PodUid;
pub use workload::PodInsight;
pub(crate) use workload::{Fate, StaleOrders, Workload};

mod ended;
mod news;
mod reporting;
mod runtime;
mod status;
mod uid;
mod workload;
