//! Simulated disk in memory, which behaves as badly as a real one may.
//!
//! [`SimDisk`] is the hardware: it survives processes and power cuts. [`SimDisk::mount`] is the view of one process.
//! After [`SimDisk::power_loss`] every older mount, and every file opened through it, fails, so that threads of a
//! "dead" process cannot reach what its successor uses.
//!
//! A seed decides what a power cut leaves: everything synced, plus any subset of the unsynced writes in any order of
//! sectors (so also torn ones), plus any prefix of the unsynced directory changes (file systems journal those in
//! order).

mod model;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::model::{Inode, Model};
use super::{Disk, DiskFile};

/// The free bytes that a disk without a set capacity reports.
const ROOMY: u64 = 1 << 40;

/// The hardware.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    shared: Arc<Hardware>,
}

#[derive(Debug, Default)]
struct Hardware {
    model: Mutex<Model>,
    /// Notified when a withheld sync may go on.
    released: Condvar,
}

/// The disk as one process sees it.
#[derive(Debug)]
struct Mount {
    disk: SimDisk,
    boot: u64,
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    boot: u64,
    inode: Inode,
}

// === impl SimDisk ===

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk for a process that starts now.
    pub fn mount(&self) -> Arc<dyn Disk> {
        let boot = self.model().boot;
        Arc::new(Mount { disk: self.clone(), boot })
    }

    /// Cuts the power and restores it. The module's description says what is left.
    pub fn power_loss(&self, seed: u64) {
        self.model().power_loss(seed);
        self.shared.released.notify_all();
    }

    /// Ends all processes without cutting the power: what was written stays, synced or not.
    pub fn kill(&self) {
        self.model().boot += 1;
        self.shared.released.notify_all();
    }

    /// While on, no sync completes.
    pub fn withhold_sync(&self, on: bool) {
        self.model().withheld = on;
        self.shared.released.notify_all();
    }

    /// From now on every sync takes at least this long.
    pub fn slow_syncs(&self, by: Duration) {
        self.model().sync_time = by;
    }

    /// How many syncs wait to be released.
    pub fn waiting_syncs(&self) -> usize {
        self.model().waiting
    }

    /// How many syncs have completed.
    pub fn syncs(&self) -> u64 {
        self.model().syncs
    }

    /// While on, syncs of files report success and do nothing: a disk with a cache that lies.
    pub fn ignore_file_syncs(&self, on: bool) {
        self.model().ignore_file_syncs = on;
    }

    /// While on, syncs of the directory report success and do nothing.
    pub fn ignore_dir_syncs(&self, on: bool) {
        self.model().ignore_dir_syncs = on;
    }

    /// After `count` more successful syncs each one fails with an input/output error.
    pub fn fail_syncs_after(&self, count: u64) {
        let mut model = self.model();
        model.failing_from = Some(model.syncs + count);
    }

    /// After `count` more changes (writes, syncs, directory changes) every operation fails, as if the
    /// machine had stopped there. A power cut or [`SimDisk::kill`] starts it again.
    pub fn halt_after(&self, count: u64) {
        let mut model = self.model();
        model.halt_at = Some((model.boot, model.changes + count));
    }

    /// How many changes have been made so far.
    pub fn changes(&self) -> u64 {
        self.model().changes
    }

    /// Bounds the sum of all file lengths; `None` lifts the bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.model().capacity = bytes;
    }

    pub fn names(&self) -> Vec<String> {
        self.model().names()
    }

    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.model().content(name)
    }

    /// Changes a file durably, without any process noticing. Returns whether there was such a file.
    pub fn corrupt(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.model().corrupt(name, damage)
    }

    /// Flips one bit of a file. Returns whether the file has such a bit.
    pub fn flip_bit(&self, name: &str, bit: usize) -> bool {
        let present = self.content(name).is_some_and(|content| bit / 8 < content.len());
        present && self.corrupt(name, |content| content[bit / 8] ^= 1 << (bit % 8))
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.shared.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model, for a process that is still alive.
    fn alive(&self, boot: u64) -> io::Result<MutexGuard<'_, Model>> {
        let model = self.model();
        model.check_alive(boot)?;
        Ok(model)
    }

    /// The model, for a change.
    fn change(&self, boot: u64) -> io::Result<MutexGuard<'_, Model>> {
        let mut model = self.alive(boot)?;
        model.changes += 1;
        Ok(model)
    }

    /// Waits until syncs are released, then does one.
    fn sync(&self, boot: u64, make_durable: impl FnOnce(&mut Model)) -> io::Result<()> {
        let sync_time = self.alive(boot)?.sync_time;
        if !sync_time.is_zero() {
            std::thread::sleep(sync_time);
        }
        let mut model = self.change(boot)?;
        model.waiting += 1;
        while model.withheld && model.check_alive(boot).is_ok() {
            model = self.shared.released.wait(model).unwrap_or_else(PoisonError::into_inner);
        }
        model.waiting -= 1;
        model.check_alive(boot)?;
        model.count_sync()?;
        make_durable(&mut model);
        Ok(())
    }
}

impl Mount {
    fn file(&self, inode: Inode) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.disk.clone(), boot: self.boot, inode })
    }
}

impl Disk for Mount {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = self.disk.alive(self.boot)?.lookup(name)?;
        Ok(self.file(inode))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = self.disk.change(self.boot)?.create(name);
        Ok(self.file(inode))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.alive(self.boot)?.names())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.change(self.boot)?.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.change(self.boot)?.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync(self.boot, Model::sync_dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let model = self.disk.alive(self.boot)?;
        Ok(model.capacity.unwrap_or(ROOMY).saturating_sub(model.used()))
    }

    fn location(&self) -> String {
        "a simulated disk".to_owned()
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.alive(self.boot)?.len(self.inode))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.alive(self.boot)?.read(self.inode, offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.change(self.boot)?.write(self.inode, offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change(self.boot)?.set_len(self.inode, len)
    }

    fn sync(&self) -> io::Result<()> {
        let inode = self.inode;
        self.disk.sync(self.boot, |model| model.sync_file(inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
        let file = disk.open(name)?;
        let mut content = vec![0; file.len()? as usize];
        file.read_at(0, &mut content)?;
        Ok(content)
    }

    #[test]
    fn synced_content_under_a_synced_name_survives_every_power_loss() {
        for seed in 0..64 {
            let sim = SimDisk::new();
            let disk = sim.mount();
            let file = disk.create("a").unwrap();
            file.write_at(0, b"kept").unwrap();
            file.sync().unwrap();
            disk.sync_dir().unwrap();
            file.write_at(4, b"perhaps").unwrap();
            sim.power_loss(seed);
            assert!(file.write_at(0, b"ghost").is_err(), "a dead process writes nothing");
            assert_eq!(&read(&*sim.mount(), "a").unwrap()[..4], b"kept");
        }
    }

    #[test]
    fn unsynced_writes_names_and_renames_survive_some_power_losses_and_not_others() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..256 {
            let sim = SimDisk::new();
            let disk = sim.mount();
            let file = disk.create("a").unwrap();
            file.sync().unwrap();
            disk.sync_dir().unwrap();
            file.write_at(0, &[7; 1024]).unwrap();
            disk.rename("a", "b").unwrap();
            sim.power_loss(seed);
            let disk = sim.mount();
            let name = disk.list().unwrap().remove(0);
            let content = read(&*disk, &name).unwrap();
            let sevens = content.iter().filter(|byte| **byte == 7).count();
            outcomes.insert((name, sevens));
        }
        for expected in [("a", 0), ("a", 512), ("a", 1024), ("b", 0), ("b", 1024)] {
            assert!(outcomes.contains(&(expected.0.to_owned(), expected.1)), "{expected:?} not in {outcomes:?}");
        }
    }

    #[test]
    fn a_full_disk_refuses_to_grow_and_goes_on_when_there_is_room() {
        let sim = SimDisk::new();
        let disk = sim.mount();
        let file = disk.create("a").unwrap();
        sim.set_capacity(Some(8));
        file.write_at(0, &[1; 8]).unwrap();
        assert_eq!(file.write_at(8, &[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.free_bytes().unwrap(), 0);
        sim.set_capacity(None);
        file.write_at(8, &[1]).unwrap();
    }

    #[test]
    fn syncs_fail_when_told_to_and_keep_failing() {
        let sim = SimDisk::new();
        let file = sim.mount().create("a").unwrap();
        sim.fail_syncs_after(1);
        file.sync().unwrap();
        assert!(file.sync().is_err());
        assert!(file.sync().is_err());
    }

    #[test]
    fn a_halted_disk_fails_every_call_until_the_next_boot() {
        let sim = SimDisk::new();
        let disk = sim.mount();
        sim.halt_after(1);
        let file = disk.create("a").unwrap();
        assert!(file.write_at(0, b"x").is_err());
        assert!(disk.list().is_err());
        sim.kill();
        sim.mount().create("b").unwrap();
    }
}
