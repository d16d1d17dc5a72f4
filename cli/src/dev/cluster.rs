//! The replicas of a local cluster: started, supervised, restarted, stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt;
use futures::future::{join_all, select_all};
use muster_client::{Client, Query, has_leader};
use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{ClientConfig, FleetFolder};
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{PolicyChange, StatusResponse};
use serde_json::Value;
use tokio::time::Instant;

use super::control::{Call, Control, FleetRequest, Request};
use super::replica::{self, Replica};
use super::simulation::{Simulation, Size};
use super::{demo, guide, record};
use crate::exit::Failure;
use crate::output::{Out, say};
use crate::verb::object;

pub(super) struct Cluster {
    dir: PathBuf,
    fleet: FleetFolder,
    size: Size,
    simulation: Option<Simulation>,
    /// Flags for the policy of a new cluster, and for the node CIDRs of one that has none.
    initial_flags: Vec<String>,
    program: PathBuf,
    replicas: BTreeMap<ReplicaId, Replica>,
    restart_dead: bool,
    client: Client,
}

/// The cluster that the flags ask for.
pub(super) struct Wish {
    pub(super) policy: Policy,
    /// Flags named the policy; it is not just the default.
    pub(super) asked_for: bool,
    /// The ranges from which nodes get addresses, as flags of a replica and as their meaning.
    pub(super) addressing: Vec<String>,
    pub(super) plan: Option<Addressing>,
}

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

// === impl Cluster ===

impl Cluster {
    pub(super) fn new(dir: &Path, fleet: FleetFolder, size: Size, restart_dead: bool) -> Result<Self, Failure> {
        let mut replicas = BTreeMap::new();
        for plan in fleet.replicas() {
            match fleet.replica_dir(plan.id).join("config.toml").is_file() {
                true => {
                    replicas.insert(plan.id, Replica::load(dir, plan.id).map_err(Failure::Other)?);
                }
                false => say(format_args!("replica {} has no folder any more: not started", plan.id)),
            }
        }
        let config = ClientConfig::load(&fleet.operator_dir().join("client.toml")).map_err(Failure::other)?;
        let client = Client::new(config).map_err(Failure::other)?.with_timeout(Duration::from_secs(3));
        let program = std::env::current_exe().context("cannot find this program's own file").map_err(Failure::Other)?;
        let (simulation, initial_flags) = (None, Vec::new());
        Ok(Self { dir: dir.into(), fleet, size, simulation, initial_flags, program, replicas, restart_dead, client })
    }

    /// Brings the cluster up and watches over it until it is asked to stop.
    pub(super) async fn run(&mut self, first_start: bool, wish: Wish) -> Result<(), Failure> {
        if first_start {
            self.initial_flags = wish.policy.settings().map(|(name, value)| format!("--{name}={value}")).to_vec();
        }
        self.initial_flags.extend(wish.addressing);
        for replica in self.replicas.values_mut() {
            let pid = replica.start(&self.program, &self.initial_flags).map_err(Failure::Other)?;
            say(format_args!("replica {} started (pid {pid})", replica.id()));
        }
        let leader = self.wait_until_ready(first_start).await?;
        if wish.asked_for && !first_start {
            self.set_policy(&wish.policy).await?;
        }
        self.show_settings(wish.plan.as_ref()).await;
        self.simulate()?;
        if first_start {
            self.give_work().await;
        }
        let mut control = Control::open(&self.dir).map_err(Failure::Other)?;
        record::write(&self.dir, self.replicas.values()).map_err(Failure::Other)?;
        self.show(leader);
        self.supervise(&mut control).await
    }

    async fn set_policy(&self, policy: &Policy) -> Result<(), Failure> {
        let settings = policy.settings().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.client.write(Operation::Policy(PolicyChange { settings })).await?;
        Ok(())
    }

    async fn show_settings(&self, plan: Option<&Addressing>) {
        match self.settings(plan.is_some()).await {
            Ok(config) => {
                guide::policy(&config).into_iter().for_each(say);
                guide::addressing(&config, plan).into_iter().for_each(say);
            }
            Err(failure) => say(format_args!("cannot read the policy: {failure}")),
        }
    }

    /// The settings in force. The leader writes them before anything else, but not before it leads.
    async fn settings(&self, with_addressing: bool) -> Result<Value, Failure> {
        let deadline = Instant::now() + SETTINGS_TIMEOUT;
        loop {
            let config = object(&self.client.get("config", "", false).await?.value)?;
            let is_complete = config["founded"] == true && (config["addressing"].is_object() || !with_addressing);
            if is_complete || Instant::now() >= deadline {
                return Ok(config);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Errors are ignored: a cluster without demo pods works as well.
    async fn give_work(&self) {
        let pods = self.size.all_demo_pods();
        if pods == 0 {
            return;
        }
        match self.client.write(demo::operation(pods)).await {
            Ok(_) => say(format_args!("replicaset/{} created: {pods} pods", demo::NAME)),
            Err(error) => say(format_args!("cannot create replicaset/{}: {error}", demo::NAME)),
        }
    }

    /// Agents connect by themselves from here on, to whichever replica answers.
    fn simulate(&mut self) -> Result<(), Failure> {
        if self.size.nodes > 0 {
            let simulation = Simulation::start(&self.fleet, self.size, &self.dir).map_err(Failure::Other)?;
            self.simulation = Some(simulation);
            say(format_args!("starting {} simulated nodes in {} zones", self.size.nodes, self.size.zones));
        }
        Ok(())
    }

    fn answer_fleet(&self, request: &FleetRequest) -> Result<String, String> {
        match &self.simulation {
            Some(simulation) => simulation.answer(request),
            None => Err("this `muster dev` runs no simulated nodes: start it with --nodes N".to_owned()),
        }
    }

    pub(super) async fn stop(&mut self) {
        if let Some(simulation) = self.simulation.take() {
            simulation.stop().await;
        }
        join_all(self.replicas.values_mut().map(Replica::stop)).await;
    }

    async fn wait_until_ready(&mut self, first_start: bool) -> Result<ReplicaId, Failure> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut said = String::new();
        while Instant::now() < deadline {
            let client = self.client.sibling();
            let status = tokio::select! {
                (id, ended) = any_end(&mut self.replicas) => {
                    self.died_early(id, ended, first_start)?;
                    continue;
                }
                status = settled(&client) => status,
            };
            let missing = self.missing(status.as_ref(), first_start);
            match status.and_then(|status| status.leader).map(ReplicaId) {
                Some(leader) if missing.is_empty() => return Ok(leader),
                leader => {
                    let now = progress(leader, &missing);
                    if now != said {
                        say(&now);
                        said = now;
                    }
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Failure::Timeout(format!(
            "the cluster was not ready after {READY_TIMEOUT:?} ({said}); see the logs in {}/replica-N/log",
            self.dir.display()
        )))
    }

    /// Our running replicas that the cluster does not see yet. A replica that was prepared but never added, or
    /// was removed, is not the cluster's; at a first start all are.
    fn missing(&self, status: Option<&StatusResponse>, first_start: bool) -> Vec<ReplicaId> {
        let running = self.replicas.values().filter(|replica| replica.is_running()).map(Replica::id);
        let is_missing = |id: &ReplicaId| match status {
            None => true,
            Some(status) => match status.replicas.iter().find(|replica| replica.id == id.0) {
                Some(replica) => !replica.reachable,
                None => first_start || status.replicas.is_empty(),
            },
        };
        running.filter(is_missing).collect()
    }

    /// A first start must be complete; an older cluster may come up without one replica, as it would in real life.
    fn died_early(&self, id: ReplicaId, ended: std::io::Result<ExitStatus>, first_start: bool) -> Result<(), Failure> {
        let report = self.crash_report(id, ended);
        let running = self.replicas.values().filter(|replica| replica.is_running()).count();
        if first_start || running * 2 <= self.replicas.len() {
            let remedy = "if a port is in use, choose others with --port-base PORT (and a new --dir)";
            return Err(Failure::other(anyhow::anyhow!("{report}{remedy}")));
        }
        say(report.trim_end());
        Ok(())
    }

    fn crash_report(&self, id: ReplicaId, ended: std::io::Result<ExitStatus>) -> String {
        let Some(replica) = self.replicas.get(&id) else { return String::new() };
        let how = ended.map_or_else(|error| error.to_string(), replica::describe);
        format!(
            "replica {id} (pid {}) ended: {how}; the end of {}:\n{}",
            replica.last_pid(),
            replica.log().display(),
            replica.log_tail()
        )
    }

    /// A closed terminal does not stop the cluster.
    fn show(&self, leader: ReplicaId) {
        let mut out = Out::stdout();
        for line in guide::lines(&self.dir, leader, self.replicas.values()) {
            if out.line(line).is_err() {
                return;
            }
        }
        let _ = out.flush();
    }

    async fn supervise(&mut self, control: &mut Control) -> Result<(), Failure> {
        loop {
            let due = self.replicas.values().filter_map(|replica| replica.restart_at).min();
            tokio::select! {
                (id, ended) = any_end(&mut self.replicas) => self.died(id, ended),
                call = control.next() => {
                    let Call { request, answer } = call;
                    let outcome = match &request {
                        Request::Stop => Ok(format!("stopping the cluster in {}", self.dir.display())),
                        Request::Restart(id) => self.restart(*id).await.map_err(|error| format!("{error:#}")),
                        Request::Fleet(request) => self.answer_fleet(request),
                    };
                    // The caller may have left; what it asked is done.
                    let _ = answer.send(outcome);
                    if request == Request::Stop {
                        control.settle().await;
                        return Ok(());
                    }
                }
                () = at(due) => self.restart_due(),
            }
        }
    }

    fn died(&mut self, id: ReplicaId, ended: std::io::Result<ExitStatus>) {
        say(self.crash_report(id, ended).trim_end());
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let by_hand = format!("restart it with `{} dev restart {id}`", guide::command(&self.dir));
        match replica.next_restart().filter(|_| self.restart_dead) {
            Some(pause) => replica.restart_at = Some(Instant::now() + pause),
            None if self.restart_dead => {
                say(format_args!("replica {id} keeps crashing and is not restarted again; {by_hand}"))
            }
            None => say(by_hand),
        }
    }

    fn restart_due(&mut self) {
        let now = Instant::now();
        for replica in self.replicas.values_mut().filter(|replica| replica.restart_at.is_some_and(|at| at <= now)) {
            match replica.start(&self.program, &self.initial_flags) {
                Ok(pid) => say(format_args!("replica {} restarted (pid {pid})", replica.id())),
                Err(error) => {
                    replica.restart_at = None;
                    say(format_args!("cannot restart replica {}: {error:#}", replica.id()));
                }
            }
        }
        self.rewrite_record();
    }

    /// Also starts a replica whose folder was prepared while we ran.
    async fn restart(&mut self, id: ReplicaId) -> anyhow::Result<String> {
        let mut replica = match self.replicas.remove(&id) {
            Some(replica) => replica,
            None => Replica::load(&self.dir, id).with_context(|| format!("there is no replica {id} here"))?,
        };
        replica.stop().await;
        replica.forgive();
        let started = replica.start(&self.program, &self.initial_flags);
        self.replicas.insert(id, replica);
        let pid = started?;
        self.rewrite_record();
        let done = format!("replica {id} restarted, pid {pid}");
        say(&done);
        Ok(done)
    }

    fn rewrite_record(&self) {
        if let Err(error) = record::write(&self.dir, self.replicas.values()) {
            say(format_args!("{error:#}"));
        }
    }
}

/// The cluster's status, with a leader only if it answers for a quorum. After a restart replicas remember the leader
/// before, so their word alone is not enough.
async fn settled(client: &Client) -> Option<StatusResponse> {
    let status = client.status().await.ok()?;
    let probe = Query { limit: 1, ..Query::of("nodes") };
    match has_leader(&status) && client.list(&probe).await.is_ok() {
        true => client.status().await.ok(),
        false => Some(StatusResponse { leader: None, ..status }),
    }
}

/// The first replica whose process ends.
async fn any_end(replicas: &mut BTreeMap<ReplicaId, Replica>) -> (ReplicaId, std::io::Result<ExitStatus>) {
    let ends = replicas.iter_mut().map(|(id, replica)| replica.ended().map(|ended| (*id, ended)).boxed());
    let ends: Vec<_> = ends.collect();
    match ends.is_empty() {
        true => std::future::pending().await,
        false => select_all(ends).await.0,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn progress(leader: Option<ReplicaId>, missing: &[ReplicaId]) -> String {
    let leads = match leader {
        Some(id) => format!("replica {id} leads"),
        None => "no leader yet".into(),
    };
    let missing: Vec<String> = missing.iter().map(ReplicaId::to_string).collect();
    match missing.is_empty() {
        true => format!("waiting: {leads}"),
        false => format!("waiting: {leads}; not up yet: {}", missing.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_what_is_still_missing() {
        assert_eq!(progress(None, &[ReplicaId(2), ReplicaId(3)]), "waiting: no leader yet; not up yet: 2, 3");
        assert_eq!(progress(Some(ReplicaId(1)), &[]), "waiting: replica 1 leads");
    }
}
