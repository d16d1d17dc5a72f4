//! Addresses of nodes that come and go: given to a new node, refused to a second one, rested when a node gives them
//! back.

use std::sync::Arc;

use ipnet::IpNet;

use crate::apply::Application;
use crate::object::addressing::{Addressing, Resting};
use crate::object::event::NodeHappening;
use crate::object::node::Node;
use crate::rejection::Rejection;
use crate::store::address_index::Obstacle;
use crate::value::invalid::Invalid;
use crate::value::time::Period;
use crate::value::violation::AddressViolation;

/// How many rested blocks one allocation wakes at most.
const WOKEN_MAX: usize = 64;

impl Application<'_> {
    /// IP-7: a new node that brings no addresses gets them in the entry that makes it.
    pub(crate) fn address_new(&mut self, node: &mut Node) {
        if self.state.addressing.is_some() && node.spec.pod_cidrs.is_empty() {
            node.spec.pod_cidrs = self.allocate().unwrap_or_default();
        }
    }

    pub(crate) fn note_unaddressed(&mut self, node: &Node) {
        if node.spec.pod_cidrs.is_empty()
            && let Some(shortage) = self.state.address_shortage()
        {
            self.note(node, NodeHappening::Unaddressed { shortage: Box::new(shortage) });
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
                return Err(Invalid::new(format!("spec.podCIDRs[{index}]"), self.violation(*cidr, obstacle)).into());
            }
        }
        Ok(())
    }

    fn violation(&self, cidr: IpNet, obstacle: Obstacle) -> AddressViolation {
        match obstacle {
            Obstacle::Node(node) => AddressViolation::HeldByNode { cidr, node },
            Obstacle::Reserved(range) => AddressViolation::Reserved { cidr, range },
            Obstacle::RestsUntil(until) => {
                let left = Period(until.0.saturating_sub(self.now.cluster.0));
                AddressViolation::Resting { cidr, left }
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
    pub(crate) fn allocate(&mut self) -> Option<Box<[IpNet]>> {
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
}
