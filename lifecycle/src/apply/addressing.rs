//! Commands about nodes' addresses, and what becomes of addresses when a node comes or goes.

use std::sync::Arc;

use ipnet::IpNet;

use crate::apply::{Application, ApplyResult};
use crate::command::LIFTS_MAX;
use crate::command::{Origin, ReceiptEffect};
use crate::object::addressing::{Addressing, Resting};
use crate::object::node::Node;
use crate::object::record::RecordKey;
use crate::rejection::Rejection;
use crate::store::address_index::{Obstacle, wants};
use crate::value::invalid::Invalid;
use crate::value::text::Text;

const CIDR_NOT_AVAILABLE: &str = "CIDRNotAvailable";

/// How many rested blocks one allocation wakes at most.
const WOKEN_MAX: usize = 64;

// === the leader ===

impl Application<'_> {
    /// Once there is a plan, it stays: the nodes' addresses come from it.
    pub(crate) fn found_addressing(&mut self, plan: &Addressing) -> ApplyResult {
        if self.state.addressing.is_some() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        plan.check()?;
        self.put_addressing(Addressing { held_until: None, ..plan.clone() });
        self.state.derived.addresses.replan(Some(plan));
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// IP-7 for nodes that came before there was a plan, or when no block was free.
    pub(crate) fn assign_cidrs(&mut self, origin: &Origin, names: &[Text]) -> ApplyResult {
        if self.state.addressing.is_none() {
            return Err(Rejection::NoAddressing);
        }
        if names.len() > LIFTS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("nodes in one entry"), limit: LIFTS_MAX as u64 });
        }
        let mut assigned = 0;
        for name in names {
            let Some(before) = self.state.nodes.get(name).filter(|node| wants(node)).cloned() else { continue };
            let Some(cidrs) = self.allocate() else { break };
            let mut after = before.as_ref().clone();
            after.spec.pod_cidrs = cidrs;
            if self.commit(origin, &before, after).is_ok() {
                assigned += 1;
            }
        }
        Ok(self.receipt(if assigned > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }
}

// === nodes that come and go ===

impl Application<'_> {
    /// IP-7: a new node that brings no addresses gets them in the entry that makes it.
    pub(crate) fn address_new(&mut self, node: &mut Node) {
        if self.state.addressing.is_some() && node.spec.pod_cidrs.is_empty() {
            node.spec.pod_cidrs = self.allocate().unwrap_or_default();
        }
    }

    pub(crate) fn note_unaddressed(&mut self, node: &Node) {
        if self.state.addressing.is_some() && node.spec.pod_cidrs.is_empty() {
            let message =
                format!("node {} got no addresses for pods: {}", node.meta.name, self.state.address_shortage());
            self.note(node, CIDR_NOT_AVAILABLE, message);
        }
    }

    /// IP-11: upstream lets two nodes have the same addresses. Here no node gets what another node has.
    pub(crate) fn require_uncontested(&self, before: Option<&Node>, after: &Node) -> Result<(), Rejection> {
        if before.is_some_and(|before| before.spec.pod_cidrs == after.spec.pod_cidrs) {
            return Ok(());
        }
        let plan = self.state.addressing.as_deref();
        for (index, cidr) in after.spec.pod_cidrs.iter().enumerate() {
            let obstacle = self.state.addresses().obstacle(cidr, &after.meta.name, plan, self.now.cluster);
            if let Some(obstacle) = obstacle {
                let rule = format!("\"{cidr}\" {}", self.in_words(&obstacle));
                return Err(Invalid::new(format!("spec.podCIDRs[{index}]"), rule).into());
            }
        }
        Ok(())
    }

    fn in_words(&self, obstacle: &Obstacle) -> String {
        match obstacle {
            Obstacle::Node(name) => format!("overlaps what node {name:?} has"),
            Obstacle::Reserved(range) => format!("overlaps the service range {range}"),
            Obstacle::RestsUntil(until) => {
                let left = crate::value::time::Period(until.0.saturating_sub(self.now.cluster.0));
                format!("was freed a moment ago and rests for another {left}: the node that had it may still use it")
            }
        }
    }

    /// IP-10, I-07: a block that a node gives back rests before another node gets it.
    pub(crate) fn rest_addresses(&mut self, node: &Node) {
        let Some(plan) = self.state.addressing.clone() else { return };
        for cidr in node.spec.pod_cidrs.iter().map(IpNet::trunc) {
            let until = plan.quarantine.after(self.now.cluster);
            let resting = Resting { cidr, until, node: node.meta.name.clone() };
            self.state.derived.addresses.rest(&resting, Some(&plan));
            self.touch::<Resting>(&cidr);
            self.state.resting.insert(Arc::new(resting));
        }
    }

    /// One block per family, or none at all (IP-9: upstream leaks the first when there is no second).
    fn allocate(&mut self) -> Option<Box<[IpNet]>> {
        self.wake_rested();
        let plan = self.state.addressing.clone()?;
        if plan.held_until.is_some_and(|until| self.now.cluster < until) {
            return None;
        }
        let free = &self.state.addresses().free;
        let numbers = plan.pools.iter().zip(free).map(|(pool, free)| free.next_from(pool.cursor));
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let blocks = plan.pools.iter().zip(&numbers).map(|(pool, number)| pool.grid.block(*number));
        let blocks: Box<[IpNet]> = blocks.collect::<Option<_>>()?;
        let mut next = plan.as_ref().clone();
        next.held_until = None;
        next.pools.iter_mut().zip(&numbers).for_each(|(pool, number)| pool.cursor = (number + 1) % pool.grid.blocks());
        self.put_addressing(next);
        Some(blocks)
    }

    fn wake_rested(&mut self) {
        let Some(plan) = self.state.addressing.clone() else { return };
        let now = self.now.cluster;
        let due = self.state.addresses().waking.iter().take_while(|(until, _)| *until <= now);
        let due: Vec<IpNet> = due.take(WOKEN_MAX).map(|(_, cidr)| *cidr).collect();
        due.iter().for_each(|cidr| self.wake(cidr, &plan));
    }

    /// Ends the rest of every block that the node takes. No trace of it may be left when the block is given back.
    pub(crate) fn wake_under(&mut self, node: &Node) {
        let Some(plan) = self.state.addressing.clone() else { return };
        for cidr in &node.spec.pod_cidrs {
            self.state.addresses().resting_in(cidr).iter().for_each(|resting| self.wake(resting, &plan));
        }
    }

    fn wake(&mut self, cidr: &IpNet, plan: &Addressing) {
        if let Some(resting) = self.state.resting.remove(cidr) {
            self.state.derived.addresses.wake(&resting, Some(plan));
            self.touch::<Resting>(cidr);
        }
    }

    fn put_addressing(&mut self, plan: Addressing) {
        self.state.addressing = Some(Arc::new(plan));
        self.touch_key(RecordKey::Addressing);
    }
}
