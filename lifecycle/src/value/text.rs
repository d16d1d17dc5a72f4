//! Strings that are cheap to clone, and a pool that keeps one copy of each recurring one.
//!
//! A fleet repeats itself: a million nodes carry the same few thousand label keys, condition reasons and kernel
//! versions. Sharing them keeps a node within its memory budget.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use arcstr::ArcStr;
use imbl::OrdMap;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

/// An immutable string behind a shared pointer.
///
/// The pointer is thin on purpose: a node holds some sixty texts, most of them shared with other nodes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(ArcStr);

/// A [`Text`] of a constant: part of the program, so it is not allocated, counted or pooled.
macro_rules! fixed {
    ($text:expr) => {
        const { $crate::value::text::Text::of_program(arcstr::literal!($text)) }
    };
}
pub(crate) use fixed;

impl Text {
    /// See [`fixed`].
    pub(crate) const fn of_program(text: ArcStr) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// At most `max` bytes of `text`, cut at a character boundary and marked with `...` when cut. Messages that quote
    /// what clients send are stored, so the quotes must be bounded.
    pub fn clipped(text: &str, max: usize) -> Self {
        if text.len() <= max {
            return Self::from(text);
        }
        let cut = text.floor_char_boundary(max.saturating_sub(3));
        Self::from(format!("{}...", &text[..cut]))
    }

    /// Becomes a copy of its own. Long-lived texts must not lie between short-lived ones: a page of memory is given
    /// back only when nothing in it is in use.
    pub(crate) fn detach(&mut self) {
        *self = Self::from(self.as_str());
    }

    /// A text that is part of the program, such as the empty one, is not counted and costs nothing, so it counts as
    /// held by many.
    fn holders(&self) -> usize {
        ArcStr::strong_count(&self.0).unwrap_or(usize::MAX)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ArcStr::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(ArcStr::from(text))
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Cow<'_, str>> for Text {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(text.as_ref())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::from(text))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Below this many entries a sweep is not worth its walk.
const SWEEP_FLOOR: usize = 1024;

/// Keeps one copy of each string it is shown. It is no part of the state: two states that differ only in their pools
/// are equal.
///
/// It is bounded by what is in use: once it holds twice what was alive after the last sweep, it lets go of every
/// string that has no other holder.
#[derive(Debug, Clone, Default)]
pub struct Interner {
    /// Texts by their hashes, which lie side by side in memory: comparing the texts themselves would read a dozen
    /// others from all over the memory. Of two texts with the same hash only the first is pooled.
    pool: OrdMap<u64, Text>,
    live: usize,
}

impl Interner {
    /// Replaces `text` by its pooled copy. If there is none yet, `text` becomes it.
    pub fn share(&mut self, text: &mut Text) {
        // Held by a message, by this object and by another holder: shared already, most likely through this pool.
        if text.holders() <= 2 {
            self.take_in(text);
        }
    }

    /// As [`Interner::share`], for texts from outside: however many holders a text has, none got it from the pool.
    pub fn take_in(&mut self, text: &mut Text) {
        if text.is_empty() {
            return;
        }
        let hash = xxh3_64(text.as_bytes());
        if let Some(pooled) = self.pool.get(&hash) {
            if pooled == text {
                *text = pooled.clone();
            }
            return;
        }
        if self.pool.len() >= 2 * self.live.max(SWEEP_FLOOR) {
            self.sweep();
        }
        text.detach();
        self.pool.insert(hash, text.clone());
    }

    pub fn len(&self) -> usize {
        self.pool.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pool.is_empty()
    }

    fn sweep(&mut self) {
        let held = self.pool.iter().filter(|(_, text)| text.holders() > 1);
        self.pool = held.map(|(hash, text)| (*hash, text.clone())).collect();
        self.live = self.pool.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_texts_are_not_pooled() {
        let (mut pool, mut text) = (Interner::default(), fixed!("NodeStatusUnknown"));
        pool.share(&mut text);
        assert_eq!((pool.len(), text.as_str()), (0, "NodeStatusUnknown"));
        pool.share(&mut Text::from("NodeStatusUnknown"));
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn a_text_takes_one_pointer() {
        assert_eq!(size_of::<Option<Text>>(), 8);
    }

    #[test]
    fn the_empty_text_is_shared() {
        assert!(ArcStr::ptr_eq(&Text::default().0, &Text::from("").0));
    }

    #[test]
    fn clipping_respects_characters_and_marks_the_omission() {
        let cases =
            [("short", 8, "short"), ("exactly8", 8, "exactly8"), ("123456789", 8, "12345..."), ("ééééé", 8, "éé...")];
        for (text, max, expected) in cases {
            assert_eq!(Text::clipped(text, max), expected);
        }
    }

    #[test]
    fn equal_texts_share_one_copy() {
        let mut interner = Interner::default();
        let (mut first, mut second) = (Text::from("zone-a"), Text::from("zone-a"));
        interner.share(&mut first);
        interner.share(&mut second);
        assert!(ArcStr::ptr_eq(&first.0, &second.0));
        assert_eq!(interner.len(), 1);
    }

    #[test]
    fn texts_from_outside_are_pooled_even_if_they_are_shared_already() {
        let mut interner = Interner::default();
        let (mut first, mut second) = (Text::from("zone-a"), Text::from("zone-a"));
        let holders = [first.clone(), first.clone(), second.clone(), second.clone()];
        interner.take_in(&mut first);
        interner.take_in(&mut second);
        assert!(ArcStr::ptr_eq(&first.0, &second.0));
        assert!(holders.iter().all(|held| !ArcStr::ptr_eq(&held.0, &first.0)));
    }

    #[test]
    fn unused_texts_are_dropped_from_the_pool() {
        let mut interner = Interner::default();
        let mut kept = Text::from("kept");
        interner.share(&mut kept);
        for number in 0..10 * SWEEP_FLOOR {
            interner.share(&mut Text::from(format!("passing-{number}")));
        }
        assert!(interner.len() <= 2 * SWEEP_FLOOR);
        let mut again = Text::from("kept");
        interner.share(&mut again);
        assert!(ArcStr::ptr_eq(&kept.0, &again.0));
    }
}
