//! Staffing: the leader found that a workload lacks pods, or has too many.

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::judge::staffing::{self, Opening, STEP_MAX};
use crate::object::event::PodHappening;
use crate::object::kind::WorkloadKind;
use crate::object::pod::{Pod, PodKey};
use crate::object::toleration;
use crate::object::workload::{Workload, WorkloadKey};
use crate::rejection::{Limit, Rejection};
use crate::value::meta::Uid;
use crate::value::text::Text;

/// How many names that are taken already are passed over.
const NAMES_TRIED: u64 = 16;

impl Application<'_> {
    /// The missing and the surplus pods are worked out on the present state, whatever the leader saw.
    pub(crate) fn staff_workload(
        &mut self,
        origin: &Origin,
        key: &WorkloadKey,
        uid: Uid,
        nodes: &[Text],
    ) -> ApplyResult {
        if nodes.len() > STEP_MAX {
            return Err(Rejection::limit(Limit::NodesPerEntry, STEP_MAX));
        }
        let workload = self.expect_workload(key, &Precondition { revision: None, uid: Some(uid) })?;
        let staffing = staffing::staffing(self.state, &workload, nodes);
        if staffing.is_settled() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        let dismissed = staffing.dismissals.iter().filter(|pod| self.dismiss(origin, &workload, pod)).count();
        if staffing.is_over {
            let revision = self.remove_workload(&workload);
            return Ok(Receipt { revision, effect: ReceiptEffect::Deleted });
        }
        match self.fill(&workload, &staffing.openings) {
            // Pods that were made or dismissed count, even if the rest met a limit.
            (0, Some(limit)) if dismissed == 0 => Err(limit),
            (_, _) => Ok(self.receipt(ReceiptEffect::Changed)),
        }
    }

    fn dismiss(&mut self, origin: &Origin, workload: &Workload, pod: &PodKey) -> bool {
        let dismissed = self.delete_pod(origin, pod, None, &Precondition::default()).is_ok();
        if dismissed {
            self.note_workload(workload, PodHappening::Dismissed { name: pod.name.clone() });
        }
        dismissed
    }

    /// How many pods were made, and the rejection that kept the rest from being made.
    fn fill(&mut self, workload: &Workload, openings: &[Opening]) -> (usize, Option<Rejection>) {
        let mut workload = workload.clone();
        let mut made = 0;
        let mut limit = None;
        for opening in openings {
            match self.make_pod(&mut workload, opening) {
                Ok(()) => made += 1,
                Err(rejection) => limit = Some(rejection),
            }
        }
        if made > 0 {
            self.put_workload(workload);
        }
        (made, limit)
    }

    fn make_pod(&mut self, workload: &mut Workload, opening: &Opening) -> Result<(), Rejection> {
        let namespace = workload.meta.namespace.clone().unwrap_or_default();
        let name = match opening {
            Opening::Named(name) => name.clone(),
            Opening::Anonymous | Opening::On(_) => self.free_name(workload, &namespace),
        };
        workload.made += 1;
        let uid = workload.coined_uid(workload.made);
        let pod = self.pod_of(workload, PodKey { namespace, name: name.clone() }, uid);
        let node = match opening {
            Opening::On(node) => Some(node),
            Opening::Anonymous | Opening::Named(_) => None,
        };
        self.add_pod(pod, node)?;
        self.note_workload(workload, PodHappening::Made { name });
        Ok(())
    }

    fn free_name(&self, workload: &mut Workload, namespace: &Text) -> Text {
        for _ in 0..NAMES_TRIED {
            let name = workload.coined_name(workload.made);
            if !self.state.pods.contains(&PodKey { namespace: namespace.clone(), name: name.clone() }) {
                return name;
            }
            workload.made += 1;
        }
        // The bare number: there are more numbers than coined names.
        Text::from(format!("{}-{}", workload.meta.name, workload.made))
    }

    fn pod_of(&self, workload: &Workload, key: PodKey, uid: Uid) -> Pod {
        let spec = &workload.spec;
        let labels = (spec.labels.clone(), spec.annotations.clone());
        let mut pod = self.new_pod(key, uid, labels, Box::new([workload.reference()]));
        pod.spec = spec.template.to_spec();
        let timeout = self.state.policy().pod_eviction_timeout;
        let own = &pod.spec.tolerations;
        pod.spec.tolerations = match workload.kind {
            WorkloadKind::DaemonSet => toleration::with_daemon_defaults(own, pod.spec.host_network),
            WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => toleration::with_defaults(own, timeout),
        };
        pod.unmodelled = spec.template.unmodelled.clone();
        pod
    }
}
