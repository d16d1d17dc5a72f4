//! JSON lines of `--json`: one object per figure, whose keys never change and come in one order.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::report::figure::Figure;
use crate::report::machine::MachineInfo;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JsonLine<'a> {
    scenario: &'a str,
    goal: &'a str,
    /// Absent if the scenario failed.
    value: Option<f64>,
    unit: &'a str,
    /// Absent without a goal.
    met: Option<bool>,
    details: Map<String, Value>,
}

// === impl JsonLine ===

impl<'a> JsonLine<'a> {
    /// The details that every line has replace the scenario's own of the same name.
    pub(crate) fn of(figure: &'a Figure, machine: &MachineInfo) -> Self {
        let mut details = figure.details.clone();
        details.extend(common(machine, figure.what));
        if let Some(target) = figure.target() {
            details.insert("target".to_owned(), target.into());
        }
        let Figure { scenario, unit, .. } = figure;
        Self { scenario, goal: figure.goal.id, value: Some(figure.value), unit, met: figure.met(), details }
    }

    /// The line of a scenario that failed: it met no goal.
    pub(crate) fn failure(scenario: &'a str, goal: &'a str, why: &[String], machine: &MachineInfo) -> Self {
        let mut details: Map<String, Value> = common(machine, "failure").into_iter().collect();
        details.insert("why".to_owned(), why.to_vec().into());
        Self { scenario, goal, value: None, unit: "", met: Some(false), details }
    }

    pub(crate) fn render(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

fn common(machine: &MachineInfo, figure: &str) -> [(String, Value); 3] {
    [("commit", machine.commit.clone()), ("machine", machine.description()), ("figure", figure.to_owned())]
        .map(|(key, value)| (key.to_owned(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Goal;

    #[test]
    fn keys_and_their_order_are_fixed() {
        let figure = Figure::new("heartbeats", Goal::at_least("P1", 1e6), "accepted", 1_234_567.5, "beats/s")
            .with("nodes", 100_000)
            .with("commit", "not what the scenario says");
        let expected = concat!(
            r#"{"scenario":"heartbeats","goal":"P1","value":1234567.5,"unit":"beats/s","met":true,"details":{"#,
            r#""commit":"abc123","figure":"accepted","#,
            r#""machine":"2 cores of AMD EPYC, 24 GiB, Linux 6.1.0, release build","#,
            r#""nodes":100000,"target":">= 1,000,000 beats/s"}}"#,
            "\n"
        );
        assert_eq!(JsonLine::of(&figure, &MachineInfo::example()).render().unwrap(), expected);
    }

    #[test]
    fn figures_without_a_goal_and_failures_have_nulls() {
        let reported = Figure::new("agents", Goal::reported("P2"), "handshakes", 800.0, "/s");
        let reported = JsonLine::of(&reported, &MachineInfo::example()).render().unwrap();
        assert!(
            reported.starts_with(r#"{"scenario":"agents","goal":"P2","value":800.0,"unit":"/s","met":null,"#),
            "{reported}"
        );
        let why = ["7 beats were lost".to_owned()];
        let failed = JsonLine::failure("agents", "P2", &why, &MachineInfo::example()).render().unwrap();
        assert!(
            failed.starts_with(r#"{"scenario":"agents","goal":"P2","value":null,"unit":"","met":false,"#),
            "{failed}"
        );
        assert!(failed.ends_with("\"why\":[\"7 beats were lost\"]}}\n"), "{failed}");
    }
}
