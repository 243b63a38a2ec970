//! The doors that the shard serves: which are open, which is served next, and how many requests each may have.
//!
//! Invariants:
//! - Each door has a name and a watch of its own, from its opening to its end. Neither is used again, so a late report
//!   for one door never counts for another.
//! - Doors with requests are served in rotation: the shard serves no door twice while another waits. So a busy door
//!   delays another by at most one portion of each door.
//! - All doors together, ended ones included, have at most `limit` requests under way. Each open door has a share of
//!   it that no other takes ([`KEPT`]). So slow requests of one door keep no other waiting.
//! - Bounded by the reactor's watches: a door without a free watch is dropped, and serves itself.

use headpond_device::{Reactor, WatchToken};
use headpond_door::{Done, Door, DoorId, Taken};
use headpond_engine::Request;

use crate::DoorStats;

/// Requests that each door may always have under way, if the limit has room for as many of each.
const KEPT: usize = 8;

/// All doors of one shard.
pub(crate) struct Doors {
    /// In the order of their names.
    open: Vec<OpenDoor>,
    /// The door served last. The next one in order follows.
    served: Option<DoorId>,
    limit: usize,
    /// Requests without an answer yet, those of ended doors included.
    under_way: usize,
}

/// One door.
struct OpenDoor {
    id: DoorId,
    door: Box<dyn Door>,
    watch: WatchToken,
    /// The door may have more, though its descriptor will not report it again.
    has_more: bool,
    under_way: usize,
    answered: u64,
}

impl Doors {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { open: Vec::new(), served: None, limit, under_way: 0 }
    }

    /// Serves one more door, if it can be watched. Call this in the order of names.
    pub(crate) fn admit(&mut self, id: DoorId, door: Box<dyn Door>, reactor: &mut dyn Reactor) {
        if let Some(watch) = door.descriptor().ok().and_then(|descriptor| reactor.watch(descriptor)) {
            // It may have some that its descriptor does not report.
            self.open.push(OpenDoor { id, door, watch, has_more: true, under_way: 0, answered: 0 });
        }
    }

    /// Ends a door and drops it. Does nothing if it has already ended.
    pub(crate) fn withdraw(&mut self, id: DoorId, reactor: &mut dyn Reactor) {
        if let Some(place) = self.place(id) {
            reactor.unwatch(self.open.remove(place).watch);
        }
    }

    /// Asks the reactor which doors have requests.
    pub(crate) fn listen(&mut self, reactor: &mut dyn Reactor) {
        while let Some(watch) = reactor.take_readable() {
            if let Some(open) = self.open.iter_mut().find(|open| open.watch == watch) {
                open.has_more = true;
            }
        }
    }

    /// How many doors may have requests, and room for them.
    pub(crate) fn ready(&self) -> usize {
        (0..self.open.len()).filter(|place| self.is_ready(*place)).count()
    }

    /// Lets the next door take in at most `most` requests. False: no door has any.
    pub(crate) fn serve(
        &mut self,
        reactor: &mut dyn Reactor,
        most: usize,
        mut submit: impl FnMut(DoorId, Request, Done),
    ) -> bool {
        let count = self.open.len();
        let first = self.open.partition_point(|open| self.served.is_some_and(|served| open.id <= served));
        let Some(place) = (0..count).map(|step| (first + step) % count).find(|place| self.is_ready(*place)) else {
            return false;
        };
        let room = self.room(place).min(most);
        let open = &mut self.open[place];
        let (id, mut taken) = (open.id, 0);
        let left = open.door.take(room, &mut |request, done| {
            taken += 1;
            submit(id, request, done);
        });
        open.under_way += taken;
        open.has_more = left == Taken::Some;
        self.under_way += taken;
        self.served = Some(id);
        if left == Taken::Closed {
            reactor.unwatch(self.open.remove(place).watch);
        }
        true
    }

    /// Notes an answer to a request of a door. The door may have ended meanwhile.
    pub(crate) fn answered(&mut self, id: DoorId) {
        self.under_way -= 1;
        if let Some(place) = self.place(id) {
            self.open[place].under_way -= 1;
            self.open[place].answered += 1;
        }
    }

    /// The counts of each door.
    pub(crate) fn stats(&self) -> Vec<DoorStats> {
        let stats =
            |open: &OpenDoor| DoorStats { door: open.id, under_way: open.under_way as u64, answered: open.answered };
        self.open.iter().map(stats).collect()
    }

    fn place(&self, id: DoorId) -> Option<usize> {
        self.open.binary_search_by_key(&id, |open| open.id).ok()
    }

    fn is_ready(&self, place: usize) -> bool {
        self.open[place].has_more && self.room(place) > 0
    }

    /// How many requests a door may take in: all that are left, without those kept for the others.
    fn room(&self, place: usize) -> usize {
        let each = KEPT.min(self.limit / self.open.len());
        let others = self.open.iter().enumerate().filter(|(other, _)| *other != place);
        let kept: usize = others.map(|(_, open)| each.saturating_sub(open.under_way)).sum();
        self.limit.saturating_sub(self.under_way + kept)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use headpond_base::MemberId;
    use headpond_device::{Backend, Fill, Flash, TrimPolicy, start_reactor};

    use super::*;

    /// A door with `left` requests. It may end with the last.
    struct Queue {
        left: Arc<AtomicUsize>,
        ends: bool,
        pipe: io::PipeReader,
    }

    impl Door for Queue {
        fn descriptor(&self) -> io::Result<OwnedFd> {
            self.pipe.as_fd().try_clone_to_owned()
        }

        fn take(&mut self, room: usize, submit: &mut dyn FnMut(Request, Done)) -> Taken {
            let taken = room.min(self.left.load(Ordering::SeqCst));
            (0..taken).for_each(|_| submit(Request::SyncAll, Box::new(|_| ())));
            let none_left = self.left.fetch_sub(taken, Ordering::SeqCst) == taken;
            if none_left && self.ends { Taken::Closed } else { Taken::Some }
        }
    }

    struct World {
        doors: Doors,
        reactor: Box<dyn Reactor>,
        _pipes: Vec<io::PipeWriter>,
        _dir: tempfile::TempDir,
    }

    /// Doors 1, 2, ... with these queues. All have requests.
    fn world(limit: usize, queues: &[(usize, bool)]) -> World {
        let dir = tempfile::tempdir().unwrap();
        let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
        let mut reactor = start_reactor(vec![(MemberId(0), flash)], Backend::Uring, TrimPolicy::Off).unwrap();
        let (mut doors, mut pipes) = (Doors::new(limit), Vec::new());
        for (number, (left, ends)) in (1..).zip(queues) {
            let (pipe, writer) = io::pipe().unwrap();
            let door = Queue { left: Arc::new((*left).into()), ends: *ends, pipe };
            doors.admit(DoorId(number), Box::new(door), &mut *reactor);
            doors.open.last_mut().unwrap().has_more = true;
            pipes.push(writer);
        }
        World { doors, reactor, _pipes: pipes, _dir: dir }
    }

    impl World {
        /// Serves the next door. Returns the door of each request that came.
        fn serve(&mut self, most: usize) -> Vec<u64> {
            let mut came = Vec::new();
            self.doors.serve(&mut *self.reactor, most, |door, _, _| came.push(door.0));
            came
        }
    }

    #[test]
    fn each_request_bears_the_name_of_its_door_and_doors_go_in_turn() {
        let mut world = world(100, &[(5, false), (3, false), (9, false)]);
        let came: Vec<Vec<u64>> = (0..4).map(|_| world.serve(2)).collect();
        assert_eq!(came, [[1, 1], [2, 2], [3, 3], [1, 1]]);
        for door in [1, 1, 3] {
            world.doors.answered(DoorId(door));
        }
        let stats = world.doors.stats();
        let found: Vec<_> = stats.iter().map(|door| (door.door.0, door.under_way, door.answered)).collect();
        assert_eq!(found, [(1, 2, 2), (2, 2, 0), (3, 1, 1)]);
    }

    #[test]
    fn a_door_whose_requests_take_long_leaves_a_share_for_each_other() {
        let mut world = world(20, &[(100, false), (100, false)]);
        assert_eq!(world.serve(usize::MAX).len(), 12, "alone it may have all but what is kept for the other");
        assert_eq!(world.serve(usize::MAX), [2; 8]);
        assert_eq!(world.doors.ready(), 0, "all are under way: nobody is to look in vain");
        world.doors.answered(DoorId(1));
        assert_eq!(world.serve(usize::MAX), [1], "what is answered makes room");
        world.doors.withdraw(DoorId(2), &mut *world.reactor);
        assert_eq!(world.doors.ready(), 0, "requests of a door that is gone still count");
        (0..8).for_each(|_| world.doors.answered(DoorId(2)));
        assert_eq!(world.serve(usize::MAX), [1; 8]);
    }

    #[test]
    fn a_door_that_ends_or_is_withdrawn_changes_nothing_for_the_others() {
        let mut world = world(100, &[(1, true), (9, false), (9, false)]);
        assert_eq!(world.serve(2), [1]);
        assert_eq!(world.doors.open.len(), 2, "it had said that it ends");
        world.doors.answered(DoorId(1));
        assert_eq!(world.serve(2), [2, 2], "which door is next stays so");
        world.doors.withdraw(DoorId(2), &mut *world.reactor);
        world.doors.withdraw(DoorId(2), &mut *world.reactor);
        assert_eq!(world.serve(2), [3, 3]);
        assert_eq!(world.serve(2), [3, 3]);
        (0..2).for_each(|_| world.doors.answered(DoorId(2)));
        (0..4).for_each(|_| world.doors.answered(DoorId(3)));
        assert_eq!(world.doors.under_way, 0);
    }
}
