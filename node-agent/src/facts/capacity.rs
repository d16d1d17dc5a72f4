//! Capacity of a machine, and the part of it that pods may use (S-9).

use std::collections::BTreeMap;

use muster_lifecycle::quantity::Quantity;

use super::reserved::Reserved;
use crate::conditions::{Signal, Thresholds};

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
pub const PODS: &str = "pods";

/// Amounts by resource name.
pub type ResourceAmounts = BTreeMap<String, Quantity>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineCapacity {
    pub cpus: u64,
    /// In bytes, like the fields below.
    pub memory: u64,
    /// Absent if the filesystem did not answer.
    pub ephemeral_storage: Option<u64>,
    /// By page size.
    pub huge_pages: BTreeMap<u64, u64>,
    pub pods: u32,
}

/// Amounts reserved for the system and for the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    pub system: Reserved,
    pub kube: Reserved,
}

impl MachineCapacity {
    pub fn resources(&self) -> ResourceAmounts {
        let mut resources = ResourceAmounts::from([
            (CPU.to_owned(), Quantity::from(i64::try_from(self.cpus).unwrap_or(i64::MAX))),
            (MEMORY.to_owned(), Quantity::bytes(self.memory)),
            (PODS.to_owned(), Quantity::from(i64::from(self.pods))),
        ]);
        resources.extend(self.ephemeral_storage.map(|bytes| (EPHEMERAL_STORAGE.to_owned(), Quantity::bytes(bytes))));
        let huge =
            |(size, bytes): (&u64, &u64)| (format!("hugepages-{}", Quantity::bytes(*size)), Quantity::bytes(*bytes));
        resources.extend(self.huge_pages.iter().map(huge));
        resources
    }

    /// Capacity minus reservations, minus what must stay free below a hard eviction threshold, minus huge pages, which
    /// are not available as ordinary memory.
    pub fn allocatable(&self, reservations: &Reservations, thresholds: &Thresholds) -> ResourceAmounts {
        let mut resources = self.resources();
        let mut take = |resource: &str, amount: Quantity| {
            if let Some(left) = resources.get_mut(resource) {
                *left = left.minus(amount);
            }
        };
        for resource in [CPU, MEMORY, EPHEMERAL_STORAGE] {
            take(resource, reservations.system.of(resource).plus(reservations.kube.of(resource)));
        }
        let storage = self.ephemeral_storage.unwrap_or(0);
        take(MEMORY, Quantity::bytes(thresholds.kept_free(Signal::MemoryAvailable, self.memory)));
        take(EPHEMERAL_STORAGE, Quantity::bytes(thresholds.kept_free(Signal::NodefsAvailable, storage)));
        take(MEMORY, Quantity::bytes(self.huge_pages.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))));
        resources
    }

    /// The resources that are reserved completely: name, reserved, capacity.
    pub fn overdrawn(&self, reservations: &Reservations) -> Vec<(&'static str, Quantity, Quantity)> {
        let resources = self.resources();
        let drawn = |resource: &'static str| {
            let reserved = reservations.system.of(resource).plus(reservations.kube.of(resource));
            let capacity = *resources.get(resource)?;
            (reserved >= capacity && !reserved.is_zero()).then_some((resource, reserved, capacity))
        };
        [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter().filter_map(drawn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    fn machine() -> MachineCapacity {
        MachineCapacity {
            cpus: 4,
            memory: 16 * GI,
            ephemeral_storage: Some(100 * GI),
            huge_pages: BTreeMap::from([(2 << 20, 2 * GI), (GI, 0)]),
            pods: 110,
        }
    }

    fn shown(resources: &ResourceAmounts) -> Vec<String> {
        resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn a_completely_reserved_resource_is_named() {
        let reserved = |text: &str| text.parse::<Reserved>().unwrap();
        for (system, kube, expected) in [
            ("", "", &[][..]),
            ("cpu=3,memory=15Gi", "cpu=900m", &[]),
            ("cpu=3", "cpu=1", &[CPU]),
            ("memory=17Gi,ephemeral-storage=1Ti", "", &[MEMORY, EPHEMERAL_STORAGE]),
        ] {
            let reservations = Reservations { system: reserved(system), kube: reserved(kube) };
            let overdrawn = machine().overdrawn(&reservations);
            let names: Vec<_> = overdrawn.iter().map(|(name, ..)| *name).collect();
            assert_eq!(names, expected, "{system} {kube}");
        }
    }

    #[test]
    fn capacity_is_written_as_kubernetes_writes_it() {
        let expected =
            ["cpu=4", "ephemeral-storage=100Gi", "hugepages-1Gi=0", "hugepages-2Mi=2Gi", "memory=16Gi", "pods=110"];
        assert_eq!(shown(&machine().resources()), expected);
        let odd = MachineCapacity { memory: 24_684_100 * 1024, ephemeral_storage: None, ..MachineCapacity::default() };
        assert_eq!(shown(&odd.resources()), ["cpu=0", "memory=24684100Ki", "pods=0"]);
    }

    #[test]
    fn s_9_allocatable_is_what_reservations_thresholds_and_huge_pages_leave() {
        let reserved = |text: &str| text.parse::<Reserved>().unwrap();
        let defaults = Thresholds::default();
        let none = Thresholds::parse(Some(""), None, None, None).unwrap();
        let cases = [
            ("", "", &none, "4", "14Gi", "100Gi"),
            // 100Mi, and ten percent of the storage.
            ("", "", &defaults, "4", "14236Mi", "90Gi"),
            (
                "cpu=100m,memory=200Mi,ephemeral-storage=1Gi,pid=9",
                "cpu=400m,memory=1Gi",
                &none,
                "3500m",
                "13112Mi",
                "99Gi",
            ),
            ("cpu=9,memory=15Gi,ephemeral-storage=1Ti", "", &defaults, "0", "0", "0"),
        ];
        for (system, kube, thresholds, cpu, memory, storage) in cases {
            let reservations = Reservations { system: reserved(system), kube: reserved(kube) };
            let left = machine().allocatable(&reservations, thresholds);
            let found = (left[CPU].to_string(), left[MEMORY].to_string(), left[EPHEMERAL_STORAGE].to_string());
            assert_eq!(found, (cpu.into(), memory.into(), storage.into()), "{system} {kube}");
            assert_eq!((left[PODS].to_string(), left["hugepages-2Mi"].to_string()), ("110".into(), "2Gi".into()));
        }
    }
}
