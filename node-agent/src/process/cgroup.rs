//! Control groups (v2), where the machine allows them. All processes of a pod stay in the pod's group, end with it,
//! and are limited by it.
//!
//! ```text
//!   root of the hierarchy ---- muster-pods ---- POD-UID ---- CONTAINER    limits are the container's
//! ```
//!
//! The pods' groups are not below the agent's own group: a group that distributes controllers must not contain
//! processes, so systemd could not start the next agent beside the pods of the last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::Limits;
use super::pod_files::CgroupSettings;

const PODS: &str = "muster-pods";
const WANTED: [&str; 3] = ["cpu", "memory", "pids"];
/// Kubernetes' period, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// The shortest quota that the kernel accepts.
const CPU_QUOTA_MIN: u64 = 1_000;

/// The group below which the pods' groups are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupRoot {
    home: PathBuf,
    pods: PathBuf,
    controllers: Vec<String>,
}

/// The groups of one pod and its containers.
#[derive(Debug, Clone)]
pub(super) struct PodGroup(CgroupSettings);

// === impl CgroupRoot ===

impl CgroupRoot {
    /// Creates missing groups. The error names what the machine does not allow.
    pub(super) fn prepare() -> Result<Self, String> {
        let (root, home) = own_group().ok_or("the machine has no cgroup v2 hierarchy")?;
        let pods = root.join(PODS);
        make(&pods).map_err(|error| format!("cannot make {}: {error}", pods.display()))?;
        enable(&root, &available(&root));
        enable(&pods, &available(&pods));
        let controllers = enabled(&pods);
        Ok(Self { home, pods, controllers })
    }

    /// The controllers that are missing here.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        WANTED.into_iter().filter(|wanted| !self.controllers.iter().any(|known| known == wanted)).collect()
    }

    pub(super) fn settings(&self, uid: &str, pids_max: Option<u64>) -> CgroupSettings {
        let (home, controllers) = (self.home.clone(), self.controllers.clone());
        CgroupSettings { pod: self.pods.join(uid), home, controllers, pids_max }
    }
}

/// The mount point of the hierarchy, and the group of this process.
fn own_group() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_in(&mounts, &groups)
}

/// The mount point of the unified hierarchy and the directory of the process's group in it, if it is mounted.
fn group_in(mounts: &str, groups: &str) -> Option<(PathBuf, PathBuf)> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let (root, mount) = (fields.get(3)?, fields.get(4)?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| (PathBuf::from(mount), Path::new(mount).join(below)))
    })
}

fn available(group: &Path) -> Vec<String> {
    let known = words(&group.join("cgroup.controllers"));
    known.into_iter().filter(|name| WANTED.contains(&name.as_str())).collect()
}

fn enabled(group: &Path) -> Vec<String> {
    words(&group.join("cgroup.subtree_control"))
}

/// Enables controllers for the groups below: all or none, because a subset would change the kind of this group.
fn enable(group: &Path, controllers: &[String]) {
    let wanted: Vec<String> = controllers.iter().map(|controller| format!("+{controller}")).collect();
    // A controller that could not be enabled is missing in `enabled`.
    let _ = fs::write(group.join("cgroup.subtree_control"), wanted.join(" "));
}

fn words(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Moves this process into the group.
fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

// === impl PodGroup ===

impl PodGroup {
    pub(super) fn new(settings: CgroupSettings) -> Self {
        Self(settings)
    }

    pub(super) fn make(&self) -> io::Result<()> {
        make(&self.0.pod)?;
        enable(&self.0.pod, &self.0.controllers);
        if let Some(pids) = self.0.pids_max.filter(|_| self.limits_by("pids")) {
            fs::write(self.0.pod.join("pids.max"), pids.to_string())?;
        }
        Ok(())
    }

    /// Runs `spawn` inside the container's group: this process, which must have one thread only, moves there for the
    /// moment. The limits are set after it has moved back, so that they never apply to it. The second result reports a
    /// failure of the group itself: this group must not be used any more.
    pub(super) fn spawn_in<T>(
        &self,
        container: &str,
        limits: &Limits,
        spawn: impl FnOnce() -> io::Result<T>,
    ) -> (io::Result<T>, io::Result<()>) {
        let group = self.0.pod.join(container);
        if let Err(error) = make(&group).and_then(|()| enter(&group)) {
            return (spawn(), Err(error));
        }
        let spawned = spawn();
        let limited = enter(&self.0.home).and_then(|()| self.limit(&group, limits));
        (spawned, limited)
    }

    /// Kills everything in the container's group, or in the pod's. False: the kernel cannot.
    pub(super) fn kill(&self, container: Option<&str>) -> bool {
        let group = container.map_or_else(|| self.0.pod.clone(), |name| self.0.pod.join(name));
        fs::write(group.join("cgroup.kill"), "1").is_ok()
    }

    /// How many processes the kernel killed there for lack of memory since the group was created.
    pub(super) fn oom_kills(&self, container: &str) -> u64 {
        let events = fs::read_to_string(self.0.pod.join(container).join("memory.events")).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// False: the group is not empty.
    pub(super) fn remove_container(&self, container: &str) -> bool {
        gone(fs::remove_dir(self.0.pod.join(container)))
    }

    pub(super) fn remove(&self) -> bool {
        let below = fs::read_dir(&self.0.pod).into_iter().flatten().flatten();
        below.filter(|entry| entry.path().is_dir()).for_each(|entry| {
            let _ = fs::remove_dir(entry.path());
        });
        gone(fs::remove_dir(&self.0.pod))
    }

    fn limit(&self, group: &Path, limits: &Limits) -> io::Result<()> {
        if let Some(cpu) = limits.cpu_millis.filter(|_| self.limits_by("cpu")) {
            fs::write(group.join("cpu.max"), cpu_max(cpu))?;
        }
        if let Some(memory) = limits.memory_bytes.filter(|_| self.limits_by("memory")) {
            fs::write(group.join("memory.max"), memory.to_string())?;
        }
        Ok(())
    }

    fn limits_by(&self, controller: &str) -> bool {
        self.0.controllers.iter().any(|known| known == controller)
    }
}

fn cpu_max(millis: u64) -> String {
    let quota = millis.saturating_mul(CPU_PERIOD / 1000).max(CPU_QUOTA_MIN);
    format!("{quota} {CPU_PERIOD}")
}

fn gone(removed: io::Result<()>) -> bool {
    removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
    const HYBRID: &str = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                          32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
    const NESTED: &str = "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

    #[test]
    fn the_group_of_a_process_is_found_where_it_is_mounted() {
        let table = [
            (UNIFIED, "0::/system.slice/a.service\n", Some("/sys/fs/cgroup/system.slice/a.service")),
            (UNIFIED, "0::/\n", Some("/sys/fs/cgroup/")),
            (HYBRID, "1:cpu:/x\n0::/y\n", Some("/sys/fs/cgroup/unified/y")),
            (NESTED, "0::/box/y\n", Some("/sys/fs/cgroup/y")),
            (NESTED, "0::/elsewhere\n", None),
            (HYBRID, "1:cpu:/x\n", None),
            ("", "0::/\n", None),
            ("garbage - cgroup2 x", "0::/\n", None),
        ];
        for (mounts, groups, found) in table {
            let own = group_in(mounts, groups).map(|(_, own)| own);
            assert_eq!(own, found.map(PathBuf::from), "{groups} in {mounts}");
        }
    }

    #[test]
    fn a_share_of_the_processors_is_a_quota_of_the_period() {
        for (millis, written) in [(1500, "150000 100000"), (250, "25000 100000"), (1, "1000 100000")] {
            assert_eq!(cpu_max(millis), written);
        }
    }

    #[test]
    fn a_container_starts_in_its_group_and_is_limited_after_the_shim_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let (home, pod) = (dir.path().join("agent"), dir.path().join("pod"));
        make(&home).unwrap();
        let controllers = ["cpu", "memory", "pids"].map(str::to_owned).to_vec();
        let settings = CgroupSettings { pod: pod.clone(), home: home.clone(), controllers, pids_max: Some(64) };
        let group = PodGroup::new(settings);
        group.make().unwrap();
        let limits = Limits { cpu_millis: Some(500), memory_bytes: Some(1 << 20) };
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let spawned = group.spawn_in("c", &limits, || {
            assert_eq!((read(pod.join("c/cgroup.procs")), pod.join("c/memory.max").exists()), ("0".to_owned(), false));
            assert_eq!(read(home.join("cgroup.procs")), "");
            Ok(7)
        });
        assert!(matches!(spawned, (Ok(7), Ok(()))));
        assert_eq!(read(home.join("cgroup.procs")), "0");
        assert_eq!((read(pod.join("pids.max")).as_str(), read(pod.join("c/cpu.max")).as_str()), ("64", "50000 100000"));
        assert_eq!(read(pod.join("c/memory.max")), "1048576");
        fs::write(pod.join("c/memory.events"), "oom 1\noom_kill 1\n").unwrap();
        assert_eq!((group.oom_kills("c"), group.oom_kills("other")), (1, 0));
    }

    #[test]
    fn a_group_that_cannot_be_entered_is_reported_and_the_container_runs() {
        let nowhere = PathBuf::from("/proc/nowhere");
        let settings = CgroupSettings { pod: nowhere.clone(), home: nowhere, controllers: Vec::new(), pids_max: None };
        let spawned = PodGroup::new(settings).spawn_in("c", &Limits::default(), || Ok(7));
        assert!(matches!(spawned, (Ok(7), Err(_))));
    }
}
