//! Reads of the origin that are under way, and who waits for them.
//!
//! Invariant: a block that changed since its read was begun is poisoned there, so it is never let into the pool, and
//! nobody who asks later is given it.

use std::collections::BTreeMap;

use headpond_base::{Block, Class, Nanos, ObjectId};

use crate::locks::{OpId, Span};

/// Names a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FetchId(u64);

/// A request that waits for a part of a fetch.
pub(crate) struct Waiter {
    pub(crate) op: OpId,
    pub(crate) span: Span,
    pub(crate) out_at: usize,
    /// For which class it may be let in, if it may.
    pub(crate) admit: Option<Class>,
}

/// A read of the origin under way.
pub(crate) struct Fetch {
    object: ObjectId,
    span: Span,
    /// Blocks that must not be admitted.
    poisoned: Vec<bool>,
    waiters: Vec<Waiter>,
    /// The origin's bytes count up to here, as it was when the read was begun.
    valid: u64,
    /// Blocks of the neighbourhood that was wanted: 1 where what is read beside what was asked for, if anything, lies
    /// ahead on a trail, and tells nothing about neighbours.
    window: u64,
    /// The class of the first who may let it into the pool.
    admit: Option<Class>,
    since: Nanos,
}

impl Fetch {
    /// A read that begins now. `valid`: how many of the origin's bytes count.
    pub(crate) fn new(
        object: ObjectId,
        span: Span,
        valid: u64,
        window: u64,
        (waiters, admit): (Vec<Waiter>, Option<Class>),
        since: Nanos,
    ) -> Self {
        let poisoned = vec![false; usize::try_from(span.blocks()).expect("fetches are small")];
        Self { object, span, poisoned, waiters, valid, window, admit, since }
    }

    pub(crate) const fn object(&self) -> ObjectId {
        self.object
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }

    pub(crate) const fn valid(&self) -> u64 {
        self.valid
    }

    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    pub(crate) const fn admit(&self) -> Option<Class> {
        self.admit
    }

    pub(crate) const fn since(&self) -> Nanos {
        self.since
    }

    pub(crate) fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    pub(crate) fn into_waiters(self) -> Vec<Waiter> {
        self.waiters
    }

    /// For each block whether it must not be admitted.
    pub(crate) fn poisoned(&self) -> &[bool] {
        &self.poisoned
    }

    /// What is read of these blocks is old.
    pub(crate) fn poison(&mut self, span: Span) {
        for (index, poisoned) in self.poisoned.iter_mut().enumerate() {
            let block = self.span.first.plus(index as u64);
            *poisoned |= span.contains(block);
        }
    }

    /// The class of the first who may let it in and waits for this block.
    pub(crate) fn asked_for(&self, block: Block) -> Option<Class> {
        let waits = |waiter: &&Waiter| waiter.span.contains(block);
        self.waiters.iter().filter(waits).find_map(|waiter| waiter.admit)
    }

    fn clean(&self, span: Span) -> bool {
        (span.first.0..span.end.0).all(|block| !self.poisoned[(block - self.span.first.0) as usize])
    }
}

/// All that are under way. Owned by the engine.
#[derive(Default)]
pub(crate) struct Fetches {
    under_way: BTreeMap<FetchId, Fetch>,
    next: u64,
}

impl Fetches {
    /// Has a request wait for a read of the same blocks, if there is one and nothing changed since it began. Otherwise
    /// the waiter comes back.
    pub(crate) fn join(&mut self, object: ObjectId, waiter: Waiter) -> Result<(), Waiter> {
        let span = waiter.span;
        let same = self.under_way.values_mut().find(|fetch| {
            fetch.object == object && fetch.span.first <= span.first && span.end <= fetch.span.end && fetch.clean(span)
        });
        let Some(fetch) = same else { return Err(waiter) };
        fetch.admit = fetch.admit.or(waiter.admit);
        fetch.waiters.push(waiter);
        Ok(())
    }

    pub(crate) fn begin(&mut self, fetch: Fetch) -> FetchId {
        let id = FetchId(self.next);
        self.next += 1;
        self.under_way.insert(id, fetch);
        id
    }

    /// It was answered.
    pub(crate) fn end(&mut self, id: FetchId) -> Option<Fetch> {
        self.under_way.remove(&id)
    }

    pub(crate) fn none(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whatever is being read of these blocks is old from now on.
    pub(crate) fn poison(&mut self, object: ObjectId, span: Span) {
        for fetch in self.under_way.values_mut().filter(|fetch| fetch.object == object && fetch.span.overlaps(span)) {
            fetch.poison(span);
        }
    }

    /// Whether a block is being read.
    pub(crate) fn bring(&self, object: ObjectId, block: Block) -> bool {
        self.of(object).any(|fetch| fetch.span.contains(block))
    }

    /// Cuts `wide`, which has `asked` in it, to what nobody reads already.
    pub(crate) fn cut(&self, object: ObjectId, asked: Span, wide: Span) -> Span {
        let Span { mut first, mut end } = wide;
        for other in self.of(object) {
            if other.span.end > first && other.span.end <= asked.first {
                first = other.span.end;
            }
            if other.span.first < end && other.span.first >= asked.end {
                end = other.span.first;
            }
        }
        Span { first, end }
    }

    /// Blocks of the neighbourhoods that are on their way.
    pub(crate) fn neighbourhoods(&self) -> u64 {
        self.under_way.values().filter(|fetch| fetch.window > 1).map(|fetch| fetch.window).sum()
    }

    /// Whether something of an object is on its way that no request waits for: the origin's file is still used.
    pub(crate) fn bring_unasked(&self, object: ObjectId) -> bool {
        self.of(object).any(|fetch| fetch.waiters.is_empty())
    }

    /// Since when the miss has waited that has waited longest.
    pub(crate) fn oldest_miss(&self) -> Option<Nanos> {
        self.under_way.values().find(|fetch| !fetch.waiters.is_empty()).map(|fetch| fetch.since)
    }

    fn of(&self, object: ObjectId) -> impl Iterator<Item = &Fetch> {
        self.under_way.values().filter(move |fetch| fetch.object == object)
    }
}
