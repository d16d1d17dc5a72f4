//! Looking at the machine without being held up by it.
//!
//! A filesystem whose server is gone keeps whoever asks it, for ever and beyond the reach of signals. So filesystems are
//! asked on a thread of its own; while that one waits for an answer no other is started, and what it was to find out
//! counts as not read. What the kernel says of itself cannot hang and is read in place.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::sample::{Part, Sample, Subjects};

pub(super) struct Probe {
    subjects: Subjects,
    /// From a thread that has not ended yet.
    unanswered: Option<mpsc::Receiver<Part>>,
}

impl Probe {
    pub(super) fn new(subjects: Subjects) -> Self {
        Self { subjects, unanswered: None }
    }

    pub(super) async fn sample(&mut self, patience: Duration) -> Sample {
        let mut sample = self.subjects.look_at_kernel();
        // A question that was answered after all came too late for an answer to be of use.
        if let Some(late) = self.unanswered.take()
            && !self.hear(late, patience, |_| ()).await
        {
            return sample;
        }
        if let Some(answers) = self.ask(&mut sample) {
            self.hear(answers, patience, |part| sample.put(part)).await;
        }
        sample
    }

    fn ask(&self, sample: &mut Sample) -> Option<mpsc::Receiver<Part>> {
        let (sender, answers) = mpsc::channel(2);
        let subjects = self.subjects.clone();
        let ask = move || subjects.look_at_filesystems(|part| drop(sender.blocking_send(part)));
        match thread::Builder::new().name("statvfs".into()).spawn(ask) {
            Ok(_) => Some(answers),
            Err(error) => {
                let reason = format!("no thread can be started to ask the filesystems: {error}");
                sample.put(Part::Nodefs(Err(reason.clone())));
                sample.put(Part::Imagefs(Err(reason)));
                None
            }
        }
    }

    /// Whether the thread ended.
    async fn hear(
        &mut self,
        mut answers: mpsc::Receiver<Part>,
        patience: Duration,
        mut take: impl FnMut(Part),
    ) -> bool {
        let all = async {
            while let Some(part) = answers.recv().await {
                take(part);
            }
        };
        let ended = timeout(patience, all).await.is_ok();
        self.unanswered = (!ended).then_some(answers);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, mpsc as blocking};

    use super::*;
    use crate::facts::Filesystem;
    use crate::facts::file::Root;

    const FULL: Filesystem = Filesystem { capacity: 10, available: 0, inodes: 10, inodes_free: 0 };
    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    /// A filesystem for pods that answers, and one for images that answers once for each time it is let.
    fn subjects(asked: Arc<AtomicUsize>, held: blocking::Receiver<()>) -> Subjects {
        let held = Mutex::new(held);
        Subjects {
            root: Root::new("/"),
            nodefs: PathBuf::from("/pods"),
            imagefs: Some(PathBuf::from("/images")),
            gauge: Arc::new(move |path| {
                if path.ends_with("images") {
                    asked.fetch_add(1, Ordering::Relaxed);
                    held.lock().unwrap().recv().map_err(std::io::Error::other)?;
                }
                Ok(FULL)
            }),
        }
    }

    #[tokio::test]
    async fn a_filesystem_that_hangs_holds_one_thread_and_nothing_else() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = blocking::channel();
        let mut probe = Probe::new(subjects(Arc::clone(&asked), held));
        let first = probe.sample(SOON).await;
        assert_eq!(first.nodefs, Ok(FULL), "what was asked before the one that hangs is known");
        assert_eq!(first.imagefs, Err("/images: its filesystem does not answer".into()));
        assert!(first.memory.is_ok() && first.pids.is_ok());
        for _ in 0..3 {
            let sample = probe.sample(SOON).await;
            assert!(sample.nodefs.is_err() && sample.imagefs.is_err() && sample.memory.is_ok());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);

        release.send(()).unwrap();
        release.send(()).unwrap();
        let healed = probe.sample(LONG).await;
        assert_eq!((healed.nodefs, healed.imagefs), (Ok(FULL), Ok(FULL)));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
