//! Who this machine is to the fleet: credentials that somebody else made, those it has, or those it gets for a token.

use std::sync::Arc;

use jiff::Timestamp;

use super::exit::{Exit, Failed};
use super::settings::Settings;
use super::state_dir::StateDir;
use super::view::Expiry;
use crate::credentials::{Credentials, CredentialsError, Store, StoreError};
use crate::enrolment::EnrolmentError;

/// Joins if need be, which may take a while: whoever waits should listen for the end, too.
pub(super) async fn obtain(settings: &Settings, state_dir: &StateDir) -> Result<Credentials, Failed> {
    if let Some(kubeconfig) = &settings.kubeconfig {
        kubeconfig.credentials.require_node(&settings.node).map_err(|error| unusable(&error))?;
        return Ok(kubeconfig.credentials.clone());
    }
    let store = Store::new(state_dir.path());
    let (token, servers, node) = (settings.join.as_ref(), &settings.server, settings.node.as_str());
    Credentials::open_or_join(&store, token, servers, node).await.map_err(failed)
}

pub(super) fn expiry(credentials: &Credentials) -> Expiry {
    let credentials = credentials.clone();
    Arc::new(move || Timestamp::try_from(credentials.expires()).ok())
}

fn failed(error: EnrolmentError) -> Failed {
    let exit = match &error {
        EnrolmentError::Credentials(error) => return unusable(error),
        EnrolmentError::Store(StoreError::Exposed { .. } | StoreError::Damaged(_)) => Exit::Usage,
        EnrolmentError::Setup(_) | EnrolmentError::NotJoined => Exit::Usage,
        EnrolmentError::OtherCluster { .. } | EnrolmentError::Refused { .. } => Exit::Denied,
        EnrolmentError::Unanswered(_) => Exit::Unreachable,
        EnrolmentError::Store(_) | EnrolmentError::Request(_) => Exit::Error,
    };
    Failed { exit, message: error.to_string() }
}

/// Credentials that cannot be used are found before anything is contacted.
fn unusable(error: &CredentialsError) -> Failed {
    let is_of_the_disk = matches!(error, CredentialsError::Store(StoreError::Io { .. }));
    if is_of_the_disk { Failed::error(error) } else { Failed::usage(error) }
}
