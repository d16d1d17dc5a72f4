//! Board of all nodes for one round of placing. A pod that is placed counts at once.
//!
//! Pods with the same demands on a node share one scan of all nodes: per class and zone the suitable nodes lie in a
//! heap, least loaded first. Entries go stale when another class fills their node; they are corrected when they come
//! up. So a round over many like pods costs one look per node and a few steps per pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::judge::placement::{PlacementRefusal, Unplaced, refusal, refusal_by_node};
use crate::object::node::{Incarnation, Node, Resources};
use crate::object::pod::{Pod, PodSpec};
use crate::object::taint::Effect;
use crate::object::toleration::{self, Toleration};
use crate::object::zone::ZoneKey;
use crate::state::State;
use crate::store::load::Load;
use crate::value::meta::Uid;
use crate::value::text::Text;

pub struct Board<'a> {
    state: &'a State,
    spots: Vec<Spot>,
    zones: usize,
    classes: BTreeMap<Class, Candidates>,
    siblings: BTreeMap<Uid, Vec<usize>>,
    /// A pod that found no place finds none later in the round: no capacity is released within a round.
    hopeless: BTreeMap<(Class, Vec<(Text, i128)>), Text>,
    hopeless_siblings: BTreeMap<Uid, (PodSpec, Text)>,
}

/// One node of the board.
struct Spot {
    node: Arc<Node>,
    zone: usize,
    load: Load,
    score: Score,
    unheard: bool,
}

/// The demands that pods of one class have in common.
type Class = (Selector, Box<[Toleration]>);
type Selector = Box<[(Text, Text)]>;

/// Per zone, the suitable nodes: those not to be avoided first, then by load.
type Candidates = Vec<BinaryHeap<Reverse<Candidate>>>;
type Candidate = (bool, Score, usize);

/// How much is used up, and by how many pods: the second tells nodes apart where the first is not known.
type Score = (u64, usize);

impl<'a> Board<'a> {
    /// `is_unheard` says which nodes have been silent for too long to get more pods.
    pub fn new(state: &'a State, mut is_unheard: impl FnMut(&Node) -> bool) -> Self {
        let mut zones: BTreeMap<ZoneKey, usize> = BTreeMap::new();
        let mut spots = Vec::with_capacity(state.nodes().len());
        for node in state.nodes().iter() {
            let next = zones.len();
            let zone = *zones.entry(ZoneKey::from_labels(&node.meta.labels)).or_insert(next);
            let load = state.tenants(&node.meta.name).map(|tenants| tenants.load().clone()).unwrap_or_default();
            let (score, unheard) = (score(&load, node), is_unheard(node));
            spots.push(Spot { zone, load, score, unheard, node: Arc::clone(node) });
        }
        let zones = zones.len();
        Self {
            state,
            spots,
            zones,
            classes: BTreeMap::new(),
            siblings: BTreeMap::new(),
            hopeless: BTreeMap::new(),
            hopeless_siblings: BTreeMap::new(),
        }
    }

    /// The node for the pod. The pod counts there from now on.
    pub fn place(&mut self, pod: &Pod) -> Result<(Text, Incarnation), Text> {
        if let Some(known) = self.fate_of_siblings(pod) {
            return Err(known);
        }
        let wishes = (class(pod), wishes(&pod.spec.requests));
        let known = self.hopeless.get(&wishes).cloned();
        let spot = if known.is_none() { self.find(pod, &wishes.0) } else { None };
        if let Some(spot) = spot {
            return Ok(self.take(pod, spot));
        }
        let why = known.unwrap_or_else(|| Text::from(self.why_not(pod).to_string()));
        if let Some(owner) = pod.controller() {
            self.hopeless_siblings.insert(owner.uid, (pod.spec.clone(), why.clone()));
        }
        self.hopeless.insert(wishes, why.clone());
        Err(why)
    }

    /// A workload with a mistake in it may have a million pods that wait: each costs one comparison.
    fn fate_of_siblings(&self, pod: &Pod) -> Option<Text> {
        let (spec, why) = self.hopeless_siblings.get(&pod.controller()?.uid)?;
        (*spec == pod.spec).then(|| why.clone())
    }

    fn find(&mut self, pod: &Pod, class: &Class) -> Option<usize> {
        let candidates = self.classes.remove(class);
        let mut candidates = candidates.unwrap_or_else(|| self.candidates(pod));
        let order = self.zones_in_order(pod, &candidates);
        let found = order.into_iter().find_map(|zone| self.best_of(pod, &mut candidates[zone]));
        self.classes.insert(class.clone(), candidates);
        found
    }

    fn candidates(&self, pod: &Pod) -> Candidates {
        let mut zones: Vec<Vec<Reverse<Candidate>>> = vec![Vec::new(); self.zones];
        for (index, spot) in self.spots.iter().enumerate() {
            if !spot.unheard && refusal_by_node(&pod.spec, &spot.node).is_none() {
                zones[spot.zone].push(Reverse((is_to_be_avoided(pod, &spot.node), spot.score, index)));
            }
        }
        zones.into_iter().map(BinaryHeap::from).collect()
    }

    /// The zone with the fewest siblings first, then the one whose best node is least loaded.
    fn zones_in_order(&mut self, pod: &Pod, candidates: &Candidates) -> Vec<usize> {
        let siblings = pod.controller().map(|owner| self.siblings_of(owner.uid).clone());
        let mut zones: Vec<usize> = (0..self.zones).filter(|zone| !candidates[*zone].is_empty()).collect();
        zones.sort_by_key(|zone| {
            let best = candidates[*zone].peek().map(|Reverse((avoid, score, _))| (*avoid, *score));
            (siblings.as_ref().map_or(0, |siblings| siblings[*zone]), best, *zone)
        });
        zones
    }

    fn best_of(&self, pod: &Pod, heap: &mut BinaryHeap<Reverse<Candidate>>) -> Option<usize> {
        let mut too_small = Vec::new();
        let mut found = None;
        while let Some(Reverse((avoid, score, index))) = heap.pop() {
            let spot = &self.spots[index];
            if spot.score != score {
                heap.push(Reverse((avoid, spot.score, index)));
            } else if spot.load.shortage(&pod.spec.requests, &spot.node.status.allocatable).is_some() {
                too_small.push(Reverse((avoid, score, index)));
            } else {
                heap.push(Reverse((avoid, score, index)));
                found = Some(index);
                break;
            }
        }
        heap.extend(too_small);
        found
    }

    fn take(&mut self, pod: &Pod, index: usize) -> (Text, Incarnation) {
        let zone = self.spots[index].zone;
        if let Some(owner) = pod.controller() {
            let siblings = self.siblings.entry(owner.uid).or_insert_with(|| vec![0; self.zones]);
            siblings[zone] += 1;
        }
        let spot = &mut self.spots[index];
        spot.load.take(&pod.spec.requests);
        spot.score = score(&spot.load, &spot.node);
        (spot.node.meta.name.clone(), spot.node.incarnation)
    }

    /// How many pods of the workload are in each zone.
    fn siblings_of(&mut self, owner: Uid) -> &Vec<usize> {
        if !self.siblings.contains_key(&owner) {
            let counted = self.count_siblings(owner);
            self.siblings.insert(owner, counted);
        }
        &self.siblings[&owner]
    }

    fn count_siblings(&self, owner: Uid) -> Vec<usize> {
        let mut counted = vec![0; self.zones];
        let staff = self.state.staff(owner).into_iter().flat_map(|staff| staff.keys());
        let active = staff.filter_map(|key| self.state.pods().get(key)).filter(|pod| pod.is_active());
        for name in active.filter_map(|pod| pod.node().cloned()) {
            // The nodes are sorted by name.
            let found = self.spots.binary_search_by(|spot| spot.node.meta.name.cmp(&name));
            if let Ok(index) = found {
                counted[self.spots[index].zone] += 1;
            }
        }
        counted
    }

    fn why_not(&self, pod: &Pod) -> Unplaced {
        let mut unplaced = Unplaced { nodes: self.spots.len(), refusals: BTreeMap::new() };
        for spot in &self.spots {
            let own = refusal(&pod.spec, &spot.node, &spot.load);
            // A node that is known to be lost counts as lost, not as unheard.
            let why = own.filter(|own| !spot.unheard || is_lost(own));
            *unplaced.refusals.entry(why.unwrap_or(PlacementRefusal::Unheard)).or_default() += 1;
        }
        unplaced
    }
}

fn is_lost(refusal: &PlacementRefusal) -> bool {
    matches!(refusal, PlacementRefusal::Unreachable | PlacementRefusal::NotReady)
}

fn score(load: &Load, node: &Node) -> Score {
    (load.utilisation(&node.status.allocatable), load.pods())
}

fn class(pod: &Pod) -> Class {
    let selector = pod.spec.node_selector.iter().map(|(key, value)| (key.clone(), value.clone()));
    (selector.collect(), pod.spec.tolerations.clone())
}

fn wishes(requests: &Resources) -> Vec<(Text, i128)> {
    requests.iter().map(|(name, quantity)| (name.clone(), quantity.nanos())).collect()
}

fn is_to_be_avoided(pod: &Pod, node: &Node) -> bool {
    let discouraging = node.spec.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    discouraging.into_iter().any(|taint| !toleration::tolerates(&pod.spec.tolerations, taint))
}
