//! Rows with a parity: they give back room, and what a lost member had.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{MemberId, ObjectId, Redundancy};
use headpond_engine::{Config, Mutation, Reply, Request, ScrubShown, Treatment};
use headpond_format::{Geometry, MemberName};
use world::{Memory, POOL, World};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4000;
const MEMBERS: u8 = 4;

/// Write-back; nothing goes to the origin unless something waits for it.
fn write_back(redundancy: Redundancy) -> Config {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() };
    Config { redundancy, idle_flush: None, ..config }
}

/// The content of a block, which no other has.
fn content(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|word| ((number << 16) + word + 1).to_le_bytes()).collect()
}

fn fill(world: &mut World) -> ObjectId {
    let file = world.open(1, &[]);
    for number in 0..BLOCKS {
        world.write(file, number * BLOCK as u64, &content(number));
    }
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    file
}

fn some_time(world: &mut World) {
    for _ in 0..400 {
        world.sleep(50);
    }
}

/// A pool with much dirty data in rows that count, and its file.
fn with_rows(config: Config) -> (World, ObjectId) {
    let mut world = World::of_members(MEMBERS, config);
    fill(&mut world);
    some_time(&mut world);
    assert!(world.engine.stats().rows_made > 1, "{:?}", world.engine.stats());
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let (mut world, file) = started(crashed(world, &[]), config);
    some_time(&mut world);
    (world, file)
}

/// What a crash leaves on all devices but those of some members.
fn crashed(world: World, without: &[u16]) -> Vec<Memory> {
    let all = [world.flash].into_iter().chain(world.others);
    (0..).zip(all).filter(|(member, _)| !without.contains(member)).map(|(_, flash)| flash).collect()
}

/// A start from what these devices hold, and the same file.
fn started(devices: Vec<Memory>, config: Config) -> (World, ObjectId) {
    let mut world = World::start(devices, config);
    let file = world.open(1, &[]);
    (world, file)
}

fn read(world: &mut World, object: ObjectId, number: u64) -> Option<Vec<u8>> {
    let (offset, len, how) = (number * BLOCK as u64, BLOCK as u32, Treatment::default());
    match world.ask(Request::Read { object, offset, len, how }) {
        Reply::Data(bytes, _) => Some(bytes.iter().flat_map(|piece| piece.iter().copied()).collect()),
        _ => None,
    }
}

#[test]
fn rows_give_back_the_room_of_copies_and_nothing_is_exposed() {
    let (mirrored, _) = {
        let config = write_back(Redundancy::Mirror);
        let mut world = World::of_members(MEMBERS, config);
        let file = fill(&mut world);
        some_time(&mut world);
        (world, file)
    };
    let (mut world, file) = with_rows(write_back(Redundancy::Parity));
    let free = |world: &World| world.engine.stats().free_segments;
    assert_eq!((world.engine.stats().dirty_blocks, world.engine.exposed_blocks()), (BLOCKS, 0));
    assert!(free(&world) > free(&mirrored), "{} {}", free(&world), free(&mirrored));
    for number in 0..BLOCKS {
        assert!(read(&mut world, file, number) == Some(content(number)), "{number}");
    }
    assert_eq!(world.engine.stats().row_reads, 0);
    // Once all is clean, rows end, and all can be filled again.
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    let other = world.open(2, &[]);
    for number in 0..4 * BLOCKS {
        world.write(other, number * BLOCK as u64, &content(number));
    }
    assert!(matches!(world.ask(Request::sync(other)), Reply::Done));
    assert_eq!(world.engine.exposed_blocks(), 0);
}

#[test]
fn a_start_without_any_one_member_finds_all_and_protects_it_anew() {
    for missing in 0..u16::from(MEMBERS) {
        let config = write_back(Redundancy::Parity);
        let (world, _) = with_rows(config);
        let (mut world, file) = started(crashed(world, &[missing]), config);
        for number in 0..BLOCKS {
            assert!(read(&mut world, file, number) == Some(content(number)), "without {missing}: {number}");
        }
        assert!(world.engine.stats().row_reads > 0, "without {missing}");
        some_time(&mut world);
        assert_eq!(world.engine.exposed_blocks(), 0, "without {missing}");
        assert_eq!(world.engine.stats().dirty_blocks, BLOCKS);
    }
}

/// The places that have a block: device and offset.
fn places(devices: &[&mut Memory], number: u64) -> Vec<(usize, usize)> {
    let wanted = content(number);
    let in_device = |bytes: &[u8]| -> Vec<usize> {
        (0..bytes.len()).step_by(BLOCK).filter(|at| bytes[*at..*at + BLOCK] == wanted).collect()
    };
    let all = devices.iter().enumerate();
    all.flat_map(|(device, memory)| in_device(&memory.0).into_iter().map(move |at| (device, at))).collect()
}

fn devices(world: &mut World) -> Vec<&mut Memory> {
    [&mut world.flash].into_iter().chain(&mut world.others).collect()
}

/// A block that lies in one place alone: in a row.
fn in_a_row(world: &mut World) -> (u64, (usize, usize)) {
    let devices = devices(world);
    let found = (0..BLOCKS).step_by(50).find_map(|number| match places(&devices, number)[..] {
        [place] => Some((number, place)),
        _ => None,
    });
    found.expect("a row counts")
}

/// Where the parity of what lies in this place is.
fn parity_of(world: &mut World, (home, at): (usize, usize)) -> (usize, usize) {
    let shapes: Vec<_> = (1..=MEMBERS).map(|name| (MemberName([name; 16]), POOL)).collect();
    let (geometry, rows) = Geometry::for_members(&shapes, Some(2 << 20)).unwrap();
    let segment = geometry.segment_bytes as usize;
    let start = rows[0].start as usize;
    let within = (at - start) % segment;
    let devices = devices(world);
    let word = |device: usize, at: usize| u64::from_le_bytes(devices[device].0[at..at + 8].try_into().unwrap());
    let slots = || (0..rows[0].slots as usize).map(move |slot| start + slot * segment + within);
    let others: Vec<usize> = (0..usize::from(MEMBERS)).filter(|device| *device != home).collect();
    for parity in &others {
        let [one, two] = others.iter().copied().filter(|device| device != parity).collect::<Vec<_>>()[..] else {
            panic!("of four members")
        };
        for (first, second, last) in slots()
            .flat_map(|first| slots().map(move |second| (first, second)))
            .flat_map(|(first, second)| slots().map(move |last| (first, second, last)))
        {
            let data = [word(home, at), word(one, first), word(two, second)];
            // The numbers of blocks are small; a parity is the inverse of such.
            if data.iter().all(|word| *word != 0 && *word >> 32 == 0)
                && word(*parity, last) == !(data[0] ^ data[1] ^ data[2])
            {
                return (*parity, last);
            }
        }
    }
    panic!("no parity");
}

fn scrub(world: &mut World) -> ScrubShown {
    assert!(matches!(world.ask(Request::Scrub), Reply::Done));
    world.engine.scrub().unwrap()
}

#[test]
fn a_block_that_has_rotted_comes_out_of_its_row() {
    let (mut world, file) = with_rows(write_back(Redundancy::Parity));
    let (number, (device, at)) = in_a_row(&mut world);
    devices(&mut world)[device].0[at + 100] ^= 4;
    assert!(read(&mut world, file, number) == Some(content(number)));
    let stats = world.engine.stats();
    assert!(stats.row_reads > 0 && stats.lost_blocks == 0, "{stats:?}");
    // It was written elsewhere since, with all that was dirty beside it.
    some_time(&mut world);
    assert_eq!(world.engine.exposed_blocks(), 0);
    assert_eq!(scrub(&mut world).damaged, []);
}

/// Of a read out of a row the parity came first. The row ended, and a segment of it was given back while the read of
/// that one was under way (seed 610000860).
#[test]
fn what_is_read_out_of_a_row_is_given_back_only_once_all_of_it_was_read() {
    let (mut world, file) = with_rows(write_back(Redundancy::Parity));
    let (number, (home, at)) = in_a_row(&mut world);
    let (parity, _) = parity_of(&mut world, (home, at));
    devices(&mut world)[home].0[at + 100] ^= 4;
    let other = (0..MEMBERS.into()).find(|device| ![home, parity].contains(device)).unwrap();
    world.hold_a_read_of = Some(MemberId(other as u16));
    let (offset, len, how) = (number * BLOCK as u64, BLOCK as u32, Treatment::default());
    let read = world.begin(Request::Read { object: file, offset, len, how });
    assert_eq!(world.held_reads.len(), 1, "all other parts of the row came");
    // Nothing else is of use in its row.
    for other in (0..BLOCKS).filter(|other| *other != number) {
        world.write(file, other * BLOCK as u64, &content(other));
    }
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    let second = world.open(2, &[]);
    for number in 0..4 * BLOCKS {
        world.write(second, number * BLOCK as u64, &content(number));
    }
    assert_eq!(world.held_reads.len(), 1);
    world.answer_reads();
    let Reply::Data(bytes, _) = world.reply(read) else { panic!("not read") };
    assert!(bytes.iter().flat_map(|piece| piece.iter().copied()).eq(content(number)));
}

#[test]
fn a_scrub_finds_a_parity_that_has_rotted_and_a_block_that_has() {
    for rots_parity in [false, true] {
        let (mut world, file) = with_rows(write_back(Redundancy::Parity));
        assert_eq!(scrub(&mut world).damaged, []);
        let (number, home) = in_a_row(&mut world);
        let (device, at) = if rots_parity { parity_of(&mut world, home) } else { home };
        devices(&mut world)[device].0[at + 100] ^= 4;
        let shown = scrub(&mut world);
        assert_eq!(shown.damaged, [(MemberId(device as u16), 1)], "one block, however many a row has: {shown:?}");
        assert!(shown.mended_blocks > 0 && shown.lost_blocks == 0, "{shown:?}");
        some_time(&mut world);
        assert_eq!(world.engine.exposed_blocks(), 0);
        let shown = scrub(&mut world);
        assert_eq!(shown.damaged, [], "{shown:?}");
        assert!(read(&mut world, file, number) == Some(content(number)));
    }
}

/// How many blocks are right, and how many wrong, where one member is missing and all data on another has rotted.
fn after_two_losses(mutation: Option<Mutation>) -> (usize, usize) {
    let (world, _) = with_rows(write_back(Redundancy::Parity));
    let mut left = crashed(world, &[0]);
    let known: std::collections::HashSet<Vec<u8>> = (0..BLOCKS).map(content).collect();
    let bytes = &mut left[0].0;
    for at in (0..bytes.len()).step_by(BLOCK) {
        if known.contains(&bytes[at..at + BLOCK]) {
            bytes[at + 100] ^= 4;
        }
    }
    let (mut world, file) = started(left, Config { mutation, ..write_back(Redundancy::Parity) });
    let found: Vec<_> =
        (0..BLOCKS).map(|number| read(&mut world, file, number).map(|found| found == content(number))).collect();
    let count = |wanted: bool| found.iter().filter(|found| **found == Some(wanted)).count();
    assert!(found.contains(&None) || mutation.is_some(), "what two members had is lost");
    (count(true), count(false))
}

#[test]
fn what_a_row_gives_back_is_verified() {
    let (right, wrong) = after_two_losses(None);
    assert!(right > 0 && wrong == 0, "{right} {wrong}");
    let (_, wrong) = after_two_losses(Some(Mutation::RowUnverified));
    assert!(wrong > 0, "a planted bug went unnoticed");
}
