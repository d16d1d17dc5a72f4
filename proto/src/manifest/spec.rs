//! `spec` of a Node: addresses for its pods, provider id, cordon, taints.

use ipnet::IpNet;
use muster_lifecycle::node::NodeSpec;
use muster_lifecycle::taint::{Effect, Taint, TaintError};
use muster_lifecycle::text::Text;
use serde_json::{Map, Value, json};

use super::fields::{Fields, Read};
use super::moment;
use crate::field::Shown;

/// The fields that identify the taint to which an unknown field belongs (T-1).
const TAINT_IDENTITY: [&str; 2] = ["key", "effect"];

#[derive(Default)]
pub(super) struct Spec {
    pub(super) pod_cidrs: Option<Box<[IpNet]>>,
    pub(super) provider_id: Option<Text>,
    pub(super) unschedulable: Option<bool>,
    pub(super) taints: Option<Box<[Taint]>>,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Read<Spec> {
    Ok(Spec {
        pod_cidrs: pod_cidrs(fields)?,
        provider_id: fields.text("providerID")?.filter(|id| !id.is_empty()).map(Text::from),
        unschedulable: fields.flag("unschedulable")?,
        taints: fields.list("taints", &TAINT_IDENTITY, taint)?,
    })
}

pub(super) fn write(spec: &NodeSpec) -> Value {
    let mut json = Map::new();
    if let Some(first) = spec.pod_cidrs.first() {
        json.insert("podCIDR".into(), first.to_string().into());
        json.insert("podCIDRs".into(), spec.pod_cidrs.iter().map(IpNet::to_string).collect());
    }
    if let Some(id) = &spec.provider_id {
        json.insert("providerID".into(), (**id).into());
    }
    if spec.unschedulable {
        json.insert("unschedulable".into(), true.into());
    }
    if !spec.taints.is_empty() {
        json.insert("taints".into(), spec.taints.iter().map(write_taint).collect());
    }
    Value::Object(json)
}

/// `podCIDR` is the older spelling of the first of `podCIDRs`; given both, they must agree.
fn pod_cidrs(fields: &mut Fields<'_>) -> Read<Option<Box<[IpNet]>>> {
    let one = fields.parsed("podCIDR", parse_cidr)?;
    let all = fields.texts("podCIDRs", |text| parse_cidr(&text))?;
    match (one, all) {
        (None, all) => Ok(all),
        (Some(one), None) => Ok(Some(Box::new([one]))),
        (Some(one), Some(all)) => match all.first() {
            None => Ok(Some(Box::new([one]))),
            Some(first) if *first == one => Ok(Some(all)),
            Some(first) => {
                let rule = format!("\"{one}\" differs from podCIDRs[0], which is \"{first}\"; they must be equal");
                Err(fields.error("podCIDR", rule))
            }
        },
    }
}

fn parse_cidr(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| format!("{} is not a CIDR such as 10.244.1.0/24 or fd00:10:244:1::/64", Shown(text)))
}

fn taint(fields: &mut Fields<'_>) -> Read<Taint> {
    Ok(Taint {
        key: fields.required_text("key")?.into(),
        value: fields.text("value")?.unwrap_or_default().into(),
        effect: fields
            .parsed("effect", parse_effect)?
            .ok_or_else(|| fields.error("effect", "is required: one of NoSchedule, PreferNoSchedule, NoExecute"))?,
        added: moment::read(fields, "timeAdded")?,
    })
}

fn parse_effect(text: &str) -> Result<Effect, String> {
    text.parse().map_err(|error: TaintError| error.to_string())
}

fn write_taint(taint: &Taint) -> Value {
    let mut json = json!({ "key": &*taint.key, "effect": taint.effect.as_str() });
    if !taint.value.is_empty() {
        json["value"] = (*taint.value).into();
    }
    if let Some(added) = taint.added {
        json["timeAdded"] = moment::write(added);
    }
    json
}
