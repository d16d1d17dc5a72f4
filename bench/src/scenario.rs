//! Scenarios, one file each, and the catalog of them in the order in which `all` runs them. A new scenario is a file
//! and a line here.
//!
//! Scenarios of a large fleet stand side by side, because they share one: first those that measure its registration,
//! last the one that kills a replica for good.

mod agents;
mod cidrs;
mod detect;
mod evictions;
mod failover;
mod fleet;
mod flood;
mod footprint;
mod gap;
mod growth;
mod heartbeats;
mod memory;
mod peers;
mod placement;
mod register;
mod replica_loss;
mod stalled;
mod state;
mod storm;
mod writes;
mod zone_loss;

use std::pin::Pin;

use anyhow::Result;

use crate::harness::options::BenchOptions;
use crate::harness::shared_fleet::SharedFleet;
use crate::report::figure::{GUARD, OTHER};
use crate::report::outcome::ScenarioOutcome;

/// A scenario that can be asked for by name.
#[derive(Debug, Clone, Copy)]
pub struct BenchScenario {
    /// As on the command line.
    pub name: &'static str,
    /// P1 to P8, `growth`, [`GUARD`], or [`OTHER`].
    pub goal: &'static str,
    pub about: &'static str,
    setup: Setup,
    takes: &'static [Flag],
}

/// The setup that a scenario runs on.
#[derive(Debug, Clone, Copy)]
enum Setup {
    /// A cluster of its own, or none.
    Own(for<'a> fn(&'a BenchOptions) -> Running<'a>),
    /// A large fleet, which it may share with others.
    SharedFleet(for<'a> fn(&'a mut SharedFleet, &'a BenchOptions) -> Running<'a>),
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<ScenarioOutcome>> + Send + 'a>>;

/// A flag that a scenario may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    Nodes,
    Seconds,
    Dir,
    Kills,
    Pods,
    Rate,
}

/// The name that runs all goals and guard rails.
pub const ALL: &str = "all";

macro_rules! scenario {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        BenchScenario::new($name, $goal, $about, Setup::Own(|options| Box::pin($module::run(options))))
    };
}

/// A scenario of a large fleet that is complete.
macro_rules! of_fleet {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        BenchScenario::new(
            $name,
            $goal,
            $about,
            Setup::SharedFleet(|fleet, options| {
                Box::pin(async move {
                    let (bed, load) = fleet.whole().await?;
                    $module::measure(bed, load, options).await
                })
            }),
        )
    };
}

/// A scenario of a large fleet that it registers itself.
macro_rules! of_growing_fleet {
    ($name:literal, $goal:expr, $module:ident, $about:literal) => {
        BenchScenario::new(
            $name,
            $goal,
            $about,
            Setup::SharedFleet(|fleet, options| Box::pin($module::measure(fleet, options))),
        )
    };
}

pub static CATALOG: &[BenchScenario] = &[
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
    scenario!("stalled", GUARD, stalled, "Readers that stall beside a fleet that beats"),
    scenario!("storm", GUARD, storm, "All nodes lose their connections at once and come back at once")
        .taking(&[Flag::Nodes, Flag::Dir]),
    scenario!("flood", GUARD, flood, "An aggregator that floods beside a fleet that beats"),
    scenario!("replica-loss", GUARD, replica_loss, "Agents with a TLS connection each, one replica is killed for good")
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

/// The scenarios of a name: one, or for [`ALL`] those that have a goal and the guard rails.
pub fn select(name: &str) -> Vec<&'static BenchScenario> {
    let selected = |scenario: &&BenchScenario| match name {
        ALL => scenario.goal != OTHER,
        one => scenario.name == one,
    };
    CATALOG.iter().filter(selected).collect()
}

// === impl BenchScenario ===

impl BenchScenario {
    const fn new(name: &'static str, goal: &'static str, about: &'static str, setup: Setup) -> Self {
        Self { name, goal, about, setup, takes: &[Flag::Nodes, Flag::Seconds, Flag::Dir] }
    }

    const fn taking(mut self, flags: &'static [Flag]) -> Self {
        self.takes = flags;
        self
    }

    pub(crate) fn takes(&self, flag: Flag) -> bool {
        self.takes.contains(&flag)
    }

    /// Runs on the fleet of the scenario before it, if it takes one. Other scenarios need the room, so they end that
    /// fleet.
    pub(crate) async fn run(&self, options: &BenchOptions, fleet: &mut Option<SharedFleet>) -> Result<ScenarioOutcome> {
        match self.setup {
            Setup::Own(run) => {
                *fleet = None;
                run(options).await
            }
            Setup::SharedFleet(measure) => measure(SharedFleet::fit(fleet, options).await?, options).await,
        }
    }
}

// === impl Flag ===

impl Flag {
    pub(crate) fn name(self) -> &'static str {
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
    fn scenario_names_are_unique_and_none_is_all() {
        let names: BTreeSet<&str> = CATALOG.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), CATALOG.len());
        assert!(!names.contains(ALL));
    }

    #[test]
    fn all_runs_every_goal_and_then_the_guard_rails() {
        let goals: Vec<&str> = select(ALL).iter().map(|scenario| scenario.goal).collect();
        assert!(!goals.contains(&OTHER));
        let first_guard = goals.iter().position(|goal| *goal == "guard").unwrap_or(goals.len());
        assert!(goals[first_guard..].iter().all(|goal| *goal == "guard"), "guard rails last: {goals:?}");
        assert_eq!(select("writes").len(), 1);
        assert!(select("nothing").is_empty());
    }

    #[test]
    fn all_shares_one_fleet_and_runs_destructive_scenarios_last() {
        let setups = select(ALL)
            .into_iter()
            .map(|scenario| (matches!(scenario.setup, Setup::SharedFleet(_)), scenario.name))
            .collect::<Vec<_>>();
        let groups: Vec<_> = setups.chunk_by(|(one, _), (next, _)| one == next).filter(|group| group[0].0).collect();
        let [group] = groups[..] else { panic!("one group: {setups:?}") };
        let names: Vec<&str> = group.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["growth", "register", "footprint", "fleet", "detect", "zone-loss", "failover"]);
    }
}
