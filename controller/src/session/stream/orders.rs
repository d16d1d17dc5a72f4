//! Orders to an agent about the pods of its node.
//!
//! Orders are differences: what to run, what to stop, what to forget. What was sent on this stream is remembered and
//! compared with the state whenever there is room to send something, so nothing queues up and nothing is sent twice.

use std::collections::BTreeMap;

use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::pod::Pod;
use muster_lifecycle::state::State;
use muster_proto::agent::{forget, order};
use muster_proto::v1;

/// Manifests in one message; a pod's is bounded, so a message is too.
const ORDERS_BYTES: usize = 64 * 1024;
const ORDERS_MAX: usize = 256;

/// The orders that were sent on one stream about one node.
#[derive(Debug, Default)]
pub(super) struct OrdersSent {
    /// By uid; with a grace period for those that are to stop.
    pods: Box<[(Uid, Option<u32>)]>,
    complete: bool,
}

// === impl OrdersSent ===

impl OrdersSent {
    /// The orders to send now, if any. Called again until there are no more.
    pub(super) fn orders(&mut self, state: &State, node: &str, incarnation: Incarnation) -> Option<v1::PodOrders> {
        let wanted = wanted(state, node, incarnation);
        let mut told: BTreeMap<Uid, Option<u32>> = self.pods.iter().copied().collect();
        let (mut orders, mut bytes) = (Vec::new(), 0);
        let gone: Vec<Uid> = told.keys().filter(|uid| !wanted.contains_key(uid)).copied().collect();
        for uid in gone {
            told.remove(&uid);
            orders.push(forget(uid));
        }
        let mut complete = true;
        for (uid, pod) in wanted {
            let grace = pod.ending.map(|ending| ending.grace);
            if told.get(&uid) == Some(&grace) {
                continue;
            }
            if bytes > ORDERS_BYTES || orders.len() >= ORDERS_MAX {
                complete = false;
                break;
            }
            let order = order(pod);
            bytes += order.manifest.len();
            orders.push(order);
            told.insert(uid, grace);
        }
        if orders.is_empty() && self.complete {
            return None;
        }
        self.pods = told.into_iter().collect();
        self.complete |= complete;
        Some(v1::PodOrders { revision: state.revision().0, orders, complete })
    }
}

/// The pods of this incarnation of the node, by uid, without those that have ended.
fn wanted<'a>(state: &'a State, node: &str, incarnation: Incarnation) -> BTreeMap<Uid, &'a Pod> {
    let tenants = state.tenants(node).into_iter().flat_map(|tenants| tenants.keys());
    let pods = tenants.filter_map(|key| state.pods().get(key)).map(AsRef::as_ref);
    let own = pods.filter(|pod: &&Pod| pod.is_bound_to(node, incarnation) && !pod.status.phase.is_final());
    own.map(|pod| (pod.meta.uid, pod)).collect()
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::{Batch, Command, OperatorOperation, Origin, Outcome, Position, Precondition};
    use muster_lifecycle::node::NodeDraft;
    use muster_lifecycle::pod::{PodDraft, PodKey, PodTemplate};
    use muster_lifecycle::text::Text;
    use muster_lifecycle::time::Stamp;
    use muster_proto::v1::pod_order::Action;

    use super::*;

    struct World(State);

    impl World {
        fn with_pods(names: &[&str]) -> Self {
            let mut world = Self(State::new());
            let draft = NodeDraft { name: "a".into(), ..NodeDraft::default() };
            world.done(OperatorOperation::CreateNode { draft: Box::new(draft), uid: Uid(1) });
            names.iter().for_each(|name| world.add(name));
            world
        }

        fn add(&mut self, name: &str) {
            let unmodelled = Some(Text::from(format!("{{\"spec\":{{\"x\":\"{}\"}}}}", "x".repeat(20_000))));
            let template = PodTemplate { has_containers: true, unmodelled, ..PodTemplate::default() };
            let node = Some("a".into());
            let draft = PodDraft { key: PodKey::new("default", name), node, template, ..PodDraft::default() };
            let uid = Uid(100 + u128::from(name.as_bytes()[0]));
            self.done(OperatorOperation::CreatePod { draft: Box::new(draft), uid });
        }

        fn delete(&mut self, name: &str, grace: u32) {
            let (key, precondition) = (PodKey::new("default", name), Precondition::default());
            self.done(OperatorOperation::DeletePod { key, grace: Some(grace), precondition });
        }

        fn done(&mut self, operation: OperatorOperation) {
            let origin = Origin::Operator { user: "alice".into() };
            let batch = Batch {
                stamp: Stamp::default(),
                commands: vec![Command { origin, request: None, operation: operation.into() }],
            };
            let applied = self.0.apply(Position { term: 1, index: 1 }, &batch);
            assert!(matches!(applied.outcomes[..], [Outcome::Done(_)]), "{applied:?}");
        }

        /// All orders until there are no more, as `action name`, and how many messages they took.
        fn told(&self, told: &mut OrdersSent) -> (Vec<String>, usize) {
            let incarnation = self.0.node("a").unwrap().incarnation;
            let messages: Vec<_> = std::iter::from_fn(|| told.orders(&self.0, "a", incarnation)).collect();
            let shown = |order: &v1::PodOrder| format!("{:?} {}", order.action(), order.name);
            let last = messages.last().is_none_or(|last| last.complete);
            assert!(last, "the last message completes them");
            (messages.iter().flat_map(|message| &message.orders).map(shown).collect(), messages.len())
        }
    }

    #[test]
    fn a_new_stream_gets_all_orders_and_then_differences() {
        let mut world = World::with_pods(&["p", "q"]);
        let mut told = OrdersSent::default();
        assert_eq!(world.told(&mut told), (vec!["Run p".into(), "Run q".into()], 1));
        assert_eq!(world.told(&mut told), (vec![], 0), "nothing is said twice");
        world.delete("p", 30);
        assert_eq!(world.told(&mut told).0, ["Stop p"]);
        world.delete("p", 5);
        assert_eq!(world.told(&mut told).0, ["Stop p"], "a shorter grace is news");
        world.delete("q", 0);
        assert_eq!(world.told(&mut told).0, ["Forget "]);
    }

    #[test]
    fn a_node_without_pods_gets_empty_orders() {
        let world = World::with_pods(&[]);
        let mut told = OrdersSent::default();
        assert_eq!(world.told(&mut told), (vec![], 1), "so that it stops what it should not run");
        assert_eq!(world.told(&mut told), (vec![], 0));
    }

    #[test]
    fn large_manifests_are_spread_over_messages() {
        let world = World::with_pods(&["p", "q", "r", "s", "t", "u"]);
        let (orders, messages) = world.told(&mut OrdersSent::default());
        assert_eq!((orders.len(), messages), (6, 2));
    }

    #[test]
    fn orders_are_about_the_current_incarnation_only() {
        let world = World::with_pods(&["p"]);
        let orders = OrdersSent::default().orders(&world.0, "a", Incarnation(99)).unwrap();
        assert!(orders.complete && orders.orders.is_empty(), "{orders:?}");
        assert_eq!(order(world.0.pods().first().unwrap()).action(), Action::Run);
    }
}
