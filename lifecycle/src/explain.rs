//! Explanations: why a node, a pod or a zone is what it is, and what will become of it if nothing changes.
//!
//! An explanation asks the cores that decide: [`health`](crate::judge::health) judges a node,
//! [`disruption`](crate::judge::disruption) its zone, and [`oversight`](crate::judge::oversight) finds its turn.
//! Nothing is worked out a second time, so what an explanation says is what will be done. It is plain data: the
//! replica that holds the state makes it, and the client that shows it formats the times.

mod node;
mod pod;
mod wording;
mod zone;

use serde::{Deserialize, Serialize};

use crate::command::Sighting;
use crate::judge::health::Excuse;
use crate::object::policy_state::{FleetPolicyState, Reprieve, ReprieveReason};
use crate::value::time::{ClusterTime, Stamp, WallTime};

pub use node::node;
pub use pod::pod;
pub use zone::zone;

/// How many excuses one explanation lists.
pub const EXCUSES_SHOWN_MAX: usize = 64;

/// How many of the nodes that wait in a zone's queue are listed.
pub const WAITING_SHOWN_MAX: usize = 16;

/// What the caller knows of a node and the state does not.
#[derive(Debug, Clone, Default)]
pub struct NodeObservation {
    pub heard: Option<Sighting>,
    /// The excuse that counts for this node.
    pub excuse: Option<Excuse>,
    /// Every excuse in force, for people.
    pub excuses: Vec<ExcuseNote>,
    /// Why no actor watches the node: it is in quarantine. `None` if one does.
    pub note: Option<String>,
    pub now: Stamp,
}

/// A time in which the leader could not have heard the node, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcuseNote {
    pub text: String,
    pub until: ClusterTime,
    pub concerns_this_node: bool,
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedTime {
    pub cluster_ms: u64,
    pub wall_ms: i64,
}

/// The summary: `unreachable since ... (last heard 40 s before, by replica 2)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub text: String,
    pub since: Option<ExplainedTime>,
    pub aside: Option<String>,
}

/// Something that is true, and the rule that makes it matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    pub label: String,
    pub text: String,
    /// The rule that it follows from, such as `NH-8`.
    pub rule: Option<String>,
    pub at: Option<ExplainedTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExcuseInForce {
    pub text: String,
    pub until: ExplainedTime,
    pub concerns_this_node: bool,
}

/// Something that will happen, or will not, if nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prospect {
    pub at: When,
    /// The moment depends on other nodes whose turn comes first.
    pub about: bool,
    pub text: String,
    pub rule: String,
}

/// A moment, or never; `null` in JSON, so that a program finds a moment or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<ExplainedTime>", into = "Option<ExplainedTime>")]
pub enum When {
    At(ExplainedTime),
    Never,
}

/// A node in a zone's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub name: String,
    /// 1 is next.
    pub position: usize,
    pub since: ExplainedTime,
    pub turn: When,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    pub name: String,
    pub zone: String,
    pub now: ExplainedTime,
    pub headline: Summary,
    pub facts: Vec<Fact>,
    pub excuses: Vec<ExcuseInForce>,
    /// The prospect that matters most. The sentence ends with it.
    pub outlook: Option<Prospect>,
    /// In order of time; prospects that never happen come last.
    pub forecast: Vec<Prospect>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneExplanation {
    pub zone: String,
    pub now: ExplainedTime,
    pub headline: Summary,
    pub facts: Vec<Fact>,
    pub excuses: Vec<ExcuseInForce>,
    pub outlook: Option<Prospect>,
    pub forecast: Vec<Prospect>,
    /// How many nodes wait; only the first of them are in `waiting`.
    pub queue_length: usize,
    pub waiting: Vec<Waiting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    pub namespace: String,
    pub name: String,
    pub node: Option<String>,
    pub now: ExplainedTime,
    pub headline: Summary,
    pub facts: Vec<Fact>,
    pub outlook: Option<Prospect>,
    pub forecast: Vec<Prospect>,
}

// === impl NodeExplanation, ZoneExplanation, PodExplanation ===

impl PodExplanation {
    /// The whole story in one sentence, with times as `clock` writes them.
    pub fn sentence(&self, clock: impl Fn(WallTime) -> String) -> String {
        sentence(&self.headline, self.outlook.as_ref(), clock)
    }
}

impl NodeExplanation {
    /// The whole story in one sentence, with times as `clock` writes them.
    pub fn sentence(&self, clock: impl Fn(WallTime) -> String) -> String {
        sentence(&self.headline, self.outlook.as_ref(), clock)
    }
}

impl ZoneExplanation {
    pub fn sentence(&self, clock: impl Fn(WallTime) -> String) -> String {
        sentence(&self.headline, self.outlook.as_ref(), clock)
    }
}

fn sentence(headline: &Summary, outlook: Option<&Prospect>, clock: impl Fn(WallTime) -> String) -> String {
    let mut sentence = headline.phrase(&clock);
    if let Some(outlook) = outlook {
        sentence.push_str("; ");
        sentence.push_str(&outlook.phrase(&clock));
    }
    sentence
}

// === impl Summary, Prospect ===

impl Summary {
    pub fn phrase(&self, clock: impl Fn(WallTime) -> String) -> String {
        let since = self.since.map(|since| format!(" since {}", clock(since.wall()))).unwrap_or_default();
        let aside = self.aside.as_ref().map(|aside| format!(" ({aside})")).unwrap_or_default();
        format!("{}{since}{aside}", self.text)
    }
}

impl Prospect {
    pub fn phrase(&self, clock: impl Fn(WallTime) -> String) -> String {
        match self.at {
            When::At(moment) if self.about => format!("{} about {}", self.text, clock(moment.wall())),
            When::At(moment) => format!("{} at {}", self.text, clock(moment.wall())),
            When::Never => self.text.clone(),
        }
    }

    fn at(at: ClusterTime, now: Stamp, text: impl Into<String>, rule: &str) -> Self {
        let at = When::At(ExplainedTime::of(at, now));
        Self { at, about: false, text: text.into(), rule: rule.to_owned() }
    }

    fn about(at: ClusterTime, now: Stamp, text: impl Into<String>, rule: &str) -> Self {
        Self { about: true, ..Self::at(at, now, text, rule) }
    }

    fn never(text: impl Into<String>, rule: &str) -> Self {
        Self { at: When::Never, about: false, text: text.into(), rule: rule.to_owned() }
    }
}

// === impl When, ExplainedTime, Fact ===

impl From<Option<ExplainedTime>> for When {
    fn from(at: Option<ExplainedTime>) -> Self {
        at.map_or(Self::Never, Self::At)
    }
}

impl From<When> for Option<ExplainedTime> {
    fn from(when: When) -> Self {
        match when {
            When::At(moment) => Some(moment),
            When::Never => None,
        }
    }
}

impl When {
    fn of(at: Option<ClusterTime>, now: Stamp) -> Self {
        at.map_or(Self::Never, |at| Self::At(ExplainedTime::of(at, now)))
    }

    fn order(&self) -> (bool, u64) {
        match self {
            Self::At(moment) => (false, moment.cluster_ms),
            Self::Never => (true, 0),
        }
    }
}

impl ExplainedTime {
    pub fn wall(self) -> WallTime {
        WallTime(self.wall_ms)
    }

    /// Cluster time has no date. This is the moment on a clock that shows `now.wall` now.
    fn of(at: ClusterTime, now: Stamp) -> Self {
        let away = i128::from(at.0) - i128::from(now.cluster.0);
        let wall = i128::from(now.wall.0).saturating_add(away);
        let wall_ms = i64::try_from(wall).unwrap_or(if away < 0 { i64::MIN } else { i64::MAX });
        Self { cluster_ms: at.0, wall_ms }
    }
}

/// A moment that the state recorded on both clocks.
impl From<Stamp> for ExplainedTime {
    fn from(stamp: Stamp) -> Self {
        Self { cluster_ms: stamp.cluster.0, wall_ms: stamp.wall.0 }
    }
}

impl Fact {
    fn new(label: &str, text: impl Into<String>) -> Self {
        Self { label: label.to_owned(), text: text.into(), rule: None, at: None }
    }

    fn by(self, rule: &str) -> Self {
        Self { rule: Some(rule.to_owned()), ..self }
    }

    fn when(self, at: Option<ExplainedTime>) -> Self {
        Self { at, ..self }
    }
}

fn shown_excuses(excuses: &[ExcuseNote], now: Stamp) -> impl Iterator<Item = ExcuseInForce> + '_ {
    let shown = move |note: &ExcuseNote| ExcuseInForce {
        text: note.text.clone(),
        until: ExplainedTime::of(note.until, now),
        concerns_this_node: note.concerns_this_node,
    };
    excuses.iter().take(EXCUSES_SHOWN_MAX).map(shown)
}

/// The reprieve in force, which excuses every node.
fn reprieve(policy_state: &FleetPolicyState, now: Stamp) -> Option<ExcuseInForce> {
    let Reprieve { until, because } = policy_state.reprieve.filter(|reprieve| now.cluster <= reprieve.until)?;
    let text = match because {
        ReprieveReason::AllZonesDisrupted => {
            "all zones were fully disrupted a moment ago: every node has a whole grace to be heard"
        }
        ReprieveReason::ShorterGrace => "the grace was shortened: agents first have to learn how often to beat",
    };
    Some(ExcuseInForce { text: text.to_owned(), until: ExplainedTime::of(until, now), concerns_this_node: true })
}

/// Why no node is evicted yet, as the end of a sentence.
fn spared_because(policy_state: &FleetPolicyState, now: Stamp) -> Option<&'static str> {
    let reprieve = policy_state.reprieve.filter(|reprieve| now.cluster < reprieve.until)?;
    Some(match reprieve.because {
        ReprieveReason::AllZonesDisrupted => "spared because all zones were fully disrupted a moment ago",
        ReprieveReason::ShorterGrace => "spared because the grace was shortened a moment ago",
    })
}

fn in_order(mut forecast: Vec<Prospect>) -> Vec<Prospect> {
    forecast.sort_by_key(|prospect| prospect.at.order());
    forecast
}
