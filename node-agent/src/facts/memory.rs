//! Memory of the machine, from `/proc/meminfo`.

use std::io;

use super::file::Root;

pub(crate) const MEMINFO: &str = "/proc/meminfo";
const KIB: u64 = 1024;

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// Memory that a new process could use without swapping.
    ///
    /// This is the kernel's own estimate. Upstream subtracts the usage of its root cgroup, without inactive file
    /// pages, from the total. There, file pages that were read twice count as used, so machines with a busy page cache
    /// report a pressure that the next allocation would resolve. Kernels without an estimate are measured as upstream
    /// does.
    pub(crate) available: u64,
    pub(crate) swap: u64,
}

impl Memory {
    pub(crate) fn read(root: &Root) -> io::Result<Self> {
        Self::parse(&root.text(MEMINFO)?).map_err(|missing| {
            io::Error::new(io::ErrorKind::InvalidData, format!("it has no line {missing} with a number of kB"))
        })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let total = field(text, "MemTotal").filter(|total| *total > 0).ok_or("MemTotal")?;
        let estimate = field(text, "MemAvailable");
        let free = || Some(field(text, "MemFree")?.saturating_add(field(text, "Inactive(file)")?));
        let available = estimate.or_else(free).ok_or("MemAvailable")?;
        Ok(Self { total, available: available.min(total), swap: field(text, "SwapTotal").unwrap_or(0) })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_the_kernels_estimate_or_what_upstream_counts() {
        type Expected = Result<(u64, u64, u64), &'static str>;
        let cases: [(&str, Expected); 7] = [
            ("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:  40 kB\nSwapTotal: 7 kB\n", Ok((100, 40, 7))),
            ("MemTotal: 100 kB\nMemFree: 10 kB\nInactive: 50 kB\nInactive(file): 20 kB\n", Ok((100, 30, 0))),
            ("MemTotal: 100 kB\nMemAvailable: 400 kB\n", Ok((100, 100, 0))),
            ("MemTotal: 100 kB\n", Err("MemAvailable")),
            ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", Err("MemTotal")),
            ("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n", Err("MemTotal")),
            ("garbage", Err("MemTotal")),
        ];
        for (text, expected) in cases {
            let parsed = Memory::parse(text).map(|memory| (memory.total, memory.available, memory.swap));
            assert_eq!(parsed, expected.map(|(total, available, swap)| (total * KIB, available * KIB, swap * KIB)));
        }
    }
}
