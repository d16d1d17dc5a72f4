//! Tests of the table of claims, under a clock that the test sets.

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
const FIRST: u64 = 0xab12_0000_0000_0001;
const SECOND: u64 = 0xcd34_0000_0000_0002;

#[test]
fn i_14_another_instance_is_refused_and_told_which_one_holds_the_session() {
    let mut rig = Rig::new();
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 0), "");
    rig.beat(ReplicaId(2), 8_000);
    assert_eq!(
        rig.claim(ReplicaId(3), SECOND, 9_200),
        "another instance (ab12…) at replica 2 from 10.0.0.7:4711, last heard 1.2 s ago"
    );
}

#[test]
fn the_same_instance_takes_over_and_its_old_replica_is_told_until_it_releases() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 50), "");
    assert_eq!(rig.poll(ReplicaId(2), 60), [], "on the same replica there is nothing to tell");
    assert_eq!(rig.claim(ReplicaId(3), FIRST, 100), "");
    let taken_over = v1::TakenOver { slot: 5, generation: 1, instance: FIRST, replica: 3, by_another: false };
    assert_eq!(rig.poll(ReplicaId(2), 200), [taken_over]);
    assert_eq!(rig.poll(ReplicaId(2), 300), [taken_over], "the first answer may have been lost");
    rig.release(ReplicaId(2), SECOND);
    assert_eq!(rig.poll(ReplicaId(2), 400), [taken_over], "that was not the session that was meant");
    rig.release(ReplicaId(2), FIRST);
    assert_eq!(rig.poll(ReplicaId(2), 500), []);
    assert_eq!(rig.poll(ReplicaId(3), 500), []);
    assert_eq!(rig.holder(), ReplicaId(3), "the release of a session that was taken over does not end its successor");
}

#[test]
fn a_replica_that_holds_a_session_again_is_not_told_that_it_lost_it() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    rig.claim(ReplicaId(3), FIRST, 100);
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 200), "");
    assert_eq!(rig.poll(ReplicaId(2), 300), []);
    assert_eq!(rig.poll(ReplicaId(3), 300).len(), 1);
}

#[test]
fn a_replica_that_was_cut_off_does_not_take_back_a_session_that_moved() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    assert_eq!(rig.claim(ReplicaId(3), FIRST, 10_000), "");
    rig.release(ReplicaId(2), FIRST);
    rig.beat(ReplicaId(3), 39_000);
    // Replica 2 still has its first stream, and claims it anew.
    rig.held_ms = 40_000;
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 40_000), "");
    assert_eq!((rig.holder(), rig.poll(ReplicaId(3), 40_100)), (ReplicaId(3), vec![]), "the living session stays");
    let continued = v1::TakenOver { slot: 5, generation: 1, instance: FIRST, replica: 3, by_another: false };
    assert_eq!(rig.poll(ReplicaId(2), 40_100), [continued], "and the stale one ends");
    // That does not hold up an agent that attaches to replica 2 anew.
    rig.held_ms = 0;
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 41_000), "");
    assert_eq!((rig.holder(), rig.poll(ReplicaId(2), 41_100)), (ReplicaId(2), vec![]));
}

#[test]
fn before_a_new_leader_an_agents_younger_session_wins_in_either_order() {
    for order in [[(2, 60_000), (3, 5_000)], [(3, 5_000), (2, 60_000)]] {
        let mut rig = Rig::new();
        rig.beat(ReplicaId(2), 59_500);
        rig.beat(ReplicaId(3), 59_900);
        for (replica, held_ms) in order {
            rig.held_ms = held_ms;
            assert_eq!(rig.claim(ReplicaId(replica), FIRST, 60_000), "");
        }
        assert_eq!((rig.holder(), rig.poll(ReplicaId(3), 60_100)), (ReplicaId(3), vec![]));
        assert_eq!(rig.poll(ReplicaId(2), 60_100).len(), 1);
    }
}

#[test]
fn a_younger_session_that_fell_silent_is_taken_over() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(3), FIRST, 10_000);
    rig.held_ms = 40_000;
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 40_000), "");
    assert_eq!(rig.holder(), ReplicaId(2));
}

#[test]
fn a_holder_silent_for_three_beats_is_displaced() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    rig.beat(ReplicaId(2), 10_000);
    assert_ne!(rig.claim(ReplicaId(3), SECOND, 39_999), "");
    assert_eq!(rig.claim(ReplicaId(3), SECOND, 40_000), "");
    let told = rig.poll(ReplicaId(2), 40_100);
    assert!(told[0].by_another && told[0].instance == FIRST && told[0].replica == 3);
    assert_ne!(rig.claim(ReplicaId(2), FIRST, 40_200), "", "the newcomer holds it now");
}

#[test]
fn a_beat_at_another_replica_does_not_keep_a_holder() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    rig.beat(ReplicaId(1), 29_000);
    assert_eq!(rig.claim(ReplicaId(3), SECOND, 30_000), "");
}

#[test]
fn before_a_new_leader_the_older_session_wins() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(3), SECOND, 1_000);
    rig.held_ms = 60_000;
    assert_ne!(
        rig.claim(ReplicaId(2), FIRST, 1_200),
        "",
        "one that was not heard recently is no better than a newcomer"
    );
    rig.beat(ReplicaId(2), 1_100);
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 1_200), "");
    let told = rig.poll(ReplicaId(3), 1_300);
    assert!(told[0].by_another && told[0].instance == SECOND && told[0].replica == 2);
    rig.held_ms = 300;
    rig.beat(ReplicaId(3), 1_300);
    assert_ne!(rig.claim(ReplicaId(3), SECOND, 1_300), "", "and the younger does not come back");
}

#[test]
fn only_the_holder_releases() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    rig.release(ReplicaId(3), FIRST);
    rig.release(ReplicaId(2), SECOND);
    assert_ne!(rig.claim(ReplicaId(3), SECOND, 100), "");
    rig.number = 2;
    rig.claim(ReplicaId(2), FIRST, 150);
    rig.number = 1;
    rig.release(ReplicaId(2), FIRST);
    assert_ne!(rig.claim(ReplicaId(3), SECOND, 160), "", "that was the release of an earlier session");
    rig.number = 2;
    rig.release(ReplicaId(2), FIRST);
    assert_eq!(rig.claim(ReplicaId(3), SECOND, 200), "");
}

#[test]
fn a_slot_of_a_new_generation_is_another_node() {
    let mut rig = Rig::new();
    rig.claim(ReplicaId(2), FIRST, 0);
    rig.generation = 2;
    assert_eq!(rig.claim(ReplicaId(3), SECOND, 100), "");
    assert_eq!(rig.poll(ReplicaId(2), 150), [], "its node is gone, which it hears from the state");
    rig.generation = 1;
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 200), "its successor: the node was deleted and created anew");
}

#[test]
fn a_leader_elected_again_while_claims_arrive_starts_over() {
    let mut rig = Rig::new();
    let mut table = TermTable::default();
    table.begin(4);
    rig.claim(ReplicaId(2), FIRST, 0);
    table.claims = std::mem::take(&mut rig.table);
    table.begin(4);
    assert_eq!(table.claims.holders.len(), 1, "the term goes on");
    table.begin(6);
    assert!(table.claims.holders.is_empty(), "another leader may have granted it elsewhere meanwhile");
    rig.table = table.claims;
    assert_eq!(
        rig.claim(ReplicaId(3), SECOND, 100),
        "",
        "the first to claim holds it until the older session is claimed"
    );
    rig.beat(ReplicaId(2), 200);
    rig.held_ms = 60_000;
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 200), "");
    assert_eq!(
        (rig.holder(), rig.poll(ReplicaId(3), 300).len()),
        (ReplicaId(2), 1),
        "the older session wins and the younger one is told"
    );
}

#[test]
fn fields_of_claims_are_bounded() {
    let mut rig = Rig::new();
    let long = v1::SessionClaim { remote: "ä".repeat(500), ..rig.session(FIRST) };
    let tables = rig.tables.clone();
    let context = ClaimContext { tables: &tables, now: at(0), patience: PATIENCE, untold: BTreeSet::new() };
    rig.table.claim(ReplicaId(2), &long, &context).unwrap();
    assert!(rig.table.holders[&5].remote.len() <= REMOTE_MAX);
    let beyond = v1::SessionClaim { slot: u32::MAX, ..rig.session(FIRST) };
    assert!(rig.table.claim(ReplicaId(2), &beyond, &context).is_err());
}

/// A new leader knows no sessions, and the clone asks first.
#[test]
fn i_14_a_newcomer_is_settled_only_after_the_residents_were_claimed() {
    let mut rig = Rig::new();
    rig.beat(ReplicaId(2), 8_000);
    let newcomer = v1::SessionClaim { newcomer: true, ..rig.session(SECOND) };
    let claims = |claim: &v1::SessionClaim| v1::ClaimRequest { claims: vec![claim.clone()], ..Default::default() };
    let granted = |unsettled| v1::ClaimAnswer { held_by: String::new(), unsettled };
    assert_eq!(rig.ask(ReplicaId(3), &claims(&newcomer), 9_000).answers, [granted(true)]);
    let mut settled = Rig::new();
    settled.beat(ReplicaId(2), 8_000);
    for replica in [1, 2] {
        settled.ask(ReplicaId(replica), &v1::ClaimRequest { all_claimed: true, ..Default::default() }, 8_500);
    }
    assert_eq!(settled.ask(ReplicaId(3), &claims(&newcomer), 9_000).answers, [granted(false)], "none has it");
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 10_000), "", "the resident takes over");
    assert!(rig.poll(ReplicaId(3), 10_100)[0].by_another);
    assert_ne!(rig.ask(ReplicaId(3), &claims(&newcomer), 10_200).answers[0].held_by, "");
}

/// The original was attached to the replica that died, and finds another one after its clone did.
#[test]
fn i_14_a_newcomer_waits_as_long_as_a_holder_may_be_silent_and_gives_way_meanwhile() {
    let mut rig = Rig::new();
    rig.beat(ReplicaId(1), 8_000);
    let newcomer = v1::SessionClaim { newcomer: true, ..rig.session(SECOND) };
    let request = v1::ClaimRequest { claims: vec![newcomer], all_claimed: true, ..Default::default() };
    rig.ask(ReplicaId(2), &v1::ClaimRequest { all_claimed: true, ..Default::default() }, 8_500);
    for (millis, unsettled) in [(9_000, true), (37_999, true), (38_000, false)] {
        assert_eq!(rig.ask(ReplicaId(3), &request, millis).answers[0].unsettled, unsettled, "{millis}");
    }
    assert_ne!(rig.claim(ReplicaId(2), FIRST, 38_001), "", "it is settled now");
    let mut rig = Rig::new();
    rig.beat(ReplicaId(1), 8_000);
    rig.ask(ReplicaId(3), &request, 9_000);
    assert_eq!(rig.claim(ReplicaId(2), FIRST, 9_500), "");
    assert_eq!(rig.holder(), ReplicaId(2));
}

struct Rig {
    table: ClaimTable,
    tables: PulseTables,
    generation: u32,
    number: u64,
    held_ms: u64,
}

impl Rig {
    fn new() -> Self {
        let mut tables = PulseTables::new(ReplicaId(1));
        for peer in [2, 3] {
            tables.admit(ReplicaId(peer)).unwrap();
        }
        Self { table: ClaimTable::default(), tables, generation: 1, number: 1, held_ms: 0 }
    }

    fn session(&self, instance: u64) -> v1::SessionClaim {
        let remote = "10.0.0.7:4711".to_owned();
        // Sessions of two instances are never the same.
        let number = self.number ^ instance;
        v1::SessionClaim {
            slot: 5,
            generation: self.generation,
            instance,
            remote,
            number,
            held_ms: self.held_ms,
            newcomer: false,
        }
    }

    fn ask(&mut self, from: ReplicaId, request: &v1::ClaimRequest, millis: u64) -> v1::ClaimResponse {
        let context =
            ClaimContext { tables: &self.tables, now: at(millis), patience: PATIENCE, untold: BTreeSet::new() };
        self.table.answer(from, request, &context)
    }

    fn claim(&mut self, from: ReplicaId, instance: u64, millis: u64) -> String {
        let claims = vec![self.session(instance)];
        let mut response = self.ask(from, &v1::ClaimRequest { claims, ..Default::default() }, millis);
        response.answers.remove(0).held_by
    }

    fn release(&mut self, from: ReplicaId, instance: u64) {
        let releases = vec![self.session(instance)];
        self.ask(from, &v1::ClaimRequest { releases, ..Default::default() }, 0);
    }

    fn poll(&mut self, from: ReplicaId, millis: u64) -> Vec<v1::TakenOver> {
        self.ask(from, &v1::ClaimRequest::default(), millis).taken_over
    }

    fn holder(&self) -> ReplicaId {
        self.table.holders[&5].replica
    }

    fn beat(&mut self, through: ReplicaId, millis: u64) {
        let slot = Slot { index: 5, generation: self.generation };
        let (_, table) = self.tables.iter().find(|(replica, _)| *replica == through).unwrap();
        let _ = table.beat(slot, at(millis));
    }
}

fn at(millis: u64) -> Tick {
    Tick::since_boot(Duration::from_millis(millis))
}
