//! The search on histories that are known to be linearizable or not, and against trying every order.
#![allow(clippy::unwrap_used)]

use muster_checker::register::{Bystanders, RegisterAnswer, RegisterCall, RegisterOperation, RegisterState};
use muster_checker::search::{NotLinearizable, linearizable, linearizable_within};
use muster_checker::stale;
use proptest::prelude::*;

use Bystanders::{Absent, Present};
use RegisterAnswer::{Conflict, Failed, Found, Unknown, Written};
use RegisterCall::{Read, StaleRead, Swap, Write};

fn operation(start: u64, end: u64, call: RegisterCall, answer: RegisterAnswer) -> RegisterOperation {
    RegisterOperation { key: 0, client: 0, replica: 1, start, end, call, answer }
}

fn found(value: u64, revision: u64) -> RegisterAnswer {
    Found { value: Some(value), revision }
}

fn is_violation(history: &[RegisterOperation]) -> bool {
    matches!(linearizable(history, Present), Err(NotLinearizable::Violation(_)))
}

#[test]
fn i_09_operations_one_after_the_other_are_linearizable() {
    let history = [
        operation(0, 1, Read, Found { value: None, revision: 1 }),
        operation(2, 3, Write(10), Written { revision: 2 }),
        operation(4, 5, Read, found(10, 2)),
        operation(6, 7, Swap { expected: 2, value: 11 }, Written { revision: 3 }),
        operation(8, 9, Swap { expected: 2, value: 12 }, Conflict),
        operation(10, 11, Read, found(11, 3)),
    ];
    assert_eq!(linearizable(&history, Absent), Ok(()));
}

#[test]
fn i_09_concurrent_reads_may_see_a_write_or_not_but_not_both_ways_round() {
    let write = operation(0, 10, Write(10), Written { revision: 2 });
    let old = |start, end| operation(start, end, Read, Found { value: None, revision: 1 });
    let new = |start, end| operation(start, end, Read, found(10, 2));
    assert_eq!(linearizable(&[write.clone(), old(1, 2), new(3, 4)], Absent), Ok(()));
    assert!(is_violation(&[write, new(1, 2), old(3, 4)]));
}

#[test]
fn i_09_a_stale_read_is_found() {
    let history = [
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 3, Write(11), Written { revision: 3 }),
        operation(4, 5, Read, found(10, 2)),
    ];
    assert!(is_violation(&history));
}

#[test]
fn i_09_a_lost_update_is_found() {
    let both = [
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 6, Swap { expected: 2, value: 11 }, Written { revision: 3 }),
        operation(2, 6, Swap { expected: 2, value: 12 }, Written { revision: 4 }),
    ];
    assert!(is_violation(&both));
    let swallowed = [
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 3, Write(11), Written { revision: 3 }),
        operation(4, 5, Write(12), Written { revision: 4 }),
        operation(6, 7, Read, found(11, 3)),
    ];
    assert!(is_violation(&swallowed));
}

#[test]
fn i_09_the_value_of_a_write_that_failed_is_found() {
    for answer in [Failed, Conflict] {
        let call = Swap { expected: 1, value: 10 };
        assert!(is_violation(&[operation(0, 1, call, answer), operation(2, 3, Read, found(10, 2))]), "{answer:?}");
    }
}

#[test]
fn i_09_a_value_that_comes_back_is_found() {
    let history = [
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 3, Write(11), Written { revision: 3 }),
        operation(4, 5, Read, found(11, 3)),
        operation(6, 7, Read, found(10, 4)),
    ];
    assert!(is_violation(&history));
}

#[test]
fn i_09_a_revision_that_goes_back_is_found() {
    let history = [operation(0, 1, Write(10), Written { revision: 9 }), operation(2, 3, Read, found(10, 8))];
    assert!(is_violation(&history));
}

#[test]
fn i_09_a_write_without_an_answer_may_happen_late_or_never_but_not_twice_and_not_early() {
    let lost = operation(10, 11, Write(10), Unknown);
    let none = |start, end| operation(start, end, Read, Found { value: None, revision: 1 });
    let seen = |start, end| operation(start, end, Read, found(10, 3));
    let other = |start, end| operation(start, end, Write(11), Written { revision: 4 });
    assert_eq!(linearizable(&[lost.clone(), none(20, 21)], Absent), Ok(()));
    assert_eq!(linearizable(&[lost.clone(), none(20, 21), seen(30, 31)], Absent), Ok(()));
    assert!(is_violation(&[seen(1, 2), lost.clone()]));
    let twice = [lost, seen(20, 21), other(22, 23), operation(24, 25, Read, found(10, 5))];
    assert!(is_violation(&twice));
}

#[test]
fn i_09_a_conflict_needs_a_cause_only_where_nothing_else_writes() {
    let history = [
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 3, Swap { expected: 2, value: 11 }, Conflict),
    ];
    assert_eq!(linearizable(&history, Present), Ok(()));
    assert!(linearizable(&history, Absent).is_err());
    // A write without an answer is a cause, seen or not.
    let cause = [operation(0, 1, Write(9), Unknown)];
    assert_eq!(linearizable(&[&history[..], &cause[..]].concat(), Absent), Ok(()));
}

#[test]
fn i_09_keys_are_independent() {
    let mut history = vec![
        operation(0, 1, Write(10), Written { revision: 2 }),
        operation(2, 3, Read, Found { value: None, revision: 1 }),
    ];
    assert!(is_violation(&history));
    history[1].key = 1;
    assert_eq!(linearizable(&history, Absent), Ok(()));
}

#[test]
fn i_09_a_search_that_takes_too_long_is_no_pass() {
    // Ten writes at the same time, then a read of a value that none of them wrote.
    let mut history: Vec<_> = (0..10).map(|value| operation(0, 100, Write(value), Written { revision: 5 })).collect();
    history.iter_mut().for_each(|write| write.answer = Unknown);
    history.extend((0..10).map(|value| operation(0, 100, Read, found(value, 5))));
    history.push(operation(200, 201, Read, found(99, 6)));
    let given_up = linearizable_within(50, &history, Absent);
    assert!(matches!(given_up, Err(NotLinearizable::Undecided { key: 0, .. })), "{given_up:?}");
    assert!(is_violation(&history));
}

/// Eight clients, thousands of operations, dozens of them without an answer: within the bound by far.
#[test]
fn i_09_long_histories_are_decided() {
    let mut state = RegisterState::default();
    let mut history = Vec::new();
    for number in 0_u64..6_000 {
        let (start, end) = (number * 10, number * 10 + 75);
        let (call, answer) = match number % 3 {
            0 => (Write(number), Written { revision: number + 1 }),
            1 => (Read, found(state.value.unwrap(), state.revision)),
            _ => (Swap { expected: state.revision, value: number }, Written { revision: number + 1 }),
        };
        let answer = if number % 90 == 0 { Unknown } else { answer };
        history.push(operation(start, end, call, answer));
        if call != Read {
            state = RegisterState { value: Some(number), revision: number + 1 };
        }
    }
    assert_eq!(linearizable_within(100_000, &history, Present), Ok(()));
    history.push(operation(70_000, 70_001, Read, found(3, 7_000)));
    assert!(matches!(linearizable_within(100_000, &history, Present), Err(NotLinearizable::Violation(_))));
}

#[test]
fn stale_reads_find_only_what_existed() {
    let write = operation(10, 20, Write(10), Written { revision: 5 });
    let stale = |start, end, value, revision| operation(start, end, StaleRead, found(value, revision));
    assert_eq!(stale::found_what_existed(&[write.clone(), stale(12, 13, 10, 5)]), Ok(()));
    let none = operation(30, 31, StaleRead, Found { value: None, revision: 1 });
    assert_eq!(stale::found_what_existed(&[write.clone(), none]), Ok(()));
    for wrong in [stale(1, 2, 10, 5), stale(30, 31, 11, 6), stale(30, 31, 10, 4)] {
        assert!(stale::found_what_existed(&[write.clone(), wrong.clone()]).is_err(), "{wrong}");
    }
    let failed = RegisterOperation { answer: Failed, ..write };
    assert!(stale::found_what_existed(&[failed, stale(30, 31, 10, 5)]).is_err());
}

#[test]
fn stale_reads_of_one_replica_never_go_back() {
    let read = |replica, start, end, revision| RegisterOperation {
        replica,
        ..operation(start, end, StaleRead, found(revision, revision))
    };
    assert_eq!(stale::never_went_back(&[read(1, 0, 1, 5), read(2, 2, 3, 4), read(1, 4, 5, 5)]), Ok(()));
    assert_eq!(stale::never_went_back(&[read(1, 0, 10, 5), read(1, 2, 3, 4)]), Ok(()), "at the same time");
    assert!(stale::never_went_back(&[read(1, 0, 1, 5), read(1, 2, 3, 6), read(1, 4, 5, 5)]).is_err());
}

/// Whether some order explains the history, by trying them all.
fn some_order_explains(history: &[RegisterOperation], bystanders: Bystanders) -> bool {
    fn explains(left: &[RegisterOperation], state: RegisterState, bystanders: Bystanders) -> bool {
        if left.iter().all(RegisterOperation::is_unknown) {
            return true;
        }
        (0..left.len()).any(|next| {
            let candidate = &left[next];
            let is_too_late = |other: &RegisterOperation| !other.is_unknown() && other.end < candidate.start;
            if left.iter().any(is_too_late) {
                return false;
            }
            let rest = [&left[..next], &left[next + 1..]].concat();
            state.after(candidate, bystanders).is_some_and(|after| explains(&rest, after, bystanders))
        })
    }
    explains(history, RegisterState::default(), bystanders)
}

fn any_operation(number: u64) -> impl Strategy<Value = RegisterOperation> {
    let call = prop_oneof![
        3 => Just(Read),
        2 => Just(Write(number)),
        2 => (0_u64..5).prop_map(move |expected| Swap { expected, value: number }),
    ];
    let value = prop_oneof![1 => Just(None), 4 => (0_u64..6).prop_map(Some)];
    (call, value, 0_u64..6, 0_u64..12, 0_u64..6, 0..6).prop_map(|(call, value, revision, start, length, luck)| {
        let answer = match (call, luck) {
            (Read, _) | (StaleRead, _) => Found { value, revision },
            (_, 0) => Failed,
            (_, 1 | 2) => Unknown,
            (Swap { .. }, 3) => Conflict,
            (Write(_) | Swap { .. }, _) => Written { revision },
        };
        operation(start, start + length, call, answer)
    })
}

/// Small histories of answers that may or may not fit together.
fn any_history() -> impl Strategy<Value = Vec<RegisterOperation>> {
    (1_usize..=6).prop_flat_map(|count| (0..count as u64).map(any_operation).collect::<Vec<_>>())
}

/// Histories whose answers a register gave, of which at most one was changed afterwards: most are linearizable.
fn nearly_true_history() -> impl Strategy<Value = Vec<RegisterOperation>> {
    (any_history(), proptest::option::of(0_usize..6)).prop_map(|(mut history, spoilt)| {
        let mut state = RegisterState::default();
        for (number, operation) in history.iter_mut().enumerate() {
            let before = operation.clone();
            operation.start = number as u64 * 3;
            operation.end = operation.start + before.end - before.start;
            let next = state.revision + 1;
            operation.answer = match (operation.call, before.answer) {
                (Read | StaleRead, _) => Found { value: state.value, revision: state.revision },
                (_, Failed) => Failed,
                (Swap { expected, .. }, _) if expected != state.revision => Conflict,
                (_, Unknown) => Unknown,
                (Write(_) | Swap { .. }, _) => Written { revision: next },
            };
            if let Some(value) = operation.written() {
                state = RegisterState { value: Some(value), revision: next };
            }
            if spoilt == Some(number) {
                operation.answer = before.answer;
            }
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn i_09_the_search_agrees_with_trying_every_order(
        history in prop_oneof![any_history(), nearly_true_history()],
        bystanders in prop_oneof![Just(Present), Just(Absent)],
    ) {
        let found = linearizable(&history, bystanders);
        let is_undecided = matches!(found, Err(NotLinearizable::Undecided { .. }));
        prop_assert!(!is_undecided);
        let unknown = history.iter().filter(|one| one.is_unknown()).map(|one| one.start).min();
        // The revision that a write without an answer gave the object is not known: any conflict may come of it.
        let says_something = |one: &&RegisterOperation| match one.answer {
            Failed => false,
            Conflict => unknown.is_none_or(|start| start > one.end),
            Found { .. } | Written { .. } | Unknown => true,
        };
        let answered: Vec<_> = history.iter().filter(says_something).cloned().collect();
        prop_assert_eq!(found.is_ok(), some_order_explains(&answered, bystanders), "{:#?}", history);
    }
}
