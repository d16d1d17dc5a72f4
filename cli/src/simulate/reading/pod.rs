//! The `pods` section: groups of pods that are alike, the nodes they are on at the start, and their owners.

use std::collections::BTreeMap;

use muster_lifecycle::name;
use muster_lifecycle::taint::Effect;
use muster_lifecycle::text::Text;
use muster_lifecycle::toleration::{Toleration, TolerationOperator};

use super::duration;
use super::node::names;
use super::owner::Owners;
use super::selection::{Among, Roster};
use crate::simulate::located::{Fault, Field, Fields, clipped};
use crate::simulate::world::PodSpec;

pub(super) const PODS_MAX: usize = 4_000_000;

const FIELDS: [&str; 6] = ["name", "count", "node", "owner", "gracePeriod", "tolerations"];
const TOLERATION_FIELDS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
const TOLERATION_SECONDS_MAX: u64 = 366 * 24 * 3600;

pub(super) fn pods(field: &Field<'_>, roster: &Roster) -> Result<BTreeMap<Text, PodSpec>, Fault> {
    let mut pods = BTreeMap::new();
    let mut owners = Owners::default();
    for group in field.items()? {
        let fields = group.fields(&FIELDS)?;
        let name = fields.require("name", "every pod needs one")?;
        let mut model = model(&fields)?;
        model.owner = fields.get("owner").map(|owner| owners.read(owner, name, &model)).transpose()?;
        let placed = placed(&fields, name, roster)?;
        if let Some((first, _)) = placed.first() {
            // The pods of a group are all alike.
            model.draft(first, None).check().map_err(|invalid| group.fault(invalid))?;
        }
        for (pod, node) in placed {
            if pods.len() >= PODS_MAX {
                return Err(group.fault(format!("more than {PODS_MAX} pods: lower the counts")));
            }
            if pods.insert(pod.clone(), PodSpec { node, ..model.clone() }).is_some() {
                return Err(name.fault(format!("there are two pods named {:?}: rename one", clipped(&pod))));
            }
        }
    }
    owners.check(&pods)?;
    Ok(pods)
}

fn model(fields: &Fields<'_>) -> Result<PodSpec, Fault> {
    let grace = fields.get("gracePeriod").map(duration).transpose()?;
    let tolerations = fields.get("tolerations").map_or_else(|| Ok(Vec::new()), Field::items)?;
    Ok(PodSpec {
        node: None,
        owner: None,
        // Pods count in whole seconds.
        grace: grace.map(|millis| i64::try_from(millis.div_ceil(1_000)).unwrap_or(i64::MAX)),
        tolerations: tolerations.iter().map(toleration).collect::<Result<_, _>>()?,
    })
}

/// Pods without a node or on one named node are `p` or `p-0`, `p-1`...; on selected nodes `p-<node>-0` and so on.
fn placed(fields: &Fields<'_>, name: &Field<'_>, roster: &Roster) -> Result<Vec<(Text, Option<Text>)>, Fault> {
    let count = fields.get("count");
    match fields.get("node") {
        Some(node) if node.is_map() || node.is_list() => spread(node, count, name, roster),
        node => {
            let node = node.map(|node| present(node, roster)).transpose()?;
            Ok(names(name, count)?.into_iter().map(|pod| (pod, node.clone())).collect())
        }
    }
}

fn present(node: &Field<'_>, roster: &Roster) -> Result<Text, Fault> {
    let named = roster.named(node)?;
    match roster.comes_later(&named) {
        true => {
            let rule = "is created after the start, when pods are there already";
            Err(node.fault(format!("node {:?} {rule}: leave `node` out to have them placed", clipped(&named))))
        }
        false => Ok(named),
    }
}

fn spread(
    node: &Field<'_>,
    count: Option<&Field<'_>>,
    name: &Field<'_>,
    roster: &Roster,
) -> Result<Vec<(Text, Option<Text>)>, Fault> {
    let stem = name.text()?;
    let mut nodes = roster.select(node, Among::Present)?;
    nodes.retain(|node| !roster.comes_later(node));
    let copies = count.map_or(Ok(1), |count| count.count(1, PODS_MAX as u64))?;
    if copies.saturating_mul(nodes.len() as u64) > PODS_MAX as u64 {
        return Err(name.fault(format!("more than {PODS_MAX} pods: lower the count or select fewer nodes")));
    }
    let mut placed = Vec::new();
    for node in nodes {
        for copy in 0..copies {
            let pod = Text::from(format!("{stem}-{node}-{copy}"));
            name::dns_subdomain(&pod).map_err(|rule| name.fault(rule))?;
            placed.push((pod, Some(node.clone())));
        }
    }
    Ok(placed)
}

/// T-3.
fn toleration(field: &Field<'_>) -> Result<Toleration, Fault> {
    let fields = field.fields(&TOLERATION_FIELDS)?;
    let text = |name: &str| fields.get(name).map_or_else(|| Ok(Text::default()), |field| field.text().map(Text::from));
    let operator = |field: &Field<'_>| field.text()?.parse::<TolerationOperator>().map_err(|error| field.fault(error));
    let effect = |field: &Field<'_>| field.text()?.parse::<Effect>().map_err(|error| field.fault(error));
    let toleration = Toleration {
        key: text("key")?,
        operator: fields.get("operator").map_or(Ok(TolerationOperator::default()), operator)?,
        value: text("value")?,
        effect: fields.get("effect").map(effect).transpose()?,
        seconds: fields.get("tolerationSeconds").map(seconds).transpose()?,
    };
    let is_wildcard = toleration.operator == TolerationOperator::Exists;
    if toleration.key.is_empty() && !is_wildcard {
        return Err(field.fault("without a key the operator must be Exists"));
    }
    if is_wildcard && !toleration.value.is_empty() {
        return Err(field.fault("with the operator Exists there is no value to compare: leave it out"));
    }
    match fields.get("tolerationSeconds") {
        Some(seconds) if toleration.effect != Some(Effect::NoExecute) => {
            Err(seconds.fault("counts for the effect NoExecute only"))
        }
        Some(_) | None => Ok(toleration),
    }
}

fn seconds(field: &Field<'_>) -> Result<i64, Fault> {
    let seconds = field.count(0, TOLERATION_SECONDS_MAX)?;
    i64::try_from(seconds).map_err(|error| field.fault(error))
}
