//! Explanation of one pod: where it is and why, what it waits for, and when it has to leave.

use crate::explain::wording::{between, length};
use crate::explain::{ExplainedTime, Fact, PodExplanation, Prospect, Summary, in_order};
use crate::judge::oversight;
use crate::object::kind::WorkloadKind;
use crate::object::node::{ConditionStatus, Node};
use crate::object::pod::{DISRUPTION_TARGET, POD_SCHEDULED, Pod, PodKey};
use crate::object::toleration::{self, Patience};
use crate::object::zone::ZoneKey;
use crate::rule::condition_taint::{self, NoExecuteAction};
use crate::rule::garbage;
use crate::rule::taint_eviction;
use crate::state::State;
use crate::value::time::Period;
use crate::value::time::Stamp;

struct View<'a> {
    state: &'a State,
    pod: &'a Pod,
    node: Option<&'a Node>,
    now: Stamp,
}

/// `None` if there is no such pod.
pub fn pod(state: &State, key: &PodKey, now: Stamp) -> Option<PodExplanation> {
    let pod = state.pods().get(key)?;
    let node = state.node_of(pod).map(AsRef::as_ref);
    let view = View { state, pod, node, now };
    let prospects = view.prospects();
    Some(PodExplanation {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        node: pod.node().map(ToString::to_string),
        now: ExplainedTime::from(now),
        headline: view.headline(),
        facts: view.facts(),
        outlook: prospects.first().cloned(),
        forecast: in_order(prospects),
    })
}

// === what is ===

impl View<'_> {
    fn headline(&self) -> Summary {
        let (text, since) = match (self.pod.meta.deleted, &self.pod.spec.binding) {
            (Some(deleted), _) => ("terminating".to_owned(), Some(deleted)),
            (None, None) => ("waiting for a node".to_owned(), Some(self.pod.meta.created)),
            (None, Some(binding)) => {
                let phase = self.pod.status.phase.as_str().to_lowercase();
                let ready = if self.pod.is_ready() { " and ready" } else { "" };
                (format!("{phase}{ready} on node {}", binding.node), Some(binding.at))
            }
        };
        Summary { text, since: since.map(ExplainedTime::from), aside: self.whose() }
    }

    fn whose(&self) -> Option<String> {
        let owner = self.pod.controller()?;
        Some(format!("of {} {}", owner.kind, owner.name))
    }

    fn facts(&self) -> Vec<Fact> {
        let status = &self.pod.status;
        let placed = status.condition(POD_SCHEDULED).filter(|placed| placed.status == ConditionStatus::False);
        let disrupted = status.condition(DISRUPTION_TARGET);
        let said = |reason: &str, message: &str| match message {
            "" => reason.to_owned(),
            message => format!("{reason}: {message}"),
        };
        [Fact::new("phase", self.phase())]
            .into_iter()
            .chain(placed.map(|placed| {
                let at = placed.last_transition.map(ExplainedTime::from);
                Fact::new("placement", said(&placed.reason, &placed.message)).when(at)
            }))
            .chain(self.node_fact())
            .chain(self.taint_facts())
            .chain(disrupted.map(|disrupted| {
                let at = disrupted.last_transition.map(ExplainedTime::from);
                Fact::new("disruption", said(&disrupted.reason, &disrupted.message)).by("TE-8").when(at)
            }))
            .chain(self.deletion_fact())
            .chain(self.replacement_fact())
            .collect()
    }

    fn phase(&self) -> String {
        let ready = if self.pod.is_ready() { "ready" } else { "not ready" };
        let reason = Some(&self.pod.status.reason).filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(", {reason}")).unwrap_or_default();
        format!("{}, {ready}{reason}", self.pod.status.phase)
    }

    fn node_fact(&self) -> Option<Fact> {
        let binding = self.pod.spec.binding.as_ref()?;
        let text = match self.node {
            None => format!("{} is gone", binding.node),
            Some(node) => {
                let ready = node.status.ready().map(|ready| ready.status);
                let ready = ready.map_or("never ready".to_owned(), |ready| format!("Ready is {ready}"));
                format!("{}: {ready}", binding.node)
            }
        };
        Some(Fact::new("node", text).when(Some(ExplainedTime::from(binding.at))))
    }

    /// How long the pod tolerates each of its node's NoExecute taints.
    fn taint_facts(&self) -> Vec<Fact> {
        let taints = self.node.into_iter().flat_map(|node| taint_eviction::no_execute(&node.spec.taints));
        let fact = |taint: &crate::object::taint::Taint| {
            let patience = match toleration::patience(&self.pod.spec.tolerations, taint) {
                Patience::None => "it does not tolerate it".to_owned(),
                Patience::Endless => "it tolerates it for ever".to_owned(),
                Patience::For(period) => format!("it tolerates it for {}", length(period.0)),
            };
            Fact::new("taint", format!("{taint}: {patience}")).by("TE-5").when(taint.added.map(ExplainedTime::from))
        };
        taints.map(fact).collect()
    }

    fn deletion_fact(&self) -> Option<Fact> {
        let (deleted, ending) = (self.pod.meta.deleted?, self.pod.ending?);
        let absent = if ending.in_absence { ", while its node was unreachable" } else { "" };
        let text = format!("it was given {}s to stop{absent}", ending.grace);
        Some(Fact::new("deletion", text).when(Some(ExplainedTime::from(deleted))))
    }

    /// What the workload does when the pod goes.
    fn replacement_fact(&self) -> Option<Fact> {
        let owner = self.pod.controller().filter(|_| self.pod.is_terminating())?;
        let text = match owner.kind.parse::<WorkloadKind>().ok()? {
            WorkloadKind::ReplicaSet => "the replacement pod starts at once under a new name",
            WorkloadKind::StatefulSet => "the replacement starts once the name is free",
            WorkloadKind::DaemonSet => "the replacement starts once this pod has left the node",
        };
        Some(Fact::new("replacement", text))
    }
}

// === what will be ===

impl View<'_> {
    fn prospects(&self) -> Vec<Prospect> {
        if self.pod.is_terminating() {
            return vec![self.end()];
        }
        self.departure().or_else(|| self.departure_after_taint()).into_iter().collect()
    }

    /// When the pod leaves if its node, which waits for the taint, gets it.
    fn departure_after_taint(&self) -> Option<Prospect> {
        let node = self.node.filter(|_| self.pod.is_active())?;
        let NoExecuteAction::Enqueue(absence) =
            condition_taint::no_execute_action(&node.status.conditions, &node.spec.taints)
        else {
            return None;
        };
        let zone = ZoneKey::from_labels(&node.meta.labels);
        let (taint, name) = (absence.taint(self.now), &node.meta.name);
        let position = self.state.queue(&zone)?.position(name)?;
        let place = format!("{name} waits for {} at position {} of its zone", taint, position + 1);
        let patience = match toleration::patience(&self.pod.spec.tolerations, &taint) {
            Patience::None => Period(0),
            Patience::For(period) => period,
            Patience::Endless => return Some(Prospect::never(format!("{place}; it tolerates that for ever"), "TE-5")),
        };
        Some(match oversight::turn_at(self.state, &zone, position, self.now.cluster) {
            Some(turn) => {
                let text = format!("{place}; it is evicted {} after that,", length(patience.0));
                Prospect::about(patience.after(turn), self.now, text, "TE-13")
            }
            None => Prospect::never(format!("{place}, which evicts no node now"), "Z-5"),
        })
    }

    fn departure(&self) -> Option<Prospect> {
        let node = self.node.filter(|_| self.pod.is_active())?;
        let (taint, at) = taint_eviction::cause(self.pod, &node.spec.taints)?;
        let overdue = (at <= self.now.cluster).then(|| format!(" (due {} ago)", between(at, self.now.cluster)));
        let text = format!("it is evicted because of {taint}{}", overdue.unwrap_or_default());
        Some(Prospect::at(at.max(self.now.cluster), self.now, text, "TE-8"))
    }

    fn end(&self) -> Prospect {
        let named = self.pod.node().and_then(|name| self.state.node(name)).map(AsRef::as_ref);
        match self.node.or(named) {
            Some(node) if self.node.is_none() && !garbage::is_out_of_service(node) => Prospect::never(
                "it ran in a former life of its node: it goes as soon as the node's agent says that it has stopped, or \
                 the Node is deleted",
                "GC-3",
            ),
            None => {
                let until = garbage::orphaned_until(self.pod, self.pod.meta.deleted.unwrap_or(self.now));
                Prospect::at(until, self.now, "its node is gone: it is deleted", "GC-3")
            }
            Some(node) if garbage::is_out_of_service(node) => {
                Prospect::at(self.now.cluster, self.now, "its node is out of service: it is deleted", "GC-2")
            }
            Some(node) if node.is_ready() => {
                Prospect::never("it goes as soon as its node says that it has stopped", "TE-8")
            }
            Some(_) => Prospect::never(
                "it stays until its node is back and says that it has stopped, the Node is deleted, or the node is tainted \
                 node.kubernetes.io/out-of-service",
                "TE-13",
            ),
        }
    }
}
