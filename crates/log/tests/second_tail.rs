//! The second tail: what a log leaves in memory when its process dies, at any store.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod start;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headpond_base::{BLOCK, Block, Buf, Class, MemberId, ObjectId, Sequence, Stream};
use headpond_format::{Entry, Geometry, decode_batch};
use headpond_log::{DataRecord, LeftError, Log, LogIo, SecondTail, TailSlots, WriteId, left_by};

/// A batch with its entries.
type Batch = (Buf, Vec<(Sequence, Entry)>);

/// Memory that outlives a log.
struct Memory {
    slots: TailSlots,
    words: &'static [AtomicU64],
    bytes: Vec<&'static mut [u8]>,
}

impl Memory {
    fn new(slots: TailSlots) -> Self {
        let words = (0..slots.words()).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let room = vec![0; slots.bytes() + BLOCK].leak();
        let skip = room.as_ptr().align_offset(BLOCK);
        Self { slots, words, bytes: slots.split(&mut room[skip..]) }
    }

    /// A log that survives here, and the way to what it leaves.
    fn log(self) -> (Log, impl FnOnce() -> Self) {
        let Self { slots, words, bytes } = self;
        let tail = SecondTail::new(words, slots, bytes);
        let lender = tail.lender();
        let mut log = log();
        log.survive_in(tail);
        (log, move || Self { slots, words, bytes: lender.take_back().expect("the log is gone") })
    }

    /// The batches here, with their entries.
    fn left(&self) -> Vec<Batch> {
        let left = left_by(self.words, &self.bytes).expect("a layout that is known");
        assert_eq!(left.unreadable, 0);
        let read = |write: headpond_log::LeftWrite| {
            let entries = Entry::decode_all(decode_batch(&write.data).expect("a head").1).expect("entries");
            assert_eq!(write.pool, start::POOL);
            (write.data, entries)
        };
        left.writes.into_iter().map(read).collect()
    }
}

fn log() -> Log {
    Log::new(start::empty(Geometry::with_segment_bytes(16 << 20, 2 << 20)))
}

fn record(first: u64, blocks: u32) -> DataRecord {
    let first = Block(first);
    let (object, class) = (ObjectId(1), Class::EVERYBODY);
    DataRecord { stream: Stream::Host, object, first, blocks, dirty: true, grown: None, class, whole: true }
}

fn append(log: &mut Log, first: u64, blocks: u32) -> Sequence {
    log.append_data(record(first, blocks), |payload| payload.fill(first as u8)).sequence
}

fn writes(log: &mut Log) -> Vec<(WriteId, Buf)> {
    let write = |io| if let LogIo::Write { id, data, .. } = io { Some((id, data)) } else { None };
    log.take_io().into_iter().filter_map(write).collect()
}

fn sequences(memory: &Memory) -> Vec<u64> {
    memory.left().iter().flat_map(|(_, entries)| entries.iter().map(|(sequence, _)| sequence.0)).collect()
}

const FEW: TailSlots = TailSlots { usual: 4, largest: 2 };

#[test]
fn what_was_appended_before_io_was_taken_is_left_and_nothing_after_it() {
    let (mut log, gone) = Memory::new(FEW).log();
    append(&mut log, 1, 3);
    log.take_io();
    append(&mut log, 2, 2);
    drop(log);
    let left = gone().left();
    let [(data, entries)] = &left[..] else { panic!("{left:?}") };
    assert_eq!((entries.len(), data.len()), (1, 4 * BLOCK));
    assert!(data[BLOCK..].iter().all(|byte| *byte == 1));
}

#[test]
fn a_batch_is_left_byte_for_byte_until_it_is_written() {
    let (mut log, gone) = Memory::new(FEW).log();
    append(&mut log, 1, 3);
    log.close(Stream::Host);
    let written = writes(&mut log);
    let (id, data) = written.last().cloned().expect("a batch");
    let kept = data.to_vec();
    drop((written, data));
    append(&mut log, 2, 1);
    log.take_io();
    // It is written now, and a batch of later is not.
    let still = {
        let bytes: Vec<u8> = kept.clone();
        log.wrote(id, MemberId(0));
        bytes
    };
    drop(log);
    let memory = gone();
    assert_eq!(sequences(&memory), [2]);
    let (mut log, gone) = memory.log();
    append(&mut log, 1, 3);
    log.close(Stream::Host);
    log.take_io();
    drop(log);
    assert_eq!(&gone().left()[0].0[..], &still[..], "the same appends make the same batch");
}

#[test]
fn a_batch_that_outgrows_its_slot_is_left_once_with_all_of_it() {
    let (mut log, gone) = Memory::new(FEW).log();
    append(&mut log, 1, 20);
    log.take_io();
    append(&mut log, 2, 100);
    append(&mut log, 3, 100);
    log.together(Stream::Host, 0, 0);
    drop(log);
    let memory = gone();
    assert_eq!(sequences(&memory), [1], "the rest is not published, and it grew twice meanwhile");

    let (mut log, gone) = memory.log();
    append(&mut log, 1, 20);
    append(&mut log, 2, 100);
    log.close(Stream::Host);
    log.take_io();
    drop(log);
    let left = gone().left();
    assert_eq!(left.iter().map(|(_, entries)| entries.len()).sum::<usize>(), 2);
    assert_eq!(left.iter().map(|(data, _)| data.len() / BLOCK - 1).sum::<usize>(), 120);
}

#[test]
fn a_batch_without_a_slot_uncovers_the_log_until_it_is_written() {
    let (mut log, gone) = Memory::new(TailSlots { usual: 3, largest: 0 }).log();
    let mut under_way = Vec::new();
    for first in 0..3 {
        append(&mut log, first, 1);
        log.close(Stream::Host);
        under_way.extend(writes(&mut log).into_iter().map(|(id, _)| id));
        assert!(log.is_covered());
    }
    assert!(!log.has_cover(), "all slots are under way");
    append(&mut log, 3, 1);
    let uncovered: Vec<_> = writes(&mut log).into_iter().map(|(id, _)| id).collect();
    assert_eq!(uncovered.len(), 1, "it is submitted at once");
    assert!(!log.is_covered());
    under_way.into_iter().for_each(|id| log.wrote(id, MemberId(0)));
    append(&mut log, 4, 1);
    log.take_io();
    assert!(!log.is_covered(), "the batch before is in no slot");
    uncovered.into_iter().for_each(|id| log.wrote(id, MemberId(0)));
    assert!(log.is_covered() && log.has_cover());
    drop(log);
    assert_eq!(sequences(&gone()), [5]);
}

#[test]
fn written_batches_leave_their_slots_to_new_ones_and_are_still_read() {
    let (mut log, _gone) = Memory::new(TailSlots { usual: 3, largest: 0 }).log();
    let mut locations = Vec::new();
    for first in 0..12 {
        locations.push(log.append_data(record(first, 1), |payload| payload.fill(first as u8)).location);
        log.close(Stream::Host);
        for (id, _) in writes(&mut log) {
            log.wrote(id, MemberId(0));
        }
        assert!(log.is_covered());
    }
    for (first, location) in (0..).zip(locations) {
        let bytes = log.in_memory(location, 0..8).expect("it is not synced, so memory has it");
        assert!(bytes.iter().all(|byte| *byte == first));
    }
}

#[test]
fn a_process_that_dies_at_any_store_leaves_a_prefix_of_whole_requests() {
    struct Dead;
    let mut stores = 0;
    loop {
        let memory = Memory::new(FEW);
        let Memory { slots, words, bytes } = memory;
        let left_to_live = Arc::new(AtomicU64::new(u64::MAX));
        let clock = left_to_live.clone();
        let tail = SecondTail::new(words, slots, bytes).watched(Box::new(move || {
            if clock.fetch_sub(1, Ordering::Relaxed) == 0 {
                std::panic::resume_unwind(Box::new(Dead));
            }
        }));
        let lender = tail.lender();
        left_to_live.store(stores, Ordering::Relaxed);
        let (covered, written) = (AtomicU64::new(0), AtomicU64::new(0));
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut log = log();
            log.survive_in(tail);
            let mut last = 0;
            for (first, blocks) in [(1, 1), (2, 20), (3, 60), (4, 1), (5, 2), (6, 1)] {
                // Two records that are one request.
                log.together(Stream::Host, 2 * Entry::data_len(blocks as usize), 2 * blocks);
                append(&mut log, first, blocks);
                last = append(&mut log, first, blocks).0;
                if first == 4 {
                    log.close(Stream::Host);
                }
                let under_way = writes(&mut log);
                covered.store(last, Ordering::Relaxed);
                if first == 5 {
                    for (id, data) in under_way {
                        if let Ok((_, entries)) = decode_batch(&data) {
                            let entries = Entry::decode_all(entries).expect("entries");
                            written.store(entries.last().map_or(0, |(last, _)| last.0), Ordering::Relaxed);
                        }
                        log.wrote(id, MemberId(0));
                    }
                }
            }
            last
        }));
        let memory = Memory { slots, words, bytes: lender.take_back().expect("the log is gone") };
        let found: Vec<u64> = sequences(&memory);
        let (covered, written) = (covered.into_inner(), written.into_inner());
        let last = found.last().copied().unwrap_or(0).max(written);
        assert!(last >= covered, "store {stores}: {covered} was covered, and {found:?} is left");
        assert!(last.is_multiple_of(2), "store {stores}: half a request is left: {found:?}");
        assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{found:?}");
        if died.is_ok() {
            break;
        }
        stores += 1;
    }
    assert!(stores > 40, "{stores} stores");
}

#[test]
fn memory_of_another_layout_is_refused_and_nonsense_is_left_out() {
    let memory = Memory::new(FEW);
    assert!(memory.left().is_empty(), "zeros are nothing");
    memory.words[0].store(7, Ordering::Relaxed);
    let refused = left_by(memory.words, &memory.bytes);
    assert_eq!(refused.err(), Some(LeftError::Layout { found: 7 }));
    let (mut log, gone) = memory.log();
    append(&mut log, 1, 3);
    log.take_io();
    drop(log);
    let memory = gone();
    let others = Memory::new(TailSlots { usual: 5, largest: 2 });
    assert_eq!(left_by(memory.words, &others.bytes).err(), Some(LeftError::Slots { found: FEW }));
    // Any one word with any one bit flipped: no panic, and no other bytes than were appended.
    for (at, word) in memory.words.iter().enumerate().skip(2) {
        for bit in 0..64 {
            let was = word.fetch_xor(1 << bit, Ordering::Relaxed);
            let left = left_by(memory.words, &memory.bytes).expect("the layout is whole");
            assert!(left.writes.len() + left.unreadable <= 2, "word {at}, bit {bit}: {left:?}");
            word.store(was, Ordering::Relaxed);
        }
    }
}
