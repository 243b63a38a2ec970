//! Finds sequential streams: long runs of neighbouring transfers are not worth the cache.
//!
//! A stream is known by its object, its process, its direction, and where it goes on, so that a
//! process that reads two places of one file in turn has two. Up to [`STREAMS`] are followed at
//! once; of more, those that moved last.
//!
//! Invariants:
//! - A transfer bypasses only if its run is already longer than the cut-off. What came
//!   before is cached like anything else.
//! - A jump ends the run: a random reader is never taken for a stream, however long it lives.

use headpond_base::ObjectId;

/// Streams followed at once. A look compares with each: 64 take about as long as one table look-up
/// that misses the processor's caches.
const STREAMS: usize = 128;

/// A transfer continues a stream if it begins within this many bytes behind where that ended: the
/// kernel's read-ahead leaves out what it has, and sends neighbours out of order.
const GAP: u64 = 256 << 10;

/// A process. Zero is the kernel's own, when it writes back or reads ahead for a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process(pub u32);

/// A read or a write, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The file or volume.
    pub object: ObjectId,
    /// Who asked.
    pub process: Process,
    /// Whether it is a write.
    pub write: bool,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

struct Stream {
    object: ObjectId,
    process: Process,
    write: bool,
    /// The end of the furthest transfer.
    next: u64,
    /// Bytes in the run so far.
    run: u64,
    /// The number of the transfer that moved it last.
    moved: u64,
}

/// The streams that are being followed.
pub struct Streams {
    cutoff: Option<u64>,
    streams: Vec<Stream>,
    transfers: u64,
}

impl Streams {
    /// The cut-off where nothing else is said: 4 MiB.
    pub const CUTOFF: u64 = 4 << 20;

    /// Runs longer than `cutoff` bytes pass by the cache; with `None`, none do.
    #[must_use]
    pub fn new(cutoff: Option<u64>) -> Self {
        Self { cutoff, streams: Vec::with_capacity(STREAMS), transfers: 0 }
    }

    /// Changes the cut-off; the runs under way go on counting.
    pub const fn set_cutoff(&mut self, cutoff: Option<u64>) {
        self.cutoff = cutoff;
    }

    /// A request waited for the object's writes to be durable: they are no stream that passes by, however long.
    pub fn synced(&mut self, object: ObjectId) {
        for stream in self.streams.iter_mut().filter(|stream| stream.write && stream.object == object) {
            stream.run = 0;
        }
    }

    /// Takes notice of a transfer. `true` if it should pass by the cache.
    pub fn passes_by(&mut self, transfer: Transfer) -> bool {
        self.transfers += 1;
        let Some(cutoff) = self.cutoff else { return false };
        let end = transfer.offset.saturating_add(transfer.len);
        let continues = |stream: &Stream| {
            stream.object == transfer.object
                && stream.process == transfer.process
                && stream.write == transfer.write
                && transfer.offset <= stream.next.saturating_add(GAP)
                && transfer.offset.saturating_add(GAP) >= stream.next
        };
        if let Some(stream) = self.streams.iter_mut().find(|stream| continues(stream)) {
            // What was there before, or overlaps, is no progress.
            stream.run += end.saturating_sub(stream.next).min(transfer.len);
            stream.next = stream.next.max(end);
            stream.moved = self.transfers;
            return stream.run > cutoff;
        }
        let Transfer { object, process, write, len, .. } = transfer;
        let new = Stream { object, process, write, next: end, run: len, moved: self.transfers };
        if self.streams.len() < STREAMS {
            self.streams.push(new);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.moved) {
            *oldest = new;
        }
        len > cutoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 128 << 10;

    fn read(object: u64, process: u32, offset: u64, len: u64) -> Transfer {
        Transfer { object: ObjectId(object), process: Process(process), write: false, offset, len }
    }

    #[test]
    fn sixty_four_interleaved_streams_pass_by_each_after_its_first_four_mebibytes() {
        let mut streams = Streams::new(Some(Streams::CUTOFF));
        let cached: u64 = (0..100)
            .flat_map(|piece| (0..64).map(move |who| (piece, who)))
            .filter(|(piece, who)| {
                // Two places each in 32 files, by changing processes.
                let offset = u64::from(who % 2) * (1 << 30) + piece * PIECE;
                !streams.passes_by(read(u64::from(who / 2), who % 7, offset, PIECE))
            })
            .count() as u64
            * PIECE;
        assert_eq!(cached, 64 * Streams::CUTOFF);
    }

    #[test]
    fn writes_that_are_synced_as_they_go_never_pass_by() {
        let mut streams = Streams::new(Some(Streams::CUTOFF));
        for piece in 0..1000 {
            let transfer = Transfer { write: true, ..read(1, 1, piece * PIECE, PIECE) };
            assert!(!streams.passes_by(transfer), "a log of {piece} pieces");
            if piece % 8 == 7 {
                streams.synced(ObjectId(1));
            }
        }
    }

    #[test]
    fn a_random_reader_never_passes_by() {
        let mut streams = Streams::new(Some(Streams::CUTOFF));
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert!(!streams.passes_by(read(1, 1, (state >> 24) % (100 << 30) / 16384 * 16384, 16384)));
        }
    }

    #[test]
    fn reading_the_same_place_again_and_again_is_no_stream() {
        let mut streams = Streams::new(Some(Streams::CUTOFF));
        assert!((0..10_000).all(|_| !streams.passes_by(read(1, 1, 0, 16384))));
    }

    #[test]
    fn read_ahead_out_of_order_is_still_one_stream() {
        let mut streams = Streams::new(Some(1 << 20));
        let order = [1, 0, 3, 2].map(|at| at * PIECE);
        let passed = (0..10).flat_map(|four| order.map(|at| four * 4 * PIECE + at));
        let passed = passed.filter(|at| streams.passes_by(read(1, 1, *at, PIECE))).count();
        assert!(passed > 15, "{passed} of 40");
    }

    #[test]
    fn without_a_cut_off_nothing_passes_by_and_a_changed_one_holds_at_once() {
        let mut streams = Streams::new(None);
        assert!((0..1000).all(|piece| !streams.passes_by(read(1, 1, piece * PIECE, PIECE))));
        streams.set_cutoff(Some(PIECE));
        assert!(!streams.passes_by(read(2, 1, 0, PIECE)));
        assert!(streams.passes_by(read(2, 1, PIECE, PIECE)));
        assert!(streams.passes_by(read(3, 1, 0, 2 * PIECE)), "one large transfer is a run of its own");
    }
}
