//! Shared fleet: a cluster with a large fleet, for all scenarios that measure one. To register a million nodes takes
//! minutes and most of the memory, so scenarios that follow one another share it. It ends before anything else is
//! measured.

use anyhow::Result;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::FleetLoad;
use crate::measure::usage::{ResourceUsage, UsageMeter};

const NODES_SMALL: usize = 3_000;
const NODES_FULL: usize = 1_000_000;

/// The load comes first, so that it ends before the cluster does.
pub(crate) struct SharedFleet {
    pub(crate) load: FleetLoad,
    pub(crate) bed: TestBed,
    /// How the fleet was registered.
    pub(crate) steps: Vec<GrowthStep>,
    /// The size that was asked for.
    pub(crate) nodes: usize,
}

/// One step of registration, beside the nodes that existed already.
#[derive(Debug, Clone)]
pub(crate) struct GrowthStep {
    pub(crate) before: usize,
    pub(crate) nodes: usize,
    pub(crate) seconds: f64,
    /// Streams that carry the new nodes.
    pub(crate) streams: usize,
    /// Registrations that were refused and tried again.
    pub(crate) refused: usize,
    /// The usage during the step.
    pub(crate) usage: ResourceUsage,
}

// === impl SharedFleet ===

impl SharedFleet {
    /// Starts three replicas without nodes.
    async fn start(options: &BenchOptions) -> Result<Self> {
        let nodes = options.nodes(NODES_SMALL, NODES_FULL);
        let bed = TestBed::start(options, nodes, &GRACE.flags(options.scale)).await?;
        Ok(Self { load: FleetLoad::default(), bed, steps: Vec::new(), nodes })
    }

    /// The fleet of the scenario before, if all of it works, or else a new one in its place.
    pub(crate) async fn fit<'a>(place: &'a mut Option<Self>, options: &BenchOptions) -> Result<&'a mut Self> {
        let known = match place.take() {
            Some(known) => known.checked().await,
            None => None,
        };
        let fleet = match known {
            Some(known) => known,
            None => Self::start(options).await?,
        };
        Ok(place.insert(fleet))
    }

    /// A fleet that does not work is gone when this returns: there is no room for two.
    async fn checked(self) -> Option<Self> {
        match self.restore().await {
            Ok(()) => Some(self),
            Err(why) => {
                progress::print(format_args!(
                    "the fleet did not recover, so the next scenario gets a new one: {why:#}"
                ));
                None
            }
        }
    }

    /// Waits until all replicas are up and all nodes beat and are ready, whatever the last scenario left behind.
    async fn restore(&self) -> Result<()> {
        self.bed.wait_replicas_up().await?;
        self.load.speak_all().await?;
        self.bed.wait_ready(self.load.nodes).await
    }

    /// The whole fleet; registers the nodes that are missing.
    pub(crate) async fn whole(&mut self) -> Result<(&TestBed, &FleetLoad)> {
        self.grow(self.nodes).await?;
        Ok((&self.bed, &self.load))
    }

    /// Registers nodes until there are so many, while the others go on beating.
    pub(crate) async fn grow(&mut self, nodes: usize) -> Result<()> {
        let (before, streams, refused) = (self.load.nodes, self.load.streams(), self.load.refused());
        if before >= nodes {
            return Ok(());
        }
        let meter = UsageMeter::start(&self.bed.processes()?);
        let registered = self.bed.grow(&mut self.load, nodes).await?;
        self.steps.push(GrowthStep {
            before,
            nodes: registered.nodes,
            seconds: registered.seconds,
            streams: self.load.streams() - streams,
            refused: self.load.refused() - refused,
            usage: meter.stop(),
        });
        Ok(())
    }
}

// === impl GrowthStep ===

impl GrowthStep {
    /// How many nodes there were after the step.
    pub(crate) fn after(&self) -> usize {
        self.before + self.nodes
    }

    /// Processor time of all replicas per node that was registered.
    pub(crate) fn cpu_us_per_node(&self) -> f64 {
        self.usage.server_cpu_seconds() * 1e6 / self.nodes as f64
    }
}
