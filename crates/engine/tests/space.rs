//! Space at the origin: what it is asked for, what it gets back, and what is refused where it cannot keep any.
#![allow(clippy::unwrap_used)]

mod world;

use headpond_base::{BufMut, Errno, UnixNanos};
use headpond_engine::{Config, Handling, OpenFile, Reply, Request, Treatment};
use headpond_format::{Geometry, Stamp};

use world::World;

const MIB: u64 = 1 << 20;

fn write(world: &mut World, object: headpond_base::ObjectId, offset: u64, len: usize, how: Treatment) -> Reply {
    let data = BufMut::copy_of(&vec![7; len]).freeze();
    world.ask(Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false, how })
}

#[test]
fn a_write_asks_for_the_blocks_that_it_covers_and_for_no_hole() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[]);
    let how = Treatment { user: 1000, ..Treatment::default() };
    write(&mut world, file, 0, 100, how);
    write(&mut world, file, 9 * MIB + 5, 4096, how);
    write(&mut world, file, 9 * MIB + 10, 4000, how);
    let asked = [(vec![(0, 4096)], 1000), (vec![(9 * MIB, 9 * MIB + 8192)], 1000)];
    assert_eq!(world.asked, asked);
}

#[test]
fn a_file_that_grows_asks_a_dozen_times_and_gives_the_rest_back_when_it_is_flushed() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[]);
    let size = 2 * MIB + 4096;
    (0..size / 4096).for_each(|block| drop(write(&mut world, file, block * 4096, 4096, Treatment::default())));
    assert!(world.asked.len() <= 12, "{} times", world.asked.len());
    assert!(world.asked.last().unwrap().0[0].1 > size);
    world.cuts.clear();
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.cuts, [size], "cut to the size that it has, which gives back what lies behind");
    world.cuts.clear();
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Done));
    assert!(world.cuts.is_empty());
}

/// Space ahead of growing files is spare: the engine gives it back before a request hears that there is no space.
#[test]
fn what_one_file_has_ahead_another_gets_before_it_is_refused() {
    let mut world = World::new(Config::default());
    let [grows, other] = [1, 2].map(|number| world.open(number, &[]));
    (0..64).for_each(|block| drop(write(&mut world, grows, block * 4096, 4096, Treatment::default())));
    (world.full, world.cuts_make_room) = (true, true);
    world.cuts.clear();
    let reply = write(&mut world, other, 0, 4096, Treatment::default());
    assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
    assert!(world.cuts.contains(&(64 * 4096)), "cut to the size that it has: {:?}", world.cuts);
}

/// XFS keeps what it took ahead of such writes for good, in a file of which space was ever asked for.
#[test]
fn a_file_that_grows_past_the_log_is_cut_to_its_size_when_it_is_flushed() {
    let mut world = World::new(Config::default());
    let past = Treatment { handling: Handling::Bypass, ..Treatment::default() };
    let [asked, never] = [1, 2].map(|number| world.open(number, &[]));
    write(&mut world, asked, 0, 4096, Treatment::default());
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    write(&mut world, asked, 4096, 4096, past);
    write(&mut world, never, 0, 4096, past);
    world.cuts.clear();
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Done));
    assert_eq!(world.cuts, [8192]);
}

/// A quota, and the limit of a file's size, reach the program as that error. The last request asks just for what is
/// needed.
#[test]
fn whatever_the_origin_says_is_told_at_the_write() {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
        let mut world = World::new(Config::default());
        let file = world.open(1, &[]);
        write(&mut world, file, 0, 4096, Treatment::default());
        (world.full, world.full_says) = (true, errno);
        let reply = write(&mut world, file, 4096, 4096, Treatment::default());
        assert!(matches!(reply, Reply::Failed(told) if told == errno), "{reply:?}");
        assert_eq!(world.asked.last().unwrap().0, [(4096, 8192)]);
        world.full = false;
        assert!(matches!(write(&mut world, file, 4096, 4096, Treatment::default()), Reply::Changed(_)));
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    }
}

/// What a cut gives back another file may take before destage asks for it again.
#[test]
fn what_is_written_again_behind_a_cut_keeps_its_space() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &vec![1; 256 << 10]);
    world.ask(Request::Truncate { object: file, size: 0, mtime: UnixNanos(7) });
    write(&mut world, file, 64 << 10, 64 << 10, Treatment::default());
    world.asked.clear();
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(world.cuts.iter().all(|size| *size == 128 << 10), "{:?}", world.cuts);
    assert!(world.asked.is_empty(), "destage has nothing to ask for");
    let file = &world.files[&file];
    assert!(file[..64 << 10].iter().all(|byte| *byte == 0) && file[64 << 10..].iter().all(|byte| *byte == 7));
    assert_eq!(file.len(), 128 << 10);
}

#[test]
fn where_no_space_is_kept_no_more_is_dirty_than_half_of_what_is_free() {
    let mut world = World::new(Config::default());
    (world.keeps_none, world.free) = (true, 64 * MIB + 8 * MIB);
    let file = world.open(1, &[]);
    let most = 4 * MIB / 4096;
    for block in 0..2 * most {
        assert!(matches!(write(&mut world, file, block * 4096, 4096, Treatment::default()), Reply::Changed(_)));
        assert!(world.engine.stats().dirty_blocks <= most);
    }
    assert_eq!(world.asked.len(), 1, "asked once");
}

#[test]
fn where_no_space_is_kept_and_there_is_none_a_write_goes_to_the_origin_and_one_that_must_be_whole_is_refused() {
    let mut world = World::new(Config::default());
    world.keeps_none = true;
    let file = world.open(1, &[]);
    let whole = Treatment { handling: Handling::Whole, ..Treatment::default() };
    assert!(matches!(write(&mut world, file, 0, 4096, Treatment::default()), Reply::Changed(_)));
    assert_eq!((world.files[&file].len(), world.engine.stats().dirty_blocks), (4096, 0));
    assert!(matches!(write(&mut world, file, 0, 4096, whole), Reply::Failed(Errno::NOSPC)));
    // Room again.
    world.free = 1 << 40;
    world.sleep(1500);
    assert!(matches!(write(&mut world, file, 0, 4096, whole), Reply::Changed(_)));
    assert_eq!(world.engine.stats().dirty_blocks, 1);
}

/// Zeros need space only for blocks of which a part stays. No request had asked for space before, so nothing was known.
#[test]
fn where_no_space_is_kept_a_zeroing_that_comes_first_and_leaves_a_part_of_a_block_is_counted_too() {
    let zero = |object, offset, len| Request::Zero { object, offset, len, extend: false, mtime: UnixNanos(7) };
    let mut world = World::new(Config::default());
    world.keeps_none = true;
    let file = world.open(1, &vec![1; 64 << 10]);
    assert!(matches!(world.ask(zero(file, 8192, 8192)), Reply::Changed(_)));
    assert!(world.asked.is_empty(), "whole blocks become holes");
    assert!(matches!(world.ask(zero(file, 1000, 32 << 10)), Reply::Changed(_)));
    assert_eq!(world.asked.len(), 1);
    assert_eq!(world.engine.stats().dirty_blocks, 0, "it went to the origin itself, which has nothing free");
    assert!(world.files[&file][1000..1000 + (32 << 10)].iter().all(|byte| *byte == 0));
}

#[test]
fn where_no_space_is_kept_a_write_past_the_log_waits_for_what_is_dirty() {
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    (world.keeps_none, world.free) = (true, 64 * MIB + 400 * 4096);
    let file = world.open(1, &[]);
    let past = Treatment { handling: Handling::Bypass, ..Treatment::default() };
    assert!(matches!(write(&mut world, file, 0, 100 * 4096, Treatment::default()), Reply::Changed(_)));
    let other = world.open(2, &[]);
    assert!(matches!(write(&mut world, other, 0, 50 * 4096, past), Reply::Changed(_)));
    assert_eq!(world.engine.stats().dirty_blocks, 100, "there is room for both");
    assert!(matches!(write(&mut world, other, 0, 150 * 4096, past), Reply::Changed(_)));
    assert_eq!(world.engine.stats().dirty_blocks, 0);
}

/// Quotas of an NFS server, say: headpond learns of one only when destage meets it.
#[test]
fn where_no_space_is_kept_a_file_whose_destage_met_a_quota_takes_no_more_until_it_is_at_the_origin() {
    let mut world = World::new(Config::default());
    (world.keeps_none, world.free) = (true, 1 << 40);
    let [over, other] = [1, 2].map(|number| world.open(number, &[]));
    assert!(matches!(write(&mut world, over, 0, 4096, Treatment::default()), Reply::Changed(_)));
    (world.refuse_writes, world.refuse_writes_as) = (u32::MAX, Errno::DQUOT);
    let reply = world.ask(Request::flush_all(1));
    assert!(matches!(reply, Reply::Failed(Errno::DQUOT)), "{reply:?}");
    let reply = write(&mut world, over, 4096, 4096, Treatment::default());
    assert!(matches!(reply, Reply::Failed(Errno::DQUOT)), "{reply:?}");
    let cut = Request::Truncate { object: over, size: 4000, mtime: UnixNanos(7) };
    assert!(matches!(world.ask(cut), Reply::Changed(_)), "what needs no space is done");
    assert!(matches!(write(&mut world, other, 0, 4096, Treatment::default()), Reply::Changed(_)));
    world.refuse_writes = 0;
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Done));
    assert!(matches!(write(&mut world, over, 4096, 4096, Treatment::default()), Reply::Changed(_)));
}

/// Writes of other files once waited without end for the dirty data that the quota kept in a full pool.
#[test]
fn where_a_quota_keeps_the_pool_full_others_go_to_the_origin() {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, ..Config::default() };
    let mut world = World::on(Geometry::with_segment_bytes(16 * MIB, MIB / 2), config);
    (world.keeps_none, world.free) = (true, 1 << 40);
    let other = world.open(1, &[]);
    (world.refuse_writes_but_of, world.refuse_writes_as) = (Some(other), Errno::DQUOT);
    let (how, piece) = (Treatment::default(), 128 << 10);
    let mut over = other;
    for number in 2..12 {
        over = world.open(number, &[]);
        let refused = (0..).map(|at| write(&mut world, over, at * piece, piece as usize, how));
        let refused = refused.into_iter().find(|reply| !matches!(reply, Reply::Changed(_)));
        assert!(matches!(refused, Some(Reply::Failed(Errno::DQUOT))), "{refused:?}");
    }
    for at in 0..4 {
        assert!(matches!(write(&mut world, other, at * piece, piece as usize, how), Reply::Changed(_)), "{at}");
    }
    assert_eq!(world.files[&other].len() as u64, 4 * piece, "what has no room here is at the origin");
    let zero = Request::Zero { object: over, offset: 0, len: 64 * MIB, extend: false, mtime: UnixNanos(8) };
    assert!(matches!(world.ask(zero), Reply::Changed(_)), "what frees space does not wait for it");
    world.refuse_writes_but_of = None;
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
}

/// A file system with blocks smaller than the pool's: the space that it has ends within a block. Destage once made
/// nothing of that block in ranges without a byte, without end.
#[test]
fn where_space_ends_within_a_block_what_is_cut_and_grown_again_is_flushed() {
    for allocated in [1024, 4096, 9 << 10, 12 << 10] {
        let mut world = World::new(Config::default());
        let file = world.open(1, &vec![1; 64 << 10]);
        world.ask(Request::Truncate { object: file, size: 0, mtime: UnixNanos(7) });
        let stamp = Stamp { size: 64 << 10, ..Stamp::default() };
        let found = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated };
        assert!(matches!(world.ask(Request::Open(found.into())), Reply::Opened { object, .. } if object == file));
        write(&mut world, file, 32 << 10, 4096, Treatment::default());
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        let file = &world.files[&file];
        assert!(file[..32 << 10].iter().all(|byte| *byte == 0) && file[32 << 10..].iter().all(|byte| *byte == 7));
        assert_eq!(file.len(), 36 << 10);
    }
}
