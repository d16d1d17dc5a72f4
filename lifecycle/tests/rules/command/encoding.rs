//! Golden bytes of commands: a change here is a change of the data version.

use muster_lifecycle::command::{Batch, Command};

use crate::command::every_operation::every_operation;
use crate::fixture::cluster::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first two bytes say whose operation it is, and which. The label is its name in metrics.
#[test]
fn every_operation_has_its_number_and_its_label() {
    let numbered: Vec<String> = every_operation()
        .iter()
        .map(|operation| format!("{} {}", hex(&postcard::to_stdvec(operation).unwrap()[..2]), operation.label()))
        .collect();
    let pinned = [
        "0000 create-node",
        "0001 apply-node",
        "0002 replace-node",
        "0003 replace-node-status",
        "0004 label-node",
        "0005 annotate-node",
        "0006 taint-node",
        "0007 cordon-node",
        "0008 delete-node",
        "0009 revoke-node",
        "000a create-pod",
        "000b apply-pod",
        "000c delete-pod",
        "000d create-workload",
        "000e apply-workload",
        "000f delete-workload",
        "0010 set-policy",
        "0011 set-aggregator",
        "0012 create-token",
        "0013 revoke-token",
        "0014 finalize-upgrade",
        "0015 rehearse-note",
        "0100 mark-silent",
        "0101 note-quarantine",
        "0102 assess-zones",
        "0103 evict-node",
        "0104 lift-evictions",
        "0105 evict-pod",
        "0106 collect-pod",
        "0107 bind-pod",
        "0108 note-unplaced",
        "0109 staff-workload",
        "010a found-policy",
        "010b found-addressing",
        "010c assign-cidrs",
        "010d forget-credentials",
        "010e raise-level",
        "0200 register-node",
        "0201 report-status",
        "0202 report-pods",
        "0203 enrol-node",
        "0204 renew-credential",
        "0205 confirm-credential",
        "0206 note-refusal",
        "0300 announce-replica",
        "0301 retire-replica",
        "0302 report-replica",
    ];
    assert_eq!(numbered, pinned);
}

#[test]
fn a_batch_is_its_stamp_and_its_commands() {
    let command = Command { origin: alice(), request: request(7, 300), operation: cordon("a", true).into() };
    let batch = Batch { stamp: stamp(1), commands: vec![command] };
    assert_eq!(hex(&postcard::to_stdvec(&batch).unwrap()), "e807d0afabfef962010005616c6963650107ac0200070161010000");
}
