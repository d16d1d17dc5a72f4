//! Placement: the nodes that take a pod, the one that gets it, and the message when none does.

use muster_lifecycle::command::{Batch, Command, LeaderOperation, OperatorOperation, Origin, Outcome, Position};
use muster_lifecycle::load::{Load, Shortage};
use muster_lifecycle::meta::{OwnerReference, Pairs, Uid};
use muster_lifecycle::node::{Node, NodeDraft, NodeStatus, Resources};
use muster_lifecycle::placement::{Board, PlacementRefusal, refusal};
use muster_lifecycle::pod::{PodDraft, PodKey, PodTemplate};
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;

use crate::fixture::conditions::{at, conditions, stamp};
use crate::fixture::tolerations::tolerations;

fn resources(text: &str) -> Resources {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name, value.parse().expect("a quantity"))).collect()
}

fn pairs(text: &str) -> Pairs {
    text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect()
}

/// A fleet to place pods in.
#[derive(Default)]
struct Fleet {
    state: State,
    uids: u128,
}

impl Fleet {
    fn ask(&mut self, operation: OperatorOperation) {
        let command = Command {
            origin: Origin::Operator { user: Text::from("alice") },
            request: None,
            operation: operation.into(),
        };
        let batch = Batch { stamp: stamp(at(1)), commands: vec![command] };
        let applied = self.state.apply(Position { term: 1, index: 1 }, &batch);
        assert!(matches!(applied.outcomes[0], Outcome::Done(_)), "{:?}", applied.outcomes[0]);
    }

    fn uid(&mut self) -> Uid {
        self.uids += 1;
        Uid(self.uids)
    }

    /// A node in a zone, with these conditions, taints and room.
    fn node(&mut self, name: &str, zone: &str, said: &str, taints: &str) {
        let room = resources("cpu=4 memory=8Gi pods=10");
        let status = NodeStatus { conditions: conditions(said).into(), allocatable: room, ..NodeStatus::default() };
        let labels = pairs(&format!("topology.kubernetes.io/zone={zone} name={name}"));
        let taints = taints.split_whitespace().map(|taint| taint.parse().expect("a taint")).collect();
        let draft = NodeDraft {
            name: Text::from(name),
            labels: Some(labels),
            status: Some(status),
            taints: Some(taints),
            ..NodeDraft::default()
        };
        let uid = self.uid();
        self.ask(OperatorOperation::CreateNode { draft: Box::new(draft), uid });
    }

    fn host(&mut self, name: &str, zone: &str) {
        self.node(name, zone, "Ready=True", "");
    }

    fn cordoned(&mut self, name: &str) {
        self.host(name, "z");
        let precondition = Default::default();
        self.ask(OperatorOperation::CordonNode { name: Text::from(name), unschedulable: true, precondition });
    }

    fn pod(&mut self, wish: &Wish) {
        let uid = self.uid();
        self.ask(OperatorOperation::CreatePod { draft: Box::new(wish.draft()), uid });
    }

    /// The nodes that these waiting pods would get, one after the other.
    fn places(&self, names: &[&str], unheard: &[&str]) -> Vec<String> {
        let mut board = Board::new(&self.state, |node| unheard.contains(&node.meta.name.as_str()));
        let pods = names.iter().map(|name| self.state.pods().get(&PodKey::new("default", *name)).expect("a pod"));
        pods.map(|pod| match board.place(pod) {
            Ok((node, _)) => node.to_string(),
            Err(unplaced) => unplaced.to_string(),
        })
        .collect()
    }
}

/// The demands of a pod.
#[derive(Default, Clone)]
struct Wish {
    name: &'static str,
    node: Option<&'static str>,
    requests: &'static str,
    tolerations: &'static str,
    selector: &'static str,
    owner: Option<u128>,
}

impl Wish {
    fn of(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn draft(&self) -> PodDraft {
        let owner = |uid| OwnerReference {
            api_version: Text::from("apps/v1"),
            kind: Text::from("ReplicaSet"),
            name: Text::from("web"),
            uid: Uid(uid),
            controller: true,
            block_owner_deletion: true,
        };
        PodDraft {
            key: PodKey::new("default", self.name),
            node: self.node.map(Text::from),
            owners: self.owner.map(|uid| Box::from([owner(uid)])),
            template: PodTemplate {
                requests: resources(self.requests),
                tolerations: Some(tolerations(self.tolerations)),
                node_selector: Some(pairs(self.selector)),
                has_containers: true,
                ..PodTemplate::default()
            },
            ..PodDraft::default()
        }
    }
}

fn refused(fleet: &mut Fleet, wish: Wish, node: &str) -> Option<PlacementRefusal> {
    fleet.pod(&wish);
    let pod = fleet.state.pods().get(&PodKey::new("default", wish.name)).expect("a pod").clone();
    let load = fleet.state.tenants(node).map(|tenants| tenants.load().clone()).unwrap_or_default();
    refusal(&pod.spec, fleet.state.node(node).expect("a node"), &load)
}

#[test]
fn the_first_obstacle_of_a_node_is_its_refusal() {
    let short = |name: &str| Some(PlacementRefusal::Short(Shortage::Resource(Text::from(name))));
    let taint = |key: &str| Some(PlacementRefusal::Taint(Text::from(key)));
    let cases = [
        ("Ready=True", "", Wish::of("p"), None),
        (
            "Ready=Unknown",
            "t:NoSchedule",
            Wish { requests: "cpu=99", ..Wish::of("p") },
            Some(PlacementRefusal::Unreachable),
        ),
        ("Ready=False", "t:NoSchedule", Wish::of("p"), Some(PlacementRefusal::NotReady)),
        ("DiskPressure=False", "", Wish::of("p"), Some(PlacementRefusal::NotReady)),
        ("Ready=Unknown", "", Wish { tolerations: "*", ..Wish::of("p") }, Some(PlacementRefusal::Unreachable)),
        ("Ready=True", "t:NoSchedule", Wish { selector: "name=b", ..Wish::of("p") }, taint("t")),
        ("Ready=True", "t:NoExecute", Wish::of("p"), taint("t")),
        ("Ready=True", "t:NoExecute", Wish { tolerations: "t:NoExecute@1", ..Wish::of("p") }, None),
        // The pod would be evicted at once, and placed there again, without end.
        ("Ready=True", "t:NoExecute", Wish { tolerations: "t:NoExecute@0", ..Wish::of("p") }, taint("t")),
        ("Ready=True", "t:PreferNoSchedule", Wish::of("p"), None),
        ("Ready=True DiskPressure=True", "", Wish::of("p"), taint("node.kubernetes.io/disk-pressure")),
        (
            "Ready=True",
            "",
            Wish { selector: "name=b", requests: "cpu=99", ..Wish::of("p") },
            Some(PlacementRefusal::Selector),
        ),
        ("Ready=True", "", Wish { selector: "name=a", ..Wish::of("p") }, None),
        ("Ready=True", "", Wish { requests: "cpu=4 memory=8Gi", ..Wish::of("p") }, None),
        ("Ready=True", "", Wish { requests: "cpu=4001m", ..Wish::of("p") }, short("cpu")),
        ("Ready=True", "", Wish { requests: "memory=9Gi cpu=5", ..Wish::of("p") }, short("cpu")),
        ("Ready=True", "", Wish { requests: "example.com/gpu=1", ..Wish::of("p") }, short("example.com/gpu")),
        ("Ready=True", "", Wish { requests: "example.com/gpu=0", ..Wish::of("p") }, None),
    ];
    for (said, taints, wish, expected) in cases {
        let mut fleet = Fleet::default();
        fleet.node("a", "z", said, taints);
        let case = format!("{said} {taints} {} {}", wish.requests, wish.selector);
        assert_eq!(refused(&mut fleet, wish, "a"), expected, "{case}");
    }
}

#[test]
fn running_pods_count_against_the_limits_that_a_node_has() {
    let mut fleet = Fleet::default();
    fleet.host("a", "z");
    fleet.pod(&Wish { node: Some("a"), requests: "cpu=3", ..Wish::of("there") });
    let load = fleet.state.tenants("a").unwrap().load().clone();
    assert_eq!((load.pods(), load.taken("cpu"), load.taken("memory")), (1, 3_000_000_000, 0));
    assert_eq!(refused(&mut fleet, Wish { requests: "cpu=1", ..Wish::of("fits") }, "a"), None);
    let short = Some(PlacementRefusal::Short(Shortage::Resource(Text::from("cpu"))));
    assert_eq!(refused(&mut fleet, Wish { requests: "cpu=1001m", ..Wish::of("tight") }, "a"), short);
    assert_eq!(Load::default().shortage(&resources(""), &resources("")), None, "nothing is asked for");
    let share = load.utilisation(
        &fleet.state.node("a").map(|node: &std::sync::Arc<Node>| node.status.allocatable.clone()).unwrap(),
    );
    assert_eq!(share, (750_000 + 100_000) / 3, "three of four processors, one of ten places, no memory");
}

#[test]
fn an_unplaced_pod_has_every_reason_with_its_number_of_nodes() {
    let mut fleet = Fleet::default();
    (0..30).for_each(|index| fleet.node(&format!("u{index}"), "z", "Ready=Unknown", ""));
    (0..12).for_each(|index| fleet.cordoned(&format!("c{index}")));
    (0..18).for_each(|index| fleet.host(&format!("h{index}"), "z"));
    fleet.pod(&Wish { requests: "memory=9Gi", ..Wish::of("web") });
    assert_eq!(fleet.places(&["web"], &[]), ["0/60 nodes: 30 unreachable, 12 cordoned, 18 insufficient memory"]);
}

#[test]
fn reasons_have_a_fixed_order() {
    let mut fleet = Fleet::default();
    fleet.node("a", "z", "Ready=Unknown", "");
    fleet.node("b", "z", "Ready=False", "");
    fleet.host("c", "z");
    fleet.cordoned("d");
    fleet.node("e", "z", "Ready=True", "t:NoSchedule");
    fleet.host("f", "z");
    fleet.host("full", "z");
    for name in ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"] {
        fleet.pod(&Wish { node: Some("full"), ..Wish::of(name) });
    }
    fleet.pod(&Wish { selector: "name=full", ..Wish::of("web") });
    let told = "0/7 nodes: 1 unreachable, 1 not ready, 1 not heard of late, 1 cordoned, 1 with taint t, 1 not selected, 1 too many pods";
    assert_eq!(
        fleet.places(&["web"], &["a", "b", "c"]),
        [told],
        "an unreachable node is counted as unreachable, not as unheard"
    );
    assert_eq!(Fleet::default().empty_told(), "0/0 nodes");
}

impl Fleet {
    fn empty_told(mut self) -> String {
        self.pod(&Wish::of("web"));
        self.places(&["web"], &[]).remove(0)
    }
}

#[test]
fn nodes_that_are_silent_cordoned_or_full_get_no_pod() {
    let mut fleet = Fleet::default();
    fleet.host("a", "z");
    fleet.host("b", "z");
    fleet.cordoned("c");
    fleet.host("d", "z");
    fleet.pod(&Wish { node: Some("d"), requests: "cpu=4", ..Wish::of("hog") });
    for name in ["w0", "w1", "w2"] {
        fleet.pod(&Wish { requests: "cpu=2", ..Wish::of(name) });
    }
    let full = "0/4 nodes: 1 not heard of late, 1 cordoned, 2 insufficient cpu";
    assert_eq!(fleet.places(&["w0", "w1", "w2"], &["a"]), ["b", "b", full], "what was placed before counts at once");
}

#[test]
fn the_least_loaded_node_gets_the_pod() {
    let mut fleet = Fleet::default();
    fleet.host("a", "z");
    fleet.host("b", "z");
    fleet.pod(&Wish { node: Some("a"), requests: "cpu=1", ..Wish::of("there") });
    for name in ["w0", "w1", "w2", "w3"] {
        fleet.pod(&Wish { requests: "cpu=500m", ..Wish::of(name) });
    }
    assert_eq!(fleet.places(&["w0", "w1", "w2", "w3"], &[]), ["b", "b", "a", "b"], "by processors and places together");
}

#[test]
fn a_pod_that_fits_only_the_fuller_node_goes_there() {
    let mut fleet = Fleet::default();
    fleet.host("a", "z");
    fleet.host("b", "z");
    fleet.pod(&Wish { node: Some("a"), requests: "memory=7Gi", ..Wish::of("m") });
    fleet.pod(&Wish { node: Some("b"), requests: "cpu=3", ..Wish::of("c") });
    fleet.pod(&Wish { requests: "cpu=2", ..Wish::of("web") });
    fleet.pod(&Wish { requests: "memory=2Gi", ..Wish::of("db") });
    assert_eq!(fleet.places(&["web", "db"], &[]), ["a", "b"]);
}

#[test]
fn siblings_are_spread_over_zones_before_load_counts() {
    let mut fleet = Fleet::default();
    fleet.host("a1", "a");
    fleet.host("a2", "a");
    fleet.host("b1", "b");
    fleet.pod(&Wish { node: Some("b1"), requests: "cpu=3", ..Wish::of("busy") });
    for name in ["w0", "w1", "w2", "w3"] {
        fleet.pod(&Wish { owner: Some(70), ..Wish::of(name) });
    }
    let placed = fleet.places(&["w0", "w1", "w2", "w3"], &[]);
    assert_eq!(placed, ["a1", "b1", "a2", "b1"], "two in each zone, though b is fuller");
    fleet.pod(&Wish { owner: Some(70), node: Some("a1"), ..Wish::of("old") });
    assert_eq!(fleet.places(&["w0"], &[]), ["b1"], "those that are there count too");
    for name in ["x0", "x1"] {
        fleet.pod(&Wish::of(name));
    }
    assert_eq!(fleet.places(&["x0", "x1"], &[]), ["a2", "a1"], "pods without an owner have no siblings");
}

#[test]
fn selectors_are_obeyed_and_prefer_no_schedule_is_a_preference() {
    let mut fleet = Fleet::default();
    fleet.node("a", "z", "Ready=True", "t:PreferNoSchedule");
    fleet.host("b", "z");
    fleet.pod(&Wish { node: Some("b"), requests: "cpu=3", ..Wish::of("busy") });
    fleet.pod(&Wish { selector: "name=a", ..Wish::of("bound") });
    fleet.pod(&Wish { selector: "name=none", ..Wish::of("lonely") });
    fleet.pod(&Wish::of("free"));
    fleet.pod(&Wish { tolerations: "t", ..Wish::of("easy") });
    fleet.pod(&Wish { requests: "cpu=2", ..Wish::of("large") });
    let placed = fleet.places(&["bound", "lonely", "free", "easy", "large"], &[]);
    assert_eq!(
        placed,
        ["a", "0/2 nodes: 2 not selected", "b", "a", "a"],
        "the avoided node takes what fits nowhere else"
    );
}

/// One typo in a workload must not keep all other pods waiting.
#[test]
fn pods_that_fit_nowhere_do_not_delay_other_pods() {
    let mut fleet = Fleet::default();
    fleet.host("a", "z");
    let names: Vec<&'static str> = (0..600).map(|number| &*format!("big-{number:03}").leak()).collect();
    for name in &names {
        fleet.pod(&Wish { requests: "cpu=1000", owner: Some(7), ..Wish::of(name) });
    }
    fleet.pod(&Wish::of("small"));
    let found = muster_lifecycle::todo::placements(&fleet.state, at(1), 16, |_| false);
    let bound =
        found.operations.iter().filter(|operation| matches!(operation, LeaderOperation::BindPod { .. })).count();
    assert_eq!((bound, found.operations.len()), (1, 16), "and some of the others are told why they wait");
}
