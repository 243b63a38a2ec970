//! The log against a simple oracle: a list of what was appended. Whatever a crash makes of the
//! writes that were not synced, a scan finds a prefix of the host entries with all that was
//! synced, other entries each for itself, and the bytes that were appended.
//!
//! Every case is decided by one seed, which a failure names.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod start;
mod world;

use headpond_base::BLOCK;
use headpond_format::{
    FOOTER_TAIL_BYTES, FrameKind, SUPERBLOCK_SLOTS, bytes_checksum, decode_batch, decode_checkpoint_head,
    decode_footer_tail, decode_segment_head, encode_checkpoint_head, encode_frame,
};
use headpond_log::{Mutation, ScanError, read_checkpoint, scan};
use world::{Flash, POOL_BYTES, SEGMENT_BYTES, Seed, World};

const SEEDS: u64 = 300;

/// How many host segments are filled at once, where that is what is tried.
const SEVERAL: [usize; 3] = [2, 3, 4];

#[test]
fn after_a_crash_a_prefix_is_there_with_everything_that_was_synced() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..3 {
            world.live(80);
            world.crash();
            world.check_what_a_scan_finds();
            world.start_again();
        }
    }
}

#[test]
fn everything_is_found_if_all_writes_were_done() {
    for seed in 0..SEEDS / 3 {
        let mut world = World::new(seed);
        world.live(120);
        world.finish();
        world.crash();
        let found = world.check_what_a_scan_finds();
        assert_eq!(found, world.appended(), "seed {seed}: nothing was lost, yet not all is found");
    }
}

#[test]
fn reused_segments_bring_nothing_of_their_earlier_lives_back() {
    let mut reused = 0;
    for seed in 0..SEEDS / 3 {
        let mut world = World::new(seed);
        for _ in 0..12 {
            world.live(60);
            world.finish();
            world.checkpoint_and_release();
        }
        world.live(60);
        reused += world.reused();
        world.crash();
        world.check_what_a_scan_finds();
    }
    assert!(reused > 0, "the test is to reuse segments");
}

#[test]
fn with_several_host_segments_open_a_crash_leaves_a_prefix_with_everything_that_was_synced() {
    let mut beyond_gap = 0;
    for host_segments in SEVERAL {
        for seed in 0..SEEDS {
            let mut world = World::filling(host_segments, seed);
            for _ in 0..3 {
                world.live(80);
                world.crash();
                world.check_what_a_scan_finds();
                beyond_gap += world.beyond_gap();
                world.start_again();
            }
            world.live(120);
            world.finish();
            world.crash();
            assert_eq!(world.check_what_a_scan_finds(), world.appended(), "seed {seed}: nothing was lost");
        }
    }
    assert!(beyond_gap > 1000, "the test is to lose a batch and keep the next: {beyond_gap}");
}

#[test]
fn with_several_host_segments_open_reused_ones_bring_nothing_back() {
    let mut reused = 0;
    for (host_segments, seed) in SEVERAL.into_iter().flat_map(|open| (0..SEEDS / 3).map(move |seed| (open, seed))) {
        let mut world = World::filling(host_segments, seed);
        for _ in 0..6 {
            world.live(60);
            world.finish();
            world.checkpoint_and_release();
            world.live(30);
            world.crash();
            world.check_what_a_scan_finds();
            world.start_again();
        }
        reused += world.reused();
    }
    assert!(reused > 0, "the test is to reuse segments");
}

/// Whether one of 50 histories with several host segments shows the bug.
fn is_found_with_several(mutation: Mutation, plant: impl Fn(&mut World)) {
    let missed = (0..50).all(|seed| {
        let mut world = World::filling(4, seed);
        plant(&mut world);
        world.live(80);
        world.crash();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.check_what_a_scan_finds())).is_ok()
    });
    assert!(!missed, "{mutation:?} goes unnoticed");
}

#[test]
fn a_sync_that_waits_for_one_segment_alone_is_found() {
    let mutation = Mutation::SyncOneSegment;
    is_found_with_several(mutation, |world| world.plant_in_log(mutation));
}

#[test]
fn a_recovery_that_goes_on_beyond_a_gap_is_found() {
    for mutation in [Mutation::ChainBySegment, Mutation::ForgetChain] {
        is_found_with_several(mutation, |world| world.mutation = Some(mutation));
    }
}

#[test]
fn planted_bugs_of_recovery_are_found() {
    for mutation in [Mutation::AcceptTornBatch, Mutation::ReplayOutOfOrder] {
        let missed = (0..50).all(|seed| {
            let mut world = World::new(seed);
            world.live(80);
            world.crash();
            world.mutation = Some(mutation);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.check_what_a_scan_finds())).is_ok()
        });
        assert!(!missed, "{mutation:?} goes unnoticed");
    }
}

#[test]
fn one_superblock_is_enough_and_none_is_told() {
    let mut world = World::new(7);
    world.live(50);
    world.finish();
    world.crash();
    for slot in SUPERBLOCK_SLOTS {
        let mut flash = Flash(world.image().to_vec());
        flash.0[slot as usize + 100] ^= 1;
        assert!(scan(&mut flash, POOL_BYTES, None).is_ok(), "the slot at {slot} is torn");
        flash.0[(SUPERBLOCK_SLOTS[0] + SUPERBLOCK_SLOTS[1] - slot) as usize + 100] ^= 1;
        assert!(matches!(scan(&mut flash, POOL_BYTES, None), Err(ScanError::Damaged { what: "superblock", .. })));
    }
}

#[test]
fn a_synced_batch_that_is_missing_is_told_as_lost_history() {
    let mut world = World::new(1);
    world.write_and_sync(40);
    world.crash();
    let batches = world.host_batches();
    let (first, last) = (batches[0], batches[batches.len() - 1]);
    let segment_end = |at: usize| at - at % SEGMENT_BYTES + SEGMENT_BYTES;
    assert!(segment_end(first) < last, "the test is to fill a segment");
    let mut flash = Flash(world.image().to_vec());
    flash.0[first] ^= 1;
    let scanned = scan(&mut flash, POOL_BYTES, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scanned.tail.len(), world.appended().len(), "the footer repeats the entries of a damaged head");
    flash.0[segment_end(first) - 1] ^= 1;
    assert!(matches!(scan(&mut flash, POOL_BYTES, None), Err(ScanError::LostHistory { .. })));
}

#[test]
fn a_synced_batch_that_is_missing_in_the_open_segment_is_told_too() {
    let mut world = World::new(1);
    world.write_and_sync(5);
    world.crash();
    let mut flash = Flash(world.image().to_vec());
    flash.0[world.host_batches()[1]] ^= 1;
    assert!(matches!(scan(&mut flash, POOL_BYTES, None), Err(ScanError::LostHistory { .. })));
}

#[test]
fn a_segment_whose_head_is_lost_is_known_by_its_batches() {
    let mut world = World::new(1);
    world.write_and_sync(5);
    world.crash();
    let batches = world.host_batches();
    let head = batches[0] - BLOCK;
    let mut flash = Flash(world.image().to_vec());
    assert!(decode_segment_head(&flash.0[head..]).is_ok(), "the test is to damage a segment's head");
    for damage in [&[0; BLOCK][..], &[0xff; 600][..]] {
        flash.0[head..head + damage.len()].copy_from_slice(damage);
        let scanned = scan(&mut flash, POOL_BYTES, None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scanned.tail.len(), world.appended().len());
    }
    // The first batch as well: what is left says that it was durable.
    flash.0[head] = b'H';
    flash.0[head + 8..head + 24].copy_from_slice(&world.image()[head + 8..head + 24]);
    flash.0[batches[0]] ^= 1;
    assert!(matches!(scan(&mut flash, POOL_BYTES, None), Err(ScanError::LostHistory { .. })));
}

#[test]
fn the_newest_superblock_may_be_lost_and_is_never_mistaken_for_the_one_before() {
    let mut world = World::new(1);
    world.write_and_sync(5);
    let earlier = world.image()[..SUPERBLOCK_SLOTS[1] as usize + BLOCK].to_vec();
    world.start_again();
    world.write_and_sync(1);
    world.crash();
    let sound = scan(&mut Flash(world.image().to_vec()), POOL_BYTES, None).unwrap();
    let mut flash = Flash(world.image().to_vec());
    for slot in SUPERBLOCK_SLOTS.map(|slot| slot as usize..slot as usize + BLOCK) {
        flash.0[slot.clone()].copy_from_slice(&earlier[slot]);
    }
    // Its checkpoint tells the same.
    let scanned = scan(&mut flash, POOL_BYTES, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scanned.tail, sound.tail);
    assert_eq!(scanned.start.epoch, sound.start.epoch);
    // Without that too, what a segment tells is enough to refuse the pool.
    let area = sound.superblock.geometry.checkpoint_start(usize::from(sound.superblock.checkpoint_area));
    flash.0[area as usize + 30] ^= 1;
    assert!(matches!(scan(&mut flash, POOL_BYTES, None), Err(ScanError::LostSuperblock { .. })));
}

#[test]
fn only_batches_behind_the_last_that_counts_are_told_as_dropped() {
    let mut world = World::new(3);
    world.write_and_sync(5);
    world.checkpoint_and_release();
    world.write_and_sync(4);
    world.crash();
    let scanned = |bytes: &[u8]| scan(&mut Flash(bytes.to_vec()), POOL_BYTES, None).unwrap();
    assert_eq!((scanned(world.image()).tail.len(), scanned(world.image()).dropped_batches), (4, 0));
    // The last one torn: nothing says that it was durable.
    let mut torn = world.image().to_vec();
    let last = *world.host_batches().last().unwrap();
    torn[last] ^= 1;
    assert_eq!((scanned(&torn).tail.len(), scanned(&torn).dropped_batches), (3, 0), "a damaged head is no batch");
    torn[last] ^= 1;
    torn[last + BLOCK] ^= 1;
    assert_eq!((scanned(&torn).tail.len(), scanned(&torn).dropped_batches), (3, 1), "its payload does not match");
}

#[test]
fn damaged_bytes_never_panic_the_scan() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed % 20);
        world.live(80);
        world.crash();
        let mut seed = Seed(seed);
        for _ in 0..10 {
            let mut flash = Flash(world.image().to_vec());
            for _ in 0..1 + seed.below(20) {
                let at = world.interesting(&mut seed);
                let len = 1 << seed.below(13);
                let value = seed.next() as u8;
                match seed.below(3) {
                    0 => flash.0[at] ^= 1 << seed.below(8),
                    1 => flash.0[at..(at + len).min(POOL_BYTES as usize)].fill(value),
                    _ => {
                        let from = world.interesting(&mut seed);
                        let len = len.min(POOL_BYTES as usize - at.max(from));
                        flash.0.copy_within(from..from + len, at);
                    }
                }
            }
            let _ = scan(&mut flash, POOL_BYTES, None);
        }
    }
}

/// Senseless numbers under checksums that match: a bug of the writer, or an attack.
fn forge(world: &World, seed: &mut Seed) -> Flash {
    let mut flash = Flash(world.image().to_vec());
    let end = flash.0.len();
    for at in (0..end).step_by(BLOCK) {
        let block = &flash.0[at..at + BLOCK];
        // What the checksum covers, where it is, and where the fields are that it guards.
        let (covered, sum, fields) = if decode_batch(block).is_ok() || decode_segment_head(block).is_ok() {
            (at..at + BLOCK, at + 4, at + 24..at + 200)
        } else if let Ok((_, len)) = decode_footer_tail(block) {
            let end = at + BLOCK;
            (end - len..end, end - FOOTER_TAIL_BYTES + 4, end - len..end - FOOTER_TAIL_BYTES)
        } else {
            continue;
        };
        if seed.below(2) == 0 || fields.len() < 8 {
            continue;
        }
        let field = fields.start + 4 * seed.below(fields.len() as u64 / 4) as usize;
        let value = [0, 1, u32::MAX, seed.next() as u32][seed.below(4) as usize];
        flash.0[field..field + 4].copy_from_slice(&value.to_le_bytes());
        flash.0[sum..sum + 4].fill(0);
        let checksum = bytes_checksum(&flash.0[covered]);
        flash.0[sum..sum + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    flash
}

#[test]
fn senseless_numbers_under_right_checksums_never_panic_the_scan() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed % 20);
        world.live(80);
        world.crash();
        let mut flash = forge(&world, &mut Seed(seed));
        let scanned = std::panic::catch_unwind(move || drop(scan(&mut flash, POOL_BYTES, None)));
        assert!(scanned.is_ok(), "seed {seed}: the scan panicked");
    }
}

/// An intact end in the wrong place would leave out what comes after it, and nothing would say so.
#[test]
fn a_checkpoint_that_ends_before_its_last_byte_is_damaged() {
    let mut world = World::new(3);
    world.write_and_sync(5);
    world.crash();
    world.start_again();
    let mut flash = Flash(world.image().to_vec());
    let superblock = scan(&mut flash, POOL_BYTES, None).unwrap().superblock;
    let start = superblock.geometry.checkpoint_start(usize::from(superblock.checkpoint_area)) as usize;
    let mut head = decode_checkpoint_head(&flash.0[start..start + BLOCK]).unwrap();
    let end = start + BLOCK + head.frame_bytes as usize;
    let mut frame = Vec::new();
    encode_frame(FrameKind::End, head.counter, &[], &mut frame);
    flash.0[end..end + frame.len()].copy_from_slice(&frame);
    head.frame_bytes += frame.len() as u64;
    flash.0[start..start + BLOCK].copy_from_slice(&encode_checkpoint_head(&head));
    let refused = read_checkpoint(&mut flash, &superblock).err().unwrap();
    assert!(refused.to_string().contains("an end before its last byte"), "{refused}");
}
