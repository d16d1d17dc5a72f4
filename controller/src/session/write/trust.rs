//! Whether a key may speak for a node, and what the enrolment of nodes needs of the sessions.

use std::time::SystemTime;

use muster_lifecycle::command::Operation;
use muster_lifecycle::credential::Distrust;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::text::Text;
use muster_raft::proposer::Settled;
use tokio::time::{Duration, Instant};
use tonic::Status;

use crate::listener::Term;
use crate::session::Sessions;
use crate::session::figures::Refused;
use crate::session::stream::refusal::Refusal;

/// How long it may take to write down that a new key was used.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(10);

/// A stream may outlive the certificate it was opened with; what passes on it then does not count.
pub(crate) fn require_unexpired(term: &Term) -> Result<(), Refusal> {
    match term.is_over(SystemTime::now()) {
        true => {
            Err(Refusal::new(Refused::Identity, Status::unauthenticated("the certificate has expired: renew it first")))
        }
        false => Ok(()),
    }
}

impl Sessions {
    /// A replica that lags behind may not know of the newest key, so it refuses nobody before it has caught up.
    pub(crate) async fn require_trusted(&self, node: &str, key: &Fingerprint) -> Result<Result<(), Distrust>, Refusal> {
        let look = || self.replica().current().state.admits_key(node, key);
        if look().is_ok() {
            return Ok(Ok(()));
        }
        self.catch_up().await?;
        Ok(look())
    }

    pub(crate) async fn trusted_for_enrolment(
        &self,
        node: &str,
        key: &Fingerprint,
    ) -> Result<Result<(), Distrust>, Status> {
        Ok(self.require_trusted(node, key).await?)
    }

    pub(crate) async fn catch_up_for_enrolment(&self) -> Result<(), Status> {
        Ok(self.catch_up().await?)
    }

    /// A node that renews again and again is told to wait, as one that reports again and again is.
    pub(crate) fn spend_for_enrolment(&self, node: &Text) -> Result<(), Status> {
        self.spend(node).map_err(|_| Status::resource_exhausted("too many requests of this node; wait a moment"))
    }

    /// Writes in the name of the node, trying again as long as it is not known whether it was written.
    pub(crate) async fn write_for_node(
        &self,
        node: &Text,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Settled, Status> {
        Ok(self.write_surely(node, operation, deadline).await.map_err(Refusal::from)?)
    }

    /// A renewed node came with its new key: from now on the old one is over.
    pub(crate) fn confirm_key(&self, node: &Text, key: &Fingerprint) {
        if !self.replica().current().state.awaits_confirmation(node, key) {
            return;
        }
        let operation = Operation::ConfirmCredential { node: node.clone(), key: *key };
        let (sessions, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            let written = sessions.write_surely(&node, operation, Instant::now() + CONFIRMATION_LIMIT).await;
            if let Err(error) = written {
                tracing::debug!(%error, "the use of a new key was not written down; it will be next time");
            }
        });
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        *refusal.status
    }
}
