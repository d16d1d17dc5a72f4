//! An aggregator as a row: which nodes it may carry.

use serde_json::Value;

use super::{items, or, text};

pub const HEADERS: &[&str] = &["NAME", "NODES"];

/// How many patterns a row shows unless it may be wide.
const PATTERNS_SHOWN: usize = 4;

pub fn row(aggregator: &Value, wide: bool) -> Vec<String> {
    let patterns: Vec<&str> = items(aggregator, &["spec", "nodes"]).iter().filter_map(Value::as_str).collect();
    let shown = if wide { patterns.len() } else { PATTERNS_SHOWN.min(patterns.len()) };
    let nodes = match patterns.len() - shown {
        0 => patterns.join(","),
        more => format!("{} and {more} more", patterns[..shown].join(",")),
    };
    vec![text(aggregator, &["metadata", "name"]).to_owned(), or(&nodes, "<none>")]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_scopes_are_cut_unless_wide() {
        let aggregator = |nodes: &[&str]| json!({"metadata": {"name": "rack-1"}, "spec": {"nodes": nodes}});
        assert_eq!(row(&aggregator(&["a", "b-*"]), false), ["rack-1", "a,b-*"]);
        let many = aggregator(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(row(&many, false)[1], "a,b,c,d and 2 more");
        assert_eq!(row(&many, true)[1], "a,b,c,d,e,f");
    }
}
