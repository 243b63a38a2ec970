//! What a mount was like: rows of numbers and events, in a small area of the pool.
//!
//! The area is in the gap between the checkpoint areas and the first segment, if that has room ([`Geometry::history`]).
//! Nothing else of the pool refers to it. Invariants:
//! - Each row and each event carries a checksum over the pool, its ring, its place and its bytes. What does not match
//!   does not exist: a torn write, another pool's row, or bytes that were never written.
//! - A row's time decides its place, an event's number its. So no pointer can be wrong, and a row of the next round
//!   takes the place of the one before.
//! - None lies over a sector's end, so a device that tears writes between sectors leaves each as it was or as it is.

use headpond_base::{BLOCK, PoolId};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::{Geometry, bytes_checksum};

/// Bytes of the area.
pub const HISTORY_BYTES: usize = 256 << 10;

/// Numbers of a row.
pub const HISTORY_VALUES: usize = 28;

const ROW: usize = 64;
const EVENT: usize = 128;
const TEXT: usize = EVENT - 16;

/// What checksums begin with. It changes with each change of the layout or of a number's meaning: older rows are lost.
const MAGIC: &[u8; 8] = b"HPNDhis1";

/// A ring of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryRing {
    /// Rows of 10 seconds: the last four hours.
    Fine,
    /// Rows of 5 minutes: the last week.
    Coarse,
}

/// Blocks of the rings, in their order in the area.
const FINE_BLOCKS: usize = 23;
const COARSE_BLOCKS: usize = 33;
const EVENT_BLOCKS: usize = 8;
const _: () = assert!((FINE_BLOCKS + COARSE_BLOCKS + EVENT_BLOCKS) * BLOCK == HISTORY_BYTES);
const _: () = assert!(size_of::<RawRow>() == ROW && size_of::<RawEvent>() == EVENT);

/// Events that are kept.
pub const HISTORY_EVENTS: u32 = (EVENT_BLOCKS * BLOCK / EVENT) as u32;

/// The number of events of a kind is up to the writer. Other numbers are of a later version, and have only a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEvent {
    /// Its number, from 1.
    pub number: u32,
    /// When it was, or when it was last, in seconds since 1970.
    pub time: u32,
    /// Its kind.
    pub kind: u8,
    /// How often it was.
    pub count: u16,
    /// What it was. A longer text is cut.
    pub text: String,
}

/// A row: its time, and its numbers, which are kept to one part in two thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryRow {
    /// Its begin, in seconds since 1970: a multiple of the ring's step.
    pub time: u32,
    /// Its numbers.
    pub values: [u64; HISTORY_VALUES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRow {
    checksum: U32,
    time: U32,
    values: [U16; HISTORY_VALUES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawEvent {
    checksum: U32,
    number: U32,
    time: U32,
    kind: u8,
    len: u8,
    count: U16,
    text: [u8; TEXT],
}

impl HistoryRing {
    /// Seconds of a row.
    #[must_use]
    pub const fn step(self) -> u32 {
        match self {
            Self::Fine => 10,
            Self::Coarse => 300,
        }
    }

    /// Rows of the ring.
    #[must_use]
    pub const fn rows(self) -> u32 {
        let blocks = match self {
            Self::Fine => FINE_BLOCKS,
            Self::Coarse => COARSE_BLOCKS,
        };
        (blocks * BLOCK / ROW) as u32
    }

    const fn first_block(self) -> usize {
        match self {
            Self::Fine => 0,
            Self::Coarse => FINE_BLOCKS,
        }
    }

    const fn place(self, time: u32) -> usize {
        self.first_block() * BLOCK + (time / self.step() % self.rows()) as usize * ROW
    }
}

const fn place_of_event(number: u32) -> usize {
    (FINE_BLOCKS + COARSE_BLOCKS) * BLOCK + (number % HISTORY_EVENTS) as usize * EVENT
}

impl Geometry {
    /// Where the history lies, in bytes. None if the gap before the first segment has no room for it.
    #[must_use]
    pub const fn history(&self) -> Option<u64> {
        let end_of_areas = self.checkpoint_start(1) + self.area_bytes;
        if end_of_areas + HISTORY_BYTES as u64 <= self.segments_start {
            Some(self.segments_start - HISTORY_BYTES as u64)
        } else {
            None
        }
    }

    /// The same with room for a history: the first segment begins later, if it has to.
    #[must_use]
    pub fn with_history(self) -> Self {
        if self.history().is_some() {
            return self;
        }
        let later = u64::from(self.segment_bytes).min(1 << 20);
        let segments_start = self.segments_start + later;
        let segments = self.pool_bytes.saturating_sub(segments_start) / u64::from(self.segment_bytes);
        Self { segments_start, segments: u32::try_from(segments).unwrap_or(self.segments), ..self }
    }
}

/// The area in memory, as it is on flash.
pub struct HistoryArea {
    pool: PoolId,
    bytes: Vec<u8>,
    changed: [bool; HISTORY_BYTES / BLOCK],
}

impl HistoryArea {
    /// An empty one.
    #[must_use]
    pub fn new(pool: PoolId) -> Self {
        Self { pool, bytes: vec![0; HISTORY_BYTES], changed: [false; HISTORY_BYTES / BLOCK] }
    }

    /// The area as it was read. Bytes that are missing are empty.
    #[must_use]
    pub fn read(pool: PoolId, found: &[u8]) -> Self {
        let mut area = Self::new(pool);
        let there = found.len().min(HISTORY_BYTES);
        area.bytes[..there].copy_from_slice(&found[..there]);
        area
    }

    fn checksum(&self, place: usize, content: &[u8]) -> u32 {
        let mut bound = [0; 8 + 16 + 4 + EVENT];
        bound[..8].copy_from_slice(MAGIC);
        bound[8..24].copy_from_slice(&self.pool.0);
        bound[24..28].copy_from_slice(&u32::try_from(place).unwrap_or(u32::MAX).to_le_bytes());
        bound[28..28 + content.len()].copy_from_slice(content);
        bytes_checksum(&bound[..28 + content.len()])
    }

    fn put(&mut self, place: usize, raw: &mut [u8]) {
        let checksum = self.checksum(place, &raw[4..]);
        raw[..4].copy_from_slice(&checksum.to_le_bytes());
        self.bytes[place..place + raw.len()].copy_from_slice(raw);
        self.changed[place / BLOCK] = true;
    }

    /// The bytes of what lies at a place, if they are intact.
    fn intact(&self, place: usize, len: usize) -> Option<&[u8]> {
        let bytes = &self.bytes[place..place + len];
        (bytes[..4] == self.checksum(place, &bytes[4..]).to_le_bytes()).then_some(bytes)
    }

    /// Puts a row in its place.
    pub fn put_row(&mut self, ring: HistoryRing, row: &HistoryRow) {
        let values = row.values.map(|value| U16::new(short(value)));
        let mut raw = RawRow { checksum: U32::ZERO, time: row.time.into(), values };
        self.put(ring.place(row.time), raw.as_mut_bytes());
    }

    /// The row of a time.
    #[must_use]
    pub fn row(&self, ring: HistoryRing, time: u32) -> Option<HistoryRow> {
        let place = ring.place(time);
        let raw = RawRow::read_from_bytes(self.intact(place, ROW)?).ok()?;
        let row = HistoryRow { time: raw.time.get(), values: raw.values.map(|value| long(value.get())) };
        (row.time == time).then_some(row)
    }

    /// The rows from one time to another, both included, in order.
    pub fn rows(&self, ring: HistoryRing, from: u32, to: u32) -> impl Iterator<Item = HistoryRow> + '_ {
        let (step, last) = (ring.step(), to / ring.step());
        let first = (from.div_ceil(step)).max((last + 1).saturating_sub(ring.rows()));
        (first..=last).filter_map(move |number| self.row(ring, number * step))
    }

    /// Puts an event in its place.
    pub fn put_event(&mut self, event: &HistoryEvent) {
        let mut raw = RawEvent::new_zeroed();
        (raw.number, raw.time, raw.count) = (event.number.into(), event.time.into(), event.count.into());
        raw.kind = event.kind;
        let text = cut(&event.text);
        raw.text[..text.len()].copy_from_slice(text);
        raw.len = u8::try_from(text.len()).unwrap_or(0);
        self.put(place_of_event(event.number), raw.as_mut_bytes());
    }

    /// All events, in the order of their numbers.
    #[must_use]
    pub fn events(&self) -> Vec<HistoryEvent> {
        let mut events: Vec<_> = (0..HISTORY_EVENTS).filter_map(|slot| self.event(slot)).collect();
        events.sort_by_key(|event| event.number);
        events
    }

    fn event(&self, slot: u32) -> Option<HistoryEvent> {
        let raw = RawEvent::read_from_bytes(self.intact(place_of_event(slot), EVENT)?).ok()?;
        let text = String::from_utf8(raw.text.get(..usize::from(raw.len))?.to_vec()).ok()?;
        let (number, time, count) = (raw.number.get(), raw.time.get(), raw.count.get());
        // A forged number would leave none for the next one.
        let fits = number % HISTORY_EVENTS == slot && (1..u32::MAX / 2).contains(&number);
        fits.then_some(HistoryEvent { number, time, kind: raw.kind, count, text })
    }

    /// All blocks, each with its offset in the area: for a device that has nothing of it, or something older.
    pub fn take_all(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.changed.fill(true);
        self.take_changed()
    }

    /// The blocks that changed since the last call, each with its offset in the area.
    pub fn take_changed(&mut self) -> Vec<(u64, Vec<u8>)> {
        let changed = std::mem::replace(&mut self.changed, [false; HISTORY_BYTES / BLOCK]);
        let blocks = self.bytes.chunks_exact(BLOCK).enumerate().zip(changed);
        blocks.filter(|(_, changed)| *changed).map(|((at, block), _)| ((at * BLOCK) as u64, block.to_vec())).collect()
    }
}

/// As much of a text as an event has room for.
fn cut(text: &str) -> &[u8] {
    let end = (0..=TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text.as_bytes()[..end.unwrap_or(0)]
}

/// Bits of a number that are kept, without the leading one.
const KEPT: u32 = 10;

/// A number in sixteen bits: as it is below 2048, else its leading eleven bits, rounded, and how many follow.
fn short(value: u64) -> u16 {
    let follow = (u64::BITS - value.leading_zeros()).saturating_sub(KEPT + 1);
    if follow == 0 {
        return u16::try_from(value).unwrap_or(0);
    }
    let rounded = (value >> follow) + (value >> (follow - 1) & 1);
    // Rounded up to a power of two, it carries into the count of bits that follow, as it has to.
    u16::try_from((u64::from(follow) << KEPT) + rounded).unwrap_or(u16::MAX)
}

fn long(short: u16) -> u64 {
    let short = u64::from(short);
    if short < 2 << KEPT {
        return short;
    }
    let follow = (short >> KEPT) - 1;
    let leading = short - (follow << KEPT);
    leading.checked_shl(u32::try_from(follow).unwrap_or(0)).filter(|_| follow <= 53).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId([7; 16]);

    fn row(time: u32, value: u64) -> HistoryRow {
        HistoryRow { time, values: [value; HISTORY_VALUES] }
    }

    #[test]
    fn numbers_are_kept_to_one_part_in_two_thousand_and_small_ones_as_they_are() {
        for value in 0..2048 {
            assert_eq!(long(short(value)), value);
        }
        for value in [2048, 2049, 4095, 4096, 1_000_003, (1 << 40) - 1, (1 << 53) + 12_345, u64::MAX / 3, u64::MAX] {
            let kept = long(short(value));
            assert!(kept.abs_diff(value) <= value / 2048, "{value} is kept as {kept}");
        }
        assert!((0..u16::MAX).all(|code| long(code) <= long(code + 1)), "larger codes are larger numbers");
    }

    #[test]
    fn rows_come_back_by_time_and_the_next_round_takes_their_place() {
        let mut area = HistoryArea::new(POOL);
        let start = 1_795_000_000;
        let rows = HistoryRing::Fine.rows();
        for number in 0..rows + 5 {
            area.put_row(HistoryRing::Fine, &row(start + number * 10, u64::from(number)));
        }
        let found: Vec<_> = area.rows(HistoryRing::Fine, 0, start + (rows + 4) * 10).collect();
        assert_eq!(found.len(), rows as usize);
        assert_eq!((found[0].time, found[0].values[3]), (start + 50, 5));
        assert_eq!(area.row(HistoryRing::Fine, start), None, "its place is taken");
        assert_eq!(area.rows(HistoryRing::Coarse, 0, u32::MAX).count(), 0);
        assert!(rows * HistoryRing::Fine.step() >= 4 * 3600);
        assert!(HistoryRing::Coarse.rows() * HistoryRing::Coarse.step() >= 7 * 86_400);
    }

    #[test]
    fn damage_and_foreign_bytes_cost_only_the_rows_that_they_hit() {
        let mut area = HistoryArea::new(POOL);
        (0..100).for_each(|number| area.put_row(HistoryRing::Coarse, &row(300 * number, 9)));
        let changed = area.take_changed();
        assert!(changed.len() == 2 && area.take_changed().is_empty());
        let mut bytes = vec![0; HISTORY_BYTES];
        for (at, block) in &changed {
            bytes[usize::try_from(*at).unwrap()..][..BLOCK].copy_from_slice(block);
        }
        let count = |bytes: &[u8], pool| HistoryArea::read(pool, bytes).rows(HistoryRing::Coarse, 0, 1 << 30).count();
        let all = |bytes: &[u8], pool| {
            (0..100).filter(|n| HistoryArea::read(pool, bytes).row(HistoryRing::Coarse, 300 * n).is_some()).count()
        };
        assert_eq!((all(&bytes, POOL), all(&bytes, PoolId([8; 16]))), (100, 0));
        assert_eq!(count(&bytes[..10], POOL), 0, "short");
        // A sector that was not written, and a block that went to the place of another.
        let first = FINE_BLOCKS * BLOCK;
        bytes[first + 512..first + 1024].fill(0);
        assert_eq!(all(&bytes, POOL), 92);
        bytes.copy_within(first..first + BLOCK, first + BLOCK);
        assert_eq!(all(&bytes, POOL), 56);
        assert_eq!(HistoryArea::read(POOL, &vec![0xff; HISTORY_BYTES]).events(), []);
    }

    #[test]
    fn the_last_events_are_kept_with_their_texts() {
        let mut area = HistoryArea::new(POOL);
        let event = |number, text: &str| HistoryEvent { number, time: 5, kind: 1, count: 1, text: text.to_owned() };
        for number in 1..=HISTORY_EVENTS + 3 {
            area.put_event(&event(number, "flush-period: 5m -> 10s"));
        }
        area.put_event(&event(HISTORY_EVENTS + 4, &"é".repeat(200)));
        let found = area.events();
        assert_eq!(found.len(), HISTORY_EVENTS as usize);
        assert_eq!((found[0].number, found[0].text.as_str()), (5, "flush-period: 5m -> 10s"));
        assert_eq!(found[255].text, "é".repeat(56), "cut between letters");
    }

    #[test]
    fn a_new_pool_of_any_size_has_room_and_the_room_is_nobody_elses() {
        for bytes in [64 << 20, 65 << 20, 1 << 30, 10 << 30, 200 << 30, (3 << 40) + 4096] {
            let plain = Geometry::for_bytes(bytes).unwrap();
            let geometry = plain.with_history();
            let start = geometry.history().unwrap();
            assert!(start >= geometry.checkpoint_start(1) + geometry.area_bytes);
            assert!(start + HISTORY_BYTES as u64 <= geometry.segments_start);
            assert!(geometry.segments_end() <= bytes && geometry.segments + 1 >= plain.segments);
            assert_eq!(geometry.with_history(), geometry);
        }
    }
}
