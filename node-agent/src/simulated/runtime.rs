//! Simulated runtime: pods that start and stop at once, slowly, or never.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::pods::{
    LocalPodStatus, PodListener, PodName, PodPhase, PodToStart, PodUid, PodUpdateSender, RunRecorder, Runtime,
};

/// How long a slow pod takes to start, and to stop.
const SLOWLY: Duration = Duration::from_secs(3);

/// A pod that runs on a simulated machine at this moment, whatever the cluster thinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPod {
    pub namespace: String,
    pub name: String,
    /// In the form of a UUID.
    pub uid: String,
    /// It was told to stop.
    pub stopping: bool,
}

/// How a machine starts and stops its pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PodManner {
    #[default]
    Prompt,
    Slow,
    /// Pods told to stop do not, not even when killed.
    Stuck,
    /// Without power nothing runs.
    Off,
}

#[derive(Debug)]
pub(super) struct SimulatedRuntime {
    pods: Arc<Mutex<SimulatedPods>>,
}

#[derive(Debug, Default)]
struct SimulatedPods {
    manner: PodManner,
    listener: PodListener,
    pods: BTreeMap<PodUid, SimulatedPod>,
    /// Notes what really runs.
    recorder: Option<RunRecorder>,
}

#[derive(Debug)]
struct SimulatedPod {
    namespace: String,
    name: String,
    stopping: bool,
    /// Its slow start or stop.
    _pending: Option<AbortOnDropHandle<()>>,
}

// === impl SimulatedRuntime ===

impl SimulatedRuntime {
    pub(super) fn new() -> Self {
        Self { pods: Arc::new(Mutex::new(SimulatedPods::default())) }
    }

    pub(super) fn record(&self, recorder: RunRecorder) {
        lock(&self.pods).recorder = Some(recorder);
    }

    /// Sets the manner. Pods that were told to stop and did not now stop in this manner. Must be called on a tokio
    /// runtime.
    pub(super) fn behave(&self, manner: PodManner) {
        let mut pods = lock(&self.pods);
        if std::mem::replace(&mut pods.manner, manner) == manner {
            return;
        }
        if manner == PodManner::Off {
            return pods.lose_power();
        }
        let stopping: Vec<_> = pods.pods.iter().filter(|(_, pod)| pod.stopping).map(|(uid, _)| *uid).collect();
        for uid in stopping {
            self.wind_down(&mut pods, uid);
        }
    }

    pub(super) fn running(&self) -> Vec<RunningPod> {
        let describe = |(uid, pod): (&PodUid, &SimulatedPod)| RunningPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: uid.to_string(),
            stopping: pod.stopping,
        };
        lock(&self.pods).pods.iter().map(describe).collect()
    }

    fn wind_down(&self, pods: &mut SimulatedPods, uid: PodUid) {
        let pending = match pods.manner {
            PodManner::Prompt => return pods.end(uid, completed()),
            PodManner::Slow => Some(self.later(move |pods| pods.end(uid, completed()))),
            PodManner::Stuck | PodManner::Off => None,
        };
        if let Some(pod) = pods.pods.get_mut(&uid) {
            pod._pending = pending;
        }
    }

    /// Never runs if the pod is gone before.
    fn later(&self, happen: impl FnOnce(&mut SimulatedPods) + Send + 'static) -> AbortOnDropHandle<()> {
        let pods = Arc::clone(&self.pods);
        AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(SLOWLY).await;
            happen(&mut lock(&pods));
        }))
    }
}

impl Runtime for SimulatedRuntime {
    /// Pods that already run were started by an earlier session of the same machine.
    fn report_to(&self, updates: PodUpdateSender) {
        let mut pods = lock(&self.pods);
        pods.listener.listen(updates);
        let running: Vec<_> = pods.pods.keys().copied().collect();
        running.into_iter().for_each(|uid| pods.listener.tell(uid, LocalPodStatus::ready(), false));
    }

    fn start(&self, pod: PodToStart) {
        let mut pods = lock(&self.pods);
        let PodToStart { namespace, name, uid, .. } = pod;
        if pods.manner == PodManner::Off || pods.pods.contains_key(&uid) {
            return;
        }
        if let Some(recorder) = &pods.recorder {
            recorder.began(&PodName { namespace: namespace.clone(), name: name.clone() }, uid);
        }
        let slow = pods.manner == PodManner::Slow;
        let pending = slow.then(|| self.later(move |pods| pods.listener.tell(uid, LocalPodStatus::ready(), false)));
        pods.pods.insert(uid, SimulatedPod { namespace, name, stopping: false, _pending: pending });
        let status = match slow {
            true => LocalPodStatus::new(PodPhase::Pending, "ContainerCreating", ""),
            false => LocalPodStatus::ready(),
        };
        pods.listener.tell(uid, status, false);
    }

    fn stop(&self, uid: PodUid, _grace: Duration) {
        let mut pods = lock(&self.pods);
        let begins = pods.pods.get_mut(&uid).is_some_and(|pod| !std::mem::replace(&mut pod.stopping, true));
        if begins {
            self.wind_down(&mut pods, uid);
        }
    }

    fn kill(&self, uid: PodUid) {
        let mut pods = lock(&self.pods);
        if let Some(pod) = pods.pods.get_mut(&uid) {
            pod.stopping = true;
            if pods.manner != PodManner::Stuck {
                pods.end(uid, LocalPodStatus::new(PodPhase::Failed, "Killed", "it did not end in time"));
            }
        }
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        let pods = lock(&self.pods);
        pods.pods.get(&uid).map(|pod| PodName { namespace: pod.namespace.clone(), name: pod.name.clone() })
    }
}

fn completed() -> LocalPodStatus {
    LocalPodStatus::new(PodPhase::Succeeded, "Completed", "")
}

fn lock(pods: &Mutex<SimulatedPods>) -> MutexGuard<'_, SimulatedPods> {
    pods.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl SimulatedPods ===

impl SimulatedPods {
    fn end(&mut self, uid: PodUid, status: LocalPodStatus) {
        if self.pods.remove(&uid).is_some() {
            self.recorder.iter().for_each(|recorder| recorder.ended(uid));
            self.listener.tell(uid, status, true);
        }
    }

    fn lose_power(&mut self) {
        self.pods.clear();
        self.recorder.iter().for_each(RunRecorder::lost_all);
        self.listener.lose_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::{PodInbox, PodUpdates};

    const UID: PodUid = PodUid(7);

    fn machine(manner: PodManner) -> (SimulatedRuntime, Arc<PodInbox>) {
        let (runtime, inbox) = (SimulatedRuntime::new(), Arc::new(PodInbox::default()));
        runtime.report_to(inbox.sender(0));
        runtime.behave(manner);
        (runtime, inbox)
    }

    fn start(runtime: &SimulatedRuntime) {
        let (namespace, name) = ("default".to_owned(), "web".to_owned());
        runtime.start(PodToStart { namespace, name, uid: UID, manifest: bytes::Bytes::new() });
    }

    fn told(inbox: &PodInbox) -> PodUpdates {
        inbox.take().remove(&0).unwrap_or_default()
    }

    fn phase(inbox: &PodInbox) -> Option<(PodPhase, bool)> {
        told(inbox).pods.remove(&UID).map(|news| (news.status.phase, news.stopped))
    }

    #[tokio::test]
    async fn pods_start_and_stop_at_once() {
        let (runtime, inbox) = machine(PodManner::Prompt);
        start(&runtime);
        assert_eq!(phase(&inbox), Some((PodPhase::Running, false)));
        runtime.stop(UID, Duration::from_secs(30));
        assert_eq!((phase(&inbox), runtime.running()), (Some((PodPhase::Succeeded, true)), vec![]));
    }

    #[tokio::test]
    async fn slow_pods_take_their_time_and_end_at_once_when_killed() {
        let (runtime, inbox) = machine(PodManner::Slow);
        start(&runtime);
        assert_eq!(phase(&inbox), Some((PodPhase::Pending, false)));
        runtime.stop(UID, Duration::from_secs(30));
        assert!(runtime.running()[0].stopping && phase(&inbox).is_none());
        runtime.kill(UID);
        assert_eq!((phase(&inbox), runtime.running()), (Some((PodPhase::Failed, true)), vec![]));
    }

    #[tokio::test]
    async fn a_stuck_pod_stops_when_the_machine_is_no_longer_stuck() {
        let (runtime, inbox) = machine(PodManner::Stuck);
        start(&runtime);
        runtime.stop(UID, Duration::from_secs(1));
        runtime.kill(UID);
        assert_eq!(phase(&inbox), Some((PodPhase::Running, false)));
        assert!(runtime.running()[0].stopping);
        runtime.behave(PodManner::Prompt);
        assert_eq!((phase(&inbox), runtime.running()), (Some((PodPhase::Succeeded, true)), vec![]));
    }

    #[tokio::test]
    async fn without_power_all_pods_are_lost() {
        let (runtime, inbox) = machine(PodManner::Prompt);
        start(&runtime);
        runtime.behave(PodManner::Off);
        start(&runtime);
        let updates = told(&inbox);
        assert!(updates.lost && updates.pods.is_empty() && runtime.running().is_empty());
    }
}
