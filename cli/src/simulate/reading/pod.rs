//! The `pods` section: checked in full and shown at the end. Nothing evicts pods yet.

use std::collections::BTreeMap;

use muster_lifecycle::name;
use muster_lifecycle::taint::Effect;
use muster_lifecycle::text::Text;

use super::duration;
use super::node::names;
use super::selection::{Among, Roster};
use crate::simulate::located::{Fault, Field, Fields, clipped};
use crate::simulate::scenario::PodSpec;

pub(super) const PODS_MAX: usize = 4_000_000;

const FIELDS: [&str; 6] = ["name", "count", "node", "owner", "gracePeriod", "tolerations"];
const TOLERATION_FIELDS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
const OPERATORS: [&str; 4] = ["Equal", "Exists", "Lt", "Gt"];
const TOLERATION_SECONDS_MAX: u64 = 366 * 24 * 3600;

pub(super) fn pods(field: &Field<'_>, roster: &Roster) -> Result<BTreeMap<Text, PodSpec>, Fault> {
    let mut pods = BTreeMap::new();
    for group in field.items()? {
        let fields = group.fields(&FIELDS)?;
        check(&fields)?;
        let name = fields.require("name", "every pod needs one")?;
        for (pod, node) in placed(&fields, name, roster)? {
            if pods.len() >= PODS_MAX {
                return Err(group.fault(format!("more than {PODS_MAX} pods: lower the counts")));
            }
            if pods.insert(pod.clone(), PodSpec { node }).is_some() {
                return Err(name.fault(format!("there are two pods named {:?}: rename one", clipped(&pod))));
            }
        }
    }
    Ok(pods)
}

/// On one named node `p` or `p-0`, `p-1`...; on selected ones `p-<node>-0` and so on.
fn placed(fields: &Fields<'_>, name: &Field<'_>, roster: &Roster) -> Result<Vec<(Text, Text)>, Fault> {
    let node = fields.require("node", "say which node it runs on")?;
    let count = fields.get("count");
    if !node.is_map() && !node.is_list() {
        let node = roster.named(node)?;
        return Ok(names(name, count)?.into_iter().map(|pod| (pod, node.clone())).collect());
    }
    let stem = name.text()?;
    let nodes = roster.select(node, Among::Present)?;
    let copies = count.map_or(Ok(1), |count| count.count(1, PODS_MAX as u64))?;
    if copies.saturating_mul(nodes.len() as u64) > PODS_MAX as u64 {
        return Err(name.fault(format!("more than {PODS_MAX} pods: lower the count or select fewer nodes")));
    }
    let mut placed = Vec::new();
    for node in nodes {
        for copy in 0..copies {
            let pod = Text::from(format!("{stem}-{node}-{copy}"));
            name::dns_subdomain(&pod).map_err(|rule| name.fault(rule))?;
            placed.push((pod, node.clone()));
        }
    }
    Ok(placed)
}

fn check(fields: &Fields<'_>) -> Result<(), Fault> {
    fields.get("owner").map_or(Ok(()), |owner| owner.text().map(drop))?;
    fields.get("gracePeriod").map_or(Ok(()), |period| duration(period).map(drop))?;
    let tolerations = fields.get("tolerations").map_or_else(|| Ok(Vec::new()), Field::items)?;
    tolerations.iter().try_for_each(check_toleration)
}

/// T-3.
fn check_toleration(toleration: &Field<'_>) -> Result<(), Fault> {
    let fields = toleration.fields(&TOLERATION_FIELDS)?;
    let text = |name: &str| fields.get(name).map(Field::text).transpose();
    let operator = text("operator")?;
    if let (Some(field), Some(operator)) = (fields.get("operator"), &operator)
        && !OPERATORS.contains(&operator.as_str())
    {
        return Err(field.fault(format!("{:?} is not one of {}", clipped(operator), OPERATORS.join(", "))));
    }
    let exists = operator.as_deref() == Some("Exists");
    if text("key")?.is_none_or(|key| key.is_empty()) && !exists {
        return Err(toleration.fault("without a key the operator must be Exists"));
    }
    if exists && text("value")?.is_some_and(|value| !value.is_empty()) {
        return Err(toleration.fault("with the operator Exists there is no value to compare: leave it out"));
    }
    let effect = fields.get("effect");
    let effect: Option<Effect> =
        effect.map(|field| field.text()?.parse().map_err(|error| field.fault(error))).transpose()?;
    if let Some(seconds) = fields.get("tolerationSeconds") {
        seconds.count(0, TOLERATION_SECONDS_MAX)?;
        if effect != Some(Effect::NoExecute) {
            return Err(seconds.fault("counts for the effect NoExecute only"));
        }
    }
    Ok(())
}
