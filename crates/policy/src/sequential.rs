//! Finds sequential runs: long runs of neighbouring transfers are not worth the cache.
//!
//! A run is known by its object, its process, its direction, and where it goes on. So a process that reads two places
//! of one file in turn has two runs. Up to [`RUNS`] are followed at once: those that moved last.
//!
//! Invariants:
//! - A transfer bypasses only if its run is already longer than the cut-off. What came before is cached like all else.
//! - A jump ends the run: a random reader is never taken for sequential, however long it lives.

use headpond_base::ObjectId;

/// Runs followed at once. Each transfer is compared with each: 64 runs take about as long as one table look-up that
/// misses the processor's caches.
const RUNS: usize = 128;

/// A transfer continues a run if it begins within this many bytes behind the run's end. The kernel's read-ahead leaves
/// out what it has, and sends neighbours out of order.
const GAP: u64 = 256 << 10;

/// A process. Zero is the kernel itself, when it writes back or reads ahead for a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessId(pub u32);

/// The properties of a read or a write that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The file or volume.
    pub object: ObjectId,
    /// The process that asked.
    pub process: ProcessId,
    /// Whether it is a write.
    pub write: bool,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

struct SequentialRun {
    object: ObjectId,
    process: ProcessId,
    write: bool,
    /// The end of the furthest transfer.
    next: u64,
    /// Bytes in the run so far.
    bytes: u64,
    /// The number of the run's latest transfer.
    moved: u64,
}

/// The runs that are followed.
pub struct SequentialRuns {
    cutoff: Option<u64>,
    runs: Vec<SequentialRun>,
    transfers: u64,
}

impl SequentialRuns {
    /// The default cut-off in bytes: 4 MiB.
    pub const CUTOFF: u64 = 4 << 20;

    /// Runs longer than `cutoff` bytes pass by the cache. With `None` no run does.
    #[must_use]
    pub fn new(cutoff: Option<u64>) -> Self {
        Self { cutoff, runs: Vec::with_capacity(RUNS), transfers: 0 }
    }

    /// Changes the cut-off. Present runs go on.
    pub const fn set_cutoff(&mut self, cutoff: Option<u64>) {
        self.cutoff = cutoff;
    }

    /// Notes that a request waited until the object's writes were durable. Such writes are no run that bypasses,
    /// however long.
    pub fn synced(&mut self, object: ObjectId) {
        for run in self.runs.iter_mut().filter(|run| run.write && run.object == object) {
            run.bytes = 0;
        }
    }

    /// Notes a transfer. `true` if it should pass by the cache.
    pub fn passes_by(&mut self, transfer: Transfer) -> bool {
        self.transfers += 1;
        let Some(cutoff) = self.cutoff else { return false };
        let end = transfer.offset.saturating_add(transfer.len);
        let continues = |run: &SequentialRun| {
            run.object == transfer.object
                && run.process == transfer.process
                && run.write == transfer.write
                && transfer.offset <= run.next.saturating_add(GAP)
                && transfer.offset.saturating_add(GAP) >= run.next
        };
        if let Some(run) = self.runs.iter_mut().find(|run| continues(run)) {
            // Bytes that the run had before, or that overlap, are no progress.
            run.bytes += end.saturating_sub(run.next).min(transfer.len);
            run.next = run.next.max(end);
            run.moved = self.transfers;
            return run.bytes > cutoff;
        }
        let Transfer { object, process, write, len, .. } = transfer;
        let new = SequentialRun { object, process, write, next: end, bytes: len, moved: self.transfers };
        if self.runs.len() < RUNS {
            self.runs.push(new);
        } else if let Some(oldest) = self.runs.iter_mut().min_by_key(|run| run.moved) {
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
        Transfer { object: ObjectId(object), process: ProcessId(process), write: false, offset, len }
    }

    #[test]
    fn sixty_four_interleaved_runs_pass_by_each_after_its_first_four_mebibytes() {
        let mut runs = SequentialRuns::new(Some(SequentialRuns::CUTOFF));
        let cached: u64 = (0..100)
            .flat_map(|piece| (0..64).map(move |who| (piece, who)))
            .filter(|(piece, who)| {
                // Two places in each of 32 files, by changing processes.
                let offset = u64::from(who % 2) * (1 << 30) + piece * PIECE;
                !runs.passes_by(read(u64::from(who / 2), who % 7, offset, PIECE))
            })
            .count() as u64
            * PIECE;
        assert_eq!(cached, 64 * SequentialRuns::CUTOFF);
    }

    #[test]
    fn writes_that_are_synced_as_they_go_never_pass_by() {
        let mut runs = SequentialRuns::new(Some(SequentialRuns::CUTOFF));
        for piece in 0..1000 {
            let transfer = Transfer { write: true, ..read(1, 1, piece * PIECE, PIECE) };
            assert!(!runs.passes_by(transfer), "a log of {piece} pieces");
            if piece % 8 == 7 {
                runs.synced(ObjectId(1));
            }
        }
    }

    #[test]
    fn a_random_reader_never_passes_by() {
        let mut runs = SequentialRuns::new(Some(SequentialRuns::CUTOFF));
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert!(!runs.passes_by(read(1, 1, (state >> 24) % (100 << 30) / 16384 * 16384, 16384)));
        }
    }

    #[test]
    fn reading_the_same_place_again_and_again_is_no_run() {
        let mut runs = SequentialRuns::new(Some(SequentialRuns::CUTOFF));
        assert!((0..10_000).all(|_| !runs.passes_by(read(1, 1, 0, 16384))));
    }

    #[test]
    fn read_ahead_out_of_order_is_still_one_run() {
        let mut runs = SequentialRuns::new(Some(1 << 20));
        let order = [1, 0, 3, 2].map(|at| at * PIECE);
        let passed = (0..10).flat_map(|four| order.map(|at| four * 4 * PIECE + at));
        let passed = passed.filter(|at| runs.passes_by(read(1, 1, *at, PIECE))).count();
        assert!(passed > 15, "{passed} of 40");
    }

    #[test]
    fn without_a_cut_off_nothing_passes_by_and_a_changed_one_holds_at_once() {
        let mut runs = SequentialRuns::new(None);
        assert!((0..1000).all(|piece| !runs.passes_by(read(1, 1, piece * PIECE, PIECE))));
        runs.set_cutoff(Some(PIECE));
        assert!(!runs.passes_by(read(2, 1, 0, PIECE)));
        assert!(runs.passes_by(read(2, 1, PIECE, PIECE)));
        assert!(runs.passes_by(read(3, 1, 0, 2 * PIECE)), "one large transfer is a run of its own");
    }
}
