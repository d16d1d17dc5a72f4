//! Tests of write requests: which command each becomes, and which field an error names.

use muster_lifecycle::taint::{Effect, Taint, TaintSelector};

use super::*;

const UID: Uid = Uid(77);
const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{}}"#;
const NODE_SEEN: &str =
    r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","resourceVersion":"12"},"status":{}}"#;

#[test]
fn manifests_become_node_operations() {
    let seen = Precondition { revision: Some(Revision(12)), uid: None };
    assert!(
        matches!(read(Wire::Create(manifest(NODE))), OperatorOperation::CreateNode { draft, uid: UID } if draft.name == "n1")
    );
    assert!(matches!(
        read(Wire::Apply(manifest(NODE_SEEN))),
        OperatorOperation::ApplyNode { draft, uid: UID, precondition } if draft.name == "n1" && precondition == seen
    ));
    assert!(matches!(
        read(Wire::Replace(manifest(NODE_SEEN))),
        OperatorOperation::ReplaceNode { draft, precondition } if draft.name == "n1" && precondition == seen
    ));
    assert!(matches!(
        read(Wire::ReplaceStatus(manifest(NODE_SEEN))),
        OperatorOperation::ReplaceNodeStatus { name, precondition, .. } if name == "n1" && precondition == seen
    ));
}

#[test]
fn label_changes_are_in_order_of_keys() {
    let wanted = OperatorOperation::LabelNode {
        name: "n1".into(),
        changes: vec![("a".into(), None), ("b".into(), Some("2".into())), ("c".into(), Some("".into()))],
        overwrite: true,
        precondition: Precondition { revision: Some(Revision(4)), uid: Some(Uid(1)) },
    };
    let edit = v1::PairsEdit {
        overwrite: true,
        precondition: Some(v1::Precondition { revision: Some(4), uid: Uid(1).to_string() }),
        ..pairs(&[("c", ""), ("b", "2")], &["a"])
    };
    assert_eq!(read(Wire::Label(edit)), wanted);
}

#[test]
fn annotations_may_hold_any_text() {
    let wanted = OperatorOperation::AnnotateNode {
        name: "n1".into(),
        changes: vec![("a".into(), Some("two words, ä".into()))],
        overwrite: false,
        precondition: Precondition::default(),
    };
    assert_eq!(read(Wire::Annotate(pairs(&[("a", "two words, ä")], &[]))), wanted);
}

#[test]
fn t_6_taints_are_written_as_on_the_command_line() {
    let taint = |key: &str, value: &str, effect| Taint { key: key.into(), value: value.into(), effect, added: None };
    let wanted = OperatorOperation::TaintNode {
        name: "n1".into(),
        add: vec![taint("a", "1", Effect::NoSchedule), taint("b", "", Effect::NoExecute)],
        remove: vec![
            TaintSelector { key: "c".into(), effect: None },
            TaintSelector { key: "d".into(), effect: Some(Effect::PreferNoSchedule) },
        ],
        overwrite: false,
        precondition: Precondition::default(),
    };
    assert_eq!(read(Wire::Taint(taints(&["a=1:NoSchedule", "b:NoExecute"], &["c", "d:PreferNoSchedule"]))), wanted);
}

#[test]
fn cordon_and_delete_name_their_node() {
    let cordon = v1::Cordon { name: "n1".into(), unschedulable: true, precondition: None };
    let precondition = Precondition::default();
    let wanted = OperatorOperation::CordonNode { name: "n1".into(), unschedulable: true, precondition };
    assert_eq!(read(Wire::Cordon(cordon)), wanted);
    assert_eq!(
        read(Wire::Delete(delete_of("nodes", "n1"))),
        OperatorOperation::DeleteNode { name: "n1".into(), precondition }
    );
}

#[test]
fn settings_change_in_order_of_their_names() {
    let wanted = OperatorOperation::SetPolicy {
        changes: vec![
            ("node-eviction-rate".into(), "0.5".into()),
            ("node-monitor-grace-period".into(), "1m".into()),
            ("node-monitor-period".into(), "2s".into()),
        ],
    };
    let given = [("node-monitor-period", "2s"), ("node-monitor-grace-period", "1m"), ("node-eviction-rate", "0.5")];
    assert_eq!(read(Wire::Policy(settings(&given))), wanted);
}

#[test]
fn an_aggregator_is_set_with_nodes_or_removed() {
    let wanted = |nodes: &[&str]| OperatorOperation::SetAggregator {
        name: "rack-1".into(),
        nodes: nodes.iter().map(|node| Text::from(*node)).collect(),
    };
    for nodes in [&["b-*", "a"][..], &[]] {
        assert_eq!(read(Wire::Aggregator(scope("rack-1", nodes))), wanted(nodes));
    }
}

#[test]
fn the_request_id_is_optional_and_exact() {
    let with_id = |request| {
        let operation = Some(Wire::Delete(delete_of("nodes", "n1")));
        operation_of(v1::WriteRequest { request, operation, timeout_ms: 0 }).map(|(id, _)| id)
    };
    assert_eq!(with_id(None), Ok(None));
    let client = bytes::Bytes::from(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    let id = RequestId { client: 0x102, sequence: 9 };
    assert_eq!(with_id(Some(v1::RequestId { client, sequence: 9 })), Ok(Some(id)));
    let short = with_id(Some(v1::RequestId { client: bytes::Bytes::from_static(b"abc"), sequence: 9 }));
    assert_eq!(short.unwrap_err().to_string(), "request.client: must be 16 bytes, is 3");
}

#[test]
fn errors_name_the_field_and_the_rule() {
    let no_status = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#;
    let other_kind = r#"{"apiVersion":"v1","kind":"Service"}"#;
    let bad_uid = Some(v1::Precondition { revision: None, uid: "x".into() });
    let unnamed = v1::PairsEdit { name: String::new(), ..pairs(&[("a", "1")], &[]) };
    let table = [
        (Wire::Create(manifest(other_kind)), "kind: \"Service\" is not supported here, only Node, Pod, ReplicaSet, "),
        (Wire::Apply(manifest("nope")), "apply.object: the manifest is not valid JSON: "),
        (Wire::Create(manifest(NODE_SEEN)), "metadata.resourceVersion: must not be set on an object to be created"),
        (Wire::ReplaceStatus(manifest(no_status)), "status: is required"),
        (Wire::Label(unnamed), "label.name: is required"),
        (Wire::Label(pairs(&[], &[])), "label: sets nothing and removes nothing"),
        (Wire::Label(pairs(&[("a b", "1")], &[])), "label.set[\"a b\"]: \"a b\" is not a qualified name"),
        (Wire::Label(pairs(&[("a", "1 2")], &[])), "label.set[\"a\"]: \"1 2\" is not a label value"),
        (Wire::Label(pairs(&[], &["ok", ""])), "label.remove[1]: \"\" is not a qualified name"),
        (Wire::Annotate(pairs(&[("a", "1")], &["a"])), "annotate.remove[0]: \"a\" is also set"),
        (Wire::Annotate(pairs(&[("/", "1")], &[])), "annotate.set[\"/\"]: \"/\" is not a qualified name"),
        (Wire::Taint(taints(&[], &[])), "taint: adds nothing and removes nothing"),
        (
            Wire::Taint(taints(&["a:NoExecute", "a:NoRun"], &[])),
            "taint.add[1]: \"NoRun\" is not one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (Wire::Taint(taints(&["a"], &[])), "taint.add[0]: \"a\" is not a taint"),
        (Wire::Taint(taints(&["a b:NoExecute"], &[])), "taint.add[0]: \"a b\" is not a qualified name"),
        (Wire::Taint(taints(&[], &[":NoExecute"])), "taint.remove[0]: \":NoExecute\" names no taint"),
        (
            Wire::Cordon(v1::Cordon { name: "n1".into(), unschedulable: true, precondition: bad_uid }),
            "cordon.precondition.uid: \"x\" is not a uid",
        ),
        (
            Wire::Delete(delete_of("services", "n1")),
            "delete.kind: \"services\" cannot be deleted here; only nodes, pods, ",
        ),
        (Wire::Delete(delete_of("nodes", "")), "delete.name: is required"),
        (Wire::Policy(settings(&[])), "policy.settings: changes nothing; name a setting and its value"),
        (
            Wire::Policy(settings(&[("node-monitor-period", "5 apples")])),
            "node-monitor-period: \"5 apples\" is not a duration: write numbers with a unit",
        ),
        (Wire::Policy(settings(&[("grace", "5s")])), "grace: no such setting: use one of node-monitor-period, "),
        (Wire::Aggregator(scope("", &["a"])), "aggregator.name: is required"),
        (Wire::Aggregator(scope("Rack_1", &["a"])), "aggregator.name: \"Rack_1\" is not a DNS-1123 subdomain"),
        (Wire::Aggregator(scope("rack-1", &["a", ""])), "aggregator.nodes[1]: is empty; write a node name"),
        (
            Wire::Aggregator(scope("rack-1", &["a"; PATTERNS_MAX + 1])),
            "aggregator.nodes: 251 patterns are too many: at most 250",
        ),
    ];
    for (wire, wanted) in table {
        let error = try_read(wire).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "wanted {wanted:?}, got {error:?}");
    }
}

#[test]
fn a_request_without_an_operation_is_refused() {
    let request = v1::WriteRequest { request: None, operation: None, timeout_ms: 0 };
    assert_eq!(operation_of(request).unwrap_err().field, "operation");
}

#[test]
fn edits_are_bounded() {
    let keys: Vec<String> = (0..=MAX_EDITS).map(|number| format!("k{number}")).collect();
    let edit = v1::PairsEdit { remove: keys, ..pairs(&[], &[]) };
    let error = try_read(Wire::Label(edit)).unwrap_err().to_string();
    assert_eq!(error, "label.remove: has 1025 entries; at most 1024 are accepted in one request");
}

fn read(wire: Wire) -> OperatorOperation {
    try_read(wire).unwrap()
}

fn try_read(wire: Wire) -> Result<OperatorOperation, FieldError> {
    operation_of(v1::WriteRequest { request: None, operation: Some(wire), timeout_ms: 0 })
        .map(|(_, operation)| operation)
}

fn operation_of(request: v1::WriteRequest) -> Result<(Option<RequestId>, OperatorOperation), FieldError> {
    operation(request, UID)
}

fn manifest(object: &str) -> v1::ManifestWrite {
    v1::ManifestWrite { object: object.to_owned().into() }
}

fn pairs(set: &[(&str, &str)], remove: &[&str]) -> v1::PairsEdit {
    v1::PairsEdit {
        name: "n1".into(),
        set: set.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        remove: owned(remove),
        overwrite: false,
        precondition: None,
    }
}

fn taints(add: &[&str], remove: &[&str]) -> v1::TaintEdit {
    v1::TaintEdit { name: "n1".into(), add: owned(add), remove: owned(remove), overwrite: false, precondition: None }
}

fn delete_of(kind: &str, name: &str) -> v1::Delete {
    v1::Delete { kind: kind.into(), name: name.into(), ..v1::Delete::default() }
}

fn settings(settings: &[(&str, &str)]) -> v1::PolicyChange {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    v1::PolicyChange { settings: settings.iter().map(owned).collect() }
}

fn scope(name: &str, nodes: &[&str]) -> v1::AggregatorScope {
    v1::AggregatorScope { name: name.into(), nodes: owned(nodes) }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn tokens_and_revocations_are_checked_before_they_are_proposed() {
    let token = || v1::TokenCreation {
        id: "0123456789".into(),
        hash: vec![7; 32].into(),
        ttl_ms: 600_000,
        ..Default::default()
    };
    let ask = |wire: Wire| {
        let request = v1::WriteRequest { operation: Some(wire), ..Default::default() };
        operation(request, Uid(1)).map(|(_, operation)| operation).map_err(|error| error.to_string())
    };
    let wanted = OperatorOperation::CreateToken {
        id: "0123456789".into(),
        hash: Fingerprint([7; 32]),
        node: Some("n1".into()),
        ttl_ms: 600_000,
    };
    assert_eq!(ask(Wire::CreateToken(v1::TokenCreation { node: "n1".into(), ..token() })), Ok(wanted));
    let refused = [
        (
            Wire::CreateToken(v1::TokenCreation { id: "x".into(), ..token() }),
            "create_token.id: \"x\" is not a token id",
        ),
        (
            Wire::CreateToken(v1::TokenCreation { hash: vec![7; 31].into(), ..token() }),
            "create_token.hash: must be 32 bytes",
        ),
        (Wire::CreateToken(v1::TokenCreation { ttl_ms: 1, ..token() }), "create_token.ttl_ms: 1ms is not between"),
        (Wire::CreateToken(v1::TokenCreation { node: "N".into(), ..token() }), "create_token.node: \"N\" is not a DNS"),
        (Wire::RevokeToken(v1::TokenRevocation { id: String::new() }), "revoke_token.id: \"\" is not a token id"),
        (Wire::RevokeNode(v1::NodeRevocation { name: String::new() }), "revoke_node.name: is required"),
    ];
    for (wire, wanted) in refused {
        let error = ask(wire).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
}
