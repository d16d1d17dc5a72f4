//! Metrics of this process, as the kernel sees it, under the names every Prometheus library uses.

use std::fmt;
use std::fs;
use std::path::Path;

use prometheus_client::encoding::DescriptorEncoder;
use rustix::param::{clock_ticks_per_second, page_size};

use super::{counter, gauge};

/// Read from `/proc` at each scrape. Where there is no `/proc`, there are no figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProcessFigures {
    start_time: f64,
    cpu_seconds: f64,
    resident_bytes: f64,
    open_fds: f64,
}

/// The units in which the kernel counts time and memory.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: f64,
    page_bytes: f64,
}

impl ProcessFigures {
    pub(super) fn read() -> Option<Self> {
        let units = Units { ticks_per_second: clock_ticks_per_second() as f64, page_bytes: page_size() as f64 };
        let (own, machine) = (fs::read_to_string("/proc/self/stat").ok()?, fs::read_to_string("/proc/stat").ok()?);
        Self::parse(&own, &machine, count_fds(Path::new("/proc/self/fd"))?, units)
    }

    /// The second field is the program's name and may contain anything; numbers follow it.
    fn parse(own: &str, machine: &str, open_fds: u64, units: Units) -> Option<Self> {
        let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        // Numbered as in proc(5), where the first field after the name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / units.ticks_per_second;
        let booted: u64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(Self {
            start_time: booted as f64 + seconds(field(22)?),
            cpu_seconds: seconds(field(14)? + field(15)?),
            resident_bytes: field(24)? as f64 * units.page_bytes,
            open_fds: open_fds as f64,
        })
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let start = ("process_start_time_seconds", "Start of the process in seconds since 1970.");
        gauge(encoder, start, self.start_time)?;
        let resident = ("process_resident_memory_bytes", "Resident memory of the process.");
        gauge(encoder, resident, self.resident_bytes)?;
        gauge(encoder, ("process_open_fds", "Open file descriptors of the process."), self.open_fds)?;
        counter(encoder, ("process_cpu_seconds", "Processor time of the process, user and system."), self.cpu_seconds)
    }
}

/// Newer kernels report the count as the folder's size, which is quick even with a descriptor per agent.
fn count_fds(folder: &Path) -> Option<u64> {
    match fs::metadata(folder).ok()?.len() {
        0 => Some(fs::read_dir(folder).ok()?.count() as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units { ticks_per_second: 100.0, page_bytes: 4096.0 };
    const OWN: &str =
        "42 (a) b (c) S 1 42 42 0 -1 4194560 500 0 0 0 250 150 0 0 20 0 8 0 3000 90000 25 18446744073709551615";

    #[test]
    fn a_process_name_with_spaces_and_parentheses_is_read() {
        let figures = ProcessFigures::parse(OWN, "cpu 1 2\nbtime 1000000\n", 7, UNITS).unwrap();
        let expected =
            ProcessFigures { start_time: 1_000_030.0, cpu_seconds: 4.0, resident_bytes: 102_400.0, open_fds: 7.0 };
        assert_eq!(figures, expected);
    }

    #[test]
    fn unreadable_proc_files_give_no_figures() {
        for (own, machine) in [("", "btime 1\n"), ("42 (a) S 1 2", "btime 1\n"), (OWN, "cpu 1 2\n"), (OWN, "btime x\n")]
        {
            assert_eq!(ProcessFigures::parse(own, machine, 7, UNITS), None);
        }
    }

    #[test]
    fn this_process_has_figures() {
        let figures = ProcessFigures::read().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(figures.start_time > 1e9 && figures.start_time <= now + 1.0, "{figures:?}");
        assert!(figures.resident_bytes > 100_000.0 && figures.open_fds >= 3.0, "{figures:?}");
    }

    #[test]
    fn file_descriptors_are_counted_and_an_absent_folder_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("/proc/{}/fd", std::process::id());
        let listed = fs::read_dir(&own).unwrap().count() as u64;
        // Other tests of this process open and close files at the same time.
        assert!(count_fds(Path::new(&own)).unwrap().abs_diff(listed) < 200);
        assert_eq!(count_fds(&folder.path().join("absent")), None);
    }
}
