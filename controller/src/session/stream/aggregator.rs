//! An aggregator's stream: many nodes under handles that the aggregator chose.
//!
//! Its beats come in batches, and each handle costs one look into an array. Everything else about a node is handled as
//! on a stream of the node's own, with the handle beside it.

mod binds;
mod handles;
mod writes;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use muster_lifecycle::aggregator::AggregatorRecord;
use muster_lifecycle::state::State;
use muster_proto::protocol::AGENT_PROTOCOL;
use muster_proto::v1;
use muster_proto::v1::aggregator_message::Message as Up;
use muster_proto::v1::aggregator_reply::Message as Reply;
use muster_proto::v1::server_message::Message as Down;
use tonic::{Status, Streaming};

use crate::door::listener::CertificateLife;
use crate::session::figures::RefusalReason;
use crate::session::stream::binding::Finding;
use crate::session::stream::caller::{Caller, Opener};
use crate::session::stream::outbound::server_message;
use crate::session::stream::pace::terms;
use crate::session::stream::pending::WriteRequest;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::stream::{Sender, StreamContext, first_message, heard, require_not_stopped, require_open};
use crate::session::wake::entry::Signal;
use crate::session::wake::registry::Stream;
use crate::session::write::trust::require_unexpired;

use self::binds::{Batch, Binds};
use self::handles::HandleTable;
use self::writes::{Ended, HandleWrites};

/// Handles are below this.
const HANDLES_MAX: u32 = 1_000_000;
/// How many occurrences pass between two checks of the certificate.
const CLOCK_EVERY: u32 = 8;
/// Replies that wait for the aggregator to take them. While there are more, nothing new is read from it.
const OUTGOING_MAX: usize = 1_024;
/// Nodes that are examined before the stream is read again.
const TOUCHED_AT_ONCE: usize = 512;
/// Nodes in one reply: with the longest of names and reasons it still fits into a message.
const NODES_PER_REPLY: usize = 256;
/// Unknown handles that the aggregator was told of; further ones are only counted.
const UNKNOWN_HANDLES_MAX: usize = 4_096;

pub(super) struct AggregatorStream {
    context: Arc<StreamContext>,
    stream: Stream,
    caller: Caller,
    certificate: CertificateLife,
    aggregator: String,
    scope: Arc<AggregatorRecord>,
    up: Streaming<v1::AggregatorMessage>,
    down: Sender<v1::AggregatorReply>,
    outgoing: VecDeque<v1::AggregatorReply>,
    /// Counts the occurrences on the stream.
    passed: u32,
    /// The newest acknowledgement that was not sent. One that the aggregator does not read holds up nothing else.
    acknowledged: Option<u64>,
    handles: HandleTable,
    binds: Binds,
    writes: HandleWrites,
    /// Handles that stand for no node, and that the aggregator was told of.
    unknown_handles: HashSet<u32>,
}

enum Occurrence {
    Heard(Result<Option<v1::AggregatorMessage>, SessionRefusal>),
    /// The aggregator was told something.
    Told,
    /// The aggregator can no longer be told anything.
    Deaf,
    Woken,
    Decided(Batch),
    /// A write ended, or the next one is due.
    Written(Option<Ended>),
}

/// Serves one stream until it ends.
pub(crate) async fn serve(
    context: Arc<StreamContext>,
    stream: Stream,
    (aggregator, opener): (String, Opener),
    up: Streaming<v1::AggregatorMessage>,
    down: Sender<v1::AggregatorReply>,
) {
    let (farewell, ports) = (down.clone(), Arc::clone(&context));
    if let Err(refusal) = converse(context, stream, (&aggregator, opener), up, down).await {
        let (reason, why) = (refusal.reason.label(), refusal.status.message());
        tracing::info!(aggregator, reason, why, "aggregator's stream ended");
        ports.tell_refusal(refusal, &farewell).await;
    }
}

async fn converse(
    context: Arc<StreamContext>,
    stream: Stream,
    (aggregator, opener): (&str, Opener),
    mut up: Streaming<v1::AggregatorMessage>,
    down: Sender<v1::AggregatorReply>,
) -> Result<(), SessionRefusal> {
    require_open(&stream)?;
    let Some(hello) = hello(&mut up).await? else { return Ok(()) };
    let certificate = opener.certificate.clone();
    let caller = Caller { instance: hello.instance, moving: hello.moving, ..opener.into_caller() };
    context.require_contact_to_move(&caller)?;
    // Once welcomed, the aggregator leaves its former replica.
    let caller = Caller { moving: false, ..caller };
    let scope = scope(&context.current().state, aggregator)?;
    let mut stream = AggregatorStream {
        context,
        stream,
        caller,
        certificate,
        aggregator: aggregator.to_owned(),
        scope,
        up,
        down,
        outgoing: VecDeque::new(),
        passed: 0,
        acknowledged: None,
        handles: HandleTable::default(),
        binds: Binds::default(),
        writes: HandleWrites::default(),
        unknown_handles: HashSet::new(),
    };
    stream.welcome();
    stream.run().await
}

/// `None` if the stream ended before its first message.
async fn hello(up: &mut Streaming<v1::AggregatorMessage>) -> Result<Option<v1::AggregatorHello>, SessionRefusal> {
    let Some(first) = first_message(up).await? else { return Ok(None) };
    match first.message {
        Some(Up::Hello(hello)) => Ok(Some(hello)),
        Some(_) | None => Err(SessionRefusal::message("the first message of an aggregator must be hello")),
    }
}

fn scope(state: &State, aggregator: &str) -> Result<Arc<AggregatorRecord>, SessionRefusal> {
    state.aggregators().get(aggregator).cloned().ok_or_else(|| {
        let text = format!(
            "aggregator {aggregator:?} has no scope: say which nodes it may carry with `muster set aggregator \
             {aggregator} --nodes ...`"
        );
        SessionRefusal::new(RefusalReason::Scope, Status::permission_denied(text))
    })
}

// === impl AggregatorStream ===

impl AggregatorStream {
    async fn run(&mut self) -> Result<(), SessionRefusal> {
        loop {
            let occurrence = self.next().await;
            self.check_certificate()?;
            match occurrence {
                Occurrence::Heard(message) => match message? {
                    Some(message) => self.heard(message.message)?,
                    None => return Ok(()),
                },
                Occurrence::Deaf => return Ok(()),
                Occurrence::Told => {}
                Occurrence::Woken => self.woken()?,
                Occurrence::Decided(batch) => self.bind_decided(batch),
                Occurrence::Written(ended) => {
                    ended.into_iter().for_each(|ended| self.written(ended));
                    self.begin_writes();
                }
            }
        }
    }

    /// Not at every beat: reading the clock would cost half as much as the rest of a beat.
    fn check_certificate(&mut self) -> Result<(), SessionRefusal> {
        self.passed = self.passed.wrapping_add(1);
        if self.passed.is_multiple_of(CLOCK_EVERY) { require_unexpired(&self.certificate) } else { Ok(()) }
    }

    /// Waits for the first occurrence. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Occurrence {
        if self.only_listens() { self.next_said().await } else { self.next_of_all().await }
    }

    /// Nothing waits to be sent and nothing is under way, as is always the case between beats.
    fn only_listens(&self) -> bool {
        let Self { outgoing, acknowledged, binds, writes, .. } = self;
        outgoing.is_empty() && acknowledged.is_none() && !binds.is_under_way() && !writes.is_under_way()
    }

    /// Looks at the stream first, because most occurrences are beats. Once in a while it looks at the wakeup first, or
    /// an aggregator that floods would never be woken.
    async fn next_said(&mut self) -> Occurrence {
        let is_wakeups_turn = self.passed.is_multiple_of(CLOCK_EVERY);
        let Self { up, stream, .. } = self;
        tokio::select! {
            biased;
            () = stream.wakeup.woken(), if is_wakeups_turn => Occurrence::Woken,
            message = up.message() => Occurrence::Heard(heard(message)),
            () = stream.wakeup.woken() => Occurrence::Woken,
        }
    }

    async fn next_of_all(&mut self) -> Occurrence {
        let Self { up, down, outgoing, acknowledged, stream, binds, writes, .. } = self;
        let has_room = outgoing.len() < OUTGOING_MAX;
        tokio::select! {
            message = up.message(), if has_room => Occurrence::Heard(heard(message)),
            place = down.reserve(), if !outgoing.is_empty() || acknowledged.is_some() => match place {
                Ok(place) => {
                    if let Some(reply) = outgoing.pop_front().or_else(|| acknowledged.take().map(acknowledgement)) {
                        place.send(Ok(Box::new(reply)));
                    }
                    Occurrence::Told
                }
                Err(_) => Occurrence::Deaf,
            },
            () = stream.wakeup.woken(), if has_room => Occurrence::Woken,
            batch = binds.decided(), if has_room && binds.is_under_way() => Occurrence::Decided(batch),
            ended = writes.next(), if writes.is_under_way() => Occurrence::Written(ended),
        }
    }

    fn heard(&mut self, message: Option<Up>) -> Result<(), SessionRefusal> {
        let Some(message) = message else { return Ok(()) };
        match message {
            Up::Beats(beats) => {
                self.beats(&beats.handles);
                self.acknowledge(beats.acknowledge);
            }
            Up::Status(v1::CarriedStatus { handle, report }) => {
                self.beats(&[handle]);
                report.into_iter().for_each(|report| self.write(handle, WriteRequest::Status(report)));
            }
            Up::Pods(v1::CarriedPods { handle, report }) => {
                self.beats(&[handle]);
                report.into_iter().for_each(|report| self.write(handle, WriteRequest::Pods(report)));
            }
            Up::Register(v1::CarriedRegister { handle, register }) => match register {
                Some(register) if self.handles.get(handle).is_some() => {
                    self.write(handle, WriteRequest::Register(register));
                }
                // Tells the aggregator if the handle is unknown.
                Some(_) | None => self.beats(&[handle]),
            },
            Up::Bind(bind) => return self.bind(bind),
            Up::Release(release) => release.handles.into_iter().for_each(|handle| self.release(handle)),
            Up::Hello(_) => {
                return Err(SessionRefusal::message("hello is the first message of an aggregator, and only the first"));
            }
        }
        Ok(())
    }

    fn release(&mut self, handle: u32) {
        self.binds.remove(handle);
        self.drop_handle(handle);
    }

    fn beats(&mut self, handles: &[u32]) {
        let mut unknown = 0;
        let (told, binds, mut news) = (&mut self.unknown_handles, &self.binds, Vec::new());
        self.context.binder.beats.carried(self.handles.slots(), handles, |handle| {
            unknown += 1;
            if !binds.has(handle) && told.len() < UNKNOWN_HANDLES_MAX && told.insert(handle) {
                news.push(handle);
            }
        });
        if unknown > 0 {
            self.context.figures.handles_unknown(unknown);
            let refused = "no node is bound under this handle; bind it first";
            self.bound(news.into_iter().map(|handle| refused_node(handle, refused)).collect());
        }
    }

    /// Acknowledges only while this replica is in contact with the leader: the aggregator takes it as proof that the
    /// fleet hears its nodes.
    fn acknowledge(&mut self, sequence: u64) {
        if sequence != 0 && self.context.relocation.is_in_contact() {
            self.acknowledged = self.acknowledged.max(Some(sequence));
        }
    }

    fn woken(&mut self) -> Result<(), SessionRefusal> {
        let signals = self.stream.wakeup.signals();
        require_not_stopped(signals)?;
        if signals.has(Signal::Scope) {
            self.rescope()?;
        }
        let current = self.context.current();
        for handle in self.stream.wakeup.take_touched(TOUCHED_AT_ONCE) {
            self.examine(handle, &current.state);
        }
        let notices = self.context.notices(signals);
        notices.relocate.into_iter().for_each(|notice| self.reply(Reply::Move(notice)));
        notices.terms.into_iter().for_each(|terms| self.reply(Reply::Terms(terms)));
        Ok(())
    }

    fn examine(&mut self, handle: u32, state: &State) {
        let Some(binding) = self.handles.binding(handle) else { return };
        if let Err(distrust) = state.admits_carried(binding.node()) {
            return self.refuse_and_drop(handle, RefusalReason::Identity, &distrust.to_string());
        }
        match binding.examine(state) {
            Finding::Ended(ending) => {
                let text = ending.text(binding.node());
                self.refuse_and_drop(handle, ending.reason(), &text);
            }
            Finding::Bound(news) => {
                let orders = binding.orders(state);
                if orders.is_some() {
                    // The rest follows when there is room for it.
                    self.stream.wakeup.touch(handle);
                }
                news.into_iter().chain(orders).for_each(|message| self.carried(handle, message));
            }
            Finding::Unbound(news) => {
                self.handles.unbind(handle);
                self.writes.clear(handle);
                self.carried(handle, news);
            }
        }
    }

    /// Releases the nodes that fell out of the scope.
    fn rescope(&mut self) -> Result<(), SessionRefusal> {
        self.scope = scope(&self.context.current().state, &self.aggregator)?;
        let fallen = self.handles.outside(&self.scope);
        let mut news = Vec::with_capacity(fallen.len());
        for (handle, node) in fallen {
            self.drop_handle(handle);
            self.context.figures.refuse(RefusalReason::Scope);
            news.push(refused_node(handle, &self.out_of_scope(&node)));
        }
        self.bound(news);
        Ok(())
    }

    fn out_of_scope(&self, node: &str) -> String {
        format!("node {node:?} is not in the scope of aggregator {:?}", self.aggregator)
    }

    /// `handle` stands for no node from now on.
    fn drop_handle(&mut self, handle: u32) {
        self.writes.clear(handle);
        self.handles.remove(handle);
    }

    fn refuse_and_drop(&mut self, handle: u32, reason: RefusalReason, why: &str) {
        self.context.figures.refuse(reason);
        self.drop_handle(handle);
        self.bound(vec![refused_node(handle, why)]);
    }

    fn refuse(&mut self, handle: u32, refusal: &SessionRefusal) {
        self.context.figures.refuse(refusal.reason);
        self.bound(vec![refused_node(handle, refusal.status.message())]);
    }

    fn welcome(&mut self) {
        let current = self.context.current();
        let (fleet, replica) = (self.caller.fleet.to_string(), self.context.writes.replica().id().0);
        self.reply(Reply::Welcome(v1::AggregatorWelcome {
            fleet,
            replica,
            terms: Some(terms(&current.state)),
            protocol_min: AGENT_PROTOCOL.min,
            protocol_max: AGENT_PROTOCOL.max,
        }));
    }

    fn bound(&mut self, nodes: Vec<v1::BoundNode>) {
        for part in nodes.chunks(NODES_PER_REPLY) {
            self.reply(Reply::Bound(v1::Bound { nodes: part.to_vec() }));
        }
    }

    fn carried(&mut self, handle: u32, message: Down) {
        self.reply(Reply::Carried(v1::Carried { handle, message: Some(server_message(message)) }));
    }

    fn reply(&mut self, message: Reply) {
        self.outgoing.push_back(v1::AggregatorReply { message: Some(message) });
    }
}

fn acknowledgement(sequence: u64) -> v1::AggregatorReply {
    v1::AggregatorReply { message: Some(Reply::Acknowledged(v1::Acknowledged { sequence })) }
}

fn refused_node(handle: u32, refused: &str) -> v1::BoundNode {
    v1::BoundNode { handle, refused: refused.to_owned(), ..v1::BoundNode::default() }
}
