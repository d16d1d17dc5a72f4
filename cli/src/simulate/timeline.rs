//! The output for people: time runs down, every zone has its lane, and what happens stands beside it.
//!
//! ```text
//!       time  r1/z1     r1/z2
//!         0s  >N        >N        zone r1/z1: Initial -> Normal
//!       1m1s  >P!       N         12 nodes: Ready True -> Unknown (NodeStatusUnknown)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::zone::{ZoneKey, ZoneState};

use super::occurrence::{Ending, Occurrence, PodAction, PodEnding, TaintAction, What, shown};
use super::world::{MachineSpec, Millis};

/// No line is wider than this.
const WIDTH: usize = 120;

const TIME_WIDTH: usize = 12;
const LANE_MIN: usize = 6;
const LANE_MAX: usize = 14;

/// More lanes would leave no room for words.
const LANES_MAX: usize = 4;

/// Up to so many nodes or pods are named; more are counted.
const NAMED_MAX: usize = 3;

/// Taints that the summary lists.
const TAINTS_SHOWN: usize = 12;

pub struct Timeline {
    lanes: Vec<Lane>,
    /// Zones for which there is no lane.
    hidden: usize,
}

struct Lane {
    zone: ZoneKey,
    width: usize,
    state: ZoneState,
}

/// Occurrences that differ only in their node or pod, and its place.
struct Group<'a> {
    words: Words,
    subjects: Vec<&'a Text>,
    places: BTreeSet<&'a Text>,
}

/// An occurrence in words, with its subject and place left open: `head place tail`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Words {
    noun: Noun,
    head: String,
    tail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Noun {
    Node,
    Pod,
}

/// The subject of an occurrence, and its place.
type About<'a> = (Option<&'a Text>, Option<&'a Text>);

// === impl Timeline ===

impl Timeline {
    /// Lanes for the zones that the machines are in at the start.
    pub fn new(machines: &[MachineSpec]) -> Self {
        let mut zones: Vec<ZoneKey> = machines.iter().map(|machine| ZoneKey::from_labels(&machine.labels)).collect();
        zones.sort();
        zones.dedup();
        let hidden = zones.len().saturating_sub(LANES_MAX);
        let lane = |zone: ZoneKey| Lane {
            width: zone.to_string().len().clamp(LANE_MIN, LANE_MAX),
            zone,
            state: ZoneState::Initial,
        };
        Self { lanes: zones.into_iter().take(LANES_MAX).map(lane).collect(), hidden }
    }

    pub fn header(&self) -> String {
        let mut row = format!("{:>TIME_WIDTH$}", "time");
        for lane in &self.lanes {
            let _ = write!(row, "  {:<width$}", clip(&lane.zone.to_string(), lane.width), width = lane.width);
        }
        let hidden = match self.hidden {
            0 => String::new(),
            count => format!("  ({count} more zones have no lane; their events are shown)"),
        };
        bounded(format!("{row}{hidden}"))
    }

    /// The rows of one instant.
    pub fn rows(&mut self, happened: &[Occurrence]) -> String {
        let mut rows = String::new();
        let mut time = happened.first().map(|first| Period(first.at).to_string()).unwrap_or_default();
        for group in grouped(happened) {
            let moved = self.move_lanes(happened, time.is_empty());
            let lanes: String = self.lanes.iter().map(|lane| lane.cell(moved.contains(&lane.zone))).collect();
            rows.push_str(&bounded(format!("{:>TIME_WIDTH$}{lanes}  {}", time, group.text())));
            time.clear();
        }
        rows
    }

    /// The zones that moved at this instant, which its first row marks.
    fn move_lanes(&mut self, happened: &[Occurrence], is_marked: bool) -> Vec<ZoneKey> {
        let mut moved = Vec::new();
        for Occurrence { what, .. } in happened.iter().filter(|_| !is_marked) {
            if let What::Zone { zone, to, .. } = what {
                self.lanes.iter_mut().filter(|lane| lane.zone == *zone).for_each(|lane| lane.state = *to);
                moved.push(zone.clone());
            }
        }
        moved
    }

    pub fn summary(&self, until: Millis, ending: &Ending) -> String {
        let mut text = String::from("\n");
        let ready = ending.nodes.values().filter(|node| node.ready == "True").count();
        text += &bounded(format!("after {}: {ready} of {} nodes are ready", Period(until), ending.nodes.len()));
        let mut taints: BTreeMap<&str, usize> = BTreeMap::new();
        for taint in ending.nodes.values().flat_map(|node| &node.taints) {
            *taints.entry(taint).or_default() += 1;
        }
        for (taint, count) in taints.iter().take(TAINTS_SHOWN) {
            text += &bounded(format!("  taint {taint} on {}", Noun::Node.counted(*count)));
        }
        if taints.len() > TAINTS_SHOWN {
            text += &bounded(format!("  and {} other taints", taints.len() - TAINTS_SHOWN));
        }
        for (zone, state) in &ending.zones {
            text += &bounded(format!("  zone {zone} is in state {state}"));
        }
        if !ending.pods.is_empty() {
            text += &bounded(format!("  {}", pods(&ending.pods)));
        }
        text
    }
}

// === impl Lane ===

impl Lane {
    fn cell(&self, moved: bool) -> String {
        let marker = match self.state {
            ZoneState::Initial => ".",
            ZoneState::Normal => "N",
            ZoneState::PartialDisruption => "P!",
            ZoneState::FullDisruption => "F!!",
        };
        let cell = format!("{}{marker}", if moved { ">" } else { "" });
        format!("  {cell:<width$}", width = self.width)
    }
}

// === impl Group ===

impl Group<'_> {
    fn text(&self) -> String {
        let Words { noun, head, tail } = &self.words;
        let places = Noun::Node.listed(&self.places.iter().copied().collect::<Vec<_>>());
        let parts = [head.as_str(), &places, tail].into_iter().filter(|part| !part.is_empty());
        let words = parts.collect::<Vec<_>>().join(" ");
        match self.subjects.is_empty() {
            true => words,
            false => format!("{}: {words}", noun.listed(&self.subjects)),
        }
    }
}

impl Noun {
    /// An empty text for no names.
    fn listed(self, names: &[&Text]) -> String {
        match names.len() {
            0..=NAMED_MAX => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
            count => self.counted(count),
        }
    }

    fn counted(self, count: usize) -> String {
        let noun = match self {
            Self::Node => "node",
            Self::Pod => "pod",
        };
        format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
    }
}

/// In the order of each group's first occurrence.
fn grouped(happened: &[Occurrence]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known: BTreeMap<Words, usize> = BTreeMap::new();
    for Occurrence { what, .. } in happened {
        let (words, (subject, place)) = words(what);
        match (subject, known.get(&words)) {
            (Some(subject), Some(group)) => {
                groups[*group].subjects.push(subject);
                groups[*group].places.extend(place);
            }
            (subject, _) => {
                known.insert(words.clone(), groups.len());
                let (subjects, places) = (subject.into_iter().collect(), place.into_iter().collect());
                groups.push(Group { words, subjects, places });
            }
        }
    }
    groups
}

fn words(what: &What) -> (Words, About<'_>) {
    let (head, node) = match what {
        What::Pod { pod, node, action, taint } => {
            let place = node.as_ref().filter(|_| names_its_place(*action));
            return (pod_words(*action, place.is_some(), taint.as_deref()), (Some(pod), place));
        }
        What::Condition { node, kind, from, to, reason } => {
            (format!("{kind} {} -> {to} ({reason})", shown(*from)), Some(node))
        }
        What::Taint { node, taint, action: TaintAction::Added } => (format!("+ taint {taint}"), Some(node)),
        What::Taint { node, taint, action: TaintAction::Removed } => (format!("- taint {taint}"), Some(node)),
        What::Zone { zone, from, to } => (format!("zone {zone}: {from} -> {to}"), None),
        What::Rate { zone, rate } => (format!("zone {zone}: {rate} evictions per second"), None),
        What::Leader { term } => (format!("another replica leads (term {term})"), None),
        What::Refused { what, why } => (format!("refused: {what}: {why}"), None),
    };
    (Words { noun: Noun::Node, head, tail: String::new() }, (node, None))
}

/// Whether a pod is ready says nothing about where it is.
fn names_its_place(action: PodAction) -> bool {
    !matches!(action, PodAction::Ready | PodAction::Unready)
}

fn pod_words(action: PodAction, is_somewhere: bool, taint: Option<&str>) -> Words {
    let (verb, preposition) = match action {
        PodAction::Created => ("created", "on"),
        PodAction::Bound => ("bound", "to"),
        PodAction::Ready => ("ready", ""),
        PodAction::Unready => ("not ready", ""),
        PodAction::Evicted => ("evicted", "from"),
        PodAction::Deleted => ("deleted", "from"),
        PodAction::Gone => ("gone", "from"),
    };
    let head = if is_somewhere { format!("{verb} {preposition}") } else { verb.to_owned() };
    Words { noun: Noun::Pod, head, tail: taint.map(|taint| format!("({taint})")).unwrap_or_default() }
}

/// `12 pods: 9 ready, 2 terminating, 1 without a node`
fn pods(pods: &BTreeMap<Text, PodEnding>) -> String {
    let count = |is_so: fn(&PodEnding) -> bool| pods.values().filter(|pod| is_so(pod)).count();
    let terminating = count(|pod| pod.terminating);
    let waiting = count(|pod| pod.node.is_none() && !pod.terminating);
    let others = [(terminating, "terminating"), (waiting, "without a node")];
    let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    let ready = count(|pod| pod.ready && !pod.terminating);
    format!("{}: {ready} ready{}", Noun::Pod.counted(pods.len()), others.collect::<String>())
}

/// Plain characters only, so that columns are columns everywhere.
fn bounded(row: String) -> String {
    let plain: String =
        row.chars().map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' }).collect();
    format!("{}\n", clip(plain.trim_end(), WIDTH))
}

fn clip(text: &str, max: usize) -> String {
    Text::clipped(text, max).to_string()
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::meta::Pairs;
    use muster_lifecycle::node::ConditionStatus;

    use super::*;
    use crate::simulate::world::InitialReady;

    fn machine(name: &str, zone: &str) -> MachineSpec {
        MachineSpec {
            name: Text::from(name),
            labels: Pairs::from_iter([("topology.kubernetes.io/zone", zone)]),
            taints: Vec::new(),
            ready: InitialReady::Says(ConditionStatus::True),
            heartbeat: None,
            status: None,
            created: 0,
        }
    }

    fn unknown(at: Millis, node: &str) -> Occurrence {
        let (kind, reason) = (Text::from("Ready"), Text::from("NodeStatusUnknown"));
        let from = Some(ConditionStatus::True);
        Occurrence {
            at,
            what: What::Condition { node: Text::from(node), kind, from, to: ConditionStatus::Unknown, reason },
        }
    }

    #[test]
    fn simultaneous_events_are_grouped_beside_the_lanes() {
        let mut timeline = Timeline::new(&[machine("a", "z1"), machine("b", "z2")]);
        assert_eq!(timeline.header(), "        time  /z1     /z2\n");
        let zone: ZoneKey = "/z1".parse().unwrap();
        let partial = What::Zone { zone, from: ZoneState::Initial, to: ZoneState::PartialDisruption };
        let mut happened: Vec<Occurrence> = ["a", "b", "c", "d"].map(|node| unknown(61_000, node)).to_vec();
        happened.push(Occurrence { at: 61_000, what: partial });
        assert_eq!(
            timeline.rows(&happened),
            "        1m1s  >P!     .       4 nodes: Ready True -> Unknown (NodeStatusUnknown)\n              \
             P!      .       zone /z1: Initial -> PartialDisruption\n"
        );
        assert_eq!(
            timeline.rows(&[unknown(62_000, "a")]),
            "        1m2s  P!      .       a: Ready True -> Unknown (NodeStatusUnknown)\n"
        );
    }

    fn of_pod(pod: &str, node: &str, action: PodAction, taint: Option<&str>) -> Occurrence {
        let (pod, node) = (Text::from(pod), Some(Text::from(node)));
        Occurrence { at: 361_000, what: What::Pod { pod, node, action, taint: taint.map(str::to_owned) } }
    }

    #[test]
    fn pods_with_the_same_event_share_a_row() {
        let mut timeline = Timeline::new(&[machine("a", "z1")]);
        let mut happened: Vec<Occurrence> =
            ["p", "q"].map(|pod| of_pod(pod, "a-0", PodAction::Evicted, Some("k:NoExecute"))).to_vec();
        happened.extend((0..5).map(|index| of_pod("r", &format!("b-{index}"), PodAction::Bound, None)));
        happened.push(of_pod("r", "b-0", PodAction::Ready, None));
        assert_eq!(
            timeline.rows(&happened),
            "        6m1s  .       p, q: evicted from a-0 (k:NoExecute)\n              \
             .       5 pods: bound to 5 nodes\n              .       r: ready\n"
        );
        let ending = |node: Option<&str>, ready, terminating| PodEnding {
            node: node.map(Text::from),
            phase: "Running",
            ready,
            terminating,
        };
        let all = [ending(Some("a"), true, false), ending(Some("a"), true, true), ending(None, false, false)];
        let all = all.into_iter().enumerate().map(|(index, pod)| (Text::from(index.to_string()), pod)).collect();
        assert_eq!(pods(&all), "3 pods: 1 ready, 1 terminating, 1 without a node");
    }

    #[test]
    fn no_row_is_wider_than_the_bound() {
        let long = "n".repeat(200);
        let zones: Vec<MachineSpec> =
            (0..40).map(|index| machine("a", &format!("{}{index}", "z".repeat(60)))).collect();
        let mut timeline = Timeline::new(&zones);
        let rows = timeline.header() + &timeline.rows(&[unknown(1, &long), unknown(1, "\u{1b}[31m")]);
        assert!(rows.lines().all(|row| row.len() <= WIDTH && row.is_ascii()), "{rows}");
        assert!(!rows.contains('\u{1b}'));
    }
}
