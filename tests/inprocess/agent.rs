//! A real agent process and a whole cluster: the machine is reported as it is, and the agent starts, ends and starts
//! again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use muster_pki::authority_print;
use muster_proto::token::Token;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{Delete, NodeRevocation, TokenCreation};
use muster_testing::inprocess::InprocessCluster;
use muster_testing::inprocess::view::{NodeView, list};
use muster_testing::process::MUSTER;
use muster_testing::waiting::{PATIENCE, soon};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const NODE: &str = "machine-1";

struct Machine {
    dir: TempDir,
    server: String,
    node: String,
}

/// Killed when it is dropped.
struct Agent(Child);

// === impl Machine ===

impl Machine {
    /// A machine with credentials that the agent did not ask for itself.
    fn new(cluster: &InprocessCluster) -> Self {
        Self::named(cluster, NODE)
    }

    fn named(cluster: &InprocessCluster, node: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issued = cluster.members.fleet.issue_node(node).unwrap();
        for (name, text) in [
            ("ca.pem", cluster.members.fleet.client_authority().certificate_pem()),
            ("node.pem", &issued.certificate),
            ("node.key", &issued.key),
            ("kubeconfig", KUBECONFIG),
        ] {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Self { dir, server: cluster.members.agent_doors().join(","), node: node.to_owned() }
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn start(&self, flags: &[&str]) -> Agent {
        let kubeconfig = self.dir.path().join("kubeconfig");
        let flags = [&["--kubeconfig", kubeconfig.to_str().unwrap()], flags].concat();
        Agent(self.command(&self.state_dir(), &flags).stdout(Stdio::null()).spawn().unwrap())
    }

    fn command(&self, state_dir: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(&*MUSTER);
        command.args(["agent", "--server", &self.server, "--hostname-override", &self.node]);
        command.args(["--metrics-address", "none", "--state-dir"]).arg(state_dir).args(flags);
        command
    }

    fn status(&self) -> Output {
        let mut command = Command::new(&*MUSTER);
        command.args(["agent", "status", "-o", "json", "--state-dir"]).arg(self.state_dir()).output().unwrap()
    }

    async fn attached(&self) -> Value {
        self.view_when("attached", |view| view["session"]["state"] == "attached").await
    }

    async fn view_when(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        soon(&format!("an agent that is {what}"), async || {
            let output = self.status();
            let view: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
            is_so(&view).then(|| view.clone()).ok_or_else(|| view.to_string())
        })
        .await
    }
}

/// A token of this cluster, for one join of this node, or of any new node if the name is empty.
async fn token(cluster: &InprocessCluster, node: &str) -> String {
    let pin = authority_print(cluster.members.fleet.client_authority().certificate_pem()).unwrap();
    let token = Token::draw(pin, rand::random);
    let hash = Bytes::copy_from_slice(&token.hash().0);
    let creation = TokenCreation { id: token.id.clone(), hash, node: node.to_owned(), ttl_ms: 600_000 };
    cluster.write(Operation::CreateToken(creation)).await;
    token.to_string()
}

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: c
contexts: [{ name: c, context: { cluster: k, user: u } }]
clusters: [{ name: k, cluster: { certificate-authority: ca.pem } }]
users: [{ name: u, user: { client-certificate: node.pem, client-key: node.key } }]
";

// === impl Agent ===

impl Agent {
    /// Asks the agent to end, and waits until it has.
    async fn end(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).unwrap();
        let ended = async {
            loop {
                match self.0.try_wait().unwrap() {
                    Some(status) => return status.code(),
                    None => sleep(Duration::from_millis(20)).await,
                }
            }
        };
        timeout(PATIENCE, ended).await.expect("it ends when asked to")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // An agent that has ended already cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn node(cluster: &InprocessCluster) -> Value {
    let nodes = list(&cluster.client, "nodes").await.unwrap();
    nodes.into_iter().find(|node| node["metadata"]["name"] == NODE).expect("the node is there")
}

fn proc(path: &str) -> String {
    fs::read_to_string(Path::new("/proc/sys/kernel").join(path)).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_machine_registers_reports_its_facts_and_returns_after_a_restart() {
    let cluster = InprocessCluster::start().await;
    let machine = Machine::new(&cluster);
    let flags = [
        "--node-labels=team=x,topology.kubernetes.io/zone=z1",
        "--register-with-taints=dedicated=db:NoSchedule",
        "--provider-id=cloud://1",
    ];
    let agent = machine.start(&flags);
    let ready = |seen: &NodeView| seen.ready == "True";
    let first = cluster.seen_when("ready", NODE, ready).await;
    assert!(first.taints.contains("dedicated:NoSchedule"), "{first:?}");
    let seen = node(&cluster).await;
    assert_eq!((&seen["metadata"]["labels"]["team"], &seen["spec"]["providerID"]), (&"x".into(), &"cloud://1".into()));
    let info = &seen["status"]["nodeInfo"];
    assert_eq!(
        (info["bootID"].as_str(), info["kernelVersion"].as_str()),
        (Some(proc("random/boot_id").as_str()), Some(proc("osrelease").as_str()))
    );
    let view = machine.attached().await;
    assert_eq!((view["node"].as_str(), view["session"]["incarnation"].as_u64().is_some()), (Some(NODE), true));

    // A second agent of the machine would need a directory of its own.
    let kubeconfig = machine.dir.path().join("kubeconfig");
    let flags = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let second = machine.command(&machine.state_dir(), &flags).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");

    assert_eq!(agent.end().await, Some(0), "goodbye is no failure");
    assert_eq!(machine.status().status.code(), Some(3), "no agent is there to be asked");

    // A restarted agent is the same node: only what describes the machine is taken (RG-4).
    let agent = machine.start(&["--node-labels=team=y,topology.kubernetes.io/zone=z2"]);
    machine.attached().await;
    let labels = soon("the zone that it is in now", async || {
        let labels = node(&cluster).await["metadata"]["labels"].clone();
        (labels["topology.kubernetes.io/zone"] == "z2").then(|| labels.clone()).ok_or_else(|| labels.to_string())
    })
    .await;
    assert_eq!(labels["team"], "x", "{labels}");
    assert_eq!(cluster.nodes().await[NODE].uid, first.uid);

    // A Node that is deleted under its agent is soon registered anew.
    let delete = Delete { kind: "nodes".into(), name: NODE.into(), ..Delete::default() };
    cluster.write(Operation::Delete(delete)).await;
    let anew = cluster.seen_when("ready again", NODE, |seen| ready(seen) && seen.uid != first.uid).await;
    assert!(!anew.taints.contains("dedicated:NoSchedule"), "with the flags it has now: {anew:?}");
    assert_eq!(agent.end().await, Some(0));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_machine_joins_with_a_token_once_and_then_uses_its_certificate() {
    let cluster = InprocessCluster::start().await;
    let machine = Machine::new(&cluster);
    let token = token(&cluster, "").await;
    let joining = machine.command(&machine.state_dir(), &["--join", &token]).stdout(Stdio::null()).spawn().unwrap();
    let agent = Agent(joining);
    let view = machine.attached().await;
    assert!(view["certificateExpires"].is_string(), "{view}");
    assert_eq!(agent.end().await, Some(0));
    let agent = Agent(machine.command(&machine.state_dir(), &[]).stdout(Stdio::null()).spawn().unwrap());
    machine.attached().await;

    // A token that was used once is worth nothing to another agent.
    let elsewhere = machine.dir.path().join("elsewhere");
    let replayed = machine.command(&elsewhere, &["--join", &token]).output().unwrap();
    let complaint = String::from_utf8_lossy(&replayed.stderr).into_owned();
    assert_eq!(replayed.status.code(), Some(6), "{complaint}");
    assert!(!complaint.contains(&token), "a secret is not repeated");
    assert_eq!(agent.end().await, Some(0));
    cluster.stop().await;
}

/// The name is the longest that a node can have: certificates hold it elsewhere than a short one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revoked_machine_joins_again_over_its_old_credentials() {
    let cluster = InprocessCluster::start().await;
    let node = [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".");
    assert_eq!(node.len(), 253);
    let machine = Machine::named(&cluster, &node);
    let join = async |meant: &str| {
        let file = machine.dir.path().join("token");
        fs::write(&file, token(&cluster, meant).await).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let flags = ["--join".to_owned(), format!("@{}", file.display())];
        let flags = flags.each_ref().map(String::as_str);
        let agent = Agent(machine.command(&machine.state_dir(), &flags).stdout(Stdio::null()).spawn().unwrap());
        machine.attached().await;
        agent
    };
    let credentials = || fs::read_to_string(machine.state_dir().join("node.pem")).unwrap();
    let agent = join("").await;
    cluster.seen_when("ready", &node, |seen| seen.ready == "True").await;
    let dead = credentials();
    cluster.write(Operation::RevokeNode(NodeRevocation { name: node.clone() })).await;
    let is_refused =
        |view: &Value| view["session"]["lastError"].as_str().is_some_and(|said| said.contains("was revoked"));
    machine.view_when("refused", is_refused).await;
    assert_eq!(agent.end().await, Some(0));
    let agent = join(&node).await;
    assert_ne!(credentials(), dead);
    assert!(!machine.state_dir().join("joining.key").exists());
    assert_eq!(agent.end().await, Some(0));
    cluster.stop().await;
}
