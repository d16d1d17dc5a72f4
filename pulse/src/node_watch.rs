//! The watch over one node, and the candidates among many: which to judge, when, and what a judgement finds.
//!
//! The sweep says "not heard for a while". Whether that is too long is for the health core to say, which knows the
//! node's own grace, the excuses and the state. So a node that fell silent is a *candidate*: it is judged at once, and
//! then at each later sweep from the moment that the last judgement named.

use std::collections::BTreeMap;

use muster_lifecycle::command::{LeaderOperation, Sighting};
use muster_lifecycle::health::{Evidence, Excuse, Verdict};
use muster_lifecycle::node::{Incarnation, Node, Slot};
use muster_lifecycle::oversight;
use muster_lifecycle::state::State;
use muster_lifecycle::time::{ClusterTime, Period};

use crate::blindness::{Blindness, Trace};
use crate::by_replica::PulseTables;
use crate::moment::Moment;
use crate::sweep::PulseState;
use crate::tick::Tick;

/// The watched node, and since when it is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeWatch {
    slot: Slot,
    incarnation: Incarnation,
    /// The start of its grace if no replica can place it.
    since: Tick,
}

/// The result of a judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Silent, and its Ready condition says so already (NH-9). It is judged again from this moment on, in case its
    /// state is changed by another writer.
    AlreadyUnknown(ClusterTime),
    /// Not to be marked yet. It is judged again from this moment on.
    LookAgain(ClusterTime),
    Propose(LeaderOperation),
}

/// The nodes that were not heard for a while, under keys that the caller chooses.
#[derive(Debug)]
pub struct Candidates<K> {
    states: BTreeMap<K, CandidateState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CandidateState {
    JudgeFrom(ClusterTime),
    /// `outdated` if what it is judged by changed meanwhile.
    BeingJudged {
        outdated: bool,
    },
    /// A verdict is on its way through the log.
    Proposed,
}

/// The result of a judgement, as the caller reports it to [`Candidates::judged`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    JudgeFrom(ClusterTime),
    Proposed,
    /// The node does not exist any more.
    Gone,
}

/// The node is judged in the next round.
const AT_ONCE: CandidateState = CandidateState::JudgeFrom(ClusterTime(0));

// === impl NodeWatch ===

impl NodeWatch {
    pub fn new(node: &Node, since: Tick) -> Self {
        Self { slot: node.slot, incarnation: node.incarnation, since }
    }

    pub fn slot(&self) -> Slot {
        self.slot
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What is known of the last beat.
    pub fn trace(&self, tables: &PulseTables) -> Trace {
        match tables.last_heard(self.slot) {
            Some((at, through)) => Trace::Heard { at, through },
            None => Trace::Unplaced { since: self.since },
        }
    }

    /// Judges a candidate. `node` is the node as the state has it now, `trace` what is known of its last beat.
    pub fn judge(
        &self,
        state: &State,
        node: &Node,
        trace: Trace,
        blindness: &Blindness,
        moment: Moment,
    ) -> Option<Judgement> {
        if node.incarnation != self.incarnation {
            return None;
        }
        let evidence = evidence(state, node, trace, blindness, moment);
        Some(match evidence.verdict(state.policy()) {
            Verdict::Alive => Judgement::LookAgain(strictly_after(evidence.deadline(state.policy()))),
            Verdict::WaitUntil(deadline) => Judgement::LookAgain(strictly_after(deadline)),
            Verdict::Silent(changes) if changes.is_empty() => {
                Judgement::AlreadyUnknown(state.policy().node_monitor_grace_period.after(moment.stamp.cluster))
            }
            Verdict::Silent(_) => Judgement::Propose(mark_silent(node, trace, moment)),
        })
    }
}

/// NH-6: a silence counts only strictly after its deadline.
fn strictly_after(deadline: ClusterTime) -> ClusterTime {
    ClusterTime(deadline.0.saturating_add(1))
}

fn mark_silent(node: &Node, trace: Trace, moment: Moment) -> LeaderOperation {
    LeaderOperation::MarkSilent {
        name: node.meta.name.clone(),
        incarnation: node.incarnation,
        from: node.status.ready().map(|ready| ready.status),
        heard: sighting(trace, moment),
        decided: moment.stamp.cluster,
    }
}

// === impl Judgement ===

impl Judgement {
    pub fn next(&self) -> Next {
        match self {
            Self::AlreadyUnknown(from) | Self::LookAgain(from) => Next::JudgeFrom(*from),
            Self::Propose(_) => Next::Proposed,
        }
    }
}

// === impl Candidates ===

impl<K> Default for Candidates<K> {
    fn default() -> Self {
        Self { states: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Candidates<K> {
    /// Takes in what a sweep found.
    pub fn hear(&mut self, key: K, hearing: PulseState) {
        match hearing {
            PulseState::Heard => drop(self.states.remove(&key)),
            PulseState::Silent => drop(self.states.entry(key).or_insert(AT_ONCE)),
        }
    }

    /// Messages about the node may have been lost, so it is judged anew whatever the sweep believes.
    pub fn doubt(&mut self, key: K) {
        self.states.insert(key, AT_ONCE);
    }

    /// The proposal was decided, either way. From here on the state shows its outcome.
    pub fn settled(&mut self, key: &K) {
        if let Some(state) = self.states.get_mut(key).filter(|state| **state == CandidateState::Proposed) {
            *state = AT_ONCE;
        }
    }

    /// The node's object changed.
    pub fn changed(&mut self, key: &K) {
        self.states.get_mut(key).into_iter().for_each(CandidateState::reconsider);
    }

    /// The policy changed, by which all nodes are judged.
    pub fn all_changed(&mut self) {
        self.states.values_mut().for_each(CandidateState::reconsider);
    }

    pub fn forget(&mut self, key: &K) {
        self.states.remove(key);
    }

    /// The nodes to judge now, in order of their keys. The caller reports each result to [`Self::judged`].
    pub fn take_due(&mut self, now: ClusterTime) -> Vec<K> {
        let is_due = |state: &CandidateState| matches!(state, CandidateState::JudgeFrom(from) if *from <= now);
        let due = self.states.iter_mut().filter(|(_, state)| is_due(state));
        due.map(|(key, state)| {
            *state = CandidateState::BeingJudged { outdated: false };
            key.clone()
        })
        .collect()
    }

    /// A node that was heard while it was judged is no candidate any more, whatever the judgement said. One that
    /// changed is judged again at once, unless a verdict was proposed: that names what it was decided on, and the log
    /// rejects it if it was overtaken.
    pub fn judged(&mut self, key: &K, next: Next) {
        let Some(state) = self.states.get_mut(key) else { return };
        let CandidateState::BeingJudged { outdated } = *state else { return };
        match next {
            Next::JudgeFrom(_) if outdated => *state = AT_ONCE,
            Next::JudgeFrom(from) => *state = CandidateState::JudgeFrom(from),
            Next::Proposed => *state = CandidateState::Proposed,
            Next::Gone => drop(self.states.remove(key)),
        }
    }
}

// === impl CandidateState ===

impl CandidateState {
    fn reconsider(&mut self) {
        match self {
            Self::JudgeFrom(_) => *self = AT_ONCE,
            Self::BeingJudged { outdated } => *outdated = true,
            Self::Proposed => {}
        }
    }
}

// === what a judgement rests on ===

/// When a node that no replica has heard counts as unheard, for a leader that leads since `leads_since`.
pub fn unheard_since(leads_since: Tick, node: &Node, moment: Moment) -> Tick {
    leads_since.max(moment.tick_of(node.meta.created.cluster))
}

/// The evidence on which a node with this trace is judged.
pub fn evidence<'a>(
    state: &State,
    node: &'a Node,
    trace: Trace,
    blindness: &Blindness,
    moment: Moment,
) -> Evidence<'a> {
    let heard = moment.cluster_time_of(blindness.silent_since(trace, moment.tick));
    oversight::evidence(state, node, Some(heard), excuse(blindness, trace, moment), moment.stamp)
}

pub fn sighting(trace: Trace, moment: Moment) -> Option<Sighting> {
    match trace {
        Trace::Heard { at, through } => Some(Sighting { at: moment.cluster_time_of(at), through }),
        Trace::Unplaced { .. } => None,
    }
}

/// The blindness that counts for this trace, in the health core's terms.
pub fn excuse(blindness: &Blindness, trace: Trace, moment: Moment) -> Option<Excuse> {
    let (until, _) = blindness.excuse_for(trace, moment.tick)?;
    Some(Excuse { blind_until: moment.cluster_time_of(until), reattach_window: Period(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ClusterTime = ClusterTime(1_000);

    #[test]
    fn a_silent_node_is_judged_at_once_and_then_when_the_verdict_says() {
        let mut candidates = Candidates::default();
        candidates.hear(7, PulseState::Silent);
        assert_eq!(candidates.take_due(NOW), [7]);
        assert!(candidates.take_due(NOW).is_empty(), "it is being judged");
        candidates.judged(&7, Next::JudgeFrom(ClusterTime(1_001)));
        assert!(candidates.take_due(NOW).is_empty());
        candidates.hear(7, PulseState::Silent);
        assert!(candidates.take_due(NOW).is_empty(), "that it is silent is known");
        assert_eq!(candidates.take_due(ClusterTime(1_001)), [7]);
    }

    #[test]
    fn a_changed_node_is_judged_again_unless_a_verdict_is_proposed() {
        let mut candidates = Candidates::default();
        for key in [7, 8] {
            candidates.hear(key, PulseState::Silent);
        }
        candidates.take_due(NOW);
        candidates.judged(&7, Next::JudgeFrom(ClusterTime(9_000)));
        candidates.judged(&8, Next::Proposed);
        candidates.changed(&7);
        candidates.changed(&8);
        assert_eq!(candidates.take_due(NOW), [7]);
        candidates.judged(&7, Next::JudgeFrom(ClusterTime(9_000)));
        candidates.all_changed();
        assert_eq!(candidates.take_due(NOW), [7]);
        candidates.settled(&8);
        assert_eq!(candidates.take_due(NOW), [8]);
        candidates.judged(&8, Next::Gone);
        candidates.settled(&8);
        assert!(candidates.take_due(NOW).is_empty());
    }

    #[test]
    fn a_node_that_changes_while_it_is_judged_is_judged_again_at_once() {
        type Change = fn(&mut Candidates<u32>);
        let changes: [(&str, Change); 2] = [("node", |it| it.changed(&7)), ("policy", |it| it.all_changed())];
        for (what, change) in changes {
            let mut candidates = Candidates::default();
            candidates.hear(7, PulseState::Silent);
            assert_eq!(candidates.take_due(NOW), [7]);
            change(&mut candidates);
            assert!(candidates.take_due(NOW).is_empty(), "{what}: it is still being judged");
            candidates.judged(&7, Next::JudgeFrom(ClusterTime(9_000)));
            assert_eq!(candidates.take_due(NOW), [7], "{what}");
            candidates.judged(&7, Next::JudgeFrom(ClusterTime(9_000)));
            assert!(candidates.take_due(NOW).is_empty(), "{what}: nothing changed in the second judgement");
        }
    }

    #[test]
    fn a_node_that_is_heard_is_not_a_candidate_after_any_judgement() {
        let mut candidates = Candidates::default();
        candidates.doubt(7);
        assert_eq!(candidates.take_due(NOW), [7]);
        candidates.hear(7, PulseState::Heard);
        candidates.judged(&7, Next::Proposed);
        candidates.settled(&7);
        assert!(candidates.take_due(NOW).is_empty());
    }
}
