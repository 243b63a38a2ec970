//! What is said before a member is taken offline is what taking it offline says.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Errno, MemberId, Redundancy};
use headpond_engine::{Config, MembersChange, Reply, Request};
use world::World;

/// Write-back; nothing goes to the origin unless something waits for it.
fn write_back(redundancy: Redundancy) -> Config {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() };
    Config { redundancy, idle_flush: None, ..config }
}

/// A pool of so many members, with a synced block that the origin lacks.
fn with_a_dirty_block(members: u8, redundancy: Redundancy) -> World {
    let mut world = World::of_members(members, write_back(redundancy));
    let file = world.open(1, &[]);
    world.write(file, 0, &[1; 4096]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    world.sleep(1000);
    world
}

/// What is said before, which is what is then answered.
fn asked_and_answered(world: &mut World, member: MemberId) -> Result<(), Errno> {
    let said = world.engine.members()[usize::from(member.0)].may_go_offline;
    let answered = match world.ask(Request::ChangeMembers(MembersChange::Offline(member))) {
        Reply::Done => Ok(()),
        Reply::Failed(errno) => Err(errno),
        other => panic!("{other:?}"),
    };
    assert_eq!(said, answered);
    said
}

#[test]
fn a_pool_without_second_copies_can_spare_no_member() {
    let mut world = with_a_dirty_block(2, Redundancy::None);
    assert_eq!(asked_and_answered(&mut world, MemberId(1)), Err(Errno::INVAL));
}

#[test]
fn the_last_member_stays_and_so_does_each_while_dirty_data_has_one_copy() {
    let mut world = with_a_dirty_block(2, Redundancy::Mirror);
    assert_eq!(asked_and_answered(&mut world, MemberId(0)), Ok(()));
    assert_eq!(asked_and_answered(&mut world, MemberId(0)), Err(Errno::INVAL), "it is out");
    assert_eq!(asked_and_answered(&mut world, MemberId(1)), Err(Errno::INVAL), "nothing would be left");

    let mut world = with_a_dirty_block(3, Redundancy::Mirror);
    world.refuses_writes = Some(MemberId(2));
    let file = world.open(1, &[]);
    world.write(file, 4096, &[2; 4096]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    let said = world.engine.members()[0].may_go_offline;
    assert_eq!(said.is_ok(), world.engine.exposed_blocks() == 0);
}
