//! Owners of pods: `ReplicaSet/web`, `StatefulSet/db`, `DaemonSet/log`, or a kind alone, named like its pods.
//!
//! The pods that name the same owner are all that it has at the start, so they must look as if it had made them.

use std::collections::{BTreeMap, BTreeSet};

use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::name;
use muster_lifecycle::text::Text;
use muster_lifecycle::workload::WorkloadKey;

use crate::simulate::located::{Fault, Field, clipped};
use crate::simulate::world::{NAMESPACE, PodSpec};

/// Each with the field that first named it, and what its pods are like.
#[derive(Default)]
pub(super) struct Owners<'a>(BTreeMap<WorkloadKey, (Field<'a>, PodSpec)>);

// === impl Owners ===

impl<'a> Owners<'a> {
    /// The owner of a group of pods, which are like `model`.
    pub(super) fn read(&mut self, field: &Field<'a>, pod: &Field<'_>, model: &PodSpec) -> Result<WorkloadKey, Fault> {
        let key = key(field, pod)?;
        let (_, known) = self.0.entry(key.clone()).or_insert_with(|| (field.clone(), model.clone()));
        match known.tolerations == model.tolerations && known.grace == model.grace {
            true => Ok(key),
            false => Err(field.fault(format!(
                "other pods of {}/{} have other tolerations or another gracePeriod: one owner makes pods that are alike",
                key.kind,
                clipped(&key.name)
            ))),
        }
    }

    /// Called once all pods are known.
    pub(super) fn check(&self, pods: &BTreeMap<Text, PodSpec>) -> Result<(), Fault> {
        let mut owned: BTreeMap<&WorkloadKey, Vec<(&Text, &PodSpec)>> = BTreeMap::new();
        for (name, spec) in pods {
            if let Some(owner) = &spec.owner {
                owned.entry(owner).or_default().push((name, spec));
            }
        }
        for (key, (field, _)) in &self.0 {
            let own = owned.remove(key).unwrap_or_default();
            match key.kind {
                WorkloadKind::ReplicaSet => {}
                WorkloadKind::StatefulSet => check_ordinals(field, key, &own)?,
                WorkloadKind::DaemonSet => check_daemons(field, key, &own)?,
            }
        }
        Ok(())
    }
}

fn key(field: &Field<'_>, pod: &Field<'_>) -> Result<WorkloadKey, Fault> {
    let text = field.text()?;
    let (kind, name) = match text.split_once('/') {
        Some((kind, name)) => (kind, name.to_owned()),
        None => (text.as_str(), pod.text()?),
    };
    let kind = kind.parse::<WorkloadKind>().map_err(|error| field.fault(error))?;
    name::dns_label(&name).map_err(|rule| field.fault(rule))?;
    Ok(WorkloadKey { kind, namespace: Text::from(NAMESPACE), name: Text::from(name) })
}

/// A StatefulSet knows its pods by their names.
fn check_ordinals(field: &Field<'_>, key: &WorkloadKey, own: &[(&Text, &PodSpec)]) -> Result<(), Fault> {
    let wanted: BTreeSet<String> = (0..own.len()).map(|ordinal| format!("{}-{ordinal}", key.name)).collect();
    match own.iter().find(|(name, _)| !wanted.contains(name.as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let (stem, last) = (clipped(&key.name), own.len().saturating_sub(1));
            let rule = format!("its {} pods are named {stem}-0 to {stem}-{last}", own.len());
            Err(field.fault(format!("pod {:?} cannot be one of StatefulSet/{stem}: {rule}", clipped(name))))
        }
    }
}

fn check_daemons(field: &Field<'_>, key: &WorkloadKey, own: &[(&Text, &PodSpec)]) -> Result<(), Fault> {
    let mut nodes = BTreeSet::new();
    match own.iter().find(|(_, spec)| spec.node.is_none() || !nodes.insert(&spec.node)) {
        None => Ok(()),
        Some((name, _)) => {
            let rule = "a DaemonSet has one pod on each node, and places none";
            Err(field.fault(format!(
                "pod {:?} cannot be one of DaemonSet/{}: {rule}",
                clipped(name),
                clipped(&key.name)
            )))
        }
    }
}
