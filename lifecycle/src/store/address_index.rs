//! Address index: which node holds which addresses, which blocks are free, and which nodes have none. Rebuilt from
//! the tables, never stored.

use imbl::{OrdMap, OrdSet, Vector};
use ipnet::IpNet;

use crate::object::addressing::{Addressing, Resting};
use crate::object::node::Node;
use crate::value::cidr::{FreeBlocks, Span};
use crate::value::text::Text;
use crate::value::time::ClusterTime;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AddressIndex {
    /// No two spans overlap, so they are sorted by their ends too.
    held: OrdMap<Span, Text>,
    /// Disjoint as well: a node that takes a rested block wakes it first.
    resting: OrdMap<Span, (ClusterTime, IpNet)>,
    /// The resting blocks, by the end of their rest.
    pub(crate) waking: OrdSet<(ClusterTime, IpNet)>,
    /// Per pool.
    pub(crate) free: Vector<FreeBlocks>,
    /// Nodes without a block.
    pub(crate) wanting: OrdSet<Text>,
}

/// The holder of a range, or its rest, that keeps a node from taking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Node(Text),
    RestsUntil(ClusterTime),
    Reserved(IpNet),
}

impl AddressIndex {
    pub(crate) fn enter(&mut self, node: &Node, plan: Option<&Addressing>) {
        for cidr in &node.spec.pod_cidrs {
            self.held.insert(Span::of(cidr), node.meta.name.clone());
            self.occupy(cidr, plan);
        }
        if wants(node) {
            self.wanting.insert(node.meta.name.clone());
        }
    }

    pub(crate) fn leave(&mut self, node: &Node, plan: Option<&Addressing>) {
        for cidr in &node.spec.pod_cidrs {
            self.held.remove(&Span::of(cidr));
            self.vacate(cidr, plan);
        }
        self.wanting.remove(&node.meta.name);
    }

    pub(crate) fn rest(&mut self, resting: &Resting, plan: Option<&Addressing>) {
        self.resting.insert(Span::of(&resting.cidr), (resting.until, resting.cidr));
        self.waking.insert((resting.until, resting.cidr));
        self.occupy(&resting.cidr, plan);
    }

    pub(crate) fn wake(&mut self, resting: &Resting, plan: Option<&Addressing>) {
        self.resting.remove(&Span::of(&resting.cidr));
        self.waking.remove(&(resting.until, resting.cidr));
        self.vacate(&resting.cidr, plan);
    }

    /// Counts the free blocks anew, for another plan or after the tables were read.
    pub(crate) fn replan(&mut self, plan: Option<&Addressing>) {
        let Some(plan) = plan else {
            self.free = Vector::new();
            return;
        };
        self.free = plan.pools.iter().map(|pool| FreeBlocks::all_below(pool.grid.blocks())).collect();
        let spans: Vec<Span> = self.held.keys().chain(self.resting.keys()).copied().collect();
        for (index, pool) in plan.pools.iter().enumerate() {
            let reserved = plan.reserved.iter().filter_map(|range| pool.grid.touched_by(range));
            let taken = spans.iter().filter_map(|span| pool.grid.touched_by_span(span));
            reserved.chain(taken).for_each(|(start, end)| self.free[index].occupy(start, end));
        }
    }

    /// What keeps that node from taking this range. A block that has rested does not, even if it was not woken yet.
    pub(crate) fn obstacle(
        &self,
        cidr: &IpNet,
        node: &str,
        plan: Option<&Addressing>,
        now: ClusterTime,
    ) -> Option<Obstacle> {
        let span = Span::of(cidr);
        if let Some((_, holder)) = overlapping(&self.held, &span).into_iter().find(|(_, holder)| **holder != *node) {
            return Some(Obstacle::Node(holder.clone()));
        }
        let reserved = plan.into_iter().flat_map(|plan| &plan.reserved).find(|range| Span::of(range).overlaps(&span));
        if let Some(reserved) = reserved {
            return Some(Obstacle::Reserved(*reserved));
        }
        let resting = overlapping(&self.resting, &span).into_iter().map(|(_, (until, _))| *until);
        resting.filter(|until| *until > now).max().map(Obstacle::RestsUntil)
    }

    /// The blocks within this range that rest, or have rested.
    pub(crate) fn resting_in(&self, cidr: &IpNet) -> Vec<IpNet> {
        overlapping(&self.resting, &Span::of(cidr)).into_iter().map(|(_, (_, cidr))| *cidr).collect()
    }

    /// Whether two nodes hold the same address.
    pub(crate) fn is_contested(&self, node: &Node) -> bool {
        let others = |cidr: &IpNet| overlapping(&self.held, &Span::of(cidr)).len() > 1;
        node.spec.pod_cidrs.iter().any(others)
    }

    fn occupy(&mut self, cidr: &IpNet, plan: Option<&Addressing>) {
        for (index, pool) in plan.into_iter().flat_map(|plan| plan.pools.iter().enumerate()) {
            if let Some((start, end)) = pool.grid.touched_by(cidr) {
                self.free[index].occupy(start, end);
            }
        }
    }

    /// Parts of the same blocks that another node still has stay taken.
    fn vacate(&mut self, cidr: &IpNet, plan: Option<&Addressing>) {
        for (index, pool) in plan.into_iter().flat_map(|plan| plan.pools.iter().enumerate()) {
            let Some((start, end)) = pool.grid.touched_by(cidr) else { continue };
            self.free[index].release(start, end);
            let blocks = pool.grid.span(start, end);
            let held: Vec<Span> = overlapping(&self.held, &blocks).into_iter().map(|(span, _)| *span).collect();
            let resting: Vec<Span> = overlapping(&self.resting, &blocks).into_iter().map(|(span, _)| *span).collect();
            let reserved = plan.into_iter().flat_map(|plan| &plan.reserved).map(Span::of);
            for span in held.into_iter().chain(resting).chain(reserved) {
                if let Some((start, end)) = pool.grid.touched_by_span(&span) {
                    self.free[index].occupy(start, end);
                }
            }
        }
    }
}

/// IP-7: a node without addresses gets some, unless it is being deleted.
pub(crate) fn wants(node: &Node) -> bool {
    node.spec.pod_cidrs.is_empty() && node.meta.deleted.is_none()
}

/// Entries of a map of disjoint spans that overlap this one.
fn overlapping<'a, V: Clone>(spans: &'a OrdMap<Span, V>, span: &Span) -> Vec<(&'a Span, &'a V)> {
    let from = Span { last: 0, ..*span };
    let before = spans.range(..from).next_back().filter(|(known, _)| known.overlaps(span));
    let within = spans.range(from..).take_while(|(known, _)| known.is_v6 == span.is_v6 && known.first <= span.last);
    before.into_iter().chain(within).collect()
}
