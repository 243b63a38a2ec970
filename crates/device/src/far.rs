//! Disks that lie elsewhere, such as on another host, beside those of a reactor.
//!
//! A far disk has a thread of its own, so a reactor hands each operation over to it and back: two hand-overs for each.
//! The reactor below drives all other disks as if there were no far ones.
//!
//! A far disk is one with a volatile cache, which is the way to it. A write ends for the owner as soon as it is handed over,
//! while few bytes are without an answer; a sync ends once the disk has carried out all before it. So a write and its
//! sync wait for one answer, and not for one after the other.
//!
//! Invariants:
//! - Each operation of a far disk ends once for the owner: with what the disk says, or with [`Errno::NXIO`] when the
//!   disk is removed. What the disk says after that is dropped.
//! - A write that fails after it has ended fails each later write and sync of that disk, so nothing counts as durable
//!   that came after it.
//! - Operations reach a far disk in the order in which they were submitted.
//! - Far disks are not trimmed under a write that is under way: they carry out what they get in order.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::{Errno, MemberId, Result};

use crate::{Completion, DiskOp, End, FarDisk, Flash, Reactor, Tag, Waker, WatchToken};

/// Bytes of writes of one disk that have ended without its answer. Beyond that a write ends with its answer: so much memory
/// an owner needs for that whose way there is slower than its own flash.
const CACHED_MAX: usize = 4 << 20;

/// What the far disks have said.
#[derive(Default)]
struct Heard {
    lanes: Vec<Lane>,
    /// Lanes that there were.
    opened: u64,
    done: Vec<Completion>,
}

/// A far disk, and its operations under way, each as it would fail.
struct Lane {
    /// Which one: a member's number may be given again.
    number: u64,
    member: MemberId,
    disk: Arc<dyn FarDisk>,
    under_way: Vec<Completion>,
    /// Bytes of writes that have ended without an answer.
    cached: usize,
    /// One of them has failed.
    lost: Option<Errno>,
}

impl Heard {
    fn open(&mut self, member: MemberId, disk: Arc<dyn FarDisk>) {
        self.opened += 1;
        let number = self.opened;
        self.lanes.push(Lane { number, member, disk, under_way: Vec::new(), cached: 0, lost: None });
    }

    /// The answer to a write of so many bytes that has ended.
    fn answered(&mut self, lane: u64, len: usize, end: &End) {
        let Some(lane) = self.lanes.iter_mut().find(|known| known.number == lane) else { return };
        lane.cached -= len;
        if let End::Write(Err(errno)) = end {
            lane.lost = lane.lost.or(Some(*errno));
        }
    }
}

/// A reactor, and far disks beside its own.
pub(crate) struct WithFar {
    near: Box<dyn Reactor>,
    heard: Arc<Mutex<Heard>>,
    /// Whether there is, or was, a far disk.
    any: bool,
}

impl WithFar {
    pub(crate) fn new(near: Box<dyn Reactor>, far: Vec<(MemberId, Arc<dyn FarDisk>)>) -> Self {
        let any = !far.is_empty();
        let mut heard = Heard::default();
        far.into_iter().for_each(|(member, disk)| heard.open(member, disk));
        Self { near, heard: Arc::new(Mutex::new(heard)), any }
    }

    fn disk(&self, member: MemberId) -> Option<Arc<dyn FarDisk>> {
        let heard = self.any.then(|| locked(&self.heard))?;
        heard.lanes.iter().find(|lane| lane.member == member).map(|lane| lane.disk.clone())
    }

    fn hand_over(&self, member: MemberId, disk: &dyn FarDisk, op: DiskOp) {
        let mut heard = locked(&self.heard);
        if let Err(errno) = op.check(disk.bytes()) {
            heard.done.extend(op.failed(member, errno));
            return;
        }
        let tag = match op {
            DiskOp::Read { tag, .. } | DiskOp::Write { tag, .. } | DiskOp::Sync { tag } => tag,
            DiskOp::Trim { .. } => Tag(0),
        };
        let failed = op.failed(member, Errno::NXIO);
        let heard_now = &mut *heard;
        if let Some(lane) = heard_now.lanes.iter_mut().find(|lane| lane.member == member) {
            match &op {
                DiskOp::Write { data, .. } if lane.lost.is_none() && lane.cached + data.len() <= CACHED_MAX => {
                    lane.cached += data.len();
                    let (lane, len) = (lane.number, data.len());
                    // The owner is in this call, and looks before it waits.
                    heard_now.done.push(Completion { disk: member, tag, end: End::Write(Ok(())) });
                    drop(heard);
                    let all = self.heard.clone();
                    return disk.submit(op, Box::new(move |end| locked(&all).answered(lane, len, &end)));
                }
                _ => lane.under_way.extend(failed),
            }
        }
        drop(heard);
        let (all, waker) = (self.heard.clone(), self.near.waker());
        disk.submit(
            op,
            Box::new(move |end| {
                let mut heard = locked(&all);
                let lane = heard.lanes.iter_mut().find(|lane| lane.member == member);
                let known = lane.and_then(|lane| {
                    let place = lane.under_way.iter().position(|end| end.tag == tag)?;
                    lane.under_way.swap_remove(place);
                    Some(lane.lost)
                });
                if let Some(lost) = known {
                    let end = match (end, lost) {
                        (End::Sync(Ok(())), Some(errno)) => End::Sync(Err(errno)),
                        (End::Write(Ok(())), Some(errno)) => End::Write(Err(errno)),
                        (end, _) => end,
                    };
                    heard.done.push(Completion { disk: member, tag, end });
                    drop(heard);
                    waker.wake();
                }
            }),
        );
    }

    fn take_done(&self, done: &mut Vec<Completion>) {
        done.append(&mut locked(&self.heard).done);
    }
}

impl Reactor for WithFar {
    fn bytes(&self, disk: MemberId) -> u64 {
        self.disk(disk).map_or_else(|| self.near.bytes(disk), |far| far.bytes())
    }

    fn add(&mut self, disk: MemberId, flash: Flash) -> Result<()> {
        let Some(far) = flash.far_disk().cloned() else { return self.near.add(disk, flash) };
        if self.bytes(disk) > 0 {
            return Err(Errno::EXIST);
        }
        self.any = true;
        locked(&self.heard).open(disk, far);
        Ok(())
    }

    fn remove(&mut self, disk: MemberId) {
        if self.disk(disk).is_none() {
            return self.near.remove(disk);
        }
        let mut heard = locked(&self.heard);
        let place = heard.lanes.iter().position(|lane| lane.member == disk);
        let gone = place.map(|place| heard.lanes.remove(place));
        heard.done.extend(gone.into_iter().flat_map(|lane| lane.under_way));
    }

    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        self.disk(disk).map_or_else(|| self.near.measure(disk), |far| Ok(far.bytes()))
    }

    fn name(&self) -> &'static str {
        self.near.name()
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        match self.disk(disk) {
            Some(far) => self.hand_over(disk, &*far, op),
            None => self.near.submit(disk, op),
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        if !self.any {
            return self.near.wait(done, timeout);
        }
        let before = done.len();
        self.take_done(done);
        // What comes in from here on also wakes the reactor below.
        let timeout = if done.len() > before { Some(Duration::ZERO) } else { timeout };
        self.near.wait(done, timeout)?;
        self.take_done(done);
        Ok(())
    }

    /// An operation of a near disk, also while far ones are under way: they go on by themselves.
    fn carry_out_alone(&mut self, writes: bool, done: &mut Vec<Completion>) -> bool {
        self.near.carry_out_alone(writes, done)
    }

    fn waker(&self) -> Waker {
        self.near.waker()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        self.near.watch(descriptor)
    }

    fn unwatch(&mut self, watch: WatchToken) {
        self.near.unwatch(watch);
    }

    fn take_readable(&mut self) -> Option<WatchToken> {
        self.near.take_readable()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::path::Path;

    use headpond_base::BufMut;

    use super::*;
    use crate::{Backend, End, FarEnd, Fill, TrimPolicy, start_reactor};

    /// Answers when the test says so.
    #[derive(Default)]
    struct Slow(Mutex<Vec<(DiskOp, FarEnd)>>);

    impl Debug for Slow {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Slow")
        }
    }

    impl FarDisk for Slow {
        fn bytes(&self) -> u64 {
            1 << 20
        }

        fn submit(&self, op: DiskOp, end: FarEnd) {
            locked(&self.0).push((op, end));
        }

        fn let_go(&self, end: FarEnd) {
            end(End::Sync(Ok(())));
        }
    }

    impl Slow {
        fn answer(&self) {
            let all = std::mem::take(&mut *locked(&self.0));
            for (op, end) in all {
                match op {
                    DiskOp::Read { len, .. } => end(End::Read(Ok(BufMut::zeroed(len).freeze()))),
                    DiskOp::Write { .. } => end(End::Write(Ok(()))),
                    DiskOp::Sync { .. } => end(End::Sync(Ok(()))),
                    DiskOp::Trim { .. } => {}
                }
            }
        }
    }

    #[test]
    fn a_far_disk_ends_each_operation_once_and_holds_up_no_other_disk() {
        for backend in [Backend::Auto, Backend::Psync] {
            let dir = tempfile::tempdir().unwrap();
            let near = Flash::create(&dir.path().join("near"), 1 << 20, Fill::Reserved).unwrap();
            let mut reactor = start_reactor(vec![(MemberId(0), near)], backend, TrimPolicy::Off).unwrap();
            let slow = Arc::new(Slow::default());
            let far = Flash::far(slow.clone(), Path::new("elsewhere"));
            reactor.add(MemberId(1), far).unwrap();
            assert_eq!(reactor.add(MemberId(1), Flash::far(slow.clone(), Path::new("again"))), Err(Errno::EXIST));
            let mut done = Vec::new();
            let (far, near) = (MemberId(1), MemberId(0));
            let data = BufMut::zeroed(4096).freeze();
            reactor.submit(far, DiskOp::Write { tag: Tag(7), offset: 0, data: data.clone() });
            reactor.submit(far, DiskOp::Sync { tag: Tag(8) });
            reactor.submit(far, DiskOp::Read { tag: Tag(9), offset: 1 << 20, len: 4096 });
            reactor.submit(near, DiskOp::Write { tag: Tag(7), offset: 0, data });
            while done.len() < 2 {
                reactor.wait(&mut done, None).unwrap();
            }
            let mut names: Vec<_> = done.iter().map(|end| (end.disk, end.tag)).collect();
            names.sort();
            while names.len() < 3 {
                reactor.wait(&mut done, None).unwrap();
                names = done.iter().map(|end| (end.disk, end.tag)).collect();
                names.sort();
            }
            assert_eq!(names, [(near, Tag(7)), (far, Tag(7)), (far, Tag(9))], "the sync waits for an answer");
            done.clear();
            let answers = slow.clone();
            let other = std::thread::spawn(move || answers.answer());
            while done.is_empty() {
                reactor.wait(&mut done, None).unwrap();
            }
            other.join().unwrap();
            assert!(matches!(done[..], [Completion { end: End::Sync(Ok(())), .. }]), "{done:?}");
            done.clear();
            reactor.submit(far, DiskOp::Sync { tag: Tag(10) });
            reactor.remove(far);
            slow.answer();
            reactor.wait(&mut done, None).unwrap();
            assert!(
                matches!(done[..], [Completion { tag: Tag(10), end: End::Sync(Err(Errno::NXIO)), .. }]),
                "{done:?}"
            );
            assert_eq!(reactor.bytes(far), 0);
        }
    }

    /// A reactor with a far disk alone.
    fn with_slow() -> (WithFar, Arc<Slow>) {
        let slow = Arc::new(Slow::default());
        let near = start_reactor(Vec::new(), Backend::Psync, TrimPolicy::Off).unwrap();
        (WithFar::new(near, vec![(MemberId(1), slow.clone())]), slow)
    }

    fn write(reactor: &mut WithFar, tag: u64, len: usize) {
        let data = BufMut::zeroed(len).freeze();
        reactor.submit(MemberId(1), DiskOp::Write { tag: Tag(tag), offset: 0, data });
    }

    fn ends(reactor: &mut WithFar) -> Vec<(u64, bool)> {
        let mut done = Vec::new();
        reactor.wait(&mut done, Some(Duration::ZERO)).unwrap();
        let is_well = |end: &End| matches!(end, End::Write(Ok(())) | End::Sync(Ok(())));
        done.iter().map(|done| (done.tag.0, is_well(&done.end))).collect()
    }

    #[test]
    fn writes_end_at_once_until_much_is_without_an_answer() {
        let (mut reactor, slow) = with_slow();
        for tag in 0..8 {
            write(&mut reactor, tag, CACHED_MAX / 8);
        }
        write(&mut reactor, 8, 4096);
        assert_eq!(ends(&mut reactor), (0..8).map(|tag| (tag, true)).collect::<Vec<_>>());
        slow.answer();
        assert_eq!(ends(&mut reactor), [(8, true)]);
        write(&mut reactor, 9, 1 << 20);
        assert_eq!(ends(&mut reactor), [(9, true)], "the answers gave the room back");
    }

    #[test]
    fn a_write_that_fails_after_its_end_fails_every_sync_and_write_from_then_on() {
        let (mut reactor, slow) = with_slow();
        write(&mut reactor, 1, 4096);
        reactor.submit(MemberId(1), DiskOp::Sync { tag: Tag(2) });
        assert_eq!(ends(&mut reactor), [(1, true)]);
        for (op, end) in std::mem::take(&mut *locked(&slow.0)) {
            match op {
                DiskOp::Write { .. } => end(End::Write(Err(Errno::IO))),
                // A disk that says so all the same is not believed.
                _ => end(End::Sync(Ok(()))),
            }
        }
        assert_eq!(ends(&mut reactor), [(2, false)]);
        write(&mut reactor, 3, 4096);
        reactor.submit(MemberId(1), DiskOp::Sync { tag: Tag(4) });
        slow.answer();
        assert_eq!(ends(&mut reactor), [(3, false), (4, false)]);
    }
}
