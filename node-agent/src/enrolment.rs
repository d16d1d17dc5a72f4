//! Enrolment: a machine joins the fleet once with a token, then renews its certificate in time.
//!
//! ```text
//!   --join TOKEN --> is that the CA the token pins? --> Join --> state directory --> sessions
//!                                                                   ^      |
//!                                                                   +-- Renew at 70 to 90 % of the certificate's life
//! ```
//! A renewal uses a new key and touches no open connection. The session then moves to the new certificate, which ends
//! the old key. A failed renewal is tried again with growing pauses, also after the certificate has expired: replicas
//! accept that for a while.

mod pinned;
mod schedule;

use std::time::{Duration, SystemTime};

use muster_proto::token::Token;
use muster_proto::v1;
use muster_proto::v1::enrolment_client::EnrolmentClient;
use rcgen::{CertificateParams, KeyPair};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tonic::Code;

use crate::connection::{Backoff, Endpoint, SessionFailure, SessionSetupError, dial, quoted};
use crate::credentials::{CredentialStore, CredentialStoreError, CredentialsError, NodeCredentials, PemTexts};

pub use self::schedule::renewal_due;
use self::schedule::{AttemptFailure, Schedule};

/// For each step of a connection.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// For the answer, which the cluster has to write.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a machine tries to join before it gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest pause between two attempts.
const JOIN_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two reads of the wall clock, which may be set at any time.
const LOOK_PERIOD: Duration = Duration::from_secs(600);

#[derive(Debug, Error)]
pub enum EnrolmentError {
    #[error(transparent)]
    Setup(#[from] SessionSetupError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Store(#[from] CredentialStoreError),
    #[error("cannot write a certificate request: {0}")]
    Request(rcgen::Error),
    #[error("{endpoint} belongs to another cluster than the token: {reason}; check --server, or create a token there")]
    OtherCluster { endpoint: String, reason: String },
    #[error("{endpoint} refused: {message}")]
    Refused { endpoint: String, message: String },
    #[error("no replica could be asked: {0}")]
    Unanswered(SessionFailure),
    #[error("this machine has not joined: give a token of `muster token create` with --join, and --server")]
    NotJoined,
}

// === impl NodeCredentials ===

impl NodeCredentials {
    /// Opens the credentials of the state directory. If there are none, or the cluster no longer accepts them, this
    /// machine joins as `node` with `token`. Expired credentials are renewed first.
    pub async fn open_or_join(
        store: &CredentialStore,
        token: Option<&Token>,
        servers: &[String],
        node: &str,
    ) -> Result<Self, EnrolmentError> {
        if !store.has_credentials() {
            let token = token.ok_or(EnrolmentError::NotJoined)?;
            return join(token, servers, node, store).await;
        }
        let credentials = Self::load(store)?;
        store.forget_key_in_use()?;
        credentials.require_node(node)?;
        let is_expired = credentials.is_expired(SystemTime::now());
        if !is_expired && token.is_none() {
            return Ok(credentials);
        }
        match (renew(&credentials, servers).await, token) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => tracing::info!("this machine has joined before: the token is not used"),
            (Err(error), Some(token)) if is_expired || matches!(error, EnrolmentError::Refused { .. }) => {
                tracing::warn!(%error, "the certificate is no longer accepted: joining again");
                return join(token, servers, node, store).await;
            }
            (Err(error), _) => tracing::warn!(%error, is_expired, "the certificate was not renewed; trying again"),
        }
        Ok(credentials)
    }
}

/// Asks the replicas in turn, repeatedly for a while, until one accepts or refuses.
pub async fn join(
    token: &Token,
    servers: &[String],
    node: &str,
    store: &CredentialStore,
) -> Result<NodeCredentials, EnrolmentError> {
    let endpoints = Endpoint::list(servers)?;
    let key = store.joining_key()?;
    let tls = TlsConnector::from(pinned::tls(token.pin).map_err(CredentialsError::from)?);
    let request = join_request(token, node, &key)?;
    let (deadline, mut backoff) = (Instant::now() + JOIN_TIMEOUT, Backoff::default());
    loop {
        let failure = match ask_all(&endpoints, &tls, &Question::Join(request.clone())).await {
            Ok(certified) => return accept(certified, token, node, &key, store),
            Err(EnrolmentError::Unanswered(failure)) => failure,
            Err(verdict) => return Err(verdict),
        };
        let pause = backoff.pause(JOIN_PAUSE_MAX, rand::random());
        if Instant::now() + pause >= deadline {
            return Err(EnrolmentError::Unanswered(failure));
        }
        tracing::info!(%failure, "could not join yet; trying again");
        sleep(pause).await;
    }
}

fn join_request(token: &Token, node: &str, key: &KeyPair) -> Result<v1::JoinRequest, EnrolmentError> {
    Ok(v1::JoinRequest { token: token.to_string(), node: node.to_owned(), csr: csr(key)? })
}

fn csr(key: &KeyPair) -> Result<bytes::Bytes, EnrolmentError> {
    let request = CertificateParams::default().serialize_request(key).map_err(EnrolmentError::Request)?;
    Ok(bytes::Bytes::copy_from_slice(request.der()))
}

/// Checks the answer: our name, our key, and the CA that the token pins.
fn accept(
    certified: v1::Certified,
    token: &Token,
    node: &str,
    key: &KeyPair,
    store: &CredentialStore,
) -> Result<NodeCredentials, EnrolmentError> {
    let v1::Certified { certificate, ca, .. } = certified;
    if !pinned::has_pinned_key(&ca, token.pin) {
        let reason = "it answered with another CA".to_owned();
        return Err(EnrolmentError::OtherCluster { endpoint: "the replica".to_owned(), reason });
    }
    let texts = PemTexts { ca, certificate, key: key.serialize_pem() };
    let credentials = NodeCredentials::new(&texts, Some(store.clone()))?;
    credentials.require_node(node)?;
    store.save(&texts)?;
    store.joined()?;
    tracing::info!(node, "joined");
    Ok(credentials)
}

/// Renews in time, for ever, beside the session. Credentials managed elsewhere are left alone.
pub async fn keep_renewed(credentials: NodeCredentials, servers: Vec<String>) {
    if !credentials.is_renewable() {
        return;
    }
    let mut schedule = Schedule::new(credentials.validity(), rand::random());
    loop {
        tokio::select! {
            () = wait_until(schedule.due()) => {}
            () = credentials.doubted() => schedule.hasten(SystemTime::now()),
        }
        let pause = match renew(&credentials, &servers).await {
            Ok(()) => schedule.renewed(credentials.validity(), rand::random()),
            Err(error) => {
                log_failure(&error, credentials.is_expired(SystemTime::now()));
                schedule.failed(kind_of(&error), rand::random())
            }
        };
        sleep(pause).await;
    }
}

fn kind_of(error: &EnrolmentError) -> AttemptFailure {
    if matches!(error, EnrolmentError::Unanswered(_)) { AttemptFailure::Unanswered } else { AttemptFailure::Refused }
}

fn log_failure(error: &EnrolmentError, expired: bool) {
    if expired {
        tracing::warn!(%error, "the certificate has expired and was not renewed; trying again, and if that lasts, join \
            this machine anew with a token of `muster token create --node`");
    } else {
        tracing::warn!(%error, "the certificate was not renewed; trying again");
    }
}

async fn wait_until(due: SystemTime) {
    while let Ok(left) = due.duration_since(SystemTime::now()) {
        sleep(left.min(LOOK_PERIOD)).await;
        if left.is_zero() {
            return;
        }
    }
}

/// Asks the replicas for a new certificate, once each.
pub async fn renew(credentials: &NodeCredentials, servers: &[String]) -> Result<(), EnrolmentError> {
    let endpoints = Endpoint::list(servers)?;
    let key = crate::credentials::new_key()?;
    let tls = TlsConnector::from(credentials.tls());
    let certified = ask_all(&endpoints, &tls, &Question::Renew(v1::RenewRequest { csr: csr(&key)? })).await?;
    credentials.renew(certified.certificate, key.serialize_pem())?;
    tracing::info!(node = credentials.node(), "certificate renewed");
    Ok(())
}

#[derive(Clone)]
enum Question {
    Join(v1::JoinRequest),
    Renew(v1::RenewRequest),
}

/// The first answer counts, also a refusal. A replica of another cluster says nothing about the next endpoint: that
/// error is returned only if it holds for all.
async fn ask_all(
    endpoints: &[Endpoint],
    tls: &TlsConnector,
    question: &Question,
) -> Result<v1::Certified, EnrolmentError> {
    let (mut unanswered, mut foreign) = (None, None);
    for endpoint in endpoints {
        match ask(endpoint, tls, question).await {
            Err(error @ EnrolmentError::Unanswered(_)) => unanswered = Some(error),
            Err(error @ EnrolmentError::OtherCluster { .. }) => {
                tracing::warn!(%error, "asking the next endpoint");
                foreign = Some(error);
            }
            answer @ (Ok(_) | Err(_)) => return answer,
        }
    }
    Err(unanswered.or(foreign).unwrap_or(EnrolmentError::Setup(SessionSetupError::NoEndpoints)))
}

async fn ask(endpoint: &Endpoint, tls: &TlsConnector, question: &Question) -> Result<v1::Certified, EnrolmentError> {
    let connected = dial::channel(endpoint, tls, STEP_TIMEOUT).await;
    let (channel, _connection) = connected.map_err(|failure| unreached(endpoint, failure))?;
    let mut client = EnrolmentClient::new(channel).max_decoding_message_size(dial::MESSAGE_MAX);
    let answer = async {
        match question.clone() {
            Question::Join(request) => client.join(request).await,
            Question::Renew(request) => client.renew(request).await,
        }
    };
    let late = |_| SessionFailure::Late { endpoint: endpoint.to_string(), what: "answer", limit: ANSWER_TIMEOUT };
    let answered = timeout(ANSWER_TIMEOUT, answer).await.map_err(|error| EnrolmentError::Unanswered(late(error)))?;
    answered.map(tonic::Response::into_inner).map_err(|status| {
        let is_refusal =
            [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument].contains(&status.code());
        let endpoint = endpoint.to_string();
        match is_refusal {
            true => EnrolmentError::Refused { endpoint, message: quoted(status.message()) },
            false => EnrolmentError::Unanswered(SessionFailure::from_status(&endpoint, &status)),
        }
    })
}

/// A replica of another cluster is a refusal; an unreachable one is not.
fn unreached(endpoint: &Endpoint, failure: SessionFailure) -> EnrolmentError {
    let is_another =
        matches!(&failure, SessionFailure::Unreachable { reason, .. } if reason.contains(pinned::MISMATCH));
    if is_another {
        return EnrolmentError::OtherCluster { endpoint: endpoint.to_string(), reason: pinned::MISMATCH.to_owned() };
    }
    EnrolmentError::Unanswered(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_credentials_and_token_the_error_names_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let refused =
            NodeCredentials::open_or_join(&CredentialStore::new(dir.path()), None, &["a:1".to_owned()], "n").await;
        assert!(refused.unwrap_err().to_string().contains("muster token create"));
    }
}
