//! The `nodes` section: groups of machines that are alike.

use std::collections::BTreeMap;

use muster_lifecycle::meta::Pairs;
use muster_lifecycle::name;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::taint::Taint;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;

use super::{duration, length};
use crate::simulate::located::{Fault, Field, Fields, clipped};
use crate::simulate::world::{InitialReady, MachineSpec, Millis};

pub(super) const NODES_MAX: u64 = 1_000_000;

const FIELDS: [&str; 10] =
    ["name", "count", "region", "zone", "labels", "taints", "ready", "heartbeat", "status", "created"];

const HEARTBEAT_DEFAULT: Millis = 10_000;
const STATUS_DEFAULT: Millis = 300_000;
const CREATED_DEFAULT: i64 = -3_600_000;

/// No machine sends signals more often than this.
const INTERVAL_MIN: Period = Period(100);

/// A field, the label it sets, and the older one that would win over it (Z-1).
const PLACES: [(&str, &str, &str); 2] = [
    ("region", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("zone", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
];
const NEVER_POSTED: &str = "none";

/// The machines, by name.
pub(super) fn machines(field: &Field<'_>) -> Result<Vec<MachineSpec>, Fault> {
    let mut machines: BTreeMap<Text, MachineSpec> = BTreeMap::new();
    for group in field.items()? {
        let fields = group.fields(&FIELDS)?;
        let model = model(&fields)?;
        let name = fields.require("name", "every node needs one")?;
        for machine in names(name, fields.get("count"))? {
            if machines.len() as u64 >= NODES_MAX {
                return Err(group.fault(format!("more than {NODES_MAX} nodes: lower the counts")));
            }
            if machines.insert(machine.clone(), MachineSpec { name: machine.clone(), ..model.clone() }).is_some() {
                return Err(name.fault(format!("there are two nodes named {:?}: rename one", clipped(&machine))));
            }
        }
    }
    Ok(machines.into_values().collect())
}

/// The name itself, or with a count `name-0`, `name-1` and so on.
pub(super) fn names(name: &Field<'_>, count: Option<&Field<'_>>) -> Result<Vec<Text>, Fault> {
    let stem = name.text()?;
    let names: Vec<Text> = match count {
        None => vec![Text::from(stem)],
        Some(count) => (0..count.count(1, NODES_MAX)?).map(|index| Text::from(format!("{stem}-{index}"))).collect(),
    };
    // The last name is the longest, and otherwise they are all alike.
    for sample in names.first().into_iter().chain(names.last()) {
        name::dns_subdomain(sample).map_err(|rule| name.fault(rule))?;
    }
    Ok(names)
}

fn model(fields: &Fields<'_>) -> Result<MachineSpec, Fault> {
    let interval = |name: &str, default| fields.get(name).map_or(Ok(Some(default)), interval);
    Ok(MachineSpec {
        name: Text::default(),
        labels: labels(fields)?,
        taints: fields.get("taints").map_or_else(|| Ok(Vec::new()), taints)?,
        ready: fields.get("ready").map_or(Ok(InitialReady::Says(ConditionStatus::True)), ready)?,
        heartbeat: interval("heartbeat", HEARTBEAT_DEFAULT)?,
        status: interval("status", STATUS_DEFAULT)?,
        created: fields.get("created").map_or(Ok(CREATED_DEFAULT), created)?,
    })
}

fn labels(fields: &Fields<'_>) -> Result<Pairs, Fault> {
    let mut labels = Pairs::default();
    for entry in fields.get("labels").map_or_else(|| Ok(Vec::new()), Field::entries)? {
        name::qualified_name(entry.name).map_err(|rule| entry.field.fault(rule))?;
        labels.insert(Text::from(entry.name), label_value(&entry.field)?);
    }
    for (name, label, older) in PLACES {
        if let Some(field) = fields.get(name) {
            let value = label_value(field)?;
            [older, label].into_iter().try_for_each(|label| agree(field, &value, label, &labels))?;
            labels.insert(Text::from(label), value);
        }
    }
    Ok(labels)
}

/// A node cannot be in two places, and neither of them is surely the one that was meant.
fn agree(field: &Field<'_>, value: &Text, label: &str, labels: &Pairs) -> Result<(), Fault> {
    match labels.get(label) {
        Some(other) if other != value => {
            let (value, other) = (clipped(value), clipped(other));
            Err(field.fault(format!("is {value:?}, but the label {label} is {other:?}: leave one of them out")))
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn label_value(field: &Field<'_>) -> Result<Text, Fault> {
    let value = field.text()?;
    name::label_value(&value).map_err(|rule| field.fault(rule))?;
    Ok(Text::from(value))
}

pub(super) fn taints(field: &Field<'_>) -> Result<Vec<Taint>, Fault> {
    let mut taints: Vec<Taint> = Vec::new();
    for item in field.items()? {
        let taint: Taint = item.text()?.parse().map_err(|error| item.fault(error))?;
        if taints.iter().any(|known| known.is_same(&taint)) {
            return Err(item.fault(format!("there is a taint {}:{} already: name it once", taint.key, taint.effect)));
        }
        taints.push(taint);
    }
    Ok(taints)
}

fn ready(field: &Field<'_>) -> Result<InitialReady, Fault> {
    let text = field.text()?;
    if text == NEVER_POSTED {
        return Ok(InitialReady::NeverPosted);
    }
    let says = condition_status(&text).map(InitialReady::Says);
    says.ok_or_else(|| field.fault(format!("{:?} is not one of True, False, Unknown, none", clipped(&text))))
}

/// A bare `true` is as good as a quoted `"True"`.
pub(super) fn condition_status(text: &str) -> Option<ConditionStatus> {
    match text {
        "true" => Some(ConditionStatus::True),
        "false" => Some(ConditionStatus::False),
        _ => text.parse().ok(),
    }
}

fn interval(field: &Field<'_>) -> Result<Option<Millis>, Fault> {
    match duration(field)? {
        0 => Ok(None),
        millis if millis < INTERVAL_MIN.0 => {
            Err(field.fault(format!("{} is too often: at least {INTERVAL_MIN}, or 0s for never", Period(millis))))
        }
        millis => Ok(Some(millis)),
    }
}

fn created(field: &Field<'_>) -> Result<i64, Fault> {
    let text = field.text()?;
    let (sign, magnitude) = text.strip_prefix('-').map_or((1, text.as_str()), |rest| (-1, rest));
    let millis = i64::try_from(length(field, magnitude)?).map_err(|error| field.fault(error))?;
    Ok(sign * millis)
}
