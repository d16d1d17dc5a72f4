//! One node's own stream, from its hello to its end.
//!
//! ```text
//!   hello --> known, claimed --------------------------> Welcome --> register, beats, reports ... --> goodbye
//!     |                                                    ^              |
//!     +-----> RegistrationWanted --> register, claimed ----+ <-- removed --+
//! ```
//! Every message of the agent counts as a beat, before anything else is done with it.

use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::credential::Distrust;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::session::Recognition;
use muster_lifecycle::text::Text;
use muster_proto::protocol::ProtocolRange;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use muster_pulse::table::Beat;
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use crate::door::listener::CertificateLife;
use crate::session::figures::RefusalReason;
use crate::session::stream::binding::{Binding, Finding, registration_wanted};
use crate::session::stream::caller::{Caller, Opener};
use crate::session::stream::outbound::Outbound;
use crate::session::stream::pending::{PendingWrites, WriteEnd, WriteRequest};
use crate::session::stream::refusal::SessionRefusal;
use crate::session::stream::{Sender, StreamContext, first_message, heard, require_not_stopped, require_open};
use crate::session::wake::entry::SOLE;
use crate::session::wake::registry::Stream;
use crate::session::write::admission::Admitted;
use crate::session::write::trust::{confirm_key, require_unexpired};

/// How long an agent may take to register once it was asked to.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(60);

/// No change wakes the stream of a node that is not bound, so the stream itself checks this often whether the node is
/// still trusted.
const TRUST_PERIOD: Duration = Duration::from_secs(3);

/// How much of an unchecked name is quoted.
const QUOTED_MAX: usize = 253;

pub(crate) struct NodeStream {
    context: Arc<StreamContext>,
    stream: Stream,
    node: Text,
    key: Fingerprint,
    certificate: CertificateLife,
    /// The key by which the node is still known if its key was renewed meanwhile.
    lineage: Fingerprint,
    caller: Caller,
    up: Streaming<v1::AgentMessage>,
    down: Sender<v1::ServerMessage>,
    outbound: Outbound,
    binding: Option<Binding>,
    pending: PendingWrites,
    /// The write under way.
    running: Option<BoxFuture<'static, WriteEnd>>,
    /// When the node may write again, if a write waits for that.
    delayed_until: Option<Instant>,
    /// The deadline by which a node that is not bound must have registered.
    register_by: Instant,
    /// When the trust in a node that is not bound is checked next.
    trust_at: Instant,
}

enum Occurrence {
    Heard(Result<Option<v1::AgentMessage>, SessionRefusal>),
    /// The agent was told something.
    Told,
    /// The agent can no longer be told anything.
    Deaf,
    Woken,
    Written(WriteEnd),
    /// The next write is due, or a check of trust, or the deadline of a registration has passed.
    Due,
}

// === impl NodeStream ===

impl NodeStream {
    /// `node` is the node of the certificate.
    pub(crate) fn new(
        context: Arc<StreamContext>,
        stream: Stream,
        (node, opener): (&str, Opener),
        up: Streaming<v1::AgentMessage>,
        down: Sender<v1::ServerMessage>,
    ) -> Self {
        Self {
            context,
            stream,
            node: node.into(),
            key: opener.key,
            certificate: opener.certificate.clone(),
            lineage: opener.key,
            caller: opener.into_caller(),
            up,
            down,
            outbound: Outbound::default(),
            binding: None,
            pending: PendingWrites::default(),
            running: None,
            delayed_until: None,
            register_by: Instant::now(),
            trust_at: Instant::now(),
        }
    }

    /// Serves the stream until it ends.
    pub(crate) async fn serve(mut self: Box<Self>) {
        if let Err(refusal) = self.converse().await {
            // The node is released before its agent learns why, so that the agent can come back at once.
            self.binding = None;
            let (reason, why) = (refusal.reason.label(), refusal.status.message());
            tracing::debug!(node = %self.node, reason, why, "session ended");
            self.context.tell_refusal(refusal, &self.down).await;
        }
    }

    async fn converse(&mut self) -> Result<(), SessionRefusal> {
        // Boxed, because it ends soon and a task keeps the room for the largest future it ever waits for.
        match Box::pin(self.begin()).await? {
            ControlFlow::Continue(()) => self.run().await,
            ControlFlow::Break(()) => Ok(()),
        }
    }

    /// Breaks off if the stream ended before its first message.
    async fn begin(&mut self) -> Result<ControlFlow<()>, SessionRefusal> {
        require_open(&self.stream)?;
        let Some(hello) = self.hello().await? else { return Ok(ControlFlow::Break(())) };
        let spoken = ProtocolRange::of_wire(hello.protocol_min, hello.protocol_max);
        self.context.figures.note_protocol(&self.node, &hello.version, spoken);
        let v1::Hello { instance, moving, orders_revision, continues, .. } = hello;
        let newcomer = !continues;
        self.caller = Caller { instance, moving, orders_revision, newcomer, ..self.caller.clone() };
        self.greet(hello.incarnation).await?;
        Ok(ControlFlow::Continue(()))
    }

    async fn hello(&mut self) -> Result<Option<v1::Hello>, SessionRefusal> {
        let Some(first) = first_message(&mut self.up).await? else { return Ok(None) };
        let Some(Up::Hello(hello)) = first.message else {
            return Err(SessionRefusal::message("the first message of a session must be hello"));
        };
        if self.node != *hello.node {
            let (own, said) = (&self.node, Text::clipped(&hello.node, QUOTED_MAX));
            tracing::warn!(node = %own, remote = %self.caller.remote, %said, "denied: hello in another node's name");
            let text = format!("the certificate is that of node {own:?}, it cannot speak for node {said:?}");
            return Err(SessionRefusal::new(RefusalReason::Identity, Status::permission_denied(text)));
        }
        Ok(Some(hello))
    }

    async fn greet(&mut self, incarnation: u64) -> Result<(), SessionRefusal> {
        self.context.require_contact_to_move(&self.caller)?;
        let admitted = self.context.writes.admits_key(&self.node, &self.key).await?;
        admitted.map_err(|distrust| self.distrusted(&distrust))?;
        self.lineage = self.context.current().state.lineage_of(&self.node, &self.key);
        match self.context.admission.recognise(&self.node, incarnation).await? {
            Recognition::Known(node) => {
                let admitted = self.context.admission.admit(node, &self.caller).await;
                self.bind(&admitted)
            }
            Recognition::Unknown(absence) | Recognition::Doubtful(absence) => {
                self.unbind(registration_wanted(absence.shown(&self.node)));
                Ok(())
            }
        }
    }

    async fn run(&mut self) -> Result<(), SessionRefusal> {
        loop {
            let occurrence = self.next().await;
            require_unexpired(&self.certificate)?;
            match occurrence {
                Occurrence::Heard(message) => {
                    let Some(message) = message? else { return Ok(()) };
                    if self.heard(message.message)?.is_break() {
                        return Ok(());
                    }
                }
                Occurrence::Deaf => return Ok(()),
                Occurrence::Told => {}
                Occurrence::Woken => self.woken()?,
                Occurrence::Written(end) => self.written(end)?,
                Occurrence::Due => self.due()?,
            }
        }
    }

    /// Waits for the first occurrence. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Occurrence {
        let due_at = self.due_at();
        let Self { up, down, outbound, stream, running, register_by, binding, context, .. } = self;
        tokio::select! {
            message = up.message() => Occurrence::Heard(heard(message)),
            place = down.reserve(), if outbound.is_waiting() => match place {
                Ok(place) => {
                    let message = outbound.next_or(|| binding.as_mut()?.orders(&context.current().state));
                    if let Some(message) = message {
                        place.send(Ok(Box::new(message)));
                    }
                    Occurrence::Told
                }
                Err(_) => Occurrence::Deaf,
            },
            () = stream.wakeup.woken() => Occurrence::Woken,
            end = ended(running) => {
                *running = None;
                Occurrence::Written(end)
            }
            () = sleep_until(due_at.unwrap_or(*register_by)), if due_at.is_some() => Occurrence::Due,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        let trust_at = self.binding.is_none().then_some(self.trust_at);
        let register_by = self.is_awaited().then_some(self.register_by);
        [self.delayed_until, trust_at, register_by].into_iter().flatten().min()
    }

    /// The agent was asked to register, and has not done so yet.
    fn is_awaited(&self) -> bool {
        self.binding.is_none() && self.pending.is_idle()
    }

    fn due(&mut self) -> Result<(), SessionRefusal> {
        let now = Instant::now();
        if self.binding.is_none() && self.trust_at <= now {
            self.require_trust()?;
            self.trust_at = now + TRUST_PERIOD;
        }
        if self.is_awaited() && self.register_by <= now {
            return Err(not_registered());
        }
        if self.delayed_until.take_if(|at| *at <= now).is_some() {
            self.begin_write();
        }
        Ok(())
    }

    fn heard(&mut self, message: Option<Up>) -> Result<ControlFlow<()>, SessionRefusal> {
        if let Some(binding) = &self.binding
            && binding.beat() == Beat::Outdated
        {
            self.stream.wakeup.touch(SOLE);
        }
        // A message of a later version of the protocol counts as a beat only.
        let Some(message) = message else { return Ok(ControlFlow::Continue(())) };
        match message {
            Up::Beat(beat) => self.acknowledge(beat),
            Up::Status(report) => self.write(WriteRequest::Status(report)),
            Up::Pods(report) => self.write(WriteRequest::Pods(report)),
            Up::Register(register) => {
                self.require_trust()?;
                self.write(WriteRequest::Register(register));
            }
            Up::Goodbye(_) => return Ok(ControlFlow::Break(())),
            Up::Hello(_) => {
                return Err(SessionRefusal::message("hello is the first message of a session, and only the first"));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Acknowledges only while this replica is in contact with the leader: the agent takes it as proof that the fleet
    /// hears it.
    fn acknowledge(&mut self, beat: v1::Beat) {
        if beat.acknowledge && self.binding.is_some() && self.context.relocation.is_in_contact() {
            self.outbound.add(Down::Acknowledged(v1::Acknowledged { sequence: beat.sequence }));
        }
    }

    fn write(&mut self, request: WriteRequest) {
        self.pending.add(request, self.binding.is_some());
        self.begin_write();
    }

    /// Begins the next write if the node may write now; otherwise the write is due later.
    fn begin_write(&mut self) {
        if self.delayed_until.is_some() || !self.pending.is_due() {
            return;
        }
        if let Err(at) = self.context.writes.spend(&self.node) {
            self.delayed_until = Some(at);
            return;
        }
        let write = self.pending.begin(self.binding.as_ref().map(Binding::incarnation));
        let (node, caller, admission) = (&self.node, &self.caller, &self.context.admission);
        self.running = write.map(|write| write.run(node.clone(), caller.clone(), admission.clone()).boxed());
    }

    fn written(&mut self, end: WriteEnd) -> Result<(), SessionRefusal> {
        self.pending.end();
        match end {
            WriteEnd::Admitted(admitted) => self.bind(&admitted)?,
            WriteEnd::Refused(refusal) => return Err(refusal),
            WriteEnd::Answered(answer) => self.outbound.add(answer),
            WriteEnd::Gone => self.stream.wakeup.touch(SOLE),
        }
        self.begin_write();
        Ok(())
    }

    /// The node was trusted when it came; that may have changed.
    fn require_trust(&self) -> Result<(), SessionRefusal> {
        let current = self.context.current();
        current.state.admits_lineage(&self.node, &self.lineage).map_err(|distrust| self.distrusted(&distrust))
    }

    fn distrusted(&self, distrust: &Distrust) -> SessionRefusal {
        let (node, remote) = (&self.node, self.caller.remote);
        tracing::warn!(%node, %remote, reason = distrust.reason(), why = %distrust, "denied");
        SessionRefusal::from(distrust)
    }

    fn woken(&mut self) -> Result<(), SessionRefusal> {
        let signals = self.stream.wakeup.signals();
        require_not_stopped(signals)?;
        if !self.stream.wakeup.take_touched(1).is_empty() {
            self.examine()?;
        }
        let notices = self.context.notices(signals);
        notices.relocate.into_iter().for_each(|notice| self.outbound.add(Down::Move(notice)));
        notices.terms.into_iter().for_each(|terms| self.outbound.add(Down::Terms(terms)));
        Ok(())
    }

    fn examine(&mut self) -> Result<(), SessionRefusal> {
        self.require_trust()?;
        let Some(binding) = &mut self.binding else { return Ok(()) };
        match binding.examine(&self.context.current().state) {
            Finding::Ended(ending) => return Err(SessionRefusal::ended(&ending, &self.node)),
            Finding::Bound(news) => {
                news.into_iter().for_each(|news| self.outbound.add(news));
                self.outbound.add_orders();
            }
            Finding::Unbound(news) => self.unbind(news),
        }
        Ok(())
    }

    fn bind(&mut self, admitted: &Admitted) -> Result<(), SessionRefusal> {
        let place = (&self.stream.wakeup, SOLE);
        let binding = self.context.binder.bind(admitted, &self.caller, place)?;
        // From now on the agent's session is here.
        self.caller.moving = false;
        confirm_key(&self.context.writes, &self.node, &self.key);
        self.outbound.add(Down::Welcome(binding.welcome(&self.context.current().state, &self.caller)));
        self.binding = Some(binding);
        self.pending.welcome();
        Ok(())
    }

    fn unbind(&mut self, news: Down) {
        self.binding = None;
        // Drops the write under way too: its node is gone.
        self.running = None;
        self.pending = PendingWrites::default();
        self.register_by = Instant::now() + REGISTRATION_PATIENCE;
        self.outbound.add(news);
    }
}

fn not_registered() -> SessionRefusal {
    let text = format!("the node did not register within {} s of being asked to", REGISTRATION_PATIENCE.as_secs());
    SessionRefusal::new(RefusalReason::Silence, Status::deadline_exceeded(text))
}

/// Waits for the write under way; for ever if there is none.
async fn ended(running: &mut Option<BoxFuture<'static, WriteEnd>>) -> WriteEnd {
    match running {
        Some(write) => write.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of one session and its task; a replica has a hundred thousand.
    const TASK_BYTES_MAX: usize = 2_048;

    #[test]
    fn the_memory_of_a_session_is_bounded() {
        let bytes = size_of::<NodeStream>() + size_of_future(NodeStream::serve);
        assert!(bytes <= TASK_BYTES_MAX, "a session takes {bytes} bytes");
    }

    fn size_of_future<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }
}
