//! An open stream to one replica, and how it is opened: connect, say hello, wait for the first answer.

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

use crate::dial;
use crate::door::Door;
use crate::failure::Failure;
use crate::terms::Patience;

/// Messages said but not yet written to the connection. Few: a beat that waited long would say what is no longer true.
const UP_QUEUE: usize = 4;
/// How long an orderly end may take.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);

/// The two kinds of streams of the agents' door.
pub(crate) trait Call: Send + 'static {
    type Up: Send + 'static;
    type Down: Send + 'static;

    fn open(
        client: AgentClient<Channel>,
        up: ReceiverStream<Self::Up>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Down>>, Status>> + Send;
}

/// One node's stream.
pub(crate) struct Alone;
/// A stream that carries many nodes.
pub(crate) struct Together;

/// Dropping it closes the connection at once.
pub(crate) struct Link<C: Call> {
    pub(crate) door: usize,
    pub(crate) door_name: String,
    opened: Instant,
    mouth: Mouth<C>,
    ear: Ear<C>,
    connection: DropGuard,
}

pub(crate) struct Mouth<C: Call> {
    up: mpsc::Sender<C::Up>,
}

pub(crate) struct Ear<C: Call> {
    door_name: String,
    down: Streaming<C::Down>,
}

pub(crate) type Attempt<C> = BoxFuture<'static, Result<(Box<Link<C>>, <C as Call>::Down), Failure>>;

/// What it takes to open a link.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) doors: Arc<[Door]>,
    pub(crate) tls: TlsConnector,
    /// Shared by agents that must not all connect at once.
    pub(crate) gate: Option<Arc<Semaphore>>,
}

// === impl Call ===

impl Call for Alone {
    type Up = v1::AgentMessage;
    type Down = v1::ServerMessage;

    async fn open(
        mut client: AgentClient<Channel>,
        up: ReceiverStream<v1::AgentMessage>,
    ) -> Result<Response<Streaming<v1::ServerMessage>>, Status> {
        client.session(up).await
    }
}

impl Call for Together {
    type Up = v1::CarrierMessage;
    type Down = v1::CarrierReply;

    async fn open(
        mut client: AgentClient<Channel>,
        up: ReceiverStream<v1::CarrierMessage>,
    ) -> Result<Response<Streaming<v1::CarrierReply>>, Status> {
        client.carry(up).await
    }
}

// === impl Opener ===

impl Opener {
    /// Begins to open a link with `hello`; nothing happens unless it is polled.
    pub(crate) fn attempt<C: Call>(&self, door: usize, hello: C::Up, patience: Patience) -> Attempt<C> {
        self.clone().open::<C>(door, hello, patience).boxed()
    }

    async fn open<C: Call>(
        self,
        index: usize,
        hello: C::Up,
        patience: Patience,
    ) -> Result<(Box<Link<C>>, C::Down), Failure> {
        let _turn = match &self.gate {
            Some(gate) => gate.acquire().await.ok(),
            None => None,
        };
        let door = &self.doors[index];
        let (client, connection) = dial::connect(door, &self.tls, patience.step).await?;
        let greeting = timeout(patience.answer, greet::<C>(client, hello, door));
        let late = |_| Failure::Late { door: door.to_string(), what: "answer", patience: patience.answer };
        let (mouth, ear, first) = greeting.await.map_err(late)??;
        let (door_name, opened) = (door.to_string(), Instant::now());
        let link = Link { door: index, door_name, opened, mouth, ear, connection };
        Ok((Box::new(link), first))
    }
}

type Greeted<C> = (Mouth<C>, Ear<C>, <C as Call>::Down);

async fn greet<C: Call>(client: AgentClient<Channel>, hello: C::Up, door: &Door) -> Result<Greeted<C>, Failure> {
    let door_name = door.to_string();
    let (up, queue) = mpsc::channel(UP_QUEUE);
    // A new queue has room, so this cannot fail.
    let _ = up.try_send(hello);
    let opened = C::open(client, ReceiverStream::new(queue)).await;
    let down = opened.map_err(|status| Failure::from_status(&door_name, &status))?.into_inner();
    let mut ear = Ear { door_name, down };
    let first = ear.hear().await?;
    Ok((Mouth { up }, ear, first))
}

// === impl Link ===

impl<C: Call> Link<C> {
    /// The two directions, to be waited for at the same time.
    pub(crate) fn split(&mut self) -> (&mut Ear<C>, &Mouth<C>) {
        (&mut self.ear, &self.mouth)
    }

    /// Says something, if there is room: to be called when a turn has come.
    pub(crate) fn say(&self, message: C::Up) {
        let _ = self.mouth.up.try_send(message);
    }

    pub(crate) fn lifetime(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Says the last words and waits until the other side has heard them.
    pub(crate) async fn close(self, last_words: impl IntoIterator<Item = C::Up>) {
        let Self { mouth, mut ear, connection, .. } = self;
        let farewell = async move {
            for message in last_words {
                if mouth.up.send(message).await.is_err() {
                    return;
                }
            }
            drop(mouth);
            while ear.hear().await.is_ok() {}
        };
        let _ = timeout(FAREWELL_PATIENCE, farewell).await;
        drop(connection);
    }
}

impl<C: Call> Ear<C> {
    pub(crate) async fn hear(&mut self) -> Result<C::Down, Failure> {
        match self.down.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(closed(&self.door_name)),
            Err(status) => Err(Failure::from_status(&self.door_name, &status)),
        }
    }
}

impl<C: Call> Mouth<C> {
    /// Waits until `due`, and then until the connection can take another message.
    pub(crate) async fn turn(&self, due: Instant) {
        sleep_until(due).await;
        if self.up.reserve().await.is_err() {
            // The connection no longer takes anything; hearing its end is what remains.
            std::future::pending().await
        }
    }
}

fn closed(door: &str) -> Failure {
    Failure::Lost { door: door.to_owned(), reason: "the replica ended the stream".to_owned() }
}
