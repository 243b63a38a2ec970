//! Group commit: how many syncs the device is asked for.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod start;

use headpond_base::{ObjectId, Sequence, Stream};
use headpond_format::{Entry, Geometry, SegmentState};
use headpond_log::{FillPolicy, Log, LogIo, WriteId};

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
            LogIo::Sync(_) => syncs += 1,
            LogIo::Trim { .. } => {}
        }
    }
    (writes, syncs)
}

fn complete(log: &mut Log, writes: Vec<WriteId>) {
    writes.into_iter().for_each(|id| log.wrote(id));
}

#[test]
fn a_sync_that_covers_everything_is_not_followed_by_another() {
    let mut log = log();
    let last = log.append(&Entry::Forget { object: ObjectId(1) });
    log.want_sync();
    let (writes, syncs) = wanted(&mut log);
    assert_eq!(syncs, 0, "its writes are under way");
    // Another request waits for the same: while the writes are under way, and while the device syncs.
    log.want_sync();
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log), (Vec::new(), 1));
    log.want_sync();
    log.synced();
    assert_eq!(log.durable(), last);
    assert_eq!(wanted(&mut log), (Vec::new(), 0), "everything is durable");
}

#[test]
fn what_was_appended_during_a_sync_gets_one_of_its_own() {
    let mut log = log();
    log.append(&Entry::Forget { object: ObjectId(1) });
    log.want_sync();
    let (writes, _) = wanted(&mut log);
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log).1, 1);
    let last = log.append(&Entry::Forget { object: ObjectId(2) });
    log.want_sync();
    log.synced();
    assert!(log.durable() < last);
    let (writes, syncs) = wanted(&mut log);
    assert_eq!((writes.len(), syncs), (1, 0));
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log).1, 1);
    log.synced();
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
    log.want_sync();
    // A head and a batch in each of two segments.
    let (mut writes, syncs) = wanted(&mut log);
    assert_eq!((writes.len(), syncs), (4, 0));
    let earlier = writes.remove(1);
    complete(&mut log, writes);
    assert_eq!(wanted(&mut log), (Vec::new(), 0), "the batch before is not written yet, in the other segment");
    log.wrote(earlier);
    assert_eq!(wanted(&mut log).1, 1);
    assert!(log.durable() < last);
    log.synced();
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
        log.want_sync();
        let (writes, _) = wanted(&mut log);
        complete(&mut log, writes);
        assert_eq!(wanted(&mut log).1, 1);
        log.synced();
    }
    for object in 3..=5 {
        assert_eq!(log.durable(), last);
        last = log.append(&Entry::Forget { object: ObjectId(object) });
        let (writes, syncs) = wanted(&mut log);
        assert_eq!((writes.len(), syncs), (1, 0), "it writes at once");
        if object == 4 {
            // The request may come while the flash is at it.
            log.want_sync();
        }
        complete(&mut log, writes);
        assert_eq!(wanted(&mut log), (Vec::new(), 1), "and syncs at once");
        log.synced();
        if object != 4 {
            log.found_durable();
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
        (0..syncs).for_each(|_| log.synced());
    }
}
