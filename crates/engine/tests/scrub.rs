//! A scrub finds what flash has lost, makes good what can be made good, and names the rest.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Block, Compression, Errno, MemberId, ObjectId};
use headpond_engine::{Config, Reply, Request, ScrubShown};
use world::World;

const BLOCK: usize = 4096;
const ONE: MemberId = MemberId(0);
const OTHER: MemberId = MemberId(1);

/// Write-back; nothing goes to the origin unless something waits for it.
fn write_back() -> Config {
    Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() }
}

/// The content of a block, which no other has.
fn content(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|word| ((number << 16) + word + 1).to_le_bytes()).collect()
}

/// Makes a file of so many blocks dirty. What is in the open segments is not scrubbed, so it is some MiB.
fn fill(world: &mut World, inode: u64, blocks: u64) -> ObjectId {
    let file = world.open(inode, &[]);
    for number in 0..blocks {
        world.write(file, number * BLOCK as u64, &content(number));
    }
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    file
}

/// Flips a bit of a block where a member has it.
fn rot(world: &mut World, member: MemberId, number: u64) {
    let bytes = &mut world.device(member).0;
    let is_it = |at: &usize| bytes[*at..*at + BLOCK] == content(number);
    let at = (0..bytes.len()).step_by(BLOCK).find(is_it).unwrap();
    bytes[at + 100] ^= 4;
}

fn scrub(world: &mut World) -> ScrubShown {
    assert!(matches!(world.ask(Request::Scrub), Reply::Done));
    let shown = world.engine.scrub().unwrap();
    assert!(!shown.running && shown.left_bytes == 0, "{shown:?}");
    shown
}

const BLOCKS: u64 = 2000;

#[test]
fn a_pool_that_lost_nothing_is_read_once_copy_by_copy() {
    let mut world = World::new(write_back());
    fill(&mut world, 1, BLOCKS);
    let alone = scrub(&mut world);
    let open = 2 * (2 << 20);
    let all = BLOCKS * BLOCK as u64;
    assert!((all - open..=all).contains(&alone.checked_bytes), "{alone:?}");
    assert_eq!(ScrubShown { checked_bytes: 0, ..alone }, ScrubShown::default());
    let mut world = World::mirrored(write_back());
    fill(&mut world, 1, BLOCKS);
    let twice = scrub(&mut world);
    assert!((2 * (all - open)..=2 * all).contains(&twice.checked_bytes), "{twice:?}");
    assert_eq!(ScrubShown { checked_bytes: 0, ..twice }, ScrubShown::default());
}

#[test]
fn what_the_origin_has_is_dropped_and_read_from_there() {
    let mut world = World::new(write_back());
    let file = fill(&mut world, 1, BLOCKS);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    rot(&mut world, ONE, 7);
    let shown = scrub(&mut world);
    assert_eq!((shown.damaged.as_slice(), shown.dropped_blocks, shown.lost_blocks), ([(ONE, 1)].as_slice(), 1, 0));
    let before = world.origin_reads;
    assert!(world.read(file, 7 * BLOCK as u64, BLOCK as u32) == content(7));
    assert!(world.origin_reads > before);
    assert_eq!(scrub(&mut world).damaged, []);
}

#[test]
fn what_the_other_member_has_is_made_good_before_that_one_is_needed() {
    for rotten in [ONE, OTHER] {
        let mut world = World::mirrored(write_back());
        let file = fill(&mut world, 1, BLOCKS);
        [7, 8, 300].iter().for_each(|number| rot(&mut world, rotten, *number));
        let shown = scrub(&mut world);
        assert_eq!(shown.damaged, [(rotten, 3)]);
        assert_eq!((shown.mended_blocks, shown.dropped_blocks, shown.lost_blocks), (3, 0, 0));
        for _ in 0..200 {
            world.sleep(50);
        }
        assert_eq!(world.engine.exposed_blocks(), 0);
        assert_eq!(scrub(&mut world).damaged, []);
        world.refuses_reads = Some(if rotten == ONE { OTHER } else { ONE });
        for number in [7, 8, 300] {
            assert!(world.read(file, number * BLOCK as u64, BLOCK as u32) == content(number), "{number}");
        }
    }
}

#[test]
fn what_nobody_has_is_named_and_stays_an_error() {
    let mut world = World::mirrored(write_back());
    let file = fill(&mut world, 1, BLOCKS);
    [ONE, OTHER].iter().for_each(|member| rot(&mut world, *member, 7));
    rot(&mut world, OTHER, 8);
    let shown = scrub(&mut world);
    assert_eq!((shown.lost_blocks, shown.mended_blocks), (1, 1), "{shown:?}");
    let [lost] = &shown.lost[..] else { panic!("{shown:?}") };
    assert_eq!((lost.path.as_slice(), lost.block), (b"f".as_slice(), Block(7)));
    let read = |number: u64| Request::Read {
        object: file,
        offset: number * BLOCK as u64,
        len: BLOCK as u32,
        how: headpond_engine::Treatment::default(),
    };
    assert!(matches!(world.ask(read(7)), Reply::Failed(Errno::IO)));
    assert!(matches!(world.ask(read(8)), Reply::Data(..)));
    // A whole new block is there, and all is well again.
    world.write(file, 7 * BLOCK as u64, &content(7));
    assert!(world.read(file, 7 * BLOCK as u64, BLOCK as u32) == content(7));
    for _ in 0..200 {
        world.sleep(50);
    }
    assert_eq!(scrub(&mut world).damaged, []);
}

#[test]
fn packed_records_are_compared_too() {
    let packs = Config { compression: Compression::Lz4, compression_from: 0, ..write_back() };
    let mut world = World::mirrored(packs);
    let file = world.open(1, &[]);
    for page in 0..2 * BLOCKS {
        let mut bytes = content(page);
        bytes.resize(4 * BLOCK, page as u8 | 1);
        world.write(file, page * 4 * BLOCK as u64, &bytes);
    }
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(world.engine.stats().packed_blocks > BLOCKS, "{:?}", world.engine.stats());
    let shown = scrub(&mut world);
    assert!(shown.damaged.is_empty() && shown.checked_bytes > BLOCKS * BLOCK as u64, "{shown:?}");
    // Half a segment.
    let bytes = &mut world.device(OTHER).0;
    let at = bytes.len() / 4;
    bytes[at..at + (1 << 20)].iter_mut().for_each(|byte| *byte ^= 1);
    let shown = scrub(&mut world);
    assert!(matches!(shown.damaged[..], [(OTHER, blocks)] if blocks > 0), "{shown:?}");
    assert_eq!((shown.lost_blocks, shown.dropped_blocks), (0, 0));
}

#[test]
fn one_scrub_at_a_time_and_it_can_be_ended() {
    let mut world = World::new(write_back());
    fill(&mut world, 1, BLOCKS);
    assert!(matches!(world.ask(Request::CancelScrub), Reply::Failed(Errno::NOENT)));
    // A request that waits keeps it from going on at once.
    world.hold_below = u64::MAX;
    let file = world.open(2, &[]);
    world.write(file, 0, &content(1));
    let waits = world.begin(Request::sync(file));
    let first = world.begin(Request::Scrub);
    assert!(matches!(world.ask(Request::Scrub), Reply::Failed(Errno::BUSY)) || world.replies.contains_key(&first));
    world.ask(Request::CancelScrub);
    assert!(matches!(world.reply(first), Reply::Failed(Errno::CANCELED) | Reply::Done));
    world.release();
    assert!(matches!(world.reply(waits), Reply::Done));
    assert_eq!(scrub(&mut world).damaged, []);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
}
