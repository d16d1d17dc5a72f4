//! An operator of a test cluster, who uses the `muster` binary: what it prints, and whether the replicas agree.

use std::process::Output;

use serde_json::Value;

use crate::process::text;
use crate::waiting::eventually;

pub trait Operator {
    /// Runs the binary against this cluster.
    fn muster(&self, arguments: &[&str]) -> Output;

    /// As `muster`, but it must succeed; its standard output.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.muster(arguments);
        assert!(
            output.status.success(),
            "muster {arguments:?} failed with {}: {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// As `muster`, but it must fail with `code`; its standard error.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.muster(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "muster {arguments:?}: {}{stderr}", text(&output.stdout));
        stderr
    }

    /// The objects of a list.
    fn items(&self, arguments: &[&str]) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    fn status(&self) -> Option<Value> {
        let output = self.muster(&["status", "-o", "json", "--timeout", "3s"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    fn leader(&self) -> u64 {
        eventually("a leader", || self.status()?["leader"].as_u64())
    }

    /// Waits until all replicas answer, agree on a leader and have applied the same.
    fn settle(&self) -> Value {
        eventually("all replicas settle", || {
            let status = self.status()?;
            let replicas = status["replicas"].as_array()?;
            let same = |key: &str| replicas.iter().all(|replica| replica[key] == replicas[0][key]);
            let reachable = replicas.iter().all(|replica| replica["reachable"] == true);
            (status["leader"].is_u64() && reachable && same("applied") && same("digest")).then_some(status)
        })
    }
}
