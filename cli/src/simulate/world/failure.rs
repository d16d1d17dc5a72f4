//! Failures of the replicas: leaders die or are deposed, replicas stand still, digests are lost, wall clocks jump.

use super::replica::replica_id;
use super::{Millis, REPLICAS, ReplicaIndex, Witness, World, backoff_cap};

/// How long an agent takes to find another replica when its own dies.
const REATTACH_AFTER: Millis = 1_000;

/// A replica without contact to the leader for so long sends its agents away.
const CONTACT_LOST: Millis = 3_000;

/// Agents ping their replica; they leave one that does not answer for so long.
const PATIENCE_OF_AGENTS: Millis = 15_000;

/// There is no leader until a replica takes over.
pub(super) struct Succession {
    pub(super) at: Millis,
    successor: ReplicaIndex,
    /// The replica that comes back, with nothing in memory, when the new leader leads.
    fallen: Option<ReplicaIndex>,
}

/// The way in which a leader stops leading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fall {
    /// Its process dies, and what it heard is lost.
    Dies,
    /// The leader goes on as a follower.
    IsDeposed,
}

impl<W: Witness> World<W> {
    pub fn leader(&self) -> Option<ReplicaIndex> {
        self.leader
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    /// The leader leads no more; after `downtime` another replica does. False if there is no leader.
    pub fn fail_over(&mut self, downtime: Millis, fall: Fall) -> bool {
        let Some(fallen) = self.leader.take() else { return false };
        self.brain = None;
        let after = |step: usize| (fallen + step) % REPLICAS;
        let next = (1..REPLICAS).map(after).find(|index| self.replicas[*index].is_awake());
        let successor = next.unwrap_or(after(1));
        let dies = fall == Fall::Dies;
        self.succession =
            Some(Succession { at: self.now.saturating_add(downtime), successor, fallen: dies.then_some(fallen) });
        if dies {
            self.replicas[fallen].alive = false;
            self.replicas[fallen].wake();
            self.cast_adrift(fallen, self.now.saturating_add(REATTACH_AFTER));
        }
        true
    }

    /// A replica takes over, if it is time.
    pub(super) fn succeed(&mut self) {
        let Some(due) = self.succession.take_if(|next| next.at <= self.now) else { return };
        if let Some(until) = self.replicas[due.successor].stalled_until {
            self.succession = Some(Succession { at: until, ..due });
            return;
        }
        if let Some(fallen) = due.fallen {
            self.revive(fallen);
        }
        self.term += 1;
        self.take_over(due.successor);
        self.witness.leads(self.now, self.term, due.successor);
        self.write_down_what_waited();
    }

    fn revive(&mut self, fallen: ReplicaIndex) {
        self.replicas[fallen] = self.replicas[fallen].reborn(self.now, backoff_cap(&self.policy));
        for peer in (0..REPLICAS).filter(|peer| *peer != fallen) {
            self.replicas[peer].meet_anew(fallen);
        }
    }

    fn take_over(&mut self, index: ReplicaIndex) {
        let peers = (0..REPLICAS).filter(|peer| *peer != index);
        let is_lost = |peer: &ReplicaIndex| !self.replicas[*peer].is_awake() || self.cut[index][*peer];
        let lost: Vec<ReplicaIndex> = peers.clone().filter(is_lost).collect();
        let replica = &self.replicas[index];
        let now = replica.tick(self.now);
        let mut blindness = replica.pulses.blindness();
        let _ = blindness.took_over(peers.map(replica_id), now);
        lost.into_iter().for_each(|peer| blindness.unreachable(replica_id(peer), now));
        drop(blindness);
        self.lead(index, now);
    }

    /// While cut, the answers of `teller` to `listener` are lost on their way.
    pub fn set_cut(&mut self, listener: ReplicaIndex, teller: ReplicaIndex, cut: bool) {
        self.cut[listener][teller] = cut;
    }

    /// The process stands still: it hears, tells and does nothing until then. What agents send meanwhile waits.
    pub fn stall(&mut self, index: ReplicaIndex, until: Millis) {
        if self.replicas[index].is_awake() && until > self.now {
            self.replicas[index].stalled_until = Some(until);
            self.replicas[index].stalled_since = Some(self.now);
        }
    }

    /// A leader that wakes looks at the clock before it reads what came meanwhile: the worst order there is.
    pub(super) fn wake_the_stalled(&mut self) {
        for index in 0..REPLICAS {
            if self.replicas[index].stalled_until.is_none_or(|until| until > self.now) {
                continue;
            }
            let held_back = self.replicas[index].wake();
            if self.leader() == Some(index) {
                self.rounds();
            }
            for slot in held_back {
                if self.replicas[index].hear(slot, self.now) {
                    self.witness.heard(self.now, slot, index);
                }
            }
            if self.leader() == Some(index) {
                self.write_down_what_waited();
            }
        }
    }

    /// Sets by how much its wall clock is off. Nothing may depend on it.
    pub fn set_wall_offset(&mut self, index: ReplicaIndex, offset: i64) {
        self.replicas[index].wall_offset = offset;
    }

    /// Notes which replicas are in contact with the leader. Those that no longer are send their agents away.
    pub(super) fn follow_contact(&mut self) {
        let Some(leader) = self.leader() else { return };
        for index in 0..REPLICAS {
            let reaches = index == leader || (self.replicas[leader].is_awake() && !self.cut[index][leader]);
            let replica = &mut self.replicas[index];
            if let Some(since) = replica.stalled_since.filter(|_| replica.stalled_until.is_some()) {
                if self.now.saturating_sub(since) >= PATIENCE_OF_AGENTS {
                    self.send_away(index);
                }
            } else if reaches && replica.is_awake() {
                replica.last_contact = self.now;
            } else if replica.is_awake() && !self.is_in_contact(index) {
                self.send_away(index);
            }
        }
    }

    pub(super) fn is_in_contact(&self, index: ReplicaIndex) -> bool {
        self.now.saturating_sub(self.replicas[index].last_contact) < CONTACT_LOST
    }
}
