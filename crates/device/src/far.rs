//! Disks that lie elsewhere, such as on another host, beside those of a reactor.
//!
//! A far disk has a thread of its own, so a reactor hands each operation over to it and back: two hand-overs for each.
//! The reactor below drives all other disks as if there were no far ones.
//!
//! Invariants:
//! - Each operation of a far disk ends once for the owner: with what the disk says, or with [`Errno::NXIO`] when the
//!   disk is removed. What the disk says after that is dropped.
//! - Operations reach a far disk in the order in which they were submitted.
//! - Far disks are not trimmed under a write that is under way: they carry out what they get in order.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::{Errno, MemberId, Result};

use crate::{Completion, DiskOp, FarDisk, Flash, Reactor, Tag, Waker, WatchToken};

/// What the far disks have said.
#[derive(Default)]
struct Heard {
    lanes: Vec<Lane>,
    done: Vec<Completion>,
}

/// A far disk, and its operations under way, each as it would fail.
struct Lane {
    member: MemberId,
    disk: Arc<dyn FarDisk>,
    under_way: Vec<Completion>,
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
        let lane = |(member, disk)| Lane { member, disk, under_way: Vec::new() };
        let heard = Heard { lanes: far.into_iter().map(lane).collect(), done: Vec::new() };
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
        if let Some(lane) = heard.lanes.iter_mut().find(|lane| lane.member == member) {
            lane.under_way.extend(failed);
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
                    Some(lane.under_way.swap_remove(place))
                });
                if known.is_some() {
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
        locked(&self.heard).lanes.push(Lane { member: disk, disk: far, under_way: Vec::new() });
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
            assert_eq!(names, [(near, Tag(7)), (far, Tag(9))], "the other two wait for an answer");
            done.clear();
            let answers = slow.clone();
            let other = std::thread::spawn(move || answers.answer());
            while done.len() < 2 {
                reactor.wait(&mut done, None).unwrap();
            }
            other.join().unwrap();
            assert!(matches!(
                done[..],
                [Completion { end: End::Write(Ok(())), .. }, Completion { end: End::Sync(Ok(())), .. }]
            ));
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
}
