//! An explanation of a node, zone or pod as a page: the sentence first, then what it rests on, then what comes.

use std::fmt::Write as _;

use muster_lifecycle::explain::{
    ExcuseInForce, ExplainedTime, Fact, NodeExplanation, PodExplanation, Prospect, Waiting, When, ZoneExplanation,
};
use muster_lifecycle::time::WallTime;

use super::clock::{LocalClock, relative};
use super::table;

/// The column that may be long comes last.
const FACTS: &[&str] = &["FACT", "RULE", "WHEN", "WHAT"];
const EXCUSES: &[&str] = &["EXCUSED UNTIL", "WHO", "WHY"];
const FORECAST: &[&str] = &["FORECAST", "RULE", "WHAT"];
const WAITING: &[&str] = &["POSITION", "NODE", "WAITS SINCE", "TURN"];

/// The parts that all kinds of explanation have.
struct Page<'a> {
    clock: &'a LocalClock,
    now: ExplainedTime,
    text: String,
}

pub fn node(explanation: &NodeExplanation, clock: &LocalClock) -> String {
    let sentence = explanation.sentence(|wall: WallTime| clock.time(wall.0));
    let mut page = Page { clock, now: explanation.now, text: String::new() };
    page.line(format_args!("node {} (zone {}): {sentence}", explanation.name, explanation.zone));
    page.facts(&explanation.facts);
    page.excuses(&explanation.excuses, "this node");
    page.forecast(&explanation.forecast);
    page.text
}

pub fn zone(explanation: &ZoneExplanation, clock: &LocalClock) -> String {
    let sentence = explanation.sentence(|wall: WallTime| clock.time(wall.0));
    let mut page = Page { clock, now: explanation.now, text: String::new() };
    page.line(format_args!("zone {}: {sentence}", explanation.zone));
    page.facts(&explanation.facts);
    page.excuses(&explanation.excuses, "every node");
    page.forecast(&explanation.forecast);
    page.waiting(&explanation.waiting, explanation.queue_length);
    page.text
}

pub fn pod(explanation: &PodExplanation, clock: &LocalClock) -> String {
    let sentence = explanation.sentence(|wall: WallTime| clock.time(wall.0));
    let mut page = Page { clock, now: explanation.now, text: String::new() };
    page.line(format_args!("pod {}/{}: {sentence}", explanation.namespace, explanation.name));
    page.facts(&explanation.facts);
    page.forecast(&explanation.forecast);
    page.text
}

// === impl Page ===

impl Page<'_> {
    fn facts(&mut self, facts: &[Fact]) {
        let row = |fact: &Fact| {
            let since = fact.at.map_or_else(|| "-".into(), |at| self.moment(at));
            vec![fact.label.clone(), fact.rule.clone().unwrap_or_else(|| "-".into()), since, fact.text.clone()]
        };
        let rows: Vec<_> = facts.iter().map(row).collect();
        self.table(FACTS, &rows);
    }

    fn excuses(&mut self, excuses: &[ExcuseInForce], concerned: &str) {
        let row = |excuse: &ExcuseInForce| {
            let whom = if excuse.concerns_this_node { concerned } else { "others" };
            vec![self.moment(excuse.until), whom.to_owned(), excuse.text.clone()]
        };
        let rows: Vec<_> = excuses.iter().map(row).collect();
        self.table(EXCUSES, &rows);
    }

    fn forecast(&mut self, forecast: &[Prospect]) {
        let row = |prospect: &Prospect| {
            let about = if prospect.about { "about " } else { "" };
            vec![format!("{about}{}", self.when(prospect.at)), prospect.rule.clone(), prospect.text.clone()]
        };
        let rows: Vec<_> = forecast.iter().map(row).collect();
        self.table(FORECAST, &rows);
    }

    fn waiting(&mut self, waiting: &[Waiting], total: usize) {
        let row = |each: &Waiting| {
            vec![each.position.to_string(), each.name.clone(), self.moment(each.since), self.when(each.turn)]
        };
        let rows: Vec<_> = waiting.iter().map(row).collect();
        self.table(WAITING, &rows);
        if total > waiting.len() {
            self.line(format_args!("and {} more", total - waiting.len()));
        }
    }

    /// An empty table prints nothing at all.
    fn table(&mut self, headers: &'static [&'static str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.line(format_args!(""));
        for line in table::render(headers, rows, true) {
            self.line(format_args!("{line}"));
        }
    }

    fn when(&self, when: When) -> String {
        match when {
            When::At(moment) => self.moment(moment),
            When::Never => "never".into(),
        }
    }

    /// The distance is measured in cluster time, which no wall clock can disturb.
    fn moment(&self, moment: ExplainedTime) -> String {
        format!("{} ({})", self.clock.time(moment.wall_ms), relative(moment.cluster_ms, self.now.cluster_ms))
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use muster_lifecycle::explain::Summary;

    use super::*;

    /// 14:02:11 UTC on some day, 1000 s into the cluster's life.
    const MISSING: ExplainedTime = ExplainedTime { cluster_ms: 1_000_000, wall_ms: 1_767_276_131_000 };

    fn after(seconds: u64) -> ExplainedTime {
        let millis = seconds * 1_000;
        ExplainedTime { cluster_ms: MISSING.cluster_ms + millis, wall_ms: MISSING.wall_ms + millis as i64 }
    }

    fn clock(now: ExplainedTime) -> LocalClock {
        LocalClock::new(TimeZone::UTC, now.wall_ms)
    }

    fn fact(label: &str, text: &str, rule: Option<&str>, at: Option<ExplainedTime>) -> Fact {
        Fact { label: label.into(), text: text.into(), rule: rule.map(String::from), at }
    }

    fn excuse(text: &str, until: ExplainedTime, concerns_this_node: bool) -> ExcuseInForce {
        ExcuseInForce { text: text.into(), until, concerns_this_node }
    }

    fn prospect(at: When, about: bool, text: &str, rule: &str) -> Prospect {
        Prospect { at, about, text: text.into(), rule: rule.into() }
    }

    #[test]
    fn a_node_explanation_shows_headline_facts_excuses_and_forecast() {
        let turn = prospect(
            When::At(after(349)),
            true,
            "NoExecute taint waits in zone r1/b's queue, position 3, at 0.01/s",
            "Q-2",
        );
        let explanation = NodeExplanation {
            name: "a".into(),
            zone: "r1/b".into(),
            now: after(60),
            headline: Summary {
                text: "unreachable".into(),
                since: Some(MISSING),
                aside: Some("last heard 40 s before, by replica 2".into()),
            },
            facts: vec![
                fact("ready", "Unknown, NodeStatusUnknown", Some("NH-8"), Some(MISSING)),
                fact("quarantine", "no actor watches it", None, None),
            ],
            excuses: vec![
                excuse("the leader's process was stalled", after(80), true),
                excuse("what replica 3 heard is missing or late", after(70), false),
            ],
            outlook: Some(turn.clone()),
            forecast: vec![turn],
        };
        let wanted = "\
node a (zone r1/b): unreachable since 14:02:11 (last heard 40 s before, by replica 2); NoExecute taint waits in zone r1/b's queue, position 3, at 0.01/s about 14:08:00

FACT         RULE   WHEN                 WHAT
ready        NH-8   14:02:11 (1 m ago)   Unknown, NodeStatusUnknown
quarantine   -      -                    no actor watches it

EXCUSED UNTIL        WHO         WHY
14:03:31 (in 20 s)   this node   the leader's process was stalled
14:03:21 (in 10 s)   others      what replica 3 heard is missing or late

FORECAST                       RULE   WHAT
about 14:08:00 (in 4 m 49 s)   Q-2    NoExecute taint waits in zone r1/b's queue, position 3, at 0.01/s
";
        assert_eq!(node(&explanation, &clock(explanation.now)), wanted);
    }

    #[test]
    fn a_zone_explanation_lists_waiting_nodes() {
        let stuck = prospect(When::Never, false, "x is next: the rate is 0", "Z-5");
        let explanation = ZoneExplanation {
            zone: "r1/b".into(),
            now: after(30),
            headline: Summary { text: "PartialDisruption".into(), since: Some(MISSING), aside: None },
            facts: vec![],
            excuses: vec![],
            outlook: Some(stuck.clone()),
            forecast: vec![stuck],
            queue_length: 3,
            waiting: vec![Waiting { name: "x".into(), position: 1, since: MISSING, turn: When::Never }],
        };
        let wanted = "\
zone r1/b: PartialDisruption since 14:02:11; x is next: the rate is 0

FORECAST   RULE   WHAT
never      Z-5    x is next: the rate is 0

POSITION   NODE   WAITS SINCE           TURN
1          x      14:02:11 (30 s ago)   never
and 2 more
";
        assert_eq!(zone(&explanation, &clock(explanation.now)), wanted);
    }

    #[test]
    fn a_pod_explanation_shows_headline_facts_and_forecast() {
        let leaves = prospect(When::At(after(70)), false, "it is evicted because of k:NoExecute", "TE-8");
        let explanation = PodExplanation {
            namespace: "shop".into(),
            name: "web-x".into(),
            node: Some("a".into()),
            now: after(60),
            headline: Summary {
                text: "running on node a".into(),
                since: Some(MISSING),
                aside: Some("of ReplicaSet web".into()),
            },
            facts: vec![fact("taint", "k:NoExecute: it tolerates it for 10 s", Some("TE-5"), Some(after(60)))],
            outlook: Some(leaves.clone()),
            forecast: vec![leaves],
        };
        let wanted = "\
pod shop/web-x: running on node a since 14:02:11 (of ReplicaSet web); it is evicted because of k:NoExecute at 14:03:21

FACT    RULE   WHEN             WHAT
taint   TE-5   14:03:11 (now)   k:NoExecute: it tolerates it for 10 s

FORECAST             RULE   WHAT
14:03:21 (in 10 s)   TE-8   it is evicted because of k:NoExecute
";
        assert_eq!(pod(&explanation, &clock(explanation.now)), wanted);
    }
}
