//! Resource usage of processes while a scenario runs, read from /proc. A thread of its own samples it: the very load
//! that is measured may keep tasks waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::report::number::{grouped, mebibytes};
use crate::report::table::ReportTable;
use crate::report::timeline::{MeasuredTimeline, Series};

const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// The kernel's tick in /proc: fixed on every architecture that we run on.
const TICKS_PER_SECOND: f64 = 100.0;
pub(crate) const GENERATOR: &str = "generator";

/// Samples processes until it is stopped.
#[derive(Debug)]
pub(crate) struct UsageMeter {
    orders: Sender<WatchedProcess>,
    sampling: JoinHandle<Sampler>,
}

/// The usage of all processes from start to stop.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResourceUsage {
    pub(crate) processes: Vec<ProcessUsage>,
    /// Memory ("MiB") and processor time ("cores") of every process.
    pub(crate) series: Vec<Series>,
}

/// All processes of one label, one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProcessUsage {
    pub(crate) label: String,
    pub(crate) cpu_seconds: f64,
    /// At the last sample that found it alive.
    pub(crate) rss_bytes: u64,
    pub(crate) rss_peak_bytes: u64,
}

#[derive(Debug)]
struct WatchedProcess {
    label: String,
    pid: u32,
    /// At the last sample.
    cpu_seconds: Option<f64>,
}

#[derive(Debug)]
struct Sampler {
    started: Instant,
    last: Instant,
    watched: Vec<WatchedProcess>,
    uses: Vec<ProcessUsage>,
    timeline: MeasuredTimeline,
}

/// One sample of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcSample {
    cpu_seconds: f64,
    rss_bytes: u64,
}

// === impl UsageMeter ===

impl UsageMeter {
    /// Begins to sample these processes, and the load generator, which is this one.
    pub(crate) fn start(processes: &[(String, u32)]) -> Self {
        let (orders, received) = channel();
        let mut sampler = Sampler::new();
        let own = (GENERATOR.to_owned(), std::process::id());
        for (label, pid) in processes.iter().cloned().chain([own]) {
            sampler.watch(WatchedProcess { label, pid, cpu_seconds: None });
        }
        let sampling = std::thread::spawn(move || sampler.run(&received));
        Self { orders, sampling }
    }

    /// Takes the last sample now.
    pub(crate) fn stop(self) -> ResourceUsage {
        drop(self.orders);
        let sampler = self.sampling.join().unwrap_or_else(|_| Sampler::new());
        ResourceUsage { processes: sampler.uses, series: sampler.timeline.series }
    }
}

// === impl ResourceUsage ===

impl ResourceUsage {
    pub(crate) fn of(&self, label: &str) -> Option<&ProcessUsage> {
        self.processes.iter().find(|process| process.label == label)
    }

    /// A row per process.
    pub(crate) fn table(&self) -> ReportTable {
        let mut table = ReportTable::new("by process", &["process", "CPU s", "RSS MiB", "peak MiB"]);
        for process in &self.processes {
            let [resident, peak] =
                [process.rss_bytes, process.rss_peak_bytes].map(|bytes| grouped(mebibytes(bytes).round()));
            table.row([process.label.clone(), format!("{:.2}", process.cpu_seconds), resident, peak]);
        }
        table
    }

    /// The same with the processor time that a million beats took of each.
    pub(crate) fn table_per_beats(&self, beats: u64) -> ReportTable {
        let mut table = self.table();
        table.header.push("CPU s/M beats".to_owned());
        for (row, process) in table.rows.iter_mut().zip(&self.processes) {
            let per_million = process.cpu_seconds * 1e6 / beats as f64;
            row.push(if beats > 0 { format!("{per_million:.3}") } else { "-".to_owned() });
        }
        table
    }

    /// Processor time of all but the generator.
    pub(crate) fn server_cpu_seconds(&self) -> f64 {
        self.processes.iter().filter(|process| process.label != GENERATOR).map(|process| process.cpu_seconds).sum()
    }
}

// === impl Sampler ===

impl Sampler {
    fn new() -> Self {
        let now = Instant::now();
        Self { started: now, last: now, watched: Vec::new(), uses: Vec::new(), timeline: MeasuredTimeline::default() }
    }

    fn run(mut self, orders: &Receiver<WatchedProcess>) -> Self {
        loop {
            match orders.recv_timeout(SAMPLE_EVERY.saturating_sub(self.last.elapsed())) {
                Ok(process) => self.watch(process),
                Err(RecvTimeoutError::Timeout) => self.sample(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.sample();
                    return self;
                }
            }
        }
    }

    /// A new process replaces the one before it under the same label. What it used before is not counted.
    fn watch(&mut self, mut process: WatchedProcess) {
        process.cpu_seconds = ProcSample::at(process.pid).map(|sample| sample.cpu_seconds);
        if !self.uses.iter().any(|known| known.label == process.label) {
            self.uses.push(ProcessUsage { label: process.label.clone(), ..ProcessUsage::default() });
        }
        self.watched.retain(|known| known.label != process.label);
        self.watched.push(process);
    }

    fn sample(&mut self) {
        let now = Instant::now();
        let (at, since) = ((now - self.started).as_secs_f64(), (now - self.last).as_secs_f64());
        self.last = now;
        for process in &mut self.watched {
            let Some(sample) = ProcSample::at(process.pid) else { continue };
            let spent = sample.cpu_seconds - process.cpu_seconds.unwrap_or(0.0);
            process.cpu_seconds = Some(sample.cpu_seconds);
            if let Some(known) = self.uses.iter_mut().find(|known| known.label == process.label) {
                known.add(spent, sample.rss_bytes);
            }
            self.timeline.push(&process.label, "MiB", at, mebibytes(sample.rss_bytes));
            // A tick is too coarse for the rest of a period that was cut short.
            if since >= SAMPLE_EVERY.as_secs_f64() / 2.0 {
                self.timeline.push(&process.label, "cores", at, spent / since);
            }
        }
    }
}

// === impl ProcessUsage ===

impl ProcessUsage {
    fn add(&mut self, cpu_seconds: f64, rss_bytes: u64) {
        self.cpu_seconds += cpu_seconds;
        self.rss_bytes = rss_bytes;
        self.rss_peak_bytes = self.rss_peak_bytes.max(rss_bytes);
    }
}

// === impl ProcSample ===

impl ProcSample {
    /// Nothing if the process is gone, or a zombie.
    fn at(pid: u32) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        Self::parse(&read("stat")?, &read("status")?)
    }

    /// The name is in brackets and may hold anything, so fields are counted from behind it.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|tick| tick.parse().ok()).collect();
        let [user, system] = ticks[..] else { return None };
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = resident.split_whitespace().next()?.parse().ok()?;
        Some(Self { cpu_seconds: (user + system) as f64 / TICKS_PER_SECOND, rss_bytes: kib * 1024 })
    }
}

/// Resident memory of a process.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let sample = ProcSample::at(pid).with_context(|| format!("process {pid} does not run"))?;
    Ok(sample.rss_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a ) b) S 1 42 42 0 -1 4194560 900 0 1 0 250 50 0 0 20 0 9 0 1234 56 78";
    const STATUS: &str = "Name:\ta ) b\nVmHWM:\t 2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n";

    #[test]
    fn a_process_name_with_spaces_and_parentheses_is_read() {
        assert_eq!(ProcSample::parse(STAT, STATUS), Some(ProcSample { cpu_seconds: 3.0, rss_bytes: 1 << 20 }));
        assert_eq!(ProcSample::parse(STAT, "Name:\tzombie\n"), None);
        assert_eq!(ProcSample::parse("42 (a)", STATUS), None);
        assert_eq!(ProcSample::parse("", ""), None);
    }

    #[test]
    fn the_table_shows_usage_per_million_beats() {
        let process = ProcessUsage {
            label: "replica 1".to_owned(),
            cpu_seconds: 3.0,
            rss_bytes: 1 << 30,
            rss_peak_bytes: 2 << 30,
        };
        let usage = ResourceUsage { processes: vec![process], series: Vec::new() };
        assert_eq!(usage.table().rows, [["replica 1", "3.00", "1,024", "2,048"]]);
        assert_eq!(usage.table_per_beats(2_000_000).rows, [["replica 1", "3.00", "1,024", "2,048", "1.500"]]);
        assert_eq!(usage.table_per_beats(0).rows[0][4], "-");
    }

    #[test]
    fn the_load_generator_is_this_process() {
        let usage = UsageMeter::start(&[("gone".to_owned(), u32::MAX)]).stop();
        let labels: Vec<&str> = usage.processes.iter().map(|process| process.label.as_str()).collect();
        assert_eq!(labels, ["gone", GENERATOR]);
        assert!(usage.of(GENERATOR).unwrap().rss_peak_bytes > 0);
        assert_eq!(usage.of("gone").unwrap().rss_bytes, 0);
        let memory = |series: &&Series| series.unit == "MiB";
        assert_eq!(usage.series.iter().filter(memory).count(), 1, "a process that is gone has no samples");
    }
}
