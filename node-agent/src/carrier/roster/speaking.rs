//! What the roster says, most urgent first: beats, then bindings, registrations, pods, statuses and introductions.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use tokio::time::Instant;

use crate::machine::Fingerprint;

use super::{Node, Owed, Roster, Standing};

/// The interval is divided into so many parts, each with its share of the nodes.
pub(super) const SLICES: u32 = 10;
const BINDINGS_PER_MESSAGE: usize = 512;
/// Three bytes each at most, so that a message fits the connection's window.
const HANDLES_PER_MESSAGE: usize = 16 << 10;
/// Registrations are writes; the rest waits until these are answered.
const REGISTERING_AT_ONCE: usize = 1024;
/// A registration unanswered for so long is tried again. A node that is not registered is missed by nobody, and a
/// write in a storm of them takes its time.
const REGISTER_AGAIN: Duration = Duration::from_secs(30);
/// Every node is looked at once per interval, so half of one makes it one on average.
const BIND_AGAIN_SHARE: u32 = 2;
/// Without a link there is nothing to say; this is when to look again.
const NOTHING_TO_SAY: Duration = Duration::from_secs(3600);

impl Roster {
    pub(in crate::carrier) fn hello(&self, moving: bool) -> v1::CarrierMessage {
        wrap(Up::Hello(v1::CarrierHello { instance: self.instance, version: self.version.clone(), moving }))
    }

    /// The last words: nothing more will be said about these nodes.
    pub(in crate::carrier) fn releases(&self) -> Vec<v1::CarrierMessage> {
        let bound = self.handles().filter(|handle| matches!(self.node(*handle).standing, Standing::Bound));
        let handles: Vec<u32> = bound.collect();
        let release = |part: &[u32]| wrap(Up::Release(v1::Release { handles: part.to_vec() }));
        handles.chunks(HANDLES_PER_MESSAGE).map(release).collect()
    }

    /// When something has to be said next.
    pub(in crate::carrier) fn deadline(&self) -> Instant {
        if self.replica.is_none() {
            self.next_slice + NOTHING_TO_SAY
        } else if self.owes_something() {
            self.started
        } else {
            self.next_slice
        }
    }

    pub(in crate::carrier) fn turn(&mut self, now: Instant) -> Option<v1::CarrierMessage> {
        let begins = self.next_slice <= now;
        if begins {
            self.begin_slice(now);
        }
        let asks = begins && self.vigil.wants_word(&self.terms, now);
        let message = self.beats(asks, now).or_else(|| self.bindings()).or_else(|| self.registration(now));
        let message = message.or_else(|| self.pods_report(now)).or_else(|| self.status(now));
        message.or_else(|| self.introduction(now)).map(wrap)
    }

    fn owes_something(&self) -> bool {
        let may_register = !self.owed.registrations.is_empty() && self.registering < REGISTERING_AT_ONCE;
        let Owed { beats, bindings, pods, statuses, introductions, .. } = &self.owed;
        may_register || [beats, bindings, pods, statuses, introductions].iter().any(|owed| !owed.is_empty())
    }

    /// The nodes of this part of the interval are due: to beat, to post, or to be tried again.
    fn begin_slice(&mut self, now: Instant) {
        let end = self.handles().end;
        for handle in (self.slice..end).step_by(SLICES as usize) {
            match self.node(handle).standing {
                Standing::Bound => {
                    self.owed.beats.insert(handle);
                    self.owe_pods_if_due(handle, now);
                    self.owe_status_if_due(handle, now);
                    self.owe_introduction_if_due(handle, now);
                }
                Standing::Clearing => {}
                Standing::Unbound { since } | Standing::Refused { since } => {
                    self.bind_again_if_due(handle, since + self.terms.retry_pause() / BIND_AGAIN_SHARE, now);
                }
                Standing::Registering { since, .. } => self.bind_again_if_due(handle, since + REGISTER_AGAIN, now),
            }
        }
        self.slice = (self.slice + 1) % SLICES;
        self.next_slice = now + self.terms.next_beat_in((self.dice)()) / SLICES;
    }

    /// Binding again is always right: the answer says what is missing.
    fn bind_again_if_due(&mut self, handle: u32, due: Instant, now: Instant) {
        if now >= due && !self.owed.registrations.contains(&handle) {
            self.stand(handle, Standing::Unbound { since: now });
            self.owed.bindings.insert(handle);
        }
    }

    /// A question is asked even if no node beats at the moment.
    fn beats(&mut self, asks: bool, now: Instant) -> Option<Up> {
        let handles = take(&mut self.owed.beats, HANDLES_PER_MESSAGE);
        let acknowledge = if asks { self.question(now) } else { 0 };
        (asks || !handles.is_empty()).then_some(Up::Beats(v1::Beats { handles, acknowledge }))
    }

    fn question(&mut self, now: Instant) -> u64 {
        self.vigil.asked(now);
        self.sequence += 1;
        self.sequence
    }

    fn bindings(&mut self) -> Option<Up> {
        let handles = take(&mut self.owed.bindings, BINDINGS_PER_MESSAGE);
        let bindings = handles.into_iter().map(|handle| {
            let node = self.node(handle);
            v1::Binding {
                handle,
                node: node.name.clone(),
                incarnation: node.incarnation,
                orders_revision: node.pods.orders_revision(),
            }
        });
        let bindings: Vec<_> = bindings.collect();
        (!bindings.is_empty()).then_some(Up::Bind(v1::Bind { bindings }))
    }

    fn registration(&mut self, now: Instant) -> Option<Up> {
        if self.registering >= REGISTERING_AT_ONCE {
            return None;
        }
        let handle = self.owed.registrations.pop_first()?;
        let Node { machine, pods, .. } = self.node(handle);
        let register = v1::Register { node: machine.node_json(), running: Some(pods.running()) };
        let status = Fingerprint::of(&machine.status_json());
        self.stand(handle, Standing::Registering { since: now, status });
        Some(Up::Register(v1::CarriedRegister { handle, register: Some(register) }))
    }

    /// What the machine of a node is that was welcomed without having to register.
    fn introduction(&mut self, now: Instant) -> Option<Up> {
        let handle = self.owed.introductions.pop_first()?;
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        node.introduction.put_off(now, dice);
        let register = Some(v1::Register { node: node.machine.node_json(), running: None });
        Some(Up::Register(v1::CarriedRegister { handle, register }))
    }

    /// The first of the reports in question that has something to say.
    fn pods_report(&mut self, now: Instant) -> Option<Up> {
        while let Some(handle) = self.owed.pods.pop_first() {
            let (sequence, terms) = (self.sequence + 1, self.terms);
            if let Some(report) = self.node_mut(handle).pods.report(sequence, now, &terms) {
                self.sequence = sequence;
                return Some(Up::Pods(v1::CarriedPods { handle, report: Some(report) }));
            }
        }
        None
    }

    /// The first of the statuses in question that is to be posted.
    fn status(&mut self, now: Instant) -> Option<Up> {
        while let Some(handle) = self.owed.statuses.pop_first() {
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

fn take(owed: &mut BTreeSet<u32>, most: usize) -> Vec<u32> {
    std::iter::from_fn(|| owed.pop_first()).take(most).collect()
}

fn wrap(message: Up) -> v1::CarrierMessage {
    v1::CarrierMessage { message: Some(message) }
}
