//! Tests of the rules, by subject. Most apply commands to a State (`fixture::cluster`) and check outcomes, changes and
//! records. Tests of decisions that need no State call the function itself (`fixture::conditions`).
//!
//! A test is named by the rule that it checks (`nh_8_…`, `te_6_…`; `docs/conformance.md` lists them), or by the
//! behaviour that operators rely on.

mod fixture {
    pub(crate) mod cluster;
    pub(crate) mod conditions;
    pub(crate) mod fleet;
    pub(crate) mod pods;
    pub(crate) mod tolerations;
}

mod node {
    mod condition_taints;
    mod consequences;
    mod deletion;
    mod health;
    mod registration;
    mod restriction;
    mod silence;
    mod status_reports;
    mod validation;
}

mod pod {
    mod garbage_collection;
    mod lifecycle;
    mod placement;
    mod readiness;
    mod requests;
    mod taint_eviction;
    mod toleration;
    mod workloads;
}

mod zone {
    mod assessment;
    mod eviction_queue;
    mod evictions;
    mod full_disruption;
    mod state;
}

mod cidr {
    mod allocation;
    mod blocks;
    mod plan;
}

mod access {
    mod aggregators;
    pub(crate) mod credentials;
    mod entitlement;
    mod expired_credentials;
    mod wall_trust;
}

mod command {
    mod effects;
    mod encoding;
    pub(crate) mod every_operation;
    mod levels;
    mod limits;
    mod rejections;
    mod retries;
    mod selectors;
}

mod golden {
    mod commands;
    mod events;
    mod rejections;
    mod state;
    mod violations;

    /// As the log, the records and the messages between replicas encode it.
    fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
        postcard::to_stdvec(value).expect("a value that postcard can write")
    }
}

mod policy {
    mod changes;
    mod settings;
}

mod explain {
    pub(crate) mod node;
    mod zone;
}

mod property {
    mod command_histories;
    mod fleet_histories;
}
