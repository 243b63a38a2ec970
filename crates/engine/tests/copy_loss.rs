//! What a sync waits for while the copy on another host is lost.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, CopyLoss, MemberId, ObjectId, UnixNanos};
use headpond_engine::{Config, MembersChange, Reply, Request, RequestId, Treatment};
use headpond_format::{HostCopies, MemberState};
use world::World;

const BLOCK: usize = 4096;

/// Write-back; nothing goes to the origin unless something waits for it.
fn config(copy_loss: CopyLoss) -> Config {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() };
    Config { copy_loss, idle_flush: None, ..config }
}

/// A pool whose copy is whole, and a file with a synced block of ones that the origin lacks.
fn with_copy(copy_loss: CopyLoss) -> (World, ObjectId) {
    let mut world = World::new(config(copy_loss));
    world.join_copy(MemberId(1));
    let file = world.open(1, &[]);
    world.write(file, 0, &[1; BLOCK]);
    sync(&mut world, file);
    world.sleep(1000);
    assert_eq!((world.engine.exposed_blocks(), world.written), (0, 0));
    (world, file)
}

/// The same, but the copy is lost. The sync that finds it out is answered or not; the block has twos.
fn without_copy(copy_loss: CopyLoss) -> (World, ObjectId, RequestId) {
    let (mut world, file) = with_copy(copy_loss);
    world.refuses_writes = Some(MemberId(1));
    world.write(file, 0, &[2; BLOCK]);
    let asked = world.begin(Request::sync(file));
    for _ in 0..100 {
        world.sleep(50);
    }
    assert!(world.engine.members()[1].missed);
    (world, file, asked)
}

fn sync(world: &mut World, object: ObjectId) {
    let reply = world.ask(Request::sync(object));
    assert!(matches!(reply, Reply::Done), "{reply:?}");
}

fn durable_write(object: ObjectId, offset: u64, byte: u8) -> Request {
    let (data, how) = (BufMut::copy_of(&[byte; BLOCK]).freeze(), Treatment::default());
    Request::Write { object, offset, data, mtime: UnixNanos(9), durable: true, how }
}

/// The first byte of the file at the origin.
fn at_origin(world: &World, object: ObjectId) -> Option<u8> {
    world.files[&object].first().copied()
}

/// Whether the origin has to take something before this is answered.
fn waits_for_the_origin(world: &mut World, request: Request) -> bool {
    world.hold_writes = true;
    let id = world.begin(request);
    world.sleep(1000);
    let waits = !world.replies.contains_key(&id);
    world.answer_writes();
    let reply = world.reply(id);
    assert!(matches!(reply, Reply::Done | Reply::Changed(_)), "{reply:?}");
    waits
}

#[test]
fn with_write_through_what_is_synced_is_at_the_origin() {
    let (mut world, file, asked) = without_copy(CopyLoss::WriteThrough);
    assert!(matches!(world.reply(asked), Reply::Done));
    assert_eq!(at_origin(&world, file), Some(2), "the sync that found the copy lost waited for the origin as well");
    assert!(world.synced.contains(&file));
    world.hold_writes = true;
    world.write(file, 0, &[3; BLOCK]);
    assert!(waits_for_the_origin(&mut world, Request::sync(file)));
    assert_eq!(at_origin(&world, file), Some(3));
    assert!(waits_for_the_origin(&mut world, durable_write(file, 0, 4)));
    assert_eq!(at_origin(&world, file), Some(4));
    let other = world.open_at(2, "other", &[]);
    world.hold_writes = true;
    world.write(other, 0, &[5; BLOCK]);
    assert!(waits_for_the_origin(&mut world, Request::SyncAll));
    assert_eq!(at_origin(&world, other), Some(5));
    // With another copy syncs are as before.
    world.refuses_writes = None;
    world.join_copy(MemberId(2));
    world.hold_writes = true;
    world.write(file, 0, &[6; BLOCK]);
    assert!(!waits_for_the_origin(&mut world, Request::sync(file)));
}

#[test]
fn with_write_through_an_origin_that_fails_fails_no_sync() {
    let (mut world, file) = with_copy(CopyLoss::WriteThrough);
    world.refuses_writes = Some(MemberId(1));
    world.refuse_every = Some(1);
    world.write(file, 0, &[2; BLOCK]);
    sync(&mut world, file);
    assert_eq!(world.read(file, 0, 1), [2]);
}

#[test]
fn with_write_through_an_origin_that_stands_still_for_a_snapshot_is_not_written_to() {
    let (mut world, file, asked) = without_copy(CopyLoss::WriteThrough);
    assert!(matches!(world.reply(asked), Reply::Done));
    let held = Config { destage_held: true, ..config(CopyLoss::WriteThrough) };
    assert!(matches!(world.ask(Request::Configure(Box::new(held))), Reply::Done));
    world.write(file, 0, &[3; BLOCK]);
    sync(&mut world, file);
    assert_eq!(at_origin(&world, file), Some(2));
}

#[test]
fn with_go_on_syncs_wait_for_the_flash_alone() {
    let (mut world, file, asked) = without_copy(CopyLoss::GoOn);
    assert!(matches!(world.reply(asked), Reply::Done));
    world.hold_writes = true;
    world.write(file, 0, &[3; BLOCK]);
    assert!(!waits_for_the_origin(&mut world, Request::sync(file)));
}

#[test]
fn with_freeze_no_sync_is_answered_until_there_is_a_copy_and_reads_go_on() {
    let (mut world, file, asked) = without_copy(CopyLoss::Freeze);
    let written = world.begin(durable_write(file, 0, 3));
    world.sleep(1000);
    assert!(!world.replies.contains_key(&asked) && !world.replies.contains_key(&written));
    assert_eq!(world.read(file, 0, 1), [3], "the write that waits holds up no reader");
    assert!(world.engine.requests_shown().contains("a copy on another host"), "{}", world.engine.requests_shown());
    world.refuses_writes = None;
    world.join_copy(MemberId(2));
    assert!(matches!(world.reply(asked), Reply::Done));
    assert!(matches!(world.reply(written), Reply::Changed(_)));
}

#[test]
fn what_is_frozen_goes_on_with_another_setting_and_with_the_end_of_the_mount() {
    let (mut world, _, asked) = without_copy(CopyLoss::Freeze);
    assert!(matches!(world.ask(Request::Configure(Box::new(config(CopyLoss::GoOn)))), Reply::Done));
    assert!(matches!(world.reply(asked), Reply::Done));
    let (mut world, _, asked) = without_copy(CopyLoss::Freeze);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    assert!(matches!(world.reply(asked), Reply::Done));
}

#[test]
fn while_one_of_two_copies_is_left_syncs_wait_for_nothing_else() {
    let (mut world, file) = with_copy(CopyLoss::Freeze);
    world.join_copy(MemberId(2));
    world.write(file, 0, &[2; BLOCK]);
    sync(&mut world, file);
    world.sleep(5000);
    assert_eq!(world.engine.exposed_blocks(), 0);
    let copies = world.engine.host_copies();
    assert_eq!(copies, HostCopies::of(1, [MemberId(1), MemberId(2)]), "each of the two has everything");
    assert!(world.engine.members()[1].is_enough && world.engine.members()[2].is_enough);
    world.refuses_writes = Some(MemberId(1));
    world.write(file, 0, &[3; BLOCK]);
    sync(&mut world, file);
    world.sleep(5000);
    assert!(world.engine.members()[1].missed);
    assert_eq!(world.engine.exposed_blocks(), 0, "the other one has everything");
    let copies = world.engine.host_copies();
    assert_eq!((copies, world.written), (HostCopies::of(1, [MemberId(2)]), 0));
    assert!(world.engine.members()[2].is_enough && !world.engine.members()[0].is_enough);
}

#[test]
fn while_one_of_two_copies_is_emptied_the_other_one_is_enough_for_a_start() {
    let (mut world, file) = with_copy(CopyLoss::Freeze);
    world.join_copy(MemberId(2));
    // The log remembers its last 8 MiB: what moves has to be read.
    for mib in 0..10 {
        world.write(file, mib << 20, &vec![8; 256 * BLOCK]);
        sync(&mut world, file);
    }
    world.sleep(5000);
    assert!(world.engine.members()[2].is_enough);
    world.hold_a_read_of = Some(MemberId(0));
    world.begin(Request::ChangeMembers(MembersChange::Remove(MemberId(2))));
    world.sleep(5000);
    let members = world.engine.members();
    assert_eq!((members[2].state, members[2].is_enough), (MemberState::Emptied, false));
    assert!(members[1].is_enough);
    assert_eq!(world.engine.host_copies(), HostCopies::of(1, [MemberId(1)]));
}

#[test]
fn reads_stay_on_this_host_while_its_flash_gives_them() {
    let (mut world, file) = with_copy(CopyLoss::WriteThrough);
    let whole = 256 * BLOCK;
    world.write(file, 0, &vec![7; whole]);
    sync(&mut world, file);
    // The log remembers its last 8 MiB.
    for mib in 2..12 {
        world.write(file, mib << 20, &vec![8; whole]);
        sync(&mut world, file);
    }
    world.sleep(5000);
    world.hold_a_read_of = Some(MemberId(1));
    let read_all = |world: &mut World| {
        (0..256).step_by(32).all(|block| world.read(file, block * BLOCK as u64, BLOCK as u32) == [7; BLOCK])
    };
    assert!(read_all(&mut world));
    assert!(world.held_reads.is_empty(), "the copy is far away");
    world.hold_a_read_of = None;
    world.refuses_reads = Some(MemberId(0));
    assert!(read_all(&mut world), "but it is there");
}

/// After a take-over the pool goes on upon the copy. The next host with a copy makes it whole, so nobody is missed.
#[test]
fn a_copy_that_joins_after_a_take_over_stands_in_for_the_flash_that_was_lost() {
    let (mut world, file) = with_copy(CopyLoss::WriteThrough);
    world.refuses_writes = Some(MemberId(0));
    world.write(file, 0, &[2; BLOCK]);
    sync(&mut world, file);
    world.sleep(1000);
    let lost = world.engine.members()[0];
    assert!(lost.missed && !lost.works && !world.engine.members()[1].copies_only, "{lost:?}");
    world.join_copy(MemberId(2));
    assert!(world.engine.members().iter().all(|shown| !shown.missed), "{:?}", world.engine.members());
    world.write(file, 0, &[3; BLOCK]);
    sync(&mut world, file);
}

#[test]
fn a_flash_that_joins_is_no_copy_on_another_host() {
    let (mut world, _, _) = without_copy(CopyLoss::GoOn);
    world.join(MemberId(2), false);
    assert!(world.engine.members()[1].missed, "the copy is still missed");
}

/// The pool goes on upon its copy. What lies there is in segments that have slots of the flash that is gone, and nothing
/// else moves it: there is room. But the next host needs that flash's number.
#[test]
fn what_holds_the_last_number_moves_so_that_the_next_host_gets_it() {
    const NUMBERS: usize = 2;
    let mut world = World::new(Config { numbers: NUMBERS, ..config(CopyLoss::WriteThrough) });
    let next = |world: &World| {
        let known = world.engine.members();
        headpond_engine::number_for(known[0].segments, &known, &world::geometry(), NUMBERS, |_| false)
    };
    world.join_copy(next(&world).unwrap());
    let file = world.open(1, &[]);
    world.write(file, 0, &[1; BLOCK]);
    sync(&mut world, file);
    world.refuses_writes = Some(MemberId(0));
    world.write(file, BLOCK as u64, &[2; BLOCK]);
    sync(&mut world, file);
    assert_eq!(next(&world), Err(headpond_engine::NoNumber::NotYet));
    // The flash that is missed keeps its number for its place in the list; the operator says that none is wanted.
    assert!(matches!(world.ask(Request::ChangeMembers(MembersChange::Remove(MemberId(0)))), Reply::Done));
    for _ in 0..1000 {
        if next(&world).is_ok() {
            break;
        }
        world.sleep(50);
    }
    assert_eq!(next(&world), Ok(MemberId(0)), "{:?}", world.engine.members());
    world.refuses_writes = None;
    world.join_copy(MemberId(0));
    world.write(file, 0, &[3; BLOCK]);
    sync(&mut world, file);
    assert_eq!(world.read(file, 0, 2 * BLOCK as u32), [[3; BLOCK], [2; BLOCK]].concat());
}
