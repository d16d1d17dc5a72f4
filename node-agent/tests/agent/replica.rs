//! Scripted replica: it accepts the streams that agents open, receives what they send and answers as the test says.
//! By itself it only gives acknowledgements, until it is told to withhold them, and it keeps and accepts machine
//! reports.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::agent_server::{Agent, AgentServer};
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::server_message::Message as Down;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::connection::{Connection, Frost};
use crate::tls;

/// Longer than anything in these tests takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
const QUEUE: usize = 1024;

pub(crate) type SessionStream = Served<v1::AgentMessage, v1::ServerMessage>;
pub(crate) type AggregatorStream = Served<v1::AggregatorMessage, v1::AggregatorReply>;

pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    sessions: mpsc::Receiver<SessionStream>,
    aggregators: mpsc::Receiver<AggregatorStream>,
    frost: Frost,
    _serving: AbortOnDropHandle<()>,
}

/// One stream an agent opened. Dropping it ends the stream.
pub(crate) struct Served<U, D> {
    up: Streaming<U>,
    down: mpsc::Sender<Result<D, Status>>,
    pub(crate) opened: Instant,
    pub(crate) acknowledges: bool,
    /// The reports of welcomed nodes about their machines.
    pub(crate) machine_reports: Vec<v1::Register>,
}

struct Service {
    sessions: mpsc::Sender<SessionStream>,
    aggregators: mpsc::Sender<AggregatorStream>,
}

// === impl Replica ===

impl Replica {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, sessions) = mpsc::channel(QUEUE);
        let (taken_aggregators, aggregators) = mpsc::channel(QUEUE);
        let service = AgentServer::new(Service { sessions: taken, aggregators: taken_aggregators });
        let (admitted, connections) = mpsc::channel(QUEUE);
        let frost = Frost::default();
        let accepting = accept(listener, admitted, frost.clone());
        let serving = async move {
            let incoming = ReceiverStream::new(connections);
            let serving = Server::builder().add_service(service).serve_with_incoming(incoming);
            tokio::select! {
                () = accepting => {}
                _ = serving => {}
            }
        };
        let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Self { address, sessions, aggregators, frost, _serving }
    }

    /// The process hangs: its sockets stay open, and nothing happens on them any more.
    pub(crate) fn freeze(&self) {
        self.frost.set_in();
    }

    pub(crate) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// The next session stream, and the hello that opened it.
    pub(crate) async fn session(&mut self) -> (SessionStream, v1::Hello) {
        let mut session = timeout(TIMEOUT, self.sessions.recv()).await.expect("no agent connected").unwrap();
        match session.receive().await {
            Some(Up::Hello(hello)) => (session, hello),
            other => panic!("hello was due, not {other:?}"),
        }
    }

    /// A session stream that was greeted and welcomed as this incarnation.
    pub(crate) async fn welcomed(&mut self, welcome: v1::Welcome) -> SessionStream {
        let (session, _) = self.session().await;
        session.send(Down::Welcome(welcome)).await;
        session
    }

    pub(crate) async fn aggregator(&mut self) -> AggregatorStream {
        timeout(TIMEOUT, self.aggregators.recv()).await.expect("no agent connected").unwrap()
    }

    /// True if no session was opened in this period.
    pub(crate) async fn is_left_alone(&mut self, period: Duration) -> bool {
        timeout(period, self.sessions.recv()).await.is_err()
    }
}

async fn accept(listener: TcpListener, admitted: mpsc::Sender<Result<Connection, Infallible>>, frost: Frost) {
    let acceptor = TlsAcceptor::from(tls::server());
    let mut unheard = Vec::new();
    while let Ok((tcp, _)) = listener.accept().await {
        if frost.is_here() {
            unheard.push(tcp);
            continue;
        }
        let (acceptor, admitted, frost) = (acceptor.clone(), admitted.clone(), frost.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(tcp).await {
                let _ = admitted.send(Ok(Connection { stream, frost })).await;
            }
        });
    }
}

pub(crate) fn terms(revision: u64, beat_interval_ms: u32) -> v1::Terms {
    v1::Terms { revision, beat_interval_ms, grace_ms: 4 * beat_interval_ms, backoff_cap_ms: 400 }
}

pub(crate) fn welcome(replica: u64, incarnation: u64, beat_interval_ms: u32) -> v1::Welcome {
    v1::Welcome {
        fleet: "fleet-1".into(),
        replica,
        incarnation,
        uid: "u".into(),
        terms: Some(terms(1, beat_interval_ms)),
        status_wanted: false,
        protocol_min: 1,
        protocol_max: 1,
    }
}

// === impl Served ===

impl<U, D> Served<U, D> {
    async fn message(&mut self) -> Option<U> {
        timeout(TIMEOUT, self.up.next()).await.expect("nothing was said").and_then(Result::ok)
    }

    /// Ends the stream with a verdict.
    pub(crate) async fn refuse(self, status: Status) {
        self.down.send(Err(status)).await.unwrap();
    }

    /// Waits until the agent has ended the stream, by whatever means.
    pub(crate) async fn ended(mut self) {
        while self.message().await.is_some() {}
    }
}

impl SessionStream {
    pub(crate) async fn send(&self, message: Down) {
        self.down.send(Ok(v1::ServerMessage { message: Some(message) })).await.unwrap();
    }

    /// None if the stream ended.
    pub(crate) async fn receive(&mut self) -> Option<Up> {
        loop {
            let message = self.message().await?.message.unwrap();
            self.acknowledge_if_asked(&message).await;
            if !self.is_machine_report(&message).await {
                return Some(message);
            }
        }
    }

    /// A machine report: not asked for, and without the running pods.
    async fn is_machine_report(&mut self, message: &Up) -> bool {
        let Up::Register(register @ v1::Register { running: None, .. }) = message else { return false };
        self.machine_reports.push(register.clone());
        let registered = v1::ServerMessage { message: Some(Down::Registered(v1::Registered::default())) };
        // The agent may have left meanwhile.
        let _ = self.down.send(Ok(registered)).await;
        true
    }

    async fn acknowledge_if_asked(&self, message: &Up) {
        if let Up::Beat(v1::Beat { sequence, acknowledge: true }) = *message
            && self.acknowledges
        {
            let acknowledged = v1::ServerMessage { message: Some(Down::Acknowledged(v1::Acknowledged { sequence })) };
            // The agent may have left meanwhile.
            let _ = self.down.send(Ok(acknowledged)).await;
        }
    }

    pub(crate) async fn beat(&mut self) -> v1::Beat {
        loop {
            match self.receive().await {
                Some(Up::Beat(beat)) => return beat,
                Some(_) => {}
                None => panic!("the stream ended where a beat was due"),
            }
        }
    }

    /// The next status, with beats passed over.
    pub(crate) async fn status(&mut self) -> v1::StatusReport {
        loop {
            match self.receive().await {
                Some(Up::Status(report)) => return report,
                Some(Up::Beat(_)) => {}
                other => panic!("a status was due, not {other:?}"),
            }
        }
    }

    /// The same, answered as accepted.
    pub(crate) async fn take_status(&mut self) -> v1::StatusReport {
        let report = self.status().await;
        let taken = v1::StatusTaken { sequence: report.sequence, written: true, refused: String::new() };
        self.send(Down::StatusTaken(taken)).await;
        report
    }

    pub(crate) async fn registration(&mut self) -> v1::Register {
        loop {
            match self.receive().await {
                Some(Up::Register(register)) => return register,
                Some(Up::Beat(_) | Up::Status(_)) => {}
                other => panic!("a registration was due, not {other:?}"),
            }
        }
    }

    /// The messages within a period; none if the stream ended.
    pub(crate) async fn hear_for(&mut self, period: Duration) -> Option<Vec<Up>> {
        let until = Instant::now() + period;
        let mut heard = Vec::new();
        while let Ok(message) = timeout_at(until, self.up.next()).await {
            let message = message?.ok()?.message.unwrap();
            self.acknowledge_if_asked(&message).await;
            if !self.is_machine_report(&message).await {
                heard.push(message);
            }
        }
        Some(heard)
    }
}

impl AggregatorStream {
    pub(crate) async fn send(&self, message: v1::aggregator_reply::Message) {
        self.down.send(Ok(v1::AggregatorReply { message: Some(message) })).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Option<AggregatorUp> {
        loop {
            let message = self.message().await?.message.unwrap();
            self.acknowledge_if_asked(&message).await;
            if !self.is_machine_report(&message).await {
                return Some(message);
            }
        }
    }

    async fn is_machine_report(&mut self, message: &AggregatorUp) -> bool {
        let AggregatorUp::Register(v1::CarriedRegister { handle, register: Some(register) }) = message else {
            return false;
        };
        if register.running.is_some() {
            return false;
        }
        self.machine_reports.push(register.clone());
        let registered = v1::ServerMessage { message: Some(Down::Registered(v1::Registered::default())) };
        let carried = v1::Carried { handle: *handle, message: Some(registered) };
        let reply = v1::AggregatorReply { message: Some(v1::aggregator_reply::Message::Carried(carried)) };
        let _ = self.down.send(Ok(reply)).await;
        true
    }

    async fn acknowledge_if_asked(&self, message: &AggregatorUp) {
        if let AggregatorUp::Beats(v1::Beats { acknowledge: sequence @ 1.., .. }) = *message
            && self.acknowledges
        {
            let acknowledged = v1::aggregator_reply::Message::Acknowledged(v1::Acknowledged { sequence });
            // The agent may have left meanwhile.
            let _ = self.down.send(Ok(v1::AggregatorReply { message: Some(acknowledged) })).await;
        }
    }
}

// === impl Service ===

type Replies<D> = ReceiverStream<Result<D, Status>>;

fn serve<U, D>(request: Request<Streaming<U>>) -> (Served<U, D>, Response<Replies<D>>) {
    let (down, replies) = mpsc::channel(QUEUE);
    let served = Served {
        up: request.into_inner(),
        down,
        opened: Instant::now(),
        acknowledges: true,
        machine_reports: Vec::new(),
    };
    (served, Response::new(ReceiverStream::new(replies)))
}

#[tonic::async_trait]
impl Agent for Service {
    type SessionStream = Replies<v1::ServerMessage>;
    type CarryStream = Replies<v1::AggregatorReply>;

    async fn who_is(&self, _: Request<v1::WhoIsRequest>) -> Result<Response<v1::WhoIsResponse>, Status> {
        Err(Status::unimplemented("not asked in these tests"))
    }

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (served, response) = serve(request);
        self.sessions.send(served).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(response)
    }

    async fn carry(
        &self,
        request: Request<Streaming<v1::AggregatorMessage>>,
    ) -> Result<Response<Self::CarryStream>, Status> {
        let (served, response) = serve(request);
        self.aggregators.send(served).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(response)
    }
}
