//! The operators' client: one handle that finds a working replica for every call.
//!
//! An operator should not need to know which replica leads or which machine is down. A call goes to the replica that
//! answered last. When that one cannot be reached, has no quorum or stays silent, the next is tried, in rounds with a
//! growing pause, until the caller's deadline. When all of them refuse the connection, no replica runs and the call
//! ends at once. Answers that another replica would only repeat (not found, conflict, denied, invalid) end the call at
//! once. Writes carry a client id and a sequence, so that a repeated write after a lost answer applies once.

mod dial;
mod endpoint;
mod error;
mod retry;
mod watch;

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_pki::ClientConfig;
use muster_proto::v1::{self, member_request, write_request};
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use self::dial::connect;
pub use self::endpoint::SetupError;
pub use self::error::{Error, Exhausted, Tried, Why};
pub use self::watch::{Watch, WatchError};

use self::endpoint::Endpoints;
use self::error::Silence;
use self::retry::{Backoff, Patience};

/// The time limit of a call for which the caller sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much earlier than the client's own deadline a replica should answer a write, so that its reason arrives.
const ANSWER_MARGIN: Duration = Duration::from_millis(250);

/// Talks to one cluster. Writes through one handle are sent one after the other, because a client id may have only one
/// outstanding; use [`Client::sibling`] for concurrent writers.
pub struct Client {
    endpoints: Arc<Endpoints>,
    timeout: Duration,
    writer: Mutex<Writer>,
}

/// The objects that a list or watch selects.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The plural of a kind, as in `muster get KIND`: `nodes`, `pods`, `events` and so on.
    pub kind: String,
    pub label_selector: String,
    pub field_selector: String,
    /// Zero for all.
    pub limit: u32,
    pub stale: bool,
    /// Empty for all.
    pub namespace: String,
}

/// An answer, the revision of the state it was read from, and the replica that gave it.
#[derive(Debug, Clone)]
pub struct Read<T> {
    pub value: T,
    pub revision: u64,
    /// The address of the replica that answered.
    pub answered_by: String,
}

struct Writer {
    id: Bytes,
    sequence: u64,
}

// === impl Client ===

impl Client {
    /// Prepares the credentials; connections are made when they are needed.
    pub fn new(config: ClientConfig) -> Result<Self, SetupError> {
        Ok(Self::over(Arc::new(Endpoints::new(&config)?), DEFAULT_TIMEOUT))
    }

    /// The same client with another deadline for every call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Another writer over the same connections, with a client id of its own.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self::over(self.endpoints.clone(), self.timeout)
    }

    /// The addresses this client knows.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.endpoints.addresses()
    }

    /// One object as Kubernetes JSON.
    pub async fn get(&self, kind: &str, name: &str, stale: bool) -> Result<Read<Bytes>, Error> {
        self.get_in("", kind, name, stale).await
    }

    /// The same for kinds that have namespaces.
    pub async fn get_in(&self, namespace: &str, kind: &str, name: &str, stale: bool) -> Result<Read<Bytes>, Error> {
        let answer = self
            .call(Patience::quick(), |mut operator, patience| {
                let consistency = Some(v1::Consistency { stale, timeout_ms: answer_within_ms(patience) });
                let request =
                    v1::GetRequest { kind: kind.into(), name: name.into(), consistency, namespace: namespace.into() };
                async move { Ok(operator.get(request).await?.into_inner()) }
            })
            .await?;
        Ok(Read { value: answer.value.object, revision: answer.value.revision, answered_by: answer.address })
    }

    /// Every matching object as Kubernetes JSON, all from one revision.
    pub async fn list(&self, query: &Query) -> Result<Read<Vec<Bytes>>, Error> {
        let answer = self
            .call(Patience::stream(self.timeout), |mut operator, silence| {
                let request = query.list_request(answer_within_ms(silence));
                async move {
                    let mut chunks = within(silence, operator.list(request)).await?.into_inner();
                    let (mut objects, mut revision) = (Vec::new(), 0);
                    while let Some(chunk) = within(silence, chunks.message()).await? {
                        objects.extend(chunk.objects);
                        revision = chunk.revision;
                    }
                    Ok((objects, revision))
                }
            })
            .await?;
        let (value, revision) = answer.value;
        Ok(Read { value, revision, answered_by: answer.address })
    }

    /// Changes after `from`, or everything there is (as ADDED) and then changes.
    pub async fn watch(&self, query: Query, from: Option<u64>) -> Result<Watch, Error> {
        let (initial, revision) = match from {
            Some(revision) => (Vec::new(), revision),
            None => {
                let list = self.list(&query).await?;
                (list.value, list.revision)
            }
        };
        Ok(Watch::new(self.endpoints.clone(), self.timeout, query, initial, revision))
    }

    /// Applies one change, once, however often it had to be sent.
    pub async fn write(&self, operation: write_request::Operation) -> Result<v1::WriteResponse, Error> {
        let mut writer = self.writer.lock().await;
        let request = v1::WriteRequest { request: Some(writer.next()), operation: Some(operation), timeout_ms: 0 };
        let answer = self
            .call(Patience::write(), |mut operator, patience| {
                let mut request = request.clone();
                request.timeout_ms = answer_within_ms(patience);
                async move { Ok(operator.write(request).await?.into_inner()) }
            })
            .await?;
        Ok(answer.value)
    }

    /// Why a node, zone or pod is in the state it is in, as the leader sees it; JSON.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<Read<Bytes>, Error> {
        self.explain_in("", kind, name).await
    }

    /// The same for kinds that have namespaces.
    pub async fn explain_in(&self, namespace: &str, kind: &str, name: &str) -> Result<Read<Bytes>, Error> {
        let answer = self
            .call(Patience::quick(), |mut operator, patience| {
                let consistency = Some(v1::Consistency { stale: false, timeout_ms: answer_within_ms(patience) });
                let request = v1::ExplainRequest {
                    kind: kind.into(),
                    name: name.into(),
                    consistency,
                    namespace: namespace.into(),
                };
                async move { Ok(operator.explain(request).await?.into_inner()) }
            })
            .await?;
        Ok(Read { value: answer.value.explanation, revision: answer.value.revision, answered_by: answer.address })
    }

    /// The cluster's status. A replica in contact with a leader is believed before one that is not.
    pub async fn status(&self) -> Result<v1::StatusResponse, Error> {
        let mut leaderless = None;
        let deadline = Instant::now() + self.timeout;
        for index in self.endpoints.order() {
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = self.endpoints.attempt(index, Patience::quick().within(left), &mut ask_status).await;
            match asked {
                Ok(status) if has_leader(&status) => return Ok(status),
                Ok(status) => leaderless = leaderless.or(Some(status)),
                Err(_) => {}
            }
        }
        match leaderless {
            Some(status) => Ok(status),
            None => Ok(self.call(Patience::quick(), ask_status).await?.value),
        }
    }

    /// The last beat of every node, as the replica that answers knows it; with `first_hand` only what it heard itself.
    pub async fn pulses(&self, first_hand: bool) -> Result<Vec<v1::PulsesPart>, Error> {
        let answer = self
            .call(Patience::stream(self.timeout), |mut operator, silence| async move {
                let asked = operator.pulses(v1::PulsesRequest { first_hand });
                let mut stream = within(silence, asked).await?.into_inner();
                let mut parts = Vec::new();
                while let Some(part) = within(silence, stream.message()).await? {
                    parts.push(part);
                }
                Ok(parts)
            })
            .await?;
        Ok(answer.value)
    }

    /// The id of the replica at an address of this client, if it answers at once.
    pub async fn replica_at(&self, address: &str) -> Option<u64> {
        let index = self.endpoints.index_of(address)?;
        let status = self.endpoints.attempt(index, Patience::glance(), &mut ask_status).await.ok()?;
        Some(status.answered_by)
    }

    /// Changes the members of the cluster. One replica is asked at a time and may take the whole deadline, because a
    /// learner has to catch up first.
    pub async fn member(&self, action: member_request::Action) -> Result<String, Error> {
        let request = v1::MemberRequest { action: Some(action) };
        let answer = self
            .call(Patience::patient(self.timeout), |mut operator, _| {
                let request = request.clone();
                async move { Ok(operator.member(request).await?.into_inner().message) }
            })
            .await?;
        Ok(answer.value)
    }

    /// Streams a backup into `file`, which is emptied first, and again if another replica has to start over. Returns
    /// the number of bytes; the caller syncs.
    pub async fn backup(&self, file: &std::fs::File) -> Result<u64, Error> {
        let answer = self
            .call(Patience::prepared_stream(self.timeout), |mut operator, silence| async move {
                let mut chunks = within(silence, operator.backup(v1::BackupRequest {})).await?.into_inner();
                let mut file = file;
                file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(disk)?;
                let mut written = 0;
                while let Some(chunk) = within(silence, chunks.message()).await? {
                    file.write_all(&chunk.data).map_err(disk)?;
                    written += chunk.data.len() as u64;
                }
                Ok(written)
            })
            .await?;
        Ok(answer.value)
    }

    fn over(endpoints: Arc<Endpoints>, timeout: Duration) -> Self {
        Self { endpoints, timeout, writer: Mutex::new(Writer::new()) }
    }

    async fn call<T, F, Fut>(&self, patience: Patience, call: F) -> Result<retry::Answer<T>, Error>
    where
        F: FnMut(retry::Operator, Duration) -> Fut,
        Fut: Future<Output = Result<T, tonic::Status>>,
    {
        retry::call(&self.endpoints, self.timeout, patience, Backoff::new(), call).await
    }
}

/// The time limit that a replica is given, so that its answer, even a refusal, arrives before the client gives up on
/// it.
fn answer_within_ms(patience: Duration) -> u32 {
    let wait = patience.saturating_sub(ANSWER_MARGIN).max(patience / 2);
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)
}

// === impl Query ===

impl Query {
    /// All objects of a kind.
    pub fn of(kind: &str) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    fn list_request(&self, timeout_ms: u32) -> v1::ListRequest {
        v1::ListRequest {
            kind: self.kind.clone(),
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            limit: self.limit,
            consistency: Some(v1::Consistency { stale: self.stale, timeout_ms }),
            namespace: self.namespace.clone(),
        }
    }

    fn watch_request(&self, from: u64) -> v1::WatchRequest {
        v1::WatchRequest {
            kind: self.kind.clone(),
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            from_revision: Some(from),
            namespace: self.namespace.clone(),
        }
    }
}

// === impl Writer ===

impl Writer {
    fn new() -> Self {
        Self { id: Bytes::copy_from_slice(uuid::Uuid::new_v4().as_bytes()), sequence: 0 }
    }

    fn next(&mut self) -> v1::RequestId {
        self.sequence += 1;
        v1::RequestId { client: self.id.clone(), sequence: self.sequence }
    }
}

/// Whether the replica that answered is in contact with a leader; it may remember one that is gone.
pub fn has_leader(status: &v1::StatusResponse) -> bool {
    let unreachable = |leader| status.replicas.iter().any(|replica| replica.id == leader && !replica.reachable);
    status.leader.is_some_and(|leader| !unreachable(leader))
}

async fn ask_status(mut operator: retry::Operator, _: Duration) -> Result<v1::StatusResponse, tonic::Status> {
    Ok(operator.status(v1::StatusRequest {}).await?.into_inner())
}

/// Bounds the silence inside a stream: a long answer is fine as long as it keeps coming.
async fn within<T>(
    silence: Duration,
    step: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<T, tonic::Status> {
    match tokio::time::timeout(silence, step).await {
        Ok(result) => result,
        Err(_) => Err(tonic::Status::from_error(Box::new(Silence(silence)))),
    }
}

/// A local disk error ends a backup; no other replica could do better.
fn disk(error: std::io::Error) -> tonic::Status {
    tonic::Status::failed_precondition(format!("cannot write the backup here: {error}"))
}

#[cfg(test)]
mod tests;
