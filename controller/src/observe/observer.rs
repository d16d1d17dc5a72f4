//! The observer of a replica: it connects the replica's parts to its metrics and its health checks.

use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::{ActorKind, Observer};
use muster_lifecycle::census::Census;
use muster_lifecycle::pod::Phase;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::excuse::BlindnessCause;
use muster_pulse::node_watch::Judgement;
use muster_raft::replica::Replica;
use tokio_util::sync::CancellationToken;

use crate::hearing::Hearing;
use crate::hearing::contact::Contact;
use crate::observe::http::{Check, Sources};
use crate::observe::metrics::pulse::{Blind, DigestFigures};
use crate::observe::metrics::raft::RaftFigures;
use crate::observe::metrics::state::StateFigures;
use crate::observe::metrics::work::{PoolFigures, WorkFigures};
use crate::observe::metrics::zones::ZoneFigures;
use crate::observe::metrics::{Figures, Metrics};
use crate::session::figures::SessionFigures;

/// How often values that no code path counts are sampled: excuses and leaders.
const SAMPLE_PERIOD: Duration = Duration::from_millis(250);

/// Counts what happens in the supervision tree.
pub(crate) struct MeteredTree(pub Arc<Metrics>);

impl Observer for MeteredTree {
    fn swept(&self, took: Duration, silent: usize) {
        self.0.lifecycle.sweep_duration.observe(took.as_secs_f64());
        self.0.lifecycle.silent_nodes.set(i64::try_from(silent).unwrap_or(i64::MAX));
    }

    fn judged(&self, judgement: &Judgement, took: Duration) {
        self.0.lifecycle.judged(judgement);
        self.0.lifecycle.node_health_duration.observe(took.as_secs_f64());
    }

    fn judging_round(&self, took: Duration) {
        self.0.lifecycle.all_nodes_health_duration.observe(took.as_secs_f64());
    }

    fn restarted(&self, kind: ActorKind) {
        self.0.actors.restarted(kind.as_str());
    }

    fn quarantined(&self, count: usize) {
        self.0.actors.quarantined.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn actors(&self, kind: ActorKind, count: usize) {
        self.0.actors.running(kind.as_str()).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// The sources of the HTTP door's answers.
pub(crate) fn sources(
    metrics: Arc<Metrics>,
    replica: &Replica,
    hearing: &Hearing,
    contact: &Contact,
    sessions: Arc<SessionFigures>,
) -> Sources {
    let (checked, contact) = (replica.clone(), contact.clone());
    let checks = move || {
        vec![
            Check::leader(checked.leader()),
            Check::contact(Some(contact.lost_for().unwrap_or(Duration::ZERO))),
            Check::disk(checked.disk_trouble().as_ref()),
        ]
    };
    Sources { metrics, figures: figures(replica, hearing, sessions), checks: Arc::new(checks) }
}

fn figures(replica: &Replica, hearing: &Hearing, sessions: Arc<SessionFigures>) -> Figures {
    let (zones, raft, state, peers, hearing) =
        (replica.clone(), replica.clone(), replica.clone(), replica.clone(), hearing.clone());
    let work = replica.clone();
    Figures {
        zones: Arc::new(move || zone_figures(&zones.current().state)),
        digests: Arc::new(move || digest_figures(&peers, &hearing)),
        raft: Arc::new(move || raft_figures(&raft)),
        state: Arc::new(move || state_figures(&state.current().state)),
        work: Arc::new(move || work_figures(&work.current().state)),
        sessions,
    }
}

fn zone_figures(state: &State) -> Vec<ZoneFigures> {
    state.census().map(|(key, census)| zone_figure(state, key, census)).collect()
}

fn zone_figure(state: &State, key: &ZoneKey, census: &Census) -> ZoneFigures {
    let record = state.zones().get(key);
    ZoneFigures {
        zone: key.to_string(),
        size: census.size(),
        ready: u64::from(census.ready),
        state: record.map_or("Initial", |record| record.zone.state.as_str()),
        rate_per_second: record.map_or(0.0, |record| record.zone.rate.0 as f64 / 1e6),
        queue: state.queue(key).map_or(0, |queue| queue.len() as u64),
        evictions: record.map_or(0, |record| record.evictions),
    }
}

fn digest_figures(replica: &Replica, hearing: &Hearing) -> Vec<DigestFigures> {
    let now = hearing.tick();
    let blindness = hearing.pulses().blindness();
    let others = replica.members().into_keys().filter(|id| *id != replica.id());
    let age = |id: ReplicaId| Some(now.elapsed_since(blindness.last_digest(id)?));
    others.filter_map(|origin| Some(DigestFigures { origin: origin.0, age: age(origin)? })).collect()
}

fn raft_figures(replica: &Replica) -> RaftFigures {
    RaftFigures {
        term: replica.term(),
        is_leader: replica.leader() == Some(replica.id()),
        applied_index: replica.current().applied_index(),
        last_log_index: replica.last_log_index(),
        quorum_age: replica.since_quorum(),
        disk_in_trouble: replica.disk_trouble().is_some(),
        disk_free_bytes: replica.disk_free_bytes(),
    }
}

fn state_figures(state: &State) -> StateFigures {
    let counts = state.node_counts();
    StateFigures {
        nodes: counts.total as u64,
        nodes_ready: counts.ready as u64,
        revision: state.revision().0,
        cluster_time: Duration::from_millis(state.cluster_time().0),
    }
}

fn work_figures(state: &State) -> WorkFigures {
    let tally = state.pod_tally();
    let counts = [tally.pending, tally.running, tally.succeeded, tally.failed, tally.unknown];
    let pods = Phase::ALL.into_iter().zip(counts).map(|(phase, count)| (phase.as_str(), count as u64)).collect();
    let pools = state.addressing().into_iter().flat_map(|plan| plan.pools.iter()).zip(state.free_blocks());
    let pools =
        pools.map(|(pool, free)| PoolFigures { range: pool.grid.range.to_string(), blocks: pool.grid.blocks(), free });
    WorkFigures {
        pods,
        ready: tally.ready as u64,
        waiting: state.waiting_pods().len() as u64,
        leaving: state.leaving_pods().len() as u64,
        terminating: tally.terminating as u64,
        pools: pools.collect(),
        nodes_without_cidr: state.nodes_without_cidr().len() as u64,
        resting: state.resting().len() as u64,
    }
}

/// Samples what changes by itself: excuses and the leader.
pub(crate) async fn sample(metrics: Arc<Metrics>, replica: Replica, hearing: Hearing, stop: CancellationToken) {
    let mut leader = None;
    let mut ticks = tokio::time::interval(SAMPLE_PERIOD);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        sample_excuses(&metrics, &hearing);
        let leads = replica.leader();
        if leads.is_some() && leads != leader {
            metrics.raft.leader_changes.inc();
            leader = leads;
        }
    }
}

fn sample_excuses(metrics: &Metrics, hearing: &Hearing) {
    let now = hearing.tick();
    let in_force: Vec<Blind> =
        hearing.pulses().blindness().in_force(now).map(|in_force| kind(in_force.cause)).collect();
    for excuse in Blind::ALL {
        metrics.pulse.excused(excuse, in_force.contains(&excuse));
    }
    if !in_force.is_empty() {
        metrics.pulse.was_blind(SAMPLE_PERIOD);
    }
}

fn kind(cause: BlindnessCause) -> Blind {
    match cause {
        BlindnessCause::Takeover => Blind::Takeover,
        BlindnessCause::Stall => Blind::Stall,
        BlindnessCause::Quorum => Blind::Quorum,
        BlindnessCause::Digest(_) => Blind::Digest,
        BlindnessCause::Canary(_) => Blind::Canary,
    }
}
