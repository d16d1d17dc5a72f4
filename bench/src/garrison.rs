//! A cluster and the large fleet that stands on it, for all scenarios that measure one. To register a million nodes takes
//! minutes and most of the memory, so scenarios that follow one another share a garrison; and it is gone before anything
//! else is measured.

use anyhow::Result;

use crate::load::fleet::Load;
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::usage::{Meter, Usage};

const NODES_SMALL: usize = 3_000;
const NODES_FULL: usize = 1_000_000;

/// The load ends before the cluster does.
pub struct Garrison {
    pub load: Load,
    pub stage: Stage,
    /// How the fleet came to be.
    pub steps: Vec<Step>,
    /// As many as there are to be in the end.
    pub nodes: usize,
}

/// Nodes that were registered one after the other, beside those that were there already.
#[derive(Debug, Clone)]
pub struct Step {
    pub before: usize,
    pub nodes: usize,
    pub seconds: f64,
    /// Streams that carry the new ones.
    pub streams: usize,
    /// Refused, and tried again.
    pub refused: usize,
    /// Meanwhile.
    pub usage: Usage,
}

// === impl Garrison ===

impl Garrison {
    /// Three replicas and nobody yet.
    async fn begin(setting: &Setting) -> Result<Self> {
        let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
        let nodes = setting.nodes(NODES_SMALL, NODES_FULL);
        Ok(Self { load: Load::default(), stage, steps: Vec::new(), nodes })
    }

    /// The one that is there, as long as it is as good as new, or else another in its place.
    pub async fn fit<'a>(place: &'a mut Option<Self>, setting: &Setting) -> Result<&'a mut Self> {
        let known = match place.take() {
            Some(known) => known.checked().await,
            None => None,
        };
        let garrison = match known {
            Some(known) => known,
            None => Self::begin(setting).await?,
        };
        Ok(place.insert(garrison))
    }

    /// One that is not fit is gone when this returns: there is no room for two.
    async fn checked(self) -> Option<Self> {
        match self.mend().await {
            Ok(()) => Some(self),
            Err(why) => {
                progress::say(format_args!("the fleet is of no further use, the next gets another one: {why:#}"));
                None
            }
        }
    }

    /// Whatever the last scenario left behind: all replicas are up, everybody beats and is ready.
    async fn mend(&self) -> Result<()> {
        self.stage.complete().await?;
        self.load.speak_all().await?;
        self.stage.ready(self.load.nodes).await
    }

    /// The whole fleet, registered as far as it was not.
    pub async fn whole(&mut self) -> Result<(&Stage, &Load)> {
        self.grow(self.nodes).await?;
        Ok((&self.stage, &self.load))
    }

    /// Until there are so many nodes; those that there are go on beating.
    pub async fn grow(&mut self, nodes: usize) -> Result<()> {
        let (before, streams, refused) = (self.load.nodes, self.load.streams(), self.load.refused());
        if before >= nodes {
            return Ok(());
        }
        let meter = Meter::start(&self.stage.processes()?);
        let registered = self.stage.grow(&mut self.load, nodes).await?;
        self.steps.push(Step {
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

// === impl Step ===

impl Step {
    /// How many there were after it.
    pub fn after(&self) -> usize {
        self.before + self.nodes
    }

    /// Processor time of all replicas per node that was registered.
    pub fn cpu_us_per_node(&self) -> f64 {
        self.usage.server_cpu_seconds() * 1e6 / self.nodes as f64
    }
}
