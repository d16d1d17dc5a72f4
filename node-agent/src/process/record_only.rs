//! Record-only runtime, `--runtime none`: no process runs. A pod is reported as running as soon as it is ordered and
//! as ended as soon as it is told to stop. The records survive a restart of the agent.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ended_log::{EndedLog, KeptPod};
use super::{RuntimeOpenError, lock_directory};
use crate::pods::{
    DurableNote, LocalPodStatus, PodListener, PodName, PodPhase, PodToStart, PodUid, PodUpdateSender, RecalledNotes,
    Runtime,
};

#[derive(Debug)]
pub struct RecordRuntime {
    ended_log: EndedLog,
    records: Mutex<Records>,
    /// Allows one agent per directory.
    _held: File,
}

#[derive(Debug)]
struct Records {
    listener: PodListener,
    pods: BTreeSet<PodUid>,
}

// === impl RecordRuntime ===

impl RecordRuntime {
    pub fn open(dir: &Path) -> Result<Arc<Self>, RuntimeOpenError> {
        let (held, dir) = lock_directory(dir)?;
        let path = dir.join("memory");
        let ended_log = EndedLog::open(path.clone()).map_err(|source| RuntimeOpenError::Io { path, source })?;
        let pods = ended_log.kept().iter().filter_map(|pod| PodUid::parse(&pod.uid)).collect();
        Ok(Arc::new(Self {
            ended_log,
            records: Mutex::new(Records { listener: PodListener::default(), pods }),
            _held: held,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, uid: PodUid) {
        let mut records = self.lock();
        if records.pods.remove(&uid) {
            self.ended_log.let_go(uid);
            records.listener.tell(uid, LocalPodStatus::new(PodPhase::Succeeded, "Completed", ""), true);
        }
    }
}

impl Runtime for RecordRuntime {
    fn report_to(&self, updates: PodUpdateSender) {
        let mut records = self.lock();
        records.listener.listen(updates);
        records.pods.iter().for_each(|uid| records.listener.tell(*uid, LocalPodStatus::ready(), false));
    }

    fn start(&self, pod: PodToStart) {
        let mut records = self.lock();
        records.pods.insert(pod.uid);
        self.ended_log.keep(KeptPod { uid: pod.uid.to_string(), namespace: pod.namespace, name: pod.name });
        records.listener.tell(pod.uid, LocalPodStatus::ready(), false);
    }

    fn stop(&self, uid: PodUid, _grace: Duration) {
        self.end(uid);
    }

    fn kill(&self, uid: PodUid) {
        self.end(uid);
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        let uid = uid.to_string();
        let kept = self.ended_log.kept().into_iter().find(|pod| pod.uid == uid)?;
        Some(PodName { namespace: kept.namespace, name: kept.name })
    }

    fn recall(&self) -> RecalledNotes {
        self.ended_log.recall()
    }

    fn note(&self, note: DurableNote) {
        self.ended_log.note(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::PodInbox;

    const UID: PodUid = PodUid(7);

    fn told(inbox: &PodInbox) -> Option<(PodPhase, bool)> {
        let news = inbox.take().remove(&0).and_then(|mut node| node.pods.remove(&UID));
        news.map(|news| (news.status.phase, news.stopped))
    }

    #[test]
    fn pods_are_records_that_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Arc::new(PodInbox::default());
        let runtime = RecordRuntime::open(dir.path()).unwrap();
        runtime.report_to(inbox.sender(0));
        let (namespace, name) = ("default".to_owned(), "web".to_owned());
        runtime.start(PodToStart { namespace, name, uid: UID, manifest: bytes::Bytes::new() });
        assert_eq!(told(&inbox), Some((PodPhase::Running, false)));
        assert!(matches!(RecordRuntime::open(dir.path()), Err(RuntimeOpenError::InUse { .. })));
        drop(runtime);
        let runtime = RecordRuntime::open(dir.path()).unwrap();
        runtime.report_to(inbox.sender(0));
        assert_eq!((told(&inbox), runtime.name_of(UID).is_some()), (Some((PodPhase::Running, false)), true));
        runtime.stop(UID, Duration::from_secs(30));
        assert_eq!(told(&inbox), Some((PodPhase::Succeeded, true)));
        runtime.kill(UID);
        assert_eq!((told(&inbox), runtime.name_of(UID)), (None, None));
    }
}
