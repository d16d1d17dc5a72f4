//! One node's own stream, from its hello to its end.
//!
//! ```text
//!   hello --> known, claimed --------------------------> Welcome --> beats, reports ... --> goodbye
//!     |                                                    ^              |
//!     +-----> RegistrationWanted --> register, claimed ----+ <-- removed --+
//! ```
//! Everything the agent says counts as a beat, before anything else is done with it.

use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use muster_pulse::table::Beat;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::session::admission::{Admitted, Look};
use crate::session::binding::{Binding, Finding, registration_wanted};
use crate::session::caller::Caller;
use crate::session::entry::{SOLE, Signal};
use crate::session::figures::Refused;
use crate::session::owed::Owed;
use crate::session::refusal::Refusal;
use crate::session::registry::Stream;
use crate::session::report::{Report, Reported, refused};
use crate::session::terms::terms;
use crate::session::{HELLO_PATIENCE, Opened, Sessions, no_hello, tell_refusal};

/// How long an agent may take to register once it was asked to.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(60);

/// How much of a name that may be anything is quoted.
const QUOTED_MAX: usize = 253;

pub(super) type Mouth = mpsc::Sender<Result<Box<v1::ServerMessage>, Status>>;

pub(super) struct Alone {
    sessions: Sessions,
    stream: Stream,
    node: Text,
    caller: Caller,
    up: Streaming<v1::AgentMessage>,
    down: Mouth,
    owed: Owed,
    binding: Option<Binding>,
    /// At most one write is under way.
    work: Option<Work>,
    /// The newest report that waits for its turn.
    waiting: Option<Report>,
    /// Until when an unbound node must have registered.
    register_by: Instant,
}

enum Work {
    Registration(BoxFuture<'static, Result<Admitted, Refusal>>),
    Report(BoxFuture<'static, Reported>),
}

enum Done {
    Registered(Result<Admitted, Refusal>),
    Reported(Reported),
}

enum Occurrence {
    Heard(Result<Option<v1::AgentMessage>, Status>),
    /// The agent was told something.
    Said,
    /// The agent can no longer be told anything.
    Deaf,
    Rung,
    Done(Done),
    /// The agent was asked to register and did not.
    Overdue,
}

// === impl Alone ===

impl Alone {
    /// `node` is whose certificate it is.
    pub(super) fn new(
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
            caller: opened.caller(),
            up,
            down,
            owed: Owed::default(),
            binding: None,
            work: None,
            waiting: None,
            register_by: Instant::now(),
        }
    }

    /// Serves the stream until it ends.
    pub(super) async fn serve(mut self: Box<Self>) {
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
        Box::pin(self.begin()).await?;
        self.run().await
    }

    async fn begin(&mut self) -> Result<(), Refusal> {
        self.sessions.require_open()?;
        let hello = self.hello().await?;
        self.caller = Caller { instance: hello.instance, moving: hello.moving, ..self.caller.clone() };
        self.greet(hello.incarnation).await
    }

    async fn hello(&mut self) -> Result<v1::Hello, Refusal> {
        let first = timeout(HELLO_PATIENCE, self.up.message()).await.map_err(|_| no_hello())?;
        let first = first.map_err(|status| Refusal::new(Refused::Message, status))?;
        let Some(Up::Hello(hello)) = first.and_then(|first| first.message) else {
            return Err(Refusal::message("the first message of a session must be hello"));
        };
        if self.node != *hello.node {
            let (own, said) = (&self.node, Text::clipped(&hello.node, QUOTED_MAX));
            let text = format!("the certificate is that of node {own:?}, it cannot speak for node {said:?}");
            return Err(Refusal::new(Refused::Identity, Status::permission_denied(text)));
        }
        Ok(hello)
    }

    async fn greet(&mut self, incarnation: u64) -> Result<(), Refusal> {
        self.sessions.require_contact_to_move(&self.caller)?;
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
            match self.next().await {
                Occurrence::Heard(Ok(Some(message))) => {
                    if self.heard(message.message)?.is_break() {
                        return Ok(());
                    }
                }
                Occurrence::Heard(Ok(None)) | Occurrence::Deaf => return Ok(()),
                Occurrence::Heard(Err(status)) => return Err(Refusal::new(Refused::Message, status)),
                Occurrence::Said => {}
                Occurrence::Rung => self.rung()?,
                Occurrence::Done(done) => self.done(done)?,
                Occurrence::Overdue => return Err(not_registered()),
            }
        }
    }

    /// Waits for whatever comes first. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Occurrence {
        let unregistered = self.binding.is_none() && self.work.is_none();
        let Self { up, down, owed, stream, work, register_by, .. } = self;
        tokio::select! {
            message = up.message() => Occurrence::Heard(message),
            place = down.reserve(), if owed.any() => match place {
                Ok(place) => {
                    if let Some(message) = owed.next() {
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
            () = sleep_until(*register_by), if unregistered => Occurrence::Overdue,
        }
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
            Up::Status(report) => self.report(&report),
            Up::Register(register) => self.register(&register)?,
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

    fn report(&mut self, report: &v1::StatusReport) {
        // An agent that has been told to register will report with that.
        if self.binding.is_none() {
            return;
        }
        match muster_proto::agent::status(report) {
            Ok(status) => {
                self.waiting = Some(Report { sequence: report.sequence, status: Box::new(status) });
                self.begin_report();
            }
            Err(error) => self.reported(refused(report.sequence, error.to_string())),
        }
    }

    fn begin_report(&mut self) {
        if self.work.is_none()
            && let Some(binding) = &self.binding
            && let Some(report) = self.waiting.take()
        {
            let subject = (self.node.clone(), binding.incarnation());
            self.work = Some(Work::Report(self.sessions.report(subject, report)));
        }
    }

    /// One that comes while another is under way, or after it, is answered by the same welcome.
    fn register(&mut self, register: &v1::Register) -> Result<(), Refusal> {
        if self.binding.is_some() {
            self.welcome();
            return Ok(());
        }
        if !matches!(self.work, Some(Work::Registration(_))) {
            let draft = Box::new(muster_proto::agent::registration(register, &self.node)?);
            self.work = Some(Work::Registration(self.sessions.register(draft, self.caller.clone())));
        }
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), Refusal> {
        match done {
            Done::Registered(admitted) => self.bind(&admitted?)?,
            Done::Reported(reported) => self.reported(reported),
        }
        self.begin_report();
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
        let Some(binding) = &mut self.binding else { return Ok(()) };
        if let Some(ending) = binding.ending() {
            return Err(Refusal::ended(ending, &self.node));
        }
        match binding.examine(&self.sessions.replica().current().state) {
            Finding::Bound(news) => news.into_iter().for_each(|news| self.owed.add(news)),
            Finding::Unbound(news) => self.unbind(news),
        }
        Ok(())
    }

    fn bind(&mut self, admitted: &Admitted) -> Result<(), Refusal> {
        let place = (&self.stream.bell, SOLE);
        self.binding = Some(Binding::new(&self.sessions, admitted, &self.caller, place)?);
        // From now on its session is here.
        self.caller.moving = false;
        self.welcome();
        Ok(())
    }

    fn unbind(&mut self, news: Down) {
        self.binding = None;
        self.waiting = None;
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

fn not_registered() -> Refusal {
    let text = format!("the node did not register within {} s of being asked to", REGISTRATION_PATIENCE.as_secs());
    Refusal::new(Refused::Silence, Status::deadline_exceeded(text))
}

async fn finished(work: &mut Option<Work>) -> Done {
    match work {
        Some(Work::Registration(registration)) => Done::Registered(registration.await),
        Some(Work::Report(report)) => Done::Reported(report.await),
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
