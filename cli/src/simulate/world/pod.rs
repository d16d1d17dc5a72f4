//! The pods that are there at the start, and the workloads that they belong to.

use std::collections::BTreeMap;

use muster_lifecycle::command::{Command, OperatorOperation};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::{OwnerReference, Pairs, Uid};
use muster_lifecycle::pod::{PodDraft, PodKey, PodTemplate};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::toleration::{self, Toleration};
use muster_lifecycle::workload::{API_VERSION, WorkloadDraft, WorkloadKey};

use super::agents::{by_operator, stamp};
use super::machine::InitialReady;
use super::{Witness, World};

/// Scenarios have one namespace only.
pub const NAMESPACE: &str = "default";

/// A pod as a scenario describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSpec {
    /// `None` while the pod waits to be placed.
    pub node: Option<Text>,
    pub owner: Option<WorkloadKey>,
    /// Seconds to stop in; `None` for the default.
    pub grace: Option<i64>,
    pub tolerations: Box<[Toleration]>,
}

/// The label by which the pods of one workload are selected.
const APP_LABEL: &str = "app";

// === impl PodSpec ===

impl PodSpec {
    /// `owner` is the uid of its workload.
    pub fn draft(&self, name: &Text, owner: Option<Uid>) -> PodDraft {
        let reference = self.owner.as_ref().zip(owner).map(|(key, uid)| reference(key, uid));
        PodDraft {
            key: PodKey::new(NAMESPACE, name.clone()),
            labels: self.owner.as_ref().map(labels),
            owners: reference.map(|reference| [reference].into()),
            node: self.node.clone(),
            template: PodTemplate { tolerations: Some(self.all_tolerations()), ..self.template() },
            ..PodDraft::default()
        }
    }

    fn workload_draft(&self, key: &WorkloadKey, replicas: i64) -> WorkloadDraft {
        WorkloadDraft {
            key: key.clone(),
            labels: None,
            annotations: None,
            finalizers: None,
            owners: None,
            replicas: Some(replicas),
            selector: labels(key),
            pod_labels: labels(key),
            pod_annotations: Pairs::default(),
            template: self.template(),
            unmodelled: None,
        }
    }

    fn template(&self) -> PodTemplate {
        PodTemplate {
            tolerations: Some(self.tolerations.clone()),
            grace: self.grace,
            has_containers: true,
            ..PodTemplate::default()
        }
    }

    /// TE-12: pods of a scenario's DaemonSet have the tolerations that a DaemonSet gives to the pods that it makes.
    fn all_tolerations(&self) -> Box<[Toleration]> {
        match self.owner.as_ref().map(|owner| owner.kind) {
            Some(WorkloadKind::DaemonSet) => toleration::with_daemon_defaults(&self.tolerations, false),
            Some(WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet) | None => self.tolerations.clone(),
        }
    }
}

fn reference(key: &WorkloadKey, uid: Uid) -> OwnerReference {
    OwnerReference {
        api_version: Text::from(API_VERSION),
        kind: Text::from(key.kind.as_str()),
        name: key.name.clone(),
        uid,
        controller: true,
        block_owner_deletion: true,
    }
}

fn labels(key: &WorkloadKey) -> Pairs {
    Pairs::from_iter([(APP_LABEL, key.name.clone())])
}

// === the beginning ===

impl<W: Witness> World<W> {
    /// Creates the pods as they are at the start: with their workloads complete, and running.
    pub(super) fn found_pods(&mut self, pods: &BTreeMap<Text, PodSpec>) -> Result<(), Rejection> {
        if pods.is_empty() {
            return Ok(());
        }
        let mut commands = Vec::new();
        let mut owners = BTreeMap::new();
        for (key, (model, replicas)) in workloads(pods) {
            let uid = self.next_uid();
            owners.insert(key, uid);
            commands.push(by_operator(OperatorOperation::CreateWorkload {
                draft: Box::new(model.workload_draft(key, replicas)),
                uid,
            }));
        }
        for (name, spec) in pods {
            let owner = spec.owner.as_ref().and_then(|key| owners.get(key)).copied();
            let operation =
                OperatorOperation::CreatePod { draft: Box::new(spec.draft(name, owner)), uid: self.next_uid() };
            commands.push(by_operator(operation));
        }
        self.write_down(stamp(0), commands)?;
        let reports = self.first_reports();
        self.write_down(stamp(0), reports)?;
        self.errands.clear();
        Ok(())
    }

    /// A machine that never posted a status has not started anything yet.
    fn first_reports(&self) -> Vec<Command> {
        let has_posted = |place: &usize| self.machines[*place].spec.ready != InitialReady::NeverPosted;
        (0..self.machines.len()).filter(has_posted).filter_map(|place| self.says_of_well(place)).collect()
    }
}

/// Each workload with one of its pods, which are all alike, and how many there are.
fn workloads(pods: &BTreeMap<Text, PodSpec>) -> BTreeMap<&WorkloadKey, (&PodSpec, i64)> {
    let mut workloads = BTreeMap::new();
    for spec in pods.values() {
        if let Some(key) = &spec.owner {
            workloads.entry(key).or_insert((spec, 0)).1 += 1;
        }
    }
    workloads
}
