//! Selectors on real objects.

use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::selector::{EventFieldSelector, LabelSelector, NodeFieldSelector};

use crate::fixture::cluster::*;

#[test]
fn nodes_are_selected_by_label_and_field() {
    let mut cluster = Cluster::default();
    cluster.create(NodeDraft { labels: Some(pairs("zone=a")), ..draft("one") });
    cluster.create(NodeDraft { labels: Some(pairs("zone=b")), unschedulable: Some(true), ..draft("two") });
    let by_label = |text: &str| {
        let selector: LabelSelector = text.parse().unwrap();
        names(&cluster, |name| selector.matches(&cluster.node(name).meta.labels))
    };
    assert_eq!(by_label("zone in (a, c)"), "one");
    assert_eq!(by_label(""), "one two");
    let by_field = |text: &str| {
        let selector: NodeFieldSelector = text.parse().unwrap();
        names(&cluster, |name| selector.matches(cluster.node(name)))
    };
    assert_eq!(by_field("metadata.name=one"), "one");
    assert_eq!(by_field("metadata.name!=one"), "two");
    assert_eq!(by_field("spec.unschedulable=true"), "two");
    assert_eq!(by_field("spec.unschedulable==false,metadata.name=two"), "");
}

#[test]
fn events_are_selected_by_what_they_are_about() {
    let mut cluster = Cluster::with_node("one");
    cluster.create(draft("two"));
    cluster.done(cordon("one", true));
    let count = |text: &str| {
        let selector: EventFieldSelector = text.parse().unwrap();
        cluster.state.events().iter().filter(|event| selector.matches(event)).count()
    };
    assert_eq!(count(""), 3);
    assert_eq!(count("involvedObject.kind=Node,involvedObject.name=one"), 2);
    assert_eq!(count(&format!("involvedObject.uid={}", Uid(2))), 1);
    assert_eq!(count("involvedObject.namespace="), 3);
    assert_eq!(count("reason=NodeNotSchedulable"), 1);
    assert_eq!(count("type!=Normal"), 0);
    assert_eq!(count("metadata.namespace=default,metadata.name=one.1"), 1);
}

fn names(cluster: &Cluster, keep: impl Fn(&str) -> bool) -> String {
    let names = cluster.state.nodes().iter().map(|node| node.meta.name.as_str());
    names.filter(|name| keep(name)).collect::<Vec<_>>().join(" ")
}
