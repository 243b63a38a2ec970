//! Group commit: how many syncs the device is asked for.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod start;

use headpond_base::{Errno, MemberId, ObjectId, Redundancy, Sequence, Stream};
use headpond_format::{Addresses, Entry, Geometry, Member, MemberName, Members, SegmentState};
use headpond_log::{CommitSide, Durability, FillPolicy, Log, LogIo, LogStart, WriteId};

/// An empty log.
fn log() -> Log {
    Log::new(start::empty(Geometry::with_segment_bytes(4 << 20, 128 << 10)))
}

/// What the log wants done now: the writes, and how many syncs.
fn wanted(log: &mut Log) -> (Vec<WriteId>, usize) {
    let (mut writes, mut syncs) = (Vec::new(), 0);
    for io in log.take_io() {
        match io {
            LogIo::Write { id, .. } => writes.push(id),
            LogIo::Sync { .. } => syncs += 1,
            LogIo::Trim { .. } => {}
        }
    }
    (writes, syncs)
}

fn complete(log: &mut Log, writes: Vec<WriteId>) {
    writes.into_iter().for_each(|id| log.wrote(id, MemberId(0)));
}

#[test]
fn a_sync_that_covers_everything_is_not_followed_by_another() {
    let mut log = log();
    let last = log.append(&Entry::Forget { object: ObjectId(1) });
    log.want_sync(Durability::Everywhere);
    let (writes, syncs) = wanted(&mut log);
    assert_eq!(syncs, 0, "its writes are under way");
    // Another request waits for the same: while the writes are under way, and while the device syncs.
    log.want_sync(Durability::Everywhere);
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log), (Vec::new(), 1));
    log.want_sync(Durability::Everywhere);
    log.synced(CommitSide::Here);
    assert_eq!(log.durable(), last);
    assert_eq!(wanted(&mut log), (Vec::new(), 0), "everything is durable");
}

#[test]
fn what_was_appended_during_a_sync_gets_one_of_its_own() {
    let mut log = log();
    log.append(&Entry::Forget { object: ObjectId(1) });
    log.want_sync(Durability::Everywhere);
    let (writes, _) = wanted(&mut log);
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log).1, 1);
    let last = log.append(&Entry::Forget { object: ObjectId(2) });
    log.want_sync(Durability::Everywhere);
    log.synced(CommitSide::Here);
    assert!(log.durable() < last);
    let (writes, syncs) = wanted(&mut log);
    assert_eq!((writes.len(), syncs), (1, 0));
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log).1, 1);
    log.synced(CommitSide::Here);
    assert_eq!(log.durable(), last);
}

#[test]
fn a_sync_waits_for_earlier_batches_in_every_open_segment() {
    let mut log = log();
    log.fill(FillPolicy { host_segments: 2, ..FillPolicy::default() });
    let mut last = Sequence(0);
    for object in 1..=2 {
        last = log.append(&Entry::Forget { object: ObjectId(object) });
        log.close(Stream::Host);
    }
    log.want_sync(Durability::Everywhere);
    // A head and a batch in each of two segments.
    let (mut writes, syncs) = wanted(&mut log);
    assert_eq!((writes.len(), syncs), (4, 0));
    let earlier = writes.remove(1);
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log), (Vec::new(), 0), "the batch before is not written yet, in the other segment");
    log.wrote(earlier, MemberId(0));
    assert_eq!(wanted(&mut log).1, 1);
    assert!(log.durable() < last);
    log.synced(CommitSide::Here);
    assert_eq!(log.durable(), last);
}

#[test]
fn few_free_segments_are_left_alone_by_further_open_ones() {
    let opened = |spare: usize| {
        let mut log = log();
        log.fill(FillPolicy { host_segments: 4, spare, ..FillPolicy::default() });
        for object in 1..=8 {
            log.append(&Entry::Forget { object: ObjectId(object) });
            log.close(Stream::Host);
        }
        log.segments().iter().filter(|(_, segment)| segment.state == SegmentState::Open).count()
    };
    let all = log().segments().free();
    assert_eq!((opened(0), opened(all - 2), opened(all)), (4, 2, 1));
}

#[test]
fn where_each_change_is_followed_by_a_sync_the_log_does_not_wait_for_the_request() {
    let mut log = log();
    let mut last = Sequence(0);
    for object in 1..=2 {
        last = log.append(&Entry::Forget { object: ObjectId(object) });
        log.want_sync(Durability::Everywhere);
        let (writes, _) = wanted(&mut log);
        complete(&mut log, writes);
        assert_eq!(wanted(&mut log).1, 1);
        log.synced(CommitSide::Here);
    }
    for object in 3..=5 {
        assert_eq!(log.durable(), last);
        last = log.append(&Entry::Forget { object: ObjectId(object) });
        let (writes, syncs) = wanted(&mut log);
        assert_eq!((writes.len(), syncs), (1, 0), "it writes at once");
        if object == 4 {
            // The request may come while the flash is at it.
            log.want_sync(Durability::Everywhere);
        }
        complete(&mut log, writes);
        assert_eq!(wanted(&mut log), (Vec::new(), 1), "and syncs at once");
        log.synced(CommitSide::Here);
        if object != 4 {
            log.found_durable(Durability::Everywhere);
        }
    }
    // Nobody asks any more: one sync was in vain, and no more follow.
    for object in 6..=9 {
        log.append(&Entry::Forget { object: ObjectId(object) });
        let (writes, _) = wanted(&mut log);
        assert_eq!(writes.len(), usize::from(object == 6));
        complete(&mut log, writes);
        let syncs = wanted(&mut log).1;
        assert_eq!(syncs, usize::from(object == 6));
        (0..syncs).for_each(|_| log.synced(CommitSide::Here));
    }
}

/// The member of this host, and one on another.
const OWN: MemberId = MemberId(0);
const PEER: MemberId = MemberId(1);

/// An empty log with a copy of each host batch on another host.
fn with_a_copy_apart() -> Log {
    let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
    let own = geometry.member(MemberName([5; 16]));
    let copies = Member { name: MemberName([6; 16]), copies_only: true, ..own };
    let (list, peer) = Members::first(own).with(copies).unwrap();
    assert_eq!(peer, PEER);
    let geometry = Geometry { segments: 2 * own.slots, ..geometry };
    let mut log = Log::new(LogStart {
        addresses: Addresses::of_empty(geometry, &list).unwrap(),
        members: vec![OWN, PEER],
        take_new: vec![(OWN, own.slots), (PEER, own.slots)],
        copies_only: vec![PEER],
        ..start::empty(geometry)
    });
    log.set_redundancy(Redundancy::Mirror);
    log
}

/// Writes, each on one member.
type Written = Vec<(WriteId, MemberId)>;

/// What the log wants done now: the writes with their members, and the syncs with theirs.
fn wanted_of_each(log: &mut Log) -> (Written, Vec<(CommitSide, Vec<MemberId>)>) {
    let (mut writes, mut syncs) = (Vec::new(), Vec::new());
    for io in log.take_io() {
        match io {
            LogIo::Write { id, at, .. } => writes.push((id, at.member)),
            LogIo::Sync { side, members } => syncs.push((side, members)),
            LogIo::Trim { .. } => {}
        }
    }
    (writes, syncs)
}

fn forget(log: &mut Log, object: u64, reach: Durability) -> Sequence {
    let last = log.append(&Entry::Forget { object: ObjectId(object) });
    log.want_sync(reach);
    last
}

/// Completes the writes of one member, and returns the others.
fn complete_on(log: &mut Log, member: MemberId, writes: Written) -> Written {
    let (these, others): (Vec<_>, Vec<_>) = writes.into_iter().partition(|(_, at)| *at == member);
    these.into_iter().for_each(|(id, member)| log.wrote(id, member));
    others
}

#[test]
fn what_has_to_be_durable_here_waits_for_no_peer() {
    let mut log = with_a_copy_apart();
    let everywhere = forget(&mut log, 1, Durability::Everywhere);
    let (writes, _) = wanted_of_each(&mut log);
    let at_peer = complete_on(&mut log, OWN, writes);
    assert!(!at_peer.is_empty(), "a batch goes to both");
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Here, vec![OWN])]);
    log.synced(CommitSide::Here);
    assert_eq!(log.durable_in(Durability::Here), everywhere);
    assert!(log.durable() < everywhere, "the peer has not written it");
    // While the peer is at it, more becomes durable here.
    let here = forget(&mut log, 2, Durability::Here);
    let (writes, _) = wanted_of_each(&mut log);
    let more_at_peer = complete_on(&mut log, OWN, writes);
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Here, vec![OWN])]);
    log.synced(CommitSide::Here);
    assert_eq!(log.durable_in(Durability::Here), here);
    // The peer's sync covers what was asked of both, and what came later counts with the next one.
    let left = complete_on(&mut log, PEER, at_peer);
    assert_eq!((left, wanted_of_each(&mut log).1), (Vec::new(), vec![(CommitSide::Apart, vec![PEER])]));
    log.synced(CommitSide::Apart);
    assert_eq!(log.durable(), everywhere);
    log.want_sync(Durability::Everywhere);
    assert!(wanted_of_each(&mut log).1.iter().all(|(side, _)| *side == CommitSide::Here));
    complete_on(&mut log, PEER, more_at_peer);
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Apart, vec![PEER])]);
    log.synced(CommitSide::Here);
    log.synced(CommitSide::Apart);
    assert_eq!(log.durable(), here);
}

#[test]
fn a_sync_of_both_begins_before_another_one_of_this_host() {
    let mut log = with_a_copy_apart();
    forget(&mut log, 1, Durability::Here);
    let (writes, _) = wanted_of_each(&mut log);
    complete_on(&mut log, PEER, writes).into_iter().for_each(|(id, member)| log.wrote(id, member));
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Here, vec![OWN])]);
    let everywhere = forget(&mut log, 2, Durability::Everywhere);
    let here = forget(&mut log, 3, Durability::Here);
    log.synced(CommitSide::Here);
    let (writes, _) = wanted_of_each(&mut log);
    complete_on(&mut log, PEER, writes).into_iter().for_each(|(id, member)| log.wrote(id, member));
    assert_eq!(wanted_of_each(&mut log).1.len(), 2, "one commit for all that wait");
    log.synced(CommitSide::Apart);
    log.synced(CommitSide::Here);
    assert!(everywhere < here);
    assert_eq!((log.durable(), log.durable_in(Durability::Here)), (here, here));
}

#[test]
fn the_loss_of_a_peer_holds_back_only_what_waits_for_it() {
    let mut log = with_a_copy_apart();
    let first = forget(&mut log, 1, Durability::Everywhere);
    log.refused(PEER, Errno::IO);
    let (writes, _) = wanted_of_each(&mut log);
    writes.into_iter().for_each(|(id, member)| log.wrote(id, member));
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Here, vec![OWN])]);
    log.synced(CommitSide::Here);
    assert!(log.is_held() && log.durable() < first);
    assert_eq!(log.durable_in(Durability::Here), first);
    log.go_on_without();
    assert_eq!(log.durable(), first);
}

#[test]
fn after_the_loss_of_the_flash_here_nothing_is_durable_before_the_peer_has_it() {
    let mut log = with_a_copy_apart();
    let first = forget(&mut log, 1, Durability::Here);
    let (writes, _) = wanted_of_each(&mut log);
    let at_peer = complete_on(&mut log, OWN, writes);
    assert_eq!(wanted_of_each(&mut log).1, [(CommitSide::Here, vec![OWN])]);
    log.refused(OWN, Errno::IO);
    log.synced(CommitSide::Here);
    log.go_on_without();
    assert!(log.durable_in(Durability::Here) < first, "it lies at the peer alone, and is not written there");
    complete_on(&mut log, PEER, at_peer);
    for _ in 0..8 {
        let (writes, syncs) = wanted_of_each(&mut log);
        writes.into_iter().for_each(|(id, member)| log.wrote(id, member));
        syncs.into_iter().for_each(|(side, _)| log.synced(side));
    }
    assert!(log.durable_in(Durability::Here) >= first, "who waits for this host is answered all the same");
}
