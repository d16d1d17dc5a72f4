//! The agents' door. For now an agent can ask whom it reached, to choose among its endpoints.

use muster_proto::v1;
use muster_proto::v1::agent_server::{Agent, AgentServer};
use muster_raft::replica::Replica;
use tonic::{Request, Response, Status};

use crate::door::DoorKind;
use crate::identity::Role;
use crate::listener::Peer;

/// The service for tonic, with its message limits.
pub fn agent_service(replica: Replica) -> AgentServer<AgentService> {
    AgentServer::new(AgentService { replica })
        .max_decoding_message_size(DoorKind::Agent.limits().message_bytes)
        .max_encoding_message_size(DoorKind::Agent.limits().message_bytes)
}

pub struct AgentService {
    replica: Replica,
}

#[tonic::async_trait]
impl Agent for AgentService {
    async fn who_is(&self, request: Request<v1::WhoIsRequest>) -> Result<Response<v1::WhoIsResponse>, Status> {
        let caller = request.extensions().get::<Peer>();
        let identity = &caller.ok_or_else(|| Status::unauthenticated("no client certificate"))?.identity;
        match identity.kind {
            Role::Node(_) | Role::Aggregator => Ok(Response::new(v1::WhoIsResponse {
                fleet: identity.fleet.to_string(),
                replica: self.replica.id(),
                has_leader: self.replica.leader().is_some(),
            })),
            Role::Replica(_) | Role::Operator | Role::Viewer => {
                Err(Status::permission_denied(format!("{identity} is not an agent")))
            }
        }
    }
}
