//! Explanation of one node: what it says, what was heard of it, what it carries, and what comes next.

use crate::explain::wording::{heard_ago, heard_before, length, zone_name};
use crate::explain::{
    ExplainedTime, Fact, NodeExplanation, NodeObservation, Prospect, Summary, in_order, reprieve, shown_excuses, zone,
};
use crate::judge::health::{Evidence, Verdict};
use crate::judge::oversight;
use crate::object::node::{Condition, ConditionStatus, Node};
use crate::object::taint::{Effect, Taint};
use crate::object::zone::{EXCLUDE_DISRUPTION_LABEL, ZoneKey};
use crate::rule::condition_taint::{self, Cause, NoExecuteAction};
use crate::state::State;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp};

/// How much of a node's own words is quoted.
const QUOTED_MAX: usize = 256;

struct View<'a> {
    state: &'a State,
    node: &'a Node,
    hearing: &'a NodeObservation,
    zone: ZoneKey,
    evidence: Evidence<'a>,
    verdict: Verdict,
    now: Stamp,
}

/// `None` if there is no such node.
pub fn node(state: &State, name: &str, hearing: &NodeObservation) -> Option<NodeExplanation> {
    let node = state.node(name)?;
    let now = hearing.now;
    let heard = hearing.heard.map(|sighting| sighting.at);
    let evidence = oversight::evidence(state, node, heard, hearing.excuse, now);
    let verdict = evidence.verdict(state.policy());
    let zone = ZoneKey::from_labels(&node.meta.labels);
    let view = View { state, node, hearing, zone, evidence, verdict, now };
    let prospects = view.prospects();
    Some(NodeExplanation {
        name: node.meta.name.to_string(),
        zone: view.zone.to_string(),
        now: ExplainedTime::from(now),
        headline: view.headline(),
        facts: view.facts(),
        excuses: reprieve(state.policy_state(), now).into_iter().chain(shown_excuses(&hearing.excuses, now)).collect(),
        outlook: prospects.first().cloned(),
        forecast: in_order(prospects),
    })
}

// === what is ===

impl View<'_> {
    fn ready(&self) -> Option<&Condition> {
        self.node.status.ready()
    }

    fn headline(&self) -> Summary {
        let (heard, now) = (self.hearing.heard, self.now.cluster);
        let turned = self.ready().and_then(|ready| ready.last_transition);
        let (text, aside) = match self.ready().map(|ready| ready.status) {
            None => ("never ready", heard_ago(heard, now)),
            Some(ConditionStatus::True) => (self.readiness(), heard_ago(heard, now)),
            Some(ConditionStatus::False) => ("not ready", heard_ago(heard, now)),
            Some(ConditionStatus::Unknown) => {
                ("unreachable", heard_before(heard, turned.map_or(now, |turned| turned.cluster), now))
            }
        };
        let cordoned = if self.node.spec.unschedulable { "cordoned; " } else { "" };
        let since = if self.ready().is_some() { turned } else { Some(self.node.meta.created) };
        let aside = Some(format!("{cordoned}{aside}"));
        Summary { text: text.to_owned(), since: since.map(ExplainedTime::from), aside }
    }

    fn readiness(&self) -> &'static str {
        match self.verdict {
            Verdict::Alive => "ready",
            Verdict::WaitUntil(_) => "silent, but ready by its own word",
            Verdict::Silent(_) => "silent for too long, but ready by its own word",
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let heard = self.hearing.heard.map(|sighting| ExplainedTime::of(sighting.at, self.now));
        let note = self.hearing.note.as_ref();
        let deleted = self.node.meta.deleted;
        [self.readiness_fact(), Fact::new("heard", self.heard_fact()).by("NH-5").when(heard), self.grace_fact()]
            .into_iter()
            .chain(self.no_schedule_facts())
            .chain(self.no_execute_fact())
            .chain(self.exclusion_fact())
            .chain(self.pods_fact())
            .chain(self.addresses_fact())
            .chain(zone::state_and_rate(self.state, &self.zone, self.now))
            .chain(note.map(|note| Fact::new("quarantine", format!("no actor watches it: {note}"))))
            .chain(deleted.map(|at| {
                Fact::new("deletion", "it is deleted as soon as its finalizers are gone")
                    .when(Some(ExplainedTime::from(at)))
            }))
            .collect()
    }

    /// How many pods the node has, and what becomes of them.
    fn pods_fact(&self) -> Option<Fact> {
        let tenants = self.state.tenants(&self.node.meta.name)?;
        let leaving = tenants.keys().filter(|key| self.state.leaves_at(key).is_some()).count();
        let pods = tenants.keys().filter_map(|key| self.state.pods().get(key));
        let terminating = pods.filter(|pod| pod.is_terminating()).count();
        let parts = [(leaving, "have to leave"), (terminating, "are not confirmed stopped")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let text = std::iter::once(format!("{} are bound to it", tenants.len())).chain(parts);
        Some(Fact::new("pods", text.collect::<Vec<_>>().join(", ")).by("TE-3"))
    }

    fn addresses_fact(&self) -> Option<Fact> {
        let shortage = self.state.address_shortage().filter(|_| self.node.spec.pod_cidrs.is_empty())?;
        let text = format!("it has none for pods: {shortage}");
        Some(Fact::new("addresses", text).by("IP-8"))
    }

    fn readiness_fact(&self) -> Fact {
        let Some(ready) = self.ready() else { return Fact::new("ready", "it has no Ready condition yet").by("NH-2") };
        let said = [&ready.reason, &ready.message].into_iter().filter(|text| !text.is_empty());
        let said: Vec<String> = said.map(|text| Text::clipped(text, QUOTED_MAX).to_string()).collect();
        let rule = match ready.status {
            ConditionStatus::True => "NH-11",
            ConditionStatus::False => "NE-1",
            ConditionStatus::Unknown => "NH-8",
        };
        let text = std::iter::once(ready.status.to_string()).chain(said).collect::<Vec<_>>().join(", ");
        Fact::new("ready", text).by(rule).when(ready.last_transition.map(ExplainedTime::from))
    }

    fn heard_fact(&self) -> String {
        match self.hearing.heard {
            Some(sighting) => format!("by replica {}", sighting.through),
            None => "no replica remembers having heard it".to_owned(),
        }
    }

    fn grace_fact(&self) -> Fact {
        let grace = length(self.evidence.grace(self.state.policy()).0);
        match self.ready() {
            Some(_) => Fact::new("grace", format!("{grace} without a sign of life")).by("NH-3"),
            None => Fact::new("grace", format!("{grace} to start, because it has never been ready")).by("NH-2"),
        }
    }

    fn no_schedule_facts(&self) -> Vec<Fact> {
        let causes = condition_taint::wanted_no_schedule(&self.node.status.conditions, self.node.spec.unschedulable);
        let shown = |(key, cause): (&'static str, Cause)| {
            let is_it = |taint: &&Taint| taint.effect == Effect::NoSchedule && taint.key == key;
            let added = self.node.spec.taints.iter().find(is_it).and_then(|taint| taint.added);
            let text = format!("{key}, because {}", self.because(cause));
            Fact::new("no-schedule taint", text).by("TC-1").when(added.map(ExplainedTime::from))
        };
        causes.into_iter().map(shown).collect()
    }

    fn because(&self, cause: Cause) -> String {
        match cause {
            Cause::Condition(kind) => match self.node.status.condition(kind) {
                Some(condition) => format!("{kind} is {}", condition.status),
                None => format!("{kind} is absent"),
            },
            Cause::NeverReady => "it has never been ready".to_owned(),
            Cause::Cordon => "it is cordoned".to_owned(),
        }
    }

    fn no_execute_fact(&self) -> Option<Fact> {
        let absence = condition_taint::present_absences(&self.node.spec.taints).into_iter().next()?;
        let taint = self.node.spec.taints.iter().find(|taint| absence.selector().matches(taint))?;
        let text = format!("{}: its pods' tolerations count from here", absence.key());
        Some(Fact::new("no-execute taint", text).by("NE-7").when(taint.added.map(ExplainedTime::from)))
    }

    fn exclusion_fact(&self) -> Option<Fact> {
        let text = format!("it has the label {EXCLUDE_DISRUPTION_LABEL}: its zone is judged without it");
        let is_excluded = self.node.meta.labels.contains_key(EXCLUDE_DISRUPTION_LABEL);
        is_excluded.then(|| Fact::new("disruption", text).by("Z-4"))
    }
}

// === what comes ===

impl View<'_> {
    /// The prospect that matters most comes first.
    fn prospects(&self) -> Vec<Prospect> {
        let action = condition_taint::no_execute_action(&self.node.status.conditions, &self.node.spec.taints);
        let waits = matches!(action, NoExecuteAction::Enqueue(_));
        let assessment = waits.then(|| zone::assessment(self.state, &self.zone, self.now)).flatten();
        self.eviction(&action).into_iter().chain(self.silence()).chain(assessment).collect()
    }

    fn eviction(&self, action: &NoExecuteAction) -> Option<Prospect> {
        match action {
            NoExecuteAction::Enqueue(_) => {
                let queue = self.state.queue(&self.zone)?;
                Some(self.turn("NoExecute taint waits", queue.position(&self.node.meta.name)?, self.now.cluster))
            }
            NoExecuteAction::Nothing if self.ready().is_some() => {
                Some(Prospect::never("it keeps its NoExecute taint until it says that it is ready", "NE-3"))
            }
            NoExecuteAction::Nothing | NoExecuteAction::Swap { .. } | NoExecuteAction::Clear(_) => None,
        }
    }

    /// NH-9: silence changes nothing for a node whose Ready is Unknown already.
    fn silence(&self) -> Vec<Prospect> {
        if self.node.is_unknown() {
            return Vec::new();
        }
        if self.hearing.note.is_some() {
            return vec![Prospect::never("no actor watches it, so it keeps its last known state", "NH-9")];
        }
        let rule = if self.ready().is_none() { "NH-2" } else { "NH-8" };
        let marked = match self.verdict {
            Verdict::Silent(_) => Prospect::at(self.now.cluster, self.now, "it is marked Unknown", rule),
            Verdict::Alive | Verdict::WaitUntil(_) => {
                let text = "unless it is heard before, it is marked Unknown";
                Prospect::at(self.deadline(), self.now, text, rule)
            }
        };
        std::iter::once(marked).chain(self.eviction_after_silence()).collect()
    }

    fn deadline(&self) -> ClusterTime {
        self.evidence.deadline(self.state.policy())
    }

    /// The eviction that silence leads to, for a node that has begun to be silent and is not in the queue yet.
    fn eviction_after_silence(&self) -> Option<Prospect> {
        let queue = self.state.queue(&self.zone);
        let waits = queue.is_some_and(|queue| queue.contains(&self.node.meta.name));
        let has_taint = !condition_taint::present_absences(&self.node.spec.taints).is_empty();
        if self.verdict == Verdict::Alive || waits || has_taint {
            return None;
        }
        let behind = queue.map_or(0, |queue| queue.len());
        Some(self.turn("its NoExecute taint then waits", behind, self.deadline().max(self.now.cluster)))
    }

    /// When the node's turn comes at this position of the queue, or `earliest` if another reason holds it until then.
    fn turn(&self, waits: &str, position: usize, earliest: ClusterTime) -> Prospect {
        let place = format!("{waits} in {}'s queue, position {}", zone_name(&self.zone), position + 1);
        match oversight::turn_at(self.state, &self.zone, position, self.now.cluster) {
            Some(at) => zone::turn(self.state, &self.zone, place, at.max(earliest), self.now),
            None => zone::no_turn(self.state, &self.zone, &place, self.now),
        }
    }
}
