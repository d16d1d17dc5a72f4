//! The tree as its replica sees it: started when the replica leads and is ready, told what was committed, stopped
//! when the replica no longer leads.
//!
//! The cluster actor has no supervisor among the actors. A task of the tree's own rebuilds it from the state if it
//! dies.

pub(crate) mod actor_counts;
pub(crate) mod context;
pub(crate) mod found_silent;
pub(crate) mod spawn_pace;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_lifecycle::change::{Change, Object};
use ractor::{Actor as _, ActorRef};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{self, Commits};
use crate::ports::{ActorKind, Ports};
use crate::quarantine::QuarantinedNode;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::supervision::restart::{DeathRecord, LONGEST_PAUSE, RestartDecision};
use crate::tree::context::TreeContext;

/// How many touched nodes may wait to be passed on. Beyond that, going over the whole state is no more work.
const TOUCHED_MAX: usize = 262_144;

/// How long a stopped tree may take to be gone. In any case nothing is proposed from the first moment on.
const PRUNING_MAX: Duration = Duration::from_secs(10);

pub struct Tree {
    context: Arc<TreeContext>,
    trunk: Arc<Trunk>,
    stop: oneshot::Sender<()>,
    supervisor: JoinHandle<()>,
}

/// The part of the tree that outlives the cluster actor.
struct Trunk {
    letterbox: Arc<Letterbox<Commits>>,
    cluster: Mutex<ActorRef<cluster::Msg>>,
}

/// The root actor that runs.
struct Root {
    actor: ActorRef<cluster::Msg>,
    ended: JoinHandle<()>,
}

#[derive(Debug, Error)]
pub enum GrowError {
    #[error("the cluster actor does not start ({reason}): this replica cannot judge nodes, let another one lead")]
    Start { reason: String },
}

// === impl Tree ===

impl Tree {
    /// Returns as soon as judging has begun; the nodes get their actors in the background.
    pub async fn grow(ports: Ports, term: u64) -> Result<Self, GrowError> {
        let context = TreeContext::new(ports, term);
        let letterbox = Letterbox::with(Commits::default());
        let root = Root::spawn(&context, &letterbox).await?;
        let trunk = Arc::new(Trunk { letterbox, cluster: Mutex::new(root.actor.clone()) });
        let (stop, stopped) = oneshot::channel();
        let supervisor = tokio::spawn(keep(Arc::clone(&context), Arc::clone(&trunk), root, stopped));
        Ok(Self { context, trunk, stop, supervisor })
    }

    /// Takes in commits, in order. The [`StateSource`](crate::StateSource) must have them already. Never blocks.
    pub fn committed(&self, changes: Vec<Arc<Change>>) {
        self.trunk.tell(|commits| {
            changes.iter().for_each(|change| commits.note(change));
            if commits.touched.len() > TOUCHED_MAX {
                *commits = Commits { lost_track: true, ..Commits::default() };
            }
        });
    }

    /// Changes were missed: the tree goes over the whole state.
    pub fn lost_track(&self) {
        self.trunk.tell(|commits| commits.lost_track = true);
    }

    /// The nodes that this tree has quarantined, in order of names.
    pub fn quarantined(&self) -> Vec<QuarantinedNode> {
        self.context.quarantine.list()
    }

    /// Nothing is proposed from here on. Returns when every actor is gone.
    pub async fn prune(self) {
        self.context.proposer.close();
        // The supervisor also stops when the sender is dropped.
        let _ = self.stop.send(());
        let _ = self.supervisor.await;
        if tokio::time::timeout(PRUNING_MAX, self.context.counts.all_gone()).await.is_err() {
            tracing::warn!("some actors of a stopped tree are still busy; they propose nothing any more");
        }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("context", &self.context).finish_non_exhaustive()
    }
}

// === impl Trunk ===

impl Trunk {
    fn tell(&self, write: impl FnOnce(&mut Commits)) {
        if self.letterbox.post(write) {
            // A cluster actor that is dead or being rebuilt reads the letterbox in its first round.
            let _ = self.cluster().cast(cluster::Msg::wake());
        }
    }

    fn cluster(&self) -> ActorRef<cluster::Msg> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, cluster: ActorRef<cluster::Msg>) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = cluster;
    }
}

// === impl Root ===

impl Root {
    async fn spawn(context: &Arc<TreeContext>, letterbox: &Arc<Letterbox<Commits>>) -> Result<Self, GrowError> {
        let args = cluster::Args { context: Arc::clone(context), letterbox: Arc::clone(letterbox) };
        let spawned = cluster::Actor::spawn(None, cluster::Actor, args).await;
        let (actor, ended) = spawned.map_err(|error| GrowError::Start { reason: error.to_string() })?;
        Ok(Self { actor, ended })
    }
}

/// Keeps a root running until it is told to stop, or until the sender is dropped.
async fn keep(context: Arc<TreeContext>, trunk: Arc<Trunk>, first: Root, mut stopped: oneshot::Receiver<()>) {
    let mut record = DeathRecord::default();
    let mut root = Some(first);
    loop {
        if let Some(Root { actor, mut ended }) = root.take() {
            tokio::select! {
                _ = &mut stopped => return end(actor, ended).await,
                _ = &mut ended => {}
            }
        }
        let pause = match record.died(Instant::now()) {
            RestartDecision::RestartAfter(pause) => pause,
            RestartDecision::OverBudget => LONGEST_PAUSE,
        };
        tracing::error!(?pause, "the cluster actor died, the tree is rebuilt from the state");
        tokio::select! {
            _ = &mut stopped => return,
            () = tokio::time::sleep(pause) => {}
        }
        context.ports.observer.restarted(ActorKind::Cluster);
        root = match Root::spawn(&context, &trunk.letterbox).await {
            Ok(root) => {
                trunk.replace(root.actor.clone());
                Some(root)
            }
            Err(error) => {
                tracing::error!(%error, "the tree is not rebuilt yet");
                None
            }
        };
    }
}

/// The actors below it end with it.
async fn end(actor: ActorRef<cluster::Msg>, ended: JoinHandle<()>) {
    actor.stop(None);
    let _ = ended.await;
}

// === impl Commits ===

impl Commits {
    fn note(&mut self, change: &Change) {
        for object in change.before.iter().chain(&change.after) {
            match object {
                Object::Node(node) => drop(self.touched.insert(node.slot, node.meta.name.clone())),
                Object::Pod(_) | Object::Workload(_) => self.work = true,
                Object::Event(_) => {}
            }
        }
    }
}
