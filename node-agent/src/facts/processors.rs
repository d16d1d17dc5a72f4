//! Number of processors.

use std::io;

use super::file::{MissingFact, Root};

/// The processors that the kernel schedules on: ranges such as `0-3,8`.
pub(crate) const ONLINE: &str = "/sys/devices/system/cpu/online";
const CPUINFO: &str = "/proc/cpuinfo";
/// More than any kernel supports; a larger number is a mistake.
const COUNT_MAX: u64 = 1 << 16;

pub(crate) fn count(root: &Root) -> Result<u64, MissingFact> {
    let online = root.line(ONLINE).and_then(|line| count_of_ranges(&line).ok_or_else(|| unreadable(&line)));
    let listed = || root.text(CPUINFO).ok().map(|text| count_of_entries(&text)).filter(|count| *count > 0);
    online.or_else(|error| listed().ok_or(error)).map_err(|error| MissingFact {
        what: "cpu",
        path: root.path(ONLINE),
        reason: format!("{error}, and {} lists no processor", root.path(CPUINFO).display()),
    })
}

fn unreadable(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is not a list of processors such as 0-3,8"))
}

fn count_of_ranges(line: &str) -> Option<u64> {
    let count = line.split(',').map(length_of_range).try_fold(0, |sum: u64, length| sum.checked_add(length?))?;
    (1..=COUNT_MAX).contains(&count).then_some(count)
}

fn length_of_range(range: &str) -> Option<u64> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

fn count_of_entries(cpuinfo: &str) -> u64 {
    let names_one = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key.trim_end() == "processor");
    cpuinfo.lines().filter(names_one).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_processors_are_counted() {
        let cases = [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-0", None),
            ("0-", None),
            ("all", None),
            ("0-18446744073709551615", None),
            ("0-18446744073709551614,0-9", None),
            ("0-9999999", None),
        ];
        for (line, count) in cases {
            assert_eq!(count_of_ranges(line), count, "{line}");
        }
    }

    #[test]
    fn entries_are_counted_where_there_are_no_ranges() {
        assert_eq!(count_of_entries("processor\t: 0\nmodel : x\n\nprocessor\t: 1\nprocessors : 9\n"), 2);
    }
}
