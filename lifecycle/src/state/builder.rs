//! Builder of a state from its records.

use std::sync::Arc;

use crate::command::client::ClientRecord;
use crate::object::event::Event;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::record::Stored;
use crate::object::record::{RecordError, RecordKey, decode};
use crate::state::{Counters, State};
use crate::store::table::Table;

/// Takes records in any order. The state that it builds has the digest of the state that the records came from, which
/// the caller should compare.
#[derive(Debug, Default)]
pub struct StateBuilder {
    state: State,
    has_counters: bool,
    others: usize,
}

impl StateBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        match key {
            RecordKey::Counters => return self.push_counters(key, value),
            RecordKey::LevelInForce => self.push_level(key, value)?,
            RecordKey::Node { .. } => self.push_node(key, value)?,
            RecordKey::Event { .. } => self.push_event(key, value)?,
            RecordKey::Replica { .. } => place(&mut self.state.replicas, key, decode(key, value)?)?,
            RecordKey::Client { .. } => self.push_client(key, value)?,
            RecordKey::FreeSlot { .. } => place(&mut self.state.free_slots, key, decode(key, value)?)?,
            RecordKey::FleetPolicyState => self.push_policy_state(key, value)?,
            RecordKey::Zone { .. } => place(&mut self.state.zones, key, decode(key, value)?)?,
            RecordKey::Aggregator { .. } => place(&mut self.state.aggregators, key, decode(key, value)?)?,
            RecordKey::Pod { .. } => self.push_pod(key, value)?,
            RecordKey::Workload { .. } => place(&mut self.state.workloads, key, decode(key, value)?)?,
            RecordKey::Addressing => self.push_addressing(key, value)?,
            RecordKey::Resting { .. } => place(&mut self.state.resting, key, decode(key, value)?)?,
            RecordKey::JoinToken { .. } => place(&mut self.state.join_tokens, key, decode(key, value)?)?,
            RecordKey::Credential { .. } => place(&mut self.state.credentials, key, decode(key, value)?)?,
        }
        self.others += 1;
        Ok(())
    }

    /// Without any record the result is a new state.
    pub fn finish(mut self) -> Result<State, RecordError> {
        if self.has_counters || self.others == 0 {
            self.derive();
            Ok(self.state)
        } else {
            Err(RecordError::NoCounters { others: self.others })
        }
    }

    /// Derives what follows from several tables together.
    fn derive(&mut self) {
        let State { derived, nodes, pods, workloads, addressing, resting, credentials, .. } = &mut self.state;
        credentials.iter().for_each(|credential| derived.claim(credential, nodes.contains(&credential.node)));
        for pod in pods.iter() {
            let node = pod.node().and_then(|name| nodes.get(name));
            derived.pods.enter(pod, node.map(Arc::as_ref));
        }
        workloads.iter().for_each(|workload| derived.note_workload(workload));
        let plan = addressing.as_deref();
        resting.iter().for_each(|resting| derived.addresses.rest(resting, None));
        derived.addresses.replan(plan);
    }

    fn push_pod(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        let mut pod: Pod = decode(key, value)?;
        pod.share_texts(&mut self.state.derived.interner);
        place(&mut self.state.pods, key, pod)
    }

    fn push_addressing(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        if self.state.addressing.is_some() {
            return Err(RecordError::Repeated { key: key.clone() });
        }
        self.state.addressing = Some(Arc::new(decode(key, value)?));
        Ok(())
    }

    fn push_counters(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        if self.has_counters {
            return Err(RecordError::Repeated { key: key.clone() });
        }
        self.state.counters = decode::<Counters>(key, value)?;
        self.has_counters = true;
        Ok(())
    }

    fn push_level(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        if !self.state.level.is_default() {
            return Err(RecordError::Repeated { key: key.clone() });
        }
        self.state.level = decode(key, value)?;
        Ok(())
    }

    fn push_policy_state(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        if !self.state.policy_state.is_default() {
            return Err(RecordError::Repeated { key: key.clone() });
        }
        self.state.policy_state = decode(key, value)?;
        Ok(())
    }

    fn push_node(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        let mut node: Node = decode(key, value)?;
        node.share_texts(&mut self.state.derived.interner);
        let name = node.meta.name.clone();
        place(&mut self.state.nodes, key, node)?;
        if let Some(node) = self.state.nodes.get(&name) {
            self.state.derived.enter(node);
            self.state.derived.addresses.enter(node, None);
        }
        Ok(())
    }

    fn push_event(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        let mut event: Event = decode(key, value)?;
        event.share_texts(&mut self.state.derived.interner);
        place(&mut self.state.events, key, event)
    }

    fn push_client(&mut self, key: &RecordKey, value: &[u8]) -> Result<(), RecordError> {
        let client: ClientRecord = decode(key, value)?;
        let (used, id) = (client.used, client.id);
        place(&mut self.state.clients, key, client)?;
        self.state.derived.recency.insert(used, id);
        Ok(())
    }
}

fn place<T: Stored>(table: &mut Table<T>, key: &RecordKey, row: T) -> Result<(), RecordError> {
    let holds = T::record_key(&row.key());
    if holds != *key {
        return Err(RecordError::Misplaced { key: key.clone(), holds });
    }
    match table.insert(Arc::new(row)) {
        None => Ok(()),
        Some(_) => Err(RecordError::Repeated { key: key.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::record::encode;
    use crate::object::slot::FreeSlot;

    fn free(index: u32) -> Vec<u8> {
        encode(&FreeSlot { index, next_generation: 2 })
    }

    #[test]
    fn no_records_make_a_new_state() {
        assert_eq!(StateBuilder::new().finish().unwrap().digest(), State::new().digest());
    }

    #[test]
    fn damaged_records_are_named() {
        let key = RecordKey::FreeSlot { index: 1 };
        let cases: [(&[u8], &str); 5] = [
            (&[], "record free-slot/1 is empty"),
            (&[9, 1, 2], "record free-slot/1 has version 9, this build reads up to version 1"),
            (&[1], "record free-slot/1 cannot be decoded"),
            (&[1, 1, 2, 3], "record free-slot/1 cannot be decoded (1 bytes too many)"),
            (&free(2), "record free-slot/1 holds free-slot/2"),
        ];
        for (value, message) in cases {
            let error = StateBuilder::new().push(&key, value).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_record_occurs_once_and_counters_are_required() {
        let mut builder = StateBuilder::new();
        let key = RecordKey::FreeSlot { index: 1 };
        builder.push(&key, &free(1)).unwrap();
        assert_eq!(builder.push(&key, &free(1)), Err(RecordError::Repeated { key }));
        assert_eq!(builder.finish().unwrap_err(), RecordError::NoCounters { others: 1 });

        let mut builder = StateBuilder::new();
        let counters = encode(&Counters::default());
        builder.push(&RecordKey::Counters, &counters).unwrap();
        let repeated = RecordError::Repeated { key: RecordKey::Counters };
        assert_eq!(builder.push(&RecordKey::Counters, &counters), Err(repeated));
    }
}
