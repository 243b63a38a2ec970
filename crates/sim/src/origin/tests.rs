//! What the simulated origin keeps, loses and counts.

use super::*;
use headpond_base::BufMut;

fn write(origin: &mut SimOrigin, id: FileId, offset: u64, byte: u8, len: usize) -> Result<()> {
    origin.change(id, OriginChange::Write { offset, data: vec![BufMut::copy_of(&vec![byte; len]).freeze()] })
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_lose_the_rest_page_by_page() {
    let mut rng = Rng::new(1);
    let (mut kept, mut lost, mut mixed) = (false, false, false);
    for _ in 0..200 {
        let mut origin = SimOrigin::new(100, SpaceKind::Keeps, true);
        let id = origin.create(b"a");
        write(&mut origin, id, 0, 1, 2 * BLOCK).unwrap();
        let reach = origin.start_sync(id);
        write(&mut origin, id, 0, 2, 2 * BLOCK).unwrap();
        origin.finish_sync(id, reach);
        origin.power_cut(&mut rng);
        let bytes = origin.live(id).unwrap().copied(0, u64::MAX);
        assert_eq!(bytes.len(), 2 * BLOCK);
        let (first, second) = (bytes[0], bytes[BLOCK]);
        assert!([1, 2].contains(&first) && [1, 2].contains(&second));
        kept |= (first, second) == (2, 2);
        lost |= (first, second) == (1, 1);
        mixed |= first != second;
    }
    assert!(kept && lost && mixed);
}

#[test]
fn a_sync_that_fails_may_lose_what_destage_wrote_and_nothing_else() {
    let mut rng = Rng::new(3);
    let (mut lost, mut short) = (false, false);
    for _ in 0..100 {
        let mut origin = SimOrigin::new(100, SpaceKind::Keeps, true);
        let id = origin.create(b"a");
        write(&mut origin, id, 0, 1, 2 * BLOCK).unwrap();
        origin.sync_all();
        write(&mut origin, id, 0, 2, BLOCK).unwrap();
        write(&mut origin, id, BLOCK_U64, 3, 2 * BLOCK).unwrap();
        origin.was_destaged(id);
        let reach = origin.start_sync(id);
        origin.lose_destaged(id, &mut rng);
        let bytes = origin.live(id).unwrap().copied(0, u64::MAX);
        assert_eq!(bytes[..BLOCK], [2; BLOCK], "an application's");
        lost |= bytes[BLOCK] == 1;
        short |= bytes.len() == 2 * BLOCK;
        assert_eq!(origin.stamp(id).unwrap().size, bytes.len() as u64);
        origin.finish_sync(id, reach);
        assert_eq!(origin.durable(id).unwrap().copied(0, u64::MAX), bytes, "what is left can be synced");
    }
    assert!(lost && short);
}

#[test]
fn directory_changes_survive_as_a_prefix_and_the_sync_of_a_file_commits_them() {
    let mut rng = Rng::new(2);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let mut origin = SimOrigin::new(100, SpaceKind::Keeps, true);
        let a = origin.create(b"a");
        let reach = origin.start_sync(a);
        origin.finish_sync(a, reach);
        origin.create(b"b");
        origin.rename(b"b", b"a").unwrap();
        origin.power_cut(&mut rng);
        seen.insert(origin.names().keys().cloned().collect::<Vec<_>>());
        assert!(origin.names().contains_key(&b"a"[..]), "a rename over a file leaves the old or the new one");
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn space_is_limited_and_comes_back() {
    let mut origin = SimOrigin::new(2, SpaceKind::Keeps, true);
    let id = origin.create(b"a");
    origin.reserve(id, 0, 2 * BLOCK_U64).unwrap();
    assert_eq!(origin.reserve(id, 2 * BLOCK_U64, 1), Err(Errno::NOSPC));
    assert_eq!(write(&mut origin, id, 0, 1, 2 * BLOCK), Ok(()), "reserved space is there");
    origin.change(id, OriginChange::Zero { offset: 0, len: BLOCK_U64 }).unwrap();
    assert_eq!(origin.free_blocks(), 1);
    origin.change(id, OriginChange::Resize { size: 0 }).unwrap();
    assert_eq!(origin.free_blocks(), 2);
}

#[test]
fn a_free_inode_number_is_used_again_with_another_birth() {
    let mut origin = SimOrigin::new(2, SpaceKind::Keeps, true);
    let first = origin.create(b"a");
    let FileIdentity { inode, birth } = origin.identity(first).unwrap();
    origin.unlink(b"a").unwrap();
    let second = origin.create(b"a");
    let FileIdentity { inode: again, birth: later } = origin.identity(second).unwrap();
    assert_eq!(inode, again);
    assert!(later > birth);
}
