//! Records of credentials: when a deleted node's record is removed, and that no certificate is admitted because of it.

use muster_lifecycle::command::{
    AgentOperation, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome,
};
use muster_lifecycle::credential::{BY_HAND_LIFE, FORGOTTEN_MAX, LATE_RENEWAL_MAX, SignedKey};
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::WallTime;
use muster_lifecycle::todo;
use proptest::prelude::*;

use crate::access::credentials::{create_token, enrol, renew, revoke};
use crate::fixture::cluster::*;
use crate::fixture::fleet::rebuilt;

const DAY: u64 = 86_400;
const TOKEN: &str = "tokentoken";
const SECOND: &str = "secondtoke";
/// The key of a certificate that was made by hand.
const BY_HAND: u8 = 9;

#[derive(Debug, Clone)]
enum Step {
    /// Signs the key of a machine that joins or renews, for so many days.
    Sign(Operation, u64),
    Wait(u64),
    Other(Operation),
}

use Step::{Other, Sign, Wait};

fn forget(name: &str) -> LeaderOperation {
    LeaderOperation::ForgetCredentials { names: vec![Text::from(name)] }
}

/// Signs by the clock of the signing replica, which may be `ahead` of the leader's by so many days.
fn sign(cluster: &Cluster, mut operation: Operation, days: u64, ahead: u64) -> Operation {
    let issued = cluster.now().wall.0 + (ahead * DAY * 1000) as i64;
    let expires = issued + (days * DAY * 1000) as i64;
    if let Operation::Agent(AgentOperation::EnrolNode { signed, .. } | AgentOperation::RenewCredential { signed, .. }) =
        &mut operation
    {
        *signed = SignedKey { key: signed.key, issued: WallTime(issued), expires: WallTime(expires) };
    }
    operation
}

fn submit(cluster: &mut Cluster, operation: impl Into<Operation>) -> bool {
    let operation = operation.into();
    let origin = match &operation {
        Operation::Leader(_) => Origin::Controller { term: cluster.term() },
        Operation::Agent(own) => Origin::Node { name: Text::from(own.node_name()) },
        Operation::Operator(_) | Operation::Replica(_) => alice(),
    };
    matches!(cluster.submit(Command { origin, request: None, operation }).outcomes[0], Outcome::Done(_))
}

/// Does what a leader finds to do.
fn tidy(cluster: &mut Cluster) {
    loop {
        let operations = todo::expired_credentials(&cluster.state, cluster.now().cluster).operations;
        if operations.is_empty() {
            return;
        }
        operations.into_iter().for_each(|operation| assert!(submit(cluster, operation)));
    }
}

fn take(cluster: &mut Cluster, step: &Step) -> bool {
    match step {
        Sign(operation, days) => {
            let operation = sign(cluster, operation.clone(), *days, 0);
            submit(cluster, operation)
        }
        Wait(days) => {
            cluster.wait(days * DAY);
            true
        }
        Other(operation) => submit(cluster, operation.clone()),
    }
}

fn with_tokens() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.done(create_token(TOKEN, Some("a")));
    cluster.done(create_token(SECOND, Some("a")));
    cluster
}

#[test]
fn a_record_is_removed_once_every_certificate_of_its_name_has_expired() {
    let join = |days| Sign(enrol("a", TOKEN, 1), days);
    let again = |days| Sign(enrol("a", SECOND, 2), days);
    let create = || Other(create(draft("a")).into());
    let cases: [(&[Step], Option<u64>); 12] = [
        // The life of the certificate and the time for renewing it late.
        (&[join(30)], Some(120)),
        (&[join(30), Wait(20), Sign(renew("a", 1, 2), 30)], Some(140)),
        // The machine that was replaced may have a certificate that lasts longer.
        (&[join(300), again(1)], Some(390)),
        (&[join(300), Wait(5), Sign(renew("a", 1, 2), 1)], Some(390)),
        // A certificate by hand may have been in use, or is.
        (&[create(), join(30), Other(delete("a").into())], Some(455)),
        (&[Sign(renew("a", 1, 2), 30)], Some(455)),
        // A revoked certificate may have been made by hand until then.
        (&[Other(revoke("a"))], Some(455)),
        (&[join(30), Wait(10), Other(revoke("a"))], Some(465)),
        (&[join(600), Other(revoke("a"))], Some(690)),
        // Never as long as there is a Node.
        (&[join(30), create()], None),
        (&[join(30), create(), Wait(1_000), Other(delete("a").into())], Some(1_000)),
        (&[join(30), create(), Other(delete("a").into()), create()], None),
    ];
    for (steps, day) in cases {
        let mut cluster = with_tokens();
        let begun = cluster.now().cluster.0;
        steps.iter().for_each(|step| assert!(take(&mut cluster, step), "{step:?}"));
        let due = todo::expired_credentials(&rebuilt(&cluster.state), cluster.now().cluster);
        let found = due.look_again_at.or((!due.operations.is_empty()).then(|| cluster.now().cluster));
        // Each command takes a second.
        assert_eq!(found.map(|found| (found.0 - begun) / 1000 / DAY), day, "{steps:?}");
        let Some(found) = found else { continue };
        let left = (found.0 - cluster.now().cluster.0) / 1000;
        cluster.wait(left.saturating_sub(10));
        submit(&mut cluster, forget("a"));
        assert_eq!(cluster.state.credentials().contains("a"), left > 10, "{steps:?}: too early");
        cluster.wait(10);
        tidy(&mut cluster);
        assert!(cluster.state.credentials().is_empty(), "{steps:?}");
    }
}

#[test]
fn a_wall_clock_that_is_ahead_does_not_remove_a_record_early() {
    let mut cluster = with_tokens();
    let operation = sign(&cluster, enrol("a", TOKEN, 1), 30, 1_000);
    assert!(submit(&mut cluster, operation));
    cluster.wait((1_030 + 89) * DAY);
    tidy(&mut cluster);
    assert!(cluster.state.credentials().contains("a"));
    cluster.wait(DAY);
    tidy(&mut cluster);
    assert!(cluster.state.credentials().is_empty());
}

#[test]
fn records_are_removed_a_few_at_a_time() {
    let mut cluster = Cluster::default();
    let names: Vec<String> = (0..=FORGOTTEN_MAX).map(|number| format!("n{number}")).collect();
    for name in &names {
        cluster.done(revoke(name));
    }
    cluster.wait((BY_HAND_LIFE + LATE_RENEWAL_MAX).as_secs());
    let all =
        LeaderOperation::ForgetCredentials { names: names.iter().map(|name| Text::from(name.as_str())).collect() };
    assert!(!submit(&mut cluster, all), "too many");
    let now = cluster.now().cluster;
    let operations = todo::expired_credentials(&cluster.state, now).operations;
    operations.into_iter().for_each(|operation| assert!(submit(&mut cluster, operation)));
    assert_eq!(cluster.state.credentials().len(), 1);
    tidy(&mut cluster);
    assert!(cluster.state.credentials().is_empty());
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = || prop_oneof![Just("a"), Just("b")];
    let days = || prop_oneof![Just(1u64), Just(30), Just(400)];
    prop_oneof![
        3 => (0u64..300).prop_map(Wait),
        2 => (node(), 1u8..6, days()).prop_map(|(node, key, days)| Sign(enrol(node, TOKEN, key), days)),
        2 => (node(), 1u8..6, 1u8..6, days()).prop_map(|(node, from, to, days)| Sign(renew(node, from, to), days)),
        1 => node().prop_map(|node| Other(revoke(node))),
        1 => node().prop_map(|node| Other(create(draft(node)).into())),
        1 => node().prop_map(|node| Other(delete(node).into())),
    ]
}

/// A certificate, and the last moment at which it is valid.
type Certificate = (String, Fingerprint, u64);

/// The certificate that a step makes. A revocation may concern one that was made by hand.
fn made(cluster: &Cluster, step: &Step) -> Option<Certificate> {
    let ends = |days: u64| cluster.now().cluster.0 + (days * DAY + LATE_RENEWAL_MAX.as_secs()) * 1000;
    match step {
        Sign(
            Operation::Agent(
                AgentOperation::EnrolNode { node, signed, .. } | AgentOperation::RenewCredential { node, signed, .. },
            ),
            days,
        ) => Some((node.to_string(), signed.key, ends(*days))),
        Other(Operation::Operator(OperatorOperation::RevokeNode { name })) => {
            Some((name.to_string(), Fingerprint([BY_HAND; 32]), ends(BY_HAND_LIFE.as_secs() / DAY)))
        }
        Sign(..) | Other(_) | Wait(_) => None,
    }
}

proptest! {
    /// Whatever happened before: no certificate is let in because a name was forgotten.
    #[test]
    fn no_certificate_is_admitted_because_a_record_was_removed(steps in proptest::collection::vec(any_step(), 0..40)) {
        let mut cluster = Cluster::default();
        let mut certificates: Vec<Certificate> = Vec::new();
        for step in steps {
            // A new token of the same name for each machine that joins.
            if matches!(step, Sign(Operation::Agent(AgentOperation::EnrolNode { .. }), _)) {
                cluster.wait(40 * DAY);
                let _ = cluster.run(create_token(TOKEN, None));
            }
            let certificate = made(&cluster, &step);
            if take(&mut cluster, &step) {
                certificates.extend(certificate);
            }
            let now = cluster.now().cluster.0;
            let good = certificates.iter().filter(|(_, _, ends)| now < *ends);
            let refused: Vec<_> = good.filter(|(node, key, _)| cluster.state.admits_key(node, key).is_err()).collect();
            tidy(&mut cluster);
            for (node, key, _) in refused {
                prop_assert!(cluster.state.admits_key(node, key).is_err(), "{} got in with {:?}", node, key);
            }
        }
    }
}
