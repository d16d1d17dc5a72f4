//! ReplicaSets of the load, and the wait until their pods run.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// So rare that polling costs next to nothing.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Pods of one ReplicaSet. Shapes differ in their requests and tolerations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodShape {
    pub(crate) name: String,
    pub(crate) replicas: usize,
    /// Its requests are larger than those of the first shape by this number.
    number: usize,
    labels: Value,
}

// === impl PodShape ===

impl PodShape {
    pub(crate) fn new(number: usize, replicas: usize) -> Self {
        Self { name: format!("load-{number:03}"), replicas, number, labels: json!({}) }
    }

    /// `sets` shapes that have `pods` pods together.
    pub(crate) fn several(sets: usize, pods: usize) -> Vec<Self> {
        (0..sets).map(|number| Self::new(number, pods / sets + usize::from(number < pods % sets))).collect()
    }

    #[must_use]
    pub(crate) fn labelled(mut self, key: &str, value: &str) -> Self {
        self.labels[key] = value.into();
        self
    }

    pub(crate) fn replica_set(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": { "name": self.name, "namespace": "default" },
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": { "app": self.name } },
                "template": { "metadata": { "labels": self.labels() }, "spec": self.pod_spec() },
            },
        })
    }

    /// A pod of this shape without an owner.
    pub(crate) fn pod(&self, number: usize) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": format!("{}-{number}", self.name), "namespace": "default", "labels": self.labels() },
            "spec": self.pod_spec(),
        })
    }

    fn labels(&self) -> Value {
        let mut labels = self.labels.clone();
        labels["app"] = self.name.clone().into();
        labels
    }

    /// So small that more than a hundred fit on a node.
    fn pod_spec(&self) -> Value {
        let requests = json!({
            "cpu": format!("{}m", 10 + self.number),
            "memory": format!("{}Mi", 16 + self.number),
        });
        json!({
            "containers": [{ "name": "app", "image": "registry.k8s.io/pause:3.10", "resources": { "requests": requests } }],
            "tolerations": [{ "key": format!("team-{}", self.number), "operator": "Exists", "effect": "NoSchedule" }],
        })
    }
}

pub(crate) async fn apply(client: &Client, shapes: &[PodShape]) -> Result<()> {
    let mut writers = JoinSet::new();
    for shape in shapes {
        let (client, object) = (client.sibling(), shape.replica_set().to_string().into());
        writers.spawn(async move { client.write(Operation::Apply(v1::ManifestWrite { object })).await });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

/// Waits until one pod has found a node and runs there.
pub(crate) async fn warm_up(client: &Client, timeout: Duration) -> Result<()> {
    let shape = [PodShape { name: "warm-up".to_owned(), ..PodShape::new(0, 1) }];
    apply(client, &shape).await?;
    wait_ready(client, &shape, 1, timeout).await
}

/// Waits until so many pods of all shapes together are reported as ready.
pub(crate) async fn wait_ready(client: &Client, shapes: &[PodShape], wanted: usize, timeout: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let mut ready = 0;
        for shape in shapes {
            let found = client.get_in("default", "replicasets", &shape.name, true).await?;
            let found: Value = serde_json::from_slice(&found.value)?;
            ready += found["status"]["readyReplicas"].as_u64().unwrap_or(0);
        }
        if ready == wanted as u64 {
            return Ok(());
        }
        if start.elapsed() > timeout {
            bail!("{ready} of {wanted} pods run after {} s", timeout.as_secs());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::manifest::Manifest;

    use super::*;

    #[test]
    fn shapes_share_the_pods_and_their_manifests_are_valid() {
        let shapes = PodShape::several(3, 10);
        assert_eq!(shapes.iter().map(|shape| shape.replicas).collect::<Vec<_>>(), [4, 3, 3]);
        for json in [shapes[2].replica_set(), shapes[2].pod(7)] {
            match Manifest::from_json(json.to_string().as_bytes()).unwrap() {
                Manifest::Workload(read) => read.draft.check().unwrap(),
                Manifest::Pod(read) => read.draft.check().unwrap(),
                Manifest::Node(_) => panic!("not a node"),
            }
        }
    }
}
