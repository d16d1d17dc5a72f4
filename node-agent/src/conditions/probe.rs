//! Probe of the machine that a hanging filesystem cannot block.
//!
//! A filesystem whose server is gone blocks its caller for ever, beyond the reach of signals. So a separate thread
//! asks the filesystems. While it is blocked no other starts, and its filesystems count as unread. What the kernel
//! reports about itself cannot hang and is read in place.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::sample::{FilesystemSample, MachineSample, SampleSources};

pub(super) struct Probe {
    subjects: SampleSources,
    /// The answers of a thread that has not ended yet.
    unanswered: Option<mpsc::Receiver<FilesystemSample>>,
}

impl Probe {
    pub(super) fn new(subjects: SampleSources) -> Self {
        Self { subjects, unanswered: None }
    }

    pub(super) async fn sample(&mut self, limit: Duration) -> MachineSample {
        let mut sample = self.subjects.read_kernel();
        // An answer that came late is outdated.
        if let Some(late) = self.unanswered.take()
            && !self.receive(late, limit, |_| ()).await
        {
            return sample;
        }
        if let Some(answers) = self.begin(&mut sample) {
            self.receive(answers, limit, |part| sample.put(part)).await;
        }
        sample
    }

    fn begin(&self, sample: &mut MachineSample) -> Option<mpsc::Receiver<FilesystemSample>> {
        let (sender, answers) = mpsc::channel(2);
        let subjects = self.subjects.clone();
        let ask = move || subjects.read_filesystems(|part| drop(sender.blocking_send(part)));
        match thread::Builder::new().name("statvfs".into()).spawn(ask) {
            Ok(_) => Some(answers),
            Err(error) => {
                let reason = format!("cannot start a thread to ask the filesystems: {error}");
                sample.put(FilesystemSample::Nodefs(Err(reason.clone())));
                sample.put(FilesystemSample::Imagefs(Err(reason)));
                None
            }
        }
    }

    /// True if the thread ended.
    async fn receive(
        &mut self,
        mut answers: mpsc::Receiver<FilesystemSample>,
        limit: Duration,
        mut take: impl FnMut(FilesystemSample),
    ) -> bool {
        let all = async {
            while let Some(part) = answers.recv().await {
                take(part);
            }
        };
        let ended = timeout(limit, all).await.is_ok();
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

    /// A filesystem for pods that answers, and one for images that answers once per release.
    fn subjects(asked: Arc<AtomicUsize>, held: blocking::Receiver<()>) -> SampleSources {
        let held = Mutex::new(held);
        SampleSources {
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
    async fn a_hanging_filesystem_blocks_one_thread_and_nothing_else() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = blocking::channel();
        let mut probe = Probe::new(subjects(Arc::clone(&asked), held));
        let first = probe.sample(SOON).await;
        assert_eq!(first.nodefs, Ok(FULL), "the filesystem asked before the hanging one is known");
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
