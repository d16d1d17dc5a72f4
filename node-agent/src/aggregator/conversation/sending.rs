//! Outbound messages of an aggregator, most urgent first: beats, bindings, registrations, pods, statuses, machine
//! reports.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_proto::protocol::AGENT_PROTOCOL;
use muster_proto::v1;
use muster_proto::v1::aggregator_message::Message as Up;
use tokio::time::Instant;

use crate::machine::{Fingerprint, registration_json};

use super::{BindingState, Conversation, Node, Outbound};

/// The interval is divided into so many slices, each with its share of the nodes.
pub(super) const SLICES: u32 = 10;
const BINDINGS_PER_MESSAGE: usize = 512;
/// At most three bytes each, so that a message fits the connection's window.
const HANDLES_PER_MESSAGE: usize = 16 << 10;
/// Registrations are writes; more wait until these are answered.
const REGISTERING_AT_ONCE: usize = 1024;
/// An unanswered registration is repeated after this. It may take a while in a storm of writes, and a node that is not
/// registered yet cannot be missed.
const REGISTER_AGAIN: Duration = Duration::from_secs(30);
/// Every node is visited once per interval, so half an interval makes it one on average.
const BIND_AGAIN_SHARE: u32 = 2;
/// Without a link nothing is due; this is when to check again.
const NOTHING_TO_SAY: Duration = Duration::from_secs(3600);

impl Conversation {
    pub(in crate::aggregator) fn hello(&self, moving: bool) -> v1::AggregatorMessage {
        wrap(Up::Hello(v1::AggregatorHello {
            instance: self.instance,
            version: self.version.clone(),
            moving,
            protocol_min: AGENT_PROTOCOL.min,
            protocol_max: AGENT_PROTOCOL.max,
        }))
    }

    /// The last messages: they release every bound node.
    pub(in crate::aggregator) fn releases(&self) -> Vec<v1::AggregatorMessage> {
        let bound = self.handles().filter(|handle| matches!(self.node(*handle).binding, BindingState::Bound));
        let handles: Vec<u32> = bound.collect();
        let release = |part: &[u32]| wrap(Up::Release(v1::Release { handles: part.to_vec() }));
        handles.chunks(HANDLES_PER_MESSAGE).map(release).collect()
    }

    /// When the next message is due.
    pub(in crate::aggregator) fn deadline(&self) -> Instant {
        if self.replica.is_none() {
            self.next_slice + NOTHING_TO_SAY
        } else if self.has_outbound() {
            self.started
        } else {
            self.next_slice
        }
    }

    pub(in crate::aggregator) fn turn(&mut self, now: Instant) -> Option<v1::AggregatorMessage> {
        let begins = self.next_slice <= now;
        if begins {
            self.begin_slice(now);
        }
        let asks = begins && self.liveness.wants_answer(&self.terms, now);
        let message = self.beats(asks, now).or_else(|| self.bindings()).or_else(|| self.registration(now));
        let message = message.or_else(|| self.pods_report(now)).or_else(|| self.status(now));
        message.or_else(|| self.machine_report(now)).map(wrap)
    }

    fn has_outbound(&self) -> bool {
        let may_register = !self.outbound.registrations.is_empty() && self.registering < REGISTERING_AT_ONCE;
        let Outbound { beats, bindings, pods, statuses, machine_reports, .. } = &self.outbound;
        may_register || [beats, bindings, pods, statuses, machine_reports].iter().any(|outbound| !outbound.is_empty())
    }

    /// Visits the nodes of this slice: they beat, post, or are bound again.
    fn begin_slice(&mut self, now: Instant) {
        let end = self.handles().end;
        for handle in (self.slice..end).step_by(SLICES as usize) {
            match self.node(handle).binding {
                BindingState::Bound => {
                    self.outbound.beats.insert(handle);
                    self.queue_pods_if_due(handle, now);
                    self.queue_status_if_due(handle, now);
                    self.queue_machine_report_if_due(handle, now);
                }
                BindingState::Clearing => self.register_if_clear(handle, now),
                BindingState::Unbound { since } | BindingState::Refused { since } => {
                    self.bind_again_if_due(handle, since + self.terms.retry_pause() / BIND_AGAIN_SHARE, now);
                }
                BindingState::Registering { since, .. } => self.bind_again_if_due(handle, since + REGISTER_AGAIN, now),
            }
        }
        self.slice = (self.slice + 1) % SLICES;
        self.next_slice = now + self.terms.next_beat_in((self.dice)()) / SLICES;
    }

    /// Binding again is always safe: the answer names what is missing.
    fn bind_again_if_due(&mut self, handle: u32, due: Instant, now: Instant) {
        if now >= due && !self.outbound.registrations.contains(&handle) {
            self.set_binding(handle, BindingState::Unbound { since: now });
            self.outbound.bindings.insert(handle);
        }
    }

    /// An acknowledgement is asked for even if no node beats at the moment.
    fn beats(&mut self, asks: bool, now: Instant) -> Option<Up> {
        let handles = take(&mut self.outbound.beats, HANDLES_PER_MESSAGE);
        let acknowledge = if asks { self.question(now) } else { 0 };
        (asks || !handles.is_empty()).then_some(Up::Beats(v1::Beats { handles, acknowledge }))
    }

    fn question(&mut self, now: Instant) -> u64 {
        self.liveness.asked(now);
        self.sequence += 1;
        self.sequence
    }

    fn bindings(&mut self) -> Option<Up> {
        let handles = take(&mut self.outbound.bindings, BINDINGS_PER_MESSAGE);
        let bindings = handles.into_iter().map(|handle| {
            let node = self.node(handle);
            v1::Binding {
                handle,
                node: node.name.clone(),
                incarnation: node.incarnation,
                orders_revision: node.pods.orders_revision(),
                continues: node.pods.continues(),
            }
        });
        let bindings: Vec<_> = bindings.collect();
        (!bindings.is_empty()).then_some(Up::Bind(v1::Bind { bindings }))
    }

    fn registration(&mut self, now: Instant) -> Option<Up> {
        if self.registering >= REGISTERING_AT_ONCE {
            return None;
        }
        let handle = self.outbound.registrations.pop_first()?;
        let Node { machine, pods, .. } = self.node(handle);
        let register =
            v1::Register { node: registration_json(machine.as_ref(), pods.is_idle()), running: Some(pods.running()) };
        let status = Fingerprint::of(&machine.status_json());
        self.set_binding(handle, BindingState::Registering { since: now, status });
        Some(Up::Register(v1::CarriedRegister { handle, register: Some(register) }))
    }

    /// The report on the machine of a node that was welcomed without a registration.
    fn machine_report(&mut self, now: Instant) -> Option<Up> {
        let handle = self.outbound.machine_reports.pop_first()?;
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        node.machine_report.put_off(now, dice);
        let register = Some(v1::Register { node: node.machine.node_json(), running: None });
        Some(Up::Register(v1::CarriedRegister { handle, register }))
    }

    /// The first report that has something to tell.
    fn pods_report(&mut self, now: Instant) -> Option<Up> {
        while let Some(handle) = self.outbound.pods.pop_first() {
            let (sequence, terms) = (self.sequence + 1, self.terms);
            if let Some(report) = self.node_mut(handle).pods.report(sequence, now, &terms) {
                self.sequence = sequence;
                return Some(Up::Pods(v1::CarriedPods { handle, report: Some(report) }));
            }
        }
        None
    }

    /// The first status that must be posted.
    fn status(&mut self, now: Instant) -> Option<Up> {
        while let Some(handle) = self.outbound.statuses.pop_first() {
            let (sequence, terms) = (self.sequence + 1, self.terms);
            let node = self.node_mut(handle);
            let status = node.machine.status_json();
            if let Some(status) = node.status.post(status, sequence, now, &terms) {
                let running = Some(node.pods.running());
                self.sequence = sequence;
                let report = Some(v1::StatusReport { sequence, status, running });
                return Some(Up::Status(v1::CarriedStatus { handle, report }));
            }
        }
        None
    }
}

fn take(outbound: &mut BTreeSet<u32>, most: usize) -> Vec<u32> {
    std::iter::from_fn(|| outbound.pop_first()).take(most).collect()
}

fn wrap(message: Up) -> v1::AggregatorMessage {
    v1::AggregatorMessage { message: Some(message) }
}
