//! Memory of the other replicas: with which store each has spoken, and how far its promises reached.
//!
//! It lies in the database of the log, outside the log of the replica that it is about. A store that is new is on the
//! disk before its first vote or acknowledgement counts; a higher mark follows within [`SAVE_PAUSE`]. Replicas pass on
//! what they know with every message, so that one that did not hear a promise itself knows of it a heartbeat later.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::{REPLICAS_MAX, ReplicaId};
use muster_proto::v1;
use tokio::sync::watch;

use crate::replication::greeting::store_bytes;
use crate::storage::log_store::LogStore;
use crate::storage::peer_mark::{MarkDispute, PeerMark, PeerMarks};

/// The pause between two writes of the memory.
pub(crate) const SAVE_PAUSE: Duration = Duration::from_millis(250);

pub struct PeerMemory {
    log: LogStore,
    store: Uid,
    run: u64,
    start: u64,
    known: Mutex<PeerMarks>,
    saved: Mutex<PeerMarks>,
    /// The replicas whose last answer contradicted what is remembered.
    distrusted: Mutex<BTreeMap<ReplicaId, MarkDispute>>,
    /// The run in which each replica greeted last.
    runs: Mutex<BTreeMap<ReplicaId, u64>>,
    changes: watch::Sender<u64>,
}

/// Whether the store of a replica was known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquaintance {
    Known,
    New,
}

// === impl PeerMemory ===

impl PeerMemory {
    pub(crate) fn new(log: LogStore, store: Uid) -> Self {
        let known = log.remembered_peers().clone();
        Self {
            start: log.promises(),
            log,
            store,
            run: rand::random(),
            known: Mutex::new(known.clone()),
            saved: Mutex::new(known),
            distrusted: Mutex::default(),
            runs: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    /// This replica's own mark.
    pub(crate) fn own(&self) -> PeerMark {
        PeerMark { store: self.store, run: self.run, start: self.start, promises: self.log.promises() }
    }

    pub(crate) fn about(&self, id: ReplicaId) -> Option<PeerMark> {
        self.known().get(&id).copied()
    }

    /// Everything that is remembered, for the other replicas.
    pub(crate) fn told(&self) -> Vec<v1::Mark> {
        self.known().iter().map(|(id, mark)| to_wire(*id, mark)).collect()
    }

    /// Binds the store of a replica that has made no promise yet.
    pub(crate) fn introduce(&self, id: ReplicaId, store: Uid) {
        self.note(id, PeerMark { store, run: 0, start: 0, promises: 0 });
    }

    /// Whether `from` speaks for the first time since it started.
    pub(crate) fn is_new_run(&self, from: ReplicaId, run: u64) -> bool {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(from, run) != Some(run)
    }

    /// Takes note of a message from `from`, or refuses it.
    pub(crate) fn greeted(&self, from: ReplicaId, told: PeerMark) -> Result<Acquaintance, MarkDispute> {
        if let Some(known) = self.about(from) {
            told.fits(&known)?;
        }
        Ok(self.note(from, told))
    }

    /// Takes note of an answer by `from` to a message that was sent when `known` was known of it.
    pub(crate) fn answered(
        &self,
        from: ReplicaId,
        told: PeerMark,
        known: Option<PeerMark>,
    ) -> Result<Acquaintance, MarkDispute> {
        let judged = known.map_or(Ok(()), |known| told.can_follow(&known));
        let mut distrusted = self.distrusted.lock().unwrap_or_else(PoisonError::into_inner);
        match judged {
            Ok(()) => drop(distrusted.remove(&from)),
            Err(dispute) => {
                if distrusted.insert(from, dispute).is_none() {
                    tracing::error!(replica = %from, "{}", explain(from, dispute));
                }
                return Err(dispute);
            }
        }
        drop(distrusted);
        Ok(self.note(from, told))
    }

    /// Takes note of what another replica knows. Returns what it knows about `me`.
    pub(crate) fn passed_on(&self, me: ReplicaId, marks: &[v1::Mark]) -> Option<PeerMark> {
        let mut about_me = None;
        for (id, mark) in marks.iter().filter_map(from_wire) {
            if id == me {
                about_me = Some(mark);
            } else {
                self.note(id, mark);
            }
        }
        about_me
    }

    /// What another replica knows about this one and this one does not know itself. Exact: no replica can know of a
    /// promise that this one has not made.
    pub(crate) fn forgotten(&self, about_me: &PeerMark) -> Option<MarkDispute> {
        let here = self.log.promises();
        if about_me.store != self.store {
            return Some(MarkDispute::OtherStore);
        }
        (about_me.promises > here).then_some(MarkDispute::WentBack { remembered: about_me.promises, told: here })
    }

    /// Completes when what is known now is on the disk.
    pub(crate) async fn save(&self) -> io::Result<()> {
        let known = self.known().clone();
        self.log.remember_peers(known.clone()).await?;
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// The mark of a replica as it stands on the disk.
    pub(crate) fn saved(&self, id: ReplicaId) -> Option<PeerMark> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The replicas whose last answer contradicted what is remembered, and how.
    pub fn distrusted(&self) -> BTreeMap<ReplicaId, String> {
        let distrusted = self.distrusted.lock().unwrap_or_else(PoisonError::into_inner);
        distrusted.iter().map(|(id, dispute)| (*id, explain(*id, *dispute))).collect()
    }

    fn note(&self, id: ReplicaId, told: PeerMark) -> Acquaintance {
        let mut known = self.known();
        let (remembered, acquaintance) = match known.get(&id) {
            Some(before) => (before.merged(told), Acquaintance::Known),
            None if known.len() >= REPLICAS_MAX => return Acquaintance::Known,
            None => (told, Acquaintance::New),
        };
        if known.insert(id, remembered) != Some(remembered) {
            self.changes.send_modify(|changes| *changes += 1);
        }
        acquaintance
    }

    fn known(&self) -> MutexGuard<'_, PeerMarks> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The finding for people: what is wrong with the replica and how to replace it.
pub(crate) fn explain(id: ReplicaId, dispute: MarkDispute) -> String {
    let what = match dispute {
        MarkDispute::OtherStore => "is known with another store: its disk was wiped or replaced".to_owned(),
        MarkDispute::WentBack { remembered, told } => format!(
            "went back in time: it made {remembered} promises and knows of {told}, so its data directory was replaced \
             by an older copy"
        ),
    };
    format!(
        "replica {id} {what}; it takes no part any more, because a vote or a write that it acknowledged may be \
         forgotten; run `muster member remove {id}`, then add the machine under a new id (`muster init add-replica`, \
         `muster member add`)"
    )
}

pub(crate) fn to_wire(id: ReplicaId, mark: &PeerMark) -> v1::Mark {
    let PeerMark { store, run, start, promises } = *mark;
    v1::Mark { replica: id.0, store: store_bytes(store), run, start, promises }
}

pub(crate) fn from_wire(mark: &v1::Mark) -> Option<(ReplicaId, PeerMark)> {
    let v1::Mark { replica, store, run, start, promises } = mark;
    let mark = PeerMark { store: store_from(store)?, run: *run, start: *start, promises: *promises };
    Some((ReplicaId(*replica), mark))
}

pub(crate) fn store_from(bytes: &Bytes) -> Option<Uid> {
    Some(Uid(u128::from_be_bytes(bytes.as_ref().try_into().ok()?)))
}
