//! Target of a command to a simulated fleet: the nodes it is for.

/// With a percentage: the first nodes by name, rounded down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeTarget {
    Node(String),
    /// `region/zone`, or the zone's name alone.
    Zone {
        zone: String,
        percent: Option<u8>,
    },
    All {
        percent: Option<u8>,
    },
}

/// Whether `asked` means the zone of this region.
pub(super) fn is_zone(asked: &str, region: &str, zone: &str) -> bool {
    asked == zone || asked.split_once('/') == Some((region, zone))
}

/// How many of `count` nodes a percentage is.
pub(super) fn share(count: usize, percent: Option<u8>) -> usize {
    count * usize::from(percent.unwrap_or(100)) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_down() {
        assert_eq!([0, 9, 10, 55, 99, 100].map(|percent| share(10, Some(percent))), [0, 0, 1, 5, 9, 10]);
        assert_eq!((share(3, Some(50)), share(3, None), share(0, Some(50))), (1, 3, 0));
    }

    #[test]
    fn a_zone_is_named_with_or_without_its_region() {
        assert!(is_zone("a", "eu", "a") && is_zone("eu/a", "eu", "a"));
        assert!(!is_zone("us/a", "eu", "a") && !is_zone("eu", "eu", "a"));
    }
}
