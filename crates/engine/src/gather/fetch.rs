//! Fetching from the origin: one read for all requests that miss the same blocks.
//!
//! Invariants:
//! - A request joins a read under way only if nothing changed its blocks since that began.
//! - A read that fails is repeated for what was asked for alone: the bad place may lie in what came along.

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Class, Errno, ObjectId};

use crate::effect::{Effect, Outcome};
use crate::fetches::{Fetch, FetchId, Waiter};
use crate::gather::Gathering;
use crate::locks::{OpId, Span};
use crate::purpose::Purpose;

impl Gathering<'_> {
    /// Reads blocks that the map has not got for a request that has their lock.
    pub(super) fn fetch(&mut self, op: OpId, object: ObjectId, span: Span, out_at: usize, admit: Option<Class>) {
        let waiter = Waiter { op, span, out_at, admit };
        // A read of the same blocks that is under way will do, if nothing changed since it began.
        let Err(waiter) = self.gather.fetches.join(object, waiter) else { return };
        let led = self.gather.trails.leads_to(object, span);
        let (wide, window) = if admit.is_some() { self.brings(object, span, led) } else { (span, 1) };
        self.gather.trails.brought(wide.end);
        self.start_fetch(object, wide, vec![waiter], window, admit);
    }

    pub(super) fn start_fetch(
        &mut self,
        object: ObjectId,
        span: Span,
        waiters: Vec<Waiter>,
        window: u64,
        admit: Option<Class>,
    ) {
        let Some(known) = self.store.get(object) else { return };
        let mut fetch = Fetch::new(object, span, known.origin_end(), window, (waiters, admit), self.now);
        for (block, _) in known.map().range(span.first, span.end) {
            fetch.poison(Span { first: block, end: block.next() });
        }
        for (first, end) in known.zeros().within(span.first, span.end) {
            fetch.poison(Span { first, end });
        }
        let id = self.gather.fetches.begin(fetch);
        let len = u32::try_from(span.blocks() * BLOCK_U64).expect("fetches are small");
        self.outbox.start(Purpose::Fetch(id), |ticket| Effect::OriginRead {
            ticket,
            object,
            offset: span.first.byte(),
            len,
        });
    }

    /// A read of the origin came back. Answers with its object if no request waited for it: then it may be let go of.
    pub(crate) fn fetched(&mut self, id: FetchId, outcome: Outcome) -> Option<ObjectId> {
        let fetch = self.gather.fetches.end(id)?;
        let unasked = fetch.waiters().is_empty().then(|| fetch.object());
        match outcome {
            Outcome::Bytes(bytes) => self.fetch_came(&fetch, &whole_blocks(&fetch, &bytes)),
            Outcome::Failed(errno) => self.fetch_failed(fetch, errno),
            _ => self.fetch_failed(fetch, Errno::IO),
        }
        unasked
    }

    fn fetch_came(&mut self, fetch: &Fetch, bytes: &Buf) {
        if !fetch.waiters().is_empty() {
            let took = self.now.since(fetch.since());
            self.gather.hits_to_origin.origin_took(took, self.now);
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
        self.admit(fetch, bytes);
    }

    fn fetch_failed(&mut self, fetch: Fetch, errno: Errno) {
        self.stats.origin_errors += 1;
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
