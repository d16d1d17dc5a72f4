//! Table of one kind of record, ordered, with a digest that is kept up to date.
//!
//! The map shares its chunks between clones, so a snapshot of a million records is a handful of pointers.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use imbl::OrdMap;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::object::record::{RecordKey, Stored, encode, encode_onto};

thread_local! {
    /// The buffer for encoding rows for their digest, thousands of times a second. It grows to the largest record.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A sum of one hash per record: the order of changes does not matter, only the records.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct Digest(pub u128);

impl Digest {
    pub fn of_record(key: &RecordKey, value: &[u8]) -> Self {
        let mut bytes = key.to_bytes();
        let key_len = bytes.len();
        bytes.extend_from_slice(value);
        Self::of_bytes(key_len, &bytes)
    }

    /// `bytes` are the key and the value behind it.
    fn of_bytes(key_len: usize, bytes: &[u8]) -> Self {
        // The length of the key as the seed keeps (key, value) pairs apart that only differ in where the key ends.
        Self(xxh3_128_with_seed(bytes, key_len as u64))
    }

    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub struct Table<T: Stored> {
    rows: OrdMap<T::Key, Row<T>>,
    digest: Digest,
}

/// A record with its share of the digest, so that removing it needs no encoding: 16 bytes for every row.
struct Row<T> {
    record: Arc<T>,
    /// A [`Digest`] in halves, which need no padding.
    digest: [u64; 2],
}

impl<T: Stored> Table<T> {
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<T>>
    where
        Q: Ord + ?Sized,
        T::Key: Borrow<Q>,
    {
        self.rows.get(key).map(|row| &row.record)
    }

    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        Q: Ord + ?Sized,
        T::Key: Borrow<Q>,
    {
        self.rows.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row with the smallest key.
    pub fn first(&self) -> Option<&Arc<T>> {
        self.rows.get_min().map(|(_, row)| &row.record)
    }

    /// All rows in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<T>> + '_ {
        self.rows.values().map(|row| &row.record)
    }

    /// The rows in `range`, in key order.
    pub fn range<Q, R>(&self, range: R) -> impl DoubleEndedIterator<Item = &Arc<T>> + '_
    where
        Q: Ord + ?Sized,
        T::Key: Borrow<Q>,
        R: RangeBounds<Q>,
    {
        self.rows.range(range).map(|(_, row)| &row.record)
    }

    /// The rows after `key`, in key order: where a paged listing goes on.
    pub fn after<'a, Q>(&'a self, key: &Q) -> impl DoubleEndedIterator<Item = &'a Arc<T>> + 'a
    where
        Q: Ord + ?Sized,
        T::Key: Borrow<Q>,
    {
        self.range::<Q, _>((Bound::Excluded(key), Bound::Unbounded))
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Inserts a row and returns the one that it replaces.
    pub fn insert(&mut self, row: Arc<T>) -> Option<Arc<T>> {
        let (key, row) = (row.key(), Row::new(row));
        self.digest = self.digest.plus(row.digest());
        let before = self.rows.insert(key, row);
        self.subtract(before)
    }

    pub fn remove<Q>(&mut self, key: &Q) -> Option<Arc<T>>
    where
        Q: Ord + ?Sized,
        T::Key: Borrow<Q>,
    {
        let before = self.rows.remove(key);
        self.subtract(before)
    }

    /// The digest as it should be, from the rows alone.
    pub fn recomputed_digest(&self) -> Digest {
        self.iter().fold(Digest::default(), |sum, row| sum.plus(row_digest(row)))
    }

    /// Every row as a record, in key order.
    pub fn records(&self) -> impl Iterator<Item = (RecordKey, Vec<u8>)> + '_ {
        self.rows.iter().map(|(key, row)| (T::record_key(key), encode(row.record.as_ref())))
    }

    /// Keys and rows, to check that they agree.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&T::Key, &Arc<T>)> + '_ {
        self.rows.iter().map(|(key, row)| (key, &row.record))
    }

    fn subtract(&mut self, before: Option<Row<T>>) -> Option<Arc<T>> {
        let before = before?;
        self.digest = self.digest.minus(before.digest());
        Some(before.record)
    }
}

impl<T: Stored> Row<T> {
    fn new(record: Arc<T>) -> Self {
        let Digest(digest) = row_digest(&record);
        #[expect(clippy::cast_possible_truncation, reason = "the other half is kept, too")]
        Self { record, digest: [(digest >> 64) as u64, digest as u64] }
    }

    fn digest(&self) -> Digest {
        let [high, low] = self.digest;
        Digest(u128::from(high) << 64 | u128::from(low))
    }
}

fn row_digest<T: Stored>(row: &Arc<T>) -> Digest {
    let key = T::record_key(&row.key()).to_bytes();
    let mut bytes = SCRATCH.take();
    bytes.clear();
    bytes.extend_from_slice(&key);
    let bytes = encode_onto(row.as_ref(), bytes);
    let digest = Digest::of_bytes(key.len(), &bytes);
    SCRATCH.set(bytes);
    digest
}

// By hand: a derived one would require that T can be cloned.
impl<T> Clone for Row<T> {
    fn clone(&self) -> Self {
        Self { record: Arc::clone(&self.record), digest: self.digest }
    }
}

impl<T: Stored> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self { rows: self.rows.clone(), digest: self.digest }
    }
}

impl<T: Stored> Default for Table<T> {
    fn default() -> Self {
        Self { rows: OrdMap::new(), digest: Digest::default() }
    }
}

impl<T: Stored> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} rows, {})", self.len(), self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::slot::FreeSlot;

    fn table(indices: &[u32]) -> Table<FreeSlot> {
        let mut table = Table::default();
        for &index in indices {
            table.insert(Arc::new(FreeSlot { index, next_generation: 2 }));
        }
        table
    }

    fn indices<'a>(rows: impl Iterator<Item = &'a Arc<FreeSlot>>) -> Vec<u32> {
        rows.map(|row| row.index).collect()
    }

    #[test]
    fn rows_are_ordered_by_key() {
        let table = table(&[5, 1, 9]);
        assert_eq!(indices(table.iter()), [1, 5, 9]);
        assert_eq!(indices(table.range(5..)), [5, 9]);
        assert_eq!(indices(table.after(&5)), [9]);
        assert_eq!(indices(table.iter().rev()), [9, 5, 1]);
        assert_eq!(table.first().map(|row| row.index), Some(1));
    }

    #[test]
    fn the_digest_depends_on_the_rows_and_not_on_their_history() {
        let mut winding = table(&[9, 7, 1, 5]);
        winding.remove(&7);
        winding.insert(Arc::new(FreeSlot { index: 5, next_generation: 3 }));
        assert_ne!(winding.digest(), table(&[1, 5, 9]).digest());
        winding.insert(Arc::new(FreeSlot { index: 5, next_generation: 2 }));
        assert_eq!(winding.digest(), table(&[1, 5, 9]).digest());
        assert_eq!(winding.digest(), winding.recomputed_digest());
        assert_eq!(table(&[]).digest(), Digest::default());
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut table = table(&[1]);
        let snapshot = table.clone();
        assert!(table.remove(&1).is_some() && table.remove(&1).is_none());
        assert_eq!((table.len(), snapshot.len()), (0, 1));
        assert_eq!(format!("{}", Digest(0xab)), "000000000000000000000000000000ab");
    }
}
