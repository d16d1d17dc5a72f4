//! Conditions as they are reported: the result of a check, the last transition and the last heartbeat.

use jiff::Timestamp;
use muster_lifecycle::node::{ConditionStatus, READY};
use serde_json::{Value, json};

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    pub kind: String,
    pub status: ConditionStatus,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCondition {
    pub result: CheckResult,
    pub last_heartbeat: Timestamp,
    pub last_transition: Timestamp,
}

/// In the order of the report: pressures first, Ready last (S-5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineConditions(Vec<MachineCondition>);

// === impl CheckResult ===

impl CheckResult {
    pub fn new(kind: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.into() }
    }

    /// A check may put changing figures into its message. Each change would be a write for the whole fleet, so the
    /// message stays the one with which the present state began. For Ready every new message counts.
    fn keeping_message_of(self, before: &Self) -> Self {
        let is_the_same = before.status == self.status && before.reason == self.reason;
        match is_the_same && self.kind != READY {
            true => Self { message: before.message.clone(), ..self },
            false => self,
        }
    }
}

// === impl MachineConditions ===

impl MachineConditions {
    pub fn iter(&self) -> impl Iterator<Item = &MachineCondition> {
        self.0.iter()
    }

    pub fn get(&self, kind: &str) -> Option<&MachineCondition> {
        self.iter().find(|condition| condition.result.kind == kind)
    }

    pub fn status(&self, kind: &str) -> Option<ConditionStatus> {
        self.get(kind).map(|condition| condition.result.status)
    }

    /// The conditions after these results. A condition without a result is no longer reported.
    #[must_use]
    pub fn after(&self, results: Vec<CheckResult>, now: Timestamp) -> Self {
        let report = |result: CheckResult| match self.get(&result.kind) {
            Some(before) => {
                let turned = before.result.status != result.status;
                MachineCondition {
                    result: result.keeping_message_of(&before.result),
                    last_heartbeat: now,
                    last_transition: if turned { now } else { before.last_transition },
                }
            }
            None => MachineCondition { result, last_heartbeat: now, last_transition: now },
        };
        Self(results.into_iter().map(report).collect())
    }

    /// Whether anything but heartbeat times differs (S-1).
    pub fn differs_from(&self, other: &Self) -> bool {
        self.iter().map(|condition| &condition.result).ne(other.iter().map(|condition| &condition.result))
    }

    /// `status.conditions` of a Kubernetes Node.
    pub fn to_json(&self) -> Value {
        self.iter().map(MachineCondition::to_json).collect()
    }
}

// === impl MachineCondition ===

impl MachineCondition {
    fn to_json(&self) -> Value {
        json!({
            "type": &self.result.kind,
            "status": self.result.status.as_str(),
            "reason": &self.result.reason,
            "message": &self.result.message,
            "lastHeartbeatTime": seconds(self.last_heartbeat),
            "lastTransitionTime": seconds(self.last_transition),
        })
    }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use ConditionStatus::{False, True};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn found(status: ConditionStatus, message: &str) -> Vec<CheckResult> {
        vec![CheckResult::new("Hot", status, "Thermometer", message)]
    }

    #[test]
    fn s_5_each_result_is_a_heartbeat_and_only_a_change_of_status_a_transition() {
        let one = MachineConditions::default().after(found(False, "20 degrees"), at(10));
        let two = one.after(found(False, "21 degrees"), at(20));
        let three = two.after(found(True, "99 degrees"), at(30));
        let times = |conditions: &MachineConditions| {
            let hot = conditions.get("Hot").unwrap();
            (hot.last_heartbeat.as_second(), hot.last_transition.as_second())
        };
        assert_eq!([times(&one), times(&two), times(&three)], [(10, 10), (20, 10), (30, 30)]);
    }

    #[test]
    fn s_1_heartbeats_and_changing_messages_are_not_a_change() {
        let one = MachineConditions::default().after(found(False, "20 degrees"), at(10));
        let two = one.after(found(False, "21 degrees"), at(20));
        assert!(!two.differs_from(&one));
        assert_eq!(two.get("Hot").unwrap().result.message, "20 degrees");
        let three = two.after(found(True, "99 degrees"), at(30));
        assert!(three.differs_from(&two));
        assert_eq!(three.get("Hot").unwrap().result.message, "99 degrees");
        assert!(three.after(Vec::new(), at(40)).differs_from(&three), "a missing condition is a change");
    }

    #[test]
    fn another_reason_not_to_be_ready_is_a_change() {
        let not_ready = |why: &str| vec![CheckResult::new(READY, False, "KubeletNotReady", why)];
        let one = MachineConditions::default().after(not_ready("no runtime"), at(10));
        let two = one.after(not_ready("no disk"), at(20));
        assert!(two.differs_from(&one));
        assert_eq!(two.get(READY).unwrap().last_transition, at(10));
    }

    #[test]
    fn conditions_are_written_as_kubernetes_writes_them() {
        let conditions = MachineConditions::default().after(found(True, "99 degrees"), at(1_800_000_000));
        let expected = json!([{
            "type": "Hot",
            "status": "True",
            "reason": "Thermometer",
            "message": "99 degrees",
            "lastHeartbeatTime": "2027-01-15T08:00:00Z",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }]);
        assert_eq!(conditions.to_json(), expected);
    }
}
