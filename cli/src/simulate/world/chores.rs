//! What the leader does about pods, with the product's own chores: evict, collect, staff, place.
//!
//! As in the product it looks at every round, when something was written, and when a look said when to look again; then
//! it works off one chore after the other. What follows from that for an earlier chore is found at the next look.

use std::time::Duration;

use muster_actors::proposal::OPERATIONS_MAX;
use muster_lifecycle::leader_view::LeaderView;
use muster_lifecycle::node::Node;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo::{self, Todo};
use muster_pulse::moment::Moment;

use super::replica::Replica;
use super::rounds::{has_changed_something, since_start};
use super::{Millis, Witness, World, next_multiple};

/// How soon it looks again after it has done something.
const REST: Millis = 50;

impl<W: Witness> World<W> {
    /// Everything there is to do about pods at this instant.
    pub(super) fn do_chores(&mut self, is_round: bool) {
        let is_due = self.next_chore.take_if(|at| *at <= self.now).is_some() || is_round;
        let has_any = !(self.state.pods().is_empty() && self.state.workloads().is_empty());
        let found = self.state.revision();
        if !has_any || !(is_due || self.looked_at != found) {
            return;
        }
        let looks: [fn(&mut Self) -> Todo; 4] = [Self::evictions, Self::garbage, Self::staffing, Self::placements];
        let again = looks.into_iter().filter_map(|look| self.work_off(look)).min();
        self.looked_at = self.state.revision();
        let rest = (self.looked_at != found).then(|| self.now.saturating_add(REST));
        self.next_chore = again.into_iter().chain(rest).min();
    }

    /// Until nothing is left of this chore; when to look at it again.
    fn work_off(&mut self, look: impl Fn(&mut Self) -> Todo) -> Option<Millis> {
        loop {
            let Todo { operations, look_again_at } = look(self);
            let again = look_again_at.map(since_start);
            if operations.is_empty() {
                return again;
            }
            let proposals = operations.into_iter().map(|operation| self.proposal(operation)).collect();
            if !self.apply(proposals).iter().any(has_changed_something) {
                let round = next_multiple(self.now, self.policy.sweep_period().0);
                return Some(again.map_or(round, |again| again.min(round)));
            }
        }
    }

    fn evictions(&mut self) -> Todo {
        let moment = self.moment();
        let Some(leader) = &mut self.leader else { return Todo::default() };
        let (state, replica) = (&self.state, &self.replicas[leader.replica]);
        let heard = |node: &Node| last_heard(replica, node, moment);
        sight(replica, state.policy(), moment, &heard).evictions(state, &mut leader.spared, OPERATIONS_MAX)
    }

    fn garbage(&mut self) -> Todo {
        todo::pod_garbage(&self.state, self.cluster_now(), OPERATIONS_MAX)
    }

    fn staffing(&mut self) -> Todo {
        todo::staffing(&self.state, OPERATIONS_MAX)
    }

    fn placements(&mut self) -> Todo {
        let moment = self.moment();
        let Some(leader) = &self.leader else { return Todo::default() };
        let (state, replica) = (&self.state, &self.replicas[leader.replica]);
        let heard = |node: &Node| last_heard(replica, node, moment);
        sight(replica, state.policy(), moment, &heard).placements(state, OPERATIONS_MAX)
    }
}

fn sight<'a>(
    replica: &Replica,
    policy: &Policy,
    moment: Moment,
    heard: &'a dyn Fn(&Node) -> Option<ClusterTime>,
) -> LeaderView<'a> {
    LeaderView { now: moment.stamp.cluster, is_blind: is_blind(replica, policy, moment), heard }
}

/// An excuse that concerns everybody is in force, or is about to be.
fn is_blind(replica: &Replica, policy: &Policy, moment: Moment) -> bool {
    let [period, grace] =
        [policy.sweep_period(), policy.shortest_grace()].map(|period| Duration::from_millis(period.0));
    let blindness = &replica.blindness;
    blindness.excused_until(None, moment.tick).is_some() || blindness.is_overdue(moment.tick, period, grace)
}

fn last_heard(replica: &Replica, node: &Node, moment: Moment) -> Option<ClusterTime> {
    replica.tables.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at))
}
