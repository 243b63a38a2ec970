//! Fetching from the origin: one read for everybody who misses the same blocks, wider than was
//! asked for while the pool has room, and let into the pool where nothing newer came meanwhile.
//!
//! Invariant: a block is admitted only if, from the moment the origin was asked until now, the
//! map had no slot for it and nobody changed it. Everything that changes blocks tells
//! [`Engine::poison`].

use headpond_base::{BLOCK, BLOCK_U64, Block, Buf, BufMut, Class, Errno, ObjectId, Stream};
use headpond_log::DataRecord;
use headpond_policy::Admission;

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::fetches::{Fetch, FetchId, Waiter};
use crate::keep::Place;
use crate::locks::{OpId, Span};
use crate::neighbours;
use crate::op::Op;
use crate::purpose::Purpose;
use crate::store::{ADMIT_RESERVE, Store};

/// What is brought ahead on one trail has this part at most of the memory for what nobody has asked for.
const TRAIL_SHARE: u64 = 4;

impl Engine {
    /// Reads blocks that the map has not got for a request that has their lock.
    pub(crate) fn fetch(&mut self, op: OpId, object: ObjectId, span: Span, out_at: usize, admit: Option<Class>) {
        let waiter = Waiter { op, span, out_at, admit };
        // A read of the same blocks that is under way will do, if nothing changed since it began.
        let Err(waiter) = self.fetches.join(object, waiter) else { return };
        let led = self.trails.leads_to(object, span);
        let (wide, window) = if admit.is_some() { self.brings(object, span, led) } else { (span, 1) };
        self.trails.brought(wide.end);
        self.start_fetch(object, wide, vec![waiter], window, admit);
    }

    fn start_fetch(&mut self, object: ObjectId, span: Span, waiters: Vec<Waiter>, window: u64, admit: Option<Class>) {
        let Some(known) = self.store.get(object) else { return };
        let mut fetch = Fetch::new(object, span, known.origin_end(), window, (waiters, admit), self.now);
        for (block, _) in known.map().range(span.first, span.end) {
            fetch.poison(Span { first: block, end: block.next() });
        }
        let id = self.fetches.begin(fetch);
        let len = u32::try_from(span.blocks() * BLOCK_U64).expect("fetches are small");
        self.start(Purpose::Fetch(id), |ticket| Effect::OriginRead { ticket, object, offset: span.first.byte(), len });
    }

    /// What a miss should bring: itself with what lies ahead, if it was led to by a trail (`trails.rs`), or around it
    /// (`neighbours.rs`); and the blocks of the neighbourhood, 1 if it is none.
    fn brings(&mut self, object: ObjectId, span: Span, led: bool) -> (Span, u64) {
        if !self.may_bring(object) {
            return (span, 1);
        }
        let (most, cost) = (self.fetch_most(), self.outbox.origin_costs().reads());
        let ahead = neighbours::cheap(cost, most);
        if led && ahead > 1 {
            return (self.window(object, span, span.first, ahead), 1);
        }
        let room = self.keep.has_spare_room(&self.store) || self.memory_has_room(most);
        let window = self.neighbours.wanted(cost, most, room);
        if window == 1 {
            return (span, 1);
        }
        let wide = self.window(object, span, Block(span.first.0 / window * window), window);
        (wide, if wide == span { 1 } else { window })
    }

    /// Blocks that a read of the origin has at most.
    pub(super) fn fetch_most(&self) -> u64 {
        u64::from(self.config.fetch_bytes) / BLOCK_U64
    }

    /// Whether what nobody asked for yet may come along.
    fn may_bring(&self, object: ObjectId) -> bool {
        let able = self.store.log().segments().free() > ADMIT_RESERVE && self.store.get(object).is_some();
        // Who lets in only what comes back wants nothing that nobody asked for; nor does who has so much to write and no more.
        let sparing = self.config.admission == Admission::Returning || self.config.flash_write_limit.is_some();
        able && self.rules().admit_reads && !sparing
    }

    /// A request that followed a trail has what is there of its blocks: what comes next is brought before it is asked for.
    pub(crate) fn bring_ahead(&mut self, op: &Op, span: Span) {
        let object = op.object;
        let window = neighbours::cheap(self.outbox.origin_costs().reads(), self.fetch_most());
        if window == 1 || !self.rules_for(op.how).admit_reads || self.life.is_ending() || !self.may_bring(object) {
            return;
        }
        let most = (self.keep.unasked_most() as u64 / TRAIL_SHARE).max(window);
        let mut waits = op.served.miss_blocks > 0;
        while let Some(from) = self.trails.lacks(object, span, window, most, std::mem::take(&mut waits)) {
            let Some(known) = self.store.get(object) else { return };
            let is_there = |block: &Block| {
                known.map().get(*block).is_some()
                    || self.store.is_in_memory(object, *block)
                    || self.fetches.bring(object, *block)
            };
            let first = (0..window).map(|index| from.plus(index)).find(|block| !is_there(block));
            let Some(first) = first.filter(|block| block.byte() < known.origin_end()) else {
                self.trails.goes_on(object, from, from.plus(window));
                continue;
            };
            let wide = self.window(object, Span { first, end: first.next() }, first, window);
            self.start_fetch(object, wide, Vec::new(), 1, Some(op.how.class));
            self.trails.goes_on(object, from, wide.end);
        }
    }

    /// Whether a neighbourhood of so many blocks can wait in memory, beside those on their way, with nothing going for it.
    fn memory_has_room(&self, blocks: u64) -> bool {
        let coming = self.fetches.neighbourhoods();
        self.store.window().unasked() as u64 + coming + blocks <= self.keep.unasked_most() as u64
    }

    /// The blocks to read for a miss of `span`: `blocks` of them from `from` on, as far as nobody else is reading them.
    fn window(&self, object: ObjectId, span: Span, from: Block, blocks: u64) -> Span {
        let Some(known) = self.store.get(object) else { return span };
        let end_of_origin = Block(headpond_base::blocks_for(known.origin_end()));
        let end = Block(from.0 + (span.end.0 - from.0).next_multiple_of(blocks)).min(end_of_origin).max(span.end);
        // What others are reading already is not read twice.
        let Span { first, end } = self.fetches.cut(object, span, Span { first: from, end });
        let most = u64::from(self.store.log().geometry().record_blocks_max());
        Span { first: first.max(Block(span.end.0.saturating_sub(most))), end: end.min(first.plus(most)).max(span.end) }
    }

    /// Whatever is being read of these blocks is old from now on.
    pub(crate) fn poison(&mut self, object: ObjectId, span: Span) {
        self.destage.forget_moves(object, span);
        if !headpond_log::Mutation::KeepMemoryWindow.is_planted(self.config.mutation) {
            self.store.drop_from_memory(object, span);
        }
        self.fetches.poison(object, span);
    }

    /// A read of the origin came back.
    pub(crate) fn fetched(&mut self, id: FetchId, outcome: Outcome) {
        let Some(fetch) = self.fetches.end(id) else { return };
        let bytes = match outcome {
            Outcome::Bytes(bytes) => whole_blocks(&fetch, &bytes),
            Outcome::Failed(errno) => return self.fetch_failed(fetch, errno),
            _ => return self.fetch_failed(fetch, Errno::IO),
        };
        if !fetch.waiters().is_empty() {
            let took = self.now.since(fetch.since());
            self.hits_to_origin.origin_took(took, self.now);
            self.destage.miss_took(took);
        }
        for waiter in fetch.waiters() {
            let from = usize::try_from(waiter.span.first.0 - fetch.span().first.0).expect("fetches are small") * BLOCK;
            let len = usize::try_from(waiter.span.blocks()).expect("fetches are small") * BLOCK;
            if let Some(op) = self.requests.get_mut(waiter.op) {
                op.gathered.put(waiter.out_at, bytes.slice(from..from + len));
            }
            self.requests.part_done(waiter.op, None);
        }
        self.admit(&fetch, &bytes);
        self.fetch_over(&fetch);
    }

    /// Who waits keeps the object; with what nobody waited for it may go.
    fn fetch_over(&mut self, fetch: &Fetch) {
        if fetch.waiters().is_empty() {
            self.retire(fetch.object());
        }
    }

    fn fetch_failed(&mut self, fetch: Fetch, errno: Errno) {
        self.stats.origin_errors += 1;
        self.fetch_over(&fetch);
        let (object, span, admit) = (fetch.object(), fetch.span(), fetch.admit());
        for waiter in fetch.into_waiters() {
            if waiter.span != span {
                // The bad place may be in what nobody asked for.
                self.start_fetch(object, waiter.span, vec![waiter], 1, admit);
            } else {
                self.requests.part_done(waiter.op, Some(errno));
            }
        }
    }

    fn admit(&mut self, fetch: &Fetch, bytes: &Buf) {
        let Some(by) = fetch.admit() else { return };
        if !self.may_let_in(fetch.object(), fetch.span()) {
            return;
        }
        let Some(known) = self.store.get(fetch.object()) else { return };
        let welcome: Vec<bool> = (0..)
            .zip(fetch.poisoned())
            .map(|(index, poisoned)| {
                let block = fetch.span().first.plus(index);
                !poisoned
                    && !known.locks.excluded(block)
                    && known.map().get(block).is_none()
                    && !self.store.is_in_memory(fetch.object(), block)
            })
            .collect();
        if !welcome.contains(&true) || !self.may_name_clean(fetch.object()) {
            return;
        }
        let places: Vec<Place> = (0..)
            .zip(&welcome)
            .map(|(index, welcome)| {
                let block = fetch.span().first.plus(index);
                let from = usize::try_from(index).expect("fetches are small") * BLOCK;
                let bytes = &bytes[from..from + BLOCK];
                let asked = fetch.asked_for(block);
                if *welcome {
                    self.keeping().place(fetch.object(), block, asked.unwrap_or(by), asked.is_some(), bytes)
                } else {
                    Place::Nowhere
                }
            })
            .collect();
        self.let_in(fetch.object(), fetch.span().first, &places, bytes);
        let lingering = places.iter().filter(|place| matches!(place, Place::Lingers(_))).count();
        let waiting = places.iter().filter(|place| **place == Place::Unasked).count();
        let middle = fetch.waiters().first().map_or(fetch.span().first, |waiter| waiter.span.first);
        let unasked = u32::try_from(lingering + waiting).expect("fetches are small");
        self.stats.neighbour_blocks += lingering as u64;
        self.stats.waiting_neighbour_blocks += waiting as u64;
        self.neighbours.came(fetch.object(), middle, fetch.window(), unasked);
    }

    /// Whether clean blocks may come into the pool now.
    pub(crate) fn may_let_in(&self, object: ObjectId, span: Span) -> bool {
        let room = self.store.log().segments().free() > ADMIT_RESERVE;
        // A sparse file may be longer than what the pool can name.
        let nameable = span.end.byte() <= crate::store::object::OBJECT_BYTES_MAX;
        let linked = self.store.get(object).is_some_and(|known| !known.state.flags.unlinked);
        room && nameable
            && linked
            && !self.store.is_crowded()
            && self.rules().admit_reads
            && self.store.takes_writes()
            && !self.life.is_ending()
    }

    /// Makes sure that the log may name the object of clean blocks; `false` if it cannot now.
    pub(crate) fn may_name_clean(&mut self, object: ObjectId) -> bool {
        let Some(known) = self.store.get(object) else { return false };
        let dirty_unnamed = known.state.flags.attributes_dirty && !known.persisted;
        if !self.make_room_for(object) {
            return false;
        }
        if dirty_unnamed {
            self.store.known(object).trust.begin_change();
        }
        true
    }

    /// Appends clean blocks, as far as they are to be on flash; a last block that is not whole ends with zeros.
    pub(crate) fn let_in(&mut self, object: ObjectId, first: Block, places: &[Place], bytes: &[u8]) {
        let mut index = 0;
        for run in places.chunk_by(PartialEq::eq) {
            let (place, from) = (run[0], index * BLOCK);
            index += run.len();
            let (kept, class) = match place {
                Place::Nowhere | Place::Memory | Place::Unasked => continue,
                Place::Lingers(class) => (false, class),
                Place::Kept(class) => (true, class),
            };
            self.store.introduce(object);
            let blocks = u32::try_from(run.len()).expect("a record is bounded");
            let first = first.plus((from / BLOCK) as u64);
            let record = DataRecord { class, ..Store::clean_record(Stream::Cold, object, first, blocks) };
            let bytes = &bytes[from..(index * BLOCK).min(bytes.len())];
            let fill = |payload: &mut [u8]| payload[..bytes.len()].copy_from_slice(bytes);
            self.store.append_data(record, kept, Class::EVERYBODY, fill);
            (0..run.len() as u64).for_each(|at| self.keeping().count_for_class(object, first.plus(at), None, class));
            self.stats.admitted_blocks += run.len() as u64;
        }
    }
}

/// The origin's bytes filled up with zeros to whole blocks, and zeros where it does not count.
fn whole_blocks(fetch: &Fetch, bytes: &Buf) -> Buf {
    let len = usize::try_from(fetch.span().blocks() * BLOCK_U64).expect("fetches are small");
    let counts = usize::try_from(fetch.valid().saturating_sub(fetch.span().first.byte())).unwrap_or(usize::MAX);
    let kept = bytes.len().min(counts).min(len);
    if kept == len {
        return bytes.clone();
    }
    let mut whole = BufMut::zeroed(len);
    whole[..kept].copy_from_slice(&bytes[..kept]);
    whole.freeze()
}
