//! Credentials: which machine may join, which key speaks for a node, and which machine is revoked.

use std::time::Duration;

use muster_lifecycle::command::{
    AgentOperation, Batch, Command, Operation, OperatorOperation, Origin, Outcome, Position,
};
use muster_lifecycle::credential::{Distrust, SignedKey};
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::invariant::check_all;
use muster_lifecycle::join_token::{REMEMBERED, TOKENS_MAX, TTL_MAX, TokenState};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::name::dns_subdomain;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::state::{Applied, State};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{Stamp, WallTime};
use proptest::prelude::*;

use crate::fixture::cluster::*;
use crate::fixture::fleet::rebuilt;

const ANY_NODE: &str = "anynode000";
const ONLY_A: &str = "onlynodea0";
const TTL: Duration = Duration::from_secs(600);

fn key(number: u8) -> Fingerprint {
    Fingerprint([number; 32])
}

/// Every token of these tests has the same secret.
fn secret() -> Fingerprint {
    Fingerprint([0xaa; 32])
}

fn signed(number: u8) -> SignedKey {
    SignedKey { key: key(number), issued: WallTime(1), expires: WallTime(2) }
}

pub(crate) fn create_token(id: &str, node: Option<&str>) -> Operation {
    let ttl_ms = TTL.as_millis() as u64;
    OperatorOperation::CreateToken { id: Text::from(id), hash: secret(), node: node.map(Text::from), ttl_ms }.into()
}

pub(crate) fn revoke_token(id: &str) -> Operation {
    OperatorOperation::RevokeToken { id: Text::from(id) }.into()
}

pub(crate) fn enrol(node: &str, token: &str, key: u8) -> Operation {
    let (node, token) = (Text::from(node), Text::from(token));
    AgentOperation::EnrolNode { node, token, secret: secret(), signed: signed(key) }.into()
}

pub(crate) fn renew(node: &str, from: u8, to: u8) -> Operation {
    AgentOperation::RenewCredential { node: Text::from(node), from: key(from), signed: signed(to), late: false }.into()
}

pub(crate) fn revoke(node: &str) -> Operation {
    OperatorOperation::RevokeNode { name: Text::from(node) }.into()
}

pub(crate) fn confirm(node: &str, with: u8) -> Operation {
    AgentOperation::ConfirmCredential { node: Text::from(node), key: key(with) }.into()
}

/// Submits the operation as an origin that is entitled to it.
fn run(cluster: &mut Cluster, operation: Operation) -> Applied {
    let origin = match &operation {
        Operation::Agent(own) => Origin::Node { name: Text::from(own.node_name()) },
        Operation::Operator(_) | Operation::Leader(_) | Operation::Replica(_) => alice(),
    };
    cluster.submit(Command { origin, request: None, operation })
}

fn told_by(cluster: &mut Cluster, operation: Operation) -> String {
    told(&run(cluster, operation).outcomes[0])
}

/// Does `steps`, and returns the outcome of the last one.
fn last(steps: &[Operation]) -> String {
    let mut cluster = with_tokens();
    steps.iter().fold(String::new(), |_, step| told_by(&mut cluster, step.clone()))
}

fn with_tokens() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.done(create_token(ANY_NODE, None));
    cluster.done(create_token(ONLY_A, Some("a")));
    cluster
}

fn admits(cluster: &Cluster, node: &str, number: u8) -> String {
    match cluster.state.admits_key(node, &key(number)) {
        Ok(()) => "admitted".to_owned(),
        Err(distrust) => distrust.reason().to_owned(),
    }
}

#[test]
fn a_token_admits_one_machine_once() {
    let (node, token) = (Text::from("a"), Text::from(ANY_NODE));
    let wrong = AgentOperation::EnrolNode { node, token, secret: key(0), signed: signed(1) }.into();
    let again = create_token("secondtoke", None);
    let for_a = create_token("thirdtoken", Some("a"));
    let cases: [(&[Operation], &str); 16] = [
        (&[enrol("a", ANY_NODE, 1)], "created"),
        (&[enrol("a", ONLY_A, 1)], "created"),
        // The answer was lost, and the same machine asks again.
        (&[enrol("a", ANY_NODE, 1), enrol("a", ANY_NODE, 1)], "unchanged"),
        (&[enrol("a", ANY_NODE, 1), enrol("a", ANY_NODE, 2)], "token anynode000 was used already, by node \"a\""),
        (&[enrol("a", ANY_NODE, 1), enrol("b", ANY_NODE, 1)], "token anynode000 was used already, by node \"a\""),
        (&[enrol("a", ONLY_A, 1), revoke("a"), enrol("a", ONLY_A, 1)], "token onlynodea0 was used already"),
        (&[enrol("b", ONLY_A, 1)], "token onlynodea0 is for node \"a\" alone"),
        (&[enrol("a", "unknown000", 1)], "token unknown000 is not known here"),
        (&[wrong], "the secret of token anynode000 is wrong"),
        (&[revoke_token(ANY_NODE), enrol("a", ANY_NODE, 1)], "token anynode000 was revoked"),
        (&[enrol("Not_a_name", ANY_NODE, 1)], "node: \"Not_a_name\" is not a DNS-1123 subdomain"),
        // A token that names no node takes no node's place, not even after a revocation; one that names the node
        // does.
        (&[enrol("a", ONLY_A, 1), enrol("a", ANY_NODE, 2)], "node \"a\" is there already"),
        (&[enrol("a", ANY_NODE, 1), enrol("a", ONLY_A, 2)], "created"),
        (
            &[enrol("a", ANY_NODE, 1), revoke("a"), again, enrol("a", "secondtoke", 2)],
            "node \"a\" was revoked by alice",
        ),
        (&[enrol("a", ANY_NODE, 1), revoke("a"), for_a, enrol("a", "thirdtoken", 2)], "created"),
        // A token that was meant for the machine before it was revoked does not bring it back.
        (&[revoke("a"), enrol("a", ONLY_A, 1)], "token onlynodea0 was revoked"),
    ];
    for (steps, wanted) in cases {
        let got = last(steps);
        assert!(got.starts_with(wanted), "{steps:?}: {got}");
    }
}

#[test]
fn a_token_expires_by_cluster_time() {
    let mut cluster = with_tokens();
    cluster.wait(TTL.as_secs());
    let got = told_by(&mut cluster, enrol("a", ANY_NODE, 1));
    assert!(got.starts_with("token anynode000 has expired: make a new one"), "{got}");
    let token = cluster.state.join_tokens().get(ANY_NODE).unwrap();
    assert_eq!(token.state(cluster.now().cluster), TokenState::Expired);
    // A machine that was let in before may still fetch the answer.
    let mut cluster = with_tokens();
    run(&mut cluster, enrol("a", ANY_NODE, 1));
    cluster.wait(TTL.as_secs());
    assert_eq!(told_by(&mut cluster, enrol("a", ANY_NODE, 1)), "unchanged");
}

#[test]
fn a_node_that_reported_a_status_cannot_be_joined_again() {
    for (status, wanted) in [
        (Some(ConditionStatus::True), "node \"n\" is there already"),
        (Some(ConditionStatus::False), "node \"n\" is there already"),
        (Some(ConditionStatus::Unknown), "node \"n\" is there already"),
        (None, "created"),
    ] {
        let mut cluster = with_tokens();
        cluster.create(draft("n"));
        if let Some(status) = status {
            cluster.done(replace_status("n", ready(status)));
        }
        let got = told_by(&mut cluster, enrol("n", ANY_NODE, 1));
        assert!(got.starts_with(wanted), "{status:?}: {got}");
    }
}

#[test]
fn only_the_signed_key_is_admitted_for_a_node() {
    let cases: [(&[Operation], [&str; 3]); 9] = [
        // Never signed for: the certificate alone decides.
        (&[], ["admitted", "admitted", "admitted"]),
        (&[enrol("a", ONLY_A, 1)], ["admitted", "OtherKey", "OtherKey"]),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2)], ["admitted", "admitted", "OtherKey"]),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), confirm("a", 2)], ["OtherKey", "admitted", "OtherKey"]),
        // The old key used again confirms nothing.
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), confirm("a", 1)], ["admitted", "admitted", "OtherKey"]),
        // The answer was lost, and the machine asks with another new key.
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), renew("a", 1, 3)], ["admitted", "OtherKey", "admitted"]),
        (&[enrol("a", ANY_NODE, 1), enrol("a", ONLY_A, 2)], ["OtherKey", "admitted", "OtherKey"]),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), revoke("a")], ["RevokedNode", "RevokedNode", "RevokedNode"]),
        (&[revoke("a")], ["RevokedNode", "RevokedNode", "RevokedNode"]),
    ];
    for (steps, wanted) in cases {
        let mut cluster = with_tokens();
        steps.iter().for_each(|step| drop(run(&mut cluster, step.clone())));
        let state = rebuilt(&cluster.state);
        cluster.state = state;
        assert_eq!([1, 2, 3].map(|number| admits(&cluster, "a", number)), wanted, "{steps:?}");
        let revoked = wanted[0] == "RevokedNode";
        assert_eq!(cluster.state.admits_carried("a").is_err(), revoked, "{steps:?}");
    }
}

#[test]
fn a_renewal_needs_the_current_key() {
    let cases: [(&[Operation], &str); 6] = [
        (&[renew("a", 1, 2)], "changed"),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), renew("a", 1, 2)], "unchanged"),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 1)], "csr: asks for the key that the node has"),
        (&[enrol("a", ONLY_A, 1), renew("a", 3, 2)], "this certificate of node \"a\" was replaced by another"),
        (&[enrol("a", ONLY_A, 1), revoke("a"), renew("a", 1, 2)], "node \"a\" was revoked by alice"),
        (&[revoke("a"), renew("a", 1, 2)], "node \"a\" was revoked by alice"),
    ];
    for (steps, wanted) in cases {
        let got = last(steps);
        assert!(got.starts_with(wanted), "{steps:?}: {got}");
    }
}

/// A session lasts through any number of renewals, until the node is revoked or another machine takes its place.
#[test]
fn an_open_session_lasts_until_its_node_is_revoked_or_replaced() {
    let twice = [enrol("a", ONLY_A, 1), renew("a", 1, 2), confirm("a", 2), renew("a", 2, 3), confirm("a", 3)];
    let by_hand = [renew("a", 1, 2), confirm("a", 2), renew("a", 2, 3)];
    let replaced = [enrol("a", ANY_NODE, 1), enrol("a", ONLY_A, 2)];
    let cases: [(&[Operation], bool); 5] = [
        (&[], true),
        (&twice, true),
        (&by_hand, true),
        (&replaced, false),
        (&[enrol("a", ONLY_A, 1), renew("a", 1, 2), revoke("a")], false),
    ];
    for (steps, stays) in cases {
        let mut cluster = with_tokens();
        let mut session = key(1);
        for (done, step) in steps.iter().enumerate() {
            run(&mut cluster, step.clone());
            if done == 0 {
                session = cluster.state.lineage_of("a", &key(1));
            }
        }
        assert_eq!(cluster.state.admits_lineage("a", &session).is_ok(), stays, "{steps:?}");
    }
}

/// A node that renewed after the backup was made has a key that is not in it.
#[test]
fn a_restore_admits_renewed_keys_and_no_revoked_node() {
    let mut cluster = with_tokens();
    [enrol("a", ANY_NODE, 1), revoke("b")].into_iter().for_each(|step| drop(run(&mut cluster, step)));
    cluster.state.raise_revision(1_000, 2);
    cluster.state = rebuilt(&cluster.state);
    assert_eq!(admits(&cluster, "a", 2), "admitted");
    assert_eq!(admits(&cluster, "b", 2), "RevokedNode");
    let got = told_by(&mut cluster, enrol("a", ONLY_A, 3));
    assert!(got.starts_with("token onlynodea0 was revoked"), "it may have been used: {got}");
}

#[test]
fn a_revoked_node_writes_nothing() {
    let mut cluster = with_tokens();
    cluster.create(draft("a"));
    let incarnation = cluster.state.node("a").unwrap().incarnation;
    run(&mut cluster, revoke("a"));
    let node = Text::from("a");
    let writes = [
        AgentOperation::RegisterNode { draft: Box::new(draft("a")), uid: Uid(7), running: None },
        AgentOperation::ReportPods { node: node.clone(), incarnation, reports: Vec::new() },
        AgentOperation::ReportStatus { name: node, incarnation, status: Box::default(), running: None },
    ];
    for write in writes {
        let got = told_by(&mut cluster, write.clone().into());
        assert!(got.starts_with("node \"a\" was revoked by alice"), "{write:?}: {got}");
    }
}

#[test]
fn tokens_are_created_and_revoked() {
    let short =
        OperatorOperation::CreateToken { id: Text::from("shortshort"), hash: secret(), node: None, ttl_ms: 59_999 }
            .into();
    let ttl_ms = TTL_MAX.as_millis() as u64 + 1;
    let long =
        OperatorOperation::CreateToken { id: Text::from("longlonglo"), hash: secret(), node: None, ttl_ms }.into();
    let cases: [(&[Operation], &str); 8] = [
        (&[short], "ttl: 59.999s is not between 1 minute and 30 days"),
        (&[long], "ttl: "),
        (&[create_token("short", None)], "id: \"short\" is not a token id"),
        (&[create_token(ANY_NODE, None)], "id: token anynode000 exists already; draw another"),
        (&[create_token("anewtoken0", Some("Not_a_name"))], "node: \"Not_a_name\" is not a DNS-1123 subdomain"),
        (&[revoke_token(ANY_NODE), revoke_token(ANY_NODE)], "unchanged"),
        (&[revoke_token("unknown000")], "token unknown000 is not known: it was never made here"),
        (
            &[enrol("a", ANY_NODE, 1), revoke_token(ANY_NODE)],
            "token anynode000 cannot be revoked: node \"a\" has joined with it",
        ),
    ];
    for (steps, wanted) in cases {
        let got = last(steps);
        assert!(got.starts_with(wanted), "{steps:?}: {got}");
    }
}

#[test]
fn changes_of_credentials_have_events() {
    let mut cluster = with_tokens();
    let late =
        AgentOperation::RenewCredential { node: Text::from("a"), from: key(1), signed: signed(2), late: true }.into();
    let (remote, why) = ("10.0.0.1:7".parse().unwrap(), Box::new(Distrust::ExpiredToken { id: Text::from("x") }));
    let refusal = AgentOperation::NoteRefusal { node: Text::from("a"), remote, why }.into();
    let told = "10.0.0.1:7 was not let in: token x has expired: make a new one with `muster token create`";
    let steps = [
        (enrol("a", ONLY_A, 1), "NodeEnrolled: joined with token onlynodea0"),
        (late, "ExpiredCertificateRenewed: renewed its certificate after it had expired"),
        (revoke("a"), "NodeRevoked: its credentials were revoked by alice"),
        (refusal, &format!("EnrolmentRefused: {told}")),
    ];
    for (operation, wanted) in steps {
        assert_eq!(events(&run(&mut cluster, operation)), [wanted]);
    }
    assert!(events(&run(&mut cluster, confirm("a", 2))).is_empty());
}

#[test]
fn an_event_about_a_long_name_has_a_name_that_is_possible() {
    let mut cluster = with_tokens();
    // The second has a dot where the room for the number begins.
    for labels in [&[63, 63, 63, 61][..], &[63, 63, 63, 58, 2]] {
        let node = labels.iter().map(|length| "x".repeat(*length)).collect::<Vec<_>>().join(".");
        assert_eq!(node.len(), 253);
        run(&mut cluster, revoke(&node));
        let event = cluster.state.events().iter().next_back().unwrap();
        assert_eq!(event.subject.name, *node);
        assert!(event.meta.name.starts_with(&node[..250]), "{}", event.meta.name);
        assert_eq!(dns_subdomain(&event.meta.name), Ok(()));
    }
}

#[test]
fn a_machine_refused_by_its_token_changes_nothing_and_gets_advice() {
    let mut cluster = with_tokens();
    let origin = Origin::Node { name: Text::from("b") };
    let rejection = cluster.refused(Command { origin, request: None, operation: enrol("b", ONLY_A, 1) });
    assert!(rejection.to_string().contains("muster token create --node b"), "{rejection}");
}

#[test]
fn tokens_are_bounded_and_ended_ones_are_removed() {
    let mut state = State::new();
    let create = |number: usize| create_token(&format!("t{number:09}"), None);
    let apply = |state: &mut State, at: Stamp, operations: Vec<Operation>| {
        let command = |operation| Command { origin: alice(), request: None, operation };
        let batch = Batch { stamp: at, commands: operations.into_iter().map(command).collect() };
        let applied = state.apply(Position { term: TERM, index: 1 }, &batch);
        check_all(state).unwrap();
        applied.outcomes.last().map(told).unwrap()
    };
    apply(&mut state, stamp(1), (0..TOKENS_MAX).map(create).collect());
    let full = "limit reached: open join tokens (at most 4096)";
    assert_eq!(apply(&mut state, stamp(2), vec![create(5_000)]), full);
    assert_eq!(apply(&mut state, stamp(3), vec![revoke_token("t000000007"), create(5_000)]), "created");
    assert!(!state.join_tokens().contains("t000000007"));
    assert_eq!(apply(&mut state, stamp(4), vec![create(5_001)]), full);
    // Expired tokens make room one by one, and after a while all at once.
    let expired = 3 + TTL.as_secs();
    assert_eq!(apply(&mut state, stamp(expired), vec![create(5_001)]), "created");
    assert_eq!(state.join_tokens().len(), TOKENS_MAX);
    assert_eq!(apply(&mut state, stamp(expired + REMEMBERED.as_secs()), vec![create(5_002)]), "created");
    assert_eq!(state.join_tokens().len(), 2);
}

fn any_step() -> impl Strategy<Value = Operation> {
    let node = || prop_oneof![Just("a"), Just("b")];
    let token = || prop_oneof![Just(ANY_NODE), Just(ONLY_A), Just("thirdtoken")];
    prop_oneof![
        (token(), proptest::option::of(node())).prop_map(|(id, node)| create_token(id, node)),
        token().prop_map(revoke_token),
        (node(), token(), 1u8..5).prop_map(|(node, token, key)| enrol(node, token, key)),
        (node(), 1u8..5, 1u8..5).prop_map(|(node, from, to)| renew(node, from, to)),
        (node(), 1u8..5).prop_map(|(node, key)| confirm(node, key)),
        node().prop_map(revoke),
    ]
}

proptest! {
    /// Whatever is asked in whatever order: a token lets in one node, and no revoked node is believed until a token
    /// lets it in again.
    #[test]
    fn a_token_admits_one_node_and_a_revoked_node_needs_another(steps in proptest::collection::vec(any_step(), 0..40)) {
        let mut cluster = with_tokens();
        let mut revoked = std::collections::BTreeSet::new();
        for step in steps {
            let done = matches!(run(&mut cluster, step.clone()).outcomes[0], Outcome::Done(_));
            if let (Operation::Operator(OperatorOperation::RevokeNode { name }), true) = (&step, done) {
                revoked.insert(name.clone());
            }
            if let (Operation::Agent(AgentOperation::EnrolNode { node, .. }), true) = (&step, done) {
                revoked.remove(node);
            }
            for node in ["a", "b"] {
                prop_assert_eq!(cluster.state.admits_carried(node).is_err(), revoked.contains(node), "{:?}", step);
            }
        }
        prop_assert!(check_all(&rebuilt(&cluster.state)).is_ok());
    }
}
