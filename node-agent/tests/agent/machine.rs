//! A machine whose status the test sets.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use muster_node_agent::machine::AgentMachine;

pub(crate) struct TestMachine {
    name: String,
    status: Mutex<String>,
}

impl TestMachine {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), status: Mutex::new(status("True", 0)) })
    }

    pub(crate) fn set(&self, ready: &str, heartbeat: u32) {
        *self.status.lock().unwrap() = status(ready, heartbeat);
    }
}

impl AgentMachine for TestMachine {
    fn node_json(&self) -> Bytes {
        let status = self.status.lock().unwrap();
        format!(r#"{{"metadata":{{"name":"{}"}},"status":{status}}}"#, self.name).into()
    }

    fn status_json(&self) -> Bytes {
        self.status.lock().unwrap().clone().into()
    }
}

pub(crate) fn status(ready: &str, heartbeat: u32) -> String {
    format!(r#"{{"conditions":[{{"lastHeartbeatTime":"{heartbeat}","status":"{ready}","type":"Ready"}}]}}"#)
}
