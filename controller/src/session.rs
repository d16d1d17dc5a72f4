//! Sessions of agents: the nodes attached to this replica, and what passes between them and the rest.
//!
//! ```text
//!   agents ------ stream::node -------+                     +--> beat: one word in the own pulse table
//!   aggregators - stream::aggregator -+-- stream::binding --+--> claim: the leader's arbiter, one session per node
//!                                     |   (a node)          +--> write: registrations and reports, through the leader
//!                                   wake <--- following (changes of the state), relocate (this replica's trouble)
//! ```
//! A stream is bound to its nodes once, by certificate, state and claim. From then on a beat touches nothing that is
//! shared but its own word. A part with news for a stream wakes it, and the stream reads off the state what the news
//! mean. So a hundred thousand streams can be told something without a queue anywhere.

pub mod beat;
mod claim;
pub mod figures;
pub mod heartbeats;
pub mod service;
mod stream;
mod wake;
mod write;

use std::sync::{Arc, Mutex, PoisonError};

use muster_proto::v1;
use muster_raft::replica::Replica;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::hearing::Hearing;
use crate::hearing::contact::Contact;
use crate::hearing::service::Claims;

use self::beat::Beats;
use self::claim::arbiter::ClaimArbiter;
use self::claim::claimant::{ClaimExchange, Claimant};
use self::figures::SessionFigures;
use self::stream::StreamContext;
use self::stream::binding::Binder;
use self::stream::node::NodeStream;
use self::wake::following::StateFollower;
use self::wake::lagging::LaggingSessions;
use self::wake::registry::Registry;
use self::wake::relocate::Relocation;
use self::write::admission::Admission;
use self::write::catch_up::CatchUp;

pub(crate) use self::stream::caller::Opener;
pub use self::write::AgentWrites;

/// Messages on their way to one agent.
const DOWN_QUEUE: usize = 8;

/// All sessions of this replica. Clones share them.
#[derive(Clone)]
pub struct Sessions(Arc<SharedSessions>);

struct SharedSessions {
    registry: Arc<Registry>,
    arbiter: Arc<ClaimArbiter>,
    streams: Arc<StreamContext>,
    tasks: Mutex<Option<Tasks>>,
}

/// The tasks that [`Sessions::run`] runs.
struct Tasks {
    replica: Replica,
    exchange: ClaimExchange,
    catch_up: CatchUp,
    lagging: Arc<LaggingSessions>,
}

// === impl Sessions ===

impl Sessions {
    pub fn new(replica: Replica, hearing: Hearing, contact: Contact) -> Self {
        let (registry, figures, lagging) =
            (Arc::<Registry>::default(), Arc::<SessionFigures>::default(), Arc::<LaggingSessions>::default());
        let arbiter = Arc::new(ClaimArbiter::new(replica.clone(), hearing.clone()));
        let (claimant, exchange) = Claimant::new(replica.clone(), Arc::clone(&arbiter), Arc::clone(&registry));
        let claimant = Arc::new(claimant);
        let catch_up = CatchUp::new(replica.clone());
        let writes = AgentWrites::new(replica.clone(), catch_up.clone(), Arc::clone(&figures));
        let binder = Binder {
            replica: replica.clone(),
            hearing: hearing.clone(),
            beats: Beats::new(hearing.clone(), Arc::clone(&figures)),
            registry: Arc::clone(&registry),
            claimant: Arc::clone(&claimant),
            catch_up: catch_up.clone(),
            lagging: Arc::clone(&lagging),
            figures: Arc::clone(&figures),
        };
        let streams = StreamContext {
            admission: Admission::new(writes.clone(), claimant),
            writes,
            binder: Arc::new(binder),
            relocation: Relocation::new(contact, hearing),
            figures,
        };
        let tasks = Mutex::new(Some(Tasks { replica, exchange, catch_up, lagging }));
        Self(Arc::new(SharedSessions { registry, arbiter, streams: Arc::new(streams), tasks }))
    }

    /// Claims sessions, passes on changes of the state and asks agents to move when they should, until `stop`; then all
    /// streams end. To be run once.
    pub async fn run(self, stop: CancellationToken) {
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Tasks { replica, exchange, catch_up, lagging }) = tasks else { return };
        let registry = &self.0.registry;
        let follower = StateFollower { feed: replica.feed(), registry, lagging: &lagging };
        let running = async {
            tokio::join!(
                exchange.run(),
                catch_up.run(),
                follower.follow_objects(),
                follower.follow_pace(),
                self.0.streams.relocation.run(registry)
            );
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = running => {}
        }
        registry.close();
    }

    /// The leader's side of claims, for the peers' door.
    pub fn claims(&self) -> Arc<dyn Claims> {
        Arc::clone(&self.0.arbiter) as _
    }

    pub fn figures(&self) -> &Arc<SessionFigures> {
        &self.0.streams.figures
    }

    /// Writes in the name of nodes, for their enrolment.
    pub fn writes(&self) -> AgentWrites {
        self.0.streams.writes.clone()
    }

    /// Serves a node's own stream in a task of its own.
    pub(crate) fn serve_node(
        &self,
        node: &str,
        opener: Opener,
        up: Streaming<v1::AgentMessage>,
    ) -> mpsc::Receiver<Result<Box<v1::ServerMessage>, Status>> {
        let (down, told) = mpsc::channel(DOWN_QUEUE);
        let (context, stream) = (Arc::clone(&self.0.streams), self.0.registry.open());
        tokio::spawn(Box::new(NodeStream::new(context, stream, (node, opener), up, down)).serve());
        told
    }

    /// Serves an aggregator's stream in a task of its own.
    pub(crate) fn serve_aggregator(
        &self,
        aggregator: String,
        opener: Opener,
        up: Streaming<v1::AggregatorMessage>,
    ) -> mpsc::Receiver<Result<Box<v1::AggregatorReply>, Status>> {
        let (down, told) = mpsc::channel(DOWN_QUEUE);
        let (context, stream) = (Arc::clone(&self.0.streams), self.0.registry.open());
        tokio::spawn(stream::aggregator::serve(context, stream, (aggregator, opener), up, down));
        told
    }
}
