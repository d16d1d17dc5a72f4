//! Moments as people at a terminal read them: local time of day, and how far away that is.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Largest first; at most two of them are said.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Writes moments as seen from `now`.
pub struct LocalClock {
    zone: TimeZone,
    now: Timestamp,
}

// === impl LocalClock ===

impl LocalClock {
    pub fn new(zone: TimeZone, now_ms: i64) -> Self {
        Self { zone, now: Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH) }
    }

    /// `14:02:11`, with its date if that is not today's.
    pub fn time(&self, wall_ms: i64) -> String {
        let Ok(moment) = Timestamp::from_millisecond(wall_ms) else { return "<unknown>".into() };
        let (moment, now) = (moment.to_zoned(self.zone.clone()), self.now.to_zoned(self.zone.clone()));
        let format = if moment.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        moment.strftime(format).to_string()
    }
}

/// `in 4 m 49 s`, `40 s ago`, `now`; in whole seconds, cut off.
pub fn relative(then_ms: u64, now_ms: u64) -> String {
    let seconds = then_ms.abs_diff(now_ms) / 1_000;
    match (seconds, then_ms > now_ms) {
        (0, _) => "now".into(),
        (_, true) => format!("in {}", length(seconds)),
        (_, false) => format!("{} ago", length(seconds)),
    }
}

fn length(seconds: u64) -> String {
    let largest = UNITS.iter().position(|(_, unit)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
    let (name, unit) = UNITS[largest];
    let whole = format!("{} {name}", seconds / unit);
    match UNITS.get(largest + 1) {
        Some((name, part)) if seconds % unit >= *part => format!("{whole} {} {name}", seconds % unit / part),
        Some(_) | None => whole,
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;

    #[test]
    fn times_of_today_have_no_date() {
        let clock = LocalClock::new(TimeZone::fixed(Offset::constant(2)), 1_767_225_600_000);
        assert_eq!(clock.time(1_767_225_600_000), "02:00:00");
        assert_eq!(clock.time(1_767_225_600_000 - 3 * 3_600_000), "2025-12-31 23:00:00");
        assert_eq!(clock.time(i64::MAX), "<unknown>");
    }

    #[test]
    fn durations_are_shown_in_at_most_two_units() {
        let cases = [
            (999, "now"),
            (1_000, "in 1 s"),
            (289_500, "in 4 m 49 s"),
            (3_600_000, "in 1 h"),
            (3_601_000, "in 1 h"),
            (90_000_000, "in 1 d 1 h"),
        ];
        for (ahead, wanted) in cases {
            assert_eq!(relative(1_000_000_000 + ahead, 1_000_000_000), wanted);
        }
        assert_eq!(relative(60_000, 100_900), "40 s ago");
    }
}
