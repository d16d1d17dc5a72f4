//! One brain: every scenario gives the same timeline whether the judging functions decide directly, as in
//! `muster simulate`, or through the product's actors in virtual time.
//!
//! Both play in the same simulated world (machines, network, replicas, State). With the actors, tokio's paused time is
//! the world's time, and what the tree proposes is committed at once: the log's latency is not part of the rules.
//! The actors of one instant run in no particular order, so events are compared instant by instant as sorted sets. Pods
//! that workloads make are named after their place in the log, so their suffixes are not compared.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_actors::ports::Quiet;
use muster_actors::{ActorKind, Ports, Probe, Proposal, ProposalOutcome, StateSource, Tree};
use muster_cli::simulate::play::Play;
use muster_cli::simulate::scenario::Scenario;
use muster_cli::simulate::world::{Driver, Millis};
use muster_lifecycle::command::Outcome;
use muster_lifecycle::state::State;
use muster_pulse::blindness::JudgingLoop;
use muster_pulse::moment::Moment;
use muster_pulse::tick::Tick;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

const PROPOSALS_MAX: usize = 64;

/// By instant, in milliseconds: the events, sorted.
type Timeline = BTreeMap<Millis, Vec<String>>;

#[test]
fn actors_and_simulation_make_the_same_decisions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    files.sort();
    assert!(files.len() >= 20, "only {} scenarios", files.len());
    let different: Vec<String> = files.iter().filter_map(|file| difference(file)).collect();
    assert!(different.is_empty(), "{} scenarios differ:\n{}", different.len(), different.join("\n"));
}

/// The first difference between the two timelines of a scenario.
fn difference(file: &Path) -> Option<String> {
    let scenario: &'static Scenario =
        Box::leak(Box::new(Scenario::parse(&std::fs::read_to_string(file).unwrap()).unwrap()));
    let (direct, acted) = (timeline(directly(scenario)), timeline(through_actors(scenario)));
    let instants: BTreeSet<Millis> = direct.keys().chain(acted.keys()).copied().collect();
    let none = Vec::new();
    let of = |timeline: &'_ Timeline, at| timeline.get(at).unwrap_or(&none).join("\n    ");
    let parts = instants.iter().find(|at| direct.get(at) != acted.get(at))?;
    Some(format!(
        "{} at {parts} ms\n  simulated:\n    {}\n  actors:\n    {}",
        file.file_stem().unwrap().display(),
        of(&direct, parts),
        of(&acted, parts)
    ))
}

// === the two ways ===

fn directly(scenario: &'static Scenario) -> Vec<String> {
    let mut play = Play::new(scenario).unwrap();
    let mut lines = Vec::new();
    while let Some(happened) = play.play_on() {
        lines.extend(happened.iter().filter_map(|one| one.to_json().unwrap()));
    }
    lines.push(play.ending().to_json(scenario.until).unwrap());
    lines
}

fn through_actors(scenario: &'static Scenario) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let stage = Arc::new(Stage {
            play: Mutex::new(Play::driven_by(scenario, Driver::Elsewhere).unwrap()),
            tree: Mutex::new(None),
            until: scenario.until,
            started: Instant::now(),
            has_led_for_long: AtomicBool::new(true),
        });
        stage.lead_until_the_end().await;
        let mut play = stage.play.lock().unwrap();
        let happened = play.take_happened();
        let mut lines: Vec<String> = happened.iter().filter_map(|one| one.to_json().unwrap()).collect();
        lines.push(play.ending().to_json(scenario.until).unwrap());
        lines
    })
}

// === the actors' stage ===

/// The simulated world, as a replica for the tree. It catches up with time before any actor handles anything, so that
/// at one instant the world comes first, as it does in a simulation.
struct Stage {
    play: Mutex<Play<'static>>,
    tree: Mutex<Option<Tree>>,
    until: Millis,
    started: Instant,
    /// The world does not begin with a take-over: the first tree counts as grown long before.
    has_led_for_long: AtomicBool,
}

impl Stage {
    async fn lead_until_the_end(self: &Arc<Self>) {
        let mut term = 0;
        let mut proposals: Option<mpsc::Receiver<Proposal>> = None;
        loop {
            self.catch_up();
            let led = self.led();
            if led.map(|(_, led)| led) != Some(term).filter(|_| proposals.is_some()) {
                let tree = self.tree.lock().unwrap().take();
                if let Some(tree) = tree {
                    drop(proposals.take());
                    tree.prune().await;
                }
                if let Some((replica, led)) = led {
                    term = led;
                    proposals = Some(self.grow(replica, term).await);
                }
            }
            let next = self.play.lock().unwrap().next_instant();
            let end = self.started + Duration::from_millis(self.until) + Duration::from_micros(500);
            let wake_at = next.map_or(end, |next| self.started + Duration::from_millis(next));
            let proposed = async {
                match &mut proposals {
                    Some(proposals) => proposals.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                proposal = proposed => proposal.into_iter().for_each(|proposal| self.decide(proposal)),
                () = tokio::time::sleep_until(wake_at) => {
                    if next.is_none() {
                        break;
                    }
                }
            }
        }
        let tree = self.tree.lock().unwrap().take();
        if let Some(tree) = tree {
            tree.prune().await;
        }
    }

    /// The leader and its term.
    fn led(&self) -> Option<(usize, u64)> {
        let play = self.play.lock().unwrap();
        Some((play.world().leader()?, play.world().term()))
    }

    async fn grow(self: &Arc<Self>, replica: usize, term: u64) -> mpsc::Receiver<Proposal> {
        let (sender, receiver) = mpsc::channel(PROPOSALS_MAX);
        let pulses = self.play.lock().unwrap().world().pulses(replica);
        let ports = Ports {
            pulses,
            source: Arc::clone(self) as Arc<dyn StateSource>,
            rest: Duration::ZERO,
            proposals: sender,
            observer: Arc::new(Quiet),
            probe: Arc::clone(self) as Arc<dyn Probe>,
        };
        let tree = Tree::grow(ports, term).await.unwrap();
        *self.tree.lock().unwrap() = Some(tree);
        receiver
    }

    /// Everything in the world that happens by itself up to now.
    fn catch_up(&self) {
        let now = Millis::try_from(self.started.elapsed().as_millis()).unwrap();
        let mut play = self.play.lock().unwrap();
        while let Some(next) = play.next_instant().filter(|next| *next <= now) {
            play.instant(next);
            self.tell(&mut play);
        }
        play.world_mut().pass_to(now);
    }

    fn tell(&self, play: &mut Play<'static>) {
        let changes = play.world_mut().take_changes();
        if let Some(tree) = self.tree.lock().unwrap().as_ref().filter(|_| !changes.is_empty()) {
            tree.committed(changes);
        }
    }

    /// Decides a proposal as the leader's replica does: I-03, and the log.
    fn decide(&self, proposal: Proposal) {
        self.catch_up();
        let Proposal { term, operations, confirm, settled } = proposal;
        let mut play = self.play.lock().unwrap();
        let moment = play.world().moment();
        let is_blind = play.world().leader().is_none_or(|leader| {
            let judging = JudgingLoop::of(play.world().state().policy());
            play.world().pulses(leader).blindness().blind_until(moment.tick, judging).is_some()
        });
        let outcomes = if play.world().term() != term || !play.world().can_write() || (confirm && is_blind) {
            operations.iter().map(|_| ProposalOutcome::Failed("this replica cannot judge now".to_owned())).collect()
        } else {
            let outcomes = play.world_mut().propose(operations);
            self.tell(&mut play);
            outcomes.into_iter().map(outcome).collect()
        };
        let _ = settled.send(outcomes);
    }
}

impl StateSource for Stage {
    fn state(&self) -> State {
        self.play.lock().unwrap().world().state().clone()
    }

    fn moment(&self) -> Moment {
        let moment = self.play.lock().unwrap().world().moment();
        match self.has_led_for_long.swap(false, Ordering::SeqCst) {
            true => Moment { tick: Tick::ZERO, ..moment },
            false => moment,
        }
    }
}

impl Probe for Stage {
    fn before(&self, _: ActorKind, _: &str) {
        self.catch_up();
    }
}

fn outcome(outcome: Outcome) -> ProposalOutcome {
    match outcome {
        Outcome::Done(receipt) => ProposalOutcome::Done(receipt),
        Outcome::Rejected(rejection) => ProposalOutcome::Rejected(rejection),
    }
}

// === timelines ===

fn timeline(lines: Vec<String>) -> Timeline {
    let given = |line: &str| line.contains("\"action\":\"created\"");
    let parsed: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let made: Vec<&str> = lines
        .iter()
        .zip(&parsed)
        .filter(|(line, _)| given(line))
        .filter_map(|(_, value)| value["pod"].as_str())
        .collect();
    let mut timeline = Timeline::new();
    for (line, value) in lines.iter().zip(&parsed) {
        let at = (value["at"].as_f64().unwrap() * 1_000.0).round() as Millis;
        timeline.entry(at).or_default().push(without_suffixes(line, &made));
    }
    timeline.values_mut().for_each(|events| events.sort());
    timeline
}

/// Names of StatefulSets' pods do not depend on the log; those of others end in five letters or digits that do.
fn without_suffixes(line: &str, made: &[&str]) -> String {
    made.iter().fold(line.to_owned(), |line, pod| match pod.rsplit_once('-') {
        Some((base, suffix)) if suffix.len() == 5 => line.replace(*pod, &format!("{base}-*")),
        Some(_) | None => line,
    })
}
