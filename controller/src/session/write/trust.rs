//! The trust in an agent's certificate: whether it has expired, and that a renewed one is in use.

use std::time::Duration;

use muster_lifecycle::command::AgentOperation;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::text::Text;
use tokio::time::Instant;
use tonic::Status;

use crate::door::listener::CertificateLife;
use crate::session::figures::RefusalReason;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::write::AgentWrites;

/// The time limit for writing that a new key is in use.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(10);

/// A stream may outlive the certificate it was opened with; its messages then no longer count.
pub(crate) fn require_unexpired(certificate: &CertificateLife) -> Result<(), SessionRefusal> {
    match certificate.has_ended() {
        true => {
            let status = Status::unauthenticated("the certificate has expired: renew it first");
            Err(SessionRefusal::new(RefusalReason::Identity, status))
        }
        false => Ok(()),
    }
}

/// Writes that a renewed node uses its new key, unless that is known. From then on the old key is invalid.
pub(crate) fn confirm_key(writes: &AgentWrites, node: &Text, key: &Fingerprint) {
    if !writes.replica().current().state.awaits_confirmation(node, key) {
        return;
    }
    let operation = AgentOperation::ConfirmCredential { node: node.clone(), key: *key };
    let (writes, node) = (writes.clone(), node.clone());
    tokio::spawn(async move {
        let written = writes.submit(&node, operation, Instant::now() + CONFIRMATION_LIMIT).await;
        if let Err(error) = written {
            tracing::debug!(%error, "the use of a new key was not written; it will be when the node comes next");
        }
    });
}
