//! An origin that refuses some writes gets the others.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Errno, Nanos};
use headpond_engine::{Config, Reply, Request};
use world::World;

const BLOCK: u64 = 4096;
/// So far apart that each is a write of its own.
const APART: u64 = 500 * BLOCK;
const BLOCKS: u64 = 60;

/// Each byte of a written block is the number of the block, and one more.
fn dirty() -> (World, headpond_base::ObjectId) {
    let mut world = World::new(Config { flush_period: Nanos(2 * Nanos::SECOND.0), ..Config::default() });
    let file = world.open(1, &vec![0; (BLOCKS * APART) as usize]);
    for block in 0..BLOCKS {
        world.write(file, block * APART, &[block as u8 + 1; BLOCK as usize]);
    }
    (world, file)
}

/// Lets time go by, at most five minutes, until so many blocks are dirty.
fn wait_for_dirty(world: &mut World, blocks: u64) {
    for _ in 0..6000 {
        world.sleep(50);
        if world.engine.stats().dirty_blocks == blocks {
            return;
        }
    }
    panic!("{} blocks are dirty after five minutes", world.engine.stats().dirty_blocks);
}

#[test]
fn an_origin_that_refuses_one_write_in_five_has_all_of_them_in_the_end() {
    let (mut world, file) = dirty();
    world.refuse_every = Some(5);
    wait_for_dirty(&mut world, 0);
    let at_origin = &world.files[&file];
    assert!((0..BLOCKS).all(|block| at_origin[(block * APART) as usize] == block as u8 + 1));
}

#[test]
fn a_bad_place_at_the_origin_keeps_nothing_else_from_going_there() {
    let (mut world, file) = dirty();
    world.refuse_at = Some(3 * APART);
    wait_for_dirty(&mut world, 1);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Failed(Errno::IO)), "a flush tells what it could not do");
    assert_eq!(world.engine.stats().dirty_blocks, 1);
    world.refuse_at = None;
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Done));
    assert_eq!(world.files[&file][(3 * APART) as usize], 4);
}

#[test]
fn an_origin_that_refuses_everything_is_asked_a_few_times_a_round() {
    let (mut world, _) = dirty();
    world.refuse_every = Some(1);
    (0..400).for_each(|_| world.sleep(50));
    assert_eq!(world.engine.stats().dirty_blocks, BLOCKS);
    assert!(world.writes < 100, "{} writes in 20 s", world.writes);
    world.refuse_every = None;
    wait_for_dirty(&mut world, 0);
}
