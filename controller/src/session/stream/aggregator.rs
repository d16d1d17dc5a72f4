//! An aggregator's stream: many nodes under handles that the aggregator chose.
//!
//! Its beats come in batches, and each handle costs one look into an array. Everything else about a node goes the way
//! it goes on a stream of the node's own, with the handle beside it.

mod binds;
mod handles;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use muster_lifecycle::aggregator::AggregatorRecord;
use muster_lifecycle::state::State;
use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::carrier_reply::Message as Reply;
use muster_proto::v1::server_message::Message as Down;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::listener::Term;
use crate::session::figures::Refused;
use crate::session::stream::binding::{Binding, Finding};
use crate::session::stream::caller::Caller;
use crate::session::stream::outbound::said;
use crate::session::stream::pending::{self, Done, Job, Jobs};
use crate::session::stream::refusal::Refusal;
use crate::session::stream::terms::terms;
use crate::session::wake::entry::Signal;
use crate::session::wake::registry::Stream;
use crate::session::write::pods::PodsReported;
use crate::session::write::reconcile::Reconciled;
use crate::session::write::report::Reported;
use crate::session::write::trust::require_unexpired;
use crate::session::{HELLO_PATIENCE, Opened, Sessions, heard, no_hello, tell_refusal};

use self::binds::{Batch, Binds};
use self::handles::{Holds, Standing};

/// Handles are below this.
const HANDLES_MAX: u32 = 1_000_000;
/// Whether the certificate is still good is asked once in so many things that pass.
const CLOCK_EVERY: u32 = 8;
/// Replies that wait for the aggregator to take them. While there are more, nothing new is read from it.
const OUTGOING_MAX: usize = 1_024;
/// Nodes that are looked at before the stream is read again.
const TOUCHED_AT_ONCE: usize = 512;
/// Nodes in one reply: with the longest of names and reasons it still fits into a message.
const NODES_PER_REPLY: usize = 256;
/// Handles that stand for nobody and whose aggregator was told so; more are only counted.
const STRANGERS_MAX: usize = 4_096;

pub(crate) type Mouth = mpsc::Sender<Result<Box<v1::CarrierReply>, Status>>;

struct Carrier {
    sessions: Sessions,
    stream: Stream,
    caller: Caller,
    term: Term,
    aggregator: String,
    scope: Arc<AggregatorRecord>,
    up: Streaming<v1::CarrierMessage>,
    down: Mouth,
    outgoing: VecDeque<v1::CarrierReply>,
    /// How much has passed on the stream.
    passed: u32,
    /// The newest acknowledgement that is owed: one that is not read holds up nothing else.
    acknowledged: Option<u64>,
    holds: Holds,
    binds: Binds,
    jobs: Jobs,
    strangers: HashSet<u32>,
}

enum Occurrence {
    Heard(Result<Option<v1::CarrierMessage>, Refusal>),
    /// The aggregator was told something.
    Said,
    /// The aggregator can no longer be told anything.
    Deaf,
    Rung,
    Decided(Batch),
    /// A write ended, or the next one is due.
    Done(Option<(u32, Done)>),
}

/// Serves one stream until it ends.
pub(crate) async fn serve(
    sessions: Sessions,
    aggregator: String,
    opened: Opened,
    up: Streaming<v1::CarrierMessage>,
    down: Mouth,
) {
    let farewell = down.clone();
    let figures = Arc::clone(sessions.figures());
    if let Err(refusal) = converse(sessions, &aggregator, opened, up, down).await {
        tracing::info!(aggregator, reason = refusal.reason.label(), why = refusal.status.message(), "carrier ended");
        tell_refusal(&figures, refusal, &farewell).await;
    }
}

async fn converse(
    sessions: Sessions,
    aggregator: &str,
    opened: Opened,
    mut up: Streaming<v1::CarrierMessage>,
    down: Mouth,
) -> Result<(), Refusal> {
    let stream = sessions.open();
    sessions.require_open()?;
    let Some(hello) = hello(&mut up).await? else { return Ok(()) };
    let term = opened.term;
    let caller = Caller { instance: hello.instance, moving: hello.moving, ..opened.caller() };
    sessions.require_contact_to_move(&caller)?;
    // Once welcomed it leaves where it was.
    let caller = Caller { moving: false, ..caller };
    let scope = scope(&sessions.replica().current().state, aggregator)?;
    let (outgoing, passed, acknowledged, holds, binds, jobs, strangers) = Default::default();
    let aggregator = aggregator.to_owned();
    let mut carrier = Carrier {
        sessions,
        stream,
        caller,
        term,
        aggregator,
        scope,
        up,
        down,
        outgoing,
        passed,
        acknowledged,
        holds,
        binds,
        jobs,
        strangers,
    };
    carrier.welcome();
    carrier.run().await
}

/// `None` if nothing was ever said.
async fn hello(up: &mut Streaming<v1::CarrierMessage>) -> Result<Option<v1::CarrierHello>, Refusal> {
    let first = timeout(HELLO_PATIENCE, up.message()).await.map_err(|_| no_hello())?;
    let Some(first) = heard(first)? else { return Ok(None) };
    match first.message {
        Some(Up::Hello(hello)) => Ok(Some(hello)),
        Some(_) | None => Err(Refusal::message("the first message of a carrier must be hello")),
    }
}

fn scope(state: &State, aggregator: &str) -> Result<Arc<AggregatorRecord>, Refusal> {
    state.aggregators().get(aggregator).cloned().ok_or_else(|| {
        let text = format!(
            "aggregator {aggregator:?} has no scope: say which nodes it may carry with `muster set aggregator \
             {aggregator} --nodes ...`"
        );
        Refusal::new(Refused::Scope, Status::permission_denied(text))
    })
}

// === impl Carrier ===

impl Carrier {
    async fn run(&mut self) -> Result<(), Refusal> {
        loop {
            let occurrence = self.next().await;
            self.look_at_the_clock()?;
            match occurrence {
                Occurrence::Heard(message) => match message? {
                    Some(message) => self.heard(message.message)?,
                    None => return Ok(()),
                },
                Occurrence::Deaf => return Ok(()),
                Occurrence::Said => {}
                Occurrence::Rung => self.rung()?,
                Occurrence::Decided(batch) => self.bind_decided(batch),
                Occurrence::Done(ended) => {
                    if let Some((handle, done)) = ended {
                        self.done(handle, done);
                    }
                    self.begin_jobs();
                }
            }
        }
    }

    /// Not at every beat: the clock would cost as much as half of what the beat does.
    fn look_at_the_clock(&mut self) -> Result<(), Refusal> {
        self.passed = self.passed.wrapping_add(1);
        if self.passed.is_multiple_of(CLOCK_EVERY) { require_unexpired(&self.term) } else { Ok(()) }
    }

    /// Waits for whatever comes first. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Occurrence {
        if self.only_listens() { self.next_said().await } else { self.next_of_all().await }
    }

    /// Nothing is owed to the aggregator and nothing is under way for it: between beats that is always so.
    fn only_listens(&self) -> bool {
        let Self { outgoing, acknowledged, binds, jobs, .. } = self;
        outgoing.is_empty() && acknowledged.is_none() && !binds.is_under_way() && !jobs.is_under_way()
    }

    /// Looks at the stream first, because most of what happens is a beat, but once in a while at the bell, or whoever floods
    /// would not hear it.
    async fn next_said(&mut self) -> Occurrence {
        let is_bells_turn = self.passed.is_multiple_of(CLOCK_EVERY);
        let Self { up, stream, .. } = self;
        tokio::select! {
            biased;
            () = stream.bell.rung(), if is_bells_turn => Occurrence::Rung,
            message = up.message() => Occurrence::Heard(heard(message)),
            () = stream.bell.rung() => Occurrence::Rung,
        }
    }

    async fn next_of_all(&mut self) -> Occurrence {
        let Self { up, down, outgoing, acknowledged, stream, binds, jobs, .. } = self;
        let has_room = outgoing.len() < OUTGOING_MAX;
        tokio::select! {
            message = up.message(), if has_room => Occurrence::Heard(heard(message)),
            place = down.reserve(), if !outgoing.is_empty() || acknowledged.is_some() => match place {
                Ok(place) => {
                    if let Some(reply) = outgoing.pop_front().or_else(|| acknowledged.take().map(acknowledgement)) {
                        place.send(Ok(Box::new(reply)));
                    }
                    Occurrence::Said
                }
                Err(_) => Occurrence::Deaf,
            },
            () = stream.bell.rung(), if has_room => Occurrence::Rung,
            batch = binds.decided(), if has_room && binds.is_under_way() => Occurrence::Decided(batch),
            ended = jobs.next(), if jobs.is_under_way() => Occurrence::Done(ended),
        }
    }

    fn heard(&mut self, message: Option<Up>) -> Result<(), Refusal> {
        let Some(message) = message else { return Ok(()) };
        match message {
            Up::Beats(beats) => {
                self.beats(&beats.handles);
                self.acknowledge(beats.acknowledge);
            }
            Up::Status(status) => self.status(status),
            Up::Register(register) => self.register(register),
            Up::Pods(pods) => self.pods(pods),
            Up::Bind(bind) => return self.bind(bind),
            Up::Release(release) => release.handles.into_iter().for_each(|handle| self.release(handle)),
            Up::Hello(_) => {
                return Err(Refusal::message("hello is the first message of a carrier, and only the first"));
            }
        }
        Ok(())
    }

    fn release(&mut self, handle: u32) {
        self.binds.remove(handle);
        self.jobs.forget(handle);
        self.holds.remove(handle);
    }

    fn beats(&mut self, handles: &[u32]) {
        let mut unknown = 0;
        let (strangers, binds, mut news) = (&mut self.strangers, &self.binds, Vec::new());
        self.sessions.beats().carried(self.holds.slots(), handles, |handle| {
            unknown += 1;
            if !binds.has(handle) && strangers.len() < STRANGERS_MAX && strangers.insert(handle) {
                news.push(handle);
            }
        });
        if unknown > 0 {
            self.sessions.figures().handles_unknown(unknown);
            let refused = "no node is bound under this handle; bind it first";
            self.bound(news.into_iter().map(|handle| refused_node(handle, refused)).collect());
        }
    }

    /// Only the word of a replica in contact with the leader tells an aggregator that the fleet hears its nodes.
    fn acknowledge(&mut self, sequence: u64) {
        if sequence != 0 && self.sessions.in_contact() {
            self.acknowledged = self.acknowledged.max(Some(sequence));
        }
    }

    fn status(&mut self, v1::CarriedStatus { handle, report }: v1::CarriedStatus) {
        self.beats(&[handle]);
        if let (Some(_), Some(report)) = (self.holds.binding(handle), report) {
            self.jobs.add(handle, Job::Report(report));
            self.begin_jobs();
        }
    }

    fn pods(&mut self, v1::CarriedPods { handle, report }: v1::CarriedPods) {
        self.beats(&[handle]);
        if let (Some(_), Some(report)) = (self.holds.binding(handle), report) {
            self.jobs.add_pods(handle, report);
            self.begin_jobs();
        }
    }

    fn register(&mut self, v1::CarriedRegister { handle, register }: v1::CarriedRegister) {
        let (Some(hold), Some(register)) = (self.holds.get(handle), register) else {
            // Tells the aggregator that the handle stands for nobody.
            self.beats(&[handle]);
            return;
        };
        match hold.standing {
            Standing::Unregistered => self.jobs.add(handle, Job::Register(register)),
            Standing::Bound(_) => self.jobs.add_words(handle, register),
        }
        self.begin_jobs();
    }

    fn begin_jobs(&mut self) {
        let (sessions, holds, caller) = (&self.sessions, &self.holds, &self.caller);
        let may = |handle| holds.get(handle).map_or(Ok(()), |hold| sessions.spend(&hold.node));
        self.jobs.begin(may, |handle, job| {
            let hold = holds.get(handle)?;
            match (job, &hold.standing) {
                (Job::Register(register), Standing::Unregistered) => {
                    let registering = sessions.register(hold.node.clone(), register, caller.clone());
                    Some(pending::registration(handle, registering))
                }
                (Job::Reconcile(register), Standing::Bound(binding)) => {
                    let subject = (hold.node.clone(), binding.incarnation());
                    Some(pending::reconciliation(handle, sessions.reconcile(subject, register)))
                }
                (Job::Report(report), Standing::Bound(binding)) => {
                    let subject = (hold.node.clone(), binding.incarnation());
                    Some(pending::report(handle, sessions.report(subject, report)))
                }
                (Job::Pods(report), Standing::Bound(binding)) => {
                    let subject = (hold.node.clone(), binding.incarnation());
                    Some(pending::pods(handle, sessions.report_pods(subject, report)))
                }
                (Job::Register(_), Standing::Bound(_))
                | (Job::Reconcile(_) | Job::Report(_) | Job::Pods(_), Standing::Unregistered) => None,
            }
        });
    }

    fn done(&mut self, handle: u32, done: Done) {
        match done {
            Done::Registered(Ok(admitted)) if self.holds.awaits(handle, &admitted.node.meta.name) => {
                let place = (&self.stream.bell, handle);
                match Binding::new(&self.sessions, &admitted, &self.caller, place) {
                    Ok(binding) => {
                        let welcome = binding.welcome(&self.sessions.replica().current().state, &self.caller);
                        self.holds.bind(handle, binding);
                        self.carried(handle, Down::Welcome(welcome));
                    }
                    Err(refusal) => self.refuse(handle, &refusal),
                }
            }
            // Released in the meantime.
            Done::Registered(Ok(admitted)) => self.give_back(&admitted),
            Done::Registered(Err(refusal)) => self.refuse(handle, &refusal),
            Done::Reconciled(Reconciled::Answered(answer)) => self.carried(handle, Down::Registered(answer)),
            Done::Reported(Reported::Taken(taken)) => self.carried(handle, Down::StatusTaken(taken)),
            Done::PodsReported(PodsReported::Taken(taken)) => self.carried(handle, Down::PodsTaken(taken)),
            Done::Reconciled(Reconciled::Gone)
            | Done::Reported(Reported::Gone)
            | Done::PodsReported(PodsReported::Gone) => self.stream.bell.touch(handle),
        }
    }

    fn rung(&mut self) -> Result<(), Refusal> {
        let signals = self.stream.bell.signals();
        if signals.has(Signal::Stop) {
            return Err(Refusal::stopping());
        }
        if signals.has(Signal::Scope) {
            self.rescope()?;
        }
        let state = self.sessions.replica().current();
        for handle in self.stream.bell.take_touched(TOUCHED_AT_ONCE) {
            self.examine(handle, &state.state);
        }
        if signals.has(Signal::Move)
            && let Some(why) = self.sessions.why_move()
        {
            self.sessions.figures().moved();
            self.reply(Reply::Move(v1::Move { why }));
        }
        if signals.has(Signal::Terms) {
            self.reply(Reply::Terms(terms(&state.state)));
        }
        Ok(())
    }

    fn examine(&mut self, handle: u32, state: &State) {
        let Some(binding) = self.holds.binding(handle) else { return };
        if let Some(ending) = binding.ending() {
            let refused = ending.text(binding.node());
            self.sessions.figures().refuse(ending.reason());
            self.holds.remove(handle);
            self.bound(vec![refused_node(handle, &refused)]);
            return;
        }
        if let Err(distrust) = state.admits_carried(binding.node()) {
            self.sessions.figures().refuse(Refused::Identity);
            self.holds.remove(handle);
            self.bound(vec![refused_node(handle, &distrust.to_string())]);
            return;
        }
        match binding.examine(state) {
            Finding::Bound(news) => {
                let orders = binding.orders(state);
                if orders.is_some() {
                    // The rest when there is room for it.
                    self.stream.bell.touch(handle);
                }
                let messages: Vec<Down> = news.into_iter().chain(orders).collect();
                messages.into_iter().for_each(|message| self.carried(handle, message));
            }
            Finding::Unbound(news) => {
                self.holds.unbind(handle);
                self.carried(handle, news);
            }
        }
    }

    /// Nodes that fell out of the scope are let go.
    fn rescope(&mut self) -> Result<(), Refusal> {
        self.scope = scope(&self.sessions.replica().current().state, &self.aggregator)?;
        let fallen = self.holds.outside(&self.scope);
        let mut news = Vec::with_capacity(fallen.len());
        for (handle, node) in fallen {
            self.holds.remove(handle);
            self.sessions.figures().refuse(Refused::Scope);
            news.push(refused_node(handle, &self.out_of_scope(&node)));
        }
        self.bound(news);
        Ok(())
    }

    fn out_of_scope(&self, node: &str) -> String {
        format!("node {node:?} is not in the scope of aggregator {:?}", self.aggregator)
    }

    fn refuse(&mut self, handle: u32, refusal: &Refusal) {
        self.sessions.figures().refuse(refusal.reason);
        self.bound(vec![refused_node(handle, refusal.status.message())]);
    }

    fn welcome(&mut self) {
        let state = self.sessions.replica().current();
        let (fleet, replica) = (self.caller.fleet.to_string(), self.sessions.replica().id());
        self.reply(Reply::Welcome(v1::CarrierWelcome { fleet, replica: replica.0, terms: Some(terms(&state.state)) }));
    }

    fn bound(&mut self, nodes: Vec<v1::BoundNode>) {
        for part in nodes.chunks(NODES_PER_REPLY) {
            self.reply(Reply::Bound(v1::Bound { nodes: part.to_vec() }));
        }
    }

    fn carried(&mut self, handle: u32, message: Down) {
        self.reply(Reply::Carried(v1::Carried { handle, message: Some(said(message)) }));
    }

    fn reply(&mut self, message: Reply) {
        self.outgoing.push_back(v1::CarrierReply { message: Some(message) });
    }
}

fn acknowledgement(sequence: u64) -> v1::CarrierReply {
    v1::CarrierReply { message: Some(Reply::Acknowledged(v1::Acknowledged { sequence })) }
}

fn refused_node(handle: u32, refused: &str) -> v1::BoundNode {
    v1::BoundNode { handle, refused: refused.to_owned(), ..v1::BoundNode::default() }
}
