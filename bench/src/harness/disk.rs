//! Disk space that the replicas' logs and snapshots of a large fleet take, said before it is used.

use std::path::Path;

use super::progress;
use crate::report::number::grouped;

/// Seen with a million nodes: 11 to 15 GB for three replicas.
const BYTES_PER_NODE: [u64; 2] = [11_000, 15_000];
/// Less is not worth a line.
const WORTH_SAYING: u64 = 1_000_000_000;

/// Prints how much disk a fleet of `nodes` nodes takes below `dir`, if that is much.
pub(crate) fn announce(nodes: usize, dir: &Path) {
    if let Some(text) = announcement(nodes, dir, free_bytes(dir)) {
        progress::print(text);
    }
}

fn announcement(nodes: usize, dir: &Path, free: Option<u64>) -> Option<String> {
    let [least, most] = BYTES_PER_NODE.map(|bytes| bytes * nodes as u64);
    let gigabytes = |bytes: u64| grouped((bytes as f64 / 1e8).round() / 10.0);
    let (dir, nodes) = (dir.display(), grouped(nodes as f64));
    let text = || {
        let wanted = format!("{nodes} nodes: logs and snapshots take {} to {} GB", gigabytes(least), gigabytes(most));
        match free {
            Some(free) if free < most => format!(
                "{wanted} in {dir}, where only {} GB are free; make room, set TMPDIR, or ask for fewer --nodes",
                gigabytes(free)
            ),
            Some(free) => format!("{wanted} in {dir}, where {} GB are free", gigabytes(free)),
            None => format!("{wanted} in {dir}"),
        }
    };
    (most >= WORTH_SAYING).then(text)
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_disk_space_is_announced_for_large_fleets_only() {
        let said = |nodes, free| announcement(nodes, Path::new("/tmp"), free);
        assert_eq!(said(3_000, Some(1)), None);
        let enough = "1,000,000 nodes: logs and snapshots take 11 to 15 GB in /tmp, where 20.50 GB are free";
        assert_eq!(said(1_000_000, Some(20_500_000_000)).as_deref(), Some(enough));
        let short = said(100_000, Some(1_000_000_000)).unwrap_or_default();
        assert!(short.contains("1.10 to 1.50 GB in /tmp, where only 1 GB are free; make room"), "{short}");
    }
}
