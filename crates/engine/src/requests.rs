//! The requests under way, and what each waits for.
//!
//! ```text
//!           add                       finish
//! (held) ---------> to be stepped ------------> answered
//!                     ^     |
//!                wake |     | step
//!                     |     v
//!     an effect, bytes, the log, room, changes of the other kind, a copy, quiet
//! ```
//!
//! Invariants
//! - A request is in the table until it is answered, except during a step: then the step owns it.
//! - Requests are numbered in the order in which they came.
//! - Those that wait for room go on in the order in which they began to. So do those that wait for the log.
//! - To wake a request that is answered, or not waiting, does nothing: each finds out for itself how things stand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use headpond_base::{Errno, ObjectId, Sequence};
use headpond_log::Durability;

use crate::effect::Outcome;
use crate::locks::OpId;
use crate::op::Op;
use crate::request::{Request, RequestId};

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct Requests {
    /// Boxed, as they come and go with each request, and a tree's nodes hold eleven side by side.
    table: BTreeMap<OpId, Box<Op>>,
    next: u64,
    to_be_stepped: VecDeque<OpId>,
    /// By where it is to be durable, with the entry of the log for which each waits.
    for_log: [BTreeSet<(Sequence, OpId)>; Durability::ALL.len()],
    for_room: VecDeque<OpId>,
    for_other_kind: Vec<OpId>,
    /// Those whose data lacks copies, until they are there, each with the number that it asks for.
    for_copy: Vec<(OpId, Option<u8>)>,
    /// The request to stop, while others or background work are under way.
    for_quiet: Option<OpId>,
    /// Those that came before the engine could take any.
    held: VecDeque<(RequestId, Request)>,
}

impl Requests {
    /// Keeps a request until the engine takes some.
    pub(crate) fn hold(&mut self, id: RequestId, request: Request) {
        self.held.push_back((id, request));
    }

    /// The requests that came before the engine took any.
    pub(crate) fn take_held(&mut self) -> VecDeque<(RequestId, Request)> {
        std::mem::take(&mut self.held)
    }

    /// Takes a request in, to be stepped.
    pub(crate) fn add(&mut self, op: Op) {
        let id = OpId(self.next);
        self.next += 1;
        self.table.insert(id, Box::new(op));
        self.to_be_stepped.push_back(id);
    }

    /// The next request to be stepped, out of the table. To be followed by [`Requests::put_back`], unless it is over.
    pub(crate) fn next_step(&mut self) -> Option<(OpId, Box<Op>)> {
        while let Some(id) = self.to_be_stepped.pop_front() {
            if let Some(op) = self.table.remove(&id) {
                return Some((id, op));
            }
        }
        None
    }

    /// A request that was stepped waits.
    pub(crate) fn put_back(&mut self, id: OpId, op: Box<Op>) {
        self.table.insert(id, op);
    }

    /// Whether any is to be stepped.
    pub(crate) fn has_step(&self) -> bool {
        !self.to_be_stepped.is_empty()
    }

    pub(crate) fn get(&self, id: OpId) -> Option<&Op> {
        self.table.get(&id).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        self.table.get_mut(&id).map(Box::as_mut)
    }

    /// How many are under way, without the one that is being stepped.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Has a request stepped again.
    pub(crate) fn wake(&mut self, id: OpId) {
        self.to_be_stepped.push_back(id);
    }

    /// Has a request stepped with what the effect came to that it waited for.
    pub(crate) fn has_outcome(&mut self, id: OpId, outcome: Outcome) {
        if let Some(op) = self.get_mut(id) {
            op.outcome = Some(outcome);
            self.wake(id);
        }
    }

    /// Has a request stepped, which finds an error.
    pub(crate) fn fail(&mut self, id: OpId, errno: Errno) {
        if let Some(op) = self.get_mut(id) {
            op.error = Some(errno);
        }
        self.wake(id);
    }

    /// Notes an error that a request is to end with, unless it has one.
    pub(crate) fn note_error(&mut self, id: OpId, error: Option<Errno>) {
        if let Some(op) = self.get_mut(id) {
            op.error = op.error.or(error);
        }
    }

    /// One part of a request's bytes is there, or is known not to come. With the last one it is stepped.
    pub(crate) fn part_done(&mut self, id: OpId, error: Option<Errno>) {
        let Some(op) = self.get_mut(id) else { return };
        op.error = op.error.or(error);
        op.parts -= 1;
        if op.parts == 0 {
            self.wake(id);
        }
    }

    /// A request waits until this entry of the log is durable there.
    pub(crate) fn wait_for_log(&mut self, id: OpId, entry: Sequence, durability: Durability) {
        self.for_log[durability as usize].insert((entry, id));
    }

    /// Whether any waits for an entry up to this one. A log that failed makes none durable any more: all are let go.
    pub(crate) fn wakes_for_log(&self, durability: Durability, durable: Sequence, failed: bool) -> bool {
        self.for_log[durability as usize].first().is_some_and(|(entry, _)| failed || *entry <= durable)
    }

    /// Has those stepped that waited for entries up to this one, or all if the log failed.
    pub(crate) fn log_is_durable(&mut self, durability: Durability, durable: Sequence, failed: bool) {
        while self.wakes_for_log(durability, durable, failed) {
            let Some((_, id)) = self.for_log[durability as usize].pop_first() else { break };
            self.wake(id);
        }
    }

    /// A request waits for room, behind all that do.
    pub(crate) fn wait_for_room(&mut self, id: OpId) {
        self.for_room.push_back(id);
    }

    /// The request that has waited for room longest.
    pub(crate) fn first_for_room(&self) -> Option<OpId> {
        self.for_room.front().copied()
    }

    /// Has the request stepped that has waited for room longest.
    pub(crate) fn first_has_room(&mut self) {
        if let Some(id) = self.for_room.pop_front() {
            self.wake(id);
        }
    }

    /// Ends all that wait for room with an error.
    pub(crate) fn fail_for_room(&mut self, errno: Errno) {
        for id in std::mem::take(&mut self.for_room) {
            self.fail(id, errno);
        }
    }

    /// A request waits until it is the last, and nothing else is under way.
    pub(crate) const fn wait_for_quiet(&mut self, id: OpId) {
        self.for_quiet = Some(id);
    }

    /// Has the request stepped that waited for that.
    pub(crate) fn all_is_quiet(&mut self) {
        if let Some(id) = self.for_quiet.take() {
            self.wake(id);
        }
    }

    /// A request waits until changes of the other kind on its object are over.
    pub(crate) fn wait_for_other_kind(&mut self, id: OpId) {
        self.for_other_kind.push(id);
    }

    /// Those that wait for changes of the other kind.
    pub(crate) fn for_other_kind(&self) -> impl Iterator<Item = OpId> + '_ {
        self.for_other_kind.iter().copied()
    }

    /// Has a request stepped that waited for changes of the other kind.
    pub(crate) fn other_kind_is_over(&mut self, id: OpId) {
        self.for_other_kind.retain(|waiting| *waiting != id);
        self.wake(id);
    }

    /// A request waits until the pool has so many copies on other hosts again, or any.
    pub(crate) fn wait_for_copy(&mut self, id: OpId, copies: Option<u8>) {
        self.for_copy.push((id, copies));
    }

    /// For how many copies requests wait.
    pub(crate) fn copies_waited_for(&self) -> BTreeSet<Option<u8>> {
        self.for_copy.iter().map(|(_, copies)| *copies).collect()
    }

    /// Has those stepped that waited for so many copies.
    pub(crate) fn copies_are_there(&mut self, copies: Option<u8>) {
        let ready = self.for_copy.extract_if(.., |(_, wanted)| *wanted == copies);
        self.to_be_stepped.extend(ready.map(|(id, _)| id));
    }

    /// What a request waits for, in words.
    fn awaited(&self, id: OpId, op: &Op) -> String {
        if self.to_be_stepped.contains(&id) {
            "its step".to_owned()
        } else if let Some((entry, _)) = self.for_log.iter().flatten().find(|(_, waiting)| *waiting == id) {
            format!("entry {} of the log to be durable", entry.0)
        } else if self.for_room.contains(&id) {
            "room".to_owned()
        } else if self.for_other_kind.contains(&id) {
            "changes of the other kind on the object".to_owned()
        } else if self.for_copy.iter().any(|(waiting, _)| *waiting == id) {
            "a copy on another host".to_owned()
        } else if self.for_quiet == Some(id) {
            "all others to end".to_owned()
        } else if op.parts > 0 {
            format!("{} parts of its bytes", op.parts)
        } else {
            "its lock, or an effect".to_owned()
        }
    }

    /// The origin refused what changes of an object may be waiting for. That may pass, as it is tried again after a
    /// while; those that wait for changes of the other kind fail the second time.
    pub(crate) fn refused_again(&mut self, object: ObjectId, errno: Errno) {
        let table = &mut self.table;
        let again = |id: &mut OpId| {
            table.get_mut(id).is_some_and(|op| op.object == object && std::mem::replace(&mut op.refused, true))
        };
        let told: Vec<OpId> = self.for_other_kind.extract_if(.., again).collect();
        told.into_iter().for_each(|id| self.fail(id, errno));
    }
}

/// For people: a line for each request, with what it waits for.
impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (request, _) in &self.held {
            writeln!(f, "request {}: waits for the engine's start", request.0)?;
        }
        self.table.iter().try_for_each(|(id, op)| writeln!(f, "{op}; waits for {}", self.awaited(*id, op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Work;
    use crate::treatment::Treatment;

    fn with(count: u64) -> (Requests, Vec<OpId>) {
        let mut requests = Requests::default();
        for number in 0..count {
            let op = Op::new(RequestId(number), ObjectId(number % 2), Work::Sync, Treatment::default());
            requests.add(op);
        }
        let ids = steps(&mut requests);
        (requests, ids)
    }

    /// Steps all that are to be stepped; each waits again.
    fn steps(requests: &mut Requests) -> Vec<OpId> {
        let mut stepped = Vec::new();
        while let Some((id, op)) = requests.next_step() {
            requests.put_back(id, op);
            stepped.push(id);
        }
        stepped
    }

    #[test]
    fn those_that_wait_for_the_log_go_on_up_to_what_is_durable_and_all_if_it_failed() {
        let (mut requests, ids) = with(3);
        for (id, entry) in ids.iter().zip([30, 10, 20]) {
            requests.wait_for_log(*id, Sequence(entry), Durability::Everywhere);
        }
        assert!(!requests.wakes_for_log(Durability::Everywhere, Sequence(9), false));
        requests.log_is_durable(Durability::Here, Sequence(30), false);
        assert_eq!(steps(&mut requests), [], "durable here is not enough for them");
        requests.log_is_durable(Durability::Everywhere, Sequence(20), false);
        assert_eq!(steps(&mut requests), [ids[1], ids[2]]);
        requests.log_is_durable(Durability::Everywhere, Sequence(20), true);
        assert_eq!(steps(&mut requests), [ids[0]]);
    }

    #[test]
    fn each_request_is_shown_with_what_it_waits_for() {
        let (mut requests, ids) = with(4);
        requests.wait_for_log(ids[0], Sequence(30), Durability::Everywhere);
        requests.wait_for_room(ids[1]);
        requests.get_mut(ids[2]).unwrap().parts = 2;
        requests.wake(ids[3]);
        requests.hold(RequestId(9), Request::SyncAll);
        let shown = requests.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "request 9: waits for the engine's start");
        assert_eq!(lines[1], "request 0, object 0: Sync, Begin; waits for entry 30 of the log to be durable");
        for (line, awaited) in lines[2..].iter().zip(["room", "2 parts of its bytes", "its step"]) {
            assert!(line.ends_with(&format!("; waits for {awaited}")), "{line}");
        }
    }

    #[test]
    fn room_is_given_in_order_and_the_end_fails_those_that_wait_for_it() {
        let (mut requests, ids) = with(3);
        ids.iter().rev().for_each(|id| requests.wait_for_room(*id));
        assert_eq!(requests.first_for_room(), Some(ids[2]));
        requests.first_has_room();
        assert_eq!(steps(&mut requests), [ids[2]]);
        requests.fail_for_room(Errno::SHUTDOWN);
        assert_eq!(steps(&mut requests), [ids[1], ids[0]]);
        assert_eq!(requests.get(ids[0]).unwrap().error, Some(Errno::SHUTDOWN));
    }

    #[test]
    fn what_the_origin_refuses_twice_is_told_to_who_waits_for_that_object() {
        let (mut requests, ids) = with(3);
        ids.iter().for_each(|id| requests.wait_for_other_kind(*id));
        requests.refused_again(ObjectId(0), Errno::IO);
        assert!(steps(&mut requests).is_empty(), "it may pass");
        requests.refused_again(ObjectId(0), Errno::IO);
        assert_eq!(steps(&mut requests), [ids[0], ids[2]]);
        assert_eq!(requests.for_other_kind().collect::<Vec<_>>(), [ids[1]]);
    }

    #[test]
    fn the_last_part_of_its_bytes_wakes_a_request_and_the_first_error_stays() {
        let (mut requests, ids) = with(1);
        requests.get_mut(ids[0]).unwrap().parts = 3;
        for error in [None, Some(Errno::IO), Some(Errno::NOSPC)] {
            assert!(!requests.has_step());
            requests.part_done(ids[0], error);
        }
        assert_eq!(steps(&mut requests), ids);
        assert_eq!(requests.get(ids[0]).unwrap().error, Some(Errno::IO));
    }
}
