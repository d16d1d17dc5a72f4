//! Commit and machine that were measured, named beside every figure.

use std::fmt;

/// Set by the build script.
const COMMIT: &str = env!("MUSTER_COMMIT");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineInfo {
    pub(crate) commit: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    /// A debug build is good for trying out, and its figures mean nothing.
    pub(crate) optimized: bool,
}

// === impl MachineInfo ===

impl MachineInfo {
    pub(crate) fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            commit: COMMIT.to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: cpu(&read("/proc/cpuinfo")),
            optimized: !cfg!(debug_assertions),
        }
    }

    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            commit: "abc123".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.1.0".to_owned(),
            cpu: "AMD EPYC".to_owned(),
            optimized: true,
        }
    }

    /// The machine without the commit, on one line.
    pub(crate) fn description(&self) -> String {
        let Self { cores, kernel, cpu, .. } = self;
        let memory = self.memory_bytes as f64 / f64::from(1 << 30);
        let build = if self.optimized { "release build" } else { "debug build" };
        format!("{cores} cores of {cpu}, {memory:.0} GiB, Linux {kernel}, {build}")
    }
}

impl fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit {}; {}", self.commit, self.description())
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The name of the processor, or the architecture where /proc does not name it.
fn cpu(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_facts_are_read_from_proc_even_if_empty() {
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:       2048 kB\n"), 2 << 20);
        assert_eq!(memory_bytes(""), 0);
        assert_eq!(cpu("model\t\t: 17\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(cpu(""), std::env::consts::ARCH);
    }

    #[test]
    fn commit_and_machine_are_on_one_line() {
        let machine = MachineInfo::example();
        assert_eq!(machine.to_string(), "commit abc123; 2 cores of AMD EPYC, 24 GiB, Linux 6.1.0, release build");
    }
}
