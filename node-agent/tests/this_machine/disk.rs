//! DiskPressure of a filesystem that is really full, in a mount namespace that goes away with the test.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use muster_lifecycle::node::ConditionStatus;
use muster_node_agent::conditions::MonitorConfig;

use crate::watching::{frequent, start, until_status};

const INSIDE: &str = "disk::inside_a_mount_namespace";
const SIZE: usize = 8 << 20;

#[test]
fn a_full_filesystem_turns_disk_pressure_on_and_an_emptied_one_off_again() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        // Past the capture of output, which would hide it.
        let why = "no mount namespace can be made here: it takes root and unshare of util-linux";
        return writeln!(std::io::stderr(), "SKIPPED: {why}").unwrap();
    }
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    let output = inside.args([INSIDE, "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "run by the test above, which makes the namespace"]
async fn inside_a_mount_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let options = format!("size={SIZE},nr_inodes=100");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(directory.path()).status();
    assert!(mount.unwrap().success());

    let config = MonitorConfig { transition_period: Duration::from_millis(200), ..frequent(directory.path()) };
    let monitor = start(config);
    let calm = until_status(&monitor, "DiskPressure", ConditionStatus::False).await;
    assert_eq!(calm.result.reason, "KubeletHasNoDiskPressure");
    until_status(&monitor, "Ready", ConditionStatus::True).await;

    let ballast = directory.path().join("ballast");
    std::fs::write(&ballast, vec![1; SIZE * 95 / 100]).unwrap();
    let pressed = until_status(&monitor, "DiskPressure", ConditionStatus::True).await;
    assert_eq!(
        (&*pressed.result.reason, &*pressed.result.message),
        ("KubeletHasDiskPressure", "kubelet has disk pressure")
    );
    assert!(pressed.last_transition > calm.last_transition);
    std::fs::remove_file(&ballast).unwrap();
    until_status(&monitor, "DiskPressure", ConditionStatus::False).await;

    use_up_inodes(directory.path());
    until_status(&monitor, "DiskPressure", ConditionStatus::True).await;
}

fn use_up_inodes(directory: &Path) {
    let made = (0..1000).take_while(|number| std::fs::write(directory.join(number.to_string()), "").is_ok());
    assert!((50..200).contains(&made.count()));
}
