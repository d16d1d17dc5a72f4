//! Requests of a pod, by Kubernetes' rule for its containers.
//!
//! Containers run together, so their requests add up. Init containers run one after the other before them, so only
//! the largest matters; but those that stay (restart policy Always) run beside everything that comes after them.

use std::collections::BTreeMap;

use crate::object::node::Resources;
use crate::value::quantity::Quantity;
use crate::value::text::Text;

/// The requests of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    pub requests: Resources,
    /// An init container that goes on running.
    pub stays: bool,
}

type Sum = BTreeMap<Text, Quantity>;

/// The order of `init` counts.
pub fn effective(containers: &[Container], init: &[Container], overhead: &Resources) -> Resources {
    let mut staying = Sum::new();
    let mut peak = Sum::new();
    for container in init {
        let mut while_it_runs = staying.clone();
        add(&mut while_it_runs, &container.requests);
        raise(&mut peak, &while_it_runs);
        if container.stays {
            staying = while_it_runs;
        }
    }
    let mut running = staying;
    containers.iter().for_each(|container| add(&mut running, &container.requests));
    raise(&mut peak, &running);
    add(&mut peak, overhead);
    peak.into_iter().collect()
}

fn add(sum: &mut Sum, requests: &Resources) {
    for (name, quantity) in requests.iter() {
        let total = sum.get(name).map_or(quantity, |known| known.plus(quantity));
        sum.insert(name.clone(), total);
    }
}

fn raise(peak: &mut Sum, other: &Sum) {
    for (name, quantity) in other {
        let highest = peak.get(name).map_or(*quantity, |known| (*known).max(*quantity));
        peak.insert(name.clone(), highest);
    }
}
