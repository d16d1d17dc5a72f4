//! The demo ReplicaSet of a new local cluster, so that there are pods to move when nodes die.

use bytes::Bytes;
use muster_proto::v1::ManifestWrite;
use muster_proto::v1::write_request::Operation;
use serde_json::{Value, json};

/// As many pods as a simulated node takes.
pub(super) const PODS_PER_NODE_MAX: u32 = 110;
pub(super) const PODS_PER_NODE_DEFAULT: u32 = 2;

/// The name of the ReplicaSet; its pods' names begin with it.
pub(super) const NAME: &str = "demo";

const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// Makes a ReplicaSet of so many pods.
pub(super) fn operation(pods: u64) -> Operation {
    Operation::Apply(ManifestWrite { object: Bytes::from(manifest(pods).to_string()) })
}

fn manifest(pods: u64) -> Value {
    let labels = json!({ "app": NAME });
    let requests = json!({ "cpu": "100m", "memory": "64Mi" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": NAME, "namespace": "default", "labels": labels },
        "spec": {
            "replicas": pods,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "app", "image": IMAGE, "resources": { "requests": requests } }] },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use muster_proto::manifest::Manifest;

    use super::*;

    #[test]
    fn the_demo_is_a_valid_replicaset() {
        let Manifest::Workload(read) = Manifest::from_json(manifest(30).to_string().as_bytes()).unwrap() else {
            panic!("not a workload")
        };
        read.draft.check().unwrap();
        assert_eq!((&*read.draft.key.name, read.draft.replicas), (NAME, Some(30)));
        assert_eq!(read.draft.template.requests.iter().count(), 2);
    }
}
