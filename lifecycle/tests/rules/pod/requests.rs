//! Requests of a pod, by Kubernetes' rule for init containers and sidecars.

use muster_lifecycle::node::Resources;
use muster_lifecycle::pod_requests::{Container, effective};

fn resources(text: &str) -> Resources {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name, value.parse().expect("a quantity"))).collect()
}

/// One container per `;`, those that stay with a `+` in front.
fn containers(text: &str) -> Vec<Container> {
    let one = |text: &str| {
        let text = text.trim();
        Container { requests: resources(text.trim_start_matches('+')), stays: text.starts_with('+') }
    };
    text.split(';').filter(|part| !part.trim().is_empty()).map(one).collect()
}

#[test]
fn containers_add_up_and_of_init_containers_the_largest_counts() {
    let cases = [
        ("nothing", "", "", "", ""),
        ("containers run together", "cpu=1 memory=1Gi; cpu=500m", "", "", "cpu=1500m memory=1Gi"),
        ("init containers one after the other", "cpu=1", "cpu=2; cpu=3", "", "cpu=3"),
        ("each resource by itself", "cpu=4 memory=1Gi", "cpu=2 memory=3Gi", "", "cpu=4 memory=3Gi"),
        ("a sidecar runs beside the containers", "cpu=1", "+cpu=2", "", "cpu=3"),
        ("and beside the init containers behind it", "cpu=1", "+cpu=2; cpu=5", "", "cpu=7"),
        ("but not beside those before it", "cpu=1", "cpu=5; +cpu=2", "", "cpu=5"),
        ("sidecars add up", "cpu=1", "+cpu=1; cpu=1; +cpu=1; cpu=3", "", "cpu=5"),
        ("overhead is on top of all", "cpu=1", "cpu=5", "cpu=250m memory=64Mi", "cpu=5250m memory=64Mi"),
        ("what only an init container asks for", "cpu=1", "example.com/gpu=1", "", "cpu=1 example.com/gpu=1"),
    ];
    for (case, own, init, overhead, expected) in cases {
        let taken = effective(&containers(own), &containers(init), &resources(overhead));
        let nanos = |resources: &Resources| {
            resources.iter().map(|(name, value)| (name.clone(), value.nanos())).collect::<Vec<_>>()
        };
        assert_eq!(nanos(&taken), nanos(&resources(expected)), "{case}");
    }
}
