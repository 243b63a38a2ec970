//! A start with a device that shows its superblock and nothing of its segments.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Buf, Errno, MemberId, Redundancy, Result};
use headpond_engine::{Config, Device, FlashRead, Present, RecoverError, Recovered, Reply, Request, recover_members};
use world::{Memory, POOL, World, geometry};

const BLOCK: usize = 4096;

/// Reads of its segments fail.
struct Unreadable(Memory);

impl FlashRead for Unreadable {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        if offset >= geometry().segments_start { Err(Errno::IO) } else { self.0.read(offset, len) }
    }
}

/// The two devices of a pool with a synced block. The second has copies only, and no superblock says that it has each batch.
fn left_by_a_crash() -> (Memory, Memory) {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, idle_flush: None, ..Config::default() };
    let mut world = World::new(Config { redundancy: Redundancy::None, ..config });
    world.join_copy(MemberId(1));
    let file = world.open(1, &[]);
    world.write(file, 0, &[1; BLOCK]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    (Memory(world.flash.0.clone()), Memory(world.others[0].0.clone()))
}

fn start(mut first: impl FlashRead, mut second: impl FlashRead) -> std::result::Result<Recovered, RecoverError> {
    let given: [&mut dyn FlashRead; 2] = [&mut first, &mut second];
    let devices = given.map(|flash| Device { flash, bytes: POOL }).into();
    recover_members(&mut Present::muster(devices).unwrap(), None)
}

#[test]
fn a_member_with_copies_only_need_not_be_readable_after_a_crash() {
    let (ordinary, copies) = left_by_a_crash();
    let recovered = start(ordinary, Unreadable(copies)).unwrap();
    assert_eq!(recovered.dirty_blocks(), 1);
}

#[test]
fn an_ordinary_member_must_be_if_no_superblock_says_that_another_has_each_batch() {
    let (ordinary, copies) = left_by_a_crash();
    let refusal = start(Unreadable(ordinary), copies).err();
    assert_eq!(refusal, Some(RecoverError::UnreadAfterCrash { member: MemberId(0) }));
}
