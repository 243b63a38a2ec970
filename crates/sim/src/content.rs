//! A file's content, as the model sees it: byte ranges, each with the write that it came from.
//!
//! Every write has its own number, and every byte of it is a function of that number and of the position. So 512
//! bytes anywhere, and often eight, tell their writer and their place: an old, foreign or misplaced byte never passes
//! for the right one. Zeros are the exception: some writers write them in whole runs of blocks. They are the same for
//! every writer, but never the bytes of a writer that writes other bytes there.

use headpond_base::{Buf, BufMut};
use headpond_timed::mix;

use crate::found::Found;

/// Names one write: of an application, of a foreigner at the origin, or a file's first content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WriterId(pub(crate) u32);

/// Words in a row that one writer may write alike: 512 bytes, the unit of packed records.
const ALIKE: u64 = 64;

/// Words in a row that some writers write as zeros, or not: 64 KiB, the largest packed record.
const ZEROS_ALIKE: u64 = 8192;

/// Whether `writer` writes zeros at word `index` of a file. The first writers, those of the shortest histories, never
/// do.
const fn is_blank(writer: WriterId, index: u64) -> bool {
    let some = writer.0 > 8 && writer.0 % 8 == 5;
    some && !(index / ZEROS_ALIKE + writer.0 as u64 / 8).is_multiple_of(3)
}

/// Flips bits in words that are not hashed, so that none is a small number.
const COUNTED: u64 = 0x5aa5_c33c_5aa5_c33c;

/// The step between neighbouring words that look like noise: the golden ratio's 64 bits. All its sums differ in most
/// bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The words of one run of `ALIKE`. 64 writers write words that pack well, or noise; the next 64 write words that
/// pack to next to nothing. So packed records have all sizes.
///
/// A run is written or compared in one short loop. The simulator spends its time in these loops, over every byte
/// written, and every byte read after a crash.
#[derive(Clone, Copy)]
enum Run {
    /// All the same.
    Same(u64),
    /// The word's index, with these bits flipped.
    Counted(u64),
    /// Steps of [`STEP`] from here on, of which no byte is like those of its neighbours.
    Stepped(u64),
}

impl Run {
    /// The run that has word `index` of what `writer` writes; of zeros for `None`.
    const fn of(writer: Option<WriterId>, index: u64) -> Self {
        let Some(writer) = writer else { return Self::Same(0) };
        if is_blank(writer, index) {
            return Self::Same(0);
        }
        let name = (writer.0 as u64) << 40;
        if writer.0 >> 6 & 1 == 1 {
            Self::Same(name ^ (index / ALIKE * ALIKE) ^ COUNTED)
        } else if writer.0.is_multiple_of(2) {
            let run = index / ALIKE;
            Self::Stepped(mix(run ^ name).wrapping_sub((run * ALIKE).wrapping_mul(STEP)))
        } else {
            Self::Counted(name ^ COUNTED)
        }
    }

    /// The eight bytes at word `index`, which must be in the run.
    const fn word(self, index: u64) -> u64 {
        match self {
            Self::Same(word) => word,
            Self::Counted(bits) => index ^ bits,
            Self::Stepped(base) => base.wrapping_add(index.wrapping_mul(STEP)),
        }
    }

    /// Writes whole words, the first of them `index`.
    fn fill(self, index: u64, out: &mut [u8]) {
        let words = out.as_chunks_mut().0.iter_mut().zip(index..);
        match self {
            Self::Same(word) => words.for_each(|(out, _)| *out = word.to_le_bytes()),
            Self::Counted(bits) => words.for_each(|(out, index)| *out = (index ^ bits).to_le_bytes()),
            Self::Stepped(_) => words.for_each(|(out, index)| *out = self.word(index).to_le_bytes()),
        }
    }

    /// Whether whole words, the first of them `index`, are those of the run. Without a branch for each word.
    fn is(self, index: u64, bytes: &[u8]) -> bool {
        let words = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let differences = match self {
            Self::Same(word) => words.fold(0, |all, found| all | found ^ word),
            Self::Counted(bits) => words.zip(index..).fold(0, |all, (found, index)| all | found ^ index ^ bits),
            Self::Stepped(_) => words.zip(index..).fold(0, |all, (found, index)| all | found ^ self.word(index)),
        };
        differences == 0
    }
}

/// Cuts `len` bytes from `offset` on into parts within one run: whole words, or bytes of one word. Returns each
/// part's start and length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let start = at;
        let whole = ((start / 8 / ALIKE + 1) * ALIKE * 8).min(end / 8 * 8);
        let next = if start.is_multiple_of(8) && whole > start { whole } else { (start / 8 + 1) * 8 };
        at = next.min(end);
        (start < end).then_some((start, (at - start) as usize))
    })
}

/// Fills `out` with what `writer` writes from byte `offset` on.
pub(crate) fn fill(writer: WriterId, offset: u64, out: &mut [u8]) {
    for (at, len) in parts(offset, out.len()) {
        let run = Run::of(Some(writer), at / 8);
        let out = &mut out[(at - offset) as usize..][..len];
        if len >= 8 {
            run.fill(at / 8, out);
        } else {
            let skip = (at % 8) as usize;
            out.copy_from_slice(&run.word(at / 8).to_le_bytes()[skip..skip + len]);
        }
    }
}

/// Where `bytes` first differ from what `writer` (or zeros, for `None`) has at `offset`.
fn first_difference(writer: Option<WriterId>, offset: u64, bytes: &[u8]) -> Option<u64> {
    parts(offset, bytes.len()).find_map(|(at, len)| {
        let run = Run::of(writer, at / 8);
        let bytes = &bytes[(at - offset) as usize..][..len];
        if len >= 8 && run.is(at / 8, bytes) {
            return None;
        }
        let differs = |(at, byte): &(u64, &u8)| run.word(at / 8).to_le_bytes()[(at % 8) as usize] != **byte;
        (at..).zip(bytes).find(differs).map(|(at, _)| at)
    })
}

/// Whether `bytes` at `offset` are what `writer` (or zeros, for `None`) has there.
pub(crate) fn is_from(writer: Option<WriterId>, offset: u64, bytes: &[u8]) -> bool {
    first_difference(writer, offset, bytes).is_none()
}

/// Where the found bytes of `from..to` first differ from those of `writer`.
fn found_difference(writer: Option<WriterId>, from: u64, to: u64, found: &Found) -> Option<u64> {
    found.parts(from, to).find_map(|(at, bytes)| first_difference(writer, at, bytes))
}

/// Whether the found bytes of `from..to` are those of `writer` (or zeros, for `None`).
pub(crate) fn is_found_from(writer: Option<WriterId>, from: u64, to: u64, found: &Found) -> bool {
    found_difference(writer, from, to, found).is_none()
}

/// A run of bytes by one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    start: u64,
    end: u64,
    writer: WriterId,
}

/// A change of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContentChange {
    /// A write.
    Write { offset: u64, len: u64, writer: WriterId },
    /// Writes of `len` bytes each, `stride` apart, as one.
    Together { offset: u64, len: u64, stride: u64, count: u64, writer: WriterId },
    /// Truncation or extension.
    Truncate { size: u64 },
    /// A range becomes zeros.
    Zero { offset: u64, len: u64, extend: bool },
    /// Space is reserved.
    Allocate { offset: u64, len: u64, extend: bool },
}

impl ContentChange {
    /// The ranges of several writes as one. Empty for other changes.
    pub(crate) fn places(&self) -> Vec<(u64, u64)> {
        let Self::Together { offset, len, stride, count, .. } = *self else { return Vec::new() };
        (0..count).map(|at| (offset + at * stride, offset + at * stride + len)).collect()
    }

    /// The range that it touches. A truncation touches everything.
    pub(crate) fn range(&self) -> (u64, u64) {
        match *self {
            Self::Write { offset, len, .. } | Self::Zero { offset, len, .. } | Self::Allocate { offset, len, .. } => {
                (offset, offset + len)
            }
            Self::Together { offset, len, stride, count, .. } => (offset, offset + stride * (count - 1) + len),
            Self::Truncate { .. } => (0, u64::MAX),
        }
    }
}

/// A file's content and size. Ranges without an extent are zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    /// In bytes.
    pub(crate) size: u64,
    /// The time that the last change set.
    pub(crate) mtime: i64,
    extents: Vec<Extent>,
}

impl Content {
    /// A file of `size` bytes, all by one writer.
    pub(crate) fn of(writer: WriterId, size: u64) -> Self {
        let mut content = Self::default();
        content.apply(&ContentChange::Write { offset: 0, len: size, writer }, 0);
        content
    }

    /// Makes the change.
    pub(crate) fn apply(&mut self, change: &ContentChange, mtime: i64) {
        self.mtime = mtime;
        match *change {
            ContentChange::Write { offset, len, writer } => {
                if len > 0 {
                    self.put(offset, offset + len, Some(writer));
                    self.size = self.size.max(offset + len);
                }
            }
            ContentChange::Together { writer, .. } => {
                for (start, end) in change.places() {
                    self.put(start, end, Some(writer));
                    self.size = self.size.max(end);
                }
            }
            ContentChange::Truncate { size } => {
                self.put(size, u64::MAX, None);
                self.size = size;
            }
            ContentChange::Zero { offset, len, extend } => {
                self.put(offset, offset + len, None);
                if extend {
                    self.size = self.size.max(offset + len);
                }
            }
            ContentChange::Allocate { offset, len, extend } => {
                if extend {
                    self.size = self.size.max(offset + len);
                }
            }
        }
    }

    /// Sets a range without touching the size.
    pub(crate) fn put(&mut self, start: u64, end: u64, writer: Option<WriterId>) {
        let mut kept = Vec::with_capacity(self.extents.len() + 2);
        for extent in &self.extents {
            if extent.start < start {
                kept.push(Extent { end: extent.end.min(start), ..*extent });
            }
        }
        if let Some(writer) = writer {
            match kept.last_mut() {
                Some(last) if last.end == start && last.writer == writer => last.end = end,
                _ => kept.push(Extent { start, end, writer }),
            }
        }
        for extent in &self.extents {
            if extent.end > end {
                let rest = Extent { start: extent.start.max(end), ..*extent };
                match kept.last_mut() {
                    Some(last) if last.end == rest.start && last.writer == rest.writer => last.end = rest.end,
                    _ => kept.push(rest),
                }
            }
        }
        self.extents = kept;
    }

    /// The runs of one writer (or zeros) that make up `start..end`.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64, Option<WriterId>)> {
        let mut pieces = Vec::new();
        let mut at = start;
        let first = self.extents.partition_point(|extent| extent.end <= start);
        for extent in &self.extents[first..] {
            if extent.start >= end {
                break;
            }
            if extent.start > at {
                pieces.push((at, extent.start, None));
            }
            pieces.push((extent.start.max(start), extent.end.min(end), Some(extent.writer)));
            at = extent.end.min(end);
        }
        if at < end {
            pieces.push((at, end, None));
        }
        pieces
    }

    /// Ranges that `other` has from other writers.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(u64, u64)> {
        let borders = |content: &Self| content.extents.iter().flat_map(|extent| [extent.start, extent.end]).collect();
        let mut cuts: Vec<u64> = borders(self);
        cuts.append(&mut borders(other));
        cuts.sort_unstable();
        let differs = |pair: &[u64]| {
            (pair[0] < pair[1] && self.writer_at(pair[0]) != other.writer_at(pair[0])).then_some((pair[0], pair[1]))
        };
        cuts.windows(2).filter_map(differs).collect()
    }

    /// The writer of the byte at `at`. None for zeros.
    pub(crate) fn writer_at(&self, at: u64) -> Option<WriterId> {
        let first = self.extents.partition_point(|extent| extent.end <= at);
        self.extents.get(first).filter(|extent| extent.start <= at).map(|extent| extent.writer)
    }

    /// Sets a range behind all that is set.
    pub(crate) fn put_behind(&mut self, start: u64, end: u64, writer: Option<WriterId>) {
        let Some(writer) = writer else { return };
        match self.extents.last_mut() {
            Some(last) if last.end == start && last.writer == writer => last.end = end,
            last => {
                assert!(last.is_none_or(|last| last.end <= start), "set in another order");
                self.extents.push(Extent { start, end, writer });
            }
        }
    }

    /// Whether anything but zeros was written there. Zeros do not tell their writer, or whether there was one.
    pub(crate) fn has_data(&self, start: u64, end: u64) -> bool {
        let shown = |from: u64, to: u64, writer: WriterId| {
            (from / 8 / ZEROS_ALIKE..=(to - 1) / 8 / ZEROS_ALIKE).any(|run| !is_blank(writer, run * ZEROS_ALIKE))
        };
        start < end
            && self.pieces(start, end).iter().any(|(from, to, writer)| writer.is_some_and(|by| shown(*from, *to, by)))
    }

    /// Where `found`, read at `offset`, first differs. A wrong length counts as a difference at the end of the
    /// shorter one.
    pub(crate) fn difference(&self, offset: u64, len: u64, found: &Found) -> Option<u64> {
        let end = self.size.min(offset + len).max(offset);
        let common = (end - offset).min(found.len());
        // The ends of runs first: they exclude most candidates.
        let pieces = self.pieces(offset, offset + common);
        for &(from, to, writer) in &pieces {
            if let Some(at) = found_difference(writer, from, to.min(from + 16), found) {
                return Some(at);
            }
        }
        for (from, to, writer) in pieces {
            if let Some(at) = found_difference(writer, from, to, found) {
                return Some(at);
            }
        }
        (found.len() != end - offset).then_some(offset + common)
    }

    /// Whether a file with exactly these bytes is this one.
    pub(crate) fn is(&self, found: &Found) -> bool {
        self.size == found.len() && self.difference(0, self.size, found).is_none()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> Buf {
        let mut bytes = BufMut::zeroed(self.size as usize);
        for (from, to, writer) in self.pieces(0, self.size) {
            if let Some(writer) = writer {
                fill(writer, from, &mut bytes[from as usize..to as usize]);
            }
        }
        bytes.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_timed::Rng;

    /// In two pieces, if there is enough for that.
    fn found(at: u64, bytes: &[u8]) -> Found {
        let whole = BufMut::copy_of(bytes).freeze();
        let middle = bytes.len() / 3;
        Found::at(at, vec![whole.slice(0..middle), whole.slice(middle..bytes.len())])
    }

    /// The oracle: one writer for each byte.
    fn by_hand(array: &mut Vec<Option<WriterId>>, change: &ContentChange) {
        let grow = |array: &mut Vec<Option<WriterId>>, size: u64| {
            if array.len() < size as usize {
                array.resize(size as usize, None);
            }
        };
        match *change {
            ContentChange::Write { offset, len, writer } => {
                grow(array, offset + len);
                array[offset as usize..(offset + len) as usize].fill(Some(writer));
            }
            ContentChange::Together { writer, .. } => {
                for (start, end) in change.places() {
                    by_hand(array, &ContentChange::Write { offset: start, len: end - start, writer });
                }
            }
            ContentChange::Truncate { size } => array.resize(size as usize, None),
            ContentChange::Zero { offset, len, extend } => {
                if extend {
                    grow(array, offset + len);
                }
                let end = array.len().min((offset + len) as usize);
                if (offset as usize) < end {
                    array[offset as usize..end].fill(None);
                }
            }
            ContentChange::Allocate { offset, len, extend } => {
                if extend {
                    grow(array, offset + len);
                }
            }
        }
    }

    #[test]
    fn extents_agree_with_an_array_of_writers() {
        let mut rng = Rng::new(3);
        let mut content = Content::default();
        let mut array = Vec::new();
        for step in 0..3000 {
            let (offset, len) = (rng.below(200), 1 + rng.below(60));
            let change = match rng.below(6) {
                0 => ContentChange::Truncate { size: offset },
                1 => ContentChange::Zero { offset, len, extend: rng.chance(500) },
                2 => ContentChange::Allocate { offset, len, extend: rng.chance(500) },
                3 => ContentChange::Together { offset, len, stride: len + 7, count: 3, writer: WriterId(step) },
                _ => ContentChange::Write { offset, len, writer: WriterId(step) },
            };
            content.apply(&change, 0);
            by_hand(&mut array, &change);
            let mut expected = vec![0; array.len()];
            for (at, writer) in array.iter().enumerate() {
                if let Some(writer) = writer {
                    fill(*writer, at as u64, &mut expected[at..=at]);
                }
            }
            assert_eq!(content.bytes()[..], expected);
            assert!(content.is(&found(0, &expected)));
            if let Some(at) = (!expected.is_empty()).then(|| rng.below(expected.len() as u64) as usize) {
                expected[at] ^= 1;
                assert_eq!(content.difference(0, 1000, &found(0, &expected)), Some(at as u64));
            }
        }
    }

    /// Oracle: what a writer writes, word by word, without runs.
    fn word(writer: WriterId, index: u64) -> u64 {
        if is_blank(writer, index) {
            return 0;
        }
        let tiny = writer.0 >> 6 & 1 == 1;
        let name = (u64::from(writer.0) << 40) ^ if tiny { index / ALIKE * ALIKE } else { index };
        if !tiny && writer.0.is_multiple_of(2) {
            let first = mix((u64::from(writer.0) << 40) ^ (index / ALIKE));
            return (0..index % ALIKE).fold(first, |word, _| word.wrapping_add(0x9e37_79b9_7f4a_7c15));
        }
        name ^ 0x5aa5_c33c_5aa5_c33c
    }

    #[test]
    fn contents_differ_where_an_array_of_writers_does() {
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            let contents: [_; 2] = std::array::from_fn(|_| {
                let (mut content, mut array) = (Content::default(), Vec::new());
                for _ in 0..6 {
                    let (offset, len, writer) = (rng.below(200), 1 + rng.below(60), WriterId(rng.below(3) as u32));
                    let zero = ContentChange::Zero { offset, len, extend: false };
                    let change = if rng.chance(300) { zero } else { ContentChange::Write { offset, len, writer } };
                    content.apply(&change, 0);
                    by_hand(&mut array, &change);
                }
                array.resize(300, None);
                (content, array)
            });
            let [(one, by_one), (other, by_other)] = &contents;
            let found: Vec<u64> = one.differences(other).into_iter().flat_map(|(from, to)| from..to).collect();
            let expected: Vec<u64> = (0..300).filter(|at| by_one[*at as usize] != by_other[*at as usize]).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn runs_are_written_and_compared_as_their_words_one_by_one() {
        let mut rng = Rng::new(4);
        for _ in 0..3000 {
            let (writer, offset, len) = (WriterId(rng.below(300) as u32), rng.below(200_000), 1 + rng.below(3000));
            let byte = |at: u64| word(writer, at / 8).to_le_bytes()[(at % 8) as usize];
            let expected: Vec<u8> = (offset..offset + len).map(byte).collect();
            let mut bytes = vec![1; len as usize];
            fill(writer, offset, &mut bytes);
            assert_eq!(bytes, expected, "{writer:?} at {offset}");
            assert_eq!(first_difference(Some(writer), offset, &bytes), None);
            let at = rng.below(len);
            bytes[at as usize] ^= 1 << rng.below(8);
            assert_eq!(first_difference(Some(writer), offset, &bytes), Some(offset + at));
            let zeros = expected.iter().position(|byte| *byte != 0).map(|at| offset + at as u64);
            assert_eq!(first_difference(None, offset, &expected), zeros);
        }
    }

    #[test]
    fn a_read_beyond_the_end_is_shorter_and_nothing_else() {
        let content = Content::of(WriterId(1), 100);
        let bytes = content.bytes();
        assert_eq!(content.difference(90, 50, &found(90, &bytes[90..])), None);
        assert_eq!(content.difference(90, 50, &found(90, &bytes[90..99])), Some(99));
        assert_eq!(content.difference(200, 50, &found(200, &[])), None);
        assert_eq!(content.difference(200, 50, &found(200, &[0])), Some(200));
    }
}
