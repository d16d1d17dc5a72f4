//! The model of a simulated disk: what is visible, what is durable, and what lies between.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode(usize);

#[derive(Debug, Default)]
pub(super) struct Model {
    files: Vec<File>,
    /// Names as processes see them.
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    /// Directory changes since the last directory sync: the whole directory after each.
    unsynced_names: Vec<BTreeMap<String, Inode>>,
    /// Raised by every restart; older processes are dead.
    pub(super) boot: u64,
    pub(super) withheld: bool,
    /// How long every sync takes at least.
    pub(super) sync_time: Duration,
    pub(super) waiting: usize,
    pub(super) syncs: u64,
    pub(super) changes: u64,
    pub(super) failing_from: Option<u64>,
    pub(super) ignore_file_syncs: bool,
    pub(super) ignore_dir_syncs: bool,
    /// The boot and the number of changes at which the disk stops answering.
    pub(super) halt_at: Option<(u64, u64)>,
    pub(super) capacity: Option<u64>,
}

#[derive(Debug, Default)]
struct File {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

// === impl Model ===

impl Model {
    pub(super) fn check_alive(&self, boot: u64) -> io::Result<()> {
        let halted = self.halt_at.is_some_and(|(at, count)| at == self.boot && self.changes >= count);
        if boot != self.boot || halted {
            return Err(io::Error::other("the simulated machine stopped"));
        }
        Ok(())
    }

    pub(super) fn count_sync(&mut self) -> io::Result<()> {
        if self.failing_from.is_some_and(|from| self.syncs >= from) {
            // 5 is EIO.
            return Err(io::Error::from_raw_os_error(5));
        }
        self.syncs += 1;
        Ok(())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.names.get(name).map(|inode| self.files[inode.0].content.clone())
    }

    pub(super) fn corrupt(&mut self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(inode) = self.names.get(name) else { return false };
        let file = &mut self.files[inode.0];
        damage(&mut file.content);
        file.sync();
        true
    }

    pub(super) fn lookup(&self, name: &str) -> io::Result<Inode> {
        self.names.get(name).copied().ok_or_else(|| not_found(name))
    }

    pub(super) fn create(&mut self, name: &str) -> Inode {
        if let Some(&inode) = self.names.get(name) {
            self.files[inode.0].change(Change::SetLen(0));
            return inode;
        }
        let inode = Inode(self.files.len());
        self.files.push(File::default());
        self.names.insert(name.to_owned(), inode);
        self.unsynced_names.push(self.names.clone());
        inode
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let inode = self.names.remove(from).ok_or_else(|| not_found(from))?;
        self.names.insert(to.to_owned(), inode);
        self.unsynced_names.push(self.names.clone());
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.names.remove(name).ok_or_else(|| not_found(name))?;
        self.unsynced_names.push(self.names.clone());
        Ok(())
    }

    pub(super) fn sync_dir(&mut self) {
        if self.ignore_dir_syncs {
            return;
        }
        self.durable_names.clone_from(&self.names);
        self.unsynced_names.clear();
    }

    pub(super) fn used(&self) -> u64 {
        self.names.values().map(|inode| self.len(*inode)).sum()
    }

    pub(super) fn len(&self, inode: Inode) -> u64 {
        self.files[inode.0].content.len() as u64
    }

    pub(super) fn read(&self, inode: Inode, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = &self.files[inode.0].content;
        let start = to_usize(offset)?;
        let found = start.checked_add(out.len()).and_then(|end| content.get(start..end));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    pub(super) fn write(&mut self, inode: Inode, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_room(inode, offset.saturating_add(data.len() as u64))?;
        let offset = to_usize(offset)?;
        self.files[inode.0].change(Change::Write { offset, data: data.to_vec() });
        Ok(())
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: u64) -> io::Result<()> {
        self.check_room(inode, len)?;
        self.files[inode.0].change(Change::SetLen(to_usize(len)?));
        Ok(())
    }

    pub(super) fn sync_file(&mut self, inode: Inode) {
        if !self.ignore_file_syncs {
            self.files[inode.0].sync();
        }
    }

    pub(super) fn power_loss(&mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        for file in &mut self.files {
            file.power_loss(&mut rng);
        }
        let kept = rng.random_range(0..=self.unsynced_names.len());
        if let Some(names) = kept.checked_sub(1).and_then(|last| self.unsynced_names.get(last)) {
            self.durable_names.clone_from(names);
        }
        self.unsynced_names.clear();
        self.names.clone_from(&self.durable_names);
        self.boot += 1;
        self.withheld = false;
        self.failing_from = None;
        self.ignore_file_syncs = false;
        self.ignore_dir_syncs = false;
    }

    fn check_room(&self, inode: Inode, wanted: u64) -> io::Result<()> {
        let growth = wanted.saturating_sub(self.len(inode));
        let full = self.capacity.is_some_and(|capacity| growth > 0 && self.used() + growth > capacity);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

// === impl File ===

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.content);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.content);
        self.unsynced.clear();
    }

    /// Each unsynced change is kept, lost or torn. Half of the time nothing unsynced is kept at all, which
    /// is the case that a single lost sync shows most clearly.
    fn power_loss(&mut self, rng: &mut StdRng) {
        if rng.random_bool(0.5) {
            for change in &self.unsynced {
                change.apply_partly(&mut self.durable, rng);
            }
        }
        self.unsynced.clear();
        self.content.clone_from(&self.durable);
    }
}

// === impl Change ===

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => write(content, *offset, data),
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }

    fn apply_partly(&self, content: &mut Vec<u8>, rng: &mut StdRng) {
        match (self, rng.random_range(0..3)) {
            (_, 0) => {}
            (_, 1) | (Self::SetLen(_), _) => self.apply(content),
            (Self::Write { offset, data }, _) => {
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    if rng.random_bool(0.5) {
                        write(content, offset + number * SECTOR, sector);
                    }
                }
            }
        }
    }
}

fn write(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {name} on the simulated disk"))
}

fn to_usize(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}
