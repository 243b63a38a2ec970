//! What is acknowledged lies in memory that outlives the process, or on flash. If that memory is full, changes wait.
#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use std::sync::atomic::AtomicU64;

use headpond_base::{BufMut, Lender, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Outcome, Reply, Request, SecondTail, TailSlots, Treatment, left_by, recover};
use world::{Memory, POOL, World};

const SLOTS: TailSlots = TailSlots { usual: 3, largest: 1 };

/// A file in a pool with a second tail. Each change is a batch, and writes of the log stay under way.
fn with_second_tail() -> (World, ObjectId, &'static [AtomicU64], Lender) {
    let words = (0..SLOTS.words()).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let room = vec![0; SLOTS.bytes() + 4096].leak();
    let skip = room.as_ptr().align_offset(4096);
    let tail = SecondTail::new(words, SLOTS, SLOTS.split(&mut room[skip..]));
    let lender = tail.lender();
    let config = Config { early_blocks: 1, flush_period: Config::OFF, sync_interval: Config::OFF, ..Config::default() };
    let mut world = World::new(config);
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    recovered.survive_in(tail);
    world.engine = recovered.into_engine(config, Nanos(world.now));
    world.run();
    let file = world.open(1, &[3; 65536]);
    // From now on the file has its space, so nothing else waits for flash.
    world.write(file, 0, &[5; 65536]);
    world.ask(Request::sync(file));
    world.hold_below = POOL;
    (world, file, words, lender)
}

fn write(object: ObjectId, block: u64) -> Request {
    let data = BufMut::copy_of(&[7; 4096]).freeze();
    let (mtime, how) = (UnixNanos(7), Treatment::default());
    Request::Write { object, offset: block * 4096, data, mtime, durable: false, how }
}

#[test]
fn answers_need_no_flash_while_there_are_slots_and_wait_for_it_when_there_are_none() {
    let (mut world, file, ..) = with_second_tail();
    let asked: Vec<_> = (0..6).map(|block| world.begin(write(file, block))).collect();
    let answered = |world: &World| asked.iter().filter(|id| world.replies.contains_key(id)).count();
    let before = answered(&world);
    assert!((1..6).contains(&before), "{before} of 6 are answered, and no write of the log is completed");
    world.release();
    assert_eq!(answered(&world), 6);
    assert!(world.replies.values().all(|reply| matches!(reply, Reply::Changed(_))));
}

/// Destage gives back no slot. It would only take the origin, and the processor, from those that need them.
#[test]
fn who_waits_for_a_slot_has_nothing_destaged() {
    let (mut world, file, ..) = with_second_tail();
    let before = (world.writes, world.flash_syncs);
    let mut number = 0;
    for _ in 0..100 {
        // Half of the file is written again all the time, until somebody waits for a slot.
        let mut last = world.begin(write(file, 0));
        while world.replies.contains_key(&last) {
            number += 1;
            last = world.begin(write(file, number % 8));
        }
        world.sleep(60);
        assert!(!world.replies.contains_key(&last));
        // Flash completes one write after the other.
        let oldest = world.held.remove(0);
        world.engine.complete(oldest, Outcome::Done);
        world.run();
    }
    assert!(world.engine.stats().dirty_blocks > 8);
    // Destage begins with a sync of the log.
    world.release();
    assert_eq!((world.writes, world.flash_syncs), before, "origin writes, and syncs of the log");
}

#[test]
fn what_was_answered_is_left_when_the_engine_is_gone() {
    let (mut world, file, words, lender) = with_second_tail();
    let image = world.flash.0.clone();
    let asked: Vec<_> = (0..2).map(|block| world.begin(write(file, block))).collect();
    assert!(asked.iter().all(|id| world.replies.contains_key(id)), "{}", world.engine.requests_shown());
    drop(world);
    let slots = lender.take_back().unwrap();
    let left = left_by(words, &slots).unwrap();
    assert_eq!(left.unreadable, 0);
    let mut flash = Memory(image);
    let last = |flash: &mut Memory| recover(flash, POOL).unwrap().last_host_batch();
    let before = last(&mut flash);
    for write in left.writes {
        let at = write.places[0].offset as usize;
        flash.0[at..at + write.data.len()].copy_from_slice(&write.data);
    }
    assert_eq!(last(&mut flash).0, before.0 + 2, "a batch for each change");
}
