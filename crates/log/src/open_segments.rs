//! The segments that are being filled.
//!
//! Invariants:
//! - A stream fills one batch at a time. So its entries and batches have one order, in however many segments they lie.
//! - The host stream may have several open segments. Each batch goes to one of them. Only the current segment has an
//!   open batch.
//! - Each other stream has one open segment.

use headpond_base::{SegmentId, Stream};

use crate::open::OpenSegment;

/// How the host stream is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillPolicy {
    /// How many segments may be open at once: 1 or more.
    pub host_segments: usize,
    /// Another segment is opened beside an open one only while more than this many are free.
    pub spare: usize,
    /// Blocks of payload that are worth a write of their own, before a sync.
    pub early_blocks: u32,
}

impl FillPolicy {
    /// With records of 16 KiB and the head this fills 128 KiB. Larger writes gain little.
    pub const EARLY_BLOCKS: u32 = 28;
}

impl Default for FillPolicy {
    fn default() -> Self {
        Self { host_segments: 1, spare: 0, early_blocks: Self::EARLY_BLOCKS }
    }
}

/// The open segments of one stream.
struct Rotation {
    /// One place for each segment that may be open.
    places: Vec<Option<OpenSegment>>,
    /// The place that takes the next batch.
    current: usize,
}

/// The open segments of all streams.
pub(crate) struct OpenSegments {
    streams: [Rotation; Stream::ALL.len()],
}

impl OpenSegments {
    /// No segment is open, and each stream may have one.
    pub(crate) fn new() -> Self {
        Self { streams: Stream::ALL.map(|_| Rotation { places: vec![None], current: 0 }) }
    }

    /// From now on the host stream may have `segments` open segments.
    ///
    /// # Panics
    /// When the host stream has an open segment, or `segments` is 0.
    pub(crate) fn host_at_once(&mut self, segments: usize) {
        assert!(segments > 0, "the host stream needs a segment");
        assert!(self.are_none(Stream::Host), "how many segments are open at once is said before the first");
        self.of_mut(Stream::Host).places.resize_with(segments, || None);
    }

    /// The host stream may have at least so many open segments from now on.
    pub(crate) fn widen(&mut self, segments: usize) {
        let places = &mut self.of_mut(Stream::Host).places;
        places.resize_with(segments.max(places.len()), || None);
    }

    const fn of(&self, stream: Stream) -> &Rotation {
        &self.streams[stream.index()]
    }

    const fn of_mut(&mut self, stream: Stream) -> &mut Rotation {
        &mut self.streams[stream.index()]
    }

    /// How many segments of a stream may be open at once.
    pub(crate) const fn at_once(&self, stream: Stream) -> usize {
        self.of(stream).places.len()
    }

    /// The current segment, if it is open.
    pub(crate) fn current(&self, stream: Stream) -> Option<&OpenSegment> {
        let Rotation { places, current } = self.of(stream);
        places[*current].as_ref()
    }

    /// The current segment, if it is open.
    pub(crate) fn current_mut(&mut self, stream: Stream) -> Option<&mut OpenSegment> {
        let Rotation { places, current } = self.of_mut(stream);
        places[*current].as_mut()
    }

    /// The place that takes the next batch.
    pub(crate) const fn current_place(&self, stream: Stream) -> usize {
        self.of(stream).current
    }

    /// The segment in a place, if it is open.
    pub(crate) fn at(&self, stream: Stream, place: usize) -> Option<&OpenSegment> {
        self.of(stream).places[place].as_ref()
    }

    /// The next batch goes to this place.
    ///
    /// # Panics
    /// When a batch is open, or there is no such place.
    pub(crate) fn go_to(&mut self, stream: Stream, place: usize) {
        assert!(self.current(stream).is_none_or(|open| open.batch.is_none()), "a batch is open in another segment");
        assert!(place < self.at_once(stream), "place {place} of {}", self.at_once(stream));
        self.of_mut(stream).current = place;
    }

    /// The next batch goes to the next place.
    pub(crate) const fn pass(&mut self, stream: Stream) {
        let at_once = self.at_once(stream);
        let rotation = self.of_mut(stream);
        rotation.current = (rotation.current + 1) % at_once;
    }

    /// Puts an opened segment into the current place.
    ///
    /// # Panics
    /// When that place is taken.
    pub(crate) fn put(&mut self, open: OpenSegment) {
        let Rotation { places, current } = self.of_mut(open.stream);
        let before = places[*current].replace(open);
        assert!(before.is_none(), "a segment is opened in place of one that is not sealed");
    }

    /// Removes the current segment. The caller seals it.
    pub(crate) fn take(&mut self, stream: Stream) -> Option<OpenSegment> {
        let Rotation { places, current } = self.of_mut(stream);
        places[*current].take()
    }

    /// Removes those segments of a stream that are on the list. The caller seals them.
    pub(crate) fn take_these(&mut self, stream: Stream, ids: &[SegmentId]) -> Vec<OpenSegment> {
        let places = self.of_mut(stream).places.iter_mut();
        places.filter_map(|place| place.take_if(|open| ids.contains(&open.id))).collect()
    }

    /// Removes all segments of a stream. The caller seals them.
    pub(crate) fn take_all(&mut self, stream: Stream) -> Vec<OpenSegment> {
        self.of_mut(stream).places.iter_mut().filter_map(Option::take).collect()
    }

    /// Whether a stream has no open segment.
    pub(crate) fn are_none(&self, stream: Stream) -> bool {
        self.of(stream).places.iter().all(Option::is_none)
    }

    /// All open segments.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OpenSegment> {
        self.streams.iter().flat_map(|rotation| rotation.places.iter().flatten())
    }
}
