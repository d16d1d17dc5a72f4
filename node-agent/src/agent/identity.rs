//! Identity of this machine for the fleet: credentials from a kubeconfig, from the state directory, or from a join.

use std::sync::Arc;

use jiff::Timestamp;

use super::exit::{AgentError, Exit};
use super::settings::AgentSettings;
use super::state_dir::StateDir;
use super::view::Expiry;
use crate::credentials::{CredentialStore, CredentialStoreError, CredentialsError, NodeCredentials};
use crate::enrolment::EnrolmentError;

/// Joins if necessary, which may take a while: callers should watch for a stop request meanwhile.
pub(super) async fn obtain(settings: &AgentSettings, state_dir: &StateDir) -> Result<NodeCredentials, AgentError> {
    if let Some(kubeconfig) = &settings.kubeconfig {
        kubeconfig.credentials.require_node(&settings.node).map_err(|error| unusable(&error))?;
        return Ok(kubeconfig.credentials.clone());
    }
    let store = CredentialStore::new(state_dir.path());
    let (token, servers, node) = (settings.join.as_ref(), &settings.server, settings.node.as_str());
    NodeCredentials::open_or_join(&store, token, servers, node).await.map_err(failed)
}

pub(super) fn expiry(credentials: &NodeCredentials) -> Expiry {
    let credentials = credentials.clone();
    Arc::new(move || Timestamp::try_from(credentials.expires()).ok())
}

fn failed(error: EnrolmentError) -> AgentError {
    let exit = match &error {
        EnrolmentError::Credentials(error) => return unusable(error),
        EnrolmentError::Store(CredentialStoreError::Exposed { .. } | CredentialStoreError::Damaged(_)) => Exit::Usage,
        EnrolmentError::Setup(_) | EnrolmentError::NotJoined => Exit::Usage,
        EnrolmentError::OtherCluster { .. } | EnrolmentError::Refused { .. } => Exit::Denied,
        EnrolmentError::Unanswered(_) => Exit::Unreachable,
        EnrolmentError::Store(_) | EnrolmentError::Request(_) => Exit::Error,
    };
    AgentError { exit, message: error.to_string() }
}

/// Unusable credentials are found before anything is contacted.
fn unusable(error: &CredentialsError) -> AgentError {
    let is_of_the_disk = matches!(error, CredentialsError::Store(CredentialStoreError::Io { .. }));
    if is_of_the_disk { AgentError::other(error) } else { AgentError::usage(error) }
}
