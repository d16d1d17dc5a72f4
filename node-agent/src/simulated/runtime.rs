//! Pods that exist only in what is said of them: they start and stop at once, slowly, or never.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::pods::{Listener, News, Phase, PodName, PodSpec, PodStatus, PodUid, Runtime};

/// How long a slow pod takes to start, and again to stop.
const SLOWLY: Duration = Duration::from_secs(3);

/// What runs on a simulated machine at this moment, whatever the fleet thinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPod {
    pub namespace: String,
    pub name: String,
    /// As a UUID is written.
    pub uid: String,
    /// It was told to stop.
    pub stopping: bool,
}

/// How a machine treats its pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Manner {
    #[default]
    Prompt,
    Slow,
    /// What is to stop does not, not even when killed.
    Stuck,
    /// Without power nothing runs.
    Off,
}

#[derive(Debug)]
pub(super) struct SimulatedRuntime {
    yard: Arc<Mutex<Yard>>,
}

#[derive(Debug, Default)]
struct Yard {
    manner: Manner,
    listener: Listener,
    pods: BTreeMap<PodUid, SimulatedPod>,
}

#[derive(Debug)]
struct SimulatedPod {
    namespace: String,
    name: String,
    stopping: bool,
    /// Its slow start, or its slow end.
    _pending: Option<AbortOnDropHandle<()>>,
}

// === impl SimulatedRuntime ===

impl SimulatedRuntime {
    pub(super) fn new() -> Self {
        Self { yard: Arc::new(Mutex::new(Yard::default())) }
    }

    /// What was to stop and did not stops as is now the manner. Must be called on a tokio runtime.
    pub(super) fn behave(&self, manner: Manner) {
        let mut yard = lock(&self.yard);
        if std::mem::replace(&mut yard.manner, manner) == manner {
            return;
        }
        if manner == Manner::Off {
            return yard.lose_power();
        }
        let stopping: Vec<_> = yard.pods.iter().filter(|(_, pod)| pod.stopping).map(|(uid, _)| *uid).collect();
        for uid in stopping {
            self.wind_down(&mut yard, uid);
        }
    }

    pub(super) fn running(&self) -> Vec<RunningPod> {
        let describe = |(uid, pod): (&PodUid, &SimulatedPod)| RunningPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: uid.to_string(),
            stopping: pod.stopping,
        };
        lock(&self.yard).pods.iter().map(describe).collect()
    }

    fn wind_down(&self, yard: &mut Yard, uid: PodUid) {
        let pending = match yard.manner {
            Manner::Prompt => return yard.end(uid, completed()),
            Manner::Slow => Some(self.later(move |yard| yard.end(uid, completed()))),
            Manner::Stuck | Manner::Off => None,
        };
        if let Some(pod) = yard.pods.get_mut(&uid) {
            pod._pending = pending;
        }
    }

    /// Never happens if the pod is gone before.
    fn later(&self, happen: impl FnOnce(&mut Yard) + Send + 'static) -> AbortOnDropHandle<()> {
        let yard = Arc::clone(&self.yard);
        AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(SLOWLY).await;
            happen(&mut lock(&yard));
        }))
    }
}

impl Runtime for SimulatedRuntime {
    /// What runs already was started by an earlier session of the same machine.
    fn report_to(&self, news: News) {
        let mut yard = lock(&self.yard);
        yard.listener.listen(news);
        let running: Vec<_> = yard.pods.keys().copied().collect();
        running.into_iter().for_each(|uid| yard.listener.tell(uid, PodStatus::ready(), false));
    }

    fn start(&self, pod: PodSpec) {
        let mut yard = lock(&self.yard);
        let PodSpec { namespace, name, uid, .. } = pod;
        if yard.manner == Manner::Off || yard.pods.contains_key(&uid) {
            return;
        }
        let slow = yard.manner == Manner::Slow;
        let pending = slow.then(|| self.later(move |yard| yard.listener.tell(uid, PodStatus::ready(), false)));
        yard.pods.insert(uid, SimulatedPod { namespace, name, stopping: false, _pending: pending });
        let status = match slow {
            true => PodStatus::new(Phase::Pending, "ContainerCreating", ""),
            false => PodStatus::ready(),
        };
        yard.listener.tell(uid, status, false);
    }

    fn stop(&self, uid: PodUid, _grace: Duration) {
        let mut yard = lock(&self.yard);
        let begins = yard.pods.get_mut(&uid).is_some_and(|pod| !std::mem::replace(&mut pod.stopping, true));
        if begins {
            self.wind_down(&mut yard, uid);
        }
    }

    fn kill(&self, uid: PodUid) {
        let mut yard = lock(&self.yard);
        if let Some(pod) = yard.pods.get_mut(&uid) {
            pod.stopping = true;
            if yard.manner != Manner::Stuck {
                yard.end(uid, PodStatus::new(Phase::Failed, "Killed", "it did not end in time"));
            }
        }
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        let yard = lock(&self.yard);
        yard.pods.get(&uid).map(|pod| PodName { namespace: pod.namespace.clone(), name: pod.name.clone() })
    }
}

fn completed() -> PodStatus {
    PodStatus::new(Phase::Succeeded, "Completed", "")
}

fn lock(yard: &Mutex<Yard>) -> MutexGuard<'_, Yard> {
    yard.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Yard ===

impl Yard {
    fn end(&mut self, uid: PodUid, status: PodStatus) {
        if self.pods.remove(&uid).is_some() {
            self.listener.tell(uid, status, true);
        }
    }

    fn lose_power(&mut self) {
        self.pods.clear();
        self.listener.lose_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::{Gathered, Inbox};

    const UID: PodUid = PodUid(7);

    fn machine(manner: Manner) -> (SimulatedRuntime, Arc<Inbox>) {
        let (runtime, inbox) = (SimulatedRuntime::new(), Arc::new(Inbox::default()));
        runtime.report_to(inbox.news(0));
        runtime.behave(manner);
        (runtime, inbox)
    }

    fn start(runtime: &SimulatedRuntime) {
        let (namespace, name) = ("default".to_owned(), "web".to_owned());
        runtime.start(PodSpec { namespace, name, uid: UID, manifest: bytes::Bytes::new() });
    }

    fn told(inbox: &Inbox) -> Gathered {
        inbox.take().remove(&0).unwrap_or_default()
    }

    fn phase(inbox: &Inbox) -> Option<(Phase, bool)> {
        told(inbox).pods.remove(&UID).map(|news| (news.status.phase, news.stopped))
    }

    #[tokio::test]
    async fn pods_start_and_stop_at_once() {
        let (runtime, inbox) = machine(Manner::Prompt);
        start(&runtime);
        assert_eq!(phase(&inbox), Some((Phase::Running, false)));
        runtime.stop(UID, Duration::from_secs(30));
        assert_eq!((phase(&inbox), runtime.running()), (Some((Phase::Succeeded, true)), vec![]));
    }

    #[tokio::test]
    async fn slow_pods_take_their_time_and_end_at_once_when_killed() {
        let (runtime, inbox) = machine(Manner::Slow);
        start(&runtime);
        assert_eq!(phase(&inbox), Some((Phase::Pending, false)));
        runtime.stop(UID, Duration::from_secs(30));
        assert!(runtime.running()[0].stopping && phase(&inbox).is_none());
        runtime.kill(UID);
        assert_eq!((phase(&inbox), runtime.running()), (Some((Phase::Failed, true)), vec![]));
    }

    #[tokio::test]
    async fn what_is_stuck_stops_when_it_no_longer_is() {
        let (runtime, inbox) = machine(Manner::Stuck);
        start(&runtime);
        runtime.stop(UID, Duration::from_secs(1));
        runtime.kill(UID);
        assert_eq!(phase(&inbox), Some((Phase::Running, false)));
        assert!(runtime.running()[0].stopping);
        runtime.behave(Manner::Prompt);
        assert_eq!((phase(&inbox), runtime.running()), (Some((Phase::Succeeded, true)), vec![]));
    }

    #[tokio::test]
    async fn without_power_everything_vanishes_unseen() {
        let (runtime, inbox) = machine(Manner::Prompt);
        start(&runtime);
        runtime.behave(Manner::Off);
        start(&runtime);
        let gathered = told(&inbox);
        assert!(gathered.lost && gathered.pods.is_empty() && runtime.running().is_empty());
    }
}
