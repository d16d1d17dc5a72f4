//! `--runtime none`: nothing runs. Pods are said to run as soon as they are ordered and to have ended as soon as they are
//! told to, and what is on record stays so when the agent is restarted.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::memory::{KeptPod, Memory};
use super::{OpenError, occupy};
use crate::pods::{Listener, News, Note, Phase, PodName, PodSpec, PodStatus, PodUid, Recollection, Runtime};

#[derive(Debug)]
pub struct RecordRuntime {
    memory: Memory,
    books: Mutex<Books>,
    /// One agent per directory.
    _held: File,
}

#[derive(Debug)]
struct Books {
    listener: Listener,
    pods: BTreeSet<PodUid>,
}

// === impl RecordRuntime ===

impl RecordRuntime {
    pub fn open(dir: &Path) -> Result<Arc<Self>, OpenError> {
        let (held, dir) = occupy(dir)?;
        let path = dir.join("memory");
        let memory = Memory::open(path.clone()).map_err(|source| OpenError::Io { path, source })?;
        let pods = memory.kept().iter().filter_map(|pod| PodUid::parse(&pod.uid)).collect();
        Ok(Arc::new(Self { memory, books: Mutex::new(Books { listener: Listener::default(), pods }), _held: held }))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, uid: PodUid) {
        let mut books = self.lock();
        if books.pods.remove(&uid) {
            self.memory.let_go(uid);
            books.listener.tell(uid, PodStatus::new(Phase::Succeeded, "Completed", ""), true);
        }
    }
}

impl Runtime for RecordRuntime {
    fn report_to(&self, news: News) {
        let mut books = self.lock();
        books.listener.listen(news);
        books.pods.iter().for_each(|uid| books.listener.tell(*uid, PodStatus::ready(), false));
    }

    fn start(&self, pod: PodSpec) {
        let mut books = self.lock();
        books.pods.insert(pod.uid);
        self.memory.keep(KeptPod { uid: pod.uid.to_string(), namespace: pod.namespace, name: pod.name });
        books.listener.tell(pod.uid, PodStatus::ready(), false);
    }

    fn stop(&self, uid: PodUid, _grace: Duration) {
        self.end(uid);
    }

    fn kill(&self, uid: PodUid) {
        self.end(uid);
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        let uid = uid.to_string();
        let kept = self.memory.kept().into_iter().find(|pod| pod.uid == uid)?;
        Some(PodName { namespace: kept.namespace, name: kept.name })
    }

    fn recall(&self) -> Recollection {
        self.memory.recall()
    }

    fn note(&self, note: Note) {
        self.memory.note(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::Inbox;

    const UID: PodUid = PodUid(7);

    fn told(inbox: &Inbox) -> Option<(Phase, bool)> {
        let news = inbox.take().remove(&0).and_then(|mut node| node.pods.remove(&UID));
        news.map(|news| (news.status.phase, news.stopped))
    }

    #[test]
    fn pods_are_records_that_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = Arc::new(Inbox::default());
        let runtime = RecordRuntime::open(dir.path()).unwrap();
        runtime.report_to(inbox.news(0));
        let (namespace, name) = ("default".to_owned(), "web".to_owned());
        runtime.start(PodSpec { namespace, name, uid: UID, manifest: bytes::Bytes::new() });
        assert_eq!(told(&inbox), Some((Phase::Running, false)));
        assert!(matches!(RecordRuntime::open(dir.path()), Err(OpenError::InUse { .. })));
        drop(runtime);
        let runtime = RecordRuntime::open(dir.path()).unwrap();
        runtime.report_to(inbox.news(0));
        assert_eq!((told(&inbox), runtime.name_of(UID).is_some()), (Some((Phase::Running, false)), true));
        runtime.stop(UID, Duration::from_secs(30));
        assert_eq!(told(&inbox), Some((Phase::Succeeded, true)));
        runtime.kill(UID);
        assert_eq!((told(&inbox), runtime.name_of(UID)), (None, None));
    }
}
