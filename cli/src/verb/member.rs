//! `muster member`: the replicas of the cluster.

use std::time::Duration;

use muster_lifecycle::replica::ReplicaId;
use muster_pki::HostPort;
use muster_proto::v1::AddMember;
use muster_proto::v1::member_request;

use super::Context;
use crate::exit::Failure;
use crate::output::Out;

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Add a replica as a learner: it receives everything but has no vote yet
    Add {
        /// The replica's id; ids are never used twice
        id: ReplicaId,
        /// Where the other replicas reach it
        #[arg(long, value_name = "HOST:PORT")]
        peer: HostPort,
        /// Where agents reach it
        #[arg(long, value_name = "HOST:PORT")]
        agent: HostPort,
        /// Where operators reach it
        #[arg(long, value_name = "HOST:PORT")]
        client: HostPort,
    },
    /// Give a learner that has caught up a vote
    Promote { id: ReplicaId },
    /// Take a replica out of the cluster for good
    Remove { id: ReplicaId },
    /// Hand leadership to another replica: the one named, or any that is up to date
    Transfer { id: Option<ReplicaId> },
}

/// A learner may have a whole snapshot to receive.
const TIMEOUT: Duration = Duration::from_secs(60);

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    if action.id() == Some(ReplicaId(0)) {
        return Err(Failure::Usage("replicas are numbered from 1".into()));
    }
    let message = context.client_within(TIMEOUT)?.member(action.request()).await?;
    let mut out = Out::stdout();
    out.line(message)?;
    out.flush()
}

// === impl Action ===

impl Action {
    fn id(&self) -> Option<ReplicaId> {
        match self {
            Self::Add { id, .. } | Self::Promote { id } | Self::Remove { id } => Some(*id),
            Self::Transfer { id } => *id,
        }
    }

    fn request(self) -> member_request::Action {
        match self {
            Self::Add { id, peer, agent, client } => member_request::Action::Add(AddMember {
                id: id.0,
                peer: peer.to_string(),
                agent: agent.to_string(),
                client: client.to_string(),
            }),
            Self::Promote { id } => member_request::Action::Promote(id.0),
            Self::Remove { id } => member_request::Action::Remove(id.0),
            Self::Transfer { id } => member_request::Action::Transfer(id.map_or(0, |id| id.0)),
        }
    }
}
