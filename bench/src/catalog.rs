//! All scenarios, in the order in which `all` runs them. A new one is a line here.
//!
//! Those that measure a large fleet stand side by side, because they share one: first who watches it come, last who kills a
//! replica for good.

use std::pin::Pin;

use anyhow::Result;

use crate::garrison::Garrison;
use crate::outcome::Outcome;
use crate::setting::Setting;
use crate::{
    agents, bereft, cidrs, detect, evictions, failover, fleet, flood, footprint, gap, growth, heartbeats, memory,
    peers, placement, register, stalled, state, storm, writes, zone_loss,
};

/// A scenario that can be asked for by name.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// P1 to P8, `growth`, `guard`, or [`OTHER`].
    pub goal: &'static str,
    pub about: &'static str,
    course: Course,
    takes: &'static [Flag],
}

/// What a scenario is run on.
#[derive(Debug, Clone, Copy)]
enum Course {
    /// A cluster of its own, or none.
    Alone(for<'a> fn(&'a Setting) -> Running<'a>),
    /// A large fleet, which it may have to itself or not.
    Fleet(for<'a> fn(&'a mut Garrison, &'a Setting) -> Running<'a>),
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;

/// What may be set for a scenario, where it means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    Nodes,
    Seconds,
    Dir,
    Kills,
    Pods,
    Rate,
}

/// Measured by name only.
pub const OTHER: &str = "other";

/// The name under which all goals and guard rails are run.
pub const ALL: &str = "all";

macro_rules! scenario {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        Scenario::new($name, $goal, $about, Course::Alone(|setting| Box::pin($module::run(setting))))
    };
}

/// Of a large fleet that is all there.
macro_rules! of_fleet {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        Scenario::new(
            $name,
            $goal,
            $about,
            Course::Fleet(|garrison, setting| {
                Box::pin(async move {
                    let (stage, load) = garrison.whole().await?;
                    $module::measure(stage, load, setting).await
                })
            }),
        )
    };
}

/// Of a large fleet that may still have to come.
macro_rules! of_growing_fleet {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        Scenario::new(
            $name,
            $goal,
            $about,
            Course::Fleet(|garrison, setting| Box::pin($module::measure(garrison, setting))),
        )
    };
}

pub static CATALOG: &[Scenario] = &[
    scenario!("heartbeats", "P1", heartbeats, "Beats per second, a stream per node, few hundred connections"),
    scenario!("peers", "P1", peers, "The same beside a three-member etcd, if one is installed")
        .taking(&[Flag::Nodes, Flag::Seconds]),
    scenario!("agents", "P2", agents, "Agents with a TLS connection each: memory and beats per second"),
    of_growing_fleet!("growth", "growth", growth, "What a fleet costs as it grows: no faster than the fleet"),
    of_growing_fleet!("register", "P4", register, "Nodes registered per second"),
    of_fleet!("footprint", "P8", footprint, "Memory per node on a follower, and the sweep; restarts a follower"),
    of_fleet!("fleet", "P3", fleet, "A large fleet at rest: no false verdict, memory, processor time"),
    of_fleet!("detect", "P5", detect, "From a node's last beat to the committed verdict"),
    of_fleet!("zone-loss", "P7", zone_loss, "Most of a zone falls silent at once"),
    of_fleet!("failover", "P6", failover, "Verdicts around kill -9 of the leader"),
    scenario!("stalled", "guard", stalled, "Readers that stall beside a fleet that beats"),
    scenario!("storm", "guard", storm, "Everybody loses its connection at once and comes back at once")
        .taking(&[Flag::Nodes, Flag::Dir]),
    scenario!("flood", "guard", flood, "An aggregator that floods beside a fleet that beats"),
    scenario!("bereft", "guard", bereft, "Agents with a TLS connection each, one replica killed for good")
        .taking(&[Flag::Nodes]),
    scenario!("writes", OTHER, writes, "Committed writes per second at 1, 16 and 256 clients")
        .taking(&[Flag::Seconds, Flag::Dir]),
    scenario!("gap", OTHER, gap, "How long writes pause when the leader is killed").taking(&[Flag::Kills, Flag::Dir]),
    scenario!("memory", OTHER, memory, "Resident memory per node of replica processes; restarts a follower")
        .taking(&[Flag::Nodes, Flag::Dir]),
    scenario!("state", OTHER, state, "Resident memory per node of the replicated state alone").taking(&[Flag::Nodes]),
    scenario!("placement", OTHER, placement, "Pods per second that find a node, in a cluster and on the state alone")
        .taking(&[Flag::Nodes, Flag::Pods]),
    scenario!("evictions", OTHER, evictions, "How late pods leave a zone that fell silent").taking(&[
        Flag::Nodes,
        Flag::Pods,
        Flag::Rate,
    ]),
    scenario!("cidrs", OTHER, cidrs, "What node CIDRs add to a registration").taking(&[Flag::Nodes]),
];

/// What a name stands for: one scenario, or all that have a goal or guard something.
pub fn select(name: &str) -> Vec<&'static Scenario> {
    let selected = |scenario: &&Scenario| match name {
        ALL => scenario.goal != OTHER,
        one => scenario.name == one,
    };
    CATALOG.iter().filter(selected).collect()
}

// === impl Scenario ===

impl Scenario {
    const fn new(name: &'static str, goal: &'static str, about: &'static str, course: Course) -> Self {
        Self { name, goal, about, course, takes: &[Flag::Nodes, Flag::Seconds, Flag::Dir] }
    }

    const fn taking(mut self, flags: &'static [Flag]) -> Self {
        self.takes = flags;
        self
    }

    pub fn takes(&self, flag: Flag) -> bool {
        self.takes.contains(&flag)
    }

    /// Whether it can be run on the fleet of the one before it.
    pub fn is_of_fleet(&self) -> bool {
        matches!(self.course, Course::Fleet(_))
    }

    /// On the garrison that the one before it left, if it is one of a fleet. Others need the room: there is none after them.
    pub async fn run(&self, setting: &Setting, garrison: &mut Option<Garrison>) -> Result<Outcome> {
        match self.course {
            Course::Alone(run) => {
                *garrison = None;
                run(setting).await
            }
            Course::Fleet(measure) => measure(Garrison::fit(garrison, setting).await?, setting).await,
        }
    }
}

// === impl Flag ===

impl Flag {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "--nodes",
            Self::Seconds => "--seconds",
            Self::Dir => "--dir",
            Self::Kills => "--kills",
            Self::Pods => "--pods",
            Self::Rate => "--rate",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_none_is_all() {
        let names: BTreeSet<&str> = CATALOG.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), CATALOG.len());
        assert!(!names.contains(ALL));
    }

    #[test]
    fn all_is_what_has_a_goal_and_then_the_guard_rails() {
        let goals: Vec<&str> = select(ALL).iter().map(|scenario| scenario.goal).collect();
        assert!(!goals.contains(&OTHER));
        let first_guard = goals.iter().position(|goal| *goal == "guard").unwrap_or(goals.len());
        assert!(goals[first_guard..].iter().all(|goal| *goal == "guard"), "guard rails last: {goals:?}");
        assert_eq!(select("writes").len(), 1);
        assert!(select("nothing").is_empty());
    }

    #[test]
    fn all_raises_one_fleet_and_harms_it_last() {
        let courses =
            select(ALL).into_iter().map(|scenario| (scenario.is_of_fleet(), scenario.name)).collect::<Vec<_>>();
        let groups: Vec<_> = courses.chunk_by(|(one, _), (next, _)| one == next).filter(|group| group[0].0).collect();
        let [group] = groups[..] else { panic!("one group: {courses:?}") };
        let names: Vec<&str> = group.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["growth", "register", "footprint", "fleet", "detect", "zone-loss", "failover"]);
    }
}
