//! One simulated flash device, with a volatile cache of its own. `devices.rs` has all devices of a pool.
//!
//! Keeps true:
//! - Reads see *live* bytes: every completed write. A power cut leaves *durable* bytes.
//! - A sync makes those writes durable that were complete when it was issued, and no others.
//! - At a power cut each write that is not durable, completed or in flight, is by itself kept, dropped, or torn into
//!   any subset of its 512-byte sectors. They land in any order.
//! - A failed sync may have lost any of the writes that it was for, and does not say which. A second sync that
//!   succeeds says nothing about them.
//! - A trim counts as a write of zeros. A device may ignore it.
//! - The engine must not have two writes to one place in flight at once, or a read and a write. Real devices promise
//!   nothing there, so this one reports a bug.

use std::collections::BTreeMap;

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Stream};
use headpond_format::decode_segment_head;
use headpond_timed::{PagedBytes, Rng};

/// The unit that a device writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// The fate of a write at its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteFate {
    /// It is done.
    Done,
    /// It fails; any subset of its sectors is written.
    Failed,
    /// It is acknowledged and never done.
    Lost,
    /// It is acknowledged and lands at another place.
    Misdirected(u64),
}

#[derive(Clone, Debug)]
struct Write {
    order: u64,
    offset: u64,
    data: Buf,
    /// The sectors that count, `None` for all. A failed write is there in part.
    sectors: Option<Vec<bool>>,
}

/// Where the segments of a device lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) start: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) slots: u64,
}

/// The device.
#[derive(Clone)]
pub(crate) struct SimFlash {
    live: PagedBytes,
    durable: PagedBytes,
    /// Completed but not durable, in the order of completion.
    unsynced: Vec<Write>,
    in_flight: BTreeMap<u64, (u64, Buf)>,
    reads: BTreeMap<u64, (u64, u64)>,
    syncs: BTreeMap<u64, u64>,
    completed: u64,
    layout: Option<Layout>,
    /// A segment of zeros.
    zeros: Option<Buf>,
    /// The stream of each segment, from the last head that was written to it.
    streams: Vec<Option<Stream>>,
    /// Segments that were opened.
    opened: u64,
}

impl SimFlash {
    /// A device of `bytes` zeros.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            live: PagedBytes::zeroed(bytes),
            durable: PagedBytes::zeroed(bytes),
            unsynced: Vec::new(),
            in_flight: BTreeMap::new(),
            reads: BTreeMap::new(),
            syncs: BTreeMap::new(),
            completed: 0,
            layout: None,
            zeros: None,
            streams: Vec::new(),
            opened: 0,
        }
    }

    /// Tells how the device is divided, so that faults can hit clean data only.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        self.layout = Some(layout);
        self.zeros = Some(BufMut::zeroed(layout.segment_bytes as usize).freeze());
        self.streams = vec![None; layout.slots as usize];
    }

    /// Where its segments lie.
    pub(crate) const fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// More bytes, all zeros, for so many more segments.
    pub(crate) fn grow(&mut self, segments: u64) {
        let Some(layout) = &mut self.layout else { return };
        layout.slots += segments;
        self.streams.resize(layout.slots as usize, None);
        let bytes = self.live.len() + (segments * layout.segment_bytes) as usize;
        self.live.resize(bytes);
        self.durable.resize(bytes);
    }

    /// Other bytes from here on: whatever was there counts no more.
    pub(crate) fn scribble_from(&mut self, offset: u64) {
        let mut junk = BufMut::zeroed(BLOCK);
        junk.fill(0x5a);
        let junk = junk.freeze();
        for block in offset / BLOCK_U64..self.bytes() / BLOCK_U64 {
            self.put(block * BLOCK_U64, &junk);
        }
        self.unsynced.retain(|write| write.offset < offset);
        self.in_flight.retain(|_, (at, _)| *at < offset);
    }

    /// Zeros in the first two blocks of each slot: no head of a life before, and no batch behind one.
    pub(crate) fn wipe_heads(&mut self) {
        let Some(Layout { start, slots, segment_bytes, .. }) = self.layout else { return };
        let zeros = BufMut::zeroed(2 * BLOCK).freeze();
        for slot in 0..slots {
            let at = start + slot * segment_bytes;
            let apart = |offset: u64, data: &Buf| offset + data.len() as u64 <= at || offset >= at + zeros.len() as u64;
            self.unsynced.retain(|write| apart(write.offset, &write.data));
            self.in_flight.retain(|_, (offset, data)| apart(*offset, data));
            self.put(at, &zeros);
        }
    }

    /// How many segments were opened since the device was made.
    pub(crate) const fn segments_opened(&self) -> u64 {
        self.opened
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.live.len() as u64
    }

    /// Writes and makes durable at once: for formatting.
    pub(crate) fn put(&mut self, offset: u64, data: &Buf) {
        apply(&mut self.live, offset, data, None);
        apply(&mut self.durable, offset, data, None);
        self.notice_head(offset);
    }

    fn check_range(&self, what: &str, offset: u64, len: usize) -> Result<(), String> {
        if !offset.is_multiple_of(BLOCK_U64)
            || !len.is_multiple_of(BLOCK)
            || len == 0
            || offset + len as u64 > self.bytes()
        {
            return Err(format!("flash {what} of {len} bytes at {offset}: unaligned, empty or beyond the device"));
        }
        Ok(())
    }

    /// A write is issued.
    pub(crate) fn start_write(&mut self, ticket: u64, offset: u64, data: Buf) -> Result<(), String> {
        self.check_range("write", offset, data.len())?;
        let end = offset + data.len() as u64;
        if let Some((other, _)) = self.in_flight.values().find(|(at, d)| *at < end && offset < at + d.len() as u64) {
            return Err(format!("two flash writes in flight to one place: at {offset} and at {other}"));
        }
        if let Some((at, _)) = self.reads.values().find(|(at, len)| *at < end && offset < at + len) {
            return Err(format!("flash write at {offset} while a read at {at} is in flight"));
        }
        self.notice_head_in(offset, &data);
        self.in_flight.insert(ticket, (offset, data));
        Ok(())
    }

    /// A write completes.
    pub(crate) fn finish_write(&mut self, ticket: u64, fate: WriteFate, rng: &mut Rng) {
        let Some((offset, data)) = self.in_flight.remove(&ticket) else { return };
        let (offset, sectors) = match fate {
            WriteFate::Done => (offset, None),
            WriteFate::Failed => (offset, Some(some_sectors(data.len(), rng))),
            WriteFate::Lost => return,
            WriteFate::Misdirected(elsewhere) => (elsewhere, None),
        };
        apply(&mut self.live, offset, &data, sectors.as_deref());
        self.completed += 1;
        self.unsynced.push(Write { order: self.completed, offset, data, sectors });
    }

    /// Bytes that are no longer needed become zeros, as most devices do it.
    pub(crate) fn trim(&mut self, offset: u64, len: u64) -> Result<(), String> {
        let end = offset + len;
        if end > self.bytes() {
            return Err(format!("flash trim of {len} bytes at {offset}: beyond the device"));
        }
        let written = self.in_flight.values().any(|(at, data)| *at < end && offset < at + data.len() as u64);
        let read = self.reads.values().any(|(at, len)| *at < end && offset < at + len);
        if written || read {
            return Err(format!("flash trim of {len} bytes at {offset} while I/O there is in flight"));
        }
        let Some(data) = self.zeros.as_ref().filter(|zeros| zeros.len() as u64 == len).cloned() else { return Ok(()) };
        apply(&mut self.live, offset, &data, None);
        self.completed += 1;
        self.unsynced.push(Write { order: self.completed, offset, data, sectors: None });
        Ok(())
    }

    /// A read is issued.
    pub(crate) fn start_read(&mut self, ticket: u64, offset: u64, len: u64) -> Result<(), String> {
        self.check_range("read", offset, len as usize)?;
        let end = offset + len;
        if let Some((at, _)) = self.in_flight.values().find(|(at, d)| *at < end && offset < at + d.len() as u64) {
            return Err(format!("flash read at {offset} while a write at {at} is in flight"));
        }
        self.reads.insert(ticket, (offset, len));
        Ok(())
    }

    /// A read completes.
    pub(crate) fn finish_read(&mut self, ticket: u64) -> Buf {
        let (offset, len) = self.reads.remove(&ticket).unwrap_or_default();
        self.read(offset, len as usize)
    }

    /// The bytes that a read finds.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Buf {
        self.live.read(offset, len)
    }

    /// A sync is issued.
    pub(crate) fn start_sync(&mut self, ticket: u64) {
        self.syncs.insert(ticket, self.completed);
    }

    /// A sync completes.
    pub(crate) fn finish_sync(&mut self, ticket: u64) {
        let Some(through) = self.syncs.remove(&ticket) else { return };
        let durable = &mut self.durable;
        self.unsynced.retain(|write| {
            let covered = write.order <= through;
            if covered {
                apply(durable, write.offset, &write.data, write.sectors.as_deref());
            }
            !covered
        });
    }

    /// A sync fails: some of the writes that it was for are lost from the device's cache.
    pub(crate) fn fail_sync(&mut self, ticket: u64, rng: &mut Rng) {
        let Some(through) = self.syncs.remove(&ticket) else { return };
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        for write in self.unsynced.drain(..) {
            let forgotten = write.order <= through && rng.chance(500);
            if forgotten { lost.push(write) } else { kept.push(write) }
        }
        self.unsynced = kept;
        for write in &lost {
            self.live.copy_range(&self.durable, write.offset, write.data.len());
        }
        for write in &self.unsynced {
            apply(&mut self.live, write.offset, &write.data, write.sectors.as_deref());
        }
    }

    /// Writes that a power cut may drop.
    pub(crate) fn unsynced_writes(&self) -> usize {
        self.unsynced.len() + self.in_flight.len()
    }

    /// The power fails.
    pub(crate) fn power_cut(&mut self, cut: Cut, rng: &mut Rng) {
        let mut loose: Vec<_> =
            self.unsynced.drain(..).map(|write| (write.offset, write.data, write.sectors)).collect();
        loose.extend(std::mem::take(&mut self.in_flight).into_values().map(|(at, data)| (at, data, None)));
        let last = loose.len().saturating_sub(1);
        let mut landed: Vec<_> = loose
            .into_iter()
            .enumerate()
            .filter_map(|(index, (offset, data, sectors))| {
                let all = vec![true; data.len() / SECTOR];
                let mut kept = match cut {
                    Cut::DropAll => return None,
                    Cut::KeepAll => all,
                    Cut::OnlyLast if index < last => return None,
                    Cut::OnlyLast => all,
                    Cut::TearLastFront | Cut::TearLastBack | Cut::TearLastEnd if index < last => all,
                    Cut::TearLastFront => (0..all.len()).map(|sector| sector == 0).collect(),
                    Cut::TearLastBack => (0..all.len()).map(|sector| sector > 0).collect(),
                    Cut::TearLastEnd => (0..all.len()).map(|sector| sector + 1 < all.len()).collect(),
                    Cut::Random => match rng.below(4) {
                        0 => return None,
                        1 => all,
                        _ => some_sectors(data.len(), rng),
                    },
                };
                if let Some(sectors) = sectors {
                    kept.iter_mut().zip(sectors).for_each(|(kept, there)| *kept &= there);
                }
                Some((offset, data, kept))
            })
            .collect();
        rng.shuffle(&mut landed);
        for (offset, data, kept) in &landed {
            apply(&mut self.durable, *offset, data, Some(kept));
        }
        self.live.clone_from(&self.durable);
        self.forget_requests();
    }

    /// The daemon dies and the device goes on. What was in flight may have reached the device, or a part of it, or
    /// not. Nothing completed is lost.
    pub(crate) fn daemon_killed(&mut self, rng: &mut Rng) {
        let mut tickets: Vec<_> = self.in_flight.keys().copied().collect();
        rng.shuffle(&mut tickets);
        for ticket in tickets {
            let fate = *rng.pick(&[WriteFate::Done, WriteFate::Failed, WriteFate::Lost]);
            self.finish_write(ticket, fate, rng);
        }
        self.forget_requests();
    }

    fn forget_requests(&mut self) {
        self.in_flight.clear();
        self.reads.clear();
        self.syncs.clear();
        for segment in 0..self.streams.len() {
            if let Some(layout) = self.layout {
                self.notice_head(layout.start + segment as u64 * layout.segment_bytes);
            }
        }
    }

    /// Keeps track of which segments hold clean data only.
    fn notice_head(&mut self, offset: u64) {
        let Some(layout) = self.layout else { return };
        let Some(inside) = offset.checked_sub(layout.start) else { return };
        if inside % layout.segment_bytes == 0 {
            let segment = (inside / layout.segment_bytes) as usize;
            let head = decode_segment_head(&self.live.read(offset, BLOCK));
            if let Some(stream) = self.streams.get_mut(segment) {
                *stream = head.ok().map(|(head, _)| head.stream);
            }
        }
    }

    /// A head on its way to a segment's start counts already: faults must not take a segment's new life for its old
    /// one.
    fn notice_head_in(&mut self, offset: u64, data: &[u8]) {
        let Some(layout) = self.layout else { return };
        let Some(inside) = offset.checked_sub(layout.start) else { return };
        let bytes = layout.segment_bytes;
        if inside % bytes == 0
            && let Some(stream) = self.streams.get_mut((inside / bytes) as usize)
        {
            *stream = decode_segment_head(data).ok().map(|(head, _)| head.stream);
            self.opened += u64::from(stream.is_some());
        }
    }

    fn stream_at(&self, offset: u64) -> Option<Stream> {
        let layout = self.layout?;
        let segment = offset.checked_sub(layout.start)? / layout.segment_bytes;
        *self.streams.get(segment as usize)?
    }

    /// Whether only clean data lies at `offset`: in a segment of the hot or the cold stream, but not in its head block.
    /// If the head is lost, that block still tells the segment's earlier life.
    pub(crate) fn is_clean_place(&self, offset: u64, len: usize) -> bool {
        let Some(layout) = self.layout else { return false };
        let at_head = offset.checked_sub(layout.start).is_none_or(|i| i % layout.segment_bytes == 0);
        !at_head
            && [offset, offset + len as u64 - 1]
                .iter()
                .all(|at| matches!(self.stream_at(*at), Some(Stream::Hot | Stream::Cold)))
    }

    /// A place, other than `offset`, at which a misdirected write of `len` bytes hits clean data only.
    pub(crate) fn other_clean_place(&self, offset: u64, len: usize, rng: &mut Rng) -> Option<u64> {
        (0..16).find_map(|_| {
            let place = rng.below(self.bytes() / BLOCK_U64) * BLOCK_U64;
            let apart = place + len as u64 <= offset || offset + len as u64 <= place;
            let fits = place + len as u64 <= self.bytes();
            let end = place + len as u64;
            let quiet = self.in_flight.values().all(|(at, d)| end <= *at || at + d.len() as u64 <= place);
            (apart && fits && quiet && self.is_clean_place(place, len)).then_some(place)
        })
    }

    /// Flips one bit. With `clean_only`, in a segment with clean data only, if there is one.
    pub(crate) fn rot(&mut self, clean_only: bool, rng: &mut Rng) -> Option<u64> {
        let start = self.layout.map_or(0, |layout| layout.start);
        let place = (0..64).find_map(|_| {
            let at = start + rng.below(self.bytes() - start);
            (!clean_only || self.is_clean_place(at, 1)).then_some(at)
        })?;
        let bit = 1 << rng.below(8);
        self.live.flip(place, bit);
        self.durable.flip(place, bit);
        Some(place)
    }
}

/// What a power cut keeps of the data that was not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Each write on its own: kept, dropped or torn.
    Random,
    /// Nothing.
    DropAll,
    /// Everything.
    KeepAll,
    /// The youngest write only: reordered before all others.
    OnlyLast,
    /// All, and of the youngest write only the first sector.
    TearLastFront,
    /// All, and of the youngest write all but the first sector.
    TearLastBack,
    /// All, and of the youngest write all but the last sector: of a batch, its head and most of its payload.
    TearLastEnd,
}

fn apply(pages: &mut PagedBytes, offset: u64, data: &Buf, sectors: Option<&[bool]>) {
    match sectors {
        None => pages.put(offset, data),
        Some(kept) if kept.iter().all(|kept| *kept) => pages.put(offset, data),
        Some(kept) => {
            for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                let at = index * SECTOR;
                pages.write(offset + at as u64, &data[at..at + SECTOR]);
            }
        }
    }
}

fn some_sectors(len: usize, rng: &mut Rng) -> Vec<bool> {
    let sectors = len / SECTOR;
    match rng.below(3) {
        // Cut off at a sector, from the front or from the back: most devices tear like this.
        0 => {
            let at = rng.below(sectors as u64 + 1) as usize;
            (0..sectors).map(|sector| sector < at).collect()
        }
        1 => {
            let at = rng.below(sectors as u64 + 1) as usize;
            (0..sectors).map(|sector| sector >= at).collect()
        }
        _ => (0..sectors).map(|_| rng.chance(500)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::BufMut;
    use std::collections::BTreeSet;

    fn block(byte: u8) -> Buf {
        BufMut::copy_of(&[byte; BLOCK]).freeze()
    }

    fn write(flash: &mut SimFlash, ticket: u64, at: u64, byte: u8, rng: &mut Rng) {
        flash.start_write(ticket, at * BLOCK_U64, block(byte)).unwrap();
        flash.finish_write(ticket, WriteFate::Done, rng);
    }

    #[test]
    fn a_sync_keeps_what_was_completed_before_it_was_issued_and_no_other_promise() {
        let mut rng = Rng::new(1);
        let mut later_lost = false;
        for _ in 0..100 {
            let mut flash = SimFlash::new(1 << 16);
            write(&mut flash, 1, 0, 1, &mut rng);
            flash.start_write(2, BLOCK_U64, block(2)).unwrap();
            flash.start_sync(3);
            flash.finish_write(2, WriteFate::Done, &mut rng);
            flash.finish_sync(3);
            flash.power_cut(Cut::Random, &mut rng);
            assert_eq!(flash.read(0, BLOCK)[..], [1; BLOCK]);
            later_lost |= flash.read(BLOCK_U64, BLOCK)[..] == [0; BLOCK];
        }
        assert!(later_lost, "a write that was in flight when the sync was issued is never lost");
    }

    #[test]
    fn unsynced_writes_are_kept_dropped_torn_and_reordered() {
        let mut rng = Rng::new(2);
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            let mut flash = SimFlash::new(1 << 16);
            write(&mut flash, 1, 0, 1, &mut rng);
            write(&mut flash, 2, 1, 2, &mut rng);
            write(&mut flash, 3, 0, 3, &mut rng);
            assert_eq!(flash.read(0, BLOCK)[..], [3; BLOCK], "reads see completed writes");
            flash.power_cut(Cut::Random, &mut rng);
            let state = |at: u64| {
                let bytes = flash.read(at * BLOCK_U64, BLOCK);
                if bytes.iter().all(|byte| *byte == bytes[0]) { i32::from(bytes[0]) } else { -1 }
            };
            seen.insert((state(0), state(1)));
        }
        for expected in [(0, 0), (3, 2), (0, 2), (3, 0), (1, 0), (1, 2), (-1, 0), (0, -1)] {
            assert!(seen.contains(&expected), "never happened: {expected:?}");
        }
    }

    #[test]
    fn a_tear_follows_sectors_and_a_kill_keeps_what_was_completed() {
        let mut rng = Rng::new(3);
        for _ in 0..100 {
            let mut flash = SimFlash::new(1 << 16);
            write(&mut flash, 1, 0, 1, &mut rng);
            flash.start_write(2, BLOCK_U64, block(2)).unwrap();
            flash.daemon_killed(&mut rng);
            assert_eq!(flash.read(0, BLOCK)[..], [1; BLOCK]);
            for sector in flash.read(BLOCK_U64, BLOCK).chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "torn inside a sector");
            }
        }
    }

    #[test]
    fn a_failed_sync_loses_writes_that_a_later_sync_does_not_bring_back() {
        let mut rng = Rng::new(4);
        let lost = (0..100).any(|_| {
            let mut flash = SimFlash::new(1 << 16);
            write(&mut flash, 1, 0, 1, &mut rng);
            flash.start_sync(2);
            flash.fail_sync(2, &mut rng);
            flash.start_sync(3);
            flash.finish_sync(3);
            flash.power_cut(Cut::KeepAll, &mut rng);
            flash.read(0, BLOCK)[..] == [0; BLOCK]
        });
        assert!(lost);
    }

    #[test]
    fn overlapping_requests_in_flight_are_reported() {
        let mut flash = SimFlash::new(1 << 16);
        flash.start_write(1, 0, block(1)).unwrap();
        assert!(flash.start_write(2, 0, block(2)).is_err());
        assert!(flash.start_read(3, 0, BLOCK_U64).is_err());
        assert!(flash.start_write(4, 100, block(1)).is_err());
        assert!(flash.start_write(5, 1 << 16, block(1)).is_err());
    }
}
