//! Load of a node: what its pods take from it together.

use std::collections::BTreeMap;

use crate::object::node::Resources;
pub use crate::object::pod::Shortage;
use crate::object::pod::{PODS_PER_NODE_MAX, Pod};
use crate::value::text::Text;

/// Sums in billionths, without a cap: whatever was added can be subtracted exactly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    taken: BTreeMap<Text, i128>,
    pods: usize,
    /// Counts pods that have ended too.
    present: usize,
}

/// The resource that counts pods.
pub const PODS: &str = "pods";
const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// One whole, in parts per million.
const MILLION: i128 = 1_000_000;

impl Load {
    /// A pod that has ended takes nothing; one that is stopping still does.
    pub(crate) fn add(&mut self, pod: &Pod) {
        match counts(pod) {
            true => self.take(&pod.spec.requests),
            false => self.present += 1,
        }
    }

    pub(crate) fn remove(&mut self, pod: &Pod) {
        self.present -= 1;
        if counts(pod) {
            self.pods -= 1;
            for (name, quantity) in pod.spec.requests.iter() {
                if let Some(taken) = self.taken.get_mut(name) {
                    *taken -= quantity.nanos();
                }
            }
            self.taken.retain(|_, taken| *taken != 0);
        }
    }

    pub(crate) fn take(&mut self, requests: &Resources) {
        self.pods += 1;
        self.present += 1;
        for (name, quantity) in requests.iter().filter(|(_, quantity)| !quantity.is_zero()) {
            *self.taken.entry(name.clone()).or_default() += quantity.nanos();
        }
    }

    pub fn pods(&self) -> usize {
        self.pods
    }

    pub fn taken(&self, resource: &str) -> i128 {
        self.taken.get(resource).copied().unwrap_or(0)
    }

    /// The resource that would be short if these requests were added.
    pub fn shortage(&self, requests: &Resources, allocatable: &Resources) -> Option<Shortage> {
        let wanted = requests.iter().filter(|(_, quantity)| !quantity.is_zero());
        let short = |(name, quantity): &(&Text, crate::value::quantity::Quantity)| {
            let there = allocatable.get(name).map_or(0, |there| there.nanos());
            self.taken(name) + quantity.nanos() > there
        };
        if let Some((name, _)) = wanted.into_iter().find(short) {
            return Some(Shortage::Resource(name.clone()));
        }
        let places = allocatable.get(PODS).map_or(i64::MAX, |places| places.to_i64_ceil());
        let is_full = i64::try_from(self.pods).unwrap_or(i64::MAX) >= places || self.present >= PODS_PER_NODE_MAX;
        is_full.then_some(Shortage::Pods)
    }

    /// How much is used up, in parts per million: the mean over processors, memory and places for pods.
    pub fn utilisation(&self, allocatable: &Resources) -> u64 {
        let share = |taken: i128, name: &str| {
            let there = allocatable.get(name).map_or(0, |there| there.nanos());
            if there > 0 { taken.saturating_mul(MILLION) / there } else { 0 }
        };
        let pods = share(self.pods as i128 * 1_000_000_000, PODS);
        let sum = share(self.taken(CPU), CPU) + share(self.taken(MEMORY), MEMORY) + pods;
        u64::try_from(sum / 3).unwrap_or(u64::MAX)
    }
}

fn counts(pod: &Pod) -> bool {
    !pod.status.phase.is_final()
}
