//! Tests of manifests: what they can say, what they must not say, and that nothing they say is lost.

use muster_lifecycle::author::Author;
use muster_lifecycle::event::{Event, NodeHappening, Subject};
use muster_lifecycle::meta::{ObjectMeta, Uid};
use muster_lifecycle::node::{ConditionStatus, Incarnation, Slot};
use muster_lifecycle::taint::Effect;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};

use super::*;

/// A Node as a kubelet of a small dual-stack cluster posts it, with everything a read adds.
const KUBELET_NODE: &str = include_str!("tests/kubelet_node.json");

#[test]
fn the_example_of_the_kubernetes_docs_is_read() {
    let manifest = node_from_json(
        br#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"10.240.79.157","labels":{"name":"my-first-k8s-node"}}}"#,
    )
    .unwrap();
    let labels = [(Text::from("name"), Text::from("my-first-k8s-node"))].into_iter().collect();
    let draft = NodeDraft { name: "10.240.79.157".into(), labels: Some(labels), ..NodeDraft::default() };
    assert_eq!(manifest, NodeManifest { draft, precondition: Precondition::default() });
}

#[test]
fn a_kubelets_node_is_read_in_full() {
    let NodeManifest { draft, precondition } = node_from_json(KUBELET_NODE.as_bytes()).unwrap();
    assert_eq!(precondition.revision, Some(Revision(184_467)));
    assert_eq!(precondition.uid.unwrap().to_string(), "0b7c1c5e-9f43-4f0e-8a55-2f6f1f1f9d10");
    assert_eq!(&*draft.name, "worker-7.example.net");
    assert_eq!(draft.labels.unwrap().len(), 4);
    assert_eq!(draft.annotations.unwrap().len(), 2);

    let cidrs: Vec<String> = draft.pod_cidrs.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(cidrs, ["10.244.7.0/24", "fd00:10:244:7::/64"]);
    assert_eq!(draft.provider_id.as_deref(), Some("kind://docker/example/worker-7"));
    assert_eq!(draft.unschedulable, Some(true));
    let taints = draft.taints.unwrap();
    assert_eq!(taints[1].effect, Effect::NoExecute);
    assert_eq!(taints[1].added, Some(at(1_767_323_106)));

    let status = draft.status.unwrap();
    assert_eq!(status.conditions.len(), 5);
    let ready = status.conditions.iter().find(|condition| &*condition.kind == "Ready").unwrap();
    assert_eq!(ready.status, ConditionStatus::True);
    assert_eq!(ready.last_heartbeat, Some(at(1_767_323_045)));
    assert_eq!(status.addresses.len(), 3);
    assert_eq!(status.info.unwrap().swap_capacity, Some(2_147_479_552));

    let unmodelled: Value = serde_json::from_str(&draft.unmodelled.unwrap()).unwrap();
    let wanted = json!({
        "spec": {"configSource": {"configMap": {"name": "kubelet", "namespace": "kube-system"}}},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [{"names": ["registry.example/pause:3.10"], "sizeBytes": 320_368}],
            "nodeInfo": {"kubeProxyVersion": "v1.36.1"},
            "runtimeHandlers": [{"features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}, "name": ""}],
        },
    });
    assert_eq!(unmodelled, wanted);
}

#[test]
fn a_kubelets_node_is_printed_as_it_was_read() {
    let given: Value = serde_json::from_str(KUBELET_NODE).unwrap();
    let mut printed = node_to_json(&stored(node_from_json(KUBELET_NODE.as_bytes()).unwrap()));
    // Fields that the server owns are not taken from a manifest.
    for name in ["creationTimestamp", "generation", "managedFields"] {
        printed["metadata"][name] = given["metadata"][name].clone();
    }
    assert_eq!(printed, given);
}

#[test]
fn errors_in_metadata_name_the_field_and_the_rule() {
    let table = [
        (json!([]), "manifest: expected an object, found an array"),
        (json!({}), "apiVersion: is required, and only v1 is supported here"),
        (json!({"apiVersion": "v2"}), "apiVersion: \"v2\" is not supported here, only v1"),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "kind: \"Pod\" is not supported here, only Node"),
        (json!({"apiVersion": "v1", "kind": 5}), "kind: expected a string, found the number 5"),
        (json!({"apiVersion": "v1", "kind": "Node"}), "metadata.name: is required"),
        (node(json!({"metadata": {}})), "metadata.name: is required"),
        (node(json!({"metadata": {"name": ""}})), "metadata.name: is required"),
        (node(json!({"metadata": {"name": ["n"]}})), "metadata.name: expected a string, found an array"),
        (meta(json!({"namespace": "a"})), "metadata.namespace: \"a\" must not be set: nodes are not namespaced"),
        (meta(json!({"labels": []})), "metadata.labels: expected an object, found an array"),
        (meta(json!({"labels": {"a": 1}})), "metadata.labels[\"a\"]: expected a string, found the number 1"),
        (meta(json!({"annotations": {"b": null}})), "metadata.annotations[\"b\"]: expected a string, found null"),
        (meta(json!({"finalizers": [true]})), "metadata.finalizers[0]: expected a string, found true"),
        (meta(json!({"resourceVersion": 5})), "metadata.resourceVersion: expected a string, found the number 5"),
        (
            meta(json!({"resourceVersion": "x"})),
            "metadata.resourceVersion: \"x\" is not a resource version that a read returned",
        ),
        (
            meta(json!({"uid": "x"})),
            "metadata.uid: \"x\" is not a uid: 32 hexadecimal digits, grouped 8-4-4-4-12 by hyphens",
        ),
        (meta(json!({"ownerReferences": [{}]})), "metadata.ownerReferences[0].apiVersion: is required"),
    ];
    check_errors(&table);
}

#[test]
fn errors_in_spec_and_status_name_the_field_and_the_rule() {
    let table = [
        (spec(json!([])), "spec: expected an object, found an array"),
        (spec(json!({"unschedulable": "yes"})), "spec.unschedulable: expected true or false, found the string \"yes\""),
        (
            spec(json!({"podCIDR": "10.0.0.0"})),
            "spec.podCIDR: \"10.0.0.0\" is not a CIDR such as 10.244.1.0/24 or fd00:10:244:1::/64",
        ),
        (
            spec(json!({"podCIDRs": "10.0.0.0/24"})),
            "spec.podCIDRs: expected an array, found the string \"10.0.0.0/24\"",
        ),
        (
            spec(json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.1.0/24"]})),
            "spec.podCIDR: \"10.0.0.0/24\" differs from podCIDRs[0], which is \"10.0.1.0/24\"; they must be equal",
        ),
        (spec(json!({"taints": [null]})), "spec.taints[0]: expected an object, found null"),
        (spec(json!({"taints": [{"effect": "NoExecute"}]})), "spec.taints[0].key: is required"),
        (
            spec(json!({"taints": [{"key": "a"}]})),
            "spec.taints[0].effect: is required: one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (
            spec(json!({"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoRun"}]})),
            "spec.taints[1].effect: \"NoRun\" is not one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (
            spec(json!({"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "noon"}]})),
            "spec.taints[0].timeAdded: \"noon\" is not an RFC 3339 time such as 2026-03-01T12:00:00Z",
        ),
        (
            status(json!({"conditions": [{"type": "Ready", "status": "Maybe"}]})),
            "status.conditions[0].status: \"Maybe\" is not one of True, False, Unknown",
        ),
        (status(json!({"addresses": [{"type": "Hostname"}]})), "status.addresses[0].address: is required"),
        (
            status(json!({"capacity": {"cpu": true}})),
            "status.capacity[\"cpu\"]: expected a quantity such as \"500m\" or \"16Gi\", found true",
        ),
        (
            status(json!({"nodeInfo": {"swap": {"capacity": 0.5}}})),
            "status.nodeInfo.swap.capacity: expected a whole number, found the number 0.5",
        ),
    ];
    check_errors(&table);
}

#[test]
fn nv_3_a_quantity_that_does_not_parse_is_named() {
    let manifest = status(json!({"capacity": {"memory": "lots"}})).to_string();
    let error = node_from_json(manifest.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("status.capacity[\"memory\"]: \"lots\" is not a quantity"), "{error}");
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let error = node_from_json(b"{\"kind\":\n nope").unwrap_err().to_string();
    assert!(error.starts_with("the manifest is not valid JSON: ") && error.contains("line 2"), "{error}");
}

#[test]
fn size_and_depth_are_bounded() {
    let large = vec![b' '; MAX_BYTES + 1];
    assert!(matches!(node_from_json(&large), Err(ManifestError::TooLarge { size }) if size == MAX_BYTES + 1));

    let nested = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        node_from_json(
            format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},"x":{value}}}"#).as_bytes(),
        )
    };
    assert!(nested(MAX_DEPTH - 1).is_ok());
    assert!(matches!(nested(MAX_DEPTH), Err(ManifestError::TooDeep)));
    assert!(matches!(nested(100_000), Err(ManifestError::Syntax(_))));
}

#[test]
fn null_counts_as_absent() {
    let manifest = node(json!({
        "metadata": {"name": "n", "creationTimestamp": null, "labels": null, "uid": null},
        "spec": {"taints": null, "unschedulable": null, "podCIDRs": null},
        "status": null,
    }));
    let read = node_from_json(manifest.to_string().as_bytes()).unwrap();
    assert_eq!(read.draft, NodeDraft { name: "n".into(), ..NodeDraft::default() });
}

#[test]
fn fields_owned_by_the_server_are_ignored() {
    let manifest = meta(json!({
        "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "nonsense", "generation": "nonsense",
        "deletionGracePeriodSeconds": 3, "managedFields": [{"manager": "kubectl"}], "selfLink": "/api/v1/nodes/n",
    }));
    let read = node_from_json(manifest.to_string().as_bytes()).unwrap();
    assert_eq!(read.draft, NodeDraft { name: "n".into(), ..NodeDraft::default() });
}

#[test]
fn pod_cidr_and_pod_cidrs_are_one_field() {
    let cases = [
        (json!({"podCIDR": "10.0.0.0/24"}), Some(1)),
        (json!({"podCIDR": "", "podCIDRs": ["10.0.0.0/24"]}), Some(1)),
        (json!({"podCIDR": "10.0.0.0/24", "podCIDRs": []}), Some(1)),
        (json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}), Some(2)),
        (json!({"podCIDRs": []}), Some(0)),
        (json!({}), None),
    ];
    for (given, count) in cases {
        let read = node_from_json(spec(given.clone()).to_string().as_bytes()).unwrap();
        assert_eq!(read.draft.pod_cidrs.map(|cidrs| cidrs.len()), count, "{given}");
    }
}

#[test]
fn resource_version_zero_means_any() {
    for any in ["", "0"] {
        let read = node_from_json(meta(json!({"resourceVersion": any})).to_string().as_bytes()).unwrap();
        assert_eq!(read.precondition, Precondition::default(), "{any:?}");
    }
}

#[test]
fn unknown_fields_are_kept_wherever_they_are() {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Node", "comment": [1, null, {"a": "ü"}],
        "metadata": {"name": "n", "generateName": "n-", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Rack", "name": "r", "uid": Uid(1).to_string(), "since": 3},
        ]},
        "spec": {"externalID": "x", "taints": [
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute", "because": {"of": "rain"}},
        ]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 4}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1", "interface": "eth0"}],
            "nodeInfo": {"swap": {"kind": "zram"}}},
    });
    let printed = node_to_json(&stored(node_from_json(manifest.to_string().as_bytes()).unwrap()));
    for pointer in [
        "/comment",
        "/metadata/generateName",
        "/metadata/ownerReferences",
        "/spec/externalID",
        "/spec/taints",
        "/status/phase",
        "/status/conditions/0/observedGeneration",
        "/status/addresses",
        "/status/nodeInfo/swap",
    ] {
        assert_eq!(printed.pointer(pointer), manifest.pointer(pointer), "{pointer}");
    }
}

#[test]
fn node_info_has_every_key_that_upstream_requires() {
    let manifest = status(json!({"nodeInfo": {"machineID": "m"}})).to_string();
    let printed = node_to_json(&stored(node_from_json(manifest.as_bytes()).unwrap()));
    let wanted = json!({
        "machineID": "m", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "", "architecture": "",
        "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
    });
    assert_eq!(printed["status"]["nodeInfo"], wanted);
}

#[test]
fn slot_and_incarnation_are_not_printed() {
    let printed = node_to_json(&stored(node_from_json(meta(json!({})).to_string().as_bytes()).unwrap())).to_string();
    assert!(!printed.contains("slot") && !printed.contains("incarnation") && !printed.contains("muster"), "{printed}");
}

#[test]
fn a_node_being_deleted_has_a_deletion_timestamp() {
    let mut node = stored(node_from_json(meta(json!({"finalizers": ["a/b"]})).to_string().as_bytes()).unwrap());
    node.meta.deleted = Some(at(60));
    let printed = node_to_json(&node);
    assert_eq!(printed["metadata"]["deletionTimestamp"], "1970-01-01T00:01:00Z");
    assert_eq!(printed["metadata"]["finalizers"], json!(["a/b"]));
}

#[test]
fn an_event_is_printed_as_core_v1() {
    let mut meta = bare_meta("n1.2a", Uid(7));
    meta.namespace = Some("default".into());
    let event = Event {
        meta,
        sequence: 42,
        subject: Subject { kind: "Node".into(), name: "n1".into(), namespace: None, uid: Uid(9) },
        happening: NodeHappening::Registered { by: Author::Agent }.into(),
        at: at(60),
    };
    let wanted = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": "n1.2a", "namespace": "default", "uid": "00000000-0000-0000-0000-000000000007",
            "resourceVersion": "1", "generation": 1, "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "00000000-0000-0000-0000-000000000009",
        },
        "reason": "RegisteredNode",
        "message": "node n1 was registered by its agent",
        "type": "Normal",
        "source": {"component": "node-controller"},
        "firstTimestamp": "1970-01-01T00:01:00Z",
        "lastTimestamp": "1970-01-01T00:01:00Z",
        "count": 1,
        "eventTime": null,
        "reportingComponent": "node-controller",
        "reportingInstance": "",
    });
    assert_eq!(event_to_json(&event), wanted);
}

#[test]
fn lists_carry_the_revision_they_were_read_at() {
    let list = list_to_json(Kind::Node, [json!({"kind": "Node"})].into_iter(), Revision(12));
    let wanted = json!({
        "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "12"}, "items": [{"kind": "Node"}],
    });
    assert_eq!(list, wanted);
    let empty = list_to_json(Kind::Event, std::iter::empty(), Revision(0));
    assert_eq!((&empty["kind"], &empty["items"]), (&json!("EventList"), &json!([])));
}

mod round_trip {
    //! Round trips: a manifest printed from any Node and read back says the same.

    use muster_lifecycle::meta::OwnerReference;
    use muster_lifecycle::node::{Address, Condition, NodeInfo, NodeSpec, NodeStatus};
    use muster_lifecycle::taint::Taint;
    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_printed_node_reads_back_equal(node in nodes()) {
            let NodeManifest { draft, precondition } = node_from_json(node_to_json(&node).to_string().as_bytes()).unwrap();
            prop_assert_eq!(precondition.revision, Some(node.meta.revision));
            prop_assert_eq!(precondition.uid, Some(node.meta.uid));
            prop_assert_eq!(draft.name, node.meta.name);
            prop_assert_eq!(draft.labels.unwrap_or_default(), node.meta.labels);
            prop_assert_eq!(draft.annotations.unwrap_or_default(), node.meta.annotations);
            prop_assert_eq!(draft.finalizers.unwrap_or_default(), node.meta.finalizers);
            prop_assert_eq!(draft.owners.unwrap_or_default(), node.meta.owners);
            prop_assert_eq!(draft.pod_cidrs.unwrap_or_default(), node.spec.pod_cidrs);
            prop_assert_eq!(draft.provider_id, node.spec.provider_id);
            prop_assert_eq!(draft.unschedulable.unwrap_or_default(), node.spec.unschedulable);
            prop_assert_eq!(draft.taints.unwrap_or_default(), node.spec.taints);
            prop_assert_eq!(draft.status, Some(node.status));
            prop_assert_eq!(draft.unmodelled, node.unmodelled);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
            drop(node_from_json(&bytes));
        }

        #[test]
        fn no_json_makes_the_reader_panic(metadata in json_values(), spec in json_values(), status in json_values()) {
            let manifest = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status});
            drop(node_from_json(manifest.to_string().as_bytes()));
        }
    }

    /// JSON that often uses the names the reader knows, with any values below them.
    fn json_values() -> impl Strategy<Value = Value> {
        let names = prop::sample::select(vec![
            "name",
            "labels",
            "uid",
            "resourceVersion",
            "ownerReferences",
            "finalizers",
            "taints",
            "key",
            "effect",
            "podCIDR",
            "podCIDRs",
            "conditions",
            "type",
            "capacity",
            "nodeInfo",
            "swap",
            "timeAdded",
            "other",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                btree_map(names.clone(), inner, 0..6)
                    .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        })
    }

    fn texts() -> impl Strategy<Value = Text> {
        "\\PC{0,12}".prop_map(Text::from)
    }

    fn nonempty_texts() -> impl Strategy<Value = Text> {
        "\\PC{1,12}".prop_map(Text::from)
    }

    /// In manifests, moments have whole seconds and no cluster time.
    fn stamps() -> impl Strategy<Value = Stamp> {
        (-60_000_000_000_i64..250_000_000_000).prop_map(at)
    }

    fn uids() -> impl Strategy<Value = Uid> {
        any::<u128>().prop_map(Uid)
    }

    fn owners() -> impl Strategy<Value = OwnerReference> {
        (nonempty_texts(), nonempty_texts(), nonempty_texts(), uids(), any::<bool>(), any::<bool>()).prop_map(
            |(api_version, kind, name, uid, controller, block_owner_deletion)| OwnerReference {
                api_version,
                kind,
                name,
                uid,
                controller,
                block_owner_deletion,
            },
        )
    }

    prop_compose! {
        fn metas()(
            name in nonempty_texts(),
            uid in uids(),
            revision in 1..u64::MAX,
            created in stamps(),
            deleted in option::of(stamps()),
            labels in btree_map(texts(), texts(), 0..4),
            annotations in btree_map(texts(), texts(), 0..4),
            owners in vec(owners(), 0..3),
            finalizers in vec(texts(), 0..3),
        ) -> ObjectMeta {
            ObjectMeta {
                revision: Revision(revision),
                created,
                deleted,
                labels: labels.into_iter().collect(),
                annotations: annotations.into_iter().collect(),
                owners: owners.into(),
                finalizers: finalizers.into(),
                ..bare_meta(&name, uid)
            }
        }
    }

    fn taints() -> impl Strategy<Value = Vec<Taint>> {
        let effect = prop::sample::select(vec![Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]);
        btree_map((nonempty_texts(), effect), (texts(), option::of(stamps())), 0..4).prop_map(|taints| {
            let taint = |((key, effect), (value, added))| Taint { key, value, effect, added };
            taints.into_iter().map(taint).collect()
        })
    }

    prop_compose! {
        fn specs()(
            four in option::of((any::<[u8; 4]>(), 0_u8..=32)),
            six in option::of((any::<[u8; 16]>(), 0_u8..=128)),
            provider_id in option::of(nonempty_texts()),
            unschedulable in any::<bool>(),
            taints in taints(),
        ) -> NodeSpec {
            let four = four.map(|(address, length)| ipnet::IpNet::new(address.into(), length).unwrap());
            let six = six.map(|(address, length)| ipnet::IpNet::new(address.into(), length).unwrap());
            NodeSpec { pod_cidrs: four.into_iter().chain(six).collect(), provider_id, unschedulable, taints: taints.into() }
        }
    }

    fn conditions() -> impl Strategy<Value = Condition> {
        let statuses = vec![ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
        let status = prop::sample::select(statuses);
        (nonempty_texts(), status, option::of(stamps()), option::of(stamps()), texts(), texts()).prop_map(
            |(kind, status, last_heartbeat, last_transition, reason, message)| Condition {
                kind,
                status,
                last_heartbeat,
                last_transition,
                reason,
                message,
            },
        )
    }

    fn infos() -> impl Strategy<Value = NodeInfo> {
        (vec(texts(), 9), option::of(any::<i64>())).prop_map(|(texts, swap_capacity)| NodeInfo {
            machine_id: texts[0].clone(),
            system_uuid: texts[1].clone(),
            boot_id: texts[2].clone(),
            kernel_version: texts[3].clone(),
            os_image: texts[4].clone(),
            container_runtime_version: texts[5].clone(),
            kubelet_version: texts[6].clone(),
            operating_system: texts[7].clone(),
            architecture: texts[8].clone(),
            swap_capacity,
        })
    }

    fn quantities() -> impl Strategy<Value = muster_lifecycle::quantity::Quantity> {
        (0_u32..100_000, prop::sample::select(vec!["", "m", "k", "M", "Ki", "Mi", "Gi"]))
            .prop_map(|(number, suffix)| format!("{number}{suffix}").parse().unwrap())
    }

    prop_compose! {
        fn statuses()(
            capacity in btree_map(texts(), quantities(), 0..4),
            allocatable in btree_map(texts(), quantities(), 0..4),
            conditions in vec(conditions(), 0..4),
            addresses in vec((nonempty_texts(), nonempty_texts()), 0..4),
            info in option::of(infos()),
        ) -> NodeStatus {
            NodeStatus {
                capacity: capacity.into_iter().collect(),
                allocatable: allocatable.into_iter().collect(),
                conditions: conditions.into(),
                addresses: addresses.into_iter().map(|(kind, address)| Address { kind, address }).collect(),
                info: info.map(Box::new),
            }
        }
    }

    /// Unknown fields beside and below the modelled ones of `spec`; those of a taint stand beside its identity.
    fn unmodelled(spec: &NodeSpec, source: Option<Value>, images: Option<Value>, top: Option<Value>) -> Option<Text> {
        let mut json = serde_json::Map::new();
        let mut unknown = serde_json::Map::new();
        unknown.extend(source.map(|source| ("configSource".to_owned(), source)));
        if let (Some(taint), false) = (spec.taints.first(), unknown.is_empty()) {
            let taint = json!([{"key": &*taint.key, "effect": taint.effect.to_string(), "because": "rain"}]);
            unknown.insert("taints".into(), taint);
        }
        if !unknown.is_empty() {
            json.insert("spec".into(), unknown.into());
        }
        json.extend(images.map(|images| ("status".to_owned(), json!({ "images": images }))));
        json.extend(top.map(|top| ("other".to_owned(), top)));
        (!json.is_empty()).then(|| Value::Object(json).to_string().into())
    }

    prop_compose! {
        fn nodes()(
            meta in metas(),
            spec in specs(),
            status in statuses(),
            source in option::of(json_values()),
            images in option::of(json_values()),
            top in option::of(json_values()),
        ) -> Node {
            let unmodelled = unmodelled(&spec, source, images, top);
            Node { meta, slot: SLOT, incarnation: Incarnation(3), spec, status, unmodelled }
        }
    }
}

const SLOT: Slot = Slot { index: 1, generation: 2 };

fn at(second: i64) -> Stamp {
    Stamp { cluster: ClusterTime(0), wall: WallTime(second * 1_000) }
}

fn bare_meta(name: &str, uid: Uid) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: None,
        uid,
        revision: Revision(1),
        generation: 1,
        created: at(0),
        deleted: None,
        labels: Default::default(),
        annotations: Default::default(),
        owners: Default::default(),
        finalizers: Default::default(),
    }
}

/// The Node that a store would hold after creating it from the manifest.
fn stored(manifest: NodeManifest) -> Node {
    let NodeManifest { draft, precondition } = manifest;
    let meta = ObjectMeta {
        revision: precondition.revision.unwrap_or(Revision(1)),
        labels: draft.labels.unwrap_or_default(),
        annotations: draft.annotations.unwrap_or_default(),
        owners: draft.owners.unwrap_or_default(),
        finalizers: draft.finalizers.unwrap_or_default(),
        ..bare_meta(&draft.name, precondition.uid.unwrap_or_default())
    };
    let spec = muster_lifecycle::node::NodeSpec {
        pod_cidrs: draft.pod_cidrs.unwrap_or_default(),
        provider_id: draft.provider_id,
        unschedulable: draft.unschedulable.unwrap_or_default(),
        taints: draft.taints.unwrap_or_default(),
    };
    let status = draft.status.unwrap_or_default();
    Node { meta, slot: SLOT, incarnation: Incarnation(3), spec, status, unmodelled: draft.unmodelled }
}

#[test]
fn a_beat_dates_conditions_reported_by_the_nodes_agent() {
    let condition = |kind: &str, status: &str, heartbeat: &str| json!({"type": kind, "status": status, "lastHeartbeatTime": heartbeat});
    let (early, late) = ("1970-01-01T00:00:01Z", "1970-01-01T00:01:00Z");
    let manifest = status(json!({"conditions": [
        condition("Ready", "True", early),
        condition("MemoryPressure", "Unknown", early),
        condition("DiskPressure", "False", late),
        condition("NetworkUnavailable", "False", early),
    ]}));
    let node = stored(node_from_json(manifest.to_string().as_bytes()).unwrap());
    let json = heard_node_to_json(&node, at(30));
    let shown = |index: usize| &json["status"]["conditions"][index]["lastHeartbeatTime"];
    assert_eq!((shown(0), shown(1)), (&json!("1970-01-01T00:00:30Z"), &json!(early)));
    assert_eq!((shown(2), shown(3)), (&json!(late), &json!(early)));

    let bare = stored(node_from_json(meta(json!({})).to_string().as_bytes()).unwrap());
    assert_eq!(heard_node_to_json(&bare, at(30)), node_to_json(&bare));
}

fn check_errors(table: &[(Value, &str)]) {
    for (manifest, wanted) in table {
        let error = node_from_json(manifest.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), *wanted, "{manifest}");
    }
}

/// A manifest of kind Node with these fields.
fn node(fields: Value) -> Value {
    let mut manifest = json!({"apiVersion": "v1", "kind": "Node"});
    let Value::Object(fields) = fields else { panic!("not an object: {fields}") };
    manifest.as_object_mut().unwrap().extend(fields);
    manifest
}

fn meta(mut metadata: Value) -> Value {
    metadata["name"] = "n".into();
    node(json!({ "metadata": metadata }))
}

fn spec(spec: Value) -> Value {
    node(json!({"metadata": {"name": "n"}, "spec": spec}))
}

fn status(status: Value) -> Value {
    node(json!({"metadata": {"name": "n"}, "status": status}))
}
