//! Packed records as an application sees them: more fits into the pool, and nothing else is different.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Nanos, ObjectId, UnixNanos};
use headpond_engine::{Compression, Config, OpenFile, Policy, Reply, Request, Stats, Treatment, Verdict, recover};
use headpond_format::{SUPERBLOCK_SLOTS, Stamp, decode_superblock};
use world::{POOL, World};

const PAGE: usize = 16 << 10;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Pages of a file: some bytes of noise, and something that shrinks.
fn pages(count: usize, noise: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = vec![0; count * PAGE];
    for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = if at < noise { random(&mut state) as u8 } else { (number + at / 700) as u8 };
        }
    }
    bytes
}

fn config(compression: Compression) -> Config {
    // All that is read comes in, and is packed however much room there is.
    let (sequential_cutoff, fetch_bytes, policy) = (None, 16 << 10, Policy::Lru);
    Config { compression, compression_from: 0, sequential_cutoff, fetch_bytes, policy, ..Config::default() }
}

/// Reads pages in no order.
fn read_pages(world: &mut World, file: ObjectId, content: &[u8], times: usize) {
    let mut state = 77;
    for _ in 0..times {
        let page = random(&mut state) as usize % (content.len() / PAGE) * PAGE;
        assert!(world.read(file, page as u64, PAGE as u32) == content[page..page + PAGE], "the page at {page}");
        world.sleep(1);
    }
}

/// Starts anew from what is on flash.
fn restart(world: &mut World, file: ObjectId, config: Config) -> ObjectId {
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let stamp = world.stamps.get(&file).copied().unwrap_or_default();
    let stamp = Stamp { size: world.files[&file].len() as u64, ..stamp };
    for object in recovered.objects() {
        let found =
            OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
        assert!(!matches!(recovered.reconcile(object.object, Some(&found.clone().into())), Verdict::Conflict(_)));
    }
    world.engine = recovered.into_engine(config, Nanos(world.now));
    world.run();
    let at_origin = world.files[&file].clone();
    world.open(1, &at_origin)
}

#[test]
fn a_pool_holds_more_than_its_size_of_data_that_shrinks() {
    let cached = |compression| {
        let mut world = World::new(config(compression));
        let content = pages(6000, PAGE / 3, 5);
        let file = world.open(1, &content);
        read_pages(&mut world, file, &content, 10_000);
        let stats = world.engine.stats();
        assert!(stats.stored_bytes <= stats.pool_blocks * 4096);
        (stats.cached_blocks as f64 / stats.pool_blocks as f64, stats.kept_blocks as f64 / stats.pool_blocks as f64)
    };
    let (plain, kept_plain) = cached(Compression::Off);
    assert!(plain <= 1.0);
    let (packed, kept) = cached(Compression::Lz4);
    assert!(packed > 2.0 * plain, "{packed} times the pool, {plain} without");
    assert!(kept > 1.9 * kept_plain, "{kept} of the pool is kept, {kept_plain} without");
}

#[test]
fn nothing_is_packed_before_the_superblock_says_so_and_then_it_says_so_for_good() {
    let says = |world: &World| {
        SUPERBLOCK_SLOTS.map(|at| {
            let superblock = decode_superblock(&world.flash.0[at as usize..at as usize + 4096]).unwrap();
            assert_eq!(superblock.may_have_packed, superblock.may_have_blanks);
            superblock.may_have_packed
        })
    };
    let mut world = World::new(config(Compression::Off));
    let content = pages(100, 0, 5);
    let file = world.open(1, &content);
    for page in 0..100 {
        world.write(file, page * PAGE as u64, &content[page as usize * PAGE..][..PAGE]);
    }
    world.ask(Request::sync(file));
    assert_eq!((says(&world), world.engine.stats().packed_blocks), ([false; 2], 0));
    assert!(matches!(world.ask(Request::Configure(Box::new(config(Compression::Lz4)))), Reply::Done));
    assert_eq!(says(&world), [true; 2], "at once: older programs must refuse the pool");
    world.write(file, 0, &content[..PAGE]);
    world.ask(Request::sync(file));
    assert_eq!(world.engine.stats().packed_blocks, 4);
    assert!(matches!(world.ask(Request::Configure(Box::new(config(Compression::Off)))), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let file = restart(&mut world, file, config(Compression::Off));
    assert!(world.read(file, 0, PAGE as u32) == content[..PAGE]);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    assert_eq!(says(&world), [true; 2]);
}

#[test]
fn nothing_but_zeros_is_packed_until_so_much_of_the_pool_is_in_use_as_is_set() {
    let from = |compression_from| Config { compression_from, ..config(Compression::Lz4) };
    let mut world = World::new(from(25));
    let content = pages(6000, 100, 5);
    let (file, zeros) = (world.open(1, &content), world.open(2, &vec![0; 64 * PAGE]));
    for page in 0..64 {
        world.read(zeros, page * PAGE as u64, PAGE as u32);
    }
    let at_first = world.engine.stats();
    assert_eq!((at_first.cached_blocks, at_first.stored_bytes), (256, 0), "zeros never need room");
    let mut left = content.chunks_exact(PAGE).enumerate();
    let mut fill_until = |world: &mut World, enough: &dyn Fn(&Stats) -> bool| {
        while !enough(&world.engine.stats()) {
            let (page, bytes) = left.next().unwrap();
            assert!(world.read(file, (page * PAGE) as u64, PAGE as u32) == bytes);
        }
        world.engine.stats()
    };
    let packed = |stats: &Stats| stats.packed_blocks > at_first.packed_blocks;
    let filled = fill_until(&mut world, &packed);
    let share = filled.stored_bytes * 100 / (filled.pool_blocks * 4096);
    assert!((24..=26).contains(&share), "a quarter was in use, not {share} %, when the first record was packed");
    // Live: with more room wanted nothing is packed again, with none all is.
    assert!(matches!(world.ask(Request::Configure(Box::new(from(50)))), Reply::Done));
    let more = fill_until(&mut world, &|stats| stats.stored_bytes * 100 > stats.pool_blocks * 4096 * 45);
    assert_eq!(more.packed_blocks, filled.packed_blocks);
    assert!(matches!(world.ask(Request::Configure(Box::new(from(0)))), Reply::Done));
    fill_until(&mut world, &|stats| stats.packed_blocks > more.packed_blocks);
}

#[test]
fn a_file_is_packed_as_its_last_request_says_whatever_the_setting() {
    for setting in [Compression::Off, Compression::Lz4] {
        let mut world = World::new(config(setting));
        let content = pages(400, 0, 5);
        let files = [1, 2, 3].map(|inode| world.open(inode, &content));
        let ways = [Some(Compression::Zstd(1)), Some(Compression::Off), None];
        let how = |way: usize| Treatment { compression: ways[way], ..Treatment::default() };
        // The first request alone asks for a superblock that says so: what follows it is packed.
        for (way, file) in files.into_iter().enumerate() {
            world.read_treated(file, 0, PAGE as u32, how(way));
        }
        for page in 1..200 {
            for (way, file) in files.into_iter().enumerate() {
                let (written, read) = (page * PAGE, (200 + page) * PAGE);
                world.write_treated(file, written as u64, &content[written..written + PAGE], how(way));
                world.read_treated(file, read as u64, PAGE as u32, how(way));
            }
        }
        let held: Vec<_> = world.engine.holdings(9).into_iter().collect();
        let stored = [1, 2, 3].map(|inode| {
            let holding =
                held.iter().find(|holding| holding.identity.file().is_some_and(|file| file.inode == inode)).unwrap();
            assert!(holding.blocks >= 4 * 397 && holding.dirty_blocks <= holding.blocks);
            holding.stored_bytes as f64 / (holding.blocks * 4096) as f64
        });
        assert!(stored[0] < 0.2 && stored[1] > 0.99, "{setting}: {stored:?}");
        assert_eq!(stored[2] < 0.2, setting == Compression::Lz4, "{setting}: {stored:?}");
        let sum: u64 = held.iter().map(|holding| holding.stored_bytes).sum();
        assert_eq!(sum, world.engine.stats().stored_bytes, "{setting}: a file's share is counted as the pool's is");
        for file in files {
            assert!(world.read(file, 0, 1 << 20) == content[..1 << 20], "{setting}");
        }
    }
}

#[test]
fn what_is_packed_in_changing_ways_is_what_was_written() {
    const WAYS: [Compression; 5] =
        [Compression::Off, Compression::Lz4, Compression::Zstd(1), Compression::Zstd(9), Compression::Lz4];
    for seed in 1..=3_u64 {
        let mut world = World::new(Config { flush_period: Nanos::SECOND, ..config(WAYS[seed as usize % 5]) });
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut model = pages(2000, 0, seed);
        let file = world.open(1, &model.clone());
        for step in 0..1000 {
            let grain = [1, 512, 4096, 4096, 16384][random(&mut state) as usize % 5];
            let offset = random(&mut state) as usize % (30 << 20) / grain * grain;
            let len = match random(&mut state) % 10 {
                0 => random(&mut state) as usize % (1 << 20) + 1,
                1 => 65536,
                _ => (random(&mut state) as usize % 20_000 + 1).next_multiple_of(grain),
            };
            match random(&mut state) % 20 {
                0 => {
                    let compression = WAYS[random(&mut state) as usize % 5];
                    let config = Config { flush_period: Nanos::SECOND, ..config(compression) };
                    assert!(matches!(world.ask(Request::Configure(Box::new(config))), Reply::Done));
                }
                1 => {
                    let size = offset as u64;
                    world.ask(Request::Truncate { object: file, size, mtime: UnixNanos(8) });
                    model.resize(offset, 0);
                }
                2 => assert!(matches!(world.ask(Request::sync(file)), Reply::Done)),
                3 if step % 5 == 0 => {
                    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
                    assert!(world.files[&file] == model, "seed {seed} step {step}: origin differs after a flush");
                }
                4 => world.sleep(random(&mut state) % 3000),
                5..=11 => {
                    let noise = [0, 900, PAGE / 2, PAGE][random(&mut state) as usize % 4];
                    let mut bytes = pages(len / PAGE + 1, noise, random(&mut state));
                    if noise == 0 {
                        bytes.fill(0);
                    }
                    world.write(file, offset as u64, &bytes[..len]);
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes[..len]);
                }
                _ => {
                    let read = world.read(file, offset as u64, len as u32);
                    let (from, to) = (offset.min(model.len()), (offset + len).min(model.len()));
                    assert!(read == model[from..to], "seed {seed} step {step}: read of {len} at {offset} differs");
                }
            }
        }
        let saved = world.engine.stats();
        assert!(saved.payload_bytes < saved.record_bytes / 10 * 9, "seed {seed}: {saved:?}");
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        let file = restart(&mut world, file, config(Compression::Off));
        for offset in (0..model.len()).step_by(1 << 20) {
            let to = (offset + (1 << 20)).min(model.len());
            assert!(
                world.read(file, offset as u64, 1 << 20) == model[offset..to],
                "seed {seed}: at {offset} after restart"
            );
        }
    }
}

#[test]
fn a_request_of_several_units_is_there_as_a_whole_or_not_at_all_wherever_a_batch_ends() {
    let shrinks = || vec![7_u8; 64 << 10];
    let noise = || pages(4, PAGE, 3);
    let zeros = || vec![0_u8; 64 << 10];
    for large in [
        [shrinks(), shrinks()],
        [noise(), shrinks()],
        [shrinks(), noise()],
        [zeros(), zeros()],
        [zeros(), noise()],
        [shrinks(), zeros()],
    ] {
        let large = large.concat();
        let mut split = Vec::new();
        for before in 50..70_u64 {
            let mut world = World::new(config(Compression::Lz4));
            let file = world.open(1, &[]);
            world.write(file, 0, &vec![7; PAGE]);
            assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
            // These fill a batch by their entries, and next to nothing of its payload.
            for page in 1..=before {
                world.write(file, page * PAGE as u64, &vec![7; PAGE]);
            }
            let at = 100 * PAGE as u64;
            world.write(file, at, &large);
            // As after a crash: what was submitted is there, and the batch that is still open is not.
            let recovered = recover(&mut world.flash, POOL).unwrap();
            let object = recovered.objects()[0].object;
            let there = recovered.blocks(object).filter(|(block, _)| block.byte() >= at).count();
            if there != 0 && there != 32 {
                split.push((before, there));
            }
        }
        assert!(split.is_empty(), "blocks of 32, by the number of writes before: {split:?}");
    }
}

#[test]
fn more_blocks_than_a_checkpoint_has_room_for_cost_a_part_of_the_warmth_and_nothing_else() {
    let mut world = World::new(config(Compression::Lz4));
    let content = pages(14_000, 0, 5);
    let file = world.open(1, &content);
    read_pages(&mut world, file, &content, 22_000);
    let mut expected = content.clone();
    for page in 0..300 {
        let bytes = pages(1, 0, page);
        let at = page as usize * 40 * PAGE;
        world.write(file, at as u64, &bytes);
        expected[at..at + PAGE].copy_from_slice(&bytes);
    }
    let before = world.engine.stats();
    assert!(before.cached_blocks > 3 * before.pool_blocks && before.cached_blocks <= 4 * before.pool_blocks + 1024);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    // As after a crash: no checkpoint at the end.
    let file = restart(&mut world, file, config(Compression::Lz4));
    let after = world.engine.stats();
    assert!(after.dirty_blocks >= before.dirty_blocks && after.cached_blocks > before.pool_blocks);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let file = restart(&mut world, file, config(Compression::Lz4));
    let after = world.engine.stats();
    assert!(after.cached_blocks > before.pool_blocks, "{} of {}", after.cached_blocks, before.cached_blocks);
    for page in (0..content.len()).step_by(PAGE) {
        assert!(world.read(file, page as u64, PAGE as u32) == expected[page..page + PAGE], "the page at {page}");
    }
}
