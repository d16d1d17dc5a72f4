//! What `--json` writes: one object per line and finding, whose keys never change and come in one order.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::machine::Machine;
use crate::outcome::Finding;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line<'a> {
    scenario: &'a str,
    goal: &'a str,
    /// Absent from a scenario that failed.
    value: Option<f64>,
    unit: &'a str,
    /// Absent if there is nothing to meet.
    met: Option<bool>,
    details: Map<String, Value>,
}

// === impl Line ===

impl<'a> Line<'a> {
    /// The scenario's own details give way to those that every line has.
    pub fn of(finding: &'a Finding, machine: &Machine) -> Self {
        let mut details = finding.details.clone();
        details.extend(common(machine, finding.what));
        if let Some(target) = finding.target() {
            details.insert("target".to_owned(), target.into());
        }
        let Finding { scenario, unit, .. } = finding;
        Self { scenario, goal: finding.goal.id, value: Some(finding.value), unit, met: finding.met(), details }
    }

    /// A scenario that failed met nothing.
    pub fn failure(scenario: &'a str, goal: &'a str, why: &[String], machine: &Machine) -> Self {
        let mut details: Map<String, Value> = common(machine, "failure").into_iter().collect();
        details.insert("why".to_owned(), why.to_vec().into());
        Self { scenario, goal, value: None, unit: "", met: Some(false), details }
    }

    pub fn render(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

fn common(machine: &Machine, figure: &str) -> [(String, Value); 3] {
    [("commit", machine.commit.clone()), ("machine", machine.description()), ("figure", figure.to_owned())]
        .map(|(key, value)| (key.to_owned(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Goal;

    fn machine() -> Machine {
        Machine {
            commit: "abc123".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.1.0".to_owned(),
            cpu: "AMD EPYC".to_owned(),
            optimized: true,
        }
    }

    #[test]
    fn keys_and_their_order_are_fixed() {
        let finding = Finding::new("heartbeats", Goal::at_least("P1", 1e6), "accepted", 1_234_567.5, "beats/s")
            .with("nodes", 100_000)
            .with("commit", "not what the scenario says");
        let expected = concat!(
            r#"{"scenario":"heartbeats","goal":"P1","value":1234567.5,"unit":"beats/s","met":true,"details":{"#,
            r#""commit":"abc123","figure":"accepted","#,
            r#""machine":"2 cores of AMD EPYC, 24 GiB, Linux 6.1.0, release build","#,
            r#""nodes":100000,"target":">= 1,000,000 beats/s"}}"#,
            "\n"
        );
        assert_eq!(Line::of(&finding, &machine()).render().unwrap(), expected);
    }

    #[test]
    fn what_is_only_told_and_what_failed_have_nulls() {
        let told = Finding::new("agents", Goal::told("P2"), "handshakes", 800.0, "/s");
        let told = Line::of(&told, &machine()).render().unwrap();
        assert!(
            told.starts_with(r#"{"scenario":"agents","goal":"P2","value":800.0,"unit":"/s","met":null,"#),
            "{told}"
        );
        let why = ["7 beats were lost".to_owned()];
        let failed = Line::failure("agents", "P2", &why, &machine()).render().unwrap();
        assert!(
            failed.starts_with(r#"{"scenario":"agents","goal":"P2","value":null,"unit":"","met":false,"#),
            "{failed}"
        );
        assert!(failed.ends_with("\"why\":[\"7 beats were lost\"]}}\n"), "{failed}");
    }
}
