//! Status reports of agents.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::Origin;
use crate::object::event::{ConditionTurn, NodeHappening};
use crate::object::node::{
    Condition, ConditionStatus, DISK_PRESSURE, Incarnation, MEMORY_PRESSURE, Node, NodeStatus, PID_PRESSURE, READY,
};
use crate::rule;
use crate::value::meta::Uid;
use crate::value::text::Text;
use crate::value::time::Stamp;

/// Condition, the status it turned to, and what the event tells.
const TURNS: [(&str, ConditionStatus, ConditionTurn); 8] = [
    (READY, ConditionStatus::True, ConditionTurn::Ready),
    (READY, ConditionStatus::False, ConditionTurn::NotReady),
    (MEMORY_PRESSURE, ConditionStatus::True, ConditionTurn::InsufficientMemory),
    (MEMORY_PRESSURE, ConditionStatus::False, ConditionTurn::SufficientMemory),
    (DISK_PRESSURE, ConditionStatus::True, ConditionTurn::DiskPressure),
    (DISK_PRESSURE, ConditionStatus::False, ConditionTurn::NoDiskPressure),
    (PID_PRESSURE, ConditionStatus::True, ConditionTurn::InsufficientPid),
    (PID_PRESSURE, ConditionStatus::False, ConditionTurn::SufficientPid),
];

impl Application<'_> {
    pub(crate) fn report_status(
        &mut self,
        origin: &Origin,
        name: &Text,
        incarnation: Incarnation,
        status: &NodeStatus,
        running: Option<&[Uid]>,
    ) -> ApplyResult {
        self.state.admits_carried(name)?;
        let before = self.incarnate(name, incarnation)?;
        let mut after = before.as_ref().clone();
        after.status = reported(&before.status, status, self.now);
        let receipt = self.commit_report(origin, &before, after, running)?;
        self.release_stopped(name, Some(incarnation), running);
        Ok(receipt)
    }

    pub(crate) fn commit_report(
        &mut self,
        origin: &Origin,
        before: &Arc<Node>,
        after: Node,
        running: Option<&[Uid]>,
    ) -> ApplyResult {
        rule::node::addresses_once(&after.status.addresses)?;
        self.require_stopped(Some(before.as_ref()), &after, running)?;
        let turns = turns(&before.status, &after.status);
        let rebooted = rebooted(&before.status, &after.status);
        let receipt = self.commit(origin, before, after)?;
        if let Some(boot_id) = rebooted {
            self.note(before, NodeHappening::Rebooted { boot_id });
        }
        for to in turns {
            self.note(before, NodeHappening::Turned { to });
        }
        Ok(receipt)
    }
}

/// The status as reported, with the cluster's times: a node's clock decides nothing. Conditions that the report does
/// not mention belong to other reporters and stay.
pub(crate) fn reported(before: &NodeStatus, report: &NodeStatus, now: Stamp) -> NodeStatus {
    let others = before.conditions.iter().filter(|condition| report.condition(&condition.kind).is_none()).cloned();
    let own = report.conditions.iter().map(|condition| timed(before.condition(&condition.kind), condition, now));
    let mut conditions: Vec<Condition> = others.chain(own).collect();
    // Kept in the order in which they first came, so that a repeated report leaves the status equal.
    let place = |kind: &Text| before.conditions.iter().position(|known| known.kind == *kind).unwrap_or(usize::MAX);
    conditions.sort_by_key(|condition| place(&condition.kind));
    NodeStatus { conditions: conditions.into_boxed_slice(), ..report.clone() }
}

fn timed(before: Option<&Condition>, reported: &Condition, now: Stamp) -> Condition {
    let Some(before) = before else {
        return Condition { last_heartbeat: Some(now), last_transition: Some(now), ..reported.clone() };
    };
    let says_the_same = before.reason == reported.reason && before.message == reported.message;
    match (before.status == reported.status, says_the_same) {
        (true, true) => before.clone(),
        (true, false) => {
            Condition { last_heartbeat: Some(now), last_transition: before.last_transition, ..reported.clone() }
        }
        (false, _) => Condition { last_heartbeat: Some(now), last_transition: Some(now), ..reported.clone() },
    }
}

fn turns(before: &NodeStatus, after: &NodeStatus) -> Vec<ConditionTurn> {
    let status = |status: &NodeStatus, kind: &str| status.condition(kind).map(|condition| condition.status);
    let turned = |(kind, to, _): &(&str, ConditionStatus, ConditionTurn)| {
        let from = status(before, kind);
        // The first report that a pressure is absent is no news.
        let is_news = from.is_some() || *kind == READY;
        is_news && from != Some(*to) && status(after, kind) == Some(*to)
    };
    TURNS.iter().filter(|turn| turned(turn)).map(|(_, _, turn)| *turn).collect()
}

/// RG-7: the boot id of a machine that was started anew. The first boot id of a machine is no reboot.
fn rebooted(before: &NodeStatus, after: &NodeStatus) -> Option<Text> {
    let boot_id = |status: &NodeStatus| status.info.as_ref().map(|info| info.boot_id.clone()).unwrap_or_default();
    let (former, present) = (boot_id(before), boot_id(after));
    (!former.is_empty() && !present.is_empty() && former != present).then_some(present)
}
