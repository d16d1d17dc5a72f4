//! One node's own stream, from its hello to its end.
//!
//! ```text
//!   hello --> known, claimed --------------------------> Welcome --> register, beats, reports ... --> goodbye
//!     |                                                    ^              |
//!     +-----> RegistrationWanted --> register, claimed ----+ <-- removed --+
//! ```
//! Everything the agent says counts as a beat, before anything else is done with it.

use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_lifecycle::credential::Distrust;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use muster_pulse::table::Beat;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::listener::Term;
use crate::session::figures::Refused;
use crate::session::stream::binding::{Binding, Finding, registration_wanted};
use crate::session::stream::caller::Caller;
use crate::session::stream::outbound::{Owed, said};
use crate::session::stream::refusal::Refusal;
use crate::session::stream::terms::terms;
use crate::session::wake::entry::{SOLE, Signal};
use crate::session::wake::registry::Stream;
use crate::session::write::admission::{Admitted, Look};
use crate::session::write::pods::PodsReported;
use crate::session::write::reconcile::Reconciled;
use crate::session::write::report::Reported;
use crate::session::write::trust::require_unexpired;
use crate::session::{HELLO_PATIENCE, Opened, Sessions, heard, no_hello, tell_refusal};

/// How long an agent may take to register once it was asked to.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(60);

/// Nobody rings for a node that is not bound, so its stream looks so often whether it is still trusted.
const TRUST_PERIOD: Duration = Duration::from_secs(3);

/// How much of a name that may be anything is quoted.
const QUOTED_MAX: usize = 253;

pub(crate) type Mouth = mpsc::Sender<Result<Box<v1::ServerMessage>, Status>>;

pub(crate) struct Alone {
    sessions: Sessions,
    stream: Stream,
    node: Text,
    key: Fingerprint,
    term: Term,
    /// By which it is still known when its key was renewed meanwhile.
    lineage: Fingerprint,
    caller: Caller,
    up: Streaming<v1::AgentMessage>,
    down: Mouth,
    owed: Owed,
    binding: Option<Binding>,
    /// At most one write is under way.
    work: Option<Work>,
    /// The newest write that waits for its turn.
    waiting: Option<Wish>,
    /// What a bound node said of its machine, waiting for its turn. Boxed, because few ever say it.
    waiting_words: Option<Box<v1::Register>>,
    /// The newest report on pods that waits for its turn.
    waiting_pods: Option<v1::PodsReport>,
    /// When the node may write again, if something waits for that.
    turn_at: Option<Instant>,
    /// Until when an unbound node must have registered.
    register_by: Instant,
    /// When an unbound node is looked at next.
    trust_at: Instant,
}

/// What the node wants to be written, as it came.
enum Wish {
    Registration(v1::Register),
    Report(v1::StatusReport),
}

enum Work {
    Registration(BoxFuture<'static, Result<Admitted, Refusal>>),
    Reconciliation(BoxFuture<'static, Reconciled>),
    Report(BoxFuture<'static, Reported>),
    Pods(BoxFuture<'static, PodsReported>),
}

enum Done {
    Registered(Result<Admitted, Refusal>),
    Reconciled(Reconciled),
    Reported(Reported),
    PodsReported(PodsReported),
}

enum Occurrence {
    Heard(Result<Option<v1::AgentMessage>, Refusal>),
    /// The agent was told something.
    Said,
    /// The agent can no longer be told anything.
    Deaf,
    Rung,
    Done(Done),
    /// What was waited for is due: the next write, a look at an unbound node, or a registration that did not come.
    Due,
}

// === impl Alone ===

impl Alone {
    /// `node` is whose certificate it is.
    pub(crate) fn new(
        sessions: Sessions,
        node: &str,
        opened: Opened,
        up: Streaming<v1::AgentMessage>,
        down: Mouth,
    ) -> Self {
        Self {
            stream: sessions.open(),
            sessions,
            node: node.into(),
            key: opened.key,
            term: opened.term,
            lineage: opened.key,
            caller: opened.caller(),
            up,
            down,
            owed: Owed::default(),
            binding: None,
            work: None,
            waiting: None,
            waiting_words: None,
            waiting_pods: None,
            turn_at: None,
            register_by: Instant::now(),
            trust_at: Instant::now(),
        }
    }

    /// Serves the stream until it ends.
    pub(crate) async fn serve(mut self: Box<Self>) {
        if let Err(refusal) = self.converse().await {
            // The node is free before its agent hears why, and can come back at once.
            self.binding = None;
            let (reason, why) = (refusal.reason.label(), refusal.status.message());
            tracing::debug!(node = %self.node, reason, why, "session ended");
            tell_refusal(self.sessions.figures(), refusal, &self.down).await;
        }
    }

    async fn converse(&mut self) -> Result<(), Refusal> {
        // Boxed, because it is over soon and a task keeps the room for the largest thing it ever waits for.
        match Box::pin(self.begin()).await? {
            ControlFlow::Continue(()) => self.run().await,
            ControlFlow::Break(()) => Ok(()),
        }
    }

    /// Breaks off if nothing was ever said.
    async fn begin(&mut self) -> Result<ControlFlow<()>, Refusal> {
        self.sessions.require_open()?;
        let Some(hello) = self.hello().await? else { return Ok(ControlFlow::Break(())) };
        let orders_revision = hello.orders_revision;
        self.caller = Caller { instance: hello.instance, moving: hello.moving, orders_revision, ..self.caller.clone() };
        self.greet(hello.incarnation).await?;
        Ok(ControlFlow::Continue(()))
    }

    async fn hello(&mut self) -> Result<Option<v1::Hello>, Refusal> {
        let first = timeout(HELLO_PATIENCE, self.up.message()).await.map_err(|_| no_hello())?;
        let Some(first) = heard(first)? else { return Ok(None) };
        let Some(Up::Hello(hello)) = first.message else {
            return Err(Refusal::message("the first message of a session must be hello"));
        };
        if self.node != *hello.node {
            let (own, said) = (&self.node, Text::clipped(&hello.node, QUOTED_MAX));
            tracing::warn!(node = %own, remote = %self.caller.remote, %said, "denied: hello in another node's name");
            let text = format!("the certificate is that of node {own:?}, it cannot speak for node {said:?}");
            return Err(Refusal::new(Refused::Identity, Status::permission_denied(text)));
        }
        Ok(Some(hello))
    }

    async fn greet(&mut self, incarnation: u64) -> Result<(), Refusal> {
        self.sessions.require_contact_to_move(&self.caller)?;
        self.sessions.require_trusted(&self.node, &self.key).await?.map_err(|distrust| self.distrusted(&distrust))?;
        self.lineage = self.sessions.replica().current().state.lineage_of(&self.node, &self.key);
        match self.sessions.look_for(&self.node, incarnation).await? {
            Look::Known(node) => {
                let admitted = self.sessions.admit(node, &self.caller).await;
                self.bind(&admitted)
            }
            Look::Unknown(why) | Look::Doubtful(why) => {
                self.unbind(registration_wanted(why));
                Ok(())
            }
        }
    }

    async fn run(&mut self) -> Result<(), Refusal> {
        loop {
            let occurrence = self.next().await;
            require_unexpired(&self.term)?;
            match occurrence {
                Occurrence::Heard(message) => {
                    let Some(message) = message? else { return Ok(()) };
                    if self.heard(message.message)?.is_break() {
                        return Ok(());
                    }
                }
                Occurrence::Deaf => return Ok(()),
                Occurrence::Said => {}
                Occurrence::Rung => self.rung()?,
                Occurrence::Done(done) => self.done(done)?,
                Occurrence::Due => self.due()?,
            }
        }
    }

    /// Waits for whatever comes first. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Occurrence {
        let due_at = self.due_at();
        let Self { up, down, owed, stream, work, register_by, binding, sessions, .. } = self;
        tokio::select! {
            message = up.message() => Occurrence::Heard(heard(message)),
            place = down.reserve(), if owed.any() => match place {
                Ok(place) => {
                    let message = owed.next().or_else(|| orders(owed, binding.as_mut(), sessions));
                    if let Some(message) = message {
                        place.send(Ok(Box::new(message)));
                    }
                    Occurrence::Said
                }
                Err(_) => Occurrence::Deaf,
            },
            () = stream.bell.rung() => Occurrence::Rung,
            done = finished(work) => {
                *work = None;
                Occurrence::Done(done)
            }
            () = sleep_until(due_at.unwrap_or(*register_by)), if due_at.is_some() => Occurrence::Due,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        let trust_at = self.binding.is_none().then_some(self.trust_at);
        let register_by = self.is_awaited().then_some(self.register_by);
        [self.turn_at, trust_at, register_by].into_iter().flatten().min()
    }

    /// It was asked to register, and has not yet.
    fn is_awaited(&self) -> bool {
        self.binding.is_none() && self.work.is_none() && !self.has_waiting()
    }

    fn due(&mut self) -> Result<(), Refusal> {
        let now = Instant::now();
        if self.binding.is_none() && self.trust_at <= now {
            self.require_trust()?;
            self.trust_at = now + TRUST_PERIOD;
        }
        if self.is_awaited() && self.register_by <= now {
            return Err(not_registered());
        }
        if self.turn_at.take_if(|at| *at <= now).is_some() {
            self.begin_work();
        }
        Ok(())
    }

    fn heard(&mut self, message: Option<Up>) -> Result<ControlFlow<()>, Refusal> {
        if let Some(binding) = &self.binding
            && binding.beat() == Beat::Outdated
        {
            self.stream.bell.touch(SOLE);
        }
        // A message of a later version than this one is a beat and no more.
        let Some(message) = message else { return Ok(ControlFlow::Continue(())) };
        match message {
            Up::Beat(beat) => self.acknowledge(beat),
            Up::Status(report) => self.report(report),
            Up::Register(register) => self.register(register)?,
            Up::Pods(report) => self.report_pods(report),
            Up::Goodbye(_) => return Ok(ControlFlow::Break(())),
            Up::Hello(_) => {
                return Err(Refusal::message("hello is the first message of a session, and only the first"));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Only the word of a replica in contact with the leader tells an agent that the fleet hears it.
    fn acknowledge(&mut self, beat: v1::Beat) {
        if beat.acknowledge && self.binding.is_some() && self.sessions.in_contact() {
            self.owed.add(Down::Acknowledged(v1::Acknowledged { sequence: beat.sequence }));
        }
    }

    /// An agent that has been told to register will report with that.
    fn report(&mut self, report: v1::StatusReport) {
        if self.binding.is_some() {
            self.waiting = Some(Wish::Report(report));
            self.begin_work();
        }
    }

    fn report_pods(&mut self, report: v1::PodsReport) {
        if self.binding.is_some() {
            self.waiting_pods = Some(report);
            self.begin_work();
        }
    }

    fn has_waiting(&self) -> bool {
        self.waiting.is_some() || self.waiting_words.is_some() || self.waiting_pods.is_some()
    }

    /// One that comes while another is under way is answered by the same welcome. Of a node that is bound it is about the
    /// machine alone.
    fn register(&mut self, register: v1::Register) -> Result<(), Refusal> {
        self.require_trust()?;
        if self.binding.is_some() {
            self.waiting_words = Some(Box::new(register));
            self.begin_work();
        } else if self.work.is_none() {
            self.waiting = Some(Wish::Registration(register));
            self.begin_work();
        }
        Ok(())
    }

    /// It was trusted when it came; that may have changed.
    fn require_trust(&self) -> Result<(), Refusal> {
        let current = self.sessions.replica().current();
        current.state.admits_lineage(&self.node, &self.lineage).map_err(|distrust| self.distrusted(&distrust))
    }

    fn distrusted(&self, distrust: &Distrust) -> Refusal {
        let (node, remote) = (&self.node, self.caller.remote);
        tracing::warn!(%node, %remote, reason = distrust.reason(), why = %distrust, "denied");
        Refusal::from(distrust)
    }

    /// Begins what waits if the node may write now; else that is due later.
    fn begin_work(&mut self) {
        if self.work.is_some() || self.turn_at.is_some() || !self.has_waiting() {
            return;
        }
        if let Err(at) = self.sessions.spend(&self.node) {
            self.turn_at = Some(at);
            return;
        }
        self.work = match self.binding.as_ref().map(Binding::incarnation) {
            Some(incarnation) => self.work_of_bound(incarnation),
            None => self.work_of_unbound(),
        };
    }

    fn work_of_unbound(&mut self) -> Option<Work> {
        let Some(Wish::Registration(register)) = self.waiting.take() else { return None };
        Some(Work::Registration(self.sessions.register(self.node.clone(), register, self.caller.clone())))
    }

    /// A wish to register was meant for a node that was not bound.
    fn work_of_bound(&mut self, incarnation: Incarnation) -> Option<Work> {
        let subject = (self.node.clone(), incarnation);
        if let Some(register) = self.waiting_words.take() {
            return Some(Work::Reconciliation(self.sessions.reconcile(subject, *register)));
        }
        if let Some(Wish::Report(report)) = self.waiting.take() {
            return Some(Work::Report(self.sessions.report(subject, report)));
        }
        self.waiting_pods.take().map(|report| Work::Pods(self.sessions.report_pods(subject, report)))
    }

    fn done(&mut self, done: Done) -> Result<(), Refusal> {
        match done {
            Done::Registered(admitted) => self.bind(&admitted?)?,
            Done::Reconciled(Reconciled::Answered(answer)) => self.owed.add(Down::Registered(answer)),
            Done::Reported(reported) => self.reported(reported),
            Done::PodsReported(PodsReported::Taken(taken)) => self.owed.add(Down::PodsTaken(taken)),
            Done::PodsReported(PodsReported::Gone) | Done::Reconciled(Reconciled::Gone) => self.stream.bell.touch(SOLE),
        }
        self.begin_work();
        Ok(())
    }

    fn reported(&mut self, reported: Reported) {
        match reported {
            Reported::Taken(taken) => self.owed.add(Down::StatusTaken(taken)),
            Reported::Gone => self.stream.bell.touch(SOLE),
        }
    }

    fn rung(&mut self) -> Result<(), Refusal> {
        let signals = self.stream.bell.signals();
        if signals.has(Signal::Stop) {
            return Err(Refusal::stopping());
        }
        if !self.stream.bell.take_touched(1).is_empty() {
            self.examine()?;
        }
        if signals.has(Signal::Move)
            && let Some(why) = self.sessions.why_move()
        {
            self.sessions.figures().moved();
            self.owed.add(Down::Move(v1::Move { why }));
        }
        if signals.has(Signal::Terms) {
            self.owed.add(Down::Terms(terms(&self.sessions.replica().current().state)));
        }
        Ok(())
    }

    fn examine(&mut self) -> Result<(), Refusal> {
        self.require_trust()?;
        let Some(binding) = &mut self.binding else { return Ok(()) };
        if let Some(ending) = binding.ending() {
            return Err(Refusal::ended(ending, &self.node));
        }
        match binding.examine(&self.sessions.replica().current().state) {
            Finding::Bound(news) => {
                news.into_iter().for_each(|news| self.owed.add(news));
                self.owed.add_orders();
            }
            Finding::Unbound(news) => self.unbind(news),
        }
        Ok(())
    }

    fn bind(&mut self, admitted: &Admitted) -> Result<(), Refusal> {
        let place = (&self.stream.bell, SOLE);
        self.binding = Some(Binding::new(&self.sessions, admitted, &self.caller, place)?);
        // From now on its session is here.
        self.caller.moving = false;
        self.sessions.confirm_key(&self.node, &self.key);
        self.welcome();
        Ok(())
    }

    fn unbind(&mut self, news: Down) {
        self.binding = None;
        // A report on a node that is gone.
        self.work = None;
        self.waiting = None;
        self.waiting_words = None;
        self.waiting_pods = None;
        self.register_by = Instant::now() + REGISTRATION_PATIENCE;
        self.owed.add(news);
    }

    fn welcome(&mut self) {
        if let Some(binding) = &self.binding {
            let welcome = binding.welcome(&self.sessions.replica().current().state, &self.caller);
            self.owed.add(Down::Welcome(welcome));
        }
    }
}

/// Orders come last, and more of them as long as there are any.
fn orders(owed: &mut Owed, binding: Option<&mut Binding>, sessions: &Sessions) -> Option<v1::ServerMessage> {
    let is_owed = owed.take_orders();
    let binding = binding.filter(|_| is_owed)?;
    let orders = binding.orders(&sessions.replica().current().state)?;
    owed.add_orders();
    Some(said(orders))
}

fn not_registered() -> Refusal {
    let text = format!("the node did not register within {} s of being asked to", REGISTRATION_PATIENCE.as_secs());
    Refusal::new(Refused::Silence, Status::deadline_exceeded(text))
}

async fn finished(work: &mut Option<Work>) -> Done {
    match work {
        Some(Work::Registration(registration)) => Done::Registered(registration.await),
        Some(Work::Reconciliation(reconciliation)) => Done::Reconciled(reconciliation.await),
        Some(Work::Report(report)) => Done::Reported(report.await),
        Some(Work::Pods(report)) => Done::PodsReported(report.await),
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one session and its task; a replica has a hundred thousand.
    const TASK_BYTES_MAX: usize = 2_048;

    #[test]
    fn a_session_is_small() {
        let bytes = size_of::<Alone>() + size_of_future(Alone::serve);
        assert!(bytes <= TASK_BYTES_MAX, "a session takes {bytes} bytes");
    }

    fn size_of_future<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }
}
