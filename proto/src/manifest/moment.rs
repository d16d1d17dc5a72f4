//! Moments in manifests: RFC 3339, printed in whole seconds of UTC as Kubernetes prints them.
//!
//! Only wall time is visible outside. A moment that comes from a manifest has no place in cluster time, so its
//! cluster time is zero, and nothing may be decided by it.

use jiff::Timestamp;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use serde_json::Value;

use super::fields::{Fields, Read};
use crate::field::Shown;

pub(super) fn read(fields: &mut Fields<'_>, name: &str) -> Read<Option<Stamp>> {
    fields.parsed(name, |text| {
        let moment: Timestamp = text
            .parse()
            .map_err(|_| format!("{} is not an RFC 3339 time such as 2026-03-01T12:00:00Z", Shown(text)))?;
        Ok(Stamp { cluster: ClusterTime(0), wall: WallTime(moment.as_millisecond()) })
    })
}

/// Null for a moment outside the calendar, which no clock of Muster produces.
pub(super) fn write(stamp: Stamp) -> Value {
    Timestamp::from_second(stamp.wall.0.div_euclid(1_000)).map_or(Value::Null, |moment| moment.to_string().into())
}

/// Null is how upstream prints a moment that does not exist.
pub(super) fn write_optional(stamp: Option<Stamp>) -> Value {
    stamp.map_or(Value::Null, write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_printed_in_whole_seconds() {
        let at = |wall| write(Stamp { cluster: ClusterTime(7), wall: WallTime(wall) });
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(1_767_225_599_999), "2025-12-31T23:59:59Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59Z");
        assert_eq!(at(i64::MAX), Value::Null);
        assert_eq!(write_optional(None), Value::Null);
    }
}
