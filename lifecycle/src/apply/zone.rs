//! Zones: their states and rates follow the nodes that are ready.

use std::sync::Arc;

use crate::apply::event::subject;
use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::judge::disruption::{FullDisruptionChange, StateChange, Transition};
use crate::object::event::FleetHappening;
use crate::object::policy_state::{FleetPolicyState, Reprieve, ReprieveReason};
use crate::object::token_bucket::TokenBucket;
use crate::object::zone::{Zone, ZoneKey, ZoneRecord};

impl Application<'_> {
    pub(crate) fn assess_zones(&mut self) -> ApplyResult {
        let transition = self.state.zone_transition(self.now);
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
            let retired = record.retired(self.state.policy().node_eviction_rate, self.now);
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
        let grace = self.state.policy().node_monitor_grace_period;
        let (policy_state, happening) = match change {
            FullDisruptionChange::Enter => (
                FleetPolicyState { all_disrupted: true, ..self.state.policy_state.clone() },
                FleetHappening::AllZonesDisrupted,
            ),
            FullDisruptionChange::Leave { grace_from } => (
                FleetPolicyState { all_disrupted: false, ..self.state.policy_state.clone() }.sparing(Some(Reprieve {
                    until: grace.after(grace_from),
                    because: ReprieveReason::AllZonesDisrupted,
                })),
                FleetHappening::ZonesRecovered { grace },
            ),
        };
        self.set_policy_state(policy_state);
        self.record_event(subject("Fleet", "zones"), happening);
    }

    fn note_zone(&mut self, change: &StateChange, transition: &Transition) {
        let StateChange { zone, from, to } = change;
        let rate = transition.next.zones.get(zone).map(|zone| zone.rate).unwrap_or_default();
        let census = self.state.census_of(zone);
        let (ready, size) = (census.ready as u64, census.size());
        let happening = FleetHappening::ZoneStateChanged { from: *from, to: *to, ready, size, rate };
        self.record_event(subject("Zone", &zone.to_string()), happening);
    }
}
