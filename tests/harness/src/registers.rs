//! Annotations of Nodes as registers: operators read and write them through every replica while a test makes faults,
//! and afterwards the history is checked.

use std::sync::Arc;
use std::time::Duration;

pub use muster_checker::load::RegisterLoad;
use muster_checker::load::{LoadPlan, RegisterDoor, RegisterFailure};
use muster_checker::register::RegisterValue;
use muster_client::Client;
use muster_pki::ClientConfig;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{ManifestWrite, PairsEdit, Precondition};
use serde_json::{Value, json};
use tonic::Code;

const ANNOTATION: &str = "muster.test/register";
/// For one call to one replica, which may be dead, frozen or cut off.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

/// One replica's operators' door.
struct OperatorDoor {
    replica: u64,
    client: Client,
    nodes: Arc<[String]>,
}

/// Starts a load on these Nodes, each of them a register.
pub fn load_on(config: &ClientConfig, nodes: &[String], pause: Duration) -> RegisterLoad {
    let plan = LoadPlan { keys: nodes.len(), pause, ..LoadPlan::default() };
    let nodes: Arc<[String]> = nodes.into();
    let door = |(number, endpoint): (u64, _)| {
        let config = ClientConfig { endpoints: vec![endpoint], ..config.clone() };
        let client = Client::new(config).unwrap().with_timeout(CALL_PATIENCE);
        OperatorDoor { replica: number, client, nodes: Arc::clone(&nodes) }
    };
    RegisterLoad::start(|| (1..).zip(config.endpoints.clone()).map(door).collect(), plan)
}

/// Makes Nodes that no agent speaks for.
pub async fn create_nodes(client: &Client, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("register-{number}")).collect();
    for name in &names {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string();
        client.write(Operation::Create(ManifestWrite { object: object.into() })).await.unwrap();
    }
    names
}

// === impl OperatorDoor ===

impl RegisterDoor for OperatorDoor {
    fn replica(&self) -> u64 {
        self.replica
    }

    async fn read(&self, key: usize, stale: bool) -> Result<(Option<RegisterValue>, u64), RegisterFailure> {
        let read = self.client.get("nodes", &self.nodes[key], stale).await.map_err(|_| RegisterFailure::Failed)?;
        let node: Value = serde_json::from_slice(&read.value).unwrap();
        let meta = &node["metadata"];
        let value = meta["annotations"][ANNOTATION].as_str().map(|value| value.parse().unwrap());
        Ok((value, meta["resourceVersion"].as_str().unwrap().parse().unwrap()))
    }

    async fn write(&self, key: usize, value: RegisterValue, expected: Option<u64>) -> Result<u64, RegisterFailure> {
        let edit = PairsEdit {
            name: self.nodes[key].clone(),
            set: [(ANNOTATION.to_owned(), value.to_string())].into(),
            remove: Vec::new(),
            overwrite: true,
            precondition: Some(Precondition { revision: expected, uid: String::new() }),
        };
        match self.client.write(Operation::Annotate(edit)).await {
            Ok(written) => Ok(written.revision),
            Err(error) if error.code() == Some(Code::Aborted) => Err(RegisterFailure::Conflict),
            // Even of a write that was refused in the end, an earlier attempt may be under way.
            Err(_) => Err(RegisterFailure::Unknown),
        }
    }
}
