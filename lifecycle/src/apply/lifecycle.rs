//! Commands of the leader about nodes: silence, zones, evictions.
//!
//! Each command names what it was decided on (an incarnation, a Ready status) or works it out anew from the state, so
//! that a decision that was overtaken is rejected instead of done.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult, EVENT_SOURCE, Note, node_subject};
use crate::command::{LIFTS_MAX, Origin, ReceiptEffect, Sighting};
use crate::judge::disruption::{FullDisruptionChange, StateChange, Transition};
use crate::judge::health;
use crate::object::event::{EventType, Subject};
use crate::object::node::{ConditionStatus, Incarnation, Node};
use crate::object::policy_state::{FleetPolicyState, Reprieve, ReprieveReason};
use crate::object::token_bucket::TokenBucket;
use crate::object::zone::ZoneRecord;
use crate::object::zone::{Zone, ZoneKey};
use crate::rejection::Rejection;
use crate::rule::condition_taint::{self, Absence, NoExecuteAction};
use crate::rule::consequences;
use crate::value::meta::Uid;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

const NODE_NOT_READY: &str = "NodeNotReady";
const TAINTED_FOR_EVICTION: &str = "NodeTaintedForEviction";
const ZONE_STATE_CHANGED: &str = "ZoneStateChanged";
const ALL_ZONES_DISRUPTED: &str = "AllZonesDisrupted";
const ZONES_RECOVERED: &str = "ZonesRecovered";
const NODE_QUARANTINED: &str = "NodeQuarantined";

/// A verdict that takes longer than this from its making to its place in the log must be made anew.
const VERDICT_LIFETIME: Period = Period::from_secs(5);

// === silence ===

impl Application<'_> {
    pub(crate) fn mark_silent(
        &mut self,
        origin: &Origin,
        name: &Text,
        incarnation: Incarnation,
        from: Option<ConditionStatus>,
        heard: Option<Sighting>,
        decided: ClusterTime,
    ) -> ApplyResult {
        let before = self.incarnate(name, incarnation)?;
        let actual = before.status.ready().map(|ready| ready.status);
        if actual != from {
            return Err(Rejection::ReadyMoved { name: before.meta.name.clone(), expected: from, actual });
        }
        self.expect_timely(decided)?;
        let mut after = before.as_ref().clone();
        let conditions = &before.status.conditions;
        after.status.conditions = health::silenced(conditions, before.meta.created, self.now);
        let receipt = self.commit(origin, &before, after)?;
        self.mark_endings_unseen(&before);
        // PD-1: this is no news of a node that was not ready before.
        if from == Some(ConditionStatus::True) {
            let sighting = self.describe_sighting(heard);
            let message = format!("Node {} status is now: {NODE_NOT_READY}; {sighting}", before.meta.name);
            self.note(&before, NODE_NOT_READY, message);
            self.mark_tenants_unready(&before);
        }
        Ok(receipt)
    }

    fn describe_sighting(&self, heard: Option<Sighting>) -> String {
        match heard {
            Some(Sighting { at, through }) => {
                let age = Period(self.now.cluster.0.saturating_sub(at.0));
                format!("it was last heard {age} before, through replica {through}")
            }
            None => "no replica remembers having heard it".to_owned(),
        }
    }

    pub(crate) fn note_quarantine(&mut self, name: &Text, incarnation: Incarnation, reason: &Text) -> ApplyResult {
        let node = self.incarnate(name, incarnation)?;
        let message = format!(
            "watching node {name} keeps failing ({}): it keeps its last known state until it changes or another replica leads",
            Text::clipped(reason, 512)
        );
        let note = Note { event_type: EventType::Warning, reason: NODE_QUARANTINED, message, source: EVENT_SOURCE };
        self.record_event(node_subject(&node), note);
        Ok(self.receipt(ReceiptEffect::Changed))
    }
}

// === zones ===

impl Application<'_> {
    pub(crate) fn assess_zones(&mut self) -> ApplyResult {
        let transition = self.state.zone_transition(self.now.cluster);
        if transition.is_quiet() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        for (key, zone) in &transition.next.zones {
            self.put_zone(key, *zone);
        }
        transition.vanished.iter().for_each(|key| self.retire_zone(key));
        transition.states.iter().for_each(|change| self.note_zone(change, &transition));
        if let Some(change) = transition.full_disruption {
            self.change_full_disruption(change);
        }
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    fn retire_zone(&mut self, key: &ZoneKey) {
        let now = self.now.cluster;
        let Some(record) = self.state.zones.get(key) else { return };
        if record.is_spent(now) {
            self.state.zones.remove(key);
        } else {
            let retired = record.retired(self.state.policy().node_eviction_rate, now);
            self.state.zones.insert(Arc::new(retired));
        }
        self.touch::<ZoneRecord>(key);
    }

    /// a known zone keeps its bucket, so that changing the rate never exceeds it.
    fn put_zone(&mut self, key: &ZoneKey, zone: Zone) {
        let now = self.now.cluster;
        let record = match self.state.zones.get(key) {
            Some(known) if known.zone == zone => return,
            Some(known) => {
                let mut record = ZoneRecord { zone, ..known.as_ref().clone() };
                record.bucket.set_rate(zone.rate, now);
                record
            }
            None => ZoneRecord { key: key.clone(), zone, bucket: TokenBucket::new(zone.rate, now), evictions: 0 },
        };
        self.state.zones.insert(Arc::new(record));
        self.touch::<ZoneRecord>(key);
    }

    fn change_full_disruption(&mut self, change: FullDisruptionChange) {
        let (policy_state, reason, message) = match change {
            FullDisruptionChange::Enter => (
                FleetPolicyState { all_disrupted: true, ..self.state.policy_state.clone() },
                ALL_ZONES_DISRUPTED,
                "every zone is fully disrupted: evictions stop, and those begun are taken back".to_owned(),
            ),
            FullDisruptionChange::Leave { grace_from } => (
                FleetPolicyState { all_disrupted: false, ..self.state.policy_state.clone() }.sparing(Some(Reprieve {
                    until: self.state.policy().node_monitor_grace_period.after(grace_from),
                    because: ReprieveReason::AllZonesDisrupted,
                })),
                ZONES_RECOVERED,
                format!(
                    "a zone is there again: every node has {} from now on to be heard",
                    self.state.policy().node_monitor_grace_period
                ),
            ),
        };
        self.set_policy_state(policy_state);
        let note = Note { event_type: EventType::Warning, reason, message, source: EVENT_SOURCE };
        self.record_event(subject("Fleet", "zones"), note);
    }

    fn note_zone(&mut self, change: &StateChange, transition: &Transition) {
        let StateChange { zone, from, to } = change;
        let rate = transition.next.zones.get(zone).map(|zone| zone.rate).unwrap_or_default();
        let census = self.state.census_of(zone);
        let message = format!(
            "zone {zone} went from {from} to {to}: {} of {} nodes are ready, {rate} nodes per second are evicted",
            census.ready,
            census.size()
        );
        let note = Note { event_type: EventType::Normal, reason: ZONE_STATE_CHANGED, message, source: EVENT_SOURCE };
        self.record_event(subject("Zone", &zone.to_string()), note);
    }
}

// === evictions ===

impl Application<'_> {
    /// I-04: the token goes in the entry that adds the taint, from a bucket that is the same for every leader.
    pub(crate) fn evict_node(&mut self, origin: &Origin, name: &Text, incarnation: Incarnation) -> ApplyResult {
        let before = self.incarnate(name, incarnation)?;
        let absence = self.expect_waiting(&before)?;
        let mut zone = self.expect_assessed(&before)?;
        if self.state.policy_state.spared_until().is_some_and(|until| self.now.cluster < until) {
            return Err(Rejection::Spared);
        }
        if !zone.bucket.take(self.now.cluster) {
            return Err(Rejection::NoToken { zone: Text::from(zone.key.to_string()) });
        }
        let mut after = before.as_ref().clone();
        let taint = absence.taint(self.now);
        let message = format!("{taint} was added; zone {} evicts {} nodes per second", zone.key, zone.zone.rate);
        after.spec.taints = after.spec.taints.into_iter().chain([taint]).collect();
        let receipt = self.commit(origin, &before, after)?;
        zone.evictions += 1;
        self.touch::<ZoneRecord>(&zone.key);
        self.state.zones.insert(Arc::new(zone));
        self.note(&before, TAINTED_FOR_EVICTION, message);
        Ok(receipt)
    }

    /// A leader may not know yet of a reprieve when it judges, and a log that stood still may bring up verdicts about
    /// nodes that have been heard since.
    fn expect_timely(&self, decided: ClusterTime) -> Result<(), Rejection> {
        let now = self.now.cluster;
        if self.state.policy_state.spared_until().is_some_and(|until| now <= until) {
            return Err(Rejection::Spared);
        }
        if now > VERDICT_LIFETIME.after(decided) {
            return Err(Rejection::Stale { age: Period(now.0 - decided.0) });
        }
        Ok(())
    }

    fn expect_waiting(&self, node: &Node) -> Result<Absence, Rejection> {
        match condition_taint::no_execute_action(&node.status.conditions, &node.spec.taints) {
            NoExecuteAction::Enqueue(absence) => Ok(absence),
            NoExecuteAction::Swap { .. } | NoExecuteAction::Clear(_) | NoExecuteAction::Nothing => {
                Err(Rejection::NotWaiting { name: node.meta.name.clone() })
            }
        }
    }

    /// No token is spent on an outdated view of the zones.
    fn expect_assessed(&self, node: &Node) -> Result<ZoneRecord, Rejection> {
        let key = ZoneKey::from_labels(&node.meta.labels);
        let record = self.state.zones.get(&key).ok_or(Rejection::ZonesMoved)?;
        match self.state.zone_transition(self.now.cluster).is_quiet() {
            true => Ok(record.as_ref().clone()),
            false => Err(Rejection::ZonesMoved),
        }
    }

    pub(crate) fn lift_evictions(&mut self, origin: &Origin, names: &[Text]) -> ApplyResult {
        if !self.state.policy_state.all_disrupted {
            return Err(Rejection::NotAllDisrupted);
        }
        if names.len() > LIFTS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("nodes in one entry"), limit: LIFTS_MAX as u64 });
        }
        let lifted = names.iter().filter(|name| self.lift_eviction(origin, name)).count();
        Ok(self.receipt(if lifted > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }

    /// Whether there was an eviction to take back. A node that only gets lighter is never refused for its weight.
    fn lift_eviction(&mut self, origin: &Origin, name: &Text) -> bool {
        let Some(before) = self.state.nodes.get(name).cloned() else { return false };
        let mut after = before.as_ref().clone();
        let mut taints = after.spec.taints.into_vec();
        [Absence::NotReady, Absence::Unreachable]
            .into_iter()
            .for_each(|absence| consequences::lift(&mut taints, absence));
        after.spec.taints = taints.into_boxed_slice();
        self.commit(origin, &before, after).is_ok_and(|receipt| receipt.effect == ReceiptEffect::Changed)
    }
}

/// The subject of an event about something that is no object of its own.
pub(crate) fn subject(kind: &str, name: &str) -> Subject {
    Subject { kind: Text::from(kind), name: Text::from(name), namespace: None, uid: Uid::default() }
}
