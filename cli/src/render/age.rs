//! Ages as kubectl prints them: coarse, and coarser the older something is.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The age of an RFC 3339 time; `<unknown>` for what is not one.
pub fn since(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// Two units while the second one still matters.
pub fn human(seconds: i64) -> String {
    match seconds.max(0) {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s, MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s, HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s, DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s, YEAR, "y", DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

fn two(seconds: i64, large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    match rest {
        0 => format!("{whole}{large_unit}"),
        rest => format!("{whole}{large_unit}{rest}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_like_kubectls() {
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (10 * MINUTE, "10m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 7 * MINUTE, "3h7m"),
            (8 * HOUR + MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (YEAR + 3 * DAY, "368d"),
            (2 * YEAR + DAY, "2y1d"),
            (9 * YEAR, "9y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_time_is_shown_as_unknown() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(since("2026-01-01T00:00:00Z", now), "60s");
        assert_eq!(since("", now), "<unknown>");
    }
}
