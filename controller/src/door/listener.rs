//! The accept loop of a door: it turns a plain connection into one whose peer is known.
//!
//! The transport library's own loop bounds neither connections nor handshakes and does not report the callers that it
//! refuses. This loop waits for a free place before it accepts, so that the surplus stays in the kernel's backlog. It
//! gives each handshake a few seconds. It logs each refusal with the address and the reason, at a bounded rate.

mod peer;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use muster_pki::FleetId;
use muster_pki::identity::{self, Identity, Role};
use muster_raft::connector::Io;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use crate::door::certificate_clock::CertificateClock;
use crate::door::connector;
use crate::door::handshakes::Handshakes;
use crate::door::strangers::{Place, STRANGERS_MAX, STRANGERS_PER_ADDRESS, Strangers};
use crate::door::{DoorKind, Limits};
use crate::observe::logging::Gate;

pub use self::peer::{CertificateLife, Peer};

pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Without file descriptors every accept fails at once; a pause lets some be closed instead of burning a core.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: u32 = 4096;
/// Connections that finished their handshake and wait for the server, which takes them at once.
const READY_QUEUE: usize = 64;
/// A machine without a certificate joins well within this time.
const STRANGER_STAY: Duration = Duration::from_secs(30);
const LOGGED_PER_WINDOW: u32 = 10;
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// A source of plain connections: a TCP socket, or a simulated network.
pub trait Listener: Send + 'static {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>>;
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "cannot listen for {kind} connections on {address}: the address is in use; stop the program that uses it, or choose \
         another with {} (`{}` in the configuration)",
        kind.listen_flag(),
        kind.listen_key()
    )]
    InUse { kind: DoorKind, address: SocketAddr },
    #[error(
        "cannot listen for {kind} connections on {address}: choose an address of this machine with {} (`{}` in the \
         configuration)",
        kind.listen_flag(),
        kind.listen_key()
    )]
    Other { kind: DoorKind, address: SocketAddr, source: io::Error },
}

/// Why a caller was refused. Only the log gets the reason: a stranger learns nothing.
#[derive(Debug, thiserror::Error)]
pub enum DoorRefusal {
    #[error("the handshake took longer than {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Stalled,
    #[error("no client certificate was shown")]
    NoCertificate,
    #[error("wrong CA: the certificate was not signed by the CA of this door")]
    WrongAuthority,
    #[error("the certificate has expired or is not valid yet")]
    Expired,
    #[error("the certificate of {user} expired {ago} s ago: too long to renew it; join again with a new token")]
    Lapsed { user: String, ago: u64 },
    #[error(
        "too many callers without a certificate: at most {STRANGERS_PER_ADDRESS} of one address, {STRANGERS_MAX} of all"
    )]
    Crowded,
    #[error("wrong kind of certificate: it is not for clients")]
    WrongUsage,
    #[error("the handshake failed: {0}")]
    Handshake(io::Error),
    #[error("the certificate names no identity that is known here: {0}")]
    NoIdentity(#[from] identity::Error),
    #[error("wrong fleet: {user} belongs to fleet {theirs}")]
    WrongFleet { user: String, theirs: FleetId },
    #[error("wrong role: a {role} ({user}) has no business at this door")]
    WrongRole { user: String, role: &'static str },
}

/// TCP sockets, tuned for small messages and for noticing dead peers.
#[derive(Debug)]
pub struct Tcp {
    listener: TcpListener,
}

/// The checks that a caller of one door has to pass.
#[derive(Clone)]
pub struct Door {
    kind: DoorKind,
    acceptor: TlsAcceptor,
    fleet: FleetId,
    handshakes: Handshakes,
    /// How long after its expiry a node's certificate may be used to renew it.
    renewal_grace: Duration,
    /// Places for callers without a certificate.
    strangers: Strangers,
    /// The clock by which callers' certificates expire.
    clock: CertificateClock,
}

/// An admitted connection. It holds its place in the door's count until it is dropped.
pub struct Connection {
    stream: TlsStream<Box<dyn Io>>,
    peer: Peer,
    _place: Option<OwnedSemaphorePermit>,
    stay: Option<Stay>,
}

/// The time limit of a caller without a certificate, and its place among [`Strangers`].
struct Stay {
    until: Pin<Box<Sleep>>,
    _place: Place,
}

/// The admitted connections of a door. Dropping it closes the door; connections that were handed out stay open.
pub struct Incoming {
    ready: mpsc::Receiver<Connection>,
    accepting: AbortHandle,
}

// === impl Tcp ===

impl Tcp {
    pub fn bind(kind: DoorKind, address: SocketAddr) -> Result<Self, BindError> {
        match Self::listen(address) {
            Ok(listener) => Ok(Self { listener }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(BindError::InUse { kind, address }),
            Err(source) => Err(BindError::Other { kind, address, source }),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn listen(address: SocketAddr) -> io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted replica must not wait until the kernel forgets its former connections.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }
}

impl Listener for Box<dyn Listener> {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        (**self).accept()
    }
}

impl Listener for Tcp {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        async {
            let (stream, remote) = self.listener.accept().await?;
            connector::tune(&stream)?;
            Ok((Box::new(stream) as Box<dyn Io>, remote))
        }
        .boxed()
    }
}

// === impl Door ===

impl Door {
    /// The door offers the protocols of its kind, whatever the configuration says about them.
    pub fn new(kind: DoorKind, mut tls: Arc<ServerConfig>, fleet: FleetId) -> Self {
        if tls.alpn_protocols != kind.protocols() {
            Arc::make_mut(&mut tls).alpn_protocols = kind.protocols().iter().map(|name| name.to_vec()).collect();
        }
        let (acceptor, handshakes) = (TlsAcceptor::from(tls), Handshakes::default());
        let (strangers, clock) = (Strangers::default(), CertificateClock::default());
        Self { kind, acceptor, fleet, handshakes, renewal_grace: Duration::ZERO, strangers, clock }
    }

    /// Judges certificates by this clock, in handshakes and afterwards.
    #[must_use]
    pub fn timed_by(self, clock: &CertificateClock) -> Self {
        let mut tls = ServerConfig::clone(self.acceptor.config());
        tls.time_provider = Arc::new(clock.clone());
        Self { acceptor: TlsAcceptor::from(Arc::new(tls)), clock: clock.clone(), ..self }
    }

    /// How long an expired certificate still admits its node, for renewal only.
    #[must_use]
    pub fn renewing_within(self, renewal_grace: Duration) -> Self {
        Self { renewal_grace, ..self }
    }

    /// The door's handshakes, to be read while it is open.
    pub fn handshakes(&self) -> Handshakes {
        self.handshakes.clone()
    }

    /// Starts accepting, within the limits of this kind of door.
    pub fn open(self, listener: impl Listener) -> Incoming {
        let limits = self.kind.limits();
        self.open_within(listener, limits)
    }

    pub fn open_within(self, listener: impl Listener, limits: Limits) -> Incoming {
        let (admitted, ready) = mpsc::channel(READY_QUEUE);
        self.handshakes.allow(limits.handshakes);
        let accepting = tokio::spawn(accept_loop(self, listener, limits, admitted)).abort_handle();
        Incoming { ready, accepting }
    }

    /// Performs the handshake, identifies the caller and checks that this door admits it.
    pub async fn admit(&self, io: Box<dyn Io>, remote: SocketAddr) -> Result<Connection, DoorRefusal> {
        let handshake = timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(io));
        let stream = handshake.await.map_err(|_| DoorRefusal::Stalled)?.map_err(DoorRefusal::from_handshake)?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let (identity, until) = match certificates.first() {
            Some(certificate) => read(certificate)?,
            None if self.kind == DoorKind::Agent => (Identity::stranger(self.fleet.clone()), None),
            None => return Err(DoorRefusal::NoCertificate),
        };
        let clock = self.clock.clone();
        let validity = CertificateLife { until, renewal_grace: self.renewal_grace, clock };
        // An expired certificate gets this far at the agents' door only.
        let peer = Peer { identity: Arc::new(identity), remote, validity }.as_of(self.clock.now())?;
        self.require_welcome(&peer.identity)?;
        let stay = (peer.identity.kind == Role::Stranger).then(|| self.short_stay(remote)).transpose()?;
        Ok(Connection { stream, peer, _place: None, stay })
    }

    /// Any machine can come without a certificate, so few may be here at a time, and not for long.
    fn short_stay(&self, remote: SocketAddr) -> Result<Stay, DoorRefusal> {
        let place = self.strangers.admit(remote.ip()).ok_or(DoorRefusal::Crowded)?;
        Ok(Stay { until: Box::pin(sleep(STRANGER_STAY)), _place: place })
    }

    fn require_welcome(&self, identity: &Identity) -> Result<(), DoorRefusal> {
        let user = identity.user.clone();
        if identity.fleet != self.fleet {
            return Err(DoorRefusal::WrongFleet { user, theirs: identity.fleet.clone() });
        }
        if !self.kind.admits(&identity.kind) {
            return Err(DoorRefusal::WrongRole { user, role: identity.kind.noun() });
        }
        Ok(())
    }
}

fn read(certificate: &CertificateDer<'_>) -> Result<(Identity, Option<SystemTime>), DoorRefusal> {
    Ok((Identity::from_certificate(certificate)?, Some(identity::expires(certificate)?)))
}

async fn accept_loop(door: Door, mut listener: impl Listener, limits: Limits, admitted: mpsc::Sender<Connection>) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let handshakes = Arc::new(Semaphore::new(limits.handshakes));
    let door = Arc::new(door);
    let complaints = Arc::new(Gate::new(LOGGED_PER_WINDOW, LOG_WINDOW));
    // Owned by this task, so that closing the door also ends the handshakes under way.
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        let Some(place) = free_place(&places, &door, &complaints).await else { return };
        let Ok(turn) = Arc::clone(&handshakes).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((io, remote)) => {
                let (door, complaints, admitted) = (Arc::clone(&door), Arc::clone(&complaints), admitted.clone());
                let underway = door.handshakes.begin();
                running.spawn(async move {
                    let outcome = door.admit(io, remote).await;
                    drop((underway, turn));
                    match outcome {
                        // The receiver is gone only while the door closes.
                        Ok(connection) => drop(admitted.send(connection.holding(place)).await),
                        Err(refusal) => report_refusal(&door, remote, &refusal, &complaints),
                    }
                });
            }
            Err(error) => survive(&door, &error, &complaints).await,
        }
    }
}

async fn free_place(places: &Arc<Semaphore>, door: &Door, complaints: &Gate) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    if let Some(unsaid) = complaints.pass(Instant::now()) {
        tracing::warn!(door = %door.kind, unsaid, "the door is full: new connections wait until others close");
    }
    Arc::clone(places).acquire_owned().await.ok()
}

fn report_refusal(door: &Door, remote: SocketAddr, refusal: &DoorRefusal, complaints: &Gate) {
    if let Some(unsaid) = complaints.pass(Instant::now()) {
        tracing::warn!(door = %door.kind, %remote, reason = %refusal, unsaid, "connection refused");
    }
}

/// A failed accept concerns one connection or the whole machine. It never ends the door.
async fn survive(door: &Door, error: &io::Error, complaints: &Gate) {
    if concerns_one_connection(error) {
        return;
    }
    if let Some(unsaid) = complaints.pass(Instant::now()) {
        tracing::warn!(door = %door.kind, %error, unsaid, "cannot accept connections; trying again");
    }
    sleep(EXHAUSTED_PAUSE).await;
}

fn concerns_one_connection(error: &io::Error) -> bool {
    [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::Interrupted,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::NotConnected,
    ]
    .contains(&error.kind())
}

// === impl DoorRefusal ===

impl DoorRefusal {
    fn from_handshake(error: io::Error) -> Self {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::NoCertificatesPresented) = cause {
            return Self::NoCertificate;
        }
        if let Some(rustls::Error::InvalidCertificate(reason)) = cause {
            return Self::from_certificate(reason).unwrap_or(Self::Handshake(error));
        }
        Self::Handshake(error)
    }

    fn from_certificate(reason: &CertificateError) -> Option<Self> {
        use CertificateError as Bad;
        if matches!(reason, Bad::UnknownIssuer | Bad::BadSignature) {
            return Some(Self::WrongAuthority);
        }
        if matches!(
            reason,
            Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. }
        ) {
            return Some(Self::Expired);
        }
        matches!(reason, Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. }).then_some(Self::WrongUsage)
    }
}

// === impl Connection ===

impl Connection {
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The protocol that both sides agreed on, if any.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }

    fn holding(self, place: OwnedSemaphorePermit) -> Self {
        Self { _place: Some(place), ..self }
    }

    /// Checked before every read and write, so that the time limit also ends a connection that is idle in either
    /// direction.
    fn require_stay(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(stay) = &mut self.stay
            && stay.until.as_mut().poll(cx).is_ready()
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it stayed too long without a certificate"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.require_stay(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.require_stay(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.require_stay(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.require_stay(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.require_stay(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

// === impl Incoming ===

impl Incoming {
    /// Serves each connection in a task of its own until `closing`, and then waits for the tasks under way.
    pub(crate) async fn serve_each<F>(mut self, closing: &CancellationToken, serve: impl Fn(Connection) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // No larger than the door's limit: a connection holds its place there until its task ends.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                Some(_) = connections.join_next() => {}
                next = self.ready.recv() => match next {
                    Some(connection) => drop(connections.spawn(serve(connection))),
                    None => break,
                },
            }
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }
}

impl Stream for Incoming {
    type Item = Result<Connection, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.ready.poll_recv(cx).map(|connection| connection.map(Ok))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
