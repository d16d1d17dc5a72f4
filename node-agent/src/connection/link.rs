//! Link to one replica: an open stream, and the steps that open it (connect, send hello, wait for the first answer).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_proto::v1;
use muster_proto::v1::agent_client::AgentClient;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::DropGuard;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use super::dial;
use super::endpoint::Endpoint;
use super::failure::SessionFailure;
use super::terms::ConnectTimeouts;

/// Messages queued but not yet written to the connection. Few, because a beat that waited long would report what is no
/// longer true.
const UP_QUEUE: usize = 4;
/// How long an orderly close may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// The two kinds of streams that the agents' door offers.
pub(crate) trait StreamKind: Send + 'static {
    type Up: Send + 'static;
    type Down: Send + 'static;

    fn open(
        client: AgentClient<Channel>,
        up: ReceiverStream<Self::Up>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Down>>, Status>> + Send;
}

/// The stream of one node.
pub(crate) struct NodeStream;
/// The stream of an aggregator, which carries many nodes.
pub(crate) struct AggregatorStream;

/// Dropping a link closes its connection at once.
pub(crate) struct Link<C: StreamKind> {
    pub(crate) endpoint: usize,
    pub(crate) endpoint_name: String,
    opened: Instant,
    sender: LinkSender<C>,
    receiver: LinkReceiver<C>,
    connection: DropGuard,
}

pub(crate) struct LinkSender<C: StreamKind> {
    up: mpsc::Sender<C::Up>,
}

pub(crate) struct LinkReceiver<C: StreamKind> {
    endpoint_name: String,
    down: Streaming<C::Down>,
}

pub(crate) type Attempt<C> = BoxFuture<'static, Result<(Box<Link<C>>, <C as StreamKind>::Down), SessionFailure>>;

/// Opens links: the endpoints, the TLS configuration and the limit on concurrent connects.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) endpoints: Arc<[Endpoint]>,
    pub(crate) tls: TlsConnector,
    /// Shared by agents that must not all connect at once.
    pub(crate) gate: Option<Arc<Semaphore>>,
}

// === impl StreamKind ===

impl StreamKind for NodeStream {
    type Up = v1::AgentMessage;
    type Down = v1::ServerMessage;

    async fn open(
        mut client: AgentClient<Channel>,
        up: ReceiverStream<v1::AgentMessage>,
    ) -> Result<Response<Streaming<v1::ServerMessage>>, Status> {
        client.session(up).await
    }
}

impl StreamKind for AggregatorStream {
    type Up = v1::AggregatorMessage;
    type Down = v1::AggregatorReply;

    async fn open(
        mut client: AgentClient<Channel>,
        up: ReceiverStream<v1::AggregatorMessage>,
    ) -> Result<Response<Streaming<v1::AggregatorReply>>, Status> {
        client.carry(up).await
    }
}

// === impl Opener ===

impl Opener {
    /// Prepares an attempt to open a link with `hello`. Nothing happens before it is polled.
    pub(crate) fn attempt<C: StreamKind>(&self, endpoint: usize, hello: C::Up, limit: ConnectTimeouts) -> Attempt<C> {
        self.clone().open::<C>(endpoint, hello, limit).boxed()
    }

    async fn open<C: StreamKind>(
        self,
        index: usize,
        hello: C::Up,
        limit: ConnectTimeouts,
    ) -> Result<(Box<Link<C>>, C::Down), SessionFailure> {
        let _turn = match &self.gate {
            Some(gate) => gate.acquire().await.ok(),
            None => None,
        };
        let endpoint = &self.endpoints[index];
        let (client, connection) = dial::connect(endpoint, &self.tls, limit.step).await?;
        let greeting = timeout(limit.answer, greet::<C>(client, hello, endpoint));
        let late = |_| SessionFailure::Late { endpoint: endpoint.to_string(), what: "answer", limit: limit.answer };
        let (sender, receiver, first) = greeting.await.map_err(late)??;
        let (endpoint_name, opened) = (endpoint.to_string(), Instant::now());
        let link = Link { endpoint: index, endpoint_name, opened, sender, receiver, connection };
        Ok((Box::new(link), first))
    }
}

type Greeted<C> = (LinkSender<C>, LinkReceiver<C>, <C as StreamKind>::Down);

async fn greet<C: StreamKind>(
    client: AgentClient<Channel>,
    hello: C::Up,
    endpoint: &Endpoint,
) -> Result<Greeted<C>, SessionFailure> {
    let endpoint_name = endpoint.to_string();
    let (up, queue) = mpsc::channel(UP_QUEUE);
    // A new queue has room, so this cannot fail.
    let _ = up.try_send(hello);
    let opened = C::open(client, ReceiverStream::new(queue)).await;
    let down = opened.map_err(|status| SessionFailure::from_status(&endpoint_name, &status))?.into_inner();
    let mut receiver = LinkReceiver { endpoint_name, down };
    let first = receiver.receive().await?;
    Ok((LinkSender { up }, receiver, first))
}

// === impl Link ===

impl<C: StreamKind> Link<C> {
    /// Both directions, so that a caller can wait for them at the same time.
    pub(crate) fn split(&mut self) -> (&mut LinkReceiver<C>, &LinkSender<C>) {
        (&mut self.receiver, &self.sender)
    }

    /// Sends a message if there is room: callers wait for [`LinkSender::turn`] first.
    pub(crate) fn send(&self, message: C::Up) {
        let _ = self.sender.up.try_send(message);
    }

    pub(crate) fn lifetime(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Sends the last messages and waits until the replica has closed the stream.
    pub(crate) async fn close(self, last_words: impl IntoIterator<Item = C::Up>) {
        let Self { sender, mut receiver, connection, .. } = self;
        let farewell = async move {
            for message in last_words {
                if sender.up.send(message).await.is_err() {
                    return;
                }
            }
            drop(sender);
            while receiver.receive().await.is_ok() {}
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
        drop(connection);
    }
}

impl<C: StreamKind> LinkReceiver<C> {
    pub(crate) async fn receive(&mut self) -> Result<C::Down, SessionFailure> {
        match self.down.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(closed(&self.endpoint_name)),
            Err(status) => Err(SessionFailure::from_status(&self.endpoint_name, &status)),
        }
    }
}

impl<C: StreamKind> LinkSender<C> {
    /// Waits until `due`, and then until the connection has room for another message.
    pub(crate) async fn turn(&self, due: Instant) {
        sleep_until(due).await;
        if self.up.reserve().await.is_err() {
            // The connection takes no more messages; its end will be received.
            std::future::pending().await
        }
    }
}

fn closed(endpoint: &str) -> SessionFailure {
    SessionFailure::Lost { endpoint: endpoint.to_owned(), reason: "the replica ended the stream".to_owned() }
}
