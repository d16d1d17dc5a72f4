//! Conditions as they are reported: what was found, since when, and when last.

use jiff::Timestamp;
use muster_lifecycle::node::{ConditionStatus, READY};
use serde_json::{Value, json};

/// What a look at something came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: String,
    pub status: ConditionStatus,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub finding: Finding,
    pub last_heartbeat: Timestamp,
    pub last_transition: Timestamp,
}

/// In the order they are reported in: pressures first, Ready last (S-5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

// === impl Finding ===

impl Finding {
    pub fn new(kind: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.into() }
    }

    /// A check may put figures into its message that differ every time. Each difference would be a write for the whole
    /// fleet, so the message is the one that the present state began with. Why a node is not ready is always worth it.
    fn keeping_words_of(self, before: &Self) -> Self {
        let is_the_same = before.status == self.status && before.reason == self.reason;
        match is_the_same && self.kind != READY {
            true => Self { message: before.message.clone(), ..self },
            false => self,
        }
    }
}

// === impl Conditions ===

impl Conditions {
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }

    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.finding.kind == kind)
    }

    pub fn status(&self, kind: &str) -> Option<ConditionStatus> {
        self.get(kind).map(|condition| condition.finding.status)
    }

    /// What is reported once this was found. Whatever is not found any more is not reported any more.
    #[must_use]
    pub fn after(&self, findings: Vec<Finding>, now: Timestamp) -> Self {
        let report = |finding: Finding| match self.get(&finding.kind) {
            Some(before) => {
                let turned = before.finding.status != finding.status;
                Condition {
                    finding: finding.keeping_words_of(&before.finding),
                    last_heartbeat: now,
                    last_transition: if turned { now } else { before.last_transition },
                }
            }
            None => Condition { finding, last_heartbeat: now, last_transition: now },
        };
        Self(findings.into_iter().map(report).collect())
    }

    /// Whether something other than heartbeat times differs (S-1).
    pub fn differs_from(&self, other: &Self) -> bool {
        self.iter().map(|condition| &condition.finding).ne(other.iter().map(|condition| &condition.finding))
    }

    /// `status.conditions` of a Kubernetes Node.
    pub fn to_json(&self) -> Value {
        self.iter().map(Condition::to_json).collect()
    }
}

// === impl Condition ===

impl Condition {
    fn to_json(&self) -> Value {
        json!({
            "type": &self.finding.kind,
            "status": self.finding.status.as_str(),
            "reason": &self.finding.reason,
            "message": &self.finding.message,
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

    fn found(status: ConditionStatus, message: &str) -> Vec<Finding> {
        vec![Finding::new("Hot", status, "Thermometer", message)]
    }

    #[test]
    fn s_5_each_look_is_a_heartbeat_and_only_a_change_of_status_a_transition() {
        let one = Conditions::default().after(found(False, "20 degrees"), at(10));
        let two = one.after(found(False, "21 degrees"), at(20));
        let three = two.after(found(True, "99 degrees"), at(30));
        let times = |conditions: &Conditions| {
            let hot = conditions.get("Hot").unwrap();
            (hot.last_heartbeat.as_second(), hot.last_transition.as_second())
        };
        assert_eq!([times(&one), times(&two), times(&three)], [(10, 10), (20, 10), (30, 30)]);
    }

    #[test]
    fn s_1_heartbeats_and_the_chatter_of_checks_are_no_change() {
        let one = Conditions::default().after(found(False, "20 degrees"), at(10));
        let two = one.after(found(False, "21 degrees"), at(20));
        assert!(!two.differs_from(&one));
        assert_eq!(two.get("Hot").unwrap().finding.message, "20 degrees");
        let three = two.after(found(True, "99 degrees"), at(30));
        assert!(three.differs_from(&two));
        assert_eq!(three.get("Hot").unwrap().finding.message, "99 degrees");
        assert!(three.after(Vec::new(), at(40)).differs_from(&three), "one that is gone is a change");
    }

    #[test]
    fn another_reason_not_to_be_ready_is_a_change() {
        let not_ready = |why: &str| vec![Finding::new(READY, False, "KubeletNotReady", why)];
        let one = Conditions::default().after(not_ready("no runtime"), at(10));
        let two = one.after(not_ready("no disk"), at(20));
        assert!(two.differs_from(&one));
        assert_eq!(two.get(READY).unwrap().last_transition, at(10));
    }

    #[test]
    fn conditions_are_written_as_kubernetes_writes_them() {
        let conditions = Conditions::default().after(found(True, "99 degrees"), at(1_800_000_000));
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
