//! A bounded ring from one thread to another, without a lock.
//!
//! Invariants:
//! - The pusher never waits and never allocates. Into a full ring nothing goes: the request is dropped, and counted.
//! - Each request has the number of those asked before it, dropped ones included, so the place of each gap is known.
//! - A slot's words belong to the pusher from the moment at which the puller passes it on (`pulled`, released) until
//!   the pusher passes it on (`pushed`, released). The words themselves need no order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headpond_base::{Class, Nanos, ObjectId};

use crate::asked::{AskedKind, AskedRequest};

const WORDS: usize = 6;

/// A counter with a cache line of its own: the two threads change different ones.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

struct Shared {
    slots: Box<[[AtomicU64; WORDS]]>,
    pushed: Line,
    pulled: Line,
    dropped: Line,
    /// The pusher is gone: what it pushed and dropped is all.
    ended: AtomicBool,
}

/// The end that takes requests in.
pub struct Pusher {
    shared: Arc<Shared>,
    pushed: u64,
    dropped: u64,
    /// What the puller had passed on at the last look. A look costs a cache line of the other thread's.
    pulled: u64,
}

/// The end that gives them out.
pub struct Puller {
    shared: Arc<Shared>,
}

/// A request, with the number of those asked before it, dropped ones included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulled {
    /// How many were asked before it.
    pub number: u64,
    /// The request.
    pub request: AskedRequest,
}

/// A ring for at least so many requests. It takes 48 bytes for each, now.
#[must_use]
pub fn ring(requests: usize) -> (Pusher, Puller) {
    let slots = (0..requests.next_power_of_two()).map(|_| Default::default()).collect();
    let shared = Arc::new(Shared {
        slots,
        pushed: Line::default(),
        pulled: Line::default(),
        dropped: Line::default(),
        ended: AtomicBool::new(false),
    });
    (Pusher { shared: shared.clone(), pushed: 0, dropped: 0, pulled: 0 }, Puller { shared })
}

impl Pusher {
    /// Takes a request in, or drops and counts it.
    pub fn push(&mut self, request: &AskedRequest) {
        let slots = &*self.shared.slots;
        if self.pushed - self.pulled == slots.len() as u64 {
            self.pulled = self.shared.pulled.0.load(Ordering::Acquire);
            if self.pushed - self.pulled == slots.len() as u64 {
                self.dropped += 1;
                self.shared.dropped.0.store(self.dropped, Ordering::Relaxed);
                return;
            }
        }
        let small = u64::from(request.process) << 32
            | u64::from(request.class.number()) << 16
            | u64::from(request.flags()) << 8
            | u64::from(request.kind.number());
        let number = self.pushed + self.dropped;
        let words = [number, request.at.0, request.object.0, request.offset, request.len, small];
        let slot = &slots[slot_of(self.pushed, slots.len())];
        for (place, word) in slot.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.pushed += 1;
        self.shared.pushed.0.store(self.pushed, Ordering::Release);
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
    }
}

impl Puller {
    /// Appends up to `most` requests to `into`, in order. Returns how many came.
    pub fn pull(&mut self, into: &mut Vec<Pulled>, most: usize) -> usize {
        let slots = &*self.shared.slots;
        let pulled = self.shared.pulled.0.load(Ordering::Relaxed);
        let pushed = self.shared.pushed.0.load(Ordering::Acquire);
        let count = (pushed - pulled).min(most as u64);
        for at in pulled..pulled + count {
            let slot = &slots[slot_of(at, slots.len())];
            into.extend(request_of(std::array::from_fn(|word| slot[word].load(Ordering::Relaxed))));
        }
        self.shared.pulled.0.store(pulled + count, Ordering::Release);
        count as usize
    }

    /// Whether the pusher is gone. A pull after this returned `true` gets all that is left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// How many were dropped so far; in all, once [`Puller::has_ended`] returned `true`.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.0.load(Ordering::Relaxed)
    }
}

/// The slot of the request with this number among those that went in. The number of slots is a power of two: a division
/// would be half of what a request costs the pusher.
const fn slot_of(at: u64, slots: usize) -> usize {
    at as usize & (slots - 1)
}

/// What [`Pusher::push`] put into a slot. It is always `Some`.
fn request_of([number, at, object, offset, len, small]: [u64; WORDS]) -> Option<Pulled> {
    let mut request = AskedRequest {
        at: Nanos(at),
        kind: AskedKind::of_number(small as u8)?,
        object: ObjectId(object),
        offset,
        len,
        process: (small >> 32) as u32,
        class: Class::from_bits((small >> 16) as u8),
        past: false,
        through: false,
        alone: false,
    };
    request.set_flags((small >> 8) as u8).then_some(Pulled { number, request })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(offset: u64) -> AskedRequest {
        AskedRequest {
            at: Nanos(offset + 1),
            kind: AskedKind::ALL[(offset % 6) as usize],
            object: ObjectId(offset ^ 7),
            offset,
            len: offset * 3,
            process: offset as u32,
            class: Class::from_bits(offset as u8),
            past: offset.is_multiple_of(2),
            through: offset.is_multiple_of(3),
            alone: offset.is_multiple_of(5),
        }
    }

    #[test]
    fn what_is_pushed_comes_out_in_order_and_whole_though_two_threads_meet() {
        const MANY: u64 = 300_000;
        let (mut pusher, mut puller) = ring(64);
        let pushing = std::thread::spawn(move || {
            for at in 0..MANY {
                pusher.push(&request(at));
            }
        });
        let (mut seen, mut next, mut kept) = (Vec::new(), 0, 0);
        loop {
            let last = puller.has_ended();
            let came = puller.pull(&mut seen, 50);
            for Pulled { number, request: one } in seen.drain(..) {
                assert!(number >= next);
                assert_eq!(one, request(number), "what was dropped leaves a gap in the numbers");
                next = number + 1;
                kept += 1;
            }
            if last && came == 0 {
                break;
            }
        }
        assert_eq!(kept + puller.dropped(), MANY, "each was kept, or counted as dropped");
        pushing.join().unwrap();
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_then_takes_in_again() {
        let (mut pusher, mut puller) = ring(4);
        (0..7).for_each(|at| pusher.push(&request(at)));
        assert_eq!(puller.dropped(), 3);
        let mut seen = Vec::new();
        assert_eq!(puller.pull(&mut seen, 2), 2);
        (7..10).for_each(|at| pusher.push(&request(at)));
        puller.pull(&mut seen, 100);
        let numbers: Vec<u64> = seen.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 7, 8]);
        assert_eq!(puller.dropped(), 4);
    }

    #[test]
    fn the_end_of_the_pusher_shows() {
        let (pusher, puller) = ring(4);
        assert!(!puller.has_ended());
        drop(pusher);
        assert!(puller.has_ended());
    }
}
