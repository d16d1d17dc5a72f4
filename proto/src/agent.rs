//! Agents' reports about their nodes, as domain values.
//!
//! An agent sends Kubernetes JSON: its whole Node when it registers, the status alone afterwards. Here it is decided
//! whether the JSON can be understood. What the agent may say, and of which node, is decided when the command is
//! applied.

use bytes::Bytes;
use muster_lifecycle::command::Running;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{NodeDraft, NodeStatus};
use muster_lifecycle::pod::{PODS_PER_NODE_MAX, PhaseError, Pod, PodKey, PodReport};

use crate::field::FieldError;
use crate::manifest::{ManifestError, NodeManifest, node_from_json, pod_to_json, status_from_json};
use crate::v1;
use crate::v1::pod_order::Action;

/// The most pods that can run on one node, with those of former lives that it may be stopping.
const RUNNING_MAX: usize = 2 * PODS_PER_NODE_MAX;

/// The Node that an agent registers. Its resource version and uid mean nothing here.
pub fn registration(register: &v1::Register) -> Result<NodeDraft, FieldError> {
    let NodeManifest { draft, precondition: _ } =
        node_from_json(&register.node).map_err(|error| named(error, "node"))?;
    Ok(draft)
}

pub fn status(report: &v1::StatusReport) -> Result<NodeStatus, FieldError> {
    status_from_json(&report.status).map_err(|error| named(error, "status"))
}

/// The pods that run on a node, as its agent reports; `None` if it says nothing about that.
pub fn running(running: Option<&v1::Running>) -> Result<Running, FieldError> {
    let Some(running) = running else { return Ok(None) };
    if running.uids.len() > RUNNING_MAX {
        let rule = format!("{} are too many: at most {RUNNING_MAX}", running.uids.len());
        return Err(FieldError::new("running.uids", rule));
    }
    running.uids.iter().map(|bytes| uid(bytes, "running.uids")).collect::<Result<_, _>>().map(Some)
}

/// The states of pods, as their agent reports.
pub fn pods(report: v1::PodsReport) -> Result<Vec<PodReport>, FieldError> {
    report.pods.into_iter().map(pod).collect()
}

fn pod(state: v1::PodState) -> Result<PodReport, FieldError> {
    let phase = state.phase.parse().map_err(|error: PhaseError| FieldError::new("pods.phase", error))?;
    Ok(PodReport {
        uid: uid(&state.uid, "pods.uid")?,
        key: PodKey { namespace: state.namespace.into(), name: state.name.into() },
        phase,
        ready: state.ready,
        restarts: state.restarts,
        reason: state.reason.into(),
        message: state.message.into(),
        stopped: state.stopped,
    })
}

fn uid(bytes: &[u8], field: &str) -> Result<Uid, FieldError> {
    let wrong = |_| FieldError::new(field, format_args!("must be 16 bytes, is {}", bytes.len()));
    bytes.try_into().map(|bytes| Uid(u128::from_be_bytes(bytes))).map_err(wrong)
}

/// An order about a pod that its node should run, or stop if it was deleted.
pub fn order(pod: &Pod) -> v1::PodOrder {
    let stop = pod.ending.map(|ending| ending.grace);
    v1::PodOrder {
        action: if stop.is_some() { Action::Stop } else { Action::Run }.into(),
        namespace: pod.meta.namespace.as_deref().unwrap_or_default().to_owned(),
        name: pod.meta.name.to_string(),
        uid: uid_bytes(pod.meta.uid),
        manifest: if stop.is_some() { Bytes::new() } else { pod_to_json(pod).to_string().into() },
        grace_seconds: stop.unwrap_or_default(),
    }
}

/// An order about a pod that is not known any more.
pub fn forget(uid: Uid) -> v1::PodOrder {
    v1::PodOrder { action: Action::Forget.into(), uid: uid_bytes(uid), ..v1::PodOrder::default() }
}

fn uid_bytes(uid: Uid) -> Bytes {
    Bytes::copy_from_slice(&uid.0.to_be_bytes())
}

/// Fields are named as the author of the JSON knows them; an error about the whole names its place in the message.
fn named(error: ManifestError, place: &str) -> FieldError {
    match error {
        ManifestError::Field(error) => error,
        ManifestError::TooLarge { .. } | ManifestError::TooDeep | ManifestError::Syntax(_) => {
            FieldError::new(place, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::node::ConditionStatus;

    use super::*;

    #[test]
    fn a_registration_is_the_node_itself() {
        let json = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"a":"b"}},
                       "status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        let draft = registration(&register(json)).unwrap();
        assert_eq!(draft.name, "n1");
        assert_eq!(draft.status.unwrap().ready().unwrap().status, ConditionStatus::True);
    }

    #[test]
    fn a_report_is_a_status_alone() {
        let json = r#"{"capacity":{"cpu":"8"},"conditions":[{"type":"Ready","status":"False","reason":"R"}]}"#;
        let read = status(&report(json)).unwrap();
        assert_eq!(read.capacity.len(), 1);
        assert_eq!(read.ready().unwrap().reason, "R");
    }

    #[test]
    fn errors_name_the_field() {
        let table = [
            ("nope", "status: the manifest is not valid JSON: "),
            ("[]", "status: expected an object, found an array"),
            (r#"{"conditions":[{"type":"Ready"}]}"#, "status.conditions[0].status: is required"),
            (r#"{"capacity":{"cpu":"x"}}"#, "status.capacity[\"cpu\"]: "),
        ];
        for (json, wanted) in table {
            let error = status(&report(json)).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "wanted {wanted:?}, got {error:?}");
        }
        let error = registration(&register("{")).unwrap_err().to_string();
        assert!(error.starts_with("node: the manifest is not valid JSON: "), "{error}");
    }

    fn register(json: &str) -> v1::Register {
        v1::Register { node: json.to_owned().into(), running: None }
    }

    fn report(json: &str) -> v1::StatusReport {
        v1::StatusReport { sequence: 1, status: json.to_owned().into(), running: None }
    }
}
